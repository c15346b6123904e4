package alloc

import (
	"fmt"
	"math"
	"time"

	"github.com/weir-project/weir/internal/share/policy"
)

// AdmitLatency returns nil if traffic within a floor (bits per second) can meet the latency
// bound asked on this link. onTheWay is how long packets of others that are already being
// sent can hold the link (design, section 3, point 5; CNTC, section 3.2: infeasible when
// latency <= MTU/rate).
//
// The paper's example (100 kbit/s, 20 ms) says that a packet of 1500 bytes takes
// 12 ms, which it does at 1 Mbit/s; so its MTU/rate is not the time of the
// container's own packet at its floor, but of another's on the link. How large a
// packet the container may send within the bound is for the container to know:
// floor*asked. A larger one waits for its own tokens.
//
// A refusal is a *[LatencyError].
func AdmitLatency(floorBPS uint64, onTheWay, asked time.Duration) error {
	if floorBPS > 0 && asked > onTheWay {
		return nil
	}
	refusal := &LatencyError{Asked: asked, FloorBPS: floorBPS, Min: math.MaxInt64}
	if onTheWay < math.MaxInt64 {
		refusal.Min = onTheWay + 1
	}
	return refusal
}

// LatencyError is the refusal of a latency bound.
type LatencyError struct {
	Asked    time.Duration // the requested bound
	Min      time.Duration // smallest bound that the link allows
	FloorBPS uint64        // the floor, bits per second
	// FloorRefused says that the floor is 0 because its request was refused.
	FloorRefused bool
}

// Error returns the requested bound, the possible one, and what to do.
func (e *LatencyError) Error() string {
	if e.FloorRefused {
		return fmt.Sprintf("latency %v cannot be guaranteed without the minimum rate, which was refused", e.Asked)
	}
	if e.FloorBPS == 0 {
		return fmt.Sprintf("latency %v cannot be guaranteed without a minimum rate; set one", e.Asked)
	}
	return fmt.Sprintf("latency %v cannot be guaranteed: packets of others that are on their way already may hold the link for that long; the smallest is %v at the uplink's rate (minimum %s); ask for that",
		e.Asked, roundUpForPeople(e.Min), policy.FormatRate(e.FloorBPS))
}

// roundUpForPeople rounds up to about three digits, so that the suggested bound is short
// and still feasible.
func roundUpForPeople(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	if rest := d % unit; rest > 0 && d <= math.MaxInt64-unit {
		d += unit - rest
	}
	return d
}
