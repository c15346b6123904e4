package bench

import (
	"time"

	"github.com/weir-project/weir/internal/lab/meter"
)

// overshoot returns the relative excess over a ceiling in the worst window of a series, from the
// first packet on; negative if it is never exceeded.
func overshoot(bins []uint64, binWidth, window time.Duration, ceilingBPS uint64) float64 {
	allowed := float64(ceilingBPS) * window.Seconds() / 8
	return float64(meter.MostIn(bins, int(window/binWidth)))/allowed - 1
}

// settling measures how fast rates settle after a change.
type settling struct {
	// series has one row of bins per container, in bytes.
	series   [][]uint64
	binWidth time.Duration
	// window is the averaging time of a rate, tolerance its tolerated relative deviation from the
	// ideal.
	window    time.Duration
	tolerance float64
	// stay is the time for which all windows must be within the tolerance until rates count as
	// settled. Later deviations count in held, so that one late packet does not look like a slow
	// scheduler.
	stay time.Duration
}

// outcome is the response to a change.
type outcome struct {
	// settled: every window of stay was within the tolerance for all containers; after is the time
	// from the change to its begin.
	settled bool
	after   time.Duration
	// held is the fraction of windows within the tolerance, among those that begin at least grace
	// after the change.
	held float64
}

// after evaluates the time between two changes, given as bins, against the ideal rates in bits per
// second; 0 means that the container sends nothing and is ignored.
func (s settling) after(change, next int, ideal []uint64, grace time.Duration) outcome {
	width := int(s.window / s.binWidth)
	last := next - width // the last bin a window can begin with
	if last < change {
		return outcome{}
	}
	good := make([]bool, last-change+1)
	for i := range good {
		good[i] = true
	}
	for container, bps := range ideal {
		if bps == 0 {
			continue
		}
		expected := float64(bps) * s.window.Seconds() / 8
		bins := s.series[container]
		var sum uint64
		for i := change; i < min(next, len(bins)); i++ {
			sum += bins[i]
			if begin := i - width + 1; begin >= change {
				if difference := float64(sum)/expected - 1; difference > s.tolerance || difference < -s.tolerance {
					good[begin-change] = false
				}
				sum -= bins[begin]
			}
		}
	}
	result := outcome{}
	needed, run := max(int(s.stay/s.binWidth), 1), 0
	for i := 0; i < len(good) && !result.settled; i++ {
		if run++; !good[i] {
			run = 0
		}
		if run == needed {
			result.settled, result.after = true, time.Duration(i-needed+1)*s.binWidth
		}
	}
	counted, within := 0, 0
	for i := int(grace / s.binWidth); i < len(good); i++ {
		counted++
		if good[i] {
			within++
		}
	}
	if counted > 0 {
		result.held = float64(within) / float64(counted)
	}
	return result
}
