package htb

import (
	"slices"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
)

// Traffic classes.
//
// Problem. In the share of a container with traffic classes, EF goes first up to its
// maximum, also before other containers' bulk; AF has its minimum; BE has the rest
// (alloc.ClassParts). The shares of other containers must not depend on the classes that a
// container gives its packets, its guarantee must hold without an agent for any mix of its
// classes, and containers without classes must pay nothing.
//
// Method. Only such containers have one more level below the share:
//
//	7e11:4010         the share: rate = its allocation now
//	  7e11:5010       its guarantee, in place of the leaf's
//	    7e11:1010     EF: rate = its maximum, within the guarantee; HTB's priority 1
//	    7e11:2010     AF: its part of the guarantee without EF's
//	    7e11:3010     BE: the rest
//
// The three rates sum to the guarantee, so at HTB's lowest level the container has the same
// rate as with a single leaf. Classes borrow the idle part of the guarantee from the level
// above, and the rest of the allocation from the share: both come before any rate that the
// root lends. On both levels EF goes first, and AF and BE take turns in proportion to their
// rates, which keeps AF's minimum also in a share larger than the guarantee. EF needs no limit
// here: the classifier puts its excess over the maximum into BE (sched.Traffic.SetEFRate).
//
// None of this depends on which class sends: the turns divide the available rate.
//
// A container whose classes are switched on or off has both kinds of leaf for a moment:
// packets go to the new leaves, and the old ones are removed when they are empty (drain).
//
// Limits. Turns are at least one packet and at most maxQuantumPackets, so the smaller of AF
// and BE has at least a 64th of their common rate. EF's bucket holds the burst that the
// classifier lets through at once; during such a burst EF exceeds its rate and pays it back
// afterwards. If a container has a maximum, each of its classes may send one packet on credit.

const (
	// efBurstMilliseconds is the EF burst that the classifier lets through at once
	// (bpf/uplink.bpf.c, ef_within). EF's queue holds as much, so EF within its bound loses
	// nothing.
	efBurstMilliseconds = 20
	// efFrames is additional room in EF's queue, because the burst of a slow class is counted in
	// frames.
	efFrames = 4
	// efHeadroomDivisor: EF's bucket fills faster than the classifier's by this part, so that EF
	// accepted by the classifier conforms to the bucket.
	efHeadroomDivisor = 64
)

// trafficKinds are the traffic classes that have a leaf.
var trafficKinds = [...]sched.TrafficClass{sched.EF, sched.AF, sched.BE}

// classRates are the HTB rates of a container's traffic classes.
type classRates struct {
	// parts are the rates of the classes within the whole share.
	parts alloc.ClassRates
	// leafBPS holds the rates of the leaves, by class. Their sum is the guarantee.
	leafBPS [sched.NumTrafficClasses]uint64
}

func (c class) shareBPS() uint64 { return max(c.AllocatedBPS, c.GuaranteedBPS) }

// ratesOf divides a container's share, of which guaranteedBPS is guaranteed, among its traffic
// classes.
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

// turns divides a container's turn of turnBytes into the quanta of AF and BE.
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

// addOrdered adds the guarantee class of a container with traffic classes, and its leaves and
// queues.
func (t terms) addOrdered(s *state, c class, guaranteedBPS, ceilBPS, ceilBurst uint64) {
	packetBytes := t.packetBytes
	rates := ratesOf(c.Traffic.Parts, c.shareBPS(), guaranteedBPS)
	quanta := [sched.NumTrafficClasses]uint32{sched.EF: packetBytes}
	quanta[sched.AF], quanta[sched.BE] = rates.turns(t.quantum(c), packetBytes)
	prios := [sched.NumTrafficClasses]uint32{sched.EF: latencyPrio, sched.AF: t.prio(c), sched.BE: t.prio(c)}
	guarantee := guaranteeClass(c.Number)
	s.classes = append(s.classes, t.kernelClass(guarantee, shareClass(c.Number),
		guaranteedBPS, burstBytes(guaranteedBPS, savingMilliseconds(c), packetBytes), ceilBPS, ceilBurst, innerQuantum, innerPrio))
	for _, kind := range trafficKinds {
		milliseconds := savingMilliseconds(c)
		if kind == sched.EF { // also of a silent container: what the classifier admits at once must not wait
			milliseconds = burstMilliseconds + efBurstMilliseconds
		}
		// As for a share, this bounds a debt to one second.
		rateBPS := max(rates.leafBPS[kind], min(8*uint64(packetBytes), t.rateBPS))
		burst, kindCeilBurst := burstBytes(rateBPS, milliseconds, packetBytes), ceilBurst
		if ceilBPS < t.rateBPS {
			// Together they may save as much as a single leaf.
			kindCeilBurst /= uint64(len(trafficKinds))
			burst = min(burst, max(kindCeilBurst, uint64(packetBytes)))
		}
		handle := trafficClass(c.Number, kind)
		s.classes = append(s.classes, t.kernelClass(handle, guarantee, rateBPS, burst, ceilBPS, kindCeilBurst, quanta[kind], prios[kind]))
		s.qdiscs = append(s.qdiscs, t.trafficQueue(c, kind, rates))
	}
}

// trafficQueue returns the queue of a traffic class: for EF the classifier's burst; for AF and BE
// the queue of a container that has their part of the share.
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

// leaves is the set of leaf classes that a container has in the kernel.
type leaves uint8

const (
	plainLeaf leaves = 1 << iota
	orderedLeaves
)

// wantedLeaves returns the leaves that a competitor's packets go to.
func wantedLeaves(c sched.Competitor) leaves {
	if c.Traffic.Ordered {
		return orderedLeaves
	}
	return plainLeaf
}

// handles appends the handles of the leaves to dst.
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

// Unused leaves of a container are checked drainAfter turns after its packets go to other leaves,
// when packets classified before are in their queues. After drainAtMost turns the remaining packets
// are dropped, as their queue is not served.
const (
	drainAfter  = 2
	drainAtMost = 500
)

// change switches a member's packets to the wanted leaves. Its other leaves stay until drain
// removes them.
func (m *member) change() {
	wanted := wantedLeaves(m.want)
	if m.leaves&wanted == 0 {
		m.turnsSince = 0
	}
	m.leaves |= wanted
}

// draining reports whether a member has leaves that get no packets any more.
func (m *member) draining() bool { return m.leaves != wantedLeaves(m.want) }

// drain removes unused leaves that are empty. It reports whether there were unused leaves, and
// whether some were removed.
func (b *Backend) drain() (any, removed bool, err error) {
	if !b.device.draining {
		return false, false, nil
	}
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
		b.scratch.handles = (m.leaves &^ wanted).handles(m.want.Number, b.scratch.handles[:0])
		b.scratch.kernelStats, err = b.device.tc.ClassStats(b.device.ifindex, b.scratch.handles, b.scratch.kernelStats[:0])
		if err != nil {
			return any, removed, err
		}
		// A list that changes while the kernel answers lacks classes, which may hold packets.
		waiting := len(b.scratch.kernelStats) < len(b.scratch.handles) ||
			slices.ContainsFunc(b.scratch.kernelStats, func(s kernel.ClassStats) bool { return s.BacklogBytes > 0 })
		if !waiting || m.turnsSince >= drainAtMost {
			m.forgetQueues(m.leaves &^ wanted)
			m.leaves, removed = wanted, true
		}
	}
	b.device.draining = any
	return any, removed, nil
}

// adopt records unwanted leaves found in the kernel. They come from an earlier agent and may hold
// packets.
func (b *Backend) adopt(want *tree, there state) {
	found := make(map[uint16]leaves, len(want.classes))
	for _, c := range there.classes {
		minor := c.Handle.Minor()
		switch {
		case c.Handle.Major() != classMajor || innerBits(c.Handle) != 0:
		case kindOf(minor) == sched.Unclassified:
			found[numberOf(minor)] |= plainLeaf
		default:
			found[numberOf(minor)] |= orderedLeaves
		}
	}
	for i := range want.classes {
		c := &want.classes[i]
		if m := b.member(c.Number); m != nil && found[c.Number]&^m.leaves != 0 {
			m.leaves |= found[c.Number]
			m.turnsSince, b.device.draining = 0, true
			c.Leaves = m.leaves
		}
	}
}

// addCounted adds the counters of one class to those of its number, which are the last in dst or
// missing. The share counts what was sent, because it stays when leaves come and go; its leaves
// count what is queued.
func addCounted(dst []stats, read kernel.ClassStats) []stats {
	number := numberOf(read.Handle.Minor())
	if len(dst) == 0 || dst[len(dst)-1].number != number {
		dst = append(dst, stats{number: number})
	}
	s := &dst[len(dst)-1]
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

// countQueues returns the drops and marks of a member's queues, removed queues included, from
// counters by minor. known is false if read has none of its queues.
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

// forgetQueues keeps the drops and marks of leaves that are about to be removed.
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

// leafCount returns the number of leaves of all classes.
func leafCount(classes []class) int {
	count := len(classes)
	for _, c := range classes {
		if c.Leaves&orderedLeaves != 0 {
			count += len(trafficKinds) - 1
		}
	}
	return count
}
