package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/share/policy"
)

// need is the reason and the constraints for placing an instance.
type need struct {
	cause Cause
	why   string
	must  bool // at any cost
	// away is the instance that the new one replaces; nil if it is an additional one.
	away *instance
	// orMove is an instance that may be moved instead of adding one; nil if there is none.
	orMove *instance
	// apart: only nodes without an instance of the service.
	apart bool
	// only lists the allowed nodes; nil allows all.
	only []int
}

// option is a node that can satisfy a need, with its score.
type option struct {
	Alternative
	node *node
	away *instance
}

// placement compares the options for one need.
type placement struct {
	w *world
	s *service
	need
	question Question
	// carried is the number of users that the service carries now; closest is the round trip from
	// each entry to the closest instance.
	carried float64
	closest []float64
	// minimum is the part of the minimum that the node has to promise, noPromise and noPromiseIn the
	// reasons why nodes that cannot are excluded.
	minimum                Rates
	noPromise, noPromiseIn string
	options                []option // the best, in order
	excluded               []Excluded
}

// place chooses a node and decides to start an instance there. If there is none it adds a Keep
// decision with the reason and returns false.
func (w *world) place(s *service, n need) bool {
	if first := s.waitsFor(); first != "" {
		s.keep(w, CauseOrder, n.why+", but it waits "+first)
		return false
	}
	pl := newPlacement(w, s, n)
	if failing := s.failing(w); failing != "" {
		s.keep(w, CauseFailed, n.why+", but "+failing)
		return false
	}
	pl.judgeNodes(s.algorithm)
	reason := ""
	if n.must && (len(pl.options) == 0 || pl.options[0].Refused != "") {
		if n.cause == CauseCapacity && len(s.instances) > 0 && len(pl.options) > 0 {
			reason = fmt.Sprintf("; the algorithm %s takes none of the nodes (%s)", s.Spec.Algorithm, pl.options[0].Refused)
		}
		pl.judgeNodes(spread)
	}
	d := Decision{Action: Keep, Cause: n.cause, Algorithm: s.algorithmName(), Excluded: pl.excluded}
	for i := range pl.options {
		d.Alternatives = append(d.Alternatives, pl.options[i].Alternative)
	}
	if len(pl.options) == 0 || pl.options[0].Refused != "" {
		d.Reason = n.why + ", but " + pl.noNode()
		s.decide(w, d)
		return false
	}
	best := &pl.options[0]
	d.Action, d.Node, d.Instance, d.Apart = best.Action, best.node.seen.Name, s.nextID(), n.apart
	d.MinBPS, d.InMinBPS, d.LimitBytes, d.Version = pl.minimum.Out, pl.minimum.In, s.Spec.Limits.MemoryBytes, s.Versions.Wanted
	if best.away != nil {
		d.Replaces, d.From = best.away.ID, best.away.Node
	}
	before := pl.question.BeforeSeconds
	if len(s.instances) == 0 {
		before = 0 // nothing is known of what users would wait
	}
	d.Reason = n.why + ": " + best.expectation(before) + reason + s.fallback
	s.decide(w, d)
	w.apply(s, best, pl.minimum)
	return true
}

func newPlacement(w *world, s *service, n need) *placement {
	pl := &placement{w: w, s: s, need: n}
	pl.minimum = pl.part()
	pl.noPromise = "cannot promise " + policy.FormatRate(pl.minimum.Out) + " more"
	pl.noPromiseIn = "cannot promise " + policy.FormatRate(pl.minimum.In) + " more" + ofReceived(true)
	return pl
}

// part returns the part of the minimum that the new instance is expected to need: users are spread
// over as many instances as there are then.
func (pl *placement) part() Rates {
	count := len(pl.s.instances)
	if pl.orMove == nil && !slices.Contains(pl.s.instances, pl.away) {
		count++
	}
	return pl.s.minimum.partOf(count)
}

// judgeNodes builds the options with an algorithm.
func (pl *placement) judgeNodes(algorithm Algorithm) {
	pl.options, pl.excluded = pl.options[:0], nil
	pl.measure()
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

// measure computes the state before the change.
func (pl *placement) measure() {
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
		Service: &s.Spec, Facts: facts, Must: pl.must,
		BeforeSeconds:      s.expected(w),
		ContainerExhausted: facts.CPUPercent >= 100*high,
		IdleSeconds:        s.model.seconds / stretch(s.model.rho),
	}
}

// consider adds a node to the options, or counts the reason that excludes it.
func (pl *placement) consider(n *node, algorithm Algorithm) {
	if reason := pl.excludes(n); reason != "" {
		at := slices.IndexFunc(pl.excluded, func(e Excluded) bool { return e.Reason == reason })
		if at < 0 {
			pl.excluded = append(pl.excluded, Excluded{Reason: reason, Nodes: 1, Example: n.seen.Name})
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

// excludes returns the reason why a node cannot host an instance; empty if it can.
func (pl *placement) excludes(n *node) string {
	s := pl.s
	switch n.seen.State {
	case NodeReady:
	case NodeDraining:
		return "is being drained"
	default:
		return "does not answer"
	}
	switch {
	case s.Bound.Node != "" && s.Bound.Node != n.seen.Name:
		return "is not " + s.Bound.Node + ", where " + cmp.Or(s.Spec.Keeper(), "the placement") + " keeps it"
	case pl.away != nil && pl.away.node == n && pl.cause != CauseUpdate:
		return "is where it is"
	case pl.apart && (s.instancesOn(n.index) > 0 || slices.ContainsFunc(s.arriving, func(i *instance) bool { return i.node == n })):
		return "has an instance already"
	case s.minimum != (Rates{}) && !n.seen.Weir:
		return "has no Weir agent, so no minimum holds there"
	case s.minimum != (Rates{}) && !n.seen.promises():
		return "has a Weir agent at which weir-edge has only the role read: give weir-edge a token with the role admin"
	case pl.minimum.Out > n.out.freeBPS(s):
		return pl.noPromise
	case s.minimum.In > 0 && n.in.BudgetBPS == 0:
		return "shares nothing of what it receives, so no weir.in.min holds there: start its Weir agent with --in-rate"
	case pl.minimum.In > n.in.freeBPS(s):
		return pl.noPromiseIn
	case pl.minimum.Out > n.linksFreeBPS(s):
		return "has links to users that " + pl.noPromise
	case s.Spec.Limits.MemoryBytes > n.freeBytes():
		return "has not enough memory"
	case n.seen.DiskFreeBytes > 0 && !slices.Contains(n.seen.Images, s.Spec.Image) && n.seen.DiskFreeBytes < unpacked*s.Spec.ImageBytes:
		return "has not enough disk space for the image"
	}
	if f, failed := s.memory.Failures[n.seen.Name]; failed && f.Until.After(pl.w.at) {
		return "an instance failed there: " + orUnknown(s.memory.Failures[n.seen.Name].Reason)
	}
	return ""
}

// freeBPS returns what can be promised for a service's minimum, with what is promised.
func (d *direction) freeBPS(s *service) uint64 {
	return d.BudgetBPS - min(d.promisedBPS-d.claimedBPS[s.Spec.Name], d.BudgetBPS)
}

// linksFreeBPS returns what the links between a node and users can promise for a service's minimum,
// with what they have promised. Where switches cannot tell the service apart, links do not count.
func (n *node) linksFreeBPS(s *service) uint64 {
	if n.links == nil || s.Spec.OnlyPort() == 0 {
		return math.MaxUint64
	}
	return sum(n.links.freeBPS, n.links.claimedBPS[s.Spec.Name])
}

// limitBytes returns the memory that instances' limits may claim on a node, in bytes.
func (n *Node) limitBytes() uint64 { return uint64(float64(n.MemoryBytes) * high) }

// freeBytes returns the memory that limits can still claim on a node whose memory is known.
func (n *node) freeBytes() uint64 {
	all := n.seen.limitBytes()
	return all - min(n.promisedBytes, all)
}

// judge scores a node and keeps the option if it is among the best.
func (pl *placement) judge(n *node, away *instance, algorithm Algorithm) {
	s := pl.s
	here := s.instancesOn(n.index)
	h := host{node: n.index}
	if here > 0 {
		h = *s.host(n.index)
	}
	carried := pl.carried - s.model.carries(n, s, &h, here) + s.model.carries(n, s, &h, here+1)
	if away != nil && away.node != nil && s.instancesOn(away.node.index) > 0 {
		from := s.host(away.node.index)
		carried += s.model.carries(away.node, s, from, from.count-1) - s.model.carries(away.node, s, from, from.count)
	}
	trip := pl.trip(n)
	o := option{node: n, away: away, Alternative: Alternative{
		Action: Start, Node: n.seen.Name, Local: here > 0, Exhausted: n.exhausted,
		TransferSeconds: s.transfer(n), StartUpSeconds: s.startUp(),
		RoundTripSeconds: trip, ResponseSeconds: s.model.after(s.model.use(carried)) + trip + s.demand.delivery,
		FreeBPS: n.out.freeBPS(s), CPUPercent: n.cpuPercent(),
	}}
	if headroom := float64(n.seen.UplinkBPS) - n.sentBPS; headroom > 0 {
		o.HeadroomBPS = uint64(headroom)
	}
	if n.seen.UplinkBPS > 0 {
		o.UplinkPercent = 100 * (1 - s.uplinkLeft(n, &h, here+1)/float64(n.seen.UplinkBPS))
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

// compare orders options, best first: by score, then by the clearly less busy node, then by fewer
// instances, then by the larger promisable rate.
func (o *option) compare(other *option) int {
	refused := func(o *option) int { return min(len(o.Refused), 1) }
	return cmp.Or(refused(o)-refused(other), cmp.Compare(other.Score, o.Score),
		o.node.busy()-other.node.busy(), o.node.instances-other.node.instances, cmp.Compare(other.FreeBPS, o.FreeBPS),
		cmp.Compare(o.node.index, other.node.index), strings.Compare(string(o.Action), string(other.Action)))
}

// busy returns a node's utilization in tenths; smaller differences are noise.
func (n *node) busy() int {
	sent := 0.0
	if n.seen.UplinkBPS > 0 {
		sent = n.sentBPS / float64(n.seen.UplinkBPS)
	}
	return int(10 * max(n.cpuPercent()/100, sent))
}

// trip returns the users' mean round trip if a node gets an instance too.
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

// transfer returns the seconds to transfer the image to a node.
func (s *service) transfer(n *node) float64 {
	if slices.Contains(n.seen.Images, s.Spec.Image) {
		return 0
	}
	return s.pull(n)
}

// pull returns the seconds to transfer the image to a node without it.
func (s *service) pull(n *node) float64 {
	return float64(cmp.Or(s.Spec.ImageBytes, unknownImageBytes)) * 8 / float64(cmp.Or(n.seen.PullBPS, unknownPullBPS))
}

func (n *node) cpuPercent() float64 {
	if n.seen.CPUs == 0 {
		return 0
	}
	return n.busyCPUs / n.seen.CPUs * 100
}

// apply updates the world as if the chosen option were carried out.
func (w *world) apply(s *service, o *option, minimum Rates) {
	n := o.node
	n.out.claim(s.Spec.Name, minimum.Out)
	n.in.claim(s.Spec.Name, minimum.In)
	n.claimLinks(s.Spec.Name, minimum.Out)
	n.promisedBytes = sum(n.promisedBytes, s.Spec.Limits.MemoryBytes)
	n.instances++
	cpus := unknownCPUs
	if s.model.cpusPerUser > 0 {
		cpus = s.model.cpusPerUser * s.demand.users / float64(len(s.instances)+1)
	}
	if s.Spec.Limits.CPUs > 0 {
		cpus = min(cpus, s.Spec.Limits.CPUs)
	}
	n.busyCPUs += cpus
	// Responses to users of this node are already sent by its proxy.
	bps := s.model.bpsPerUser * s.demand.users / float64(len(s.instances)+1)
	bps = min(max(bps-s.demand.proxyBPS[n.index], 0), mostMeasured)
	n.sentBPS += bps
	n.usedBytes += float64(cmp.Or(s.Spec.Limits.MemoryBytes, unknownMemoryBytes))
	n.exhausted = n.isShortOf()
	fresh := &instance{Instance: Instance{Service: s.Spec.Name, Node: n.seen.Name, State: InstanceStarting, Since: w.at, Version: s.Versions.Wanted, CPUs: cpus, SentBPS: uint64(bps)}, node: n}
	if o.away != nil {
		o.away.replacedBy = fresh
		if o.away.isReachable() {
			s.arriving = append(s.arriving, fresh)
			return
		}
	}
	s.instances = append(s.instances, fresh)
	s.countInstance(fresh)
}
