package apps

import (
	"testing"
	"time"
)

// What a flow sends decides whether it keeps EF, and a bulk flow has it back after seconds of quiet.
func TestEFPolicer(t *testing.T) {
	for name, c := range map[string]struct {
		bps   float64
		frame uint64
		bulk  bool
	}{
		"G.711":                        {85_600, 214, false},
		"a game of small packets":      {1_800_000, 250, false},
		"a server of 64 ticks":         {300_000, 500, false},
		"more than small packets need": {2_500_000, 214, true},
		"a screen share":               {2_000_000, 1200, true},
		"one of fifty uploads":         {200_000, 1514, true},
		"an upload":                    {10_000_000, 1514, true},
		"a trickle of full packets":    {50_000, 1514, false},
	} {
		var p EFPolicer
		const every = 100 * time.Millisecond
		bulkAt := time.Duration(-1)
		for at := time.Duration(0); at < 30*time.Second && bulkAt < 0; at += every {
			bytes := uint64(c.bps / 8 * every.Seconds())
			if p.Sent(every, max(bytes/c.frame, 1), bytes) {
				bulkAt = at
			}
		}
		if (bulkAt >= 0) != c.bulk {
			t.Errorf("%s: bulk after %v, want %v", name, bulkAt, c.bulk)
		}
		if !c.bulk {
			continue
		}
		for _, step := range []struct {
			silent time.Duration
			bulk   bool
		}{{7 * time.Second, true}, {3 * time.Second, false}} {
			if got := p.Sent(step.silent, 0, 0); got != step.bulk {
				t.Errorf("%s: after another %v of silence bulk is %v", name, step.silent, got)
			}
		}
	}
	var p EFPolicer
	if p.Sent(0, 10, 10*1514) || !p.Sent(0, 1, 1514) {
		t.Error("TCP's first ten segments (RFC 6928) are bulk, or one more is not")
	}
}
