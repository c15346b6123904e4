#!/bin/bash
# Runs every fuzz target of the tree for FUZZTIME each (default 5s). Their seeds
# run with the unit tests; this looks for new inputs. A failing input is left in
# the package's testdata/fuzz: commit it with the fix.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
found=0
while IFS=: read -r file target; do
	found=$((found + 1))
	scripts/with-go.sh go test -run '^$' -fuzz "^$target\$" \
		-fuzztime "${FUZZTIME:-5s}" "./$(dirname "$file")"
done < <(grep -rEo --include='*_test.go' --exclude-dir=testdata '^func Fuzz[A-Za-z0-9_]*' . |
	sed 's|^\./||; s|:func |:|' | LC_ALL=C sort)
echo "$found fuzz targets"
[ "$found" -gt 0 ]
