//go:build docker

package edge

import (
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// oldHAProxy runs a program where the package of HAProxy is that of Ubuntu 22.04: in a mount namespace
// of its own with other documents of packages.
const oldHAProxy = `#!/bin/sh
exec unshare --mount sh -c 'mount -t tmpfs none /usr/share/doc && mkdir /usr/share/doc/haproxy &&
	cp "$0" /usr/share/doc/haproxy/changelog.Debian.gz && exec "$@"' "$(dirname "$0")/changelog" "$@"
`

// refusesOldHAProxy: a service for an HAProxy that cannot be told of instances is refused, with what to
// install, before anything is fetched or made for it. command makes a command on the engine's host.
func (s *site) refusesOldHAProxy(t *testing.T, command func(program string, args ...string) *exec.Cmd) {
	dir := filepath.Join(s.dir, "old")
	must.Succeed(t, os.Mkdir(dir, 0o700))
	changelog, err := os.Create(filepath.Join(dir, "changelog"))
	must.Succeed(t, err)
	packed := gzip.NewWriter(changelog)
	_, err = packed.Write([]byte("haproxy (2.4.24-0ubuntu0.22.04.1) jammy-security; urgency=medium\n"))
	must.Succeed(t, err)
	must.Succeed(t, packed.Close())
	must.Succeed(t, changelog.Close())
	wrapper, socket := filepath.Join(dir, "run"), filepath.Join(dir, "edge.sock")
	must.Succeed(t, os.WriteFile(wrapper, []byte(oldHAProxy), 0o700))
	m := s.begin(t, &manager{cmd: command(wrapper, os.Getenv(programVariable), "run", "--docker", s.engine.Socket(), "--socket", socket, "--state-dir", dir)})
	defer m.kill()
	harness.Await(t, "the weir-edge with an old HAProxy answers", time.Minute, func() error {
		_, err := server.NewClient(socket).Nodes(t.Context())
		return err
	})
	before := s.madeFor(t, "refused")
	for _, image := range []string{pagesImage, "example.test/absent:1"} {
		compose := filepath.Join(t.TempDir(), "compose.yaml")
		must.Succeed(t, os.WriteFile(compose, []byte(`
name: refused
services:
  web:
    image: `+image+`
    ports: ["8199:80"]
    networks: [apart]
    configs: [page]
networks: {apart: {}}
configs: {page: {content: "x"}}
`), 0o600))
		out, err := exec.CommandContext(t.Context(), os.Getenv(programVariable), "deploy", compose, "--socket", socket).CombinedOutput()
		if said := string(out); err == nil || !strings.Contains(said, "HAProxy 2.4 is here") || !strings.Contains(said, "add-apt-repository") {
			t.Errorf("deploy a service of %s: %v, %s", image, err, out)
		}
	}
	if after := s.madeFor(t, "refused"); after != before || after != "" {
		t.Errorf("before it was refused, there was %q, and now %q", before, after)
	}
}

// madeFor lists what weir-edge has made on the engine for services of a Compose file.
func (s *site) madeFor(t *testing.T, project string) string {
	t.Helper()
	api, filters := s.engine.API(), make(client.Filters).Add("label", "weir-edge.project="+project)
	var made []string
	containers, err := api.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: filters})
	must.Succeed(t, err)
	for _, c := range containers.Items {
		made = append(made, c.Names...)
	}
	networks, err := api.NetworkList(t.Context(), client.NetworkListOptions{Filters: filters})
	must.Succeed(t, err)
	for i := range networks.Items {
		made = append(made, networks.Items[i].Name)
	}
	if info, err := api.Info(t.Context(), client.InfoOptions{}); err == nil && info.Info.Swarm.ControlAvailable {
		services, err := api.ServiceList(t.Context(), client.ServiceListOptions{Filters: filters})
		must.Succeed(t, err)
		for i := range services.Items {
			made = append(made, services.Items[i].Spec.Name)
		}
		configs, err := api.ConfigList(t.Context(), client.ConfigListOptions{Filters: filters})
		must.Succeed(t, err)
		for _, c := range configs.Items {
			made = append(made, c.Spec.Name)
		}
	}
	return strings.Join(made, " ")
}
