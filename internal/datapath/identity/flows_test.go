package identity

import (
	"testing"
	"time"
)

// Whose a packet is does not depend on how long they have run.
func TestIsHolders(t *testing.T) {
	const day = 24 * 3600 * 1000
	for _, tc := range []struct {
		what             string
		now, seen, since uint32
		want             bool
	}{
		{"seen lately, of who came before that", 2000, 1900, 1000, true},
		{"seen before the number was given", 2000, 900, 1000, false},
		{"seen too long ago", 400000, 1000, 0, false},
		{"of who has run for 30 days", 30 * day, 30*day - 1000, 0, true},
		{"of who has run for 30 days, over the end of the clock", 29 * day, 29*day - 1000, ^uint32(0) - day + 1, true},
		{"seen 30 days ago", 31 * day, day, 0, false},
		{"seen since the time was taken", 2000, 2005, 1000, true},
	} {
		if got := isHolders(tc.now, tc.seen, tc.since); got != tc.want {
			t.Errorf("%s: %t", tc.what, got)
		}
	}
}

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
