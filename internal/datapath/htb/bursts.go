package htb

// Bucket depths of classes and of the link.
const (
	// burstMilliseconds is the delay of kernel timers and of the control loop that costs no rate.
	burstMilliseconds = 4
	// shareBurstMilliseconds bounds the tokens that a share has saved when another share wakes up,
	// and those that a silent container's guarantee has saved (savingMilliseconds). While all send,
	// hardly any rate is left above the guarantees: spending savings of 4 ms, or paying for them,
	// would take a quarter of a second, with all shares off by as much.
	shareBurstMilliseconds = 1
	// ceilBurstMicroseconds bounds the tokens that a container with a maximum has saved after a
	// pause, in which timers were late. HTB also sends one packet on credit, and packets may be
	// delayed on their way from here. So that all of that stays below one percent of the maximum in
	// any 100 ms, HTB's ceiling is a part of ceilMarginDivisor below the maximum. Smaller savings
	// would do as well, and cost more of the maximum wherever timers are late.
	ceilBurstMicroseconds = 750
	ceilMarginDivisor     = 400

	// noLimitBytesPerSec is a rate that no link reaches: 64 KB take less than a nanosecond, the
	// kernel's unit. A token bucket filter that limits packet sizes needs a peak rate. With a lower
	// peak rate, a packet queued before the limit was lowered would never get its tokens, and would
	// stop the uplink for good (net/sched/sch_tbf.c, tbf_dequeue).
	noLimitBytesPerSec = 1 << 48

	// headersDivisor: a qdisc counts a packet of several frames with the headers of each frame
	// (net/core/dev.c, qdisc_pkt_len_init), the packet limit of a device does not. The headers are
	// at most this part of the packet, with frames of 536 bytes in VXLAN over IPv6. The token
	// bucket filter must not cut up a packet that keeps to its device's limit: it would drop some
	// of the frames when a queue is full and report success to the sender (net/sched/sch_tbf.c,
	// tbf_segment), and TCP might wait for a quarter of a second then.
	headersDivisor = 3

	// sharedDivisor: HTB shares the rate of the link less this part, so that the token bucket
	// filter around it holds nothing back.
	sharedDivisor = 1000
)

// directBytes returns the size, as qdiscs count it, of the largest packet that may take the direct
// queue of a link with packets of up to packetBytes: the largest that the token bucket filter
// leaves whole. The filter drops a larger single frame.
func directBytes(packetBytes uint32) uint32 { return wholeBytes(packetBytes) }

// wholeBytes returns the largest size, as qdiscs count it, of a packet of up to packetBytes.
func wholeBytes(packetBytes uint32) uint32 { return packetBytes + packetBytes/headersDivisor }

// shared returns the part of a rate that HTB shares.
func shared(bps uint64) uint64 { return bps - bps/sharedDivisor }

// bytesPerSec converts a rate for the kernel, which refuses zero.
func bytesPerSec(bps uint64) uint64 { return max(bps/8, 1) }

func burstBytes(bps uint64, milliseconds uint64, packetBytes uint32) uint64 {
	return bps/8*milliseconds/1000 + uint64(packetBytes)
}

// savingMilliseconds returns how long a container's guarantee saves tokens. HTB charges what a leaf
// sends to its share, too: a leaf that has saved more than its share leaves the share in debt, with
// no more than the guarantee until that is paid, and what indebted shares leave goes to others. So a
// silent container saves no more than its share does. One that sends saves as long as timers may be
// late, which costs a minimum beside a flood 3 to 4 % otherwise, and one with a latency bound its
// burst.
func savingMilliseconds(c class) uint64 {
	if c.AllocatedBPS == 0 && c.Latency == 0 {
		return shareBurstMilliseconds
	}
	return burstMilliseconds
}
