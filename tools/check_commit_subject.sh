#!/usr/bin/env bash
# Refuses a commit message whose first line is longer than 72 characters. pre-commit calls it with the message's file.
#   tools/check_commit_subject.sh .git/COMMIT_EDITMSG
set -euo pipefail
subject=$(head -n 1 "$1")
if [ "${#subject}" -gt 72 ]; then
    echo "The first line has ${#subject} characters; at most 72 are allowed: $subject" >&2
    exit 1
fi
