package htb

import (
	"slices"

	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
)

// Traffic classes.
//
// Problem. In the share of a container that asks for it, EF goes first up to its
// maximum, before other containers' bulk as well; AF has its minimum; BE has the rest
// (alloc.ClassParts). What others have must stay the same whatever a container says of
// its own packets, its guarantee must hold without an agent whichever of its classes
// it sends, and containers without classes must pay nothing.
//
// Method. One more level below the share, which only such containers have:
//
//	7e11:4010         the share: rate = its allocation now
//	  7e11:5010       its guarantee, in place of the leaf's
//	    7e11:1010     EF: rate = its maximum, within the guarantee; HTB's priority 1
//	    7e11:2010     AF: its part of what EF leaves of the guarantee
//	    7e11:3010     BE: the rest
//
// The three rates make up the guarantee, so at HTB's lowest level the container has
// what its one leaf would have had. What one class leaves of it the others have from
// the guarantee, a level above, and what the allocation has beyond it from the share:
// still before anybody lives on what is lent. In both places EF goes first, and AF and
// BE take turns in proportion to what is set aside for them, which keeps AF's minimum
// also of a share that is larger than the guarantee. EF needs no limit here: what is
// more than its maximum the classifier puts into BE (sched.Traffic.SetEFRate).
//
// Nothing of this looks at who sends what: the turns divide whatever there is.
//
// A container that begins or ceases to have classes has both kinds of leaf for a
// moment: packets go to the new ones, and the old ones are removed when they are empty
// (drain).
//
// Limits. Turns are at least a packet and at most maxQuantumPackets, so the smaller of
// AF and BE has at least a 64th of what the two share. EF's bucket is as deep as what
// the classifier lets through at once, so for that long it may go before others with
// more than its rate, which it owes then. Where a container has a maximum, each of its
// classes may send a packet on credit.

const (
	// efBurstMilliseconds is the burst of EF that the classifier lets through at once
	// (bpf/uplink.bpf.c, ef_within). Its queue holds that: within its bound EF loses
	// nothing.
	efBurstMilliseconds = 20
	// efFrames is what EF's queue holds besides: the burst of slow ones is counted
	// in frames.
	efFrames = 4
	// efHeadroomDivisor: EF's bucket fills faster than the classifier's by that part,
	// so that what is within the one is within the other.
	efHeadroomDivisor = 64
)

// trafficKinds are the classes that have a leaf.
var trafficKinds = [...]sched.TrafficClass{sched.EF, sched.AF, sched.BE}

// classRates are what HTB gives the traffic classes of a container.
type classRates struct {
	// parts are those of its whole share.
	parts alloc.ClassRates
	// leafBPS are the rates of the leaves, by class, which make up the guarantee.
	leafBPS [sched.NumTrafficClasses]uint64
}

func (c class) shareBPS() uint64 { return max(c.AllocatedBPS, c.GuaranteedBPS) }

// ratesOf divides a share of a container, of which guaranteedBPS is guaranteed.
func ratesOf(parts alloc.ClassParts, shareBPS, guaranteedBPS uint64) classRates {
	r := classRates{parts: parts.Of(shareBPS)}
	ef := min(r.parts.EFBPS+r.parts.EFBPS/efHeadroomDivisor, guaranteedBPS)
	left := guaranteedBPS - ef
	turnAF, turnBE := r.parts.Turns()
	af := uint64(float64(left) * (float64(turnAF) / float64(turnAF+turnBE)))
	af = min(af, left)
	r.leafBPS[sched.EF], r.leafBPS[sched.AF], r.leafBPS[sched.BE] = ef, af, left-af
	return r
}

// turns are the quanta of AF and BE that make up a container's turn of so many bytes.
func (r classRates) turns(turnBytes, packetBytes uint32) (af, be uint32) {
	turnAF, turnBE := r.parts.Turns()
	part := float64(turnAF) / float64(turnAF+turnBE)
	smaller := max(min(part, 1-part), 1.0/maxQuantumPackets)
	whole := max(float64(turnBytes), float64(packetBytes)/smaller)
	quantum := func(part float64) uint32 {
		return uint32(min(max(whole*part, float64(packetBytes)), maxQuantumPackets*float64(packetBytes)))
	}
	return quantum(part), quantum(1 - part)
}

// addOrdered adds the guarantee of a container with traffic classes, and their leaves
// and queues.
func (t terms) addOrdered(s *state, c class, guaranteedBPS, ceilBPS, ceilBurst uint64) {
	packetBytes := t.packetBytes
	rates := ratesOf(c.Traffic.Parts, c.shareBPS(), guaranteedBPS)
	quanta := [sched.NumTrafficClasses]uint32{sched.EF: packetBytes}
	quanta[sched.AF], quanta[sched.BE] = rates.turns(t.quantum(c), packetBytes)
	prios := [sched.NumTrafficClasses]uint32{sched.EF: latencyPrio, sched.AF: t.prio(c), sched.BE: t.prio(c)}
	guarantee := guaranteeClass(c.Number)
	s.classes = append(s.classes, kernelClass(guarantee, shareClass(c.Number),
		guaranteedBPS, burstBytes(guaranteedBPS, burstMilliseconds, packetBytes), ceilBPS, ceilBurst, innerQuantum, innerPrio))
	for _, kind := range trafficKinds {
		milliseconds := uint64(burstMilliseconds)
		if kind == sched.EF {
			milliseconds += efBurstMilliseconds
		}
		// As for a share, a debt is bounded to a second.
		rateBPS := max(rates.leafBPS[kind], min(8*uint64(packetBytes), t.rateBPS))
		burst, kindCeilBurst := burstBytes(rateBPS, milliseconds, packetBytes), ceilBurst
		if ceilBPS < t.rateBPS {
			// All of them together save up what one leaf may.
			kindCeilBurst /= uint64(len(trafficKinds))
			burst = min(burst, max(kindCeilBurst, uint64(packetBytes)))
		}
		handle := trafficClass(c.Number, kind)
		s.classes = append(s.classes, kernelClass(handle, guarantee, rateBPS, burst, ceilBPS, kindCeilBurst, quanta[kind], prios[kind]))
		s.qdiscs = append(s.qdiscs, t.trafficQueue(c, kind, rates))
	}
}

// trafficQueue is the queue of a traffic class: for EF what may come at once, and for
// AF and BE as for a container that has their part of its share.
func (t terms) trafficQueue(c class, kind sched.TrafficClass, rates classRates) kernel.Qdisc {
	minor := trafficMinor(c.Number, kind)
	if kind == sched.EF {
		memory := t.memoryBytes(rates.parts.EFBPS, t.packetBytes)
		burst := rates.parts.EFBPS / 8 * efBurstMilliseconds / 1000
		return fifoOf(minor, min(burst, memory/memoryFactor)+efFrames*uint64(t.packetBytes))
	}
	turnAF, turnBE := rates.parts.Turns()
	part := float64(turnAF) / float64(turnAF+turnBE)
	if kind == sched.BE {
		part = 1 - part
	}
	return t.queue(minor, uint64(float64(c.shareBPS())*part), c)
}

// leaves are the kinds of leaf that a container has in the kernel.
type leaves uint8

const (
	plainLeaf leaves = 1 << iota
	orderedLeaves
)

// wantedLeaves are those that packets go to.
func wantedLeaves(c sched.Competitor) leaves {
	if c.Traffic.Ordered {
		return orderedLeaves
	}
	return plainLeaf
}

// handles are the leaves' handles.
func (l leaves) handles(number uint16, dst []kernel.Handle) []kernel.Handle {
	if l&plainLeaf != 0 {
		dst = append(dst, leafClass(number))
	}
	if l&orderedLeaves != 0 {
		for _, kind := range trafficKinds {
			dst = append(dst, trafficClass(number, kind))
		}
	}
	return dst
}

// The old leaves of a container are looked at drainAfter turns after its packets go to
// others, when those are in their queues that were classified before; after
// drainAtMost what is left is given up, in a queue that is not let through.
const (
	drainAfter  = 2
	drainAtMost = 500
)

// change takes up which leaves a member's packets are to go to. Others that it has stay
// until drain removes them.
func (m *member) change() {
	wanted := wantedLeaves(m.want)
	if m.leaves&wanted == 0 {
		m.turnsSince = 0
	}
	m.leaves |= wanted
	m.divided = m.divided || wanted == orderedLeaves
}

// draining says whether a member has leaves that packets do not go to any more.
func (m *member) draining() bool { return m.leaves != wantedLeaves(m.want) }

// drain removes leaves that packets do not go to any more when they are empty. It says
// whether there are any, and whether some were removed.
func (b *Backend) drain() (any, removed bool, err error) {
	for _, m := range b.members {
		if !m.draining() {
			continue
		}
		any = true
		m.turnsSince++
		if m.turnsSince < drainAfter {
			continue
		}
		wanted := wantedLeaves(m.want)
		b.handles = (m.leaves &^ wanted).handles(m.want.Number, b.handles[:0])
		b.kernelStats, err = b.tc.ClassStats(b.ifindex, b.handles, b.kernelStats[:0])
		if err != nil {
			return any, removed, err
		}
		waiting := slices.ContainsFunc(b.kernelStats, func(s kernel.ClassStats) bool { return s.BacklogBytes > 0 })
		if !waiting || m.turnsSince >= drainAtMost {
			m.forgetQueues(m.leaves &^ wanted)
			m.leaves, removed = wanted, true
		}
	}
	return any, removed, nil
}

// adopt takes up leaves that the kernel has and that are not wanted: an earlier agent
// wanted others, and they may hold packets. The share of a large number of a Weir
// before there were traffic classes had the handle of today's guarantee of another
// number: what is below such is nobody's.
func (b *Backend) adopt(want *tree, there state) {
	found := make(map[uint16]leaves, len(want.classes))
	parents := make(map[kernel.Handle]kernel.Handle, len(there.classes))
	for _, c := range there.classes {
		parents[c.Handle] = c.Parent
	}
	for _, c := range there.classes {
		minor := c.Handle.Minor()
		switch {
		case c.Handle.Major() != classMajor || innerBits(c.Handle) != 0:
		case kindOf(minor) == sched.Unclassified:
			found[numberOf(minor)] |= plainLeaf
		case parents[guaranteeClass(numberOf(minor))] == shareClass(numberOf(minor)):
			found[numberOf(minor)] |= orderedLeaves
		}
	}
	for i := range want.classes {
		c := &want.classes[i]
		if m := b.member(c.Number); m != nil && found[c.Number]&^m.leaves != 0 {
			m.leaves |= found[c.Number]
			m.divided, m.turnsSince = true, 0
			c.Leaves = m.leaves
		}
	}
}

// counting appends the classes whose counters are a number's: its leaf or, where it has
// or had others, all leaves and the share, which stays.
func (b *Backend) counting(number uint16, dst []kernel.Handle) []kernel.Handle {
	m := b.member(number)
	if m == nil || !m.divided {
		return append(dst, leafClass(number))
	}
	return m.leaves.handles(number, append(dst, shareClass(number)))
}

// addCounted adds the counters of one of a number's classes to those from index from
// on. The share knows what was sent, its leaves what waits.
func addCounted(dst []stats, from int, number uint16, read kernel.ClassStats) []stats {
	i := slices.IndexFunc(dst[from:], func(s stats) bool { return s.number == number })
	if i < 0 {
		i = len(dst) - from
		dst = append(dst, stats{number: number})
	}
	s := &dst[from+i]
	if innerBits(read.Handle) != 0 {
		s.sentBytes, s.sentPackets = read.SentBytes, read.SentPackets
		return dst
	}
	s.backlogBytes += uint64(read.BacklogBytes)
	s.traffic[kindOf(read.Handle.Minor())] = sched.TrafficCounters{
		SentBytes: read.SentBytes, SentPackets: read.SentPackets, BacklogBytes: uint64(read.BacklogBytes),
	}
	return dst
}

// countQueues takes in what a member's queues dropped and marked, by minor, and says
// how much that is with those that are gone.
func (m *member) countQueues(read map[uint16]kernel.QueueStats) (all kernel.QueueStats, known bool) {
	all = m.goneQueues
	for kind := range m.queues {
		queue, there := read[trafficMinor(m.want.Number, sched.TrafficClass(kind))]
		m.queues[kind] = queue
		all = sum(all, queue)
		known = known || there
	}
	return all, known
}

// forgetQueues keeps what leaves had dropped and marked that are removed.
func (m *member) forgetQueues(removed leaves) {
	for kind := range m.queues {
		if (sched.TrafficClass(kind) == sched.Unclassified) == (removed == plainLeaf) {
			m.goneQueues = sum(m.goneQueues, m.queues[kind])
			m.queues[kind] = kernel.QueueStats{}
		}
	}
}

func sum(a, b kernel.QueueStats) kernel.QueueStats {
	return kernel.QueueStats{DroppedPackets: a.DroppedPackets + b.DroppedPackets, MarkedPackets: a.MarkedPackets + b.MarkedPackets}
}

// leafCount is how many leaves classes have.
func leafCount(classes []class) int {
	count := len(classes)
	for _, c := range classes {
		if c.Leaves&orderedLeaves != 0 {
			count += len(trafficKinds) - 1
		}
	}
	return count
}
