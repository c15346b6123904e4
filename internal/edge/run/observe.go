package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// Measured is a node of the container engine, and what is measured of it.
type Measured struct {
	Node runtime.Node
	Seen monitor.Node
	// Agent is who has minimums in force there; nil where that is not for weir-edge to say,
	// as containers have labels for it, or where there is no agent.
	Agent Changer
}

// Changer is an agent that can be told policies; *client.Client is one.
type Changer interface {
	Set(ctx context.Context, container string, change v1.PolicyChange) (v1.Container, error)
}

// there says whether the node is, as far as anybody can tell.
func (m *Measured) there() bool {
	return m.Node.Ready && (m.Seen.State == monitor.StateReady || m.Seen.State == monitor.StateNoWeir)
}

// seen is everything that one round goes by.
type seen struct {
	at       time.Time // before anything was asked
	input    engine.Input
	services []runtime.Service // parsed
	specs    map[string]spec.Spec
	broken   map[string]string // services whose document cannot be read: why
	state    runtime.State
	promises engine.Promises
	nodes    []Measured
	proxies  map[string][]seenProxy // by service
}

// seenProxy is a service's proxy on a node.
type seenProxy struct {
	runtime.Proxy
	seen proxy.Seen
	err  error
}

// look asks the engine, the nodes and the proxies.
func (m *Manager) look(ctx context.Context) (*seen, error) {
	s := &seen{at: time.Now(), specs: map[string]spec.Spec{}, broken: map[string]string{}, proxies: map[string][]seenProxy{}}
	nodes, err := m.rt.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	if s.state, err = m.rt.Look(ctx); err != nil {
		return nil, err
	}
	for _, odd := range s.state.Odd {
		m.failed("", "", "", errors.New(odd))
	}
	if s.promises, _, err = m.rt.Ledger().Read(ctx); err != nil {
		return nil, err
	}
	s.nodes = m.opts.Nodes.Measure(ctx, nodes)
	for _, listed := range s.state.Services {
		parsed, err := spec.Parse([]byte(listed.Document))
		if err != nil {
			s.broken[listed.Name] = err.Error()
			continue
		}
		service, err := m.service(parsed)
		if err != nil {
			s.broken[listed.Name] = err.Error()
			continue
		}
		s.specs[listed.Name] = parsed
		s.services = append(s.services, service)
	}
	m.seeProxies(ctx, s)
	m.presence.note(m, s.nodes)
	if m.opts.DryRun { // what mendPromises would do
		for _, id := range m.orphaned(s) {
			delete(s.promises, id)
		}
	}
	s.input = m.input(s)
	return s, nil
}

// seeProxies asks all proxies at once.
func (m *Manager) seeProxies(ctx context.Context, s *seen) {
	var asking sync.WaitGroup
	for _, service := range s.services {
		proxies, err := m.rt.Proxies(ctx, service.Name)
		if err != nil {
			m.failed(service.Name, "", "", err)
			continue
		}
		list := make([]seenProxy, len(proxies))
		s.proxies[service.Name] = list
		for i, p := range proxies {
			list[i].Proxy = p
			asking.Go(func() { list[i].seen, list[i].err = p.Control.See(ctx) })
		}
	}
	asking.Wait()
}

// input is what the engine is asked.
func (m *Manager) input(s *seen) engine.Input {
	in := engine.Input{At: time.Now(), Memory: m.memory}
	for _, n := range s.nodes {
		in.Nodes = append(in.Nodes, m.node(s, n))
	}
	m.pulls.measure(in.Nodes, s.nodes, s.at)
	for _, service := range s.services {
		known, measured := engine.Service{Spec: s.specs[service.Name]}, m.store.StartUp(service.Image)
		known.MeasuredStartUpSeconds = measured.Seconds
		known.Spec.ImageBytes = cmp.Or(known.Spec.ImageBytes, measured.ImageBytes)
		in.Services = append(in.Services, known)
		for _, p := range s.proxies[service.Name] {
			if p.err == nil {
				sentBPS, _ := s.proxySentBPS(service.Name, p.Node)
				in.Demand = append(in.Demand, engine.Demand{
					Service: service.Name, Node: p.Node, Users: float64(p.seen.Users), ResponseSeconds: p.seen.Response.Seconds(),
					SentBPS: sentBPS,
				})
			}
		}
	}
	in.Instances = m.instances(s)
	for _, p := range s.promises {
		if p.Relay {
			in.Relays = append(in.Relays, engine.Relay{Service: p.Service, Node: p.Node, MinBPS: p.MinBPS})
		}
	}
	for i, a := range s.nodes {
		for _, b := range s.nodes[i+1:] {
			link := engine.Link{From: a.Node.Name, To: b.Node.Name}
			if a, b := a.Seen.RoundTripSeconds, b.Seen.RoundTripSeconds; a > 0 && b > 0 {
				// Both are measured from here, on one network: the farther one counts.
				link.RoundTripSeconds = max(a, b)
				in.Links = append(in.Links, link)
			}
		}
	}
	in.At = m.roundTime(in.At)
	for i := range in.Instances {
		in.Instances[i].Since = m.roundTime(in.Instances[i].Since)
	}
	return in
}

// roundTime is a time as rounds go by it: of a clock that began with this weir-edge and that
// nobody sets. Unlike the monotonic reading of t, all of it is in a trace.
func (m *Manager) roundTime(t time.Time) time.Time { return m.began.Round(0).Add(t.Sub(m.began)) }

// proxySentBPS is what a service's proxy sends over the uplink of its node, if the agent
// there knows the proxy.
func (s *seen) proxySentBPS(service, node string) (bps uint64, known bool) {
	n := s.measured(node)
	if n == nil {
		return 0, false
	}
	for i := range n.Seen.Containers {
		if c := &n.Seen.Containers[i]; c.Is(runtime.ProxyName(service)) { // one may be ending
			bps, known = bps+c.SentBPS, true
		}
	}
	return bps, known
}

// measured is the node of that name; nil if there is none.
func (s *seen) measured(node string) *Measured {
	i := slices.IndexFunc(s.nodes, func(n Measured) bool { return n.Node.Name == node })
	if i < 0 {
		return nil
	}
	return &s.nodes[i]
}

func (m *Manager) node(s *seen, n Measured) engine.Node {
	node := n.Seen.Engine()
	node.OtherMinBPS -= min(s.heldBPS(n), node.OtherMinBPS)
	node.ReadOnly = n.readOnly()
	node.Name = n.Node.Name
	node.Availability = m.presence.availability(n.Node.Name, engine.DefaultPolicy().NodeAvailability)
	if node.CPUs == 0 {
		node.CPUs, node.MemoryBytes = float64(n.Node.CPUs), n.Node.MemoryBytes
	}
	if n.Node.Architecture != "" {
		node.Platform = "linux/" + n.Node.Architecture
	}
	switch {
	case !n.Node.Ready:
		node.State, node.Reason = engine.NodeGone, n.Node.Reason
	case n.Node.Draining:
		node.State, node.Reason = engine.NodeDraining, "its operator wants it empty"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, service := range s.services {
		_, there := m.images[n.Node.Name+" "+service.Image]
		if there || slices.ContainsFunc(s.state.Instances, func(c runtime.Instance) bool { return c.Node == n.Node.Name && c.Image == service.Image }) {
			node.Images = append(node.Images, service.Image)
		}
	}
	return node
}

// instances are those that run, start, end or are promised.
func (m *Manager) instances(s *seen) (list []engine.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[string]bool{}
	for _, c := range s.state.Instances {
		there[c.ID] = true
		p := s.promises[c.ID]
		i := engine.Instance{
			ID: c.ID, Service: c.Service, Node: c.Node, MinBPS: p.MinBPS, LimitBytes: p.LimitBytes, Replaces: p.Replaces,
		}
		i.State, i.Reason = m.stateOf(s, c)
		m.measureInstance(s, c, &i)
		list = append(list, i)
	}
	for id, p := range s.promises {
		if there[id] || p.Relay {
			continue
		}
		i := engine.Instance{ID: id, Service: p.Service, Node: p.Node, State: engine.InstanceStarting, MinBPS: p.MinBPS, LimitBytes: p.LimitBytes, Replaces: p.Replaces}
		switch {
		case m.stopping[id] != nil || p.Stopping || m.ended[id].After(s.at):
			i.State = engine.InstanceStopping
		case m.cannotStart[id] != "":
			i.State, i.Reason = engine.InstanceFailed, m.cannotStart[id]
		}
		list = append(list, i)
	}
	for id, ending := range m.stopping {
		if _, promised := s.promises[id]; !promised && !there[id] { // its name is not free yet: it would end who gets it
			d := ending.decision
			list = append(list, engine.Instance{ID: id, Service: d.Service, Node: d.Node, State: engine.InstanceStopping})
		}
	}
	m.date(s, list)
	return list
}

// date says since when instances are in their states, and forgets those that are no more. m.mu
// is held.
func (m *Manager) date(s *seen, list []engine.Instance) {
	ids := map[string]bool{}
	for i := range list {
		ids[list[i].ID] = true
		old, known := m.since[list[i].ID]
		if !known || old.state != list[i].State {
			now := time.Now()
			if !known {
				old.first = now
			}
			old.state, old.at = list[i].State, now
			m.since[list[i].ID] = old
		}
		list[i].Since = old.at
	}
	maps.DeleteFunc(m.since, func(id string, _ stateSince) bool { return !ids[id] })
	maps.DeleteFunc(m.cannotStart, func(id string, _ string) bool { return !ids[id] })
	maps.DeleteFunc(m.starting, func(id string, on *start) bool { return !ids[id] && on.at.Before(s.at) })
}

// stateOf is where an instance is in its life; its proxies say whether it answers.
// m.mu is held.
func (m *Manager) stateOf(s *seen, c runtime.Instance) (engine.InstanceState, string) {
	switch {
	case m.stopping[c.ID] != nil || s.promises[c.ID].Stopping || m.ended[c.ID].After(s.at):
		return engine.InstanceStopping, ""
	case c.Phase == runtime.Failing:
		return engine.InstanceFailed, c.Reason
	case c.Phase == runtime.Starting:
		return engine.InstanceStarting, m.waiting(c.ID, c.Reason)
	}
	servers := serversOf(s, c.ID)
	if slices.ContainsFunc(servers, func(t proxy.SeenServer) bool { return t.Up && t.Check != "" }) {
		return engine.InstanceRunning, m.waiting(c.ID, missedBy(s, c))
	}
	was := m.since[c.ID]
	waited := min(time.Since(was.first), time.Since(c.StartedAt))
	if was.first.IsZero() {
		waited = 0
	}
	verdict := slices.IndexFunc(servers, func(t proxy.SeenServer) bool { return !t.Up && t.Check != "" })
	answering := slices.ContainsFunc(s.proxies[c.Service], func(p seenProxy) bool { return p.err == nil })
	switch {
	case !answering && (was.state != engine.InstanceStarting || waited > notAnswering):
		return engine.InstanceUnknown, "no proxy says whether it answers"
	case verdict < 0 && was.state == engine.InstanceRunning:
		return was.state, "" // the proxy has just been told of it
	case verdict < 0 && waited > notAnswering:
		return engine.InstanceUnknown, "no proxy has looked whether it answers"
	case verdict >= 0 && (was.state == engine.InstanceRunning || was.state == engine.InstanceUnhealthy):
		return engine.InstanceUnhealthy, "it does not answer its proxy: " + checked(servers[verdict])
	case verdict >= 0 && waited > notAnswering:
		return engine.InstanceFailed, fmt.Sprintf("it runs and has not answered for %v (%s): does it listen at the port of its specification?", notAnswering, checked(servers[verdict]))
	}
	reason := "no proxy has looked yet whether it answers"
	switch {
	case len(c.Addresses) == 0:
		reason = "it runs, and its engine does not say where it is reached"
	case verdict >= 0:
		reason = "it does not answer its proxy yet: " + checked(servers[verdict])
	}
	return engine.InstanceStarting, m.waiting(c.ID, reason)
}

// missedBy is which proxies do not reach an instance that answers others; users who come to
// them are not sent there.
func missedBy(s *seen, c runtime.Instance) string {
	var nodes []string
	found := ""
	for _, p := range s.proxies[c.Service] {
		if t := serverOf(p, c.ID); t.Check != "" && !t.Up && !t.Leaving {
			nodes, found = append(nodes, p.Node), checked(t)
		}
	}
	if len(nodes) == 0 {
		return ""
	}
	return fmt.Sprintf("the proxies on %s do not reach it: %s", strings.Join(nodes, ", "), found)
}

// waiting is a reason that is worth a word when an instance was there for a while. m.mu is held.
func (m *Manager) waiting(id, reason string) string {
	if first := m.since[id].first; first.IsZero() || time.Since(first) < slowly {
		return ""
	}
	return reason
}

// slowly is from when on it is said what an instance waits for, after it was first seen.
const slowly = 5 * time.Second

// checked is what a proxy found, and where.
func checked(t proxy.SeenServer) string {
	if !t.Address.IsValid() {
		return t.Check
	}
	return fmt.Sprintf("%s at %s", t.Check, t.Address)
}

// notAnswering is after how long an instance has failed that has not answered since this
// weir-edge first saw it.
const notAnswering = 30 * time.Second

// serverName is what proxies call an instance.
func serverName(instance string) string { return runtime.InstanceName(instance) }

// serversOf are an instance as the service's proxies see it.
func serversOf(s *seen, id string) (servers []proxy.SeenServer) {
	name := serverName(id)
	for _, proxies := range s.proxies {
		for _, p := range proxies {
			for _, t := range p.seen.Servers {
				if t.Name == name {
					servers = append(servers, t)
				}
			}
		}
	}
	return servers
}

func (m *Manager) measureInstance(s *seen, c runtime.Instance, i *engine.Instance) {
	for _, t := range serversOf(s, c.ID) {
		i.Users += float64(t.Users + t.Waiting)
		i.ResponseSeconds = max(i.ResponseSeconds, t.Response.Seconds())
	}
	n := s.measured(c.Node)
	if n == nil {
		return
	}
	for k := range n.Seen.Containers {
		seen := &n.Seen.Containers[k]
		own := seen.ID == c.ContainerID
		if own {
			i.SentBPS = seen.SentBPS
			if seen.MemoryBytes != nil {
				i.MemoryBytes = *seen.MemoryBytes
			}
			if seen.CPUs != nil {
				i.CPUs = *seen.CPUs
			}
		}
		if !own && !seen.Is(runtime.ProxyName(c.Service)) {
			continue
		}
		if seen.State == v1.StateRejected {
			i.MinRefused, i.Reason = true, seen.Reason
		} else if refusal := m.minimums.refusal(seen.ID); refusal != "" {
			i.MinRefused, i.Reason = true, refusal
		}
	}
}
