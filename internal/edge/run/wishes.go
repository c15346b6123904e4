package run

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/policy"
)

// wish is a minimum that is to be in force for a container.
type wish struct {
	container, service string
	// latency is as in the service's labels; empty for none.
	latency string
	bps     uint64
	// promised is the part of bps that instances of the node are promised; the rest is
	// relayed for those of others.
	promised uint64
	has      uint64
	// slack is by how much another weir-edge may divide it otherwise.
	slack uint64
}

const (
	// shownAfter is how old what an agent shows may be when it answers.
	shownAfter = 300 * time.Millisecond
	// tellAgain is after how long an agent is told again what it refused; longer if it has
	// refused for long, up to seldomAgain.
	tellAgain, seldomAgain = time.Second, 20 * time.Second
	// othersOff is by how many hundredths another weir-edge may divide it otherwise: more than
	// those of users who are so few that they have none.
	othersOff = 12
)

// wishesOf are the minimums that are to be in force on a node and those that are not to
// be any more: of the containers of all services that have one.
func (x *minimums) wishesOf(s *seen, n Measured, division engine.Division, promises engine.Promises) (list []wish) {
	for name, parsed := range s.specs {
		if parsed.MinBPS() == 0 {
			continue
		}
		entry := engine.Entry{Service: name, Node: n.Node.Name}
		relayed := min(division.Relayed[entry], promises[engine.RelayID(entry)].MinBPS)
		local := division.Local[entry]
		most := uint64(math.MaxUint64) // who can have all that it may send needs no more
		if p, _ := policy.Parse(parsed.Labels); p.MaxBPS > 0 {
			most = p.MaxBPS
		}
		want := func(name string, bps, promised uint64) {
			for i, c := range x.tasksOf(&n.Seen, name) {
				w := wish{container: c.ID, service: parsed.Name, latency: parsed.Labels[policy.Prefix+"latency"], has: x.hasBPS(&n.Seen, &c)}
				w.slack = parsed.MinBPS() / 100 * othersOff
				if i == 0 { // another one is ending, or has just begun
					w.bps, w.promised = min(bps, most), min(promised, most)
				}
				list = append(list, w)
			}
		}
		want(runtime.ProxyName(name), local+relayed, local)
		for id, p := range s.promises {
			if !p.Relay && p.Service == name && p.Node == n.Node.Name {
				want(runtime.InstanceName(id), division.Sent[id], division.Sent[id])
			}
		}
	}
	// What is given back comes first, so that there is room for the rest.
	slices.SortFunc(list, func(a, b wish) int {
		raises := func(w wish) int {
			if w.bps > w.has {
				return 1
			}
			return 0
		}
		if order := raises(a) - raises(b); order != 0 {
			return order
		}
		return strings.Compare(a.container, b.container)
	})
	return list
}

// tasksOf are the containers of that name, the one that has a minimum first.
func (x *minimums) tasksOf(n *monitor.Node, name string) (tasks []monitor.Container) {
	for _, c := range n.Containers {
		if !c.Is(name) {
			continue
		}
		if x.hasBPS(n, &c) > 0 {
			tasks = slices.Insert(tasks, 0, c)
		} else {
			tasks = append(tasks, c)
		}
	}
	return tasks
}

// wanting are the wishes that are not fulfilled, and that the agent was not told of just
// now, or lately if it is a little only that it does not have.
func (x *minimums) wanting(list []wish) []wish {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.DeleteFunc(list, func(w wish) bool {
		last, was := x.told[w.container]
		if w.has == w.bps {
			if last.refused != "" {
				delete(x.told, w.container)
			}
			return true
		}
		if !was || last.bps != w.bps {
			return false
		}
		// What it was told by us and does not have any more, another weir-edge has told it.
		differs := max(w.has, w.bps) - min(w.has, w.bps)
		return time.Since(last.at) < last.patience() || last.done && differs <= w.slack
	})
}

// patience is how long an agent is not told the same again.
func (t *told) patience() time.Duration {
	if t.refused == "" {
		return tellAgain
	}
	return min(max(t.at.Sub(t.since)/4, tellAgain), seldomAgain)
}

// hasBPS is the minimum that a container has: as its agent shows or, if it was told
// something since it did, that.
func (x *minimums) hasBPS(n *monitor.Node, c *monitor.Container) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.told[c.ID]; t.done && n.AgeSeconds != nil && time.Since(t.at).Seconds() <= *n.AgeSeconds+shownAfter.Seconds() {
		return t.hasBPS
	}
	return c.MinBPS
}

// heldBPS is what containers of services have in force at a node of what the ledger
// promises there. What they have beyond that is promised by somebody else.
func (s *seen) heldBPS(n Measured) (sum uint64) {
	promised, names := map[string]uint64{}, map[string][]string{}
	for id, p := range s.promises {
		if p.Node != n.Node.Name {
			continue
		}
		promised[p.Service] += min(p.MinBPS, policy.MaxRateBPS)
		names[p.Service] = append(names[p.Service], runtime.ProxyName(p.Service), runtime.InstanceName(id))
	}
	for service, most := range promised {
		held := uint64(0)
		for i := range n.Seen.Containers {
			c := &n.Seen.Containers[i]
			if slices.ContainsFunc(names[service], c.Is) {
				held += c.AdmittedBPS
			}
		}
		sum += min(held, most)
	}
	return sum
}
