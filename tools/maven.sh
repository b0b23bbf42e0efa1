#!/usr/bin/env bash
# Runs Maven on jvm/. What it lacks it downloads, once, into its own cache; from then on no network is needed.
#   tools/maven.sh GOAL...
set -uo pipefail
cd "$(dirname "$0")/.."
command -v mvn >/dev/null 2>&1 || { tools/check_prerequisites.sh >/dev/null; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
mvn --quiet --batch-mode --no-transfer-progress --file jvm/pom.xml "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
if [ "$status" -ne 0 ] && grep -qE 'Could not (transfer|resolve|find) (artifact|dependencies)|ResolutionException|in offline mode' "$log"; then
    cat >&2 <<'TEXT'

  Maven could not download what jvm/ is built with (Scala, Spark's classes, plugins: some 300 MB, the first time only).
           It needs Maven Central, or a mirror or proxy that ~/.m2/settings.xml names. Then run the same command again.
TEXT
fi
exit "$status"
