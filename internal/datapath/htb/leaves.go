package htb

import (
	"math/bits"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Queue lengths.
const (
	// queueMilliseconds bounds the length of a leaf queue in time; queuePackets is the minimum in
	// packets, for slow containers. Rounding adds a quarter at most, which stays below the 10 ms
	// that a sparse flow may wait behind its container's bulk. Packets have the container's packet
	// limit as their size. TCP takes a queue that is long for its rate for a longer path, and waits
	// twice that time when the end of a burst is lost.
	queueMilliseconds = 7
	queuePackets      = 20
	// mostQueueMilliseconds is the length beyond which no FIFO is stretched (stretch.go).
	mostQueueMilliseconds = 50
	// controlQueuePackets is the length of the queue of control traffic.
	controlQueuePackets = 10
	// latencyQueueFrames is the minimum length for a class with a latency bound.
	latencyQueueFrames = 4
)

// Memory limits. All classes may be flooded at once: their queues together hold no more than the
// budget, which is budgetBytes or, on fast links, the link's traffic of budgetMilliseconds, plus
// leastFrames for each class.
const (
	budgetBytes        = 16 << 20
	budgetMilliseconds = 32
	// leastFrames is the minimum length of any queue; leastPackets applies where packets are larger
	// than frames.
	leastFrames  = 8
	leastPackets = 2
	// memoryFactor is the ratio of kernel memory to packet length for packets that are not small:
	// the socket buffer, and unused parts of pages.
	memoryFactor = 2
	// defaultLimitPackets is the kernel's default limit of an fq_codel.
	defaultLimitPackets = 10_240
)

// leafKind is the qdisc of a container's queue.
type leafKind uint8

const (
	leafFqCodel leafKind = iota
	leafBFIFO
)

func (k leafKind) String() string {
	return [...]string{"fq_codel", "bfifo"}[k]
}

// leafOf returns the queue of a class.
func (t terms) leafOf(c class) kernel.Qdisc {
	return t.queue(classMinor(c.Number), c.shareBPS(), c)
}

// queue returns the queue of a class's leaf that sends at rateBPS.
func (t terms) queue(minor uint16, rateBPS uint64, c class) kernel.Qdisc {
	packetBytes := t.packetBytes
	if c.PacketBytes > 0 {
		packetBytes = min(packetBytes, max(c.PacketBytes, t.frameBytes))
	}
	switch {
	case c.Latency > 0:
		// Drop excess packets: queued, they would miss the bound. One FIFO, even with fq_codel
		// available, which would give turns to flows that are late already.
		bytes := uint64(float64(rateBPS) / 8 * c.Latency.Seconds())
		return fifoOf(minor, max(min(bytes, t.memoryBytes(rateBPS, packetBytes)/memoryFactor), latencyQueueFrames*uint64(t.frameBytes)))
	case t.leaf == leafBFIFO:
		return fifoOf(minor, t.fifoBytes(rateBPS, packetBytes, c.QueueDoublings))
	}
	return kernel.Qdisc{Handle: queueOf(minor), Parent: kernel.NewHandle(classMajor, minor), Options: t.aqm(rateBPS, packetBytes)}
}

// aqm returns an fq_codel for a class that sends at rateBPS, limited to the class's part of the
// memory.
func (t terms) aqm(rateBPS uint64, packetBytes uint32) kernel.FqCodel {
	options := t.fqCodel(rateBPS, packetBytes)
	options.MemoryLimitBytes = quantize(t.memoryBytes(rateBPS, packetBytes))
	// Some kernels do not count the memory: 7.2 does not.
	options.LimitPackets = min(options.MemoryLimitBytes/(memoryFactor*t.frameBytes), defaultLimitPackets)
	return options
}

// fifoBytes returns the corresponding limit of a FIFO, for kernels without fq_codel. It is not stretched beyond
// mostQueueMilliseconds, which rounding may exceed by a quarter, and the minimum in packets by more.
func (t terms) fifoBytes(rateBPS uint64, packetBytes uint32, doublings uint8) uint64 {
	bytes := max(rateBPS/8*queueMilliseconds/1000, queuePackets*uint64(packetBytes))
	bytes = max(bytes, min(bytes<<doublings, rateBPS/8*mostQueueMilliseconds/1000))
	return min(bytes, t.memoryBytes(rateBPS, packetBytes)/memoryFactor)
}

// memoryBytes returns the kernel memory that the queue of a class sending at rateBPS may fill: an
// equal part of half the budget or, if larger, its part of the other half by rate. Allocated rates
// and guaranteed rates each sum to the link's, so the larger of both sums to at most twice that.
func (t terms) memoryBytes(rateBPS uint64, packetBytes uint32) uint64 {
	// quantize adds up to a quarter.
	budget := max(budgetBytes, t.rateBPS/8*budgetMilliseconds/1000) * 4 / 5
	byRate, remainder := bits.Mul64(budget/4, min(rateBPS, t.rateBPS))
	byRate, _ = bits.Div64(byRate, remainder, max(t.rateBPS, 1))
	least := memoryFactor * max(leastFrames*uint64(t.frameBytes), leastPackets*uint64(packetBytes))
	return max(budget/2/uint64(t.places), byRate, least)
}

// places returns the number of classes that divide the memory: a power of two with a minimum, so
// that a container that comes or goes seldom changes the queues of all others.
func places(classes int) uint32 {
	const fewest = 8
	return 1 << bits.Len(uint(max(classes, fewest)-1))
}

// fifoOf returns a leaf's FIFO of this many bytes.
func fifoOf(minor uint16, bytes uint64) kernel.Qdisc {
	return kernel.Qdisc{Handle: queueOf(minor), Parent: kernel.NewHandle(classMajor, minor), Options: kernel.BFIFO{LimitBytes: quantize(bytes)}}
}

// fqCodel returns an fq_codel: one queue per flow, held to a target delay.
//
// The target is larger than RFC 8290's one and a half packet times. CoDel keeps the state of a
// silent flow, and treats it as persistently late after two of its packets have waited longer than
// the target: before Linux 7.1 any flow that fell silent, later those that the queue did not
// revisit. This happens to many flows that each send packets in occasional bursts. So the target is
// the time of forty packets. Flows in different queues take turns under any target; only a flow
// that fills its own queue waits longer behind itself.
func (t terms) fqCodel(rateBPS uint64, packetBytes uint32) kernel.FqCodel {
	const (
		targetPackets             = 40
		leastTargetMicroseconds   = 20_000
		maxTargetMicroseconds     = 16_000_000
		leastIntervalMicroseconds = 100_000
		// The kernel's resolution of times; see kernel.FqCodel.
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

// quantize rounds up to steps of a quarter, so that small changes of a rate do not change the
// queue.
func quantize(v uint64) uint32 {
	const steps = 4
	v = min(v, 1<<30)
	step := uint64(1)
	for step*steps*2 <= v {
		step *= 2
	}
	return uint32((v + step - 1) / step * step)
}
