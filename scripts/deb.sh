#!/bin/bash
# Makes dist/weir_VERSION_ARCH.deb, the same bytes each time for the same commit.
#
#   scripts/deb.sh [ARCH]     amd64, arm64 or armhf; this machine's by default
#
# OUT is another folder than dist, VERSION another version than the repository's. nfpm,
# which packs it, is pinned by tools/nfpm.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=scripts/release.sh
. scripts/release.sh
new_stage "deb-$arch"

for program in weir weir-edge; do
	GOARCH=$goarch build "$stage/$program" $program
	bill "$stage/$program" >"$stage/$program.cdx.json"
done
for unit in weir.service weir-edge.service weir-sdn.service; do
	sed 's|@BINDIR@|/usr/bin|' "packaging/$unit" >"$stage/$unit"
done
"${go[@]}" run ./tools/man "$stage/man"
gzip -9n "$stage"/man/*
for program in weir weir-edge; do
	native=$stage/$program
	if [ "$goarch" != "$("${go[@]}" env GOHOSTARCH)" ]; then
		native=$stage/native
		build "$native" $program
	fi
	"$native" completion bash >"$stage/$program.bash"
	"$native" completion zsh >"$stage/_$program"
	"$native" completion fish >"$stage/$program.fish"
	rm -f "$stage/native"
done
gzip -9nc CHANGELOG.md >"$stage/changelog.gz"
notices "$stage/weir" "$stage/weir-edge" | gzip -9n >"$stage/licenses.gz"
cat - LICENSE >"$stage/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: weir
Source: https://github.com/weir-project/weir

Files: *
Copyright: The Weir authors
License: Apache-2.0, and GPL-2.0-only for the BPF programs
 The file licenses.gz beside this one has the licences of what it is made of. The Apache
 License is:
END
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

if [ ! -x bin/nfpm ] || [ tools/nfpm/go.mod -nt bin/nfpm ]; then
	(cd tools/nfpm && "${go[@]}" build -trimpath -o ../../bin/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm)
	touch bin/nfpm
fi
rm -f "$out"/weir_*_"$arch".deb
sed "s|\${STAGE}|$stage|; s|\${ARCH}|$arch|; s|\${VERSION}|$version|" packaging/nfpm.yaml >"$stage/nfpm.yaml"
bin/nfpm package --config "$stage/nfpm.yaml" --packager deb --target "$out/weir_${version}_$arch.deb" >&2
echo "$out/weir_${version}_$arch.deb"
