package run

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// Agents polls the nodes' Weir agents concurrently. It implements Nodes.
type Agents struct {
	monitor *monitor.Monitor
	agentOf func(runtime.Node) (monitor.Agent, error)
	// first: no agent has been polled yet; Measure waits for the first answers.
	first bool
}

// NewAgents returns Agents that poll until ctx ends; dial returns the client of the agent at an
// address, the same one each time.
func NewAgents(ctx context.Context, dial func(netip.Addr) (*client.Client, error)) *Agents {
	return newAgents(ctx, func(n runtime.Node) (monitor.Agent, error) {
		if !n.Address.IsValid() {
			return nil, errors.New("the node has no address")
		}
		return dial(n.Address)
	})
}

func newAgents(ctx context.Context, agentOf func(runtime.Node) (monitor.Agent, error)) *Agents {
	m := monitor.New(time.Now)
	go m.Run(ctx)
	return &Agents{monitor: m, agentOf: agentOf}
}

// Lower implements Nodes.
func (a *Agents) Lower() <-chan struct{} { return a.monitor.Lower() }

// Reported implements Nodes.
func (a *Agents) Reported() []monitor.Node { return a.monitor.Nodes() }

// Measure implements Nodes.
func (a *Agents) Measure(ctx context.Context, nodes []runtime.Node, counted []runtime.Instance) []Measured {
	targets := make([]monitor.Target, len(nodes))
	for i, n := range nodes {
		targets[i] = monitor.Target{Name: n.Name}
		for _, c := range counted {
			if c.Node == n.Name && c.ContainerID != "" {
				targets[i].Counted = append(targets[i].Counted, c.ContainerID)
			}
		}
		if agent, err := a.agentOf(n); err == nil {
			targets[i].Agent = agent
		}
	}
	a.monitor.SetTargets(targets)
	if a.first {
		a.first = false
		a.monitor.Pull(ctx)
	}
	seen := map[string]monitor.Node{}
	for _, n := range a.Reported() {
		seen[n.Name] = n
	}
	list := make([]Measured, len(nodes))
	for i, n := range nodes {
		list[i] = Measured{Node: n, Reported: seen[n.Name]}
		list[i].Agent, _ = targets[i].Agent.(Changer) // nil if it is none
	}
	return list
}
