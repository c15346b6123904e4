package proxy

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"time"
)

// The image of proxies contains only mount points: for the host's /usr, whose package manager
// keeps HAProxy up to date, and for the proxy's folder. Archive builds it, so it needs no registry.
// Its ID differs by architecture and by how the engine keeps images, so nodes know it by its tag, of
// which a swarm asks the registry each time. The registry in the name is a port of the node that only
// root could take: it refuses at once, and no image of a stranger comes from there.
const (
	Image  = "127.0.0.1:1/weir-edge/proxy:1"
	Folder = "/proxy" // in the container
	Binary = "/usr/sbin/haproxy"
	File   = "haproxy.cfg"
)

// ipv6Variable is set where the kernel has IPv6.
const ipv6Variable = "WEIR_EDGE_IPV6"

// Command returns what runs HAProxy with a configuration file. HAProxy ends if it cannot listen at one
// of its addresses, and a kernel without IPv6 (ipv6.disable=1) refuses those of IPv6. The nodes of a
// swarm may differ, so each proxy finds out at its start.
func Command(file string) []string {
	const script = "test ! -e /proc/net/if_inet6 || export " + ipv6Variable + "=1; exec 3<<'LUA'\n" + awaitProgram + "LUA\n" + `exec "$@"`
	return []string{"/bin/sh", "-c", script, "sh", Binary, "-db", "-f", file}
}

// awaitProgram has users of a port wait until an instance answers there. HAProxy itself would refuse
// them, and has no condition to wait for. It reads the program from awaitFile, so that no node needs a
// file for it.
const (
	awaitFile    = "/dev/fd/3"
	awaitProgram = `core.register_action("await", {"http-req", "tcp-req"}, function(txn)
	local instances = txn.f:fe_defbe()
	for _ = 1, 1500 do
		if txn.f:nbsrv(instances) > 0 then return end
		core.msleep(20)
	end
end)
`
	// awaitTime bounds the wait: a number of polls, and milliseconds between two.
	awaitTime = 30 * time.Second
)

// Archive returns the image in the format of `docker load`, and its ID.
func Archive() (archive []byte, id string, err error) {
	root, err := proxyRoot()
	if err != nil {
		return nil, "", fmt.Errorf("make the proxy's image: %w", err)
	}
	return ArchiveOf(Image, runtime.GOARCH, root)
}

// proxyRoot returns a root file system as a tar archive, for distributions that keep all
// programs in /usr (Debian since 12, Ubuntu since 22.04).
func proxyRoot() ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, dir := range []string{"usr/", "proxy/", "etc/", "proc/", "sys/", "dev/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: "usr/" + link, Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buffer.Bytes(), err
}

// ArchiveOf returns an image of one layer in the format of `docker load` (the Docker image
// specification, version 1.2), and its ID.
func ArchiveOf(name, architecture string, layer []byte) (archive []byte, id string, err error) {
	config, err := json.Marshal(map[string]any{
		"architecture": architecture, "os": "linux", "created": "1970-01-01T00:00:00Z",
		"config": map[string]any{"Cmd": []string{Binary}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return nil, "", err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, "", err
	}
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, file := range []struct {
		name string
		data []byte
	}{{"config.json", config}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file.name, Size: int64(len(file.data)), Mode: 0o644}); err != nil {
			return nil, "", err
		}
		if _, err := w.Write(file.data); err != nil {
			return nil, "", err
		}
	}
	err = w.Close()
	return buffer.Bytes(), digest(config), err
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
