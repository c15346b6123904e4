package identity

import (
	"testing"
	"time"
)

// A flow's silence is told apart from a packet that came after the time was taken, up
// to the whole turn of the clock.
func TestSince(t *testing.T) {
	for _, tc := range []struct {
		now, then uint32
		want      time.Duration
	}{
		{now: 100, then: 90, want: 10 << 20},
		{now: 5, then: ^uint32(0), want: 6 << 20},
		{now: 100, then: 103, want: 0},
		{now: 3e9, then: 0, want: 3e9 << 20},
	} {
		w := flowWeirFlow{BeganMs: tc.then}
		f := w.flow(tc.now, tc.then)
		if f.Idle != tc.want || f.Age != tc.want {
			t.Errorf("at %d, seen at %d: idle for %v, age %v, want %v", tc.now, tc.then, f.Idle, f.Age, tc.want)
		}
	}
}
