package stats

import "time"

// rateWindow is the time over which a rate is a mean.
const rateWindow = time.Second

// Rate is what was sent in the last second, from totals that only grow.
type Rate struct {
	samples []sample // oldest first; one window of them, and one that is older
}

type sample struct {
	at    time.Time
	bytes uint64
}

// Observe takes a total in. Where the clock stands still the newer total
// counts; where it went back, the window begins anew.
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

// Resume says that nothing was sent from the last total until at.
func (r *Rate) Resume(at time.Time) {
	if n := len(r.samples); n > 0 {
		r.samples = append(r.samples[:0], sample{at, r.samples[n-1].bytes})
	}
}

// BPS is the mean rate over the last second, in bits per second. Who is
// younger than a second has sent nothing before.
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
