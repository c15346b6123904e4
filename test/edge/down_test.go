//go:build docker

package edge

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"

	"github.com/moby/moby/client"
)

// TestSwarmDown: a swarm is as before when weir-edge has gone.
func TestSwarmDown(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 1)
	before := c.heartbeat(t)
	c.startManager(t)
	if err := c.deploy(t, specification("last", pagesImage, 8106, 10, nil)); err != nil {
		t.Fatal(err)
	}
	c.awaitRunning(t, "last", 1, 30*time.Second)
	if now := c.heartbeat(t); now == before {
		t.Errorf("the heartbeat is %v, as before", now)
	}
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
	configs, err := c.engine.API().ConfigList(context.Background(), client.ConfigListOptions{})
	if err != nil || len(configs.Items) > 0 {
		t.Errorf("%d configs are left, %v", len(configs.Items), err)
	}
	harness.Await(t, "the containers have ended", 40*time.Second, func() error {
		listed, err := c.engine.API().ContainerList(context.Background(), client.ContainerListOptions{})
		if err == nil && len(listed.Items) > 0 {
			err = errNot(listed.Items[0].Names[0])
		}
		return err
	})
}

func (c *cluster) heartbeat(t *testing.T) time.Duration {
	t.Helper()
	found, err := c.engine.API().SwarmInspect(t.Context(), client.SwarmInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Swarm.Spec.Dispatcher.HeartbeatPeriod
}
