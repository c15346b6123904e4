#!/bin/bash
# Fails when a commit since the rules began breaks one: a subject of at most 60 characters of
# the form "package: verb ...", a body that says why, no merge, nothing called wip. Where the
# history is not known, it says so and ends.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
since=${SINCE:-0183140e0ff1da336cfc40ccedcec6eca9305d30}

git=(git -c safe.directory='*')
if ! "${git[@]}" merge-base --is-ancestor "$since" HEAD 2>/dev/null; then
	echo "the history since $since is not here: commits are not checked"
	exit 0
fi
commits=$("${git[@]}" log --format='%h%x09%p%x09%s' "$since..HEAD")
wrong=0
complain() {
	echo "$hash $subject: $*"
	wrong=1
}
[ -z "$commits" ] || while IFS=$'\t' read -r hash parents subject; do
	[[ $subject =~ ^[a-z0-9./_-]+(,\ [a-z0-9./_-]+)*:\ [a-z] ]] || complain "the subject is not 'package: verb ...'"
	[ ${#subject} -le 60 ] || complain "the subject has ${#subject} characters, and may have 60"
	[[ ! $parents =~ \  ]] || complain "it is a merge"
	[[ ! ${subject,,} =~ (^|[^a-z])wip([^a-z]|$) ]] || complain "wip"
	[ -n "$("${git[@]}" log -1 --format=%b "$hash")" ] || complain "it has no body that says why"
done <<<"$commits"
exit $wrong
