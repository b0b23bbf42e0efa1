#!/usr/bin/env bash
# Runs a command and, beside it, Scala's tests, whose output is shown once they have ended: all of it if one failed.
#   tools/beside_scala.sh COMMAND...
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
set -m # a process group of its own, so that the trap ends Maven with all that it has started
nice -n 5 tools/maven.sh test >"$log" 2>&1 &
scala=$!
set +m
trap 'kill -- "-$scala" 2>/dev/null; rm -f "$log"' EXIT
trap 'exit 130' INT TERM

"$@"
status=$?
wait "$scala"
scala_status=$?
if [ "$scala_status" -ne 0 ]; then
    cat "$log" >&2
    grep -A 3 -F '*** FAILED ***' "$log" >&2 # once more, where a reader of the last lines finds them
    echo "The tests of jvm/ failed; run them alone with: tools/maven.sh test" >&2
else
    echo "The tests of jvm/ passed."
fi
exit "$((status ? status : scala_status))"
