package stats

import (
	"testing"
	"time"
)

func TestTurns(t *testing.T) {
	var turns Turns
	now := time.Now()
	for _, after := range []time.Duration{0, 10, 11, 55, 56, 501, 2000, -5} {
		now = now.Add(after * time.Millisecond)
		turns.Begin(now)
	}
	view := turns.View()
	if view.Count != 7 || view.SumSeconds < 2.632 || view.SumSeconds > 2.634 {
		t.Errorf("%d turns in %f s", view.Count, view.SumSeconds)
	}
	got := map[float64]uint64{}
	for _, bucket := range view.Buckets {
		got[bucket.UpToSeconds] = bucket.Count
	}
	for upTo, want := range map[float64]uint64{0.01: 2, 0.012: 3, 0.05: 3, 0.055: 4, 0.06: 5, 0.5: 5, 0.6: 6, 1: 6} {
		if got[upTo] != want {
			t.Errorf("up to %f s: %d, want %d", upTo, got[upTo], want)
		}
	}
}
