#!/bin/bash
# Runs a command with a usable Go on PATH, or prints where one is.
#
#   scripts/with-go.sh go build ./...
#   scripts/with-go.sh --which        print the go program that would be used
#
# Usable is a Go at least as new as go.mod asks for, or one new enough (1.21)
# to fetch the toolchain that go.mod names. Some are installed with that fetching
# switched off, so it is switched on here where it is needed and the caller has
# not decided otherwise.
#
# Also sets what the go command insists on and bare environments lack: HOME,
# and the directories of root's programs on PATH.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fetches_toolchains=1.21
wanted=$(awk '$1 == "go" { print $2; exit }' "$root/go.mod")

if [ -z "${HOME:-}" ]; then
	HOME=$(getent passwd "$(id -u)" | cut -d: -f6 || true)
	[ -n "$HOME" ] && [ -w "$HOME" ] || HOME=${TMPDIR:-/tmp}/weir-home-$(id -u)
	mkdir -p "$HOME"
	export HOME
fi
export PATH="${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin"

# at_least A B: version A is B or newer.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# The go programs of this machine, best first: the user's choice, the place of
# the upstream archive, the distribution's versioned packages.
candidates() {
	type -aP go || true
	echo /usr/local/go/bin/go
	printf '%s\n' /usr/lib/go-*/bin/go | sort -rV
}

chosen='' chosen_version=''
while read -r go; do
	[ -x "$go" ] || continue
	version=$(GOTOOLCHAIN=local GOFLAGS='' "$go" env GOVERSION 2>/dev/null </dev/null) || continue
	version=${version#go}
	if at_least "$version" "$wanted"; then
		chosen=$go chosen_version=$version
		break
	fi
	if [ -z "$chosen" ] && at_least "$version" "$fetches_toolchains"; then
		chosen=$go chosen_version=$version
	fi
done < <(cd / && candidates)

if [ -z "$chosen" ]; then
	echo "no usable Go found (need $wanted, or $fetches_toolchains to fetch it): run 'make deps'" >&2
	exit 1
fi
if [ "${1:-}" = --which ]; then
	echo "$chosen"
	exit 0
fi

chosen_dir=$(dirname "$chosen")
export PATH="$chosen_dir:$PATH"
if ! at_least "$chosen_version" "$wanted"; then
	export GOTOOLCHAIN="${GOTOOLCHAIN:-auto}"
fi
# Stamping commits fails in a checkout that belongs to another user; the
# version comes from the Makefile. Programs are built with -trimpath: tests without it would
# compile all packages a second time.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false -trimpath"
exec "$@"
