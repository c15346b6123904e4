package stats

import (
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestRate(t *testing.T) {
	const period = 250 * time.Millisecond
	type step struct {
		after time.Duration
		bytes uint64
		times int
	}
	for _, tc := range []struct {
		name  string
		steps []step
		want  uint64
	}{
		{"nothing is known", nil, 0},
		{"one total says nothing", []step{{0, 1 << 40, 1}}, 0},
		{"the first second", []step{{0, 0, 1}, {period, 312_500, 1}}, 2_500_000},
		{"steady", []step{{0, 0, 1}, {period, 312_500, 20}}, 10_000_000},
		{"a second's worth at once", []step{{0, 0, 1}, {period, 312_500, 20}, {period, 1_250_000, 1}}, 17_500_000},
		{"a second after the end", []step{{0, 0, 1}, {period, 312_500, 20}, {period, 0, 5}}, 0},
		{"totals are missing", []step{{0, 0, 1}, {period, 312_500, 20}, {3 * time.Second, 3 * 1_250_000, 1}}, 10_000_000},
		{"the clock stands still", []step{{0, 0, 1}, {period, 312_500, 20}, {0, 0, 3}}, 10_000_000},
		{"the clock stands still and more is sent", []step{{0, 0, 1}, {time.Second, 1_250_000, 1}, {0, 1_250_000, 1}}, 20_000_000},
		{"the clock stands still from the start", []step{{0, 0, 1}, {0, 1000, 5}}, 40_000},
		{"the clock goes back", []step{{0, 0, 1}, {period, 312_500, 20}, {-time.Hour, 312_500, 1}}, 0},
		{"a second after the clock went back", []step{{0, 0, 1}, {period, 312_500, 20}, {-time.Hour, 312_500, 1}, {period, 312_500, 4}}, 10_000_000},
	} {
		var r Rate
		at, total := epoch, uint64(0)
		for _, s := range tc.steps {
			for range s.times {
				at, total = at.Add(s.after), total+s.bytes
				r.Observe(at, total)
			}
		}
		if got := r.BPS(); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
		if len(r.samples) > 5 {
			t.Errorf("%s: %d samples of a second", tc.name, len(r.samples))
		}
	}
}

// After a silence in which nobody looked, the rate is of what was sent since.
func TestRateResumes(t *testing.T) {
	var r Rate
	r.Resume(epoch) // nothing to resume
	r.Observe(epoch, 1000)
	r.Resume(epoch.Add(time.Hour))
	r.Observe(epoch.Add(time.Hour+time.Second), 126_000)
	if got := r.BPS(); got != 1_000_000 {
		t.Errorf("rate %d", got)
	}
}
