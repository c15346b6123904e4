package engine

import (
	"cmp"
	"slices"
	"strings"
)

// # Where users come to
//
// Users come to nodes, by the proxy there, and go. Who is too many or waits too long is helped
// where he is now (grow.go); what must be, what is stopped and what comes closer goes by where
// users are on average, so that instances do not follow each of them.

// entry is a node that users of a service come to.
type entry struct {
	node  int
	users float64
}

// addDemand takes what proxies tell.
func (w *world) addDemand(list []Demand, index map[string]int, byName map[string]*service) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Demand) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Node, b.Node), cmp.Compare(a.Users, b.Users),
			cmp.Compare(a.RequestsPerSecond, b.RequestsPerSecond), cmp.Compare(a.ResponseSeconds, b.ResponseSeconds), cmp.Compare(a.SentBPS, b.SentBPS))
	})
	waited := map[*service]float64{} // users times seconds
	for _, d := range list {
		s := byName[d.Service]
		if s == nil {
			continue
		}
		users, response := finite(d.Users), finite(d.ResponseSeconds)
		s.measured = true
		s.users += users
		s.requests += finite(d.RequestsPerSecond)
		waited[s] += users * response
		at, known := index[d.Node]
		if !known {
			continue
		}
		if w.nodes[at].UplinkBPS > 0 {
			sent := min(finite(float64(d.SentBPS)), w.nodes[at].sentBPS)
			s.proxyBPS[at] += sent
			s.told.users += users
			s.told.bps += sent
		}
		if users > 0 {
			s.now = append(s.now, entry{node: at, users: users})
		}
	}
	for _, s := range w.services {
		s.smoothEntries(w, index)
	}
	for s, seconds := range waited {
		if s.users > 0 {
			s.response = seconds / s.users
		}
	}
}

// smoothEntries works out where users come to on average, so that instances do not follow those
// who come and go. The mean stays as it is while nothing is decided: who is cut off does not see
// who comes.
func (s *service) smoothEntries(w *world, index map[string]int) {
	if w.cutOff != "" {
		return
	}
	weight := SmoothingWeight(w.since(s.memory.SmoothAt), s.closerHold(&w.e.policy))
	means, come := make(map[string]float64, len(s.now)), make(map[string]bool, len(s.now))
	for name, mean := range s.memory.Entries {
		means[name] = mean * (1 - weight)
	}
	for _, e := range s.now {
		name := w.nodes[e.node].Name
		means[name] += e.users * weight
		come[name] = true
	}
	for name, mean := range means {
		at, known := index[name]
		if !known || mean < leastUsers && !come[name] {
			delete(means, name)
			continue
		}
		s.usual = append(s.usual, entry{node: at, users: mean})
	}
	slices.SortFunc(s.usual, func(a, b entry) int { return cmp.Compare(a.node, b.node) })
	if len(s.now) == 0 {
		s.now = s.usual
	}
	s.memory.Entries = means
}

// leastUsers is a mean of users that is nobody any more where nobody comes to: also that of
// hundreds begins with less, if it is over half an hour.
const leastUsers = 0.01
