// Package htb schedules an uplink with Linux' hierarchical token bucket.
//
// Problem. HTB guarantees every class its rate and lends what is idle in
// proportion to a quantum. Weights written as quanta fail: HTB sends one whole
// GSO packet in a turn, whatever the quantum. Weights written as rates are
// exact, but only for a fixed set of senders: the idle remainder is lent on
// top of the rate, where the ideal allocation raises a level (a floor lifts,
// it does not add). And HTB never checks that rates fit their parent, so the
// rates of those who send cannot simply be raised: when one who was idle comes
// back, the sum is above the link until somebody corrects it.
//
// Method. Three levels, because HTB serves lower levels strictly first
// (net/sched/sch_htb.c, htb_dequeue):
//
//	tbf   7e10:         the link: rate C, plus half a percent
//	htb   7e11:
//	  7e11:ffff         root: rate C. Lends what is idle at this instant.
//	    7e11:2          control traffic, first
//	    7e11:4010       a container's share: rate = its allocation now
//	      7e11:10       its leaf: rate = its guarantee
//	        qdisc 10:   its queue
//
// A leaf within its guarantee is served first. Guarantees of all running
// containers fit the link, so they hold whatever the level above says and
// whoever starts to send, with no action by the agent. Above it, a container
// is served up to its allocation, which the control loop sets for those that
// are sending now; the allocations of the senders sum to C, which makes the
// shares exact. What somebody leaves idle until the loop has noticed is lent
// by the root, so the link is never idle while anyone has traffic.
//
// When a container wakes up, guarantees plus allocations exceed C until the
// loop has run (or for good, when the agent is dead). The token bucket filter
// around HTB then holds the sum to C, and the strict order of levels gives the
// guarantees first. Half a percent keeps it out of the way the rest of the
// time. It also cuts up packets that are too large for the link's rate and
// that no limit at their source caught.
//
// Limits. One lock for the device; 8 priorities; bursts are as exact as the
// kernel's timers.
package htb

import (
	"slices"

	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
)

// Handles. A class's minor is its container's number; its share's minor has
// shareBit besides. Numbers stay below shareBit.
const (
	linkMajor  = 0x7e10
	Major      = 0x7e11
	rootMinor  = 0xffff
	shareBit   = 0x4000
	linkHandle = kernel.Handle(linkMajor << 16)
	htbHandle  = kernel.Handle(Major << 16)
	htbParent  = kernel.Handle(linkMajor<<16 | 1)
)

var rootClass = kernel.NewHandle(Major, rootMinor)

func leafClass(number uint16) kernel.Handle  { return kernel.NewHandle(Major, number) }
func shareClass(number uint16) kernel.Handle { return kernel.NewHandle(Major, shareBit|number) }
func leafQdisc(number uint16) kernel.Handle  { return kernel.NewHandle(number, 0) }

const (
	// burstMilliseconds is how late the kernel's timers and our own turn on
	// the processor may be without rate being lost.
	burstMilliseconds = 4
	// ceilBurstMilliseconds bounds what a container with a maximum sends at
	// once after a pause.
	ceilBurstMilliseconds = 1

	// queueMilliseconds bounds a leaf queue in time, queuePackets from below
	// so that a slow container can queue at all.
	queueMilliseconds = 20
	queuePackets      = 10

	// controlDivisor and controlCeilDivisor are the parts of the link that
	// control traffic is guaranteed and limited to: it must never starve, and
	// nobody may use it to get around a share.
	controlDivisor     = 100
	controlCeilDivisor = 20

	// directPackets is the queue of packets without a class. There are none:
	// unknown packets have a default class.
	directPackets = 1000

	// maxQuantumPackets bounds one container's turn when idle rate is lent.
	maxQuantumPackets = 64

	// lowestPrio is HTB's last priority (TC_HTB_NUMPRIO - 1).
	lowestPrio = 7

	// peakBytesPerSec is a rate no link has: the kernel takes the limit of a
	// packet's size only along with a peak rate.
	peakBytesPerSec = 1 << 40
)

// state is the queueing of one device: what is wanted, or what is there.
type state struct {
	qdiscs  []kernel.Qdisc
	classes []kernel.Class
}

// bytesPerSec is a rate as the kernel takes it, which refuses zero.
func bytesPerSec(bps uint64) uint64 { return max(bps/8, 1) }

func burstBytes(bps uint64, milliseconds uint64, packetBytes uint32) uint64 {
	return bps/8*milliseconds/1000 + uint64(packetBytes)
}

// desired is the state that puts a tree into force. Parents come before their
// children.
func desired(tree sched.Tree, leaf leafKind) state {
	packetBytes := sched.MaxPacketBytes(tree.RateBPS)
	linkRate := bytesPerSec(tree.RateBPS)
	linkBurst := burstBytes(tree.RateBPS, burstMilliseconds, packetBytes)

	outerRate := linkRate + linkRate/200
	link := kernel.TBF{
		RateBytesPerSec: outerRate,
		Burst:           kernel.BurstTicks(2*linkBurst+65536, outerRate),
		// HTB's leaves hold the packets; this only has to be larger.
		LimitBytes: 1 << 30,
	}
	if packetBytes < 65536 {
		link.PeakBytesPerSec = peakBytesPerSec
		link.MaxPacketBytes = packetBytes
	}

	s := state{
		qdiscs: []kernel.Qdisc{
			{Handle: linkHandle, Parent: kernel.HandleRoot, Options: link},
			{Handle: htbHandle, Parent: htbParent, Options: kernel.HTB{
				DefaultMinor: tree.DefaultNumber, DirectPackets: directPackets}},
		},
	}

	class := func(handle, parent kernel.Handle, rateBPS, ceilBPS, ceilBurst uint64, quantum, prio uint32) {
		rate, ceil := bytesPerSec(rateBPS), bytesPerSec(ceilBPS)
		s.classes = append(s.classes, kernel.Class{Handle: handle, Parent: parent,
			Options: kernel.HTBClass{
				RateBytesPerSec: rate,
				CeilBytesPerSec: ceil,
				Burst:           kernel.BurstTicks(burstBytes(rateBPS, burstMilliseconds, packetBytes), rate),
				CeilBurst:       kernel.BurstTicks(ceilBurst, ceil),
				QuantumBytes:    quantum,
				Prio:            prio,
			}})
	}

	class(rootClass, kernel.HandleRoot, tree.RateBPS, tree.RateBPS, linkBurst, packetBytes, 0)
	class(leafClass(tree.ControlNumber), rootClass,
		tree.RateBPS/controlDivisor, tree.RateBPS/controlCeilDivisor,
		burstBytes(tree.RateBPS/controlCeilDivisor, ceilBurstMilliseconds, packetBytes), packetBytes, 0)
	s.qdiscs = append(s.qdiscs, leafOf(tree.ControlNumber, tree.RateBPS/controlCeilDivisor, packetBytes, leafBFIFO))

	quantum := quanta(tree.Classes, packetBytes)
	prio := prios(tree.Classes)
	for _, c := range tree.Classes {
		ceilBPS := c.CeilingOr(tree.RateBPS)
		ceilBurst := linkBurst
		if ceilBPS < tree.RateBPS {
			ceilBurst = burstBytes(ceilBPS, ceilBurstMilliseconds, packetBytes)
		}
		q, p := quantum(c), prio(c)
		class(shareClass(c.Number), rootClass, max(c.AllocatedBPS, c.GuaranteedBPS), tree.RateBPS, linkBurst, q, p)
		class(leafClass(c.Number), shareClass(c.Number), min(c.GuaranteedBPS, ceilBPS), ceilBPS, ceilBurst, q, p)
		s.qdiscs = append(s.qdiscs, leafOf(c.Number, max(c.AllocatedBPS, c.GuaranteedBPS), packetBytes, leaf))
	}
	return s
}

// quanta gives every class a turn in proportion to its weight, the smallest
// one packet. The unit is a power of two below the smallest weight, so that
// containers that come and go seldom change the quanta of others.
func quanta(classes []sched.Class, packetBytes uint32) func(sched.Class) uint32 {
	smallest := uint32(1 << 31)
	for _, c := range classes {
		smallest = min(smallest, max(c.Weight, 1))
	}
	unit := uint32(1)
	for unit*2 <= smallest {
		unit *= 2
	}
	return func(c sched.Class) uint32 {
		turn := uint64(packetBytes) * uint64(max(c.Weight, 1)) / uint64(unit)
		return uint32(min(turn, maxQuantumPackets*uint64(packetBytes)))
	}
}

// prios maps the priorities in use, in their order, onto HTB's. Control
// traffic alone has 0.
func prios(classes []sched.Class) func(sched.Class) uint32 {
	used := make([]uint32, 0, 8)
	for _, c := range classes {
		if !slices.Contains(used, c.Priority) {
			used = append(used, c.Priority)
		}
	}
	slices.Sort(used)
	slices.Reverse(used)
	return func(c sched.Class) uint32 {
		return uint32(min(1+slices.Index(used, c.Priority), lowestPrio))
	}
}

// leafKind is the queue of a container within its class.
type leafKind uint8

const (
	leafFqCodel leafKind = iota
	leafBFIFO
)

func (k leafKind) String() string {
	return [...]string{"fq_codel", "bfifo"}[k]
}

// leafOf is the queue of a class that sends at rateBPS.
func leafOf(number uint16, rateBPS uint64, packetBytes uint32, kind leafKind) kernel.Qdisc {
	q := kernel.Qdisc{Handle: leafQdisc(number), Parent: leafClass(number)}
	switch kind {
	case leafFqCodel:
		q.Options = fqCodel(rateBPS, packetBytes)
	default:
		bytes := max(rateBPS/8*queueMilliseconds/1000, queuePackets*uint64(packetBytes))
		q.Options = kernel.BFIFO{LimitBytes: quantize(bytes)}
	}
	return q
}

// fqCodel follows RFC 8290 section 5.2: the target is at least the time of
// one and a half packets, the interval twenty times the target.
func fqCodel(rateBPS uint64, packetBytes uint32) kernel.FqCodel {
	const (
		defaultTargetMicroseconds   = 5000
		defaultIntervalMicroseconds = 100_000
		memoryLimitBytes            = 4 << 20
	)
	packetMicroseconds := uint64(packetBytes) * 8 * 1e6 / max(rateBPS, 1)
	target := quantize(max(defaultTargetMicroseconds, packetMicroseconds*3/2))
	return kernel.FqCodel{
		TargetMicroseconds:   target,
		IntervalMicroseconds: max(defaultIntervalMicroseconds, 20*target),
		QuantumBytes:         sched.FrameBytes,
		MemoryLimitBytes:     memoryLimitBytes,
	}
}

// quantize rounds to steps of a quarter, so that small changes of a rate do
// not change the queue as well.
func quantize(v uint64) uint32 {
	const steps = 4
	v = min(v, 1<<30)
	step := uint64(1)
	for step*steps*2 <= v {
		step *= 2
	}
	return uint32((v + step - 1) / step * step)
}

// plan lists what turns have into want, parents before children, removals
// last and children first.
func plan(want, have state) []kernel.Op {
	var ops []kernel.Op
	haveQdisc := make(map[kernel.Handle]kernel.Qdisc, len(have.qdiscs))
	for _, q := range have.qdiscs {
		haveQdisc[q.Handle] = q
	}
	haveClass := make(map[kernel.Handle]kernel.Class, len(have.classes))
	for _, c := range have.classes {
		haveClass[c.Handle] = c
	}

	qdisc := func(q kernel.Qdisc) {
		old, there := haveQdisc[q.Handle]
		switch {
		case !there:
			ops = append(ops, kernel.Op{Verb: kernel.Add, Qdisc: &q})
		case old.Parent != q.Parent || old.Options.Kind() != q.Options.Kind():
			ops = append(ops, kernel.Op{Verb: kernel.Delete, Qdisc: &old}, kernel.Op{Verb: kernel.Add, Qdisc: &q})
		case !sameOptions(old.Options, q.Options):
			ops = append(ops, kernel.Op{Verb: kernel.Change, Qdisc: &q})
		}
	}

	// The link and HTB, then classes, then their queues.
	const trunk = 2
	for _, q := range want.qdiscs[:min(trunk, len(want.qdiscs))] {
		qdisc(q)
	}
	wanted := make(map[kernel.Handle]bool, len(want.classes))
	for _, c := range want.classes {
		wanted[c.Handle] = true
		old, there := haveClass[c.Handle]
		switch {
		case !there:
			ops = append(ops, kernel.Op{Verb: kernel.Add, Class: &c})
		case old.Options != c.Options:
			ops = append(ops, kernel.Op{Verb: kernel.Change, Class: &c})
		}
	}
	for _, q := range want.qdiscs[min(trunk, len(want.qdiscs)):] {
		qdisc(q)
	}

	// A leaf takes its queue along; a share can go only after its leaf.
	for _, shares := range []bool{false, true} {
		for _, c := range have.classes {
			isShare := c.Handle.Minor()&shareBit != 0
			if !wanted[c.Handle] && isShare == shares && c.Handle != rootClass {
				ops = append(ops, kernel.Op{Verb: kernel.Delete, Class: &c})
			}
		}
	}
	return ops
}

// sameOptions compares what the kernel has with what is wanted. The kernel
// does not tell the packet limit of a token bucket filter; it follows from
// the rate.
func sameOptions(have, want kernel.Options) bool {
	if h, ok := have.(kernel.TBF); ok {
		if w, ok := want.(kernel.TBF); ok {
			w.MaxPacketBytes, h.MaxPacketBytes = 0, 0
			return h == w
		}
	}
	return have == want
}
