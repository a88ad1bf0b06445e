#!/usr/bin/env bash
# Shared by the scripts: named and timed stages, Cargo's target directory, and the
# directory of the interop programs. It is sourced, never run.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# CI makes a new clone each time: building under the user's cache directory lets
# the next clone reuse the build. Incremental files would only fill the cache.
if [[ -n "${CI:-}" ]]; then
  cache="${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}"
  if [[ -d "$cache" ]]; then
    export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$cache/longhaul/target}"
    export LONGHAUL_INTEROP_DIR="${LONGHAUL_INTEROP_DIR:-$cache/longhaul/interop}"
  fi
  export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
fi
# The interop tests read this variable too.
export LONGHAUL_INTEROP_DIR="${LONGHAUL_INTEROP_DIR:-$PWD/target/interop}"

# Many tests wait for processes and timers, so that more tests than cores run at once.
export NEXTEST_TEST_THREADS="${NEXTEST_TEST_THREADS:-$((($(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2))}"

stages_done=()

# stage NAME COMMAND...: runs the command and prints how long it took. On failure
# it prints the command to repeat and ends the script.
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

# Prints a command as it is typed in a shell, with quotes only where they are needed.
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

# summary TEXT: prints the times of all stages.
summary() {
  printf '\n'
  printf '%s\n' "${stages_done[@]}"
  printf '%6d s  in all. %s\n' "$SECONDS" "$1"
}

has_nextest() {
  cargo nextest --version >/dev/null 2>&1
}
