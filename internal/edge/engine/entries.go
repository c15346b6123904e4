package engine

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// # Where users come to
//
// Users connect to the proxy of a node. Instances for too many users, or too long a wait, are placed
// by where users are now (grow.go). What is required, stopped and moved goes by where they are on
// average, so that instances do not follow single users.

// entry is a node that users of a service connect to.
type entry struct {
	node  int
	users float64
}

// addDemand adds the users that proxies report to their services.
func (w *world) addDemand(list []Demand, index map[string]int, byName map[string]*service) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Demand) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Node, b.Node), cmp.Compare(a.Users, b.Users),
			cmp.Compare(a.ResponseSeconds, b.ResponseSeconds), cmp.Compare(a.DeliverySeconds, b.DeliverySeconds), cmp.Compare(a.SentBPS, b.SentBPS))
	})
	waited, delivered := map[*service]float64{}, map[*service]float64{} // users times seconds
	longest := map[*service]float64{}
	for _, d := range list {
		s := byName[d.Service]
		if s == nil {
			continue
		}
		users, response := finite(d.Users), finite(d.ResponseSeconds)
		delivery := min(finite(d.DeliverySeconds), response)
		s.demand.measured, s.demand.asked = true, s.demand.asked || d.Asked
		s.demand.users += users
		waited[s] += users * response
		delivered[s] += users * delivery
		at, known := index[d.Node]
		if !known {
			continue
		}
		if w.nodes[at].seen.UplinkBPS > 0 {
			sent := min(finite(float64(d.SentBPS)), w.nodes[at].sentBPS)
			s.demand.proxyBPS[at] += sent
			s.demand.told.users += users
			s.demand.told.bps += sent
		}
		if users > 0 && delivery > longest[s] {
			longest[s], s.demand.slowest = delivery, w.nodes[at]
		}
		if users > 0 {
			s.demand.now = append(s.demand.now, entry{node: at, users: users})
		}
	}
	for _, s := range w.services {
		s.smoothEntries(w, index)
	}
	for s, seconds := range waited {
		if s.demand.users > 0 {
			s.demand.response, s.demand.delivery = seconds/s.demand.users, delivered[s]/s.demand.users
		}
	}
}

// smoothEntries updates the mean number of users at each node. The mean stays unchanged while this
// engine is partitioned from the nodes.
func (s *service) smoothEntries(w *world, index map[string]int) {
	if w.cutOff != "" {
		return
	}
	passed, constant := w.since(s.memory.Means.At), s.memory.Move.Doubled(moveHold)
	d, now, means := &s.demand, make(map[string]float64, len(s.demand.now)), make(map[string]Mean, len(s.demand.now))
	maps.Copy(means, s.memory.Entries)
	for _, e := range d.now {
		name := w.nodes[e.node].seen.Name
		now[name] += e.users
		means[name] = s.memory.Entries[name]
	}
	for name, mean := range means {
		at, known := index[name]
		users, come := now[name]
		mean.Add(users, passed, constant)
		if !known || mean < minMeanUsers && !come {
			delete(means, name)
			continue
		}
		means[name] = mean
		d.usual = append(d.usual, entry{node: at, users: float64(mean)})
	}
	slices.SortFunc(d.usual, func(a, b entry) int { return cmp.Compare(a.node, b.node) })
	if len(d.now) == 0 {
		d.now = d.usual
	}
	s.memory.Entries = means
}
