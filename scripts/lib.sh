#!/usr/bin/env bash
# Functions and settings that the scripts share: named and timed stages, Cargo's target directory,
# and the directory of the interop programs. This file is sourced, never run.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Each CI run has a new clone of the repository. It builds under the user's cache directory, so that
# the next run reuses the build. Incremental files would only fill the cache, and without debug
# information everything is compiled and linked faster.
if [[ -n "${CI:-}" ]]; then
  cache="${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}"
  if [[ -d "$cache" ]]; then
    export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$cache/longhaul/target}"
    export LONGHAUL_INTEROP_DIR="${LONGHAUL_INTEROP_DIR:-$cache/longhaul/interop}"
  fi
  export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
  export CARGO_PROFILE_DEV_DEBUG="${CARGO_PROFILE_DEV_DEBUG:-0}"
fi
# The interop tests read this variable too.
export LONGHAUL_INTEROP_DIR="${LONGHAUL_INTEROP_DIR:-$PWD/target/interop}"

# More tests than cores run at once, because many tests wait for processes and timers.
export NEXTEST_TEST_THREADS="${NEXTEST_TEST_THREADS:-$((($(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2))}"

stage_times=()

# stage NAME COMMAND...: runs the command and prints how long it took. If the command fails, prints
# the command and ends the script with its status.
stage() {
  local name=$1 started_at=$SECONDS status=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || status=$?
  local elapsed=$((SECONDS - started_at))
  if ((status != 0)); then
    printf '\n== %s FAILED after %d s. To repeat it:\n\n    %s\n\n' \
      "$name" "$elapsed" "$(quote_command "$@")" >&2
    exit "$status"
  fi
  printf '== %s: %d s\n' "$name" "$elapsed"
  stage_times+=("$(printf '%6d s  %s' "$elapsed" "$name")")
}

# quote_command COMMAND...: prints the command so that it can be pasted into a shell, with quotes
# only where they are needed.
quote_command() {
  local argument quoted=''
  for argument in "$@"; do
    if [[ "$argument" =~ ^[A-Za-z0-9_./:=@%+,-]+$ ]]; then
      quoted+="$argument "
    else
      quoted+="'${argument//\'/\'\\\'\'}' "
    fi
  done
  printf '%s' "${quoted% }"
}

# summary TEXT: prints the times of all stages, and the text after the total.
summary() {
  printf '\n'
  printf '%s\n' "${stage_times[@]}"
  printf '%6d s  in total. %s\n' "$SECONDS" "$1"
}

has_nextest() {
  cargo nextest --version >/dev/null 2>&1
}
