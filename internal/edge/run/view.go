package run

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// view is what everybody sees who asks: of one moment.
type view struct {
	at        time.Time
	services  []edge.Service
	instances []edge.Instance
	nodes     []edge.Node
	decisions []edge.Decision
}

// publish makes the view of a round.
func (m *Manager) publish(s *seen, decisions []engine.Decision) {
	m.arrived(s)
	m.sayNodes(s)
	m.count(s)
	v := view{at: time.Now(), services: []edge.Service{}, instances: []edge.Instance{}, nodes: []edge.Node{}, decisions: []edge.Decision{}}
	for _, i := range s.input.Instances {
		v.instances = append(v.instances, m.wireInstance(s, i))
	}
	slices.SortFunc(v.instances, func(a, b edge.Instance) int { return strings.Compare(a.Instance, b.Instance) })
	for i, n := range s.input.Nodes {
		v.nodes = append(v.nodes, wireNode(s, n, s.nodes[i]))
	}
	for _, listed := range s.state.Services {
		v.services = append(v.services, wireService(s, listed, v.instances, m.counters[listed.Name].total))
	}
	for _, p := range pending(s.state.Services, v.instances, decisions) {
		v.instances = append(v.instances, p)
		m.failedAt(statePending, p.Service, "", "", errors.New(p.Service+": "+p.Reason))
	}
	for _, d := range decisions {
		v.decisions = append(v.decisions, wireDecision(d))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view = v
}

// statePending is that of a service without instances, in the place of one.
const statePending = "pending"

// pending are services that have no instance and for which none is started, and why.
func pending(services []runtime.Service, there []edge.Instance, decisions []engine.Decision) (list []edge.Instance) {
	for _, s := range services {
		var of []engine.Decision
		for _, d := range decisions {
			if d.Service == s.Name {
				of = append(of, d)
			}
		}
		has := slices.ContainsFunc(there, func(i edge.Instance) bool { return i.Service == s.Name })
		starts := slices.ContainsFunc(of, func(d engine.Decision) bool { return d.Action != engine.Keep })
		if has || starts || len(of) == 0 {
			continue
		}
		list = append(list, edge.Instance{
			Service: s.Name, State: statePending, Reason: fmt.Sprintf("0 of %d: %s", of[0].Facts.Wanted, of[0].Reason),
		})
	}
	return list
}

func (m *Manager) wireInstance(s *seen, i engine.Instance) edge.Instance {
	w := edge.Instance{
		Service: i.Service, Node: i.Node, Instance: i.ID, State: string(i.State), Users: int(i.Users),
		ResponseMS: i.ResponseSeconds * 1000, Reason: i.Reason, MinBPS: i.MinBPS, Image: s.specs[i.Service].Image,
	}
	for _, c := range s.state.Instances {
		if c.ID == i.ID {
			w.Image, w.ContainerID, w.StartedAt = c.Image, c.ContainerID, c.StartedAt
		}
	}
	return w
}

func wireNode(s *seen, n engine.Node, measured Measured) edge.Node {
	w := edge.Node{
		Name: n.Name, State: string(n.State), Reason: n.Reason, Weir: n.Weir, CPUs: n.CPUs, CPUUsedPercent: n.CPUUsedPercent,
		Load1: n.Load1, MemoryBytes: n.MemoryBytes, MemoryUsedBytes: n.MemoryUsedBytes, DiskFreeBytes: n.DiskFreeBytes,
		UplinkBPS: n.UplinkBPS, UplinkSentBPS: n.UplinkSentBPS,
	}
	if measured.Node.Address.IsValid() {
		w.Address = measured.Node.Address.String()
	}
	if age := measured.Seen.AgeSeconds; age != nil {
		w.AgeSeconds = *age
	}
	if w.Reason == "" {
		w.Reason = strings.Join(measured.Seen.Problems, "; ")
	}
	for _, p := range s.promises {
		if p.Node == n.Name {
			w.PromisedBPS += p.MinBPS
		}
	}
	if w.FreeBPS = n.BudgetBPS - min(n.BudgetBPS, n.OtherMinBPS+w.PromisedBPS); n.ReadOnly {
		w.FreeBPS = 0
		w.Reason = cmp.Or(w.Reason, "its agent lets "+measured.Seen.Access.Name+" only look: no minimum can be promised there")
	}
	for _, i := range s.input.Instances {
		if i.Node == n.Name {
			w.Instances++
		}
	}
	return w
}

func wireService(s *seen, listed runtime.Service, instances []edge.Instance, counted counts) edge.Service {
	w := edge.Service{Name: listed.Name, Ports: []edge.Port{}, Specification: json.RawMessage(listed.Document), Reason: s.broken[listed.Name]}
	if w.Reason != "" {
		w.Specification = json.RawMessage("null")
	}
	w.Requests, w.FailedRequests, w.SentBytes = counted.requests, counted.failed, counted.sentBytes
	parsed := s.specs[listed.Name]
	w.Image = parsed.Image
	for _, p := range parsed.Ports {
		w.Ports = append(w.Ports, edge.Port{Host: p.Host, Container: p.Container})
	}
	for _, i := range instances {
		if i.Service != listed.Name {
			continue
		}
		w.Instances++
		if i.State == string(engine.InstanceRunning) {
			w.Running++
		}
	}
	for _, p := range s.proxies[listed.Name] {
		w.Users += p.seen.Users
		w.Waiting += p.seen.Waiting
		w.ResponseMS = max(w.ResponseMS, p.seen.Response.Seconds()*1000)
		if p.err != nil {
			w.Reason = fmt.Sprintf("the proxy on %s does not answer: %v", p.Node, p.err)
		}
	}
	return w
}

func wireDecision(d engine.Decision) edge.Decision {
	raw := func(v any) json.RawMessage {
		text, err := json.Marshal(v)
		if err != nil {
			return json.RawMessage("null") // an infinite number
		}
		return text
	}
	w := edge.Decision{
		Action: string(d.Action), Service: d.Service, Instance: d.Instance, Node: d.Node, Replaces: d.Replaces, From: d.From,
		MinBPS: d.MinBPS, Algorithm: d.Algorithm, Cause: string(d.Cause), Reason: d.Reason, Inputs: raw(d.Facts),
	}
	if len(d.Alternatives) > 0 {
		w.Alternatives = raw(d.Alternatives)
	}
	if len(d.Excluded) > 0 {
		w.Excluded = raw(d.Excluded)
	}
	return w
}

// sayNodes tells of nodes that came or changed their state.
func (m *Manager) sayNodes(s *seen) {
	m.mu.Lock()
	before := m.view.nodes
	m.mu.Unlock()
	for _, n := range s.input.Nodes {
		i := slices.IndexFunc(before, func(o edge.Node) bool { return o.Name == n.Name })
		if i >= 0 && before[i].State == string(n.State) {
			continue
		}
		message := fmt.Sprintf("node %s is %s", n.Name, n.State)
		if n.Reason != "" {
			message += ": " + n.Reason
		}
		m.record(edge.Event{Kind: edge.EventNode, Node: n.Name, Message: message})
	}
}

// Instances are those that run, start or end.
func (m *Manager) Instances() []edge.Instance { return m.Snapshot().Instances }

// Snapshot is all that was seen and decided in the last round.
func (m *Manager) Snapshot() edge.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return edge.Snapshot{
		At: m.view.at, Engine: m.rt.Kind(), DryRun: m.opts.DryRun,
		Services: slices.Clone(m.view.services), Instances: slices.Clone(m.view.instances),
		Nodes: slices.Clone(m.view.nodes), Decisions: slices.Clone(m.view.decisions),
	}
}

// ErrUnknown is a service that is not there.
var ErrUnknown = errors.New("is not deployed; weir-edge ps lists what is")

// explained is how many earlier decisions an explanation has.
const explained = 10

// Explain says why a service has the instances that it has.
func (m *Manager) Explain(service string) (edge.Explanation, error) {
	e := edge.Explanation{Instances: []edge.Instance{}, Now: []edge.Decision{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.view.services, func(s edge.Service) bool { return s.Name == service })
	if i < 0 {
		return e, fmt.Errorf("service %s %w", service, ErrUnknown)
	}
	e.Service = m.view.services[i]
	for _, instance := range m.view.instances {
		if instance.Service == service {
			e.Instances = append(e.Instances, instance)
		}
	}
	for _, d := range m.view.decisions {
		if d.Service == service {
			e.Now = append(e.Now, d)
		}
	}
	e.Earlier = m.events.of(service, explained, func(event edge.Event) bool {
		return event.Decision != nil || event.Kind == edge.EventFailed
	})
	return e, nil
}
