package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/minimums"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/share/policy"
)

// claimStep is where services' minimums are needed, and what is promised of that.
type claimStep struct {
	in       *minimums.Input
	division engine.Division
	inForce  map[engine.Entry]uint64
	// promised is the ledger after apply.
	promised engine.Promises
	err      error
	// problems are those of links.
	problems []problem
}

// planClaims divides minimums by where users connect.
func (m *Manager) planClaims(o *observation) (s claimStep) {
	s.in, s.promised = o.minimums(), o.promises
	s.division = m.minimums.Divide(s.in)
	s.inForce = m.minimums.ClaimsInForce(s.in)
	return s
}

// apply enters claims into the ledger, as far as nodes and links have room. On a conflict the next round
// tries again.
func (s *claimStep) apply(ctx context.Context, ledger engine.Ledger, o *observation, links *Links) {
	admit := func(now engine.Promises) engine.Promises {
		return engine.AdmitClaims(o.input.Nodes, o.promises, now, s.division, s.inForce)
	}
	reserved := links.reserveClaims(ctx, o, admit(o.promises), &s.division)
	admitBoth := func(now engine.Promises) engine.Promises {
		after := admit(now)
		engine.AdmitLinks(after, reserved)
		return after
	}
	if !maps.Equal(o.promises, admitBoth(o.promises)) {
		promises, err := engine.PromiseClaims(ctx, ledger, admitBoth)
		switch {
		case err == nil:
			s.promised = promises
		case errors.Is(err, engine.ErrConflict):
			return
		default:
			s.err = err
			return
		}
	}
	s.problems = links.matchLedger(ctx, o, s.promised)
}

// followTime is for how long users may follow an instance to another node.
const followTime = 5 * time.Second

// minimums returns the observation as package minimums takes it.
func (o *observation) minimums() *minimums.Input {
	in := &minimums.Input{At: time.Now(), Promises: o.promises, Starting: map[string]bool{}}
	for _, i := range o.input.Instances {
		arrived := i.State == engine.InstanceRunning && i.Replaces != "" && o.input.At.Sub(i.Since) < followTime
		in.Starting[i.ID] = i.State == engine.InstanceStarting || arrived
	}
	claimed := map[string]engine.Rates{} // also of services whose minimum was removed: agents get an order of 0
	for _, p := range o.promises {
		if p.Claim {
			claimed[p.Service] = engine.Rates{Out: max(p.MinBPS, claimed[p.Service].Out), In: max(p.InMinBPS, claimed[p.Service].In)}
		}
	}
	for name, parsed := range o.specs {
		asks := policy.Resolve(policy.Inputs{Labels: parsed.Labels})
		if asks.Policy.MinBPS > 0 || asks.In.MinBPS > 0 || claimed[name].Out > 0 { // proxies pass on what users send
			in.Services = append(in.Services, minimums.Service{
				Name: name, MinBPS: asks.Policy.MinBPS, MaxBPS: asks.Policy.MaxBPS, Latency: parsed.Labels[policy.Prefix+"latency"],
			})
		}
		if asks.In.MinBPS > 0 || claimed[name].In > 0 {
			in.Services = append(in.Services, minimums.Service{
				Name: name, In: true, MinBPS: asks.In.MinBPS, MaxBPS: asks.In.MaxBPS, Latency: parsed.Labels[policy.LabelIn+"latency"],
			})
		}
		for _, at := range o.proxies[name] {
			in.Proxies = append(in.Proxies, minimums.Proxy{Service: name, Node: at.Node, Answers: at.err == nil, Users: o.usersOf(name, &at)})
		}
	}
	for i := range o.nodes {
		n := &o.nodes[i]
		in.Nodes = append(in.Nodes, minimums.Node{
			Name: n.Node.Name, Ready: n.Reported.State == monitor.StateReady, AgeSeconds: n.Reported.AgeSeconds, Containers: o.containers(n),
		})
	}
	return in
}

// usersOf returns the users of a service's instances at a proxy: those that the proxy counts at the moment,
// and in the same proportion those that have asked since the last round.
func (o *observation) usersOf(service string, at *observedProxy) map[string]float64 {
	users, weights, counted, weighed := map[string]float64{}, map[string]float64{}, 0.0, 0.0
	for id, p := range o.promises {
		if p.Claim || p.Service != service {
			continue
		}
		for _, t := range at.status.Servers {
			if t.Name != proxy.InstanceName(id) {
				continue
			}
			users[id] += float64(max(t.Users+t.Waiting-t.Tried(at.status.Users), 0))
			if t.Up && !t.Leaving {
				weights[id] = float64(t.Weight)
			}
		}
		counted += users[id]
		weighed += weights[id]
	}
	if asked := float64(at.asked); counted > 0 && asked > counted {
		for id := range users {
			users[id] *= asked / counted
		}
	} else if counted == 0 && weighed > 0 {
		for id := range weights {
			users[id] = asked * weights[id] / weighed
		}
	}
	return users
}

// containers returns the containers of a node that are services' proxies or promised instances, twice where
// the node shares what it receives.
func (o *observation) containers(n *Measured) (list []minimums.Container) {
	names := map[string]minimums.Container{}
	for name := range o.specs {
		names[proxy.ContainerName(name)] = minimums.Container{Service: name}
	}
	for id, p := range o.promises {
		names[proxy.ContainerName(p.Service)] = minimums.Container{Service: p.Service}
		if !p.Claim {
			names[proxy.InstanceName(id)] = minimums.Container{Service: p.Service, Instance: id}
		}
	}
	for i := range n.Reported.Containers {
		c := &n.Reported.Containers[i]
		for _, name := range append([]string{strings.TrimPrefix(c.Name, "/")}, c.Groups...) {
			if known, ok := names[name]; ok {
				known.ID, known.MinBPS, known.AdmittedBPS, known.CutBPS = c.ID, c.MinBPS, c.AdmittedBPS, c.CutBPS
				list = append(list, known)
				if n.Reported.Engine.In.BudgetBPS > 0 {
					known.In, known.MinBPS, known.AdmittedBPS, known.CutBPS = true, c.In.MinBPS, c.In.AdmittedBPS, c.In.CutBPS
					list = append(list, known)
				}
				break
			}
		}
	}
	return list
}

// lackingBPS returns the part of a service's minimums that a node's agent has been told and does not
// give; cutBPS of it was admitted, and the uplink has become too slow.
func (o *observation) lackingBPS(n *Measured, at engine.Entry) (bps, cutBPS uint64) {
	for _, c := range o.containers(n) {
		if c.Service == at.Service && c.In == at.In {
			bps += c.MinBPS - min(c.MinBPS, c.AdmittedBPS-min(c.CutBPS, c.AdmittedBPS))
			cutBPS += min(c.CutBPS, c.AdmittedBPS)
		}
	}
	return bps, cutBPS
}

// tellAgents tells agents what is not in force yet, each in the background and one round at a time.
func (m *Manager) tellAgents(o *observation, s *claimStep) {
	m.journal.fail(problem{err: s.err})
	for _, p := range s.problems {
		m.journal.fail(p)
	}
	m.journal.sayShortfalls(o, s)
	for i := range o.nodes {
		n := o.nodes[i]
		if n.Agent == nil || n.Reported.Engine.UplinkBPS == 0 || m.told.telling[n.Node.Name] {
			continue // while an agent is being told, it is not known what it was told last
		}
		orders := m.minimums.Orders(s.in, &s.in.Nodes[i], s.division, s.promised)
		if len(orders) == 0 {
			continue
		}
		m.told.telling[n.Node.Name] = true
		ctx := m.ctx
		m.runInBackground(func() func() {
			answers := tell(ctx, &n, orders)
			return func() { m.noteAnswers(n.Node.Name, answers) }
		})
	}
}

// shortfall returns why users may have less than what their minimum takes on a node; empty if they
// have it.
func (s *claimStep) shortfall(o *observation, at engine.Entry) string {
	takes, promised := s.division.Needs[at].BPS(), s.promised.ClaimBPS(at)
	n := o.measured(at.Node)
	switch {
	case takes == 0 && promised == 0:
		return ""
	case n == nil:
		return "the node has left"
	case n.Reported.State != monitor.StateReady:
		return "what is in force is not known: " + cmp.Or(n.Reported.Reason, "its agent does not answer")
	case at.In && n.Reported.Engine.In.BudgetBPS == 0:
		return onlySent
	}
	if _, cutBPS := o.lackingBPS(n, at); cutBPS > 0 {
		return fmt.Sprintf("its uplink has become too slow: %s of what is promised there is missing", policy.FormatRateShort(cutBPS))
	}
	if promised >= takes && at.In {
		return ""
	}
	if promised >= takes {
		return o.linkShortfall(at, s.division.Needs[at], s.promised[engine.ClaimID(at)].LinkBPS)
	}
	text := fmt.Sprintf("it takes %s, and the node promises %s", policy.FormatRate(takes), policy.FormatRate(promised))
	for i := range o.input.Nodes {
		switch e := &o.input.Nodes[i]; {
		case e.Name != at.Node:
		case e.State != engine.NodeReady:
			return text + ": it is " + string(e.State)
		case freeBPS(e, s.promised, at.In) == 0:
			return text + ": it has no room for more"
		}
	}
	return text
}

// freeBPS returns what a node can still promise of what it receives, or sends.
func freeBPS(n *engine.Node, promises engine.Promises, in bool) uint64 {
	room := n.Room(in)
	return room.BudgetBPS - min(room.BudgetBPS, room.OtherMinBPS+promisedBPS(n.Name, promises, in))
}

// promisedBPS returns the sum of a node's claims of one direction.
func promisedBPS(node string, promises engine.Promises, in bool) (bps uint64) {
	for _, p := range promises {
		if p.Node == node {
			bps += p.Minimum().Of(in)
		}
	}
	return bps
}

// sayShortfalls reports where users may have less than what their service's minimum takes.
func (j *journal) sayShortfalls(o *observation, s *claimStep) {
	for service := range s.division.MinBPS {
		for _, c := range s.wire(o, service) {
			if n := o.measured(c.Node); c.Reason != "" && (n == nil || n.Reported.State != monitor.StateUnknown) {
				broken := slices.ContainsFunc(c.Places, func(p edge.Place) bool { return p.State == v1.PromiseBroken })
				j.fail(problem{service: service, node: c.Node, same: fmt.Sprint("shortfall", c.In, broken, n == nil || n.Reported.State == monitor.StateReady), err: fmt.Errorf(
					"the minimum %s of %s on %s: %s", s.division.MinBPS[service], service, c.Node, c.Reason)})
			}
		}
	}
}

// sayReadOnly reports the nodes where no minimum can be promised as weir-edge may only read there,
// if a service wants one.
func (j *journal) sayReadOnly(o *observation) {
	wanted := o.wantsMinimum()
	for i := range o.nodes {
		if n := &o.nodes[i]; wanted && n.isReadOnly() {
			j.fail(problem{node: n.Node.Name, err: fmt.Errorf(
				"no minimum can be promised on %s: its agent gives %s only the role read: give weir-edge a token with the role admin (weir token weir-edge --role admin), or list its certificate in admins",
				n.Node.Name, n.Reported.Access.Name)})
		}
	}
}
