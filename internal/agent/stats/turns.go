package stats

import (
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// turnBounds are the bucket bounds of Turns, closest around the loop's periods while something is sent (10, 30 and 40 ms)
// and above, where the loop would be late. While nothing is sent turns come every 500 ms, and a little later.
var turnBounds = [...]time.Duration{
	10 * time.Millisecond, 12 * time.Millisecond, 15 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond,
	32 * time.Millisecond, 35 * time.Millisecond, 40 * time.Millisecond, 42 * time.Millisecond, 45 * time.Millisecond,
	50 * time.Millisecond, 55 * time.Millisecond, 60 * time.Millisecond, 80 * time.Millisecond, 100 * time.Millisecond,
	200 * time.Millisecond, 500 * time.Millisecond, 600 * time.Millisecond, time.Second,
}

// Turns is a histogram of the time between two turns of the control loop. The zero value is empty.
type Turns struct {
	last   time.Time
	count  uint64
	sum    time.Duration
	counts [len(turnBounds)]uint64
}

// Begin records the start of a turn. now must come from time.Now, whose monotonic clock is immune
// to steps of the wall clock.
func (t *Turns) Begin(now time.Time) {
	last := t.last
	t.last = now
	if last.IsZero() {
		return
	}
	took := max(now.Sub(last), 0)
	t.count++
	t.sum += took
	for i, bound := range turnBounds {
		if took <= bound {
			t.counts[i]++
			break
		}
	}
}

// View returns the histogram for the API.
func (t *Turns) View() v1.Turns {
	view := v1.Turns{Count: t.count, SumSeconds: t.sum.Seconds(), Buckets: make([]v1.TurnBucket, len(turnBounds))}
	var count uint64
	for i, bound := range turnBounds {
		count += t.counts[i]
		view.Buckets[i] = v1.TurnBucket{UpToSeconds: bound.Seconds(), Count: count}
	}
	return view
}
