// Package sched defines what every packet scheduler offers the agent.
//
// A scheduler holds one tree for one uplink. The agent describes the tree it
// wants as a whole; the scheduler finds what differs from what the kernel has
// and changes only that.
package sched

import (
	"time"

	"github.com/weir-project/weir/internal/alloc"
)

// Class is one competitor for the uplink: a container or the host. Rates are
// bits per second.
type Class struct {
	// Number is the container's number in the data path.
	Number uint16
	// GuaranteedBPS is the rate the class can always have, whatever others do
	// and whether or not an agent runs.
	GuaranteedBPS uint64
	// AllocatedBPS is the rate the class has at present, given who else is
	// sending; at least GuaranteedBPS where the class wants that much.
	AllocatedBPS uint64
	// CeilingBPS is never exceeded; alloc.Unlimited for none.
	CeilingBPS uint64
	// Weight shares out what is idle between two allocations. A class of weight 0
	// is offered it after those of the same priority that have one.
	Weight uint32
	// Priority says who is first offered what is idle, higher first.
	Priority uint32
	// Latency bounds how long packets of a class within its guarantee wait; 0
	// for no bound.
	Latency time.Duration
	// PacketBytes is the largest packet that the class is handed, where it is
	// limited to less than what LinkPacketBytes says; 0 where it is not.
	PacketBytes uint32
}

// Tree is the whole of what a scheduler is to do with an uplink.
type Tree struct {
	// RateBPS is what the uplink may send, in bits per second, counted as tc
	// does: Ethernet frames without preamble and checksum.
	RateBPS uint64
	// MTUBytes is the largest IP packet that the uplink sends in one frame; 0 for
	// Ethernet's 1500.
	MTUBytes uint32
	// ControlNumber is the class of traffic that must never wait; the
	// scheduler serves it first and bounds it.
	ControlNumber uint16
	// DefaultNumber is the class, one of Classes, of packets that name none.
	DefaultNumber uint16
	// Classes are in the order of their numbers.
	Classes []Class
}

// Stats are the counters of one class since it was made.
type Stats struct {
	Number       uint16
	SentBytes    uint64
	BacklogBytes uint64
	// SentPackets wraps.
	SentPackets uint32
}

// Backend is a scheduler on one uplink.
type Backend interface {
	// Name tells users what runs, e.g. "htb+fq_codel".
	Name() string
	// Apply brings the kernel to want. Classes that are not in want are
	// removed; all others keep what they have queued. Applying the same tree
	// twice does nothing the second time. Where one change is refused the
	// others are still made, and the error says which was refused.
	Apply(want Tree) error
	// Stats appends the counters of the classes with these numbers to dst, in
	// any order. Classes that are not there are left out.
	Stats(numbers []uint16, dst []Stats) ([]Stats, error)
	// Drops tells how many packets of each class, by its number, were dropped
	// from its queue; the counts wrap. It costs more than Stats and is for people
	// to look at.
	Drops() (map[uint16]uint32, error)
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

// packetTimeMicroseconds is how long the uplink may be held by one packet. At a
// millisecond Weir takes half the processor time on a link of 100 Mbit/s, as every
// packet wakes a processor up, but TCP needs longer than 50 ms to follow a new
// share: a packet is too large a part of what it may send in that time.
const packetTimeMicroseconds = 250

// sharePacketMilliseconds is of how long a time one packet may be the whole
// share of a class: a thousandth of what it sends in ten seconds.
const sharePacketMilliseconds = 10

// Bounds of a packet as the kernel hands it to a qdisc: one frame, or a GSO
// packet of many. FrameBytes is Ethernet's, with its header; of other links see
// Tree.FrameBytes.
const (
	FrameBytes     = 1514
	headerBytes    = 14
	maxPacketBytes = 65536
)

// frameBytes is the largest frame of a link with an MTU of mtuBytes, as qdiscs
// count it. A small MTU counts as Ethernet's: it is no reason to cut anything up.
func frameBytes(mtuBytes uint32) uint32 { return max(FrameBytes, mtuBytes+headerBytes) }

// FrameBytes is the largest frame of the uplink, as qdiscs count it. No limit of
// a packet's size is below that: there is no way to cut a frame up.
func (t Tree) FrameBytes() uint32 { return frameBytes(t.MTUBytes) }

// PacketBytes is the largest packet that the scheduler has to be ready for: a
// frame, or what senders are limited to if that is more.
func (t Tree) PacketBytes() uint32 { return max(LinkPacketBytes(t.RateBPS), t.FrameBytes()) }

// MaxPacketBytes is the largest packet that a scheduler at rateBPS should be
// given of a class that is entitled to entitledBPS. The kernel hands over up to
// 64 KB at once (GSO) and no scheduler can interrupt that: at 100 Mbit/s all
// others would wait for 5 ms. And for a class with a small share one packet
// should not be its share of a long time.
func MaxPacketBytes(rateBPS, entitledBPS uint64) uint32 {
	return min(LinkPacketBytes(rateBPS), sharePacketBytes(entitledBPS))
}

// LinkPacketBytes is the largest packet on a link of rateBPS: what that sends
// in packetTimeMicroseconds.
func LinkPacketBytes(rateBPS uint64) uint32 {
	bytes := rateBPS / 8 * packetTimeMicroseconds / 1e6
	return uint32(min(max(bytes, FrameBytes), maxPacketBytes))
}

// sharePacketBytes is what entitledBPS can send in sharePacketMilliseconds, in
// frames and powers of two of them, so that it seldom changes.
func sharePacketBytes(entitledBPS uint64) uint32 {
	bytes := entitledBPS / 8 * sharePacketMilliseconds / 1000
	if bytes >= maxPacketBytes {
		return maxPacketBytes
	}
	frames := uint64(1)
	for frames*2*FrameBytes <= bytes {
		frames *= 2
	}
	return uint32(frames * FrameBytes)
}

// PacketTime is how long a link is held by one packet: one that is as large as
// its rate allows, or one frame of its MTU.
func PacketTime(rateBPS uint64, mtuBytes uint32) time.Duration {
	packetBytes := max(LinkPacketBytes(rateBPS), frameBytes(mtuBytes))
	return time.Duration(uint64(packetBytes) * 8 * uint64(time.Second) / max(rateBPS, 1))
}

// CeilingOr gives the ceiling, or rateBPS where there is none or it is above.
func (c Class) CeilingOr(rateBPS uint64) uint64 {
	if c.CeilingBPS == alloc.Unlimited {
		return rateBPS
	}
	return min(c.CeilingBPS, rateBPS)
}
