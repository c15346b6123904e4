# What scripts/deb.sh and scripts/image.sh have in common: the same commit makes the same
# bytes, in any folder. To be sourced, in the module's root, with ARCH or none.
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

# build PROGRAM NAME: cmd/NAME, without a trace of where and from which checkout. It may be a module
# of its own.
build() {
	local flags="-s -w -X github.com/weir-project/weir/internal/front/cmdline.Version=$version"
	"${go[@]}" -C "cmd/$2" build -trimpath -buildvcs=false -ldflags "$flags" -o "$(realpath "$1")" .
}

# bill PROGRAM: what it is made of, in CycloneDX. The pages of the browser are in both.
bill() {
	"${go[@]}" run ./tools/sbom -name "$(basename "$1")" -version "$version" -npm web/package-lock.json -bundled preact,uplot "$1"
}

# notices PROGRAM...: the licences of all that is in them, which every copy of them has to
# have with it; each text once. A part without one is an error.
notices() {
	local list='' modules sum files module dir file program
	local -A parts=() texts=()
	note() { # PART FILE
		sum=$(sha256sum <"$2" | cut -d' ' -f1)
		parts[$sum]+="$1"$'\n'
		texts[$sum]=$2
	}
	for file in LICENSES/*; do
		module=${file##*/}
		note "${module%.txt}" "$file"
	done
	note "Go's library" "$("${go[@]}" env GOROOT)/LICENSE"
	for program in "$@"; do
		files=$("${go[@]}" version -m "$program" | awk '$1 == "dep" && $2 != "github.com/weir-project/weir" { print $2 }')
		mapfile -t modules <<<"$files"
		list+=$("${go[@]}" -C "cmd/${program##*/}" list -m -f '{{.Path}} {{.Dir}}' "${modules[@]}")$'\n'
	done
	list=$(LC_ALL=C sort -u <<<"${list%$'\n'}")
	while read -r module dir; do
		files=0
		for file in "$dir"/{LICENSE,LICENCE,COPYING,NOTICE}*; do
			[ -f "$file" ] || continue
			files=1
			note "$module" "$file"
		done
		[ "$files" = 1 ] || { echo "notices: $module has no licence in $dir" >&2 && return 1; }
	done <<<"$list"
	for sum in $(printf '%s\n' "${!parts[@]}" | LC_ALL=C sort); do
		printf '%s\n' "${parts[$sum]}"
		cat "${texts[$sum]}"
		printf '\n%s\n\n' ------------------------------------------------------------------------
	done
}
