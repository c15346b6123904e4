package stats

import "time"

// rateWindow is the averaging time of a rate.
const rateWindow = time.Second

// Rate computes the mean rate of the last second from totals that only grow.
type Rate struct {
	samples []sample // oldest first: the samples of one window, and one older
}

type sample struct {
	at    time.Time
	bytes uint64
}

// Observe adds a total. At an unchanged time it replaces the last total; if the time went back, the
// window restarts.
func (r *Rate) Observe(at time.Time, totalBytes uint64) {
	if n := len(r.samples); n > 0 && !at.After(r.samples[n-1].at) {
		if at.Before(r.samples[n-1].at) {
			r.samples = r.samples[:0]
		} else if n > 1 {
			r.samples = r.samples[:n-1]
		}
	}
	r.samples = append(r.samples, sample{at, totalBytes})
	first := 0
	for first+1 < len(r.samples) && at.Sub(r.samples[first+1].at) >= rateWindow {
		first++
	}
	r.samples = append(r.samples[:0], r.samples[first:]...)
}

// Resume records that nothing was sent between the last total and at.
func (r *Rate) Resume(at time.Time) {
	if n := len(r.samples); n > 0 {
		r.samples = append(r.samples[:0], sample{at, r.samples[n-1].bytes})
	}
}

// BPS returns the mean rate over the last second, in bits per second. The time before the first
// sample counts as silence.
func (r *Rate) BPS() uint64 {
	if len(r.samples) < 2 {
		return 0
	}
	oldest, newest := r.samples[0], r.samples[len(r.samples)-1]
	if newest.bytes < oldest.bytes {
		return 0
	}
	elapsed := max(newest.at.Sub(oldest.at), rateWindow)
	return uint64(float64(newest.bytes-oldest.bytes) * 8 / elapsed.Seconds())
}
