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

// Agents measures nodes by their Weir agents, all side by side. It implements Nodes.
type Agents struct {
	monitor *monitor.Monitor
	agentOf func(runtime.Node) (monitor.Agent, error)
	// first: nobody was asked yet, and the first answers are waited for.
	first bool
}

// NewAgents asks agents until ctx ends; dial makes a client of the one at an address.
func NewAgents(ctx context.Context, dial func(netip.Addr) (*client.Client, error)) (*Agents, error) {
	clients := map[netip.Addr]*client.Client{}
	return newAgents(ctx, func(n runtime.Node) (monitor.Agent, error) {
		if !n.Address.IsValid() {
			return nil, errors.New("the node has no address")
		}
		if known := clients[n.Address]; known != nil {
			return known, nil
		}
		made, err := dial(n.Address)
		if err != nil {
			return nil, err
		}
		clients[n.Address] = made
		return made, nil
	})
}

func newAgents(ctx context.Context, agentOf func(runtime.Node) (monitor.Agent, error)) (*Agents, error) {
	m, err := monitor.New(monitor.DefaultOptions(), time.Now)
	if err != nil {
		return nil, err
	}
	go m.Run(ctx)
	return &Agents{monitor: m, agentOf: agentOf}, nil
}

// Measure implements Nodes.
func (a *Agents) Measure(ctx context.Context, nodes []runtime.Node) []Measured {
	targets := make([]monitor.Target, len(nodes))
	for i, n := range nodes {
		targets[i] = monitor.Target{Name: n.Name}
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
	for _, n := range a.monitor.Nodes() {
		seen[n.Name] = n
	}
	list := make([]Measured, len(nodes))
	for i, n := range nodes {
		list[i] = Measured{Node: n, Seen: seen[n.Name]}
		list[i].Agent, _ = targets[i].Agent.(Changer) // nil if it is none
	}
	return list
}
