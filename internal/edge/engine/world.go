package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/edge/spec"
)

// world is the sorted input and what the decisions of the round change: capacity that one decision
// takes is missing for the next.
type world struct {
	e        *Engine
	at       time.Time
	nodes    []*node // by name
	services []*service
	orphans  []*instance // of removed services
	trips    map[[2]int]float64
	left     map[string]Pace // see [Memory.Left]
	cutOff   string          // why nothing is decided; empty if decisions are made
}

type node struct {
	seen  Node
	index int
	// out and in are what is promised of what it sends and receives.
	out, in direction
	// promisedBytes is the sum of promises. busyCPUs, usedBytes and sentBPS are the present use, and
	// the expected use of instances that were placed in this round.
	promisedBytes       uint64
	busyCPUs, usedBytes float64
	sentBPS             float64
	// links are what the links to users have left, and have promised to services; nil: they do not count.
	links     *linkRoom
	instances int
	exhausted string // the exhausted resource; empty if there is none
}

// direction is the room for minimums of one direction of an uplink, and what of it is promised.
type direction struct {
	Room
	// promisedBPS is the sum of promises, those of other programs included, claimedBPS the services'
	// claims, which are part of it.
	promisedBPS uint64
	claimedBPS  map[string]uint64
}

// linkRoom is what the links between a node and users can still promise, and have promised by service.
type linkRoom struct {
	freeBPS    uint64
	claimedBPS map[string]uint64
}

type instance struct {
	Instance
	node       *node // nil if the node is unknown
	replacedBy *instance
}

// service is one service in a round.
type service struct {
	Service
	minimum  Rates
	priority uint32
	// instances are those that count, by ID: on nodes that are not gone, and neither failed nor
	// stopping. numbers are the taken ones.
	instances []*instance
	numbers   map[int]bool
	lost      []*instance // on nodes that are gone
	ending    ending
	arriving  []*instance // starting to replace others; they do not count yet
	hosts     []host      // nodes with instances, by index
	// entries are demand.now or demand.usual, depending on the step of the round.
	entries   []entry
	demand    demand
	memory    ServiceMemory
	model     model
	algorithm Algorithm
	fallback  string // why the specified algorithm is not used; empty if it is

	decisions []Decision
}

// ending are instances that failed, those that stop, and those replaced by running ones.
type ending struct{ failed, leaving, surplus []*instance }

// demand is what proxies report of a service's users.
type demand struct {
	measured  bool // a proxy counts users
	uncounted bool // see [Input.Uncounted]
	asked     bool // see [Demand.Asked]
	users     float64
	// response is what users wait in seconds, delivery the part of it for the way from the node
	// where they connect; slowest is the node with the longest delivery, nil if there is none.
	response, delivery float64
	slowest            *node
	// now and usual are the users by node: present ones (the mean if there are none), and the mean.
	now, usual []entry
	// proxyBPS is the rate that proxies send by node, where agents report it; told is its sum, and
	// the users of those nodes.
	proxyBPS map[int]float64
	told     struct{ users, bps float64 }
}

// host is a node with instances of a service: how many count, how many of them run, and what they
// use.
type host struct {
	node, count, running int
	cpus, bps            float64
}

func newWorld(e *Engine, in *Input) *world {
	w := &world{e: e, at: in.At, left: in.Memory.Left, trips: make(map[[2]int]float64, len(in.Links))}
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
	for _, c := range in.Claims {
		if at, known := index[c.Node]; known {
			w.nodes[at].out.claim(c.Service, c.MinBPS)
			w.nodes[at].in.claim(c.Service, c.InMinBPS)
		}
	}
	w.addLinkRooms(in, index)
	byName := w.addServices(in)
	w.detectPartition()
	w.addInstances(in.Instances, index, byName)
	w.addDemand(in.Demand, index, byName)
	for _, s := range w.services {
		s.entries = s.demand.now
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
		n := &node{seen: list[i], index: i}
		n.seen.CPUs, n.seen.CPUUsedPercent = finite(n.seen.CPUs), min(finite(n.seen.CPUUsedPercent), 100)
		n.seen.Load1, n.seen.Availability = finite(n.seen.Load1), min(finite(n.seen.Availability), 1)
		n.busyCPUs = n.seen.CPUs * n.seen.CPUUsedPercent / 100
		n.usedBytes, n.sentBPS = float64(n.seen.MemoryUsedBytes), float64(n.seen.UplinkSentBPS)
		n.out = direction{n.seen.Out, n.seen.Out.OtherMinBPS, map[string]uint64{}}
		n.in = direction{n.seen.In, n.seen.In.OtherMinBPS, map[string]uint64{}}
		n.exhausted = n.isShortOf()
		w.nodes = append(w.nodes, n)
		index[n.seen.Name] = i
	}
	return index
}

// addLinkRooms adds what links can promise. Claims of this round begin with what is promised there.
func (w *world) addLinkRooms(in *Input, index map[string]int) {
	for _, room := range in.LinkRooms {
		if at, known := index[room.Node]; known {
			w.nodes[at].links = &linkRoom{room.FreeBPS, map[string]uint64{}}
		}
	}
	for _, c := range in.Claims {
		if at, known := index[c.Node]; known && w.nodes[at].links != nil {
			w.nodes[at].links.claimedBPS[c.Service] = c.LinkBPS
		}
	}
}

// claimLinks makes a service's part of the links to users at least bps, as far as they have that.
func (n *node) claimLinks(service string, bps uint64) {
	if n.links != nil {
		more := min(bps-min(n.links.claimedBPS[service], bps), n.links.freeBPS)
		n.links.claimedBPS[service] += more
		n.links.freeBPS -= more
	}
}

// claim makes a service's claim at least bps.
func (d *direction) claim(service string, bps uint64) {
	more := bps - min(d.claimedBPS[service], bps)
	d.claimedBPS[service] += more
	d.promisedBPS = sum(d.promisedBPS, more)
}

// isShortOf returns the exhausted resource of a node; empty if there is none.
func (n *node) isShortOf() string {
	switch {
	case n.seen.CPUs > 0 && n.busyCPUs >= n.seen.CPUs*high:
		return "its processors are exhausted"
	case n.seen.CPUs > 0 && n.seen.Load1 >= n.seen.CPUs*loadHigh:
		return "its load is high"
	case n.seen.MemoryBytes > 0 && n.usedBytes >= float64(n.seen.MemoryBytes)*high:
		return "its memory is used up"
	}
	return ""
}

func (w *world) addServices(in *Input) map[string]*service {
	byName := make(map[string]*service, len(in.Services))
	for i := range in.Services {
		s := &service{Service: in.Services[i], numbers: map[int]bool{}, demand: demand{uncounted: in.Uncounted, proxyBPS: map[int]float64{}}}
		if byName[s.Spec.Name] != nil {
			continue
		}
		s.minimum, s.priority = MinimumOf(&s.Spec), s.Spec.Priority()
		s.memory = in.Memory.Services[s.Spec.Name].clone()
		s.memory.beginVersion(s.Versions.Wanted)
		s.algorithm, s.fallback = w.e.algorithm(&s.Spec)
		byName[s.Spec.Name] = s
		w.services = append(w.services, s)
	}
	// By priority, which gets the capacity of nodes first; by name for a fixed order.
	slices.SortFunc(w.services, func(a, b *service) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), strings.Compare(a.Spec.Name, b.Spec.Name))
	})
	return byName
}

// MinimumOf returns the rates that all users of a service get, and may send, together.
func MinimumOf(s *spec.Spec) Rates { return Rates{s.MinBPS(), s.InMinBPS()} }

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
			i.node.promisedBytes = sum(i.node.promisedBytes, i.LimitBytes)
			i.node.instances++
		}
		s := byName[i.Service]
		if s == nil {
			w.orphans = append(w.orphans, i)
			continue
		}
		// The ID of a replaced instance is not given to a new one, which would be stopped in its place.
		s.numbers[numberOf(i.ID, i.Service)] = true
		s.numbers[numberOf(i.Replaces, i.Service)] = true
		w.addInstance(s, i)
	}
	for _, s := range w.services {
		s.pairMoves()
	}
}

// addInstance adds an instance to the list that it belongs to by its state.
func (w *world) addInstance(s *service, i *instance) {
	age := w.at.Sub(i.Since).Seconds()
	switch {
	case i.State == InstanceStopping:
		s.ending.leaving = append(s.ending.leaving, i)
	case i.State == InstanceFailed:
		s.ending.failed = append(s.ending.failed, i)
	case i.node == nil || i.node.seen.State == NodeGone:
		s.lost = append(s.lost, i)
	case i.State == InstanceUnhealthy && age > shortFault:
		i.Reason = cmp.Or(i.Reason, "it runs and does not answer")
		s.ending.failed = append(s.ending.failed, i)
	case i.State == InstanceStarting && age > s.startTimeout(i.node):
		i.Reason = cmp.Or(i.Reason, "it has not answered in time")
		s.ending.failed = append(s.ending.failed, i)
	default:
		s.instances = append(s.instances, i)
	}
}

// startTimeout returns the seconds that an instance may take to start on a node, its image included,
// also if the node has it by now.
func (s *service) startTimeout(n *node) float64 {
	return startTimeout + slowStart*(s.pull(n)+s.startUp())
}

// pairMoves pairs instances with those that they replace. While the new one starts only the old one
// counts; once it runs the old one is surplus.
func (s *service) pairMoves() {
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
	s.lost = slices.DeleteFunc(s.lost, func(i *instance) bool {
		// What was to replace an instance that still counts is not missed.
		old := byID[i.Replaces]
		return i.replacedBy != nil || i.State == InstanceStarting && old != nil && slices.Contains(s.instances, old)
	})
	counted := s.instances[:0]
	for _, i := range s.instances {
		switch old := byID[i.Replaces]; {
		case i.replacedBy != nil && i.replacedBy.State == InstanceRunning:
			s.ending.surplus = append(s.ending.surplus, i)
		case i.State != InstanceRunning && old != nil && old.replacedBy == i && old.isReachable():
			s.arriving = append(s.arriving, i)
		default:
			counted = append(counted, i)
			s.countInstance(i)
		}
	}
	s.instances = counted
}

// countInstance adds an instance to those of its node.
func (s *service) countInstance(i *instance) {
	h := s.host(i.node.index)
	h.count++
	h.cpus += i.CPUs
	h.bps += float64(i.SentBPS)
	if i.State == InstanceRunning {
		h.running++
	}
}

// host returns the host entry of a node, a new one if there is none.
func (s *service) host(node int) *host {
	at, found := slices.BinarySearchFunc(s.hosts, node, func(h host, n int) int { return cmp.Compare(h.node, n) })
	if !found {
		s.hosts = slices.Insert(s.hosts, at, host{node: node})
	}
	return &s.hosts[at]
}

// instancesOn returns how many instances count on a node.
func (s *service) instancesOn(node int) int {
	at, found := slices.BinarySearchFunc(s.hosts, node, func(h host, n int) int { return cmp.Compare(h.node, n) })
	if !found {
		return 0
	}
	return s.hosts[at].count
}

// detectPartition finds out whether this engine is cut off: more than half of the nodes are silent,
// those that are away not counted.
func (w *world) detectPartition() {
	counted := 0
	var gone []string
	for _, n := range w.nodes {
		switch {
		case n.seen.State != NodeGone:
			counted++
		case !n.seen.Away:
			counted++
			gone = append(gone, n.seen.Name)
		}
	}
	if 2*len(gone) > counted {
		w.cutOff = fmt.Sprintf("fewer than half of the nodes answer, so it may be this engine that is cut off: what runs stays as it is; "+
			"drain or remove nodes that are off on purpose (%s)", strings.Join(gone[:min(len(gone), 5)], ", "))
	}
}

// roundTrip returns the mean round trip of a service's users to the closest instance, if node has an
// instance too (-1: none).
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

// trip returns the round trip between two nodes in seconds.
func (w *world) trip(a, b int) float64 {
	if a == b {
		return 0
	}
	if seconds, measured := w.trips[pair(a, b)]; measured {
		return seconds
	}
	return unknownRoundTrip
}

func pair(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// sum adds promises; an overflow returns the largest number.
func sum(a, b uint64) uint64 {
	if a+b < a {
		return math.MaxUint64
	}
	return a + b
}

// startUp returns the seconds from start to first answer.
func (s *service) startUp() float64 {
	return cmp.Or(finite(s.MeasuredStartUpSeconds), s.Spec.StartUpSeconds, unknownStartUp)
}
