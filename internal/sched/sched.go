// Package sched defines what every packet scheduler offers the agent.
//
// A scheduler shares out one link: one direction of a device. The agent says what
// is wanted, as a whole (Tree), and the scheduler finds what differs from what the
// kernel has and changes only that. How it keeps to it is the scheduler's own
// affair: what it guarantees, what it lends and for how long, and which numbers it
// gives its classes. The agent has it look now and then (Turn), and reads from it
// what everybody has and wants (Snapshot).
package sched

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/alloc"
)

// Competitor is what is wanted for one of those who share the link: a container or the
// host. Rates are bits per second.
type Competitor struct {
	// Number is the one that the competitor's packets carry in the data path
	// (internal/identity). What the scheduler calls its class, or classes, is its
	// own affair: see Traffic.SetMinors.
	Number uint16
	// FloorBPS is the rate that was granted, to be had whatever others do and
	// whether or not an agent runs.
	FloorBPS uint64
	// CeilingBPS is never exceeded; alloc.Unlimited for none.
	CeilingBPS uint64
	// Weight is the share in what floors leave. A competitor of weight 0 has its floor,
	// and is offered what is idle after those of the same priority that have one.
	Weight uint32
	// Priority says who is first offered what is idle, higher first.
	Priority uint32
	// Latency bounds how long its packets wait while it is within its floor; 0
	// for no bound.
	Latency time.Duration
	// OwnDevices: it sends through devices of its own, which hand over packets of
	// at most State.PacketBytes. Others have the limit of the link (LinkPacketBytes).
	OwnDevices bool
	// Traffic says how its packets are ordered among themselves.
	Traffic TrafficClasses
}

// TrafficClasses are the classes of traffic of one Competitor. The zero value is
// none: all its packets are alike.
type TrafficClasses struct {
	// Ordered: packets go in the order EF, AF, BE.
	Ordered bool
	// Parts is how what the competitor has is divided among them.
	Parts alloc.ClassParts
}

// Tree is the whole of what a scheduler is to do with a link.
type Tree struct {
	// RateBPS is what the link may send, in bits per second, counted as tc
	// does: Ethernet frames without preamble and checksum.
	RateBPS uint64
	// MTUBytes is the largest IP packet that the link sends in one frame; 0 for
	// Ethernet's 1500.
	MTUBytes uint32
	// ControlNumber is that of traffic that must never wait; the scheduler serves
	// it first and bounds it.
	ControlNumber uint16
	// HostNumber is that of the host, one of Competitors, to which also packets
	// belong that name none. It competes with the others only while it wants
	// more than its reserve (plan.Link.HostReserveBPS).
	HostNumber uint16
	// Competitors are in the order of their numbers.
	Competitors []Competitor
}

// TrafficClass is the class of a packet among those of its competitor. The classifier
// writes it as bpf/intf.h has it, users as v1.Class.
type TrafficClass uint8

// Traffic classes, the most urgent first.
const (
	// Unclassified: nobody says.
	Unclassified TrafficClass = iota
	EF
	AF
	BE
	// NumTrafficClasses is how many there are.
	NumTrafficClasses = iota
)

var trafficClassNames = [NumTrafficClasses]string{"", "ef", "af", "be"}

// String is the class as users write it (v1.Class); empty for Unclassified.
func (c TrafficClass) String() string {
	if int(c) < NumTrafficClasses {
		return trafficClassNames[c]
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// ParseTrafficClass reads what String writes; false if it is none.
func ParseTrafficClass(s string) (TrafficClass, bool) {
	i := slices.Index(trafficClassNames[:], s)
	return TrafficClass(max(i, 0)), i >= 0
}

// Minors are the scheduler's numbers of the classes that packets of one competitor
// go to, by traffic class. That of unclassified packets also stands for those of
// which it is 0, and 0 is the competitor's own number.
type Minors = [NumTrafficClasses]uint16

// Majors are the handles by which the classifier names the scheduler's qdiscs in a
// packet's priority.
type Majors struct {
	// Classes is the qdisc whose classes are the competitors'.
	Classes uint16
	// Direct is the qdisc whose direct queue leads past them.
	Direct uint16
}

// Direct says whether the packets of a number may go past the classes where nobody
// waits.
type Direct struct {
	Number uint16
	May    bool
}

// Bounds hold for the packets that go direct, and for control traffic.
type Bounds struct {
	RateBPS uint64
	// DirectBytes is the largest packet that may go direct, as qdiscs count it.
	DirectBytes uint32
	// ControlBPS is what the scheduler guarantees to control traffic.
	ControlBPS uint64
}

// Traffic is the classifier as a scheduler needs it: it tells what is offered, and
// is told which way packets go.
type Traffic interface {
	// OfferedBytes fills dst, indexed by number, with what each has handed to the
	// link since ever. It makes no system call.
	OfferedBytes(dst []uint64) error
	// SetDirect says who may go past the classes where nobody waits, in the order
	// of numbers; all others may not.
	SetDirect(bounds Bounds, direct []Direct) error
	// DirectSent is what a number has sent that way; the packets wrap. It makes
	// no system call.
	DirectSent(number uint16) (bytes uint64, packets uint32, err error)
	// SetMinors says to which classes the packets of a number go, by traffic
	// class. The classes must be there.
	SetMinors(number uint16, minors Minors) error
	// SetEFRate holds what of a number's packets is EF to a rate, in bits per
	// second: what is more counts as BE. 0 is no limit.
	SetEFRate(number uint16, bps uint64) error
}

// Counters are what the kernel counted of one competitor since its class was made.
type Counters struct {
	// SentBytes and SentPackets, which wraps, went through the class, DirectBytes
	// and DirectPackets, which wraps, past it.
	SentBytes     uint64
	SentPackets   uint32
	DirectBytes   uint64
	DirectPackets uint32
	// DroppedPackets and MarkedPackets (with ECN's CE, by queues that do) wrap; where
	// QueueKnown is not set they could not be read.
	DroppedPackets uint32
	MarkedPackets  uint32
	QueueKnown     bool
}

// TrafficCounters are what the kernel counted of one traffic class of a competitor
// since it was made. Numbers of packets wrap.
type TrafficCounters struct {
	SentBytes      uint64
	BacklogBytes   uint64
	SentPackets    uint32
	DroppedPackets uint32
	MarkedPackets  uint32
}

// State is what a scheduler knows of one competitor.
type State struct {
	Number uint16
	// Active: it sent something lately, or has something queued. It had offered
	// nothing until ActiveSince.
	Active      bool
	ActiveSince time.Time
	// DemandBPS is the estimate of what it wants; alloc.Unlimited if it wants more
	// than it gets.
	DemandBPS uint64
	// EntitledBPS is what it can always have, GuaranteedBPS what of that the
	// scheduler holds by itself, AllocatedBPS what it may send now.
	EntitledBPS   uint64
	GuaranteedBPS uint64
	AllocatedBPS  uint64
	// PacketBytes is the largest packet that it should hand over.
	PacketBytes uint32
	// BacklogBytes is what was queued when Counters were read, at CountedAt.
	BacklogBytes uint64
	Counters     Counters
	CountedAt    time.Time
	// Traffic are those of its traffic classes, where it is Ordered.
	Traffic [NumTrafficClasses]TrafficCounters
}

// Snapshot is what a scheduler knows of a link.
type Snapshot struct {
	// HostCompetes: the host wants more than its reserve, or lately did, and competes as
	// others do.
	HostCompetes bool
	// Competitors are those of the Tree, in its order.
	Competitors []State
}

// Turn is what became of one look.
type Turn struct {
	// Next is when to look next.
	Next time.Duration
	// Woke: a competitor is active that was not.
	Woke bool
	// Applied: rates were changed in the kernel, or that was refused.
	Applied bool
}

// Backend is a scheduler on one link. It is not safe for concurrent use.
type Backend interface {
	// Name tells users what runs, e.g. "htb+fq_codel".
	Name() string
	// Majors are what the classifier has to be opened with.
	Majors() Majors
	// Connect gives the scheduler the classifier of its link, and takes want up
	// without changing a class in the kernel. Until the next Apply, turns change
	// none, either: what an earlier agent left stays until it is known who sends.
	Connect(want Tree, traffic Traffic) error
	// Disconnect ends the use of that classifier.
	Disconnect()
	// Apply brings the kernel to want. Classes that are not in want are
	// removed; all others keep what they have queued. Applying the same tree
	// twice does nothing the second time. Where one change is refused the
	// others are still made, and the error says which was refused.
	Apply(want Tree) error
	// Turn looks at who is sending and adjusts what everybody may send. With
	// count, it reads the counters of all that are active, for people to look at.
	// It needs Connect. An error means that the scheduler or the classifier is not
	// as it should be.
	Turn(now time.Time, count bool) (Turn, error)
	// Snapshot fills dst with what is known, and uses what memory it has.
	Snapshot(dst *Snapshot)
	// Forget makes the next Apply compare with the kernel's own state instead
	// of with what was last applied.
	Forget()
	// Remove takes everything out of the kernel. Nothing to remove is not an
	// error.
	Remove() error
}

// ControlBPS is what a scheduler guarantees to control traffic on a link of
// rateBPS. Guarantees of classes fit the link if they leave that.
func ControlBPS(rateBPS uint64) uint64 { return rateBPS / 100 }

// CeilingOr gives the ceiling, or rateBPS where there is none or it is above.
func (c Competitor) CeilingOr(rateBPS uint64) uint64 {
	if c.CeilingBPS == alloc.Unlimited {
		return rateBPS
	}
	return min(c.CeilingBPS, rateBPS)
}
