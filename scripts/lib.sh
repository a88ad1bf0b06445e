#!/usr/bin/env bash
# What the scripts share: stages that are timed and named, where Cargo builds, and
# where the judges live. It is sourced, never run.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# CI clones afresh each time: building under the user's cache keeps the second
# clone warm. Incremental files would only fill that cache.
if [[ -n "${CI:-}" ]]; then
  cache="${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}"
  if [[ -d "$cache" ]]; then
    export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$cache/longhaul/target}"
    export LONGHAUL_JUDGES="${LONGHAUL_JUDGES:-$cache/longhaul/judges}"
  fi
  export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
fi
# The tests that run the judges look here too.
export LONGHAUL_JUDGES="${LONGHAUL_JUDGES:-$PWD/target/judges}"

stages_done=()

# stage NAME COMMAND...: runs the command, says how long it took, and stops the
# script at a failure with the line that repeats it.
stage() {
  local name=$1 begun=$SECONDS status=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || status=$?
  local took=$((SECONDS - begun))
  if ((status != 0)); then
    printf '\n== %s FAILED after %d s. To repeat it:\n\n    %s\n\n' \
      "$name" "$took" "$(as_typed "$@")" >&2
    exit "$status"
  fi
  printf '== %s: %d s\n' "$name" "$took"
  stages_done+=("$(printf '%6d s  %s' "$took" "$name")")
}

# A command as a person would type it, with quotes only where they are needed.
as_typed() {
  local word line=''
  for word in "$@"; do
    if [[ "$word" =~ ^[A-Za-z0-9_./:=@%+,-]+$ ]]; then
      line+="$word "
    else
      line+="'${word//\'/\'\\\'\'}' "
    fi
  done
  printf '%s' "${line% }"
}

# The times of all stages, at the end.
summary() {
  printf '\n'
  printf '%s\n' "${stages_done[@]}"
  printf '%6d s  in all. %s\n' "$SECONDS" "$1"
}

has_nextest() {
  cargo nextest --version >/dev/null 2>&1
}
