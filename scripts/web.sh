#!/bin/bash
# The dashboard's files: internal/front/web/static is made from web/ and committed, so that
# building Weir needs no Node.
#
#   scripts/web.sh build     make them
#   scripts/web.sh compare   fail if they are not what web/ makes
#   scripts/web.sh types     check the types of the TypeScript
#   scripts/web.sh axe       print the path of axe-core, for the accessibility test
#
# What it takes is pinned by web/package-lock.json, which names no address: npm asks
# the registry that this machine is set up for. Exit status 77, and why, where there
# is no Node or no registry.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root/web"

skip() { echo "$*" && exit 77; }

if ! command -v npm >/dev/null || ! node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null; then
	skip "the dashboard's sources are not looked at: Node 18 or newer, with npm, is not installed"
fi
# Installed once for each content of the lock file.
wanted=$(sha256sum package-lock.json)
if [ "$(cat node_modules/.weir-lock 2>/dev/null)" != "$wanted" ]; then
	npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 ||
		skip "the dashboard's sources are not looked at: npm cannot install what web/package-lock.json pins"
	echo "$wanted" >node_modules/.weir-lock
fi

case ${1:-} in
build) npm run --silent build ;;
types) npm run --silent check ;;
axe) echo "$PWD/node_modules/axe-core/axe.min.js" ;;
compare)
	made=$(mktemp -d)
	trap 'rm -rf "$made"' EXIT
	OUT=$made npm run --silent build >/dev/null 2>&1 || { echo "web/ does not build: see 'make web'" && exit 1; }
	if ! diff -rq "$made" "$root/internal/front/web/static" | sed "s|$made|web/ makes|"; then
		echo "internal/front/web/static differs from what web/ makes: run 'make web' and commit the result"
		exit 1
	fi
	;;
*)
	echo "usage: scripts/web.sh build|compare|types|axe" >&2
	exit 2
	;;
esac
