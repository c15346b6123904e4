#!/bin/bash
# Prints hashes of what published figures depend on, as
# `bpf=HASH,agent=HASH,edge=HASH,sdn=HASH,bench=HASH,llq=HASH,netmodes=HASH,picasso=HASH,judge=HASH`: bpf/, the packages of this
# module that are linked into the agent, and those that weir-edge, weir-sdn and the bench each have besides the ones before; go.mod
# stands for all others. Files of one suite of the bench, which no other section uses, count for its section only. Files of the bench that only judge
# what papers claim, or make reports, are judge: when they change, a night is judged again, and measured no more.
#
# sources.sh --check FILE refuses a page of claims (claims.json) of other sources, or one that says
# that it must not be published.
set -euo pipefail
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
cd "$root"

# files PROGRAM: of its packages, what the compiler reads, by the path from here, the same on each machine.
files() {
	# shellcheck disable=SC2016 # a template of Go
	GOOS=linux GOARCH=amd64 CGO_ENABLED=0 scripts/with-go.sh go list -deps -f '{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$d}}/{{.}}
{{end}}{{end}}{{end}}' "./cmd/$1" | grep . | sed "s|^$root/||" | LC_ALL=C sort -u
}

# digest: of files, by their paths and contents.
digest() { tr '\n' '\0' | xargs -0 sha256sum | sha256sum | cut -c1-16; }

# judges: files that judge claims, and so choose cases for them, and that make reports. They measure nothing.
judges='^internal/lab/(bench/(claim/[a-z]*|claim_(qcon|cntc)|findings|(llq|netmodes|picasso)/claims|all/(judge|publish|unclaimed))|report/(claims|html|index|report|text))\.go$|^internal/lab/report/(index|page)\.[a-z.]*$'

# ofSuite SUITE: what only that suite uses.
ofSuite() {
	local also=
	[ "$1" != llq ] || also='|traffic/dscp\.go$'
	echo "^internal/lab/(bench/$1/|cli/bench_$1\.go\$$also)"
}
suites=(llq netmodes picasso)

sources() {
	local before list part program own measuring suite
	before=$(files weir)
	list="bpf=$(find bpf -type f | LC_ALL=C sort | digest),agent=$(printf '%s\n' "$before" go.mod | digest)"
	for part in edge sdn bench; do
		program=weir-${part/bench/lab}
		own=$(LC_ALL=C comm -13 <(echo "$before") <(files "$program"))
		before=$(printf '%s\n' "$before" "$own" | LC_ALL=C sort -u)
		measuring=$(grep -vE "$judges" <<<"$own")
		for suite in "${suites[@]}"; do
			measuring=$(grep -vE "$(ofSuite "$suite")" <<<"$measuring")
		done
		list+=,$part=$(digest <<<"$measuring")
	done
	for suite in "${suites[@]}"; do
		list+=,$suite=$(grep -vE "$judges" <<<"$before" | grep -E "$(ofSuite "$suite")" | digest)
	done
	echo "$list,judge=$(grep -E "$judges" <<<"$before" | digest)"
}

case ${1:-} in
'') sources ;;
--check)
	page=${2:?usage: sources.sh --check claims.json}
	[ -f "$page" ] || { echo "$page: there is no published page: run weir bench all --publish, a night, and copy its claims.json and claims.md" >&2 && exit 1; }
	if [[ $(tail -n 1 "$page") != '}' ]] || ! grep -q '^  "sections": \[' "$page"; then
		echo "$page: this is not all of a page of claims: copy it again, or run weir bench all --publish" >&2
		exit 1
	fi
	if grep -q '^  "withheld": \[' "$page"; then
		echo "$page: this page must not be published: it says why under \"withheld\"" >&2
		exit 1
	fi
	was=$(sed -n 's/^    "sources": "\(.*\)",$/\1/p' "$page")
	now=$(sources)
	status=0
	for part in bpf agent edge sdn bench "${suites[@]}" judge; do
		[[ ,$now, == *,$part="$(sed -n "s/.*\b$part=\([0-9a-f]*\).*/\1/p" <<<"${was:-none}")",* ]] ||
			{ echo "$page: $part is not that of the page: run weir bench all --publish again" >&2 && status=1; }
	done
	exit $status
	;;
*) echo "usage: sources.sh [--check claims.json]" >&2 && exit 2 ;;
esac
