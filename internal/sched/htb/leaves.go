package htb

import (
	"time"

	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
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

// leafKind is the queue of a container within its class.
type leafKind uint8

const (
	leafFqCodel leafKind = iota
	leafBFIFO
)

func (k leafKind) String() string {
	return [...]string{"fq_codel", "bfifo"}[k]
}

// leafOf is the queue of a class that sends at rateBPS, in packets of packetBytes
// at most.
func leafOf(number uint16, rateBPS uint64, packetBytes uint32, kind leafKind) kernel.Qdisc {
	if kind == leafFqCodel {
		return kernel.Qdisc{Handle: leafQdisc(number), Parent: leafClass(number), Options: fqCodel(rateBPS, packetBytes)}
	}
	return fifoOf(number, max(rateBPS/8*queueMilliseconds/1000, queuePackets*uint64(packetBytes)))
}

// latencyLeafOf is the queue of a class that sends at rateBPS and whose packets
// must not wait longer than latency. What does not fit is dropped rather than
// kept, for it would be late. It is one queue, also where the kernel has
// fq_codel: that would give turns to flows that are late already.
func latencyLeafOf(number uint16, rateBPS uint64, latency time.Duration) kernel.Qdisc {
	bytes := uint64(float64(rateBPS) / 8 * latency.Seconds())
	return fifoOf(number, max(bytes, latencyQueueFrames*sched.FrameBytes))
}

// fifoOf is a queue of so many bytes.
func fifoOf(number uint16, bytes uint64) kernel.Qdisc {
	return kernel.Qdisc{Handle: leafQdisc(number), Parent: leafClass(number), Options: kernel.BFIFO{LimitBytes: quantize(bytes)}}
}

// fqCodel follows RFC 8290 section 5.2: the target is at least the time of
// one and a half packets, the interval twenty times the target.
func fqCodel(rateBPS uint64, packetBytes uint32) kernel.FqCodel {
	const (
		defaultTargetMicroseconds   = 5000
		defaultIntervalMicroseconds = 100_000
		maxTargetMicroseconds       = 10_000_000
		memoryLimitBytes            = 4 << 20
		// The kernel keeps times so exactly; see kernel.FqCodel.
		unitMicroseconds = 100
	)
	packetMicroseconds := min(uint64(packetBytes)*8*1e6/max(rateBPS, 1), maxTargetMicroseconds)
	target := uint32(defaultTargetMicroseconds)
	if needed := packetMicroseconds * 3 / 2; needed > defaultTargetMicroseconds {
		target = quantize(needed/unitMicroseconds) * unitMicroseconds
	}
	return kernel.FqCodel{
		TargetMicroseconds:   target,
		IntervalMicroseconds: max(defaultIntervalMicroseconds, 20*target),
		QuantumBytes:         sched.FrameBytes,
		MemoryLimitBytes:     memoryLimitBytes,
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
