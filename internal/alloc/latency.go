package alloc

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/weir-project/weir/internal/policy"
)

// ServiceCurve is a two-piece linear service curve as HFSC takes it
// (tc-hfsc(7): m1, d, m2): BurstBPS for BurstFor after traffic starts, then
// FloorBPS. Rates are bits per second.
type ServiceCurve struct {
	BurstBPS uint64
	BurstFor time.Duration
	FloorBPS uint64
}

// maxLatency stands for "no bound at all".
const maxLatency = time.Duration(math.MaxInt64)

// MinLatency is the smallest bound on queueing delay that a floor, in bits per
// second, allows when packets are up to packetBytes long: just above the time
// that one packet takes at the floor's rate (CNTC, section 3.2: infeasible when
// latency <= MTU/rate). A floor of 0 bounds nothing, and the result is the
// longest duration there is.
func MinLatency(floorBPS uint64, packetBytes int) time.Duration {
	packet := packetTime(floorBPS, packetBytes)
	if packet == maxLatency {
		return maxLatency
	}
	return packet + 1
}

// Curve converts a floor, in bits per second, and a bound on queueing delay into
// the service curve that gives both (CNTC, section 3.2, formulas 1 and 2). While
// one packet of another container is being sent, nothing can be done; it is
// charged at the floor's rate, so the time to serve in is
//
//	L_C = latency - packet/floor
//
// and what the floor promises for the whole bound, floor*latency, is sent within
// it at
//
//	B_C = floor * latency / L_C
//
// (The paper's example says that 1500 bytes at 100 kbit/s last 12 ms; they last
// 120 ms. Its 8 ms and 2.5 times the rate hold at 1 Mbit/s.)
//
// The burst is rounded up to a whole bit per second. A bound below [MinLatency]
// is refused with a *[LatencyError].
func Curve(floorBPS uint64, latency time.Duration, packetBytes int) (ServiceCurve, error) {
	packet := packetTime(floorBPS, packetBytes)
	if latency <= packet {
		return ServiceCurve{}, &LatencyError{
			Asked:       latency,
			Min:         MinLatency(floorBPS, packetBytes),
			FloorBPS:    floorBPS,
			PacketBytes: packetBytes,
		}
	}
	serve := latency - packet
	burst, remainder := mulDiv(floorBPS, uint64(latency), uint64(serve))
	if remainder > 0 {
		burst++
	}
	return ServiceCurve{BurstBPS: burst, BurstFor: serve, FloorBPS: floorBPS}, nil
}

// packetTime is how long a packet takes at a rate, rounded down.
func packetTime(rateBPS uint64, packetBytes int) time.Duration {
	hi, lo := bits.Mul64(uint64(max(packetBytes, 0)), uint64(8*time.Second))
	if hi >= rateBPS {
		return maxLatency
	}
	t, _ := bits.Div64(hi, lo, rateBPS)
	return time.Duration(min(t, uint64(maxLatency)))
}

// LatencyError is the refusal of a bound on latency that a floor cannot give.
type LatencyError struct {
	Asked       time.Duration // the bound asked for
	Min         time.Duration // the smallest that the floor allows
	FloorBPS    uint64        // the floor, bits per second
	PacketBytes int           // the largest packet
}

// Error says what was asked, what is possible, and what to do.
func (e *LatencyError) Error() string {
	if e.Min == maxLatency {
		return fmt.Sprintf("latency %v cannot be guaranteed without a minimum rate; set one", e.Asked)
	}
	return fmt.Sprintf("latency %v cannot be guaranteed: with a minimum of %s and packets of %d bytes the smallest is %v; ask for that or raise the minimum",
		e.Asked, policy.FormatRate(e.FloorBPS), e.PacketBytes, roundUpForPeople(e.Min))
}

// roundUpForPeople rounds up to about three digits, so that what an error
// suggests is short to type and still feasible.
func roundUpForPeople(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	if rest := d % unit; rest > 0 && d <= maxLatency-unit {
		d += unit - rest
	}
	return d
}
