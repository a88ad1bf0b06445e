#!/usr/bin/env bash
set -euo pipefail
[ "$(bash greet.sh)" = "Hello." ]
echo "All tests passed."
