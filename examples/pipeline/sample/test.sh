#!/bin/sh
set -e
[ "$(sh greet.sh)" = "Hello." ]
echo "All tests passed."
