package run

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// Agents measures nodes by their Weir agents, all side by side. It implements Nodes.
type Agents struct {
	monitor *monitor.Monitor
	dial    func(netip.Addr) (*client.Client, error)
	clients map[netip.Addr]*client.Client
}

// NewAgents asks agents until ctx ends; dial makes a client of the one at an address.
func NewAgents(ctx context.Context, dial func(netip.Addr) (*client.Client, error)) (*Agents, error) {
	m, err := monitor.New(monitor.DefaultOptions(), time.Now)
	if err != nil {
		return nil, err
	}
	go m.Run(ctx)
	return &Agents{monitor: m, dial: dial, clients: map[netip.Addr]*client.Client{}}, nil
}

// Measure implements Nodes.
func (a *Agents) Measure(_ context.Context, nodes []runtime.Node) []Measured {
	targets := make([]monitor.Target, len(nodes))
	for i, n := range nodes {
		targets[i] = monitor.Target{Name: n.Name, Address: n.Address.String()}
		if agent, err := a.client(n.Address); err == nil {
			targets[i].Agent = agent
		}
	}
	a.monitor.SetTargets(targets)
	seen := map[string]monitor.Node{}
	for _, n := range a.monitor.View().Nodes {
		seen[n.Name] = n
	}
	list := make([]Measured, len(nodes))
	for i, n := range nodes {
		list[i] = measured(n, seen[n.Name])
	}
	return list
}

func (a *Agents) client(address netip.Addr) (*client.Client, error) {
	if !address.IsValid() {
		return nil, fmt.Errorf("the node has no address")
	}
	if known := a.clients[address]; known != nil {
		return known, nil
	}
	made, err := a.dial(address)
	if err == nil {
		a.clients[address] = made
	}
	return made, err
}

func measured(node runtime.Node, n monitor.Node) Measured {
	now := time.Now()
	m := Measured{Node: node, At: now, RoundTrip: time.Duration(n.RoundTripSeconds * float64(time.Second)), CPUs: map[string]float64{}}
	if n.Reason != "" {
		m.Error = errors.New(n.Reason)
	}
	switch n.State {
	case monitor.StateGone:
		m.State = engine.NodeGone
	case monitor.StateStale, monitor.StateUnknown:
		m.State = engine.NodeStale
	case monitor.StateNoWeir: // it runs, and nobody measures it
		m.Error = nil
		return m
	case monitor.StateReady:
		m.State, m.Error = engine.NodeReady, nil
	}
	if n.AgeSeconds != nil {
		m.At = now.Add(-time.Duration(*n.AgeSeconds * float64(time.Second)))
	}
	if n.Node == nil {
		return m
	}
	m.Values, m.Weir = n.Node.Measured, n.Uplink != nil
	for _, c := range n.Containers {
		m.Containers = append(m.Containers, v1.Container{
			ID: c.ID, Name: c.Name, RateBPS: c.SentBPS, State: c.State, Reason: c.Reason, Policy: v1.Policy{MinBPS: c.AdmittedBPS},
		})
		if c.CPUs != nil {
			m.CPUs[c.ID] = *c.CPUs
		}
	}
	return m
}
