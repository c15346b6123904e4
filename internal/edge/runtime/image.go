package runtime

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	goruntime "runtime"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// The image of proxies has nothing but the places where the host's /usr, with the
// HAProxy that the host's package manager keeps up to date, and the proxy's folder are
// mounted. It is made here, byte for byte the same wherever that is done, so that it
// has the same ID on all nodes and comes from no registry.
const (
	ProxyImage  = "weir-edge/proxy:1"
	ProxyFolder = "/proxy" // in the container
	HAProxyPath = "/usr/sbin/haproxy"
	ProxyFile   = "haproxy.cfg"
)

// ProxyImageArchive is that image as `docker load` takes it, and its ID.
func ProxyImageArchive() (archive []byte, id string, err error) {
	root, err := proxyRoot()
	if err != nil {
		return nil, "", fmt.Errorf("make the proxy's image: %w", err)
	}
	return ImageArchive(ProxyImage, goruntime.GOARCH, root)
}

// LoadProxyImage makes sure that an engine has that image.
func LoadProxyImage(ctx context.Context, api *client.Client) error {
	_, err := api.ImageInspect(ctx, ProxyImage)
	if err == nil {
		return nil
	} else if !cerrdefs.IsNotFound(err) {
		return fmt.Errorf("look for the proxy's image: %w", err)
	}
	archive, _, err := ProxyImageArchive()
	if err != nil {
		return err
	}
	progress, err := api.ImageLoad(ctx, bytes.NewReader(archive))
	if err != nil {
		return fmt.Errorf("load the proxy's image: %w", err)
	}
	defer progress.Close()
	return ReadProgress(progress)
}

// proxyRoot is a root file system for Linux distributions whose programs are all in
// /usr, as Debian's are since 12 and Ubuntu's since 22.04.
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

// ImageArchive is an image of one layer as `docker load` takes it (the Docker image
// specification, version 1.2), and its ID.
func ImageArchive(name, architecture string, layer []byte) (archive []byte, id string, err error) {
	config, err := json.Marshal(map[string]any{
		"architecture": architecture, "os": "linux", "created": "1970-01-01T00:00:00Z",
		"config": map[string]any{"Cmd": []string{HAProxyPath}},
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
