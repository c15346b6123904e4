package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// view is an immutable snapshot for readers, and what its claims are from.
type view struct {
	edge.Snapshot
	seen   *observation
	claims *claimStep
}

func newView(opts Options) *view {
	v := &view{Snapshot: edge.Snapshot{DryRun: opts.DryRun, Services: []edge.Service{}, Instances: []edge.Instance{}, Nodes: []edge.Node{}, Decisions: []edge.Decision{}}}
	if opts.Runtime != nil {
		v.Engine = opts.Runtime.Kind()
	}
	return v
}

// publish publishes the snapshot of a round.
func (m *Manager) publish(o *observation, claims *claimStep, decisions []engine.Decision) {
	m.noteArrivals(o)
	m.proxies.count(o)
	v := newView(m.opts)
	o.links = o.links.clone()
	v.At, v.seen, v.claims = time.Now(), o, claims
	for _, i := range o.input.Instances {
		v.Instances = append(v.Instances, wireInstance(o, i, claims))
	}
	for i := range v.Instances {
		describeManaged(o, &v.Instances[i], decisions)
	}
	slices.SortFunc(v.Instances, func(a, b edge.Instance) int { return strings.Compare(a.Instance, b.Instance) })
	for i, n := range o.input.Nodes {
		v.Nodes = append(v.Nodes, wireNode(o, claims.promised, n, o.nodes[i]))
	}
	for _, listed := range o.state.Services {
		v.Services = append(v.Services, wireService(o, claims, listed, v.Instances, m.proxies.counters[listed.Name].total))
	}
	for _, p := range o.pending(v.Instances, decisions) {
		if v.Instances = append(v.Instances, p); p.State != statePending {
			continue
		}
		m.journal.fail(problem{service: p.Service, same: statePending, err: errors.New(p.Reason)})
	}
	for service, proxies := range o.proxies {
		for _, p := range proxies {
			addWaiting(v.Instances, service, p.Node, p.status.Waiting)
		}
	}
	for _, d := range decisions {
		v.Decisions = append(v.Decisions, wireDecision(d))
	}
	keepSince(v, m.view.Load(), v.At)
	m.journal.sayNodes(o.input.Nodes, m.view.Load().Nodes)
	m.sleepers.Store(o.sleepers())
	m.monitored.Store(o.monitored())
	m.view.Store(v)
}

// watchLower calls show when an agent keeps less of a minimum: readers know that before the end of the round that
// begins, which asks the engine and all proxies first.
func watchLower(ctx context.Context, nodes Nodes, show func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-nodes.Lower():
			show()
		}
	}
}

// after returns the view with claims judged by reports of agents that are newer than the round. A node whose agent did
// not answer the round stays as it was in the view.
func (v *view) after(said []monitor.Node) *view {
	if v.seen == nil {
		return v
	}
	next, seen := *v, *v.seen
	seen.nodes = slices.Clone(seen.nodes)
	for _, one := range said {
		if n := seen.measured(one.Name); n != nil && n.Reported.State == monitor.StateReady {
			n.Reported = one
		}
	}
	next.seen, next.Services = &seen, slices.Clone(v.Services)
	for i := range next.Services {
		next.Services[i].Claims = v.claims.wire(&seen, v.Services[i].Name)
	}
	keepSince(&next, v, time.Now())
	return &next
}

// keepSince sets since when each place of a claim has its state.
func keepSince(v, before *view, now time.Time) {
	type key struct{ service, node, where, state string }
	since := map[key]time.Time{}
	each := func(v *view, do func(key, *edge.Place)) {
		for _, s := range v.Services {
			for _, c := range s.Claims {
				for i := range c.Places {
					p := &c.Places[i]
					do(key{s.Name, c.Node, p.Where, p.State}, p)
				}
			}
		}
	}
	each(before, func(k key, p *edge.Place) { since[k] = p.Since })
	each(v, func(k key, p *edge.Place) {
		if p.Since = since[k]; p.Since.IsZero() {
			p.Since = now
		}
	})
}

// addWaiting counts users who wait at a node's proxy at an instance there, or else at any of the service,
// so that the users of all its instances are those of the service.
func addWaiting(instances []edge.Instance, service, node string, users int) {
	of := func(i edge.Instance) bool { return i.Service == service }
	at := slices.IndexFunc(instances, func(i edge.Instance) bool { return of(i) && i.Node == node })
	if at < 0 {
		at = slices.IndexFunc(instances, of)
	}
	if at >= 0 {
		instances[at].Waiting += users
	}
}

// The states shown for a service without instances: one that should have some, and one that may have
// none without users.
const (
	statePending = "pending"
	// StateAsleep: its first user starts an instance.
	StateAsleep = "asleep"
)

// pending returns an entry with its reason for each service without instances: it is pending, it sleeps, or
// starts to, as long as no proxy of it would let a user wait.
func (o *observation) pending(there []edge.Instance, decisions []engine.Decision) (list []edge.Instance) {
	for _, s := range o.state.Services {
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
		if of[0].Facts.Wanted == 0 && of[0].Cause == engine.CauseNone {
			sleeps := edge.Instance{Service: s.Name, State: string(engine.InstanceStarting), Reason: "no proxy of it answers yet"}
			if slices.ContainsFunc(o.proxies[s.Name], func(p observedProxy) bool { return p.err == nil }) {
				sleeps.State, sleeps.Reason = StateAsleep, of[0].Reason
			}
			list = append(list, sleeps)
			continue
		}
		list = append(list, edge.Instance{
			Service: s.Name, State: statePending, Reason: fmt.Sprintf("0 of %d: %s", of[0].Facts.Wanted, of[0].Reason),
		})
	}
	return list
}

func wireInstance(o *observation, i engine.Instance, claims *claimStep) edge.Instance {
	d := &claims.division
	w := edge.Instance{
		Service: i.Service, Node: i.Node, Instance: i.ID, Version: i.Version, State: string(i.State), Users: int(i.Users),
		ResponseMS: i.ResponseSeconds * 1000, ResponseEnd: o.slowest(i.Service, i.ID).end, Reason: i.Reason, MinBPS: d.Parts[i.ID].Out, ServiceMinBPS: d.MinBPS[i.Service].Out,
		InMinBPS: d.Parts[i.ID].In, ServiceInMinBPS: d.MinBPS[i.Service].In, Image: o.specs[i.Service].Image,
	}
	for _, in := range engine.Directions {
		if d.Parts[i.ID].Of(in) > 0 && i.State != engine.InstanceStopping {
			if short := claims.shortfall(o, engine.Entry{Service: i.Service, Node: i.Node, In: in}); short != "" {
				w.Reason = cmp.Or(w.Reason, "of the minimum on "+i.Node+": "+short)
			}
		}
	}
	if parsed := o.specs[i.Service]; parsed.Keeper() != "" {
		w.Reason = cmp.Or(w.Reason, "kept here by "+parsed.Keeper())
	}
	for _, c := range o.state.Instances {
		if c.ID == i.ID {
			w.Image, w.ContainerID, w.StartedAt = c.Image, c.ContainerID, c.StartedAt
		}
	}
	return w
}

func wireNode(o *observation, promises engine.Promises, n engine.Node, measured Measured) edge.Node {
	w := edge.Node{
		Name: n.Name, State: string(n.State), Reason: n.Reason, Weir: n.Weir, CPUs: n.CPUs, CPUUsedPercent: n.CPUUsedPercent,
		Load1: n.Load1, MemoryBytes: n.MemoryBytes, MemoryUsedBytes: n.MemoryUsedBytes, DiskFreeBytes: n.DiskFreeBytes,
		UplinkBPS: n.UplinkBPS, UplinkSentBPS: n.UplinkSentBPS,
	}
	if measured.Node.Address.IsValid() {
		w.Address = measured.Node.Address.String()
	}
	if age := measured.Reported.AgeSeconds; age != nil {
		w.AgeSeconds = *age
	}
	if w.Reason == "" {
		w.Reason = strings.Join(measured.Reported.Problems, "; ")
	}
	w.PromisedBPS, w.FreeBPS = promisedBPS(n.Name, promises, false), freeBPS(&n, promises, false)
	w.InPromisedBPS, w.InFreeBPS = promisedBPS(n.Name, promises, true), freeBPS(&n, promises, true)
	if n.ReadOnly {
		w.FreeBPS, w.InFreeBPS = 0, 0
		w.Reason = cmp.Or(w.Reason, "its agent gives "+measured.Reported.Access.Name+" only the role read: no minimum can be promised there")
	}
	for _, i := range o.input.Instances {
		if i.Node == n.Name {
			w.Instances++
		}
	}
	return w
}

func wireService(o *observation, claims *claimStep, listed runtime.Service, instances []edge.Instance, counted counts) edge.Service {
	w := edge.Service{Name: listed.Name, Ports: []edge.Port{}, Specification: json.RawMessage(listed.Document), Reason: o.broken[listed.Name]}
	if w.Reason != "" {
		w.Specification = json.RawMessage("null")
	}
	w.Requests, w.FailedRequests, w.SentBytes = counted.requests, counted.failed, counted.sentBytes
	if s := o.service(listed.Name); s != nil {
		w.Update = wireUpdate(s)
	}
	parsed := o.specs[listed.Name]
	if parsed.Container != nil {
		if masked, err := parsed.Masked().MarshalJSON(); err == nil {
			w.Specification = masked
		}
	}
	w.Image, w.MinBPS, w.Claims = parsed.Image, parsed.MinBPS(), claims.wire(o, listed.Name)
	w.InMinBPS = parsed.InMinBPS()
	for _, p := range parsed.Ports {
		w.Ports = append(w.Ports, edge.Port{Host: p.Host, Container: p.Container})
	}
	for _, c := range w.Claims {
		if c.Reason != "" {
			w.Reason = cmp.Or(w.Reason, fmt.Sprintf("users may have less than the minimum: on %s %s", c.Node, c.Reason))
		}
	}
	for _, i := range instances {
		if i.Service != listed.Name {
			continue
		}
		w.Instances++
		if i.State == string(engine.InstanceRunning) {
			w.Running++
		}
		if len(o.proxies[listed.Name]) == 0 {
			w.Users += i.Users
		}
	}
	wait := o.slowest(listed.Name, "")
	w.ResponseMS, w.ResponseP95MS, w.DeliveryMS, w.ResponseEnd = wait.mean*1000, wait.p95*1000, wait.delivery*1000, wait.end
	for _, p := range o.proxies[listed.Name] {
		w.Users += p.status.Users
		w.Waiting += p.status.Waiting
		if p.status.Full {
			w.Reason = fmt.Sprintf("the proxy on %s has as many connections as it may: further users wait for a place", p.Node)
		}
		if p.err != nil {
			w.Reason = fmt.Sprintf("the proxy on %s does not answer: %v", p.Node, p.err)
		}
	}
	return w
}

// wire returns a service's claims by node.
func (s *claimStep) wire(o *observation, service string) (list []edge.Claim) {
	entries := map[engine.Entry]bool{}
	for at := range s.division.Needs {
		entries[at] = at.Service == service
	}
	for _, p := range s.promised {
		for _, in := range engine.Directions {
			if at := (engine.Entry{Service: service, Node: p.Node, In: in}); s.promised.ClaimBPS(at) > 0 {
				entries[at] = true
			}
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(entries), engine.Entry.Compare) {
		if node, n := at.Node, s.division.Needs[at]; entries[at] {
			claim := edge.Claim{
				Node: node, In: at.In, ForwardedBPS: n.ForwardedBPS, UsersBPS: n.LocalBPS + n.RelayedBPS, RelayedBPS: n.RelayedBPS, AckBPS: n.AckBPS, SentBPS: n.SentBPS,
				StartingBPS: n.StartingBPS, PromisedBPS: s.promised.ClaimBPS(at), Reason: s.shortfall(o, at),
			}
			where := "uplink"
			if at.In {
				where = "uplink in"
			}
			uplink := edge.Place{Where: where, PromisedBPS: claim.PromisedBPS, State: edge.PlaceUnknown}
			if measured := o.measured(node); measured != nil && measured.Reported.State == monitor.StateReady {
				lacking, cut := o.lackingBPS(measured, at)
				claim.InForceBPS = s.inForce[at] - min(s.inForce[at], lacking)
				switch {
				case cut > 0:
					uplink.State = v1.PromiseBroken
				case claim.PromisedBPS == 0 && n.BPS() > 0:
					uplink.State = edge.PlaceShort
				case claim.InForceBPS < claim.PromisedBPS:
					uplink.State = v1.PromiseWaiting
				default:
					uplink.State = v1.PromiseInForce
				}
			}
			if claim.Places = []edge.Place{uplink}; !at.In {
				claim.Places = append(claim.Places, o.linkPlaces(at, n, s.promised[engine.ClaimID(at)].LinkBPS)...)
			}
			list = append(list, claim)
		}
	}
	return list
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
		MinBPS: d.MinBPS, InMinBPS: d.InMinBPS, Algorithm: d.Algorithm, Cause: string(d.Cause), Reason: d.Reason, Inputs: raw(d.Facts),
	}
	if len(d.Alternatives) > 0 {
		w.Alternatives = raw(d.Alternatives)
	}
	if len(d.Excluded) > 0 {
		w.Excluded = raw(d.Excluded)
	}
	return w
}

// sayNodes reports nodes that joined or changed their state.
func (j *journal) sayNodes(nodes []engine.Node, before []edge.Node) {
	for _, n := range nodes {
		i := slices.IndexFunc(before, func(o edge.Node) bool { return o.Name == n.Name })
		if i >= 0 && before[i].State == string(n.State) {
			continue
		}
		message := "is " + string(n.State)
		if n.Reason != "" {
			message += ": " + n.Reason
		}
		j.record(edge.Event{Kind: edge.EventNode, Node: n.Name, Message: message})
	}
}

// Snapshot returns all that was observed and decided in the last round.
func (m *Manager) Snapshot() edge.Snapshot {
	v := m.view.Load().Snapshot
	v.Services, v.Instances, v.Nodes, v.Decisions = slices.Clone(v.Services), slices.Clone(v.Instances), slices.Clone(v.Nodes), slices.Clone(v.Decisions)
	return v
}

// Monitored returns what the agents of all nodes said last.
func (m *Manager) Monitored() edge.Monitored { return *m.monitored.Load() }

// monitored returns what agents said last, with the addresses of their nodes.
func (o *observation) monitored() *edge.Monitored {
	all := edge.Monitored{Nodes: []v1.Node{}}
	for i := range o.nodes {
		if n := &o.nodes[i]; n.Reported.Said != nil {
			said := *n.Reported.Said
			if n.Node.Address.IsValid() {
				said.PiIP = cmp.Or(said.PiIP, n.Node.Address.String())
			}
			all.Nodes = append(all.Nodes, said)
		}
	}
	return &all
}

// ErrUnknown is the error for a service that is not deployed.
var ErrUnknown = errors.New("is not deployed; weir-edge ps lists what is")

// explained is the number of past decisions in an explanation.
const explained = 10

// Explain returns why a service has its present instances.
func (m *Manager) Explain(service string) (edge.Explanation, error) {
	v := m.view.Load()
	e := edge.Explanation{Instances: []edge.Instance{}, Now: []edge.Decision{}}
	i := slices.IndexFunc(v.Services, func(s edge.Service) bool { return s.Name == service })
	switch {
	case i >= 0:
		e.Service = v.Services[i]
	case slices.ContainsFunc(v.Decisions, func(d edge.Decision) bool { return d.Service == service }): // a managed one
		e.Service = edge.Service{
			Name: service, Instances: 1, Ports: []edge.Port{}, Specification: json.RawMessage("null"),
			Reason: "it is your own Swarm service, which weir-edge only moves",
		}
	default:
		return e, fmt.Errorf("service %s %w", service, ErrUnknown)
	}
	for _, instance := range v.Instances {
		if instance.Service != service {
			continue
		}
		if e.Instances = append(e.Instances, instance); i < 0 {
			e.Service.Image, e.Service.Running = instance.Image, 1
		}
	}
	for _, d := range v.Decisions {
		if d.Service == service {
			e.Now = append(e.Now, d)
		}
	}
	e.Earlier = m.Events().Newest(explained, func(event edge.Event) bool {
		return event.Service == service && (event.Decision != nil || event.Kind == edge.EventFailed)
	})
	return e, nil
}
