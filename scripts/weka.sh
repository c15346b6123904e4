#!/bin/bash
# Compares internal/lab/train with WEKA's J48 on the same data; with WEIR_FLOWS
# naming a table of flows (.csv.gz), on those, too. -update writes the golden file
# that the unit tests hold C4.5 to. Skips where there is no Java or no Maven.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
for program in java mvn; do
	if ! command -v "$program" >/dev/null; then
		echo "skipped: the comparison with WEKA needs $program"
		exit 0
	fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/pom.xml" <<'POM'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>weir</groupId><artifactId>weka</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>nz.ac.waikato.cms.weka</groupId><artifactId>weka-stable</artifactId><version>3.8.6</version>
  </dependency></dependencies>
</project>
POM
mvn -q -B -f "$work/pom.xml" dependency:build-classpath "-Dmdep.outputFile=$work/classpath"
WEIR_WEKA=$(<"$work/classpath") scripts/with-go.sh go test -count=1 -v -run '^TestJ48$' ./internal/lab/train -args "$@"
