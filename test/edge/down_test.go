//go:build docker

package edge

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
	"github.com/weir-project/weir/test/pki"
)

// TestSwarmDown: a swarm is as before when weir-edge has gone.
func TestSwarmDown(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 1)
	before := c.heartbeat(t)
	// As a weir-edge left it that ended in between.
	c.makeConfig(t, "edge-ledger", map[string]string{"weir-edge.role": "ledger", "weir-edge.promises": "{}"})
	// A key of another form, and configs of others.
	c.makeConfig(t, "edge-keys-0", map[string]string{"weir-edge.role": "key"})
	others := []string{"edge-control", "edge-keys", "edge-proxy-last"}
	for _, name := range others {
		c.makeConfig(t, name, nil)
	}
	c.startManager(t)
	keys := slices.DeleteFunc(c.configs(t), func(name string) bool { return !strings.HasPrefix(name, "edge-keys-") })
	if len(keys) != 2 || slices.Contains(keys, "edge-keys-0") || keys[1] != keys[0]+"-clients" {
		t.Errorf("weir-edge has the keys %v", keys)
	}
	if err := c.deploy(t, specification("last", pagesImage, 8106, 10, nil)); err != nil {
		t.Fatal(err)
	}
	c.awaitRunning(t, "last", 1, 30*time.Second)
	if now := c.heartbeat(t); now == before {
		t.Errorf("the heartbeat is %v, as before", now)
	}
	c.proxyOfService(t, "last")
	t.Run("all instances are of one image", c.testPinned)
	t.Run("an old HAProxy", func(t *testing.T) { c.refusesOldHAProxy(t, c.engine.Command) })
	down := func(args ...string) error {
		_, err := c.weirEdge(append([]string{"down", "--docker", c.engine.Socket(), "--state-dir", filepath.Join(c.dir, "state")}, args...)...)
		return err
	}
	if err := down(); err == nil || !strings.Contains(err.Error(), "last") {
		t.Errorf("with a service: %v", err)
	}
	c.awaitRunning(t, "last", 1, 10*time.Second)
	if err := down("--all"); err != nil {
		t.Fatal(err)
	}
	if now := c.heartbeat(t); now != before {
		t.Errorf("the heartbeat is %v, and was %v", now, before)
	}
	services, err := c.engine.API().ServiceList(context.Background(), client.ServiceListOptions{})
	if err != nil || len(services.Items) > 0 {
		t.Errorf("%d services are left, %v", len(services.Items), err)
	}
	secrets, err := c.engine.API().SecretList(context.Background(), client.SecretListOptions{})
	if err != nil || len(secrets.Items) > 0 {
		t.Errorf("%d secrets are left, %v", len(secrets.Items), err)
	}
	if left := c.configs(t); !slices.Equal(left, others) {
		t.Errorf("configs are left: %v", left)
	}
	harness.Await(t, "the containers have ended", 40*time.Second, func() error {
		listed, err := c.engine.API().ContainerList(context.Background(), client.ContainerListOptions{})
		if err == nil && len(listed.Items) > 0 {
			err = errNot(listed.Items[0].Names[0])
		}
		return err
	})
}

// testPinned: a new image of the same name is for services that are deployed later.
func (c *cluster) testPinned(t *testing.T) {
	const image = "example.test/moving:1"
	c.importPages(t, image)
	must.Succeed(t, c.deploy(t, specification("pinned", image, 8107, 10, nil)))
	defer c.must(t, "rm", "pinned")
	was := c.awaitRunning(t, "pinned", 1, 30*time.Second)[0]
	before := c.instance(t, was.Instance)
	c.importPages(t, image, "--bytes", "1")
	_, err := c.engine.API().ServiceRemove(t.Context(), before.ID, client.ServiceRemoveOptions{})
	must.Succeed(t, err)
	harness.Await(t, "another instance answers", 30*time.Second, func() error {
		if list := c.ps(t); !slices.ContainsFunc(list, func(i edge.Instance) bool {
			return i.Service == "pinned" && i.State == "running" && i.ContainerID != was.ContainerID
		}) {
			return errNot(fmt.Sprint(list))
		}
		return nil
	})
	after := c.instance(t, c.awaitRunning(t, "pinned", 1, 10*time.Second)[0].Instance)
	if want := before.Spec.TaskTemplate.ContainerSpec.Image; after.ID == before.ID || after.Spec.TaskTemplate.ContainerSpec.Image != want {
		t.Errorf("it has the image %s, and the first one %s", after.Spec.TaskTemplate.ContainerSpec.Image, want)
	}
}

// instance returns the Swarm service of an instance.
func (c *cluster) instance(t *testing.T, id string) swarm.Service {
	t.Helper()
	found, err := c.engine.API().ServiceInspect(t.Context(), "edge-"+id, client.ServiceInspectOptions{})
	must.Succeed(t, err)
	return found.Service
}

func (c *cluster) makeConfig(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	_, err := c.engine.API().ConfigCreate(t.Context(), client.ConfigCreateOptions{Spec: swarm.ConfigSpec{
		Annotations: swarm.Annotations{Name: name, Labels: labels}, Data: []byte("-"),
	}})
	must.Succeed(t, err)
}

// configs returns the names of the swarm's configs.
func (c *cluster) configs(t *testing.T) (names []string) {
	t.Helper()
	found, err := c.engine.API().ConfigList(t.Context(), client.ConfigListOptions{})
	must.Succeed(t, err)
	for _, config := range found.Items {
		names = append(names, config.Spec.Name)
	}
	slices.Sort(names)
	return names
}

func (c *cluster) heartbeat(t *testing.T) time.Duration {
	t.Helper()
	found, err := c.engine.API().SwarmInspect(t.Context(), client.SwarmInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Swarm.Spec.Dispatcher.HeartbeatPeriod
}

// proxyOfService checks how the proxies of a service run, and whom they obey.
func (c *cluster) proxyOfService(t *testing.T, service string) {
	t.Helper()
	found, err := c.engine.API().ServiceInspect(t.Context(), "edgeproxy-"+service, client.ServiceInspectOptions{})
	must.Succeed(t, err)
	container := found.Service.Spec.TaskTemplate.ContainerSpec
	if container.StopGracePeriod == nil || *container.StopGracePeriod != 30*time.Second {
		t.Errorf("users of a proxy that ends have %v", container.StopGracePeriod)
	}
	if container.Image != proxy.Image { // its ID is that of one architecture
		t.Errorf("nodes are to have the image %s", container.Image)
	}
	if p := container.Privileges; p == nil || p.SELinuxContext == nil || !p.SELinuxContext.Disable {
		t.Errorf("with SELinux it reads no file of its host: %+v", p)
	}
	c.obeysOnlyKey(t, service)
}

// obeysOnlyKey checks that the proxy of a service obeys weir-edge, and no certificate that others have:
// none, their own, or that of proxies, which each node has.
func (c *cluster) obeysOnlyKey(t *testing.T, service string) {
	t.Helper()
	keys, err := c.engine.API().ConfigList(t.Context(), client.ConfigListOptions{Filters: make(client.Filters).Add("label", "weir-edge.role=key")})
	must.Succeed(t, err)
	own, err := tls.X509KeyPair(keys.Items[0].Spec.Data, keys.Items[0].Spec.Data)
	must.Succeed(t, err)
	listed, err := c.engine.API().ContainerList(t.Context(), client.ContainerListOptions{Filters: make(client.Filters).Add("label", "weir-edge.role=proxy", "weir-edge.service="+service)})
	must.Succeed(t, err)
	text, err := c.engine.Exec(t.Context(), listed.Items[0].ID, "/bin/cat", "/proxy/control.pem")
	must.Succeed(t, err)
	captured, err := tls.X509KeyPair([]byte(text), []byte(text))
	must.Succeed(t, err)
	pair := pki.New(t).Client(t, "weir-edge", time.Now().Add(time.Hour))
	stranger, err := tls.LoadX509KeyPair(pair.Certificate, pair.Key)
	must.Succeed(t, err)
	for name, tc := range map[string]struct {
		certificates []tls.Certificate
		obeyed       bool
	}{
		"weir-edge": {[]tls.Certificate{own}, true}, "a captured proxy": {[]tls.Certificate{captured}, false},
		"a stranger": {[]tls.Certificate{stranger}, false}, "no certificate": {nil, false},
	} {
		answer, err := c.command(t, service, tc.certificates)
		if obeyed := err == nil && strings.HasPrefix(answer, "# pxname"); obeyed != tc.obeyed || !obeyed && answer != "" {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
	}
}

// command gives a proxy on the first node a command, and returns the beginning of its answer. Error: it
// does not take the certificates.
func (c *cluster) command(t *testing.T, service string, certificates []tls.Certificate) (string, error) {
	t.Helper()
	found, err := c.engine.API().ServiceInspect(t.Context(), "edgeproxy-"+service, client.ServiceInspectOptions{})
	must.Succeed(t, err)
	conn, err := c.dial(t.Context(), "tcp", net.JoinHostPort(c.nodes[0].Addr.String(), found.Service.Spec.Labels["weir-edge.control-port"]))
	must.Succeed(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	over := tls.Client(conn, &tls.Config{
		// Whatever the proxy asks for. With this version it judges after the handshake, so that one that fails is no refusal.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &append(certificates, tls.Certificate{})[0], nil
		},
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
	})
	must.Succeed(t, over.Handshake())
	if _, err := over.Write([]byte("show stat\n")); err != nil {
		return "", err
	}
	answer := make([]byte, 64)
	n, err := over.Read(answer)
	return string(answer[:n]), err
}
