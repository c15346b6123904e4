//go:build docker

package edge

import (
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
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

// proxyOfService checks how the proxies of a service run, and that they have no key which the
// proxies of a node would obey.
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
	listed, err := c.engine.API().ContainerList(t.Context(), client.ContainerListOptions{Filters: make(client.Filters).Add("label", "weir-edge.role=proxy", "weir-edge.service="+service)})
	must.Succeed(t, err)
	captured, err := c.engine.Exec(t.Context(), listed.Items[0].ID, "/bin/cat", "/proxy/control.pem")
	must.Succeed(t, err)
	pair, err := tls.X509KeyPair([]byte(captured), []byte(captured))
	must.Succeed(t, err)
	conn, err := c.dial(t.Context(), "tcp", net.JoinHostPort(c.nodes[0].Addr.String(), found.Service.Spec.Labels["weir-edge.control-port"]))
	must.Succeed(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	obeyed := tls.Client(conn, &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true})
	_, _ = obeyed.Write([]byte("show stat\n"))
	answer := make([]byte, 64)
	if n, err := obeyed.Read(answer); err == nil || n > 0 {
		t.Errorf("the key of a proxy commands proxies: %q", answer[:n])
	}
}
