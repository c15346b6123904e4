package stats

import (
	"testing"
	"time"
)

func TestTurns(t *testing.T) {
	var turns Turns
	now := time.Now()
	for _, after := range []time.Duration{0, 10, 11, 55, 56, 2000, -5} {
		now = now.Add(after * time.Millisecond)
		turns.Begin(now)
	}
	view := turns.View()
	if view.Count != 6 || view.SumSeconds < 2.131 || view.SumSeconds > 2.133 {
		t.Errorf("%d turns in %f s", view.Count, view.SumSeconds)
	}
	for _, bucket := range view.Buckets {
		want := map[float64]uint64{0.01: 2, 0.012: 3, 0.05: 3, 0.055: 4, 0.06: 5, 1: 5}
		if n, ok := want[bucket.UpToSeconds]; ok && n != bucket.Count {
			t.Errorf("up to %f s: %d, want %d", bucket.UpToSeconds, bucket.Count, n)
		}
	}
}
