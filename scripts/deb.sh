#!/bin/bash
# Makes a Debian package dist/PROGRAM_VERSION_ARCH.deb of each program in cmd, the same bytes each
# time for the same commit.
#
#   scripts/deb.sh [ARCH]     amd64, arm64 or armhf; this machine's by default
#
# OUT is another folder than dist, VERSION another version than the repository's. nfpm,
# which packs them, is pinned by tools/nfpm.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=scripts/packaging.sh
. scripts/packaging.sh
new_stage "deb-$arch"
umask 022
programs=()
for program in cmd/*; do
	if [ ! -e "$program/go.mod" ]; then programs+=("${program#cmd/}"); fi # weir-dra comes as an image
done

# one_package is weir as it was before there were several packages, with the files of weir-edge and
# weir-sdn.
one_package='weir (<< 0~20261123231541)'

# describe PROGRAM: the lines of its package's description, and depends, suggests and replaces.
describe() {
	depends='' suggests='' replaces=''
	case $1 in
	weir)
		suggests="weir-sdn, weir-lab, weir-edge, weir-k8s, docker.io, podman"
		description="Share a host's network uplink between its containers
Weir gives every container its weight, guaranteed minimum, maximum, priority
and latency on the host's uplink, in every network mode, from labels, adjusted
as containers start and stop."
		;;
	weir-edge)
		suggests="weir, haproxy, docker.io, podman" replaces=$one_package
		description="Place services on nodes near their users
weir-edge runs instances of a service where there is room and bandwidth for
its users, and moves or multiplies them as demand changes."
		;;
	weir-sdn)
		suggests="weir, openvswitch-switch" replaces=$one_package
		description="Control OpenFlow switches: queues by application
weir-sdn gives flows on OpenFlow switches a queue by their application, and
routes them by the load of links."
		;;
	weir-k8s)
		depends=weir suggests=containerd
		description="Share a host's network uplink between pods and containerd's containers
weir-k8s reports pods of Kubernetes, by their annotations, and containers of ctr
and nerdctl, by their labels, to the agent."
		;;
	weir-lab)
		depends="weir (= $version)"
		suggests="iproute2, docker.io, openvswitch-switch, iperf3"
		description="Demos, benchmarks and queueing models of Weir
weir runs it: 'weir demo', 'weir bench', 'weir model', 'weir advise' and
'weir classify' are in this package."
		;;
	*) echo "deb.sh: $1 has no description" >&2 && exit 1 ;;
	esac
}

pages=$stage/man
"${go[@]}" run ./tools/man "$pages"
gzip -9n "$pages"/*
for program in "${programs[@]}"; do
	files=$stage/$program
	doc=$files/usr/share/doc/$program
	mkdir -p "$doc" "$files"/usr/{bin,share/man/man1}
	binary=$files/usr/bin/$program native=$files/usr/bin/$program
	GOARCH=$goarch build "$binary" "$program"
	bill "$binary" >"$doc/$program.cdx.json"
	notices "$binary" | gzip -9n >"$doc/licenses.gz"
	gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
	cat - LICENSE >"$doc/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: weir
Source: https://github.com/weir-project/weir

Files: *
Copyright: The Weir authors
License: Apache-2.0, and GPL-2.0-only for the BPF programs
 The file licenses.gz beside this one has the licences of what it is made of. The Apache
 License is:
END
	if [ -e "packaging/$program.service" ]; then
		mkdir -p "$files/usr/lib/systemd/system" "$files/etc/weir"
		sed 's|@BINDIR@|/usr/bin|' "packaging/$program.service" >"$files/usr/lib/systemd/system/$program.service"
	fi
	# Pages are named by their program; what is left, in the end, is weir's.
	if [ "$program" != weir ]; then mv "$pages/$program"[-.]* "$files/usr/share/man/man1/"; fi
	if [ "$goarch" != "$("${go[@]}" env GOHOSTARCH)" ]; then
		native=$stage/native
		build "$native" "$program"
	fi
	mkdir -p "$files"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
	"$native" completion bash >"$files/usr/share/bash-completion/completions/$program"
	"$native" completion zsh >"$files/usr/share/zsh/vendor-completions/_$program"
	"$native" completion fish >"$files/usr/share/fish/vendor_completions.d/$program.fish"
done
mv "$pages"/* "$stage/weir/usr/share/man/man1/"
for example in weir:internal/front/config/example.yaml:weir.yaml weir:packaging/grafana/weir.json:grafana.json \
	weir:packaging/prometheus/weir.rules.yaml:prometheus.rules.yaml weir-edge:internal/front/config/edge.yaml:edge.yaml; do
	IFS=: read -r program from to <<<"$example"
	mkdir -p "$stage/$program/usr/share/doc/$program/examples"
	cp "$from" "$stage/$program/usr/share/doc/$program/examples/$to"
done
chmod -R u=rwX,go=rX "$stage"
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

if [ ! -x bin/nfpm ] || [ tools/nfpm/go.mod -nt bin/nfpm ]; then
	(cd tools/nfpm && "${go[@]}" build -trimpath -o ../../bin/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm)
	touch bin/nfpm
fi
for program in "${programs[@]}"; do
	describe "$program"
	text=$(<packaging/nfpm.yaml)
	# shellcheck disable=SC2016 # names in the file
	for pair in '${NAME}'="$program" '${ARCH}'="$arch" '${VERSION}'="$version" '${STAGE}'="$stage/$program" \
		'${DESCRIPTION}'="  ${description//$'\n'/$'\n'  }" '${DEPENDS}'="$depends" '${SUGGESTS}'="$suggests" \
		'${REPLACES}'="$replaces"; do
		text=${text//"${pair%%=*}"/"${pair#*=}"}
	done
	echo "$text" >"$stage/$program.yaml"
	rm -f "$out/$program"_*_"$arch".deb
	bin/nfpm package --config "$stage/$program.yaml" --packager deb --target "$out/${program}_${version}_$arch.deb" >&2
	echo "$out/${program}_${version}_$arch.deb"
done
rm -rf "$stage"
