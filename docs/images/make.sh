#!/bin/bash
# Makes the pictures of the documentation from a real run of the demo. As root:
#
#   docs/images/make.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
demo=$(mktemp)
trap 'rm -f "$demo"' EXIT

# Long enough for each of the eight scenes to settle.
bin/weir demo --duration 64s >"$demo"
scripts/with-go.sh go run docs/images/render.go 3 4 5 <"$demo" >docs/images/demo.svg
