package engine

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// world is an input in order, and what becomes of it by the decisions of the round:
// what is put on a node is not there for the next one.
type world struct {
	e        *Engine
	at       time.Time
	nodes    []*node // by name
	services []*service
	orphans  []*instance // of services that should not run
	trips    map[[2]int]float64
	cutOff   string // why nothing is decided; empty if all is well
}

type node struct {
	Node
	index int
	// promisedBPS and promisedBytes are what instances and others have been
	// promised; busyCPUs, usedBytes and sentBPS what is used, and expected to be by
	// what has been put there in this round.
	promisedBPS, promisedBytes uint64
	busyCPUs, usedBytes        float64
	sentBPS                    float64
	// relayedBPS is the part of promisedBPS that is for relays, by service.
	relayedBPS map[string]uint64
	instances  int
	exhausted  string // what of it is; empty if nothing
}

type instance struct {
	Instance
	node       *node // nil for one on a node that nobody knows
	replacedBy *instance
}

// service is one service in a round.
type service struct {
	Service
	minBPS   uint64
	priority uint32
	// instances are those that count, by ID: on nodes that are there, and neither
	// failed nor on their way out. numbers are those that are taken.
	instances []*instance
	numbers   map[int]bool
	lost      []*instance // on nodes that are gone
	failed    []*instance
	surplus   []*instance // replaced, and not needed any more
	arriving  []*instance // that start in place of others, and do not count yet
	hosts     []host      // nodes with instances, by index
	// now and usual are where users come to: at the moment, or on average if nobody does, and
	// on average. entries is the one of them that is gone by.
	now, usual, entries []entry
	// proxyBPS is what proxies send, by node, of those that agents tell of, told that and
	// their users together.
	proxyBPS  map[int]float64
	told      struct{ users, bps float64 }
	measured  bool // somebody has counted users
	users     float64
	requests  float64
	response  float64
	memory    ServiceMemory
	model     model
	algorithm Algorithm
	fallback  string // why another algorithm than the one that is asked for decides

	decisions []Decision
}

// host is a node with instances of a service: how many count and how many of them
// run, and what these use.
type host struct {
	node, count, running int
	cpus, bps            float64
}

func newWorld(e *Engine, in *Input) *world {
	w := &world{e: e, at: in.At, trips: make(map[[2]int]float64, len(in.Links))}
	index := w.addNodes(in.Nodes)
	for _, l := range in.Links {
		from, known := index[l.From]
		to, also := index[l.To]
		if seconds := finite(l.RoundTripSeconds); known && also && from != to {
			key := pair(from, to)
			if old, twice := w.trips[key]; !twice || seconds < old {
				w.trips[key] = seconds
			}
		}
	}
	for _, r := range in.Relays {
		if at, known := index[r.Node]; known {
			w.nodes[at].relay(r.Service, r.MinBPS)
		}
	}
	byName := w.addServices(in)
	w.lookForCut()
	w.addInstances(in.Instances, index, byName)
	w.addDemand(in.Demand, index, byName)
	for _, s := range w.services {
		s.entries = s.now
		s.model = newModel(w, s)
	}
	return w
}

func (w *world) addNodes(list []Node) map[string]int {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	list = slices.CompactFunc(list, func(a, b Node) bool { return a.Name == b.Name })
	index := make(map[string]int, len(list))
	for i := range list {
		n := &node{Node: list[i], index: i}
		n.CPUs, n.CPUUsedPercent = finite(n.CPUs), min(finite(n.CPUUsedPercent), 100)
		n.Load1, n.Availability = finite(n.Load1), min(finite(n.Availability), 1)
		n.busyCPUs = n.CPUs * n.CPUUsedPercent / 100
		n.usedBytes, n.sentBPS = float64(n.MemoryUsedBytes), float64(n.UplinkSentBPS)
		n.promisedBPS = n.OtherMinBPS
		n.exhausted = w.e.policy.exhausted(n)
		w.nodes = append(w.nodes, n)
		index[n.Name] = i
	}
	return index
}

// relay adds what a service's proxy there is promised.
func (n *node) relay(service string, bps uint64) {
	if n.relayedBPS == nil {
		n.relayedBPS = map[string]uint64{}
	}
	n.relayedBPS[service] = sum(n.relayedBPS[service], bps)
	n.promisedBPS = sum(n.promisedBPS, bps)
}

// exhausted says what a node has nothing left of.
func (p *Policy) exhausted(n *node) string {
	switch {
	case n.CPUs > 0 && n.busyCPUs >= n.CPUs*p.NodeCPUHighPercent/100:
		return "its processors are exhausted"
	case n.CPUs > 0 && n.Load1 >= n.CPUs*p.LoadHigh:
		return "its load is high"
	case n.MemoryBytes > 0 && n.usedBytes >= float64(n.MemoryBytes)*p.NodeMemoryHighPercent/100:
		return "its memory is used up"
	}
	return ""
}

func (w *world) addServices(in *Input) map[string]*service {
	byName := make(map[string]*service, len(in.Services))
	for i := range in.Services {
		s := &service{Service: in.Services[i], numbers: map[int]bool{}, proxyBPS: map[int]float64{}}
		if byName[s.Spec.Name] != nil {
			continue
		}
		s.minBPS, s.priority = s.Spec.MinBPS(), s.Spec.Priority()
		s.memory = in.Memory.Services[s.Spec.Name].clone()
		s.algorithm, s.fallback = w.e.algorithm(&s.Spec)
		byName[s.Spec.Name] = s
		w.services = append(w.services, s)
	}
	// Whose needs are looked at first; the name only makes an order of it.
	slices.SortFunc(w.services, func(a, b *service) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), strings.Compare(a.Spec.Name, b.Spec.Name))
	})
	return byName
}

func (w *world) addInstances(list []Instance, index map[string]int, byName map[string]*service) {
	sorted := make([]*instance, 0, len(list))
	for i := range list {
		one := &instance{Instance: list[i]}
		one.Users, one.CPUs = finite(one.Users), finite(one.CPUs)
		one.ResponseSeconds = finite(one.ResponseSeconds)
		sorted = append(sorted, one)
	}
	slices.SortFunc(sorted, func(a, b *instance) int {
		return cmp.Or(len(a.ID)-len(b.ID), strings.Compare(a.ID, b.ID), strings.Compare(a.Node, b.Node), strings.Compare(string(a.State), string(b.State)))
	})
	for _, i := range sorted {
		if at, known := index[i.Node]; known {
			i.node = w.nodes[at]
			i.node.promisedBPS = sum(i.node.promisedBPS, i.MinBPS)
			i.node.promisedBytes = sum(i.node.promisedBytes, i.LimitBytes)
			i.node.instances++
		}
		s := byName[i.Service]
		if s == nil {
			w.orphans = append(w.orphans, i)
			continue
		}
		// A name that somebody replaces is not given to a new one, which it would end.
		s.numbers[numberOf(i.ID, i.Service)] = true
		s.numbers[numberOf(i.Replaces, i.Service)] = true
		w.sortIn(s, i)
	}
	for _, s := range w.services {
		s.pairUp()
	}
}

// sortIn puts an instance where it counts.
func (w *world) sortIn(s *service, i *instance) {
	p := &w.e.policy
	age := w.at.Sub(i.Since).Seconds()
	switch {
	case i.State == InstanceStopping:
	case i.State == InstanceFailed:
		s.failed = append(s.failed, i)
	case i.node == nil || i.node.State == NodeGone:
		s.lost = append(s.lost, i)
	case i.State == InstanceUnhealthy && age > p.UnhealthySeconds:
		i.Reason = cmp.Or(i.Reason, "it runs and does not answer")
		s.failed = append(s.failed, i)
	case i.State == InstanceStarting && age > w.startTimeout(s):
		i.Reason = cmp.Or(i.Reason, "it has not answered in time")
		s.failed = append(s.failed, i)
	default:
		s.instances = append(s.instances, i)
	}
}

// startTimeout is how long an instance may take to start, its image included.
func (w *world) startTimeout(s *service) float64 {
	p := &w.e.policy
	transfer := float64(cmp.Or(s.Spec.ImageBytes, p.ImageBytes)) * 8 / float64(p.PullBPS)
	return p.StartTimeoutSeconds + 10*transfer + 3*s.startUp(p)
}

// pairUp finds instances that were started in place of others. While the new one
// starts only the old one counts; once it runs the old one is to be stopped.
func (s *service) pairUp() {
	byID := make(map[string]*instance, len(s.instances)+len(s.lost))
	for _, list := range [][]*instance{s.lost, s.instances} {
		for _, i := range list {
			byID[i.ID] = i
		}
	}
	for _, i := range s.instances {
		if old := byID[i.Replaces]; old != nil && old != i && old.replacedBy == nil {
			old.replacedBy = i
		}
	}
	s.lost = slices.DeleteFunc(s.lost, func(i *instance) bool { return i.replacedBy != nil })
	counted := s.instances[:0]
	for _, i := range s.instances {
		switch old := byID[i.Replaces]; {
		case i.replacedBy != nil && i.replacedBy.State == InstanceRunning:
			s.surplus = append(s.surplus, i)
		case i.State != InstanceRunning && old != nil && old.replacedBy == i && old.reachable():
			s.arriving = append(s.arriving, i)
		default:
			counted = append(counted, i)
			s.count(i)
		}
	}
	s.instances = counted
}

// count adds an instance to those of its node.
func (s *service) count(i *instance) {
	h := s.host(i.node.index)
	h.count++
	h.cpus += i.CPUs
	h.bps += float64(i.SentBPS)
	if i.State == InstanceRunning {
		h.running++
	}
}

// host is the entry of a node, made where there is none.
func (s *service) host(node int) *host {
	at, found := slices.BinarySearchFunc(s.hosts, node, func(h host, n int) int { return cmp.Compare(h.node, n) })
	if !found {
		s.hosts = slices.Insert(s.hosts, at, host{node: node})
	}
	return &s.hosts[at]
}

// on is how many instances a node has.
func (s *service) on(node int) int {
	at, found := slices.BinarySearchFunc(s.hosts, node, func(h host, n int) int { return cmp.Compare(h.node, n) })
	if !found {
		return 0
	}
	return s.hosts[at].count
}

// lookForCut finds out whether it is us who are alone.
func (w *world) lookForCut() {
	gone := 0
	for _, n := range w.nodes {
		if n.State == NodeGone {
			gone++
		}
	}
	if 2*gone > len(w.nodes) {
		w.cutOff = "fewer than half of the nodes answer, so it may be this engine that is cut off: what runs stays as it is"
	}
}

// roundTrip is what users of a service wait for the network, on average, if each
// goes to the closest instance, and there was one on node as well (-1: none).
func (s *service) roundTrip(w *world, node int) float64 {
	sum, users := 0.0, 0.0
	for _, e := range s.entries {
		closest := math.Inf(1)
		for i := range s.hosts {
			if s.hosts[i].count > 0 {
				closest = min(closest, w.trip(e.node, s.hosts[i].node))
			}
		}
		if node >= 0 {
			closest = min(closest, w.trip(e.node, node))
		}
		if !math.IsInf(closest, 1) {
			sum += e.users * closest
			users += e.users
		}
	}
	if users == 0 {
		return 0
	}
	return sum / users
}

// trip is the round trip between two nodes.
func (w *world) trip(a, b int) float64 {
	if a == b {
		return 0
	}
	if seconds, measured := w.trips[pair(a, b)]; measured {
		return seconds
	}
	return w.e.policy.RoundTripSeconds
}

func pair(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// sum adds what is promised; what nobody can have counts as everything.
func sum(a, b uint64) uint64 {
	if a+b < a {
		return math.MaxUint64
	}
	return a + b
}

func (s *service) startUp(p *Policy) float64 {
	return cmp.Or(finite(s.MeasuredStartUpSeconds), s.Spec.StartUpSeconds, p.StartUpSeconds)
}
