// Package htb schedules an uplink with Linux' hierarchical token bucket.
//
// Problem. HTB guarantees every class its rate and lends what is idle in
// proportion to a quantum. Weights written as quanta fail: HTB sends one whole
// GSO packet in a turn, also with a small quantum. Weights written as rates are
// exact, but only for a fixed set of senders: the idle remainder is lent on
// top of the rate, where the ideal allocation raises a level (a floor lifts,
// it does not add). And HTB never checks that rates fit their parent, so the
// rates of those who send cannot simply be raised: when one who was idle comes
// back, the sum is above the link until it is corrected.
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
// containers fit the link, so they hold under all settings of the level above and
// for every sender that starts, with no action by the agent. Above it, a container
// is served up to its allocation, which the control loop sets for those that
// are sending now; the allocations of the senders sum to C' (C less a
// thousandth), which makes the shares exact. What a sender leaves idle until the
// loop has noticed is lent by the root, so the link is never idle while a
// container has traffic.
//
// When a container wakes up, guarantees plus allocations exceed C until the
// loop has run (or for good, when the agent is dead). The token bucket filter
// around HTB then holds the sum to C, and the strict order of levels gives the
// guarantees first. The thousandth keeps it out of the way the rest of the
// time: when it does hold something back, the shares above the guarantees are
// only as exact as HTB's turns. It also cuts up packets that are too large for
// the link's rate and that no limit at their source caught.
//
// A packet that finds the link idle competes with no other, and all of that would
// only cost time. The classifier sends it to the direct queue of the outermost
// HTB, which goes first, and sees to it that such packets stay within the link's
// rate and are no larger than DirectBytes (bpf/uplink.bpf.c). That HTB does
// nothing else; its one class takes all others. The kernel finds it odd
// that what hangs on a class of HTB has packets and does not give them, and says so
// once, "htb: tbf qdisc 7E10: is non-work-conserving?". HTB then goes on to the
// next of its classes (htb_dequeue_tree), and there is no other.
//
// Limits. One lock for the device; 8 priorities; bursts are as exact as the
// kernel's timers.
package htb

import (
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// Handles.
const (
	// directMajor is the major of the outermost HTB, whose direct queue bypasses the classes.
	directMajor  = 0x7e0f
	othersMinor  = 1
	directHandle = kernel.Handle(directMajor << 16)

	linkMajor  = 0x7e10
	linkHandle = kernel.Handle(linkMajor << 16)

	// classMajor is the major of all container classes.
	classMajor = 0x7e11
	rootMinor  = 0xffff
	htbHandle  = kernel.Handle(classMajor << 16)
	htbParent  = kernel.Handle(linkMajor<<16 | 1)
)

var (
	othersClass = kernel.NewHandle(directMajor, othersMinor)
	rootClass   = kernel.NewHandle(classMajor, rootMinor)
)

const (
	// controlCeilDivisor limits control traffic to this part of the link, so that it cannot replace
	// a share.
	controlCeilDivisor = 20

	// directPackets is the length of the direct queue. It holds at most one packet per processor: a
	// packet that finds another waiting goes through its class (bpf/uplink.bpf.c).
	directPackets = 1000
)

// tree is a sched.Tree with the present allocations.
type tree struct {
	rateBPS                   uint64
	mtuBytes                  uint32
	overheadBytes             uint16
	packetTime                time.Duration
	controlNumber, hostNumber uint16
	// classes is sorted by number.
	classes []class
}

// class is the HTB class of a competitor.
type class struct {
	sched.Competitor
	// GuaranteedBPS is the rate it can always have, however much others send, and without an agent.
	GuaranteedBPS uint64
	// AllocatedBPS is its present rate, given the other senders; at least GuaranteedBPS if it wants
	// that much.
	AllocatedBPS uint64
	// Lowered: a lower allocation came in force in this turn. Its share has saved while the old one was
	// in force and only guarantees were sent, and would spend that from what is left above guarantees,
	// which the newcomer lacks then. So the share loses its savings, and saves again from the next turn on.
	Lowered bool
	// Leaves are its leaves; 0 for a single leaf without traffic classes.
	Leaves leaves
	// PacketBytes is the largest packet it gets, if below sched.LinkPacketBytes; 0 otherwise.
	PacketBytes uint32
	// QueueDoublings is how often its FIFO is doubled (stretch.go).
	QueueDoublings uint8
}

// ceilBPS returns HTB's ceiling of a class on a link: its maximum less a margin (ceilMarginDivisor), but
// no less than its minimum.
func (c class) ceilBPS(rateBPS uint64) uint64 {
	ceilingBPS := c.CeilingOr(rateBPS)
	if ceilingBPS == rateBPS {
		return rateBPS
	}
	return max(ceilingBPS-ceilingBPS/ceilMarginDivisor, min(c.FloorBPS, ceilingBPS))
}

func (t *tree) frameBytes() uint32 { return sched.MTUFrameBytes(t.mtuBytes) }
func (t *tree) packetBytes() uint32 {
	return sched.LargestPacketBytes(t.rateBPS, t.mtuBytes, t.packetTime)
}

// state is the queueing of one device, wanted or observed.
type state struct {
	qdiscs  []kernel.Qdisc
	classes []kernel.Class
	// inner is the number of wanted qdiscs that have classes below them; these come first.
	inner int
}

// terms are the inputs, besides a class itself, that determine its form in the kernel. While they
// stay the same, an unchanged class needs no operation.
type terms struct {
	rateBPS uint64
	// packetBytes is the largest possible packet, frameBytes the largest frame.
	packetBytes, frameBytes uint32
	overheadBytes           uint16
	controlNumber           uint16
	hostNumber              uint16
	leaf                    leafKind
	// places is the number of classes that divide the memory for queues.
	places uint32
	// weightUnit is the weight that gets one packet per turn.
	weightUnit uint32
	// ranks are the ranks of containers that have an HTB priority of their own, highest first;
	// rankCount is their number.
	ranks     [ownRanks]rank
	rankCount int
}

func termsOf(tree tree, leaf leafKind) terms {
	t := terms{
		rateBPS: tree.rateBPS, packetBytes: tree.packetBytes(), frameBytes: tree.frameBytes(), overheadBytes: tree.overheadBytes,
		controlNumber: tree.controlNumber, hostNumber: tree.hostNumber, leaf: leaf,
	}
	t.places = places(leafCount(tree.classes))
	t.weightUnit = weightUnit(tree.classes)
	t.rankCount = copy(t.ranks[:], ranks(tree.classes))
	return t
}

// desired returns the kernel state of a tree, parents before children.
func desired(tree tree, leaf leafKind) state {
	t := termsOf(tree, leaf)
	s := t.trunk()
	for _, c := range tree.classes {
		t.add(&s, c)
	}
	return s
}

// differences returns the kernel states of two trees without the classes that are equal in both.
func differences(want, have tree, leaf leafKind) (wanted, had state) {
	t := termsOf(want, leaf)
	if t != termsOf(have, leaf) {
		return desired(want, leaf), desired(have, leaf)
	}
	wanted, had = t.trunk(), t.trunk()
	wants, has := want.classes, have.classes
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

// kernelClass returns a class in the kernel's units.
func (t terms) kernelClass(handle, parent kernel.Handle, rateBPS, burst, ceilBPS, ceilBurst uint64, quantum, prio uint32) kernel.Class {
	rate, ceil := bytesPerSec(rateBPS), bytesPerSec(ceilBPS)
	return kernel.Class{Handle: handle, Parent: parent, Options: kernel.HTBClass{
		RateBytesPerSec: rate,
		CeilBytesPerSec: ceil,
		OverheadBytes:   t.overheadBytes,
		Burst:           kernel.BurstTicks(burst, rate),
		CeilBurst:       kernel.BurstTicks(ceilBurst, ceil),
		QuantumBytes:    quantum,
		Prio:            prio,
	}}
}

// The kernel neither uses nor changes quantum and prio of classes that have others below them
// (htb_change_class).
const innerQuantum, innerPrio = sched.FrameBytes, 0

// othersQuantum is the quantum of classes that take turns with no other.
const othersQuantum = 1 << 16

// link returns the token bucket filter that limits the total to the rate, and cuts up packets that
// are too large.
func (t terms) link() kernel.TBF {
	rate := bytesPerSec(t.rateBPS)
	link := kernel.TBF{
		RateBytesPerSec: rate,
		OverheadBytes:   t.overheadBytes,
		Burst:           kernel.BurstTicks(2*burstBytes(t.rateBPS, burstMilliseconds, t.packetBytes)+65536, rate),
		// HTB's leaves hold the packets; this only has to be larger.
		LimitBytes: 1 << 30,
	}
	if t.packetBytes < 65536 {
		link.PeakBytesPerSec = noLimitBytesPerSec
		link.MaxPacketBytes = wholeBytes(t.packetBytes)
	}
	return link
}

// trunk returns the parts that do not depend on the running containers: the direct queue, the link,
// HTB's root and control traffic.
func (t terms) trunk() state {
	packetBytes := t.packetBytes
	linkBurst := burstBytes(t.rateBPS, burstMilliseconds, packetBytes)
	root := shared(t.rateBPS)
	control, controlCeil := sched.ControlBPS(t.rateBPS), t.rateBPS/controlCeilDivisor
	return state{
		inner: 3,
		qdiscs: []kernel.Qdisc{
			{Handle: directHandle, Parent: kernel.HandleRoot, Options: kernel.HTB{
				DefaultMinor: othersMinor, DirectPackets: directPackets}},
			{Handle: linkHandle, Parent: othersClass, Options: t.link()},
			{Handle: htbHandle, Parent: htbParent, Options: kernel.HTB{
				DefaultMinor: classMinor(t.hostNumber), DirectPackets: directPackets}},
			fifoOf(classMinor(t.controlNumber), controlQueuePackets*uint64(packetBytes)),
		},
		classes: []kernel.Class{
			{Handle: othersClass, Parent: kernel.HandleRoot, Options: kernel.HTBClass{
				RateBytesPerSec: noLimitBytesPerSec, CeilBytesPerSec: noLimitBytesPerSec, QuantumBytes: othersQuantum}},
			t.kernelClass(rootClass, kernel.HandleRoot, root, burstBytes(root, burstMilliseconds, packetBytes), root, linkBurst, innerQuantum, innerPrio),
			t.kernelClass(leafClass(t.controlNumber), rootClass,
				control, burstBytes(control, burstMilliseconds, packetBytes),
				controlCeil, burstBytes(controlCeil, burstMilliseconds, packetBytes), packetBytes, controlPrio),
		},
	}
}

// add adds a competitor's share, leaf and queue.
func (t terms) add(s *state, c class) {
	packetBytes := t.packetBytes
	linkBurst := burstBytes(t.rateBPS, burstMilliseconds, packetBytes)
	ceilBPS, ceilBurst := c.ceilBPS(t.rateBPS), linkBurst
	if ceilingBPS := c.CeilingOr(t.rateBPS); ceilingBPS < t.rateBPS {
		ceilBurst = ceilingBPS / 8 * ceilBurstMicroseconds / 1e6
	}
	// A class that sent a packet owes its tokens, as time at its rate, and
	// a higher rate does not forgive the debt (htb_change_class): from next
	// to nothing, up to a minute. A packet a second bounds it to a second.
	share := max(c.AllocatedBPS, c.GuaranteedBPS, min(8*uint64(packetBytes), t.rateBPS))
	guaranteed := min(c.GuaranteedBPS, ceilBPS)
	shareBurst := burstBytes(share, shareBurstMilliseconds, packetBytes)
	if c.Lowered {
		shareBurst = 0
	}
	s.classes = append(s.classes,
		t.kernelClass(shareClass(c.Number), rootClass, share, shareBurst, t.rateBPS, linkBurst, innerQuantum, innerPrio))
	if c.Leaves&orderedLeaves != 0 {
		t.addOrdered(s, c, guaranteed, ceilBPS, ceilBurst)
	}
	if c.Leaves == orderedLeaves {
		return
	}
	s.classes = append(s.classes,
		t.kernelClass(leafClass(c.Number), shareClass(c.Number), guaranteed, burstBytes(guaranteed, savingMilliseconds(c), packetBytes), ceilBPS, ceilBurst, t.quantum(c), t.prio(c)))
	s.qdiscs = append(s.qdiscs, t.leafOf(c))
}
