package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/policy"
)

// need is something that an instance is to be placed for.
type need struct {
	cause Cause
	why   string
	must  bool // whatever it gains
	// away is the instance that the new one is to replace; nil for another one.
	away *instance
	// orMove is an instance that may be moved instead of adding one; nil for none.
	orMove *instance
	// apart: on a node that has none yet.
	apart bool
	// only are the nodes that are looked at; nil for all.
	only []int
}

// option is a way to satisfy a need.
type option struct {
	Alternative
	node *node
	away *instance
}

// placement is the work on one need.
type placement struct {
	w *world
	s *service
	need
	question Question
	// carried is how many users the service carries now; closest the round trip of
	// each entry.
	carried float64
	closest []float64
	// noPromise is what nodes say that cannot promise the minimum.
	noPromise string
	options   []option // the best, in order
	excluded  []Excluded
}

// place looks for a node, and decides to put an instance there. It says whether there
// was one; if not, it notes why.
func (w *world) place(s *service, n need) bool {
	pl := &placement{w: w, s: s, need: n, noPromise: "cannot promise " + policy.FormatRate(s.minBPS) + " more"}
	if failing := s.failing(w); failing != "" {
		s.keep(w, CauseFailed, n.why+", but "+failing)
		return false
	}
	pl.look(s.algorithm)
	reason := ""
	if n.must && (len(pl.options) == 0 || pl.options[0].Refused != "") {
		if n.cause == CauseCapacity && len(s.instances) > 0 && len(pl.options) > 0 {
			reason = fmt.Sprintf("; the algorithm %s takes none of the nodes (%s)", s.Spec.Algorithm, pl.options[0].Refused)
		}
		pl.look(spread)
	}
	d := Decision{Action: Keep, Cause: n.cause, Algorithm: s.algorithmName(), Excluded: pl.excluded}
	for i := range pl.options {
		d.Alternatives = append(d.Alternatives, pl.options[i].Alternative)
	}
	if len(pl.options) == 0 || pl.options[0].Refused != "" {
		d.Reason = n.why + ", but " + pl.nowhere()
		s.decide(w, d)
		return false
	}
	best := &pl.options[0]
	d.Action, d.Node, d.Instance = best.Action, best.node.Name, s.nextID()
	d.MinBPS, d.LimitBytes = s.minBPS, s.Spec.Limits.MemoryBytes
	if best.away != nil {
		d.Replaces, d.From = best.away.ID, best.away.Node
	}
	d.Reason = n.why + ": " + best.said(pl.question.BeforeSeconds) + reason + s.fallback
	s.decide(w, d)
	w.put(s, best)
	return true
}

// look looks at all nodes with an algorithm.
func (pl *placement) look(algorithm Algorithm) {
	pl.options, pl.excluded = pl.options[:0], nil
	pl.begin()
	if pl.only != nil {
		for _, n := range pl.only {
			pl.consider(pl.w.nodes[n], algorithm)
		}
	} else {
		for _, n := range pl.w.nodes {
			pl.consider(n, algorithm)
		}
	}
	slices.SortFunc(pl.excluded, func(a, b Excluded) int {
		return cmp.Or(b.Nodes-a.Nodes, strings.Compare(a.Reason, b.Reason))
	})
}

// begin measures what there is before.
func (pl *placement) begin() {
	s, w := pl.s, pl.w
	pl.carried = s.model.carried(w, s, false)
	pl.closest = make([]float64, len(s.entries))
	for i, e := range s.entries {
		pl.closest[i] = -1
		for _, h := range s.hosts {
			if h.count == 0 || pl.away != nil && pl.away.node != nil && h.node == pl.away.node.index && h.count == 1 {
				continue
			}
			if trip := w.trip(e.node, h.node); pl.closest[i] < 0 || trip < pl.closest[i] {
				pl.closest[i] = trip
			}
		}
	}
	facts := s.facts(w)
	pl.question = Question{
		Service: &s.Spec, Policy: &w.e.policy, Facts: facts, Cause: pl.cause, Must: pl.must,
		BeforeSeconds:      s.expected(w),
		RequestsPerSecond:  s.requests,
		ContainerExhausted: facts.CPUPercent >= w.e.policy.CPUHighPercent,
		IdleSeconds:        s.model.seconds / stretch(s.model.rho),
	}
}

// consider takes a node for an option, or counts why not.
func (pl *placement) consider(n *node, algorithm Algorithm) {
	if reason := pl.cannot(n); reason != "" {
		at := slices.IndexFunc(pl.excluded, func(e Excluded) bool { return e.Reason == reason })
		if at < 0 {
			pl.excluded = append(pl.excluded, Excluded{Reason: reason, Nodes: 1, Example: n.Name})
			return
		}
		pl.excluded[at].Nodes++
		return
	}
	pl.judge(n, pl.away, algorithm)
	if pl.orMove != nil && pl.orMove.node != n {
		pl.judge(n, pl.orMove, algorithm)
	}
}

// cannot says why a node cannot have an instance at all.
func (pl *placement) cannot(n *node) string {
	s, p := pl.s, &pl.w.e.policy
	switch n.State {
	case NodeReady:
	case NodeDraining:
		return "is being drained"
	default:
		return "does not answer"
	}
	here := s.on(n.index)
	switch {
	case pl.away != nil && pl.away.node == n && pl.cause != CauseOutdated:
		return "is where it is"
	case pl.apart && (here > 0 || slices.ContainsFunc(s.arriving, func(i *instance) bool { return i.node == n })) &&
		(pl.away == nil || pl.away.node != n || here > 1):
		return "has an instance already"
	case n.Platform != "" && len(s.Platforms) > 0 && !slices.Contains(s.Platforms, n.Platform):
		return "has a processor that the image is not made for"
	case s.minBPS > 0 && !n.Weir:
		return "has no Weir agent, which would keep the minimum"
	case s.minBPS > 0 && !n.promises():
		return "has a Weir agent that lets weir-edge only look, and so keeps no minimum for it"
	case s.minBPS > n.freeBPS(s):
		return pl.noPromise
	case s.Spec.Limits.MemoryBytes > p.freeBytes(n):
		return "has not enough memory"
	case n.DiskFreeBytes > 0 && !slices.Contains(n.Images, s.Spec.Image) && n.DiskFreeBytes < unpacked*s.Spec.ImageBytes:
		return "has not enough disk space for the image"
	}
	if f, failed := s.memory.Failures[n.Name]; failed && f.Until.After(pl.w.at) {
		return "had one fail lately"
	}
	return ""
}

// unpacked is how much disk space an image takes for each byte that is transferred:
// while it is unpacked it is there compressed and not.
const unpacked = 3

// freeBPS is what the node can still promise an instance of a service.
func (n *node) freeBPS(s *service) uint64 {
	return n.BudgetBPS - min(n.promisedBPS-n.relieved(s), n.BudgetBPS)
}

// relieved is what the service's proxy there need not relay any more if it has an
// instance there as well.
func (n *node) relieved(s *service) uint64 { return min(n.relayedBPS[s.Spec.Name], s.minBPS) }

// memoryBytes is what limits of instances may claim together.
func (p *Policy) memoryBytes(n *Node) uint64 {
	return uint64(float64(n.MemoryBytes) * (1 - p.MemoryReservePercent/100))
}

// freeBytes is what limits may still claim of a node whose memory is known.
func (p *Policy) freeBytes(n *node) uint64 {
	all := p.memoryBytes(&n.Node)
	return all - min(n.promisedBytes, all)
}

// judge adds an option, if it is one of the best.
func (pl *placement) judge(n *node, away *instance, algorithm Algorithm) {
	s, w := pl.s, pl.w
	here := s.on(n.index)
	h := host{node: n.index}
	if here > 0 {
		h = *s.host(n.index)
	}
	carried := pl.carried - s.model.carries(n, s, &h, here) + s.model.carries(n, s, &h, here+1)
	if away != nil && away.node != nil && s.on(away.node.index) > 0 {
		from := s.host(away.node.index)
		left := from.count
		if away.node == n {
			left++
		}
		carried += s.model.carries(away.node, s, from, left-1) - s.model.carries(away.node, s, from, left)
	}
	trip := pl.trip(n)
	o := option{node: n, away: away, Alternative: Alternative{
		Action: Start, Node: n.Name, Local: here > 0, Exhausted: n.exhausted,
		TransferSeconds: w.transfer(s, n), StartUpSeconds: s.startUp(&w.e.policy),
		RoundTripSeconds: trip, ResponseSeconds: s.model.after(s.model.use(carried)) + trip,
		FreeBPS: n.freeBPS(s), CPUPercent: n.cpuPercent(),
	}}
	if headroom := float64(n.UplinkBPS) - n.sentBPS; headroom > 0 {
		o.HeadroomBPS = uint64(headroom)
	}
	if n.UplinkBPS > 0 {
		o.UplinkPercent = 100 * (1 - s.uplinkLeft(n, &h, here+1)/float64(n.UplinkBPS))
	}
	if away != nil {
		o.Action = Move
	}
	algorithm(&pl.question, &o.Alternative)
	at, _ := slices.BinarySearchFunc(pl.options, &o, func(a option, b *option) int { return a.compare(b) })
	if at >= MaxAlternatives {
		return
	}
	pl.options = slices.Insert(pl.options, at, o)
	pl.options = pl.options[:min(len(pl.options), MaxAlternatives)]
}

// compare orders options, the best first: of those that the algorithm finds equally
// good, the one whose processors and uplink are clearly less busy, then the one with
// fewer instances, then the one that can promise more.
func (o *option) compare(other *option) int {
	refused := func(o *option) int { return min(len(o.Refused), 1) }
	return cmp.Or(refused(o)-refused(other), cmp.Compare(other.Score, o.Score),
		o.node.busy()-other.node.busy(), o.node.instances-other.node.instances, cmp.Compare(other.FreeBPS, o.FreeBPS),
		cmp.Compare(o.node.index, other.node.index), strings.Compare(string(o.Action), string(other.Action)))
}

// busy is how busy a node is, in tenths: smaller differences are noise.
func (n *node) busy() int {
	sent := 0.0
	if n.UplinkBPS > 0 {
		sent = n.sentBPS / float64(n.UplinkBPS)
	}
	return int(10 * max(n.cpuPercent()/100, sent))
}

// trip is the round trip of users, on average, with an instance on a node as well.
func (pl *placement) trip(n *node) float64 {
	seconds, users := 0.0, 0.0
	for i, e := range pl.s.entries {
		trip := pl.w.trip(e.node, n.index)
		if pl.closest[i] >= 0 {
			trip = min(trip, pl.closest[i])
		}
		seconds += e.users * trip
		users += e.users
	}
	if users == 0 {
		return 0
	}
	return seconds / users
}

// transfer is how long the image takes to a node.
func (w *world) transfer(s *service, n *node) float64 {
	if slices.Contains(n.Images, s.Spec.Image) {
		return 0
	}
	p := &w.e.policy
	return float64(cmp.Or(s.Spec.ImageBytes, p.ImageBytes)) * 8 / float64(cmp.Or(n.PullBPS, p.PullBPS))
}

func (n *node) cpuPercent() float64 {
	if n.CPUs == 0 {
		return 0
	}
	return n.busyCPUs / n.CPUs * 100
}

// What an instance is expected to use of which nothing is known.
const (
	unknownCPUs  = 0.1
	unknownBytes = 32e6
)

// put is what is there after an option was chosen.
func (w *world) put(s *service, o *option) {
	n := o.node
	relieved := n.relieved(s)
	n.promisedBPS = sum(n.promisedBPS-relieved, s.minBPS)
	if relieved > 0 {
		n.relayedBPS[s.Spec.Name] -= relieved
	}
	n.promisedBytes = sum(n.promisedBytes, s.Spec.Limits.MemoryBytes)
	n.instances++
	cpus := unknownCPUs
	if s.model.cpusPerUser > 0 {
		cpus = s.model.cpusPerUser * s.users / float64(len(s.instances)+1)
	}
	if s.Spec.Limits.CPUs > 0 {
		cpus = min(cpus, s.Spec.Limits.CPUs)
	}
	n.busyCPUs += cpus
	// What users who come to the node get, its proxy sends already.
	bps := s.model.bpsPerUser * s.users / float64(len(s.instances)+1)
	bps = min(max(bps-s.proxyBPS[n.index], 0), mostMeasured)
	n.sentBPS += bps
	n.usedBytes += float64(cmp.Or(s.Spec.Limits.MemoryBytes, unknownBytes))
	n.exhausted = w.e.policy.exhausted(n)
	fresh := &instance{Instance: Instance{Service: s.Spec.Name, Node: n.Name, State: InstanceStarting, Since: w.at, CPUs: cpus, SentBPS: uint64(bps)}, node: n}
	if o.away != nil {
		o.away.replacedBy = fresh
		if o.away.reachable() {
			s.arriving = append(s.arriving, fresh)
			return
		}
	}
	s.instances = append(s.instances, fresh)
	s.count(fresh)
}
