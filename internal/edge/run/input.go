package run

import (
	"cmp"
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/minimums"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// input returns the engine's input for an observation.
func (m *Manager) input(o *observation) engine.Input {
	in := engine.Input{At: time.Now(), Memory: m.memory, Uncounted: m.opts.isUncounted()}
	for i := range o.nodes {
		in.Nodes = append(in.Nodes, m.node(o, &o.nodes[i]))
	}
	m.images.measurePulls(in.Nodes, o.nodes, o.at)
	in.Instances = m.lives.instances(o)
	for _, service := range o.services {
		known, measured := engine.Service{Spec: o.specs[service.Name]}, m.opts.Store.StartUp(service.Image)
		known.MeasuredStartUpSeconds = measured.Seconds
		known.Spec = known.Spec.Masked() // it may be recorded
		known.Spec.ImageBytes = cmp.Or(known.Spec.ImageBytes, measured.ImageBytes)
		known.Versions = engine.Versions{Wanted: service.Made, Before: o.before[service.Name].Made}
		known.Bound.Node, known.Bound.Awaits = o.keptOn(&known.Spec), awaits(o, in.Instances, &known.Spec)
		in.Services = append(in.Services, known)
		if m.opts.Schedules {
			in.Demand = append(in.Demand, o.connections(service.Name)...)
		}
		for i := range o.proxies[service.Name] {
			if p := &o.proxies[service.Name][i]; p.err == nil {
				wait := o.response(service.Name, p, "")
				times, counted := m.proxies.asked(service.Name, p)
				p.asked = int(min(times, uint64(max(p.status.Connected, 0))))
				in.Demand = append(in.Demand, engine.Demand{
					Service: service.Name, Node: p.Node, Users: float64(p.users(&known.Spec)), Asked: times > 0 || !counted,
					ResponseSeconds: wait.mean, DeliverySeconds: wait.delivery, SentBPS: o.proxySentBPS(service.Name, p.Node),
				})
			}
		}
	}
	m.lives.addManaged(o, &in)
	for i := range in.Instances {
		m.measureInstance(o, &in.Instances[i])
	}
	for _, p := range o.promises {
		if p.Claim {
			in.Claims = append(in.Claims, engine.Claim{Service: p.Service, Node: p.Node, MinBPS: p.MinBPS, InMinBPS: p.InMinBPS, LinkBPS: p.LinkBPS})
		}
	}
	in.LinkRooms = o.links.rooms()
	in.Links = m.proxies.links(o)
	in.At = m.roundTime(in.At)
	for i := range in.Instances {
		in.Instances[i].Since = m.roundTime(in.Instances[i].Since)
	}
	return in
}

// isUncounted reports whether nothing counts users: neither proxies nor agents.
func (o *Options) isUncounted() bool {
	_, unmeasured := o.Nodes.(Unmeasured)
	return o.Schedules && unmeasured
}

// awaits returns the first deployed service that a service needs and that has no running instance; empty
// if there is none.
func awaits(o *observation, instances []engine.Instance, s *spec.Spec) string {
	if s.Container == nil {
		return ""
	}
	for _, name := range s.Container.Needs {
		_, deployed := o.specs[name]
		if s := o.specs[name]; deployed && !s.CanSleep() && !slices.ContainsFunc(instances, func(i engine.Instance) bool { return i.Service == name && i.State == engine.InstanceRunning }) {
			return name
		}
	}
	return ""
}

// links returns the round trips between nodes: what proxies measured lately or, where none has, the
// longer one of both nodes' to this host.
func (p *proxies) links(o *observation) (list []engine.Link) {
	for i, a := range o.nodes {
		for _, b := range o.nodes[i+1:] {
			seconds := p.trip(o, a.Node.Name, b.Node.Name)
			if x, y := a.Reported.RoundTripSeconds, b.Reported.RoundTripSeconds; seconds == 0 && x > 0 && y > 0 {
				seconds = max(x, y)
			}
			if seconds > 0 {
				list = append(list, engine.Link{From: a.Node.Name, To: b.Node.Name, RoundTripSeconds: seconds})
			}
		}
	}
	return list
}

// roundTime converts a time to the clock of rounds, which starts with weir-edge and never jumps.
// Unlike t's monotonic reading it is fully recorded in a trace.
func (m *Manager) roundTime(t time.Time) time.Time { return m.began.Round(0).Add(t.Sub(m.began)) }

// node returns a node as the engine takes it.
func (m *Manager) node(o *observation, n *Measured) engine.Node {
	node := n.Reported.Engine
	held := minimums.Held(n.Node.Name, o.containers(n), o.promises)
	node.Out.OtherMinBPS -= min(held.Out, node.Out.OtherMinBPS)
	node.In.OtherMinBPS -= min(held.In, node.In.OtherMinBPS)
	node.ReadOnly = n.isReadOnly()
	node.Name = n.Node.Name
	node.Availability = m.presence.availability(n.Node.Name, engine.UnknownAvailability)
	if node.CPUs == 0 {
		node.CPUs, node.MemoryBytes = float64(n.Node.CPUs), n.Node.MemoryBytes
	}
	if n.Node.Architecture != "" {
		node.Platform = "linux/" + n.Node.Architecture
	}
	switch {
	case !n.Node.Ready:
		node.State, node.Reason = engine.NodeGone, n.Node.Reason
		node.Away = n.Node.Draining || m.presence.isAway(n.Node.Name)
	case n.Node.Draining:
		node.State, node.Reason = engine.NodeDraining, "its operator wants it empty"
	}
	for _, service := range o.services {
		runs := func(c runtime.Instance) bool { return c.Node == n.Node.Name && c.Image == service.Image }
		if m.images.has(n.Node.Name, service.Image) || slices.ContainsFunc(o.state.Instances, runs) {
			node.Images = append(node.Images, service.Image)
		}
	}
	return node
}

// measureInstance adds what proxies and the agent of its node report of an instance that is
// there, and whether the agent refuses its minimum.
func (m *Manager) measureInstance(o *observation, i *engine.Instance) {
	at := slices.IndexFunc(o.state.Instances, func(c runtime.Instance) bool { return c.ID == i.ID })
	if at < 0 {
		return
	}
	for _, t := range serversOf(o, i.ID) {
		i.Users += float64(t.Users + t.Waiting)
	}
	i.ResponseSeconds = o.slowest(i.Service, i.ID).mean
	n := o.measured(i.Node)
	if n == nil {
		return
	}
	if parsed := o.specs[i.Service]; parsed.InMinBPS() > 0 && n.sharesOnlySent() {
		i.MinRefused, i.Reason = true, onlySent
	}
	for k := range n.Reported.Containers {
		c := &n.Reported.Containers[k]
		own := c.ID == o.state.Instances[at].ContainerID || c.Is(o.state.Instances[at].ContainerID) // pods by their names
		if own {
			i.SentBPS = c.SentBPS
			if c.Connections != nil {
				i.Users = float64(*c.Connections)
			}
			if c.MemoryBytes != nil {
				i.MemoryBytes = *c.MemoryBytes
			}
			if c.CPUs != nil {
				i.CPUs = *c.CPUs
			}
		}
		if !own && !c.Is(proxy.ContainerName(i.Service)) {
			continue
		}
		if c.CutBPS > 0 && c.AdmittedBPS > 0 || c.In.CutBPS > 0 && c.In.AdmittedBPS > 0 {
			i.MinCut = true
		} else if c.State == v1.StateRejected || c.CutBPS > 0 || c.In.CutBPS > 0 {
			i.MinRefused, i.Reason = true, c.Reason
		} else if refusal := m.minimums.Refusal(c.ID); refusal != "" {
			i.MinRefused, i.Reason = true, refusal
		}
	}
}
