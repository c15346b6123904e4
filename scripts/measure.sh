#!/bin/bash
# Measures what docs/measurements.md quotes, all of it with one build, and writes a
# report of each suite:
#
#   scripts/measure.sh [DIRECTORY]    default docs/measurements
#
# DIRECTORY gets SUITE.html, bin/measurements SUITE.json with all numbers. Root, about
# an hour, and nothing else to do for the machine meanwhile. A target that is missed does not end
# it; the reports say which.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
reports=${1:-docs/measurements}
numbers=bin/measurements
mkdir -p "$reports" "$numbers"
make --no-print-directory build

# measure SUITE FLAGS...
measure() {
	local suite=$1
	printf '\n=== %s\n' "$suite"
	scripts/as-root.sh bin/weir bench "$@" --no-verdict --report "$reports/$suite.html" -o json >"$numbers/$suite.json"
}

measure qcon
measure cntc --duration 6s
measure accuracy --no-docker --duration 4s
measure reaction --no-docker --repeat 3
measure cap --no-docker --repeat 3
measure cost --no-docker --duration 4s --repeat 3
measure agent --duration 6s
measure llq --repeat 5

printf '\n=== model\n'
scripts/as-root.sh bin/weir bench model --repeat 20 --report "$reports/model.html" -o json >"$numbers/model.json"
