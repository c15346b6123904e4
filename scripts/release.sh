# What scripts/deb.sh and scripts/image.sh have in common: the same commit makes the same
# bytes, in whatever folder. To be sourced, in the module's root, with ARCH or none.
# shellcheck shell=bash disable=SC2034 # used where it is sourced
#
# Sets go, arch, goarch, version, SOURCE_DATE_EPOCH, and stage, a folder for what is made.
# VERSION is another version than the repository's, and OUT another folder than dist.

go=("$PWD/scripts/with-go.sh" go)
arch=${1:-$("${go[@]}" env GOARCH)}
case $arch in
amd64 | arm64) goarch=$arch ;;
armhf | arm) arch=armhf goarch=arm ;;
*) echo "usage: $0 [amd64|arm64|armhf]" >&2 && exit 2 ;;
esac

# A version as Debian compares them: of a release, with how far the tree is beyond it,
# or before all releases.
described=$(git -c safe.directory='*' describe --tags --always --match 'v*' 2>/dev/null || echo unknown)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || echo 0)}
case $described in
v[0-9]*) version=$(sed 's/^v//; s/-\([0-9]*\)-g/+\1.g/' <<<"$described") ;;
*) version="0~$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$described" ;;
esac
version=${VERSION:-$version}
export SOURCE_DATE_EPOCH CGO_ENABLED=0

out=${OUT:-dist}
mkdir -p "$out"
# new_stage NAME
new_stage() {
	stage=$(realpath "$out")/$1
	rm -rf "$stage"
	mkdir -p "$stage"
}

# build PROGRAM NAME: cmd/NAME, without a trace of where and from which checkout.
build() {
	local flags="-s -w -X github.com/weir-project/weir/internal/cli.version=$version"
	flags+=" -X github.com/weir-project/weir/internal/edge/cli.version=$version"
	"${go[@]}" build -trimpath -buildvcs=false -ldflags "$flags" -o "$1" "./cmd/$2"
}

# bill PROGRAM: what it is made of, in CycloneDX. The pages of the browser are in both.
bill() {
	"${go[@]}" run ./tools/sbom -name "$(basename "$1")" -version "$version" -npm web/package-lock.json -bundled preact,uplot "$1"
}
