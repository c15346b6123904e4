#!/bin/bash
# Makes dist/weir_VERSION_ARCH.deb, the same bytes each time for the same commit.
#
#   scripts/deb.sh [ARCH]     amd64, arm64 or armhf; this machine's by default
#
# OUT is another folder than dist. nfpm, which packs it, is pinned by tools/nfpm.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
go=("$root/scripts/with-go.sh" go)

arch=${1:-$("${go[@]}" env GOARCH)}
case $arch in
amd64 | arm64) goarch=$arch ;;
armhf) goarch=arm ;;
*) echo "usage: scripts/deb.sh [amd64|arm64|armhf]" >&2 && exit 2 ;;
esac

# A version as Debian compares them: of a release, with how far the tree is beyond it,
# or before all releases.
described=$(git -c safe.directory='*' describe --tags --always --match 'v*' 2>/dev/null || echo unknown)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || echo 0)}
case $described in
v[0-9]*) version=$(sed 's/^v//; s/-\([0-9]*\)-g/+\1.g/' <<<"$described") ;;
*) version="0~$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$described" ;;
esac
export SOURCE_DATE_EPOCH CGO_ENABLED=0

out=${OUT:-dist}
mkdir -p "$out"
stage=$(realpath "$out")/deb-$arch
rm -rf "$stage"
mkdir -p "$stage"
build() { "${go[@]}" build -trimpath -ldflags "-s -w -X github.com/weir-project/weir/internal/cli.version=$version" "$@"; }

GOARCH=$goarch build -o "$stage/weir" ./cmd/weir
sed 's|@BINDIR@|/usr/bin|' packaging/weir.service >"$stage/weir.service"
"${go[@]}" run ./tools/man "$stage/man"
gzip -9n "$stage"/man/*
native=$stage/weir
if [ "$goarch" != "$("${go[@]}" env GOHOSTARCH)" ]; then
	native=$stage/native
	build -o "$native" ./cmd/weir
fi
"$native" completion bash >"$stage/weir.bash"
"$native" completion zsh >"$stage/_weir"
"$native" completion fish >"$stage/weir.fish"
rm -f "$stage/native"
gzip -9nc CHANGELOG.md >"$stage/changelog.gz"
cat - LICENSE >"$stage/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: weir
Source: https://github.com/weir-project/weir

Files: *
Copyright: The Weir authors
License: Apache-2.0, and GPL-2.0-only for the BPF programs
 See LICENSES in the source. The Apache License is:
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
