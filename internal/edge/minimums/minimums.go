// Package minimums divides the minimum of each service among nodes and containers, and remembers
// what agents were told. It is pure: it has no clock and talks to nothing.
//
// # Problem
//
// The minimum of a service is what all its users get together, and is in force where they connect.
// On one engine that is its proxy, which has the minimum as a label. On a swarm the agents of
// those nodes have to be told. Users move, agents refuse or do not answer, and another weir-edge may tell the same
// agents, so that what was told is not what is in force.
//
// # Method
//
// A round
//
//	divides minimums by where users connect             Divide
//	reads what services have in force on each node      ClaimsInForce
//	and compares what is to be in force with what is    Orders
//
// The caller enters the claims into the ledger before the orders go out, sends the orders to
// the agents, and notes their answers. The ledger comes first; an agent that refuses all the
// same, because another program was faster, is a reason to move the instance ([Minimums.Refusal]).
//
// What an agent was told outlives weir-edge and the agent, and ends with the container.
package minimums

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
)

// Input is the observation that one round of the division is computed from.
type Input struct {
	At       time.Time
	Promises engine.Promises
	// Starting are the instances that do not answer yet.
	Starting map[string]bool
	Services []Service
	Nodes    []Node
	Proxies  []Proxy
}

// Service is a service with a minimum of one direction: of what its users get or, with In, of what they
// send.
type Service struct {
	Name    string
	In      bool
	MinBPS  uint64
	MaxBPS  uint64 // 0: none
	Latency string // as in the service's labels; empty for none
}

// Node is a node of the swarm, or the only one.
type Node struct {
	Name string
	// Ready: its agent answers.
	Ready bool
	// AgeSeconds is the age of the agent's last report; nil if there is none.
	AgeSeconds *float64
	Containers []Container
}

// Container is one direction of an instance or, where Instance is empty, of the service's proxy: what it
// sends or, with In, what it receives.
type Container struct {
	ID, Service, Instance string
	In                    bool
	// MinBPS is the minimum in its policy. AdmittedBPS is the one that the uplink has admitted, cut or not;
	// 0 while the uplink is not shared. CutBPS is the part of an admitted minimum that is not given.
	MinBPS, AdmittedBPS, CutBPS uint64
}

// Proxy is a service's proxy on a node.
type Proxy struct {
	Service, Node string
	Answers       bool
	// Users are the users that the proxy sends to each instance.
	Users map[string]float64
}

// Order is the minimum that an agent has to set for a container, with In of what it receives.
type Order struct {
	Container, Service, Latency string
	In                          bool
	BPS                         uint64
	// PromisedBPS is the part of BPS that is for instances of the node; the rest is relayed for
	// instances of other nodes. StartingBPS is the part of PromisedBPS that is kept for instances
	// that start.
	PromisedBPS, StartingBPS uint64
	HasBPS                   uint64
	// slackBPS is how far the division of another weir-edge may differ.
	slackBPS uint64
}

// State is the result of an order.
type State int

// The states of an order.
const (
	// NotYet: the agent did not answer, or failed.
	NotYet State = iota
	InForce
	Refused
)

// Answer is an agent's response to an order.
type Answer struct {
	State State
	// HasBPS is the container's minimum after an order that is in force.
	HasBPS uint64
	// Reason is why the agent refuses.
	Reason string
}

// told is the last order for a container and the agent's answer.
type told struct {
	Answer
	bps uint64
	at  time.Time
	// since is the time of the first refusal without a success in between.
	since time.Time
}

const (
	// reportDelay is the largest age of an agent's report when the agent answers.
	reportDelay = 300 * time.Millisecond
	// RetryAfter is the time until an order is repeated. It grows with the time that the agent has
	// refused, up to maxRetryAfter.
	RetryAfter    = time.Second
	maxRetryAfter = 20 * time.Second
	// RefusalHold is the time that an agent has to refuse before the refusal counts: capacity
	// returned by another program is free only at the agent's next measurement.
	RefusalHold = 2 * time.Second
	// toldKept is the time that the last order for a container is remembered.
	toldKept = time.Minute
)

// toldOf is a container and the direction of a minimum.
type toldOf struct {
	container string
	in        bool
}

// Minimums remembers orders between rounds. The zero value is ready to use.
type Minimums struct {
	division
	told map[toldOf]told
}

// ClaimsInForce returns which part of each claim has to stay promised, because it is in force.
// Claims on nodes whose agents do not answer may be, and count.
func (x *Minimums) ClaimsInForce(in *Input) map[engine.Entry]uint64 {
	inForce := map[engine.Entry]uint64{}
	for _, p := range in.Promises {
		if !p.Claim {
			continue
		}
		i := slices.IndexFunc(in.Nodes, func(n Node) bool { return n.Name == p.Node })
		for _, entry := range []engine.Entry{{Service: p.Service, Node: p.Node}, {Service: p.Service, Node: p.Node, In: true}} {
			switch bps := p.Minimum().Of(entry.In); {
			case i < 0: // it has left
				inForce[entry] = 0
			case !in.Nodes[i].Ready:
				inForce[entry] = bps
			default:
				inForce[entry] = min(bps, x.serviceBPS(in, &in.Nodes[i], entry))
			}
		}
	}
	return inForce
}

// serviceBPS returns the largest minimum that a service may have in force on a node.
func (x *Minimums) serviceBPS(in *Input, n *Node, at engine.Entry) (bps uint64) {
	for i := range n.Containers {
		if c := &n.Containers[i]; c.Service == at.Service && c.In == at.In {
			bps += max(c.AdmittedBPS, x.hasBPS(in, n, c))
		}
	}
	return bps
}

// Orders returns the orders for a node's agent, reductions first so that they free room for the
// rest. promises include the admitted claims: of a claim that is smaller than what is needed, users
// of the node's instances come first, then what its instances send, then relays.
func (x *Minimums) Orders(in *Input, n *Node, d engine.Division, promises engine.Promises) []Order {
	maps.DeleteFunc(x.told, func(_ toldOf, t told) bool { return in.At.Sub(t.at) > toldKept })
	var list []Order
	for _, s := range in.Services {
		entry := engine.Entry{Service: s.Name, Node: n.Name, In: s.In}
		need, left := d.Needs[entry], promises.ClaimBPS(entry)
		take := func(bps uint64) uint64 {
			bps = min(bps, left)
			left -= bps
			return bps
		}
		want := func(instance string, bps, promised, starting uint64) {
			most := s.MaxBPS // what is allowed all that it may send needs no more
			if most == 0 {
				most = math.MaxUint64
			}
			for i, c := range x.containersOf(in, n, entry, instance) {
				o := Order{Container: c.ID, Service: s.Name, In: s.In, Latency: s.Latency, HasBPS: x.hasBPS(in, n, c), slackBPS: d.OthersOffBPS(entry)}
				if i == 0 { // the others are ending, or have just begun
					o.BPS, o.PromisedBPS = min(bps, most), min(promised, most)
					o.StartingBPS = o.BPS - min(bps-starting, most)
				}
				list = append(list, o)
			}
		}
		local, starting := take(need.LocalBPS), take(need.StartingBPS)
		for _, id := range slices.Sorted(maps.Keys(in.Promises)) {
			if p := in.Promises[id]; !p.Claim && p.Service == s.Name && p.Node == n.Name {
				sent := take(d.Sent[id].Of(s.In))
				want(id, sent, sent, 0)
			}
		}
		want("", local+starting+take(need.RelayedBPS+need.AckBPS+need.ForwardedBPS), local+starting, starting)
	}
	list = slices.DeleteFunc(list, func(o Order) bool { return !x.isDue(in.At, o) })
	slices.SortStableFunc(list, func(a, b Order) int {
		raises := func(o Order) int {
			if o.BPS > o.HasBPS {
				return 1
			}
			return 0
		}
		if order := raises(a) - raises(b); order != 0 {
			return order
		}
		return strings.Compare(a.Container, b.Container)
	})
	return list
}

// containersOf returns a service's containers of an instance, or its proxies, the one that has a
// minimum first.
func (x *Minimums) containersOf(in *Input, n *Node, at engine.Entry, instance string) (list []*Container) {
	for i := range n.Containers {
		c := &n.Containers[i]
		if c.Service != at.Service || c.In != at.In || c.Instance != instance {
			continue
		}
		if x.hasBPS(in, n, c) > 0 {
			list = slices.Insert(list, 0, c)
		} else {
			list = append(list, c)
		}
	}
	return list
}

// isDue reports whether an order is to be sent: it is not in force, and the agent was not told the
// same lately, or told so successfully and overruled by another weir-edge that divides a little
// differently.
func (x *Minimums) isDue(now time.Time, o Order) bool {
	last, known := x.told[o.key()]
	if o.HasBPS == o.BPS {
		if last.State == Refused {
			delete(x.told, o.key())
		}
		return false
	}
	if !known || last.bps != o.BPS {
		return true
	}
	differs := max(o.HasBPS, o.BPS) - min(o.HasBPS, o.BPS)
	return now.Sub(last.at) >= last.retryAfter() && !(last.State == InForce && differs <= o.slackBPS)
}

// retryAfter returns the time until the same order is repeated.
func (t *told) retryAfter() time.Duration {
	if t.State != Refused {
		return RetryAfter
	}
	return min(max(t.at.Sub(t.since)/4, RetryAfter), maxRetryAfter)
}

// hasBPS returns a container's minimum: from the agent's report or, if an order is newer than the
// report, from that order.
func (x *Minimums) hasBPS(in *Input, n *Node, c *Container) uint64 {
	if t := x.told[toldOf{c.ID, c.In}]; t.State == InForce && n.AgeSeconds != nil && in.At.Sub(t.at).Seconds() <= *n.AgeSeconds+reportDelay.Seconds() {
		return t.HasBPS
	}
	return c.MinBPS
}

// key returns the container and the direction that an order is for.
func (o *Order) key() toldOf { return toldOf{o.Container, o.In} }

// Note records the answer to an order.
func (x *Minimums) Note(now time.Time, o Order, a Answer) {
	if x.told == nil {
		x.told = map[toldOf]told{}
	}
	next := told{Answer: a, bps: o.BPS, at: now, since: now}
	if last := x.told[o.key()]; a.State == Refused && last.State == Refused {
		next.since = last.since
	}
	x.told[o.key()] = next
}

// Refusal returns why an agent has refused a container's minimum for [RefusalHold]; empty if it
// has not.
func (x *Minimums) Refusal(container string) string {
	for _, in := range engine.Directions {
		if t := x.told[toldOf{container, in}]; t.Reason != "" && t.at.Sub(t.since) >= RefusalHold {
			return t.Reason
		}
	}
	return ""
}

// Held returns the minimums in force at a node that belong to claims. The rest of the containers'
// minimums was promised by other programs.
func Held(node string, containers []Container, promises engine.Promises) (sum engine.Rates) {
	held := map[engine.Entry]uint64{}
	for _, c := range containers {
		if c.Instance == "" || promises[c.Instance].Node == node {
			held[engine.Entry{Service: c.Service, Node: node, In: c.In}] += c.AdmittedBPS
		}
	}
	for at, bps := range held {
		bps = min(bps, promises.ClaimBPS(at))
		if at.In {
			sum.In += bps
		} else {
			sum.Out += bps
		}
	}
	return sum
}
