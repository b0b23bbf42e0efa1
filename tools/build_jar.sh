#!/usr/bin/env bash
# Builds the Scala operators into one jar. `make jar` calls it when jvm/ is newer than the jar.
#   tools/build_jar.sh lotan/jars/lotan-VERSION.jar
set -euo pipefail
cd "$(dirname "$0")/.."
jar=$1
echo "Building $jar with Maven (the first time: some minutes; it downloads about 300 MB)"
tools/maven.sh package -DskipTests -Djar.folder=target/shaded
built=jvm/target/shaded/${jar##*/}
if [ ! -f "$built" ]; then
    echo "Maven built $(cd jvm/target/shaded && ls), not ${jar##*/}: the versions in jvm/pom.xml and lotan/version.py differ" >&2
    exit 1
fi
# Put in place whole, because a running Spark may have the old one open; a wheel takes all jars there, so one is left.
mkdir -p "${jar%/*}"
cp "$built" "$jar.new"
rm -f "${jar%/*}"/*.jar
mv "$jar.new" "$jar"
