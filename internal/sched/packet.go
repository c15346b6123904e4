package sched

import "time"

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
// MTUFrameBytes.
const (
	FrameBytes     = 1514
	headerBytes    = 14
	maxPacketBytes = 65536
)

// MTUFrameBytes is the largest frame of a link with an MTU of mtuBytes, as qdiscs
// count it. A small MTU counts as Ethernet's. No limit of a packet's size is below
// that: there is no way to cut a frame up.
func MTUFrameBytes(mtuBytes uint32) uint32 { return max(FrameBytes, mtuBytes+headerBytes) }

// LargestPacketBytes is the largest packet that a scheduler has to be ready for: a
// frame, or what senders are limited to if that is more.
func LargestPacketBytes(rateBPS uint64, mtuBytes uint32) uint32 {
	return max(LinkPacketBytes(rateBPS), MTUFrameBytes(mtuBytes))
}

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
	return time.Duration(uint64(LargestPacketBytes(rateBPS, mtuBytes)) * 8 * uint64(time.Second) / max(rateBPS, 1))
}
