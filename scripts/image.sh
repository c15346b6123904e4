#!/bin/bash
# Makes dist/IMAGE_VERSION_ARCH.tar: an image of the OCI's layout, which `docker load` (25 and
# newer), containerd, podman and skopeo read, and with Docker's manifest.json beside it for older
# engines. The same commit makes the same bytes (of weir-kubernetes: with the same authorities). Beside it is what its programs are made of,
# PROGRAM_VERSION_ARCH.cdx.json.
#
#   scripts/image.sh [ARCH]     amd64, arm64 or armhf; this machine's by default
#
# IMAGE is weir, to run the agent as a container (docs/user-guide.md), or weir-kubernetes, with all
# that runs on Kubernetes (packaging/kubernetes): weir-edge asks registries there, so it has the
# authorities of this machine, or those of the file AUTHORITIES. OUT is another folder than dist, VERSION
# another version than the repository's.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/packaging.sh
. scripts/packaging.sh
image=${IMAGE:-weir}
case $image in
weir) programs=(weir) command='"Entrypoint":["/usr/bin/weir"],"Cmd":["agent","--config","/etc/weir/weir.yaml"],' ;;
weir-kubernetes) programs=(weir weir-k8s weir-dra weir-edge) command= ;;
*) echo "$0: IMAGE is weir or weir-kubernetes, not $image" >&2 && exit 2 ;;
esac
authorities=${AUTHORITIES:-/etc/ssl/certs/ca-certificates.crt}
if [ "$image" = weir-kubernetes ] && [ ! -s "$authorities" ]; then
	echo "$0: $authorities is missing: install ca-certificates, or name a file of certificates (PEM) by AUTHORITIES=" >&2 && exit 1
fi
new_stage "$image-$arch"

# pack FOLDER: an archive of what is in it, of root's and of one time.
pack() {
	tar --create --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--directory="$1" .
}
digest() { sha256sum "$1" | cut -d' ' -f1; }

# The files: programs, which are static, what they are made of, and folders that are mounted
# over.
files=$stage/files
doc=$files/usr/share/doc/weir
mkdir -p "$files"/{usr/bin,usr/share/doc/weir,etc/weir,run/weir,tmp,proc,sys,dev,var}
ln -s /run "$files/var/run"
for program in "${programs[@]}"; do
	GOARCH=$goarch build "$files/usr/bin/$program" "$program"
	bill "$files/usr/bin/$program" >"$doc/$program.cdx.json"
done
cp LICENSE "$doc/copyright"
notices "${programs[@]/#/$files/usr/bin/}" | gzip -9n >"$doc/licenses.gz"
if [ "$image" = weir-kubernetes ]; then
	mkdir -p "$files/etc/ssl/certs"
	cp --dereference "$authorities" "$files/etc/ssl/certs/ca-certificates.crt"
fi
chmod -R u=rwX,go=rX "$files"

layout=$stage/layout
blobs=$layout/blobs/sha256
mkdir -p "$blobs"
# store FILE: moves it to where its digest says; prints that.
store() {
	local sum
	sum=$(digest "$1")
	mv "$1" "$blobs/$sum"
	echo "$sum"
}
pack "$files" >"$stage/layer"
layer=$(store "$stage/layer")
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
variant=
[ "$goarch" != arm ] || variant='"variant":"v7",'
# Labels and entry point: image-spec, config.md.
cat >"$stage/config" <<END
{"created":"$created","architecture":"$goarch",$variant"os":"linux","config":{"Env":["PATH=/usr/bin"],$command"StopSignal":"SIGTERM","Labels":{"org.opencontainers.image.title":"$image","org.opencontainers.image.version":"$version","org.opencontainers.image.licenses":"Apache-2.0 AND GPL-2.0-only","org.opencontainers.image.source":"https://github.com/weir-project/weir"}},"rootfs":{"type":"layers","diff_ids":["sha256:$layer"]},"history":[{"created":"$created","created_by":"scripts/image.sh"}]}
END
size() { stat --format=%s "$1"; }
config_size=$(size "$stage/config")
config=$(store "$stage/config")
cat >"$stage/manifest" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:$config","size":$config_size},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:$layer","size":$(size "$blobs/$layer")}]}
END
manifest_size=$(size "$stage/manifest")
manifest=$(store "$stage/manifest")
# A tag has no ~ or +.
tag=$(tr -c 'A-Za-z0-9_.\n' - <<<"$version")
echo '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
cat >"$layout/index.json" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:$manifest","size":$manifest_size,"annotations":{"io.containerd.image.name":"docker.io/library/$image:$tag","org.opencontainers.image.ref.name":"$tag"}}]}
END
cat >"$layout/manifest.json" <<END
[{"Config":"blobs/sha256/$config","RepoTags":["$image:$tag"],"Layers":["blobs/sha256/$layer"]}]
END
chmod -R u=rwX,go=rX "$layout"
rm -f "$out/$image"_*_"$arch".tar
for program in "${programs[@]}"; do
	rm -f "$out/$program"_*_"$arch".cdx.json
	cp "$doc/$program.cdx.json" "$out/${program}_${version}_$arch.cdx.json"
done
pack "$layout" >"$out/${image}_${version}_$arch.tar"
rm -rf "$stage"
echo "$out/${image}_${version}_$arch.tar"
