// Package sched defines what every packet scheduler offers the agent.
//
// A scheduler shares out one link: one direction of a device. The agent says what
// is wanted, as a whole (Tree), and the scheduler finds what differs from what the
// kernel has and changes only that. How it keeps to it is the scheduler's own
// affair: what it guarantees, what it lends and for how long, and which numbers it
// gives its classes. The agent has it look now and then (Turn), and reads from it
// what every container has and wants (Snapshot).
package sched

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/share/alloc"
)

// Competitor is the desired configuration of a container or the host on a link. Rates are
// bits per second.
type Competitor struct {
	// Number marks the competitor's packets in the data path (internal/datapath/identity).
	// The scheduler maps it to its own class numbers: see Traffic.SetMinors.
	Number uint16
	// FloorBPS is the admitted minimum, guaranteed at any load and without a running agent.
	FloorBPS uint64
	// CeilingBPS is the maximum; alloc.Unlimited for none.
	CeilingBPS uint64
	// Weight is the relative share of what floors leave. With weight 0 a competitor has
	// only its floor and is offered idle capacity after others of its priority.
	Weight uint32
	// Priority orders the offer of idle capacity, higher first.
	Priority uint32
	// Latency bounds the queueing delay of traffic within the floor; 0 for no bound.
	Latency time.Duration
	// OwnDevices says that it sends through its own devices, whose packets are limited to
	// State.PacketBytes. Others have the limit of the link (LinkPacketBytes).
	OwnDevices bool
	// Traffic configures the traffic classes within its share.
	Traffic TrafficClasses
}

// TrafficClasses configures the traffic classes of a Competitor. The zero value means none:
// all its packets are alike.
type TrafficClasses struct {
	// Ordered enables the classes: EF is served first, then AF, then BE.
	Ordered bool
	// Parts divides the competitor's rate among the classes.
	Parts alloc.ClassParts
}

// Tree is the desired configuration of a scheduler on a link.
type Tree struct {
	// RateBPS is the link's rate in bits per second, counted as tc does: Ethernet frames
	// without preamble and checksum.
	RateBPS uint64
	// ReserveBasisPoints is the part of the rate that floors cannot have, in hundredths of a percent
	// (plan.Link.ReserveBPS).
	ReserveBasisPoints uint32
	// OverheadBytes is what each packet takes of the rate besides; 0 for nothing. Then it takes at
	// least what Ethernet's shortest frame does.
	OverheadBytes uint16
	// MTUBytes is the link's MTU; 0 means Ethernet's 1500.
	MTUBytes uint32
	// PacketTime bounds how long a packet holds the link; 0 means 0.25 ms.
	PacketTime time.Duration
	// Incoming: the link is what a device receives. What arrives there has passed the bottleneck
	// before it, also if it is dropped.
	Incoming bool
	// ControlNumber marks control traffic, which the scheduler serves first and limits.
	ControlNumber uint16
	// HostNumber is the host's number among Competitors; packets without a number also
	// belong to it. The host competes only while it wants more than its reserve
	// (plan.Link.HostReserveBPS).
	HostNumber uint16
	// Competitors are sorted by number.
	Competitors []Competitor
}

// TrafficClass is a packet's class within its competitor, as numbered in bpf/intf.h. Users
// see it as v1.Class.
type TrafficClass uint8

// The traffic classes, most urgent first.
const (
	// Unclassified packets have no class yet.
	Unclassified TrafficClass = iota
	EF
	AF
	BE
	// NumTrafficClasses is the number of traffic classes.
	NumTrafficClasses = iota
)

var trafficClassNames = [NumTrafficClasses]string{"", "ef", "af", "be"}

// String returns the class as users write it (v1.Class), "" for Unclassified.
func (c TrafficClass) String() string {
	if int(c) < NumTrafficClasses {
		return trafficClassNames[c]
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// ParseTrafficClass parses the output of String; ok is false for other texts.
func ParseTrafficClass(s string) (TrafficClass, bool) {
	i := slices.Index(trafficClassNames[:], s)
	return TrafficClass(max(i, 0)), i >= 0
}

// Minors are the scheduler's class numbers for a competitor's packets, by traffic class. A
// 0 means the number of Unclassified; 0 there means the competitor's own number.
type Minors = [NumTrafficClasses]uint16

// Majors are the qdisc handles that the classifier writes into packet priorities.
type Majors struct {
	// Classes is the qdisc with the competitors' classes.
	Classes uint16
	// Direct is the qdisc whose direct queue bypasses the classes.
	Direct uint16
}

// Direct says whether packets of a number may bypass the classes while no packet waits.
type Direct struct {
	Number uint16
	May    bool
}

// Bounds limit direct packets and control traffic.
type Bounds struct {
	RateBPS uint64
	// OverheadBytes is as in Tree. OfferedBytes and rates of classes include it.
	OverheadBytes uint16
	// DirectBytes is the largest packet that may bypass the classes, as qdiscs count it.
	DirectBytes uint32
	// ControlBPS is the rate guaranteed to control traffic.
	ControlBPS uint64
}

// Traffic is the scheduler's interface to the classifier: it reads offered bytes and sets
// the mapping of packets to classes.
type Traffic interface {
	// OfferedBytes fills dst, indexed by number, with the total bytes that each has offered
	// to the link. It makes no system call.
	OfferedBytes(dst []uint64) error
	// ArmWakeup makes the next packet that is not control traffic wake the agent.
	ArmWakeup() error
	// WokenAt returns when the packet came that the last ArmWakeup was for; the zero time if none
	// has come.
	WokenAt() (time.Time, error)
	// SetDirect sets which numbers may bypass the classes while no packet waits, in their
	// order; all others may not.
	SetDirect(bounds Bounds, direct []Direct) error
	// DirectSent returns what a number has sent past the classes; the packet count wraps.
	// It makes no system call.
	DirectSent(number uint16) (bytes uint64, packets uint32, err error)
	// SetMinors sets the classes of a number's packets by traffic class. The classes must
	// exist.
	SetMinors(number uint16, minors Minors) error
	// SetEFRate limits the EF traffic of a number, in bits per second; the excess counts as
	// BE. 0 means no limit.
	SetEFRate(number uint16, bps uint64) error
}

// Counters are the kernel's counters of one competitor since its class was created.
type Counters struct {
	// SentBytes and SentPackets passed through the class, DirectBytes and DirectPackets
	// bypassed it. The packet counts wrap.
	SentBytes     uint64
	SentPackets   uint32
	DirectBytes   uint64
	DirectPackets uint32
	// DroppedPackets and MarkedPackets (ECN CE, where the queue supports it) wrap. They are
	// valid only if QueueKnown is set.
	DroppedPackets uint32
	MarkedPackets  uint32
	QueueKnown     bool
}

// TrafficCounters are the kernel's counters of one traffic class of a competitor since its
// creation. Packet counts wrap.
type TrafficCounters struct {
	SentBytes      uint64
	BacklogBytes   uint64
	SentPackets    uint32
	DroppedPackets uint32
	MarkedPackets  uint32
}

// State is a scheduler's view of one competitor.
type State struct {
	Number uint16
	// Active says that it sent recently or has packets queued. It had offered nothing
	// before ActiveSince.
	Active      bool
	ActiveSince time.Time
	// DemandBPS is its estimated demand; alloc.Unlimited if it wants more than it gets.
	DemandBPS uint64
	// EntitledBPS is its entitlement, GuaranteedBPS the part that the scheduler holds
	// without the agent, AllocatedBPS what it may send now. HeldBackBPS of the larger of its entitlement and
	// allocation is held back, because its senders fill the bottleneck; AllocatedBPS is without it.
	EntitledBPS   uint64
	GuaranteedBPS uint64
	AllocatedBPS  uint64
	HeldBackBPS   uint64
	// PacketBytes is the packet size limit for its devices.
	PacketBytes uint32
	// BacklogBytes is its queue length when Counters were read, at CountedAt.
	BacklogBytes uint64
	Counters     Counters
	CountedAt    time.Time
	// Traffic has the counters of the traffic classes if it is Ordered.
	Traffic [NumTrafficClasses]TrafficCounters
}

// MayHaveBPS returns the rate that the competitor may have now if it wants that much.
func (s *State) MayHaveBPS() uint64 {
	return max(s.AllocatedBPS, s.EntitledBPS-min(s.HeldBackBPS, s.EntitledBPS))
}

// Snapshot is a scheduler's view of a link.
type Snapshot struct {
	// HostCompetes says that the host wants, or recently wanted, more than its reserve and
	// competes like a container.
	HostCompetes bool
	// Competitors are in the order of the Tree.
	Competitors []State
}

// Turn is the result of one control turn.
type Turn struct {
	// Next is the time until the next turn.
	Next time.Duration
	// Woke says that an idle competitor became active.
	Woke bool
	// Applied says that kernel rates were changed, or that the kernel refused a change.
	Applied bool
}

// Backend is a scheduler on one link. It is not safe for concurrent use.
type Backend interface {
	// Name returns the scheduler's name for users, e.g. "htb+fq_codel".
	Name() string
	// Majors returns the handles with which to open the classifier.
	Majors() Majors
	// Connect attaches the classifier of the link and adopts want without changing classes
	// in the kernel. Until the next Apply, turns change none either, so classes of an
	// earlier agent stay until the senders are known.
	Connect(want Tree, traffic Traffic) error
	// Disconnect detaches the classifier.
	Disconnect()
	// Apply changes the kernel to match want. It removes classes that are not in want;
	// other classes keep their queues. Applying the same tree again does nothing. If one
	// change is refused the others are still made, and the error names the refused one.
	Apply(want Tree) error
	// Turn reads which competitors send, and adjusts their rates. If count is set, it also
	// reads the counters of all active ones. It needs Connect. An error means that the
	// scheduler or the classifier is not in the expected state.
	Turn(now time.Time, count bool) (Turn, error)
	// Snapshot fills dst with the current state, reusing its memory.
	Snapshot(dst *Snapshot)
	// Forget makes the next Apply compare with the kernel's state instead of the last
	// applied tree.
	Forget()
	// Remove removes everything from the kernel. It is no error if there is nothing to
	// remove.
	Remove() error
}

// ControlBPS returns the rate guaranteed to control traffic on a link. Guarantees of
// classes must leave this rate free.
func ControlBPS(rateBPS uint64) uint64 { return rateBPS / 100 }

// CeilingOr returns the ceiling, limited to rateBPS.
func (c Competitor) CeilingOr(rateBPS uint64) uint64 {
	if c.CeilingBPS == alloc.Unlimited {
		return rateBPS
	}
	return min(c.CeilingBPS, rateBPS)
}
