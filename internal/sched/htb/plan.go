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
//	htb   7e0f:           the way past all of this, for packets that need not wait
//	  7e0f:1              no limit: all others
//	tbf   7e10:           the link: rate C
//	htb   7e11:
//	  7e11:ffff           root: rate C'. Lends what is idle at this instant.
//	    7e11:2            control traffic, first
//	    7e11:4010         a container's share: rate = its allocation now
//	      7e11:10         its leaf: rate = its guarantee
//	        qdisc 10:     its queue
//
// A leaf within its guarantee is served first. Guarantees of all running
// containers fit the link, so they hold whatever the level above says and
// whoever starts to send, with no action by the agent. Above it, a container
// is served up to its allocation, which the control loop sets for those that
// are sending now; the allocations of the senders sum to C' (C less a
// thousandth), which makes the shares exact. What somebody leaves idle until the
// loop has noticed is lent by the root, so the link is never idle while anyone
// has traffic.
//
// When a container wakes up, guarantees plus allocations exceed C until the
// loop has run (or for good, when the agent is dead). The token bucket filter
// around HTB then holds the sum to C, and the strict order of levels gives the
// guarantees first. The thousandth keeps it out of the way the rest of the
// time: when it does hold something back, the shares above the guarantees are
// only as exact as HTB's turns. It also cuts up packets that are too large for
// the link's rate and that no limit at their source caught.
//
// A packet that finds the link idle competes with nobody, and all of that would
// only cost time. The classifier sends it to the direct queue of the outermost
// HTB, which goes first, and sees to it that such packets stay within the link's
// rate and are no larger than DirectBytes (bpf/uplink.bpf.c). That HTB does
// nothing else; its one class takes whatever else comes. The kernel finds it odd
// that what hangs on a class of HTB has packets and does not give them, and says so
// once, "htb: tbf qdisc 7E10: is non-work-conserving?". HTB then goes on to the
// next of its classes (htb_dequeue_tree), of which there is none.
//
// Limits. One lock for the device; 8 priorities; bursts are as exact as the
// kernel's timers.
package htb

import (
	"slices"
	"time"

	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
)

// Handles. A class's minor is its container's number; its share's minor has
// shareBit besides. Numbers stay below shareBit.
const (
	// DirectMajor is that of the HTB whose direct queue leads past the classes.
	DirectMajor  = 0x7e0f
	othersMinor  = 1
	directHandle = kernel.Handle(DirectMajor << 16)

	linkMajor  = 0x7e10
	linkHandle = kernel.Handle(linkMajor << 16)

	// Major is that of all classes of containers.
	Major     = 0x7e11
	rootMinor = 0xffff
	shareBit  = 0x4000
	htbHandle = kernel.Handle(Major << 16)
	htbParent = kernel.Handle(linkMajor<<16 | 1)
)

var (
	othersClass = kernel.NewHandle(DirectMajor, othersMinor)
	rootClass   = kernel.NewHandle(Major, rootMinor)
)

func leafClass(number uint16) kernel.Handle  { return kernel.NewHandle(Major, number) }
func shareClass(number uint16) kernel.Handle { return kernel.NewHandle(Major, shareBit|number) }
func leafQdisc(number uint16) kernel.Handle  { return kernel.NewHandle(number, 0) }

const (
	// burstMilliseconds is how late the kernel's timers and our own turn on
	// the processor may be without rate being lost.
	burstMilliseconds = 4
	// shareBurstMilliseconds bounds what a share has saved up when somebody
	// else wakes up. While all send, hardly any rate is left above the
	// guarantees, and savings of 4 ms would take a quarter of a second to be
	// spent, with everybody's share off by as much.
	shareBurstMilliseconds = 1
	// ceilBurstMicroseconds bounds what a container with a maximum may have
	// saved up after a pause. HTB sends one packet on credit besides, so in
	// any 100 ms the maximum is exceeded by three quarters of a hundredth and
	// one packet. The rest of the hundredth is for packets that are late on
	// their way from here.
	ceilBurstMicroseconds = 750

	// queueMilliseconds bounds a leaf queue in time, queuePackets from below
	// so that a slow container can queue at all. It is rounded up by a quarter
	// at most, and stays below the 10 ms that a sparse flow may wait behind
	// its container's bulk. The packets are of the size that the container is
	// limited to: a queue that is long for its rate is what TCP takes for the
	// length of the path, and waits for twice when the end of a burst was lost.
	queueMilliseconds = 7
	queuePackets      = 20
	// controlQueuePackets is the queue of control traffic.
	controlQueuePackets = 10
	// latencyQueueFrames is the least for a class with a bound on delay.
	latencyQueueFrames = 4

	// controlCeilDivisor is the part of the link that control traffic is
	// limited to: nobody may use it to get around a share.
	controlCeilDivisor = 20

	// directPackets is the queue of packets that go past the classes. There is no
	// more than one of each processor: who finds somebody waiting goes through its
	// class (bpf/uplink.bpf.c).
	directPackets = 1000

	// headersDivisor: a qdisc counts a packet of many frames with the headers of
	// each (net/core/dev.c, qdisc_pkt_len_init), which the limit of a device
	// does not. They are at most that part of it, for frames of 536 bytes in
	// VXLAN over IPv6. A packet of a device that keeps its limit must not be cut
	// up by the token bucket filter: that drops some of the frames when a queue
	// is full and tells the sender that all is well (net/sched/sch_tbf.c,
	// tbf_segment), and TCP may wait for a quarter of a second then.
	headersDivisor = 3

	// maxQuantumPackets bounds one container's turn when idle rate is lent.
	maxQuantumPackets = 64

	// noLimitBytesPerSec is a rate no link has: 64 KB take less than the
	// nanosecond that the kernel counts in. Where the token bucket filter is to
	// limit the size of packets it takes a peak rate, too. At a lower one a packet
	// that was queued before the limit was lowered would never get its tokens,
	// and stop the uplink for good (net/sched/sch_tbf.c, tbf_dequeue).
	noLimitBytesPerSec = 1 << 48
)

// DirectBytes is the largest packet that may take the direct queue of a link of
// rateBPS, as qdiscs count it: where the token bucket filter cuts packets up, one
// that it would leave whole.
func DirectBytes(rateBPS uint64) uint32 {
	packetBytes := sched.LinkPacketBytes(rateBPS)
	return packetBytes + packetBytes/headersDivisor
}

// sharedDivisor: HTB gives out all of the link but this part, so that the
// token bucket filter around it does not hold anything back.
const sharedDivisor = 1000

// shared is what HTB gives out of a rate.
func shared(bps uint64) uint64 { return bps - bps/sharedDivisor }

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

// terms are what decides, besides a class itself, how it looks in the kernel.
// While they stay, a class that stays the same needs no change.
type terms struct {
	rateBPS       uint64
	controlNumber uint16
	defaultNumber uint16
	leaf          leafKind
	// weightUnit is the weight that gets one packet in a turn.
	weightUnit uint32
	// ranks are those of containers that have one of HTB's priorities for
	// themselves, highest first, and how many those are.
	ranks     [ownPriorities]uint32
	rankCount int
}

func termsOf(tree sched.Tree, leaf leafKind) terms {
	t := terms{rateBPS: tree.RateBPS, controlNumber: tree.ControlNumber, defaultNumber: tree.DefaultNumber, leaf: leaf}
	t.weightUnit = weightUnit(tree.Classes)
	t.rankCount = copy(t.ranks[:], ranks(tree.Classes))
	return t
}

// desired is the state that puts a tree into force. Parents come before their
// children.
func desired(tree sched.Tree, leaf leafKind) state {
	t := termsOf(tree, leaf)
	s := t.trunk()
	for _, c := range tree.Classes {
		t.add(&s, c)
	}
	return s
}

// differences are the states that put two trees into force, without the
// classes that are the same in both.
func differences(want, have sched.Tree, leaf leafKind) (wanted, had state) {
	t := termsOf(want, leaf)
	if t != termsOf(have, leaf) {
		return desired(want, leaf), desired(have, leaf)
	}
	wanted, had = t.trunk(), t.trunk()
	wants, has := want.Classes, have.Classes
	for len(wants) > 0 || len(has) > 0 {
		switch {
		case len(has) == 0 || len(wants) > 0 && wants[0].Number < has[0].Number:
			t.add(&wanted, wants[0])
			wants = wants[1:]
		case len(wants) == 0 || wants[0].Number > has[0].Number:
			t.add(&had, has[0])
			has = has[1:]
		default:
			if wants[0] != has[0] {
				t.add(&wanted, wants[0])
				t.add(&had, has[0])
			}
			wants, has = wants[1:], has[1:]
		}
	}
	return wanted, had
}

// class is a class as the kernel knows it.
func class(handle, parent kernel.Handle, rateBPS, burst, ceilBPS, ceilBurst uint64, quantum, prio uint32) kernel.Class {
	rate, ceil := bytesPerSec(rateBPS), bytesPerSec(ceilBPS)
	return kernel.Class{Handle: handle, Parent: parent, Options: kernel.HTBClass{
		RateBytesPerSec: rate,
		CeilBytesPerSec: ceil,
		Burst:           kernel.BurstTicks(burst, rate),
		CeilBurst:       kernel.BurstTicks(ceilBurst, ceil),
		QuantumBytes:    quantum,
		Prio:            prio,
	}}
}

// Of classes that have others below them the kernel neither uses nor changes
// quantum and prio (htb_change_class).
const innerQuantum, innerPrio = sched.FrameBytes, 0

// othersQuantum is that of a class which takes turns with no other.
const othersQuantum = 1 << 16

// trunk is the direct queue, the link, HTB's root and control traffic: what does
// not depend on who runs.
func (t terms) trunk() state {
	packetBytes := sched.LinkPacketBytes(t.rateBPS)
	linkRate := bytesPerSec(t.rateBPS)
	linkBurst := burstBytes(t.rateBPS, burstMilliseconds, packetBytes)
	link := kernel.TBF{
		RateBytesPerSec: linkRate,
		Burst:           kernel.BurstTicks(2*linkBurst+65536, linkRate),
		// HTB's leaves hold the packets; this only has to be larger.
		LimitBytes: 1 << 30,
	}
	if packetBytes < 65536 {
		link.PeakBytesPerSec = noLimitBytesPerSec
		link.MaxPacketBytes = DirectBytes(t.rateBPS)
	}
	root := shared(t.rateBPS)
	control, controlCeil := sched.ControlBPS(t.rateBPS), t.rateBPS/controlCeilDivisor
	return state{
		qdiscs: []kernel.Qdisc{
			{Handle: directHandle, Parent: kernel.HandleRoot, Options: kernel.HTB{
				DefaultMinor: othersMinor, DirectPackets: directPackets}},
			{Handle: linkHandle, Parent: othersClass, Options: link},
			{Handle: htbHandle, Parent: htbParent, Options: kernel.HTB{
				DefaultMinor: t.defaultNumber, DirectPackets: directPackets}},
			fifoOf(t.controlNumber, controlQueuePackets*uint64(packetBytes)),
		},
		classes: []kernel.Class{
			{Handle: othersClass, Parent: kernel.HandleRoot, Options: kernel.HTBClass{
				RateBytesPerSec: noLimitBytesPerSec, CeilBytesPerSec: noLimitBytesPerSec, QuantumBytes: othersQuantum}},
			class(rootClass, kernel.HandleRoot, root, burstBytes(root, burstMilliseconds, packetBytes), root, linkBurst, innerQuantum, innerPrio),
			class(leafClass(t.controlNumber), rootClass,
				control, burstBytes(control, burstMilliseconds, packetBytes),
				controlCeil, burstBytes(controlCeil, burstMilliseconds, packetBytes), packetBytes, controlPrio),
		},
	}
}

// add adds a class of the tree: its share, its leaf and its queue.
func (t terms) add(s *state, c sched.Class) {
	packetBytes := sched.LinkPacketBytes(t.rateBPS)
	linkBurst := burstBytes(t.rateBPS, burstMilliseconds, packetBytes)
	ceilBPS := c.CeilingOr(t.rateBPS)
	ceilBurst := linkBurst
	if ceilBPS < t.rateBPS {
		ceilBurst = ceilBPS / 8 * ceilBurstMicroseconds / 1e6
	}
	// A class that sent a packet owes its tokens, as time at its rate, and
	// a higher rate does not forgive the debt (htb_change_class): from next
	// to nothing, up to a minute. A packet a second bounds it to a second.
	share := max(c.AllocatedBPS, c.GuaranteedBPS, min(8*uint64(packetBytes), t.rateBPS))
	guaranteed := min(c.GuaranteedBPS, ceilBPS)
	s.classes = append(s.classes,
		class(shareClass(c.Number), rootClass, share, burstBytes(share, shareBurstMilliseconds, packetBytes), t.rateBPS, linkBurst, innerQuantum, innerPrio),
		class(leafClass(c.Number), shareClass(c.Number), guaranteed, burstBytes(guaranteed, burstMilliseconds, packetBytes), ceilBPS, ceilBurst, t.quantum(c, packetBytes), t.prio(c)))
	ownBytes := packetBytes
	if c.PacketBytes > 0 {
		ownBytes = min(ownBytes, c.PacketBytes)
	}
	q := leafOf(c.Number, share, ownBytes, t.leaf)
	if c.Latency > 0 {
		q = latencyLeafOf(c.Number, share, c.Latency)
	}
	s.qdiscs = append(s.qdiscs, q)
}

// weightUnit is the weight of which one gets one packet in a turn: a power of
// two, at most the smallest weight above 0, so that containers that come and go seldom
// change the quanta of others.
func weightUnit(classes []sched.Class) uint32 {
	smallest := uint32(1 << 30) // twice that is a uint32, too
	for _, c := range classes {
		if c.Weight > 0 {
			smallest = min(smallest, c.Weight)
		}
	}
	unit := uint32(1)
	for unit*2 <= smallest {
		unit *= 2
	}
	return unit
}

// quantum gives every class a turn in proportion to its weight, and one packet
// to those that have none: they take turns among themselves only (rank).
func (t terms) quantum(c sched.Class, packetBytes uint32) uint32 {
	if c.Weight == 0 {
		return packetBytes
	}
	turn := uint64(packetBytes) * uint64(c.Weight) / uint64(t.weightUnit)
	return uint32(min(turn, maxQuantumPackets*uint64(packetBytes)))
}

// HTB's priorities, lower first. Within one level the lowest goes first, among
// guarantees as well as among what is idle.
const (
	controlPrio = 0
	latencyPrio = 1
	firstPrio   = 2
	// lowestPrio is HTB's last (TC_HTB_NUMPRIO - 1).
	lowestPrio = 7
)

// ownPriorities is how many priorities of containers can have one of HTB's for
// themselves; those below share the last.
const ownPriorities = lowestPrio - firstPrio

// rank orders those that what is idle is offered to, higher first: by priority,
// and within one those without a weight after the others.
func rank(c sched.Class) uint32 {
	if c.Weight == 0 {
		return 2 * c.Priority
	}
	return 2*c.Priority + 1
}

// ranks are the highest ranks in use, highest first.
func ranks(classes []sched.Class) []uint32 {
	used := make([]uint32, 0, 8)
	for _, c := range classes {
		if r := rank(c); !slices.Contains(used, r) {
			used = append(used, r)
		}
	}
	slices.Sort(used)
	slices.Reverse(used)
	return used[:min(len(used), ownPriorities)]
}

// prio maps the ranks in use, in their order, onto those of HTB that are
// left, and classes with a bound on delay before all of them: whoever is within
// its guarantee then waits for no other's. HTB's few priorities only decide on
// what is idle between two turns of the control loop; the allocations know them
// all.
func (t terms) prio(c sched.Class) uint32 {
	if c.Latency > 0 {
		return latencyPrio
	}
	i := slices.Index(t.ranks[:t.rankCount], rank(c))
	if i < 0 {
		return lowestPrio
	}
	return uint32(firstPrio + i)
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

// leafOf is the queue of a class that sends at rateBPS, in packets of packetBytes
// at most.
func leafOf(number uint16, rateBPS uint64, packetBytes uint32, kind leafKind) kernel.Qdisc {
	if kind == leafFqCodel {
		return kernel.Qdisc{Handle: leafQdisc(number), Parent: leafClass(number), Options: fqCodel(rateBPS, packetBytes)}
	}
	return fifoOf(number, max(rateBPS/8*queueMilliseconds/1000, queuePackets*uint64(packetBytes)))
}

// latencyLeafOf is the queue of a class that sends at rateBPS and whose packets
// must not wait longer than latency. What does not fit is dropped rather than
// kept, for it would be late. It is one queue, also where the kernel has
// fq_codel: that would give turns to flows that are late already.
func latencyLeafOf(number uint16, rateBPS uint64, latency time.Duration) kernel.Qdisc {
	bytes := uint64(float64(rateBPS) / 8 * latency.Seconds())
	return fifoOf(number, max(bytes, latencyQueueFrames*sched.FrameBytes))
}

// fifoOf is a queue of so many bytes.
func fifoOf(number uint16, bytes uint64) kernel.Qdisc {
	return kernel.Qdisc{Handle: leafQdisc(number), Parent: leafClass(number), Options: kernel.BFIFO{LimitBytes: quantize(bytes)}}
}

// fqCodel follows RFC 8290 section 5.2: the target is at least the time of
// one and a half packets, the interval twenty times the target.
func fqCodel(rateBPS uint64, packetBytes uint32) kernel.FqCodel {
	const (
		defaultTargetMicroseconds   = 5000
		defaultIntervalMicroseconds = 100_000
		maxTargetMicroseconds       = 10_000_000
		memoryLimitBytes            = 4 << 20
		// The kernel keeps times so exactly; see kernel.FqCodel.
		unitMicroseconds = 100
	)
	packetMicroseconds := min(uint64(packetBytes)*8*1e6/max(rateBPS, 1), maxTargetMicroseconds)
	target := uint32(defaultTargetMicroseconds)
	if needed := packetMicroseconds * 3 / 2; needed > defaultTargetMicroseconds {
		target = quantize(needed/unitMicroseconds) * unitMicroseconds
	}
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
	if misplaced(want, have) {
		ops = append(ops, kernel.Op{Verb: kernel.Delete, Qdisc: &have.qdiscs[have.root()]})
		have = state{}
	}
	haveQdisc := make(map[kernel.Handle]kernel.Qdisc, len(have.qdiscs))
	haveAt := make(map[kernel.Handle]kernel.Qdisc, len(have.qdiscs))
	for _, q := range have.qdiscs {
		haveQdisc[q.Handle], haveAt[q.Parent] = q, q
	}
	haveClass := make(map[kernel.Handle]kernel.Class, len(have.classes))
	for _, c := range have.classes {
		haveClass[c.Handle] = c
	}

	remove := func(q kernel.Qdisc) {
		ops = append(ops, kernel.Op{Verb: kernel.Delete, Qdisc: &q})
		delete(haveQdisc, q.Handle)
		delete(haveAt, q.Parent)
	}
	qdisc := func(q kernel.Qdisc) {
		old, there := haveQdisc[q.Handle]
		if there && old.Parent == q.Parent && old.Options.Kind() == q.Options.Kind() {
			if !sameOptions(old.Options, q.Options) {
				ops = append(ops, kernel.Op{Verb: kernel.Change, Qdisc: &q})
			}
			return
		}
		if there {
			remove(old)
		}
		if other, taken := haveAt[q.Parent]; taken {
			remove(other)
		}
		ops = append(ops, kernel.Op{Verb: kernel.Add, Qdisc: &q})
	}

	wanted := make(map[kernel.Handle]bool, len(want.classes))
	class := func(c kernel.Class) {
		wanted[c.Handle] = true
		old, there := haveClass[c.Handle]
		switch {
		case !there:
			ops = append(ops, kernel.Op{Verb: kernel.Add, Class: &c})
		case old.Options != c.Options:
			ops = append(ops, kernel.Op{Verb: kernel.Change, Class: &c})
		}
	}

	// What holds others, each with the class that it hangs on; then all other
	// classes, then their queues.
	for _, q := range want.qdiscs[:min(inner, len(want.qdiscs))] {
		for _, c := range want.classes {
			if c.Handle == q.Parent {
				class(c)
			}
		}
		qdisc(q)
	}
	for _, c := range want.classes {
		if !wanted[c.Handle] {
			class(c)
		}
	}
	for _, q := range want.qdiscs[min(inner, len(want.qdiscs)):] {
		qdisc(q)
	}

	// A leaf takes its queue along; a share can go only after its leaf.
	for _, shares := range []bool{false, true} {
		for _, c := range have.classes {
			isShare := c.Handle.Minor()&shareBit != 0
			if !wanted[c.Handle] && isShare == shares {
				ops = append(ops, kernel.Op{Verb: kernel.Delete, Class: &c})
			}
		}
	}
	return ops
}

// inner is how many qdiscs of a state hold others, which come first.
const inner = 3

// root is the index of the device's root qdisc, or -1.
func (s state) root() int {
	return slices.IndexFunc(s.qdiscs, func(q kernel.Qdisc) bool { return q.Parent == kernel.HandleRoot })
}

// misplaced says whether a part of have that holds others is not where it is
// wanted, or not of the kind. The kernel can neither move nor convert it, nor
// change HTB's own parameters (htb_qdisc_ops has no change), so all is made
// anew. Only somebody else's tc, or a Weir that did it differently, leads here.
func misplaced(want, have state) bool {
	if have.root() < 0 {
		return false
	}
	for _, q := range want.qdiscs[:min(inner, len(want.qdiscs))] {
		for _, old := range have.qdiscs {
			_, isHTB := q.Options.(kernel.HTB)
			if old.Handle == q.Handle && (old.Parent != q.Parent || old.Options.Kind() != q.Options.Kind() || isHTB && old.Options != q.Options) ||
				old.Handle != q.Handle && old.Parent == q.Parent {
				return true
			}
		}
	}
	parents := make(map[kernel.Handle]kernel.Handle, len(have.classes))
	for _, c := range have.classes {
		parents[c.Handle] = c.Parent
	}
	return slices.ContainsFunc(want.classes, func(c kernel.Class) bool {
		parent, there := parents[c.Handle]
		return there && parent != c.Parent
	})
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
