#!/usr/bin/env bash
# Checks for what set-up cannot install itself. Prints the Python to use on standard output; what is missing, and how
# to get it, on standard error (exit 1).
#   tools/check_prerequisites.sh [PYTHON]
set -uo pipefail
get_maven="Debian/Ubuntu: apt-get install maven; macOS: brew install maven; or unpack https://maven.apache.org/download.cgi"
missing=0

complain() {
    printf '\n  MISSING  %s\n           %s\n' "$1" "$2" >&2
    missing=1
}

# True for a Python of version 3.11 or newer that can make virtual environments.
python_is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# The one asked for, or else the first that will do.
find_python() {
    local candidate
    for candidate in ${1:-python3 python3.11 python3.12 python3.13 python}; do
        if python_is_new_enough "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# Major version of a java or javac: "17.0.15" -> 17, "1.8.0_392" -> 8; nothing where it does not run.
java_major() {
    "$1" -version 2>&1 | sed -nE 's/^(.*version "|javac )(1\.)?([0-9]+).*/\3/p' | head -n 1
}

check_java() {
    local name=$1 tool=$1 major
    if [ -n "${JAVA_HOME:-}" ]; then tool="$JAVA_HOME/bin/$name"; fi
    major=$(java_major "$tool")
    if [ -z "$major" ]; then
        complain "JDK 17 or newer: '$tool' does not run." \
            "Debian/Ubuntu: apt-get install openjdk-17-jdk-headless; macOS: brew install openjdk@17; then set JAVA_HOME if need be."
    elif [ "$major" -lt 17 ]; then
        complain "JDK 17 or newer: '$tool' is version $major." \
            "Install JDK 17 (openjdk-17-jdk-headless, openjdk@17) and set JAVA_HOME to it."
    fi
}

check_maven() {
    local found
    found=$(mvn -version 2>/dev/null | sed -nE 's/.*Apache Maven ([0-9]+\.[0-9]+).*/\1/p' | head -n 1)
    if [ -z "$found" ]; then
        complain "Maven 3.8 or newer, which builds jvm/: 'mvn' does not run." "$get_maven"
    elif [ "$(printf '3.8\n%s\n' "$found" | sort -V | head -n 1)" != 3.8 ]; then
        complain "Maven 3.8 or newer, which builds jvm/: 'mvn' is version $found." "$get_maven"
    fi
}

python=$(find_python "${1:-}") || complain "Python 3.11 or newer: ${1:-"none of python3, python3.11 to 3.13, python"} does not run or is older." \
    "Debian/Ubuntu: apt-get install python3.11 python3.11-venv; macOS: brew install python@3.11; or make setup PYTHON=/path/to/python."
if [ -n "$python" ] && ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    complain "Python's venv module in $python." "Debian/Ubuntu: apt-get install python3-venv (the one of that Python's version)."
fi
check_java java
check_java javac
check_maven

if [ "$missing" -ne 0 ]; then
    printf '\nSet-up stopped: install the above and run the same command again.\n' >&2
    exit 1
fi
printf '%s\n' "$python"
