//go:build docker

package docker

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
)

const (
	// noticed is how soon the agent has to show what an engine did, on a
	// machine that also runs the engine.
	noticed = 2 * time.Second
	// engineTimeout is for an engine to come up, and the agent's next attempt
	// to reach it.
	engineTimeout = 15 * time.Second
)

// site is a host with a private engine and an agent.
type site struct {
	*harness.Bed
	engine *testbed.Engine
	agent  *harness.Agent
	// overlayPeer is who containers in the overlay network send to.
	overlayPeer netip.Addr
}

// newSite makes a host with an engine. The agent is started with start.
func newSite(t *testing.T, opts testbed.EngineOptions) *site {
	t.Helper()
	s := &site{Bed: harness.NewBed(t, testbed.HostOptions{})}
	remember(filepath.Base(s.Host.NetNSPath()))
	remember(filepath.Base(s.Host.PeerNetNSPath()))
	opts.NetNSPath = s.Host.NetNSPath()
	opts.BridgeCIDR = s.Host.EngineBridgeCIDR().String()
	local, _ := s.Host.EnginePools()
	opts.AddressPool = local.String()
	s.engine = startEngine(t, opts)
	return s
}

// start starts an agent that watches the engine.
func (s *site) start(t *testing.T) {
	t.Helper()
	s.agent = s.StartAgent(harness.AgentOptions{Docker: s.engine.Socket(), Settings: map[string]any{
		"policies": []any{map[string]any{"service": "backup", "policy": map[string]any{"max": "10mbit", "weight": 300}}},
	}})
}

// run runs a container until the test ends.
func (s *site) run(t *testing.T, opts testbed.RunOptions) *testbed.EngineContainer {
	t.Helper()
	c := mustRun(t, s.engine, opts)
	t.Cleanup(func() {
		if _, err := s.engine.Container(context.Background(), c.ID); err == nil {
			check(t, s.engine.Remove(context.Background(), c.ID))
		}
		s.Await(c.Name+" gone", noticed, func() (bool, string) {
			out := s.MustWeir("ps", "-o", "json")
			return !strings.Contains(out, c.ID), out
		})
	})
	return c
}

// network makes a network until the test ends.
func (s *site) network(t *testing.T, opts testbed.NetworkOptions) {
	t.Helper()
	if _, err := s.engine.CreateNetwork(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.engine.RemoveNetwork(context.Background(), opts.Name)) })
}

// await waits until the agent shows a container as wanted.
func (s *site) await(t *testing.T, name, what string, fits func(v1.Container) bool) v1.Container {
	t.Helper()
	c, _ := s.agent.AwaitContainer(name, what, noticed, fits)
	return c
}

// send lets a container send to a slot until the test ends.
func (s *site) send(t *testing.T, c *testbed.EngineContainer, slot int, load harness.Load) {
	t.Helper()
	sender := s.SendFrom(c.NetNSPath(), slot, load)
	t.Cleanup(sender.Stop)
}

// list is what `weir ps -o json` prints.
func (s *site) list(t *testing.T) []v1.Container {
	t.Helper()
	var rows []v1.Container
	decode(t, s.MustWeir("ps", "-o", "json"), &rows)
	return rows
}

func controlled(c v1.Container) bool {
	return c.State == v1.StateOK && c.Mode == v1.ModeBridge && c.EntitledBPS > 0
}
