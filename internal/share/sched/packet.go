package sched

import (
	"cmp"
	"time"
)

// exactPacketTime is how long one packet may hold the link where no other bound is set. At 1 ms Weir's
// CPU time on a 100 Mbit/s link halves, since each packet causes a wake-up, but TCP then needs more
// than 50 ms to adapt to a new share, because one packet is too large a part of its window.
const exactPacketTime = 250 * time.Microsecond

// sharePacketMilliseconds limits a class's packets to what its share can send in this time,
// a thousandth of ten seconds.
const sharePacketMilliseconds = 10

// Sizes of a packet as the kernel passes it to a qdisc: one frame, or a GSO packet of many
// frames. FrameBytes is an Ethernet frame with header; for other links see MTUFrameBytes.
const (
	FrameBytes     = 1514
	headerBytes    = 14
	maxPacketBytes = 65536
)

// MTUFrameBytes returns the largest frame of a link with an MTU of mtuBytes as qdiscs count
// it, at least an Ethernet frame. Packet limits are never below it, because frames cannot
// be divided.
func MTUFrameBytes(mtuBytes uint32) uint32 { return max(FrameBytes, mtuBytes+headerBytes) }

// LargestPacketBytes returns the largest packet that a scheduler must handle: a frame, or
// the limit of senders if that is larger.
func LargestPacketBytes(rateBPS uint64, mtuBytes uint32, packetTime time.Duration) uint32 {
	return max(LinkPacketBytes(rateBPS, packetTime), MTUFrameBytes(mtuBytes))
}

// MaxPacketBytes returns the packet size limit for a class entitled to entitledBPS on a
// link of rateBPS. The kernel passes up to 64 KB at once (GSO), which no scheduler can
// interrupt: at 100 Mbit/s others would wait 5 ms. A class with a small share is limited
// further, so that one packet is not its share of a long time.
func MaxPacketBytes(rateBPS, entitledBPS uint64, packetTime time.Duration) uint32 {
	return min(LinkPacketBytes(rateBPS, packetTime), sharePacketBytes(entitledBPS))
}

// LinkPacketBytes returns the largest packet on a link: what it sends in packetTime; 0 stands for
// 0.25 ms.
func LinkPacketBytes(rateBPS uint64, packetTime time.Duration) uint32 {
	bytes := rateBPS / 8 * uint64(cmp.Or(packetTime, exactPacketTime).Microseconds()) / 1e6
	return uint32(min(max(bytes, FrameBytes), maxPacketBytes))
}

// sharePacketBytes returns what entitledBPS sends in sharePacketMilliseconds, rounded to a
// power of two of frames, so that it seldom changes.
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

// LongestPacketTime returns how long the largest packet holds a link: one of LinkPacketBytes, or
// one frame of the MTU.
func LongestPacketTime(rateBPS uint64, mtuBytes uint32, packetTime time.Duration) time.Duration {
	return time.Duration(uint64(LargestPacketBytes(rateBPS, mtuBytes, packetTime)) * 8 * uint64(time.Second) / max(rateBPS, 1))
}
