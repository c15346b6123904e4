package htb

import (
	"math/bits"

	"github.com/weir-project/weir/internal/kernel"
)

// Lengths of the queues.
const (
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
)

// Memory. All classes may be flooded at once: their queues together hold no more
// than the budget, which is budgetBytes or, on fast links, what the link sends in
// budgetMilliseconds, and leastFrames for each class besides.
const (
	budgetBytes        = 16 << 20
	budgetMilliseconds = 32
	// leastFrames is what any queue can hold, and leastPackets where packets are
	// larger than frames.
	leastFrames  = 8
	leastPackets = 2
	// memoryFactor is what a queued packet takes of the kernel's memory against
	// its length, if it is not a small one: the socket buffer around it, and the
	// page that it does not fill.
	memoryFactor = 2
	// defaultLimitPackets is the kernel's own limit of an fq_codel.
	defaultLimitPackets = 10_240
)

// leafKind is the queue of a container within its class.
type leafKind uint8

const (
	leafFqCodel leafKind = iota
	leafBFIFO
)

func (k leafKind) String() string {
	return [...]string{"fq_codel", "bfifo"}[k]
}

// leafOf is the queue of a class.
func (t terms) leafOf(c class) kernel.Qdisc {
	return t.queue(classMinor(c.Number), c.shareBPS(), c)
}

// queue is that of a leaf of a class, which sends at rateBPS.
func (t terms) queue(minor uint16, rateBPS uint64, c class) kernel.Qdisc {
	packetBytes := t.packetBytes
	if c.PacketBytes > 0 {
		packetBytes = min(packetBytes, max(c.PacketBytes, t.frameBytes))
	}
	switch {
	case c.Latency > 0:
		// What does not fit is dropped rather than kept, for it would be late. It
		// is one queue, also where the kernel has fq_codel: that would give turns
		// to flows that are late already.
		bytes := uint64(float64(rateBPS) / 8 * c.Latency.Seconds())
		return fifoOf(minor, max(min(bytes, t.memoryBytes(rateBPS, packetBytes)/memoryFactor), latencyQueueFrames*uint64(t.frameBytes)))
	case t.leaf == leafBFIFO:
		return fifoOf(minor, t.fifoBytes(rateBPS, packetBytes))
	}
	return kernel.Qdisc{Handle: queueOf(minor), Parent: kernel.NewHandle(classMajor, minor), Options: t.aqm(rateBPS, packetBytes)}
}

// aqm is a queue for each flow that together hold what a class that sends at rateBPS
// may have of the kernel's memory.
func (t terms) aqm(rateBPS uint64, packetBytes uint32) kernel.FqCodel {
	options := t.fqCodel(rateBPS, packetBytes)
	options.MemoryLimitBytes = quantize(t.memoryBytes(rateBPS, packetBytes))
	// Not every kernel counts the memory: 7.2 does not.
	options.LimitPackets = min(options.MemoryLimitBytes/(memoryFactor*t.frameBytes), defaultLimitPackets)
	return options
}

// fifoBytes is as much where the kernel has no such queue.
func (t terms) fifoBytes(rateBPS uint64, packetBytes uint32) uint64 {
	bytes := max(rateBPS/8*queueMilliseconds/1000, queuePackets*uint64(packetBytes))
	return min(bytes, t.memoryBytes(rateBPS, packetBytes)/memoryFactor)
}

// memoryBytes is how much of the kernel's memory a class that sends at rateBPS may
// fill with packets: its part of half the budget by number, or of the other half by
// rate if that is more. Rates that are allocated and rates that are guaranteed sum to
// the link's, so the larger one of each to twice that at most.
func (t terms) memoryBytes(rateBPS uint64, packetBytes uint32) uint64 {
	// quantize adds up to a quarter.
	budget := max(budgetBytes, t.rateBPS/8*budgetMilliseconds/1000) * 4 / 5
	byRate, remainder := bits.Mul64(budget/4, min(rateBPS, t.rateBPS))
	byRate, _ = bits.Div64(byRate, remainder, max(t.rateBPS, 1))
	least := memoryFactor * max(leastFrames*uint64(t.frameBytes), leastPackets*uint64(packetBytes))
	return max(budget/2/uint64(t.places), byRate, least)
}

// places is how many classes the memory is divided among: a power of two,
// and not of a few, so that a container that comes or goes seldom changes the queues
// of all others.
func places(classes int) uint32 {
	const fewest = 8
	return 1 << bits.Len(uint(max(classes, fewest)-1))
}

// fifoOf is the queue of a leaf, of so many bytes.
func fifoOf(minor uint16, bytes uint64) kernel.Qdisc {
	return kernel.Qdisc{Handle: queueOf(minor), Parent: kernel.NewHandle(classMajor, minor), Options: kernel.BFIFO{LimitBytes: quantize(bytes)}}
}

// fqCodel is a queue for each flow, held to a target delay.
//
// The target is not that of RFC 8290, one and a half packets' time: CoDel keeps what
// it knows of a flow while that is silent, and takes it for late all the time when two
// of its packets have waited longer than the target. Before Linux 7.1 that is so for
// every flow that fell silent, later for those that the queue did not come back to. It
// is what becomes of packets that many flows send at once now and then. So the target
// is the time of forty packets. Flows with a queue of their own wait for each other in
// turns, whatever it is; a flow that fills its queue waits for longer behind itself.
func (t terms) fqCodel(rateBPS uint64, packetBytes uint32) kernel.FqCodel {
	const (
		targetPackets             = 40
		leastTargetMicroseconds   = 20_000
		maxTargetMicroseconds     = 16_000_000
		leastIntervalMicroseconds = 100_000
		// The kernel keeps times so exactly; see kernel.FqCodel.
		unitMicroseconds = 100
	)
	target := uint32(leastTargetMicroseconds)
	if needed := targetPackets * uint64(packetBytes) * 8 * 1e6 / max(rateBPS, 1); needed > leastTargetMicroseconds {
		target = quantize(min(needed, maxTargetMicroseconds)/unitMicroseconds) * unitMicroseconds
	}
	return kernel.FqCodel{
		TargetMicroseconds:   target,
		IntervalMicroseconds: max(leastIntervalMicroseconds, 2*target),
		QuantumBytes:         t.frameBytes,
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
