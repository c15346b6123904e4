package htb

// Buckets: how much a class, and the link, may have saved up.
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

	// noLimitBytesPerSec is a rate no link has: 64 KB take less than the
	// nanosecond that the kernel counts in. Where the token bucket filter is to
	// limit the size of packets it takes a peak rate, too. At a lower one a packet
	// that was queued before the limit was lowered would never get its tokens,
	// and stop the uplink for good (net/sched/sch_tbf.c, tbf_dequeue).
	noLimitBytesPerSec = 1 << 48

	// headersDivisor: a qdisc counts a packet of many frames with the headers of
	// each (net/core/dev.c, qdisc_pkt_len_init), which the limit of a device
	// does not. They are at most that part of it, for frames of 536 bytes in
	// VXLAN over IPv6. A packet of a device that keeps its limit must not be cut
	// up by the token bucket filter: that drops some of the frames when a queue
	// is full and tells the sender that all is well (net/sched/sch_tbf.c,
	// tbf_segment), and TCP may wait for a quarter of a second then.
	headersDivisor = 3

	// sharedDivisor: HTB gives out all of the link but this part, so that the
	// token bucket filter around it does not hold anything back.
	sharedDivisor = 1000
)

// directBytes is the largest packet that may take the direct queue of a link that has
// packets of up to packetBytes, as qdiscs count it: where the token bucket filter cuts
// packets up, one that it would leave whole. It drops a single frame that is larger.
func directBytes(packetBytes uint32) uint32 { return wholeBytes(packetBytes) }

// wholeBytes is what a packet whose sender keeps to packetBytes may count.
func wholeBytes(packetBytes uint32) uint32 { return packetBytes + packetBytes/headersDivisor }

// shared is what HTB gives out of a rate.
func shared(bps uint64) uint64 { return bps - bps/sharedDivisor }

// bytesPerSec is a rate as the kernel takes it, which refuses zero.
func bytesPerSec(bps uint64) uint64 { return max(bps/8, 1) }

func burstBytes(bps uint64, milliseconds uint64, packetBytes uint32) uint64 {
	return bps/8*milliseconds/1000 + uint64(packetBytes)
}
