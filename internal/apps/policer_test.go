package apps

import (
	"fmt"
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

// stream is packets of one size (with headers) that are sent in groups, every so often.
type stream struct {
	size, group int
	every       time.Duration
}

// of returns a stream of so many bits a second.
func of(bps float64, size, group int) stream {
	return stream{size, group, time.Duration(8e9 * float64(size*group) / bps)}
}

// play sends streams as one flow, packet by packet, for as long as given, and returns when its
// class changes.
func (p *EFPolicer) play(long time.Duration, streams ...stream) (changes []time.Duration) {
	due, last, bulk := make([]time.Duration, len(streams)), time.Duration(0), p.bulk
	for {
		next := 0
		for i := range due {
			if due[i] < due[next] {
				next = i
			}
		}
		at := due[next]
		if at >= long {
			return changes
		}
		for range streams[next].group {
			if is := p.Sent(at-last, 1, uint64(streams[next].size)); is != bulk {
				bulk, changes = is, append(changes, at)
			}
			last = at
		}
		due[next] += streams[next].every
	}
}

// The verdicts of docs/classifier.md for what is neither a call nor a transfer, for a minute.
func TestEFVerdicts(t *testing.T) {
	const second = time.Second
	voice := of(85_600, 214, 1)
	for name, c := range map[string]struct {
		streams []stream
		by      time.Duration // it is bulk by then and stays so; 0: it is EF for all of the minute
	}{
		"a game of 2 Mbit/s, in packets of 250 bytes":       {[]stream{of(2e6, 250, 1)}, 6 * second},
		"a game of 2 Mbit/s, in packets of 600 bytes":       {[]stream{of(2e6, 600, 1)}, second / 2},
		"a replayed game of 2 Mbit/s, 60 times a second":    {[]stream{of(2e6, 1042, 4)}, second / 5},
		"a screen share of 2 Mbit/s, 15 times a second":     {[]stream{of(2e6, 1200, 14)}, second / 10},
		"a call with video of 1 Mbit/s in one flow":         {[]stream{voice, of(1e6, 1200, 4)}, second / 4},
		"a call with video of 150 kbit/s in one flow":       {[]stream{voice, of(150e3, 1200, 1)}, 3 * second},
		"the audio of a call in a flow of its own":          {[]stream{voice}, 0},
		"the video of a call in a flow of its own":          {[]stream{of(1e6, 1200, 4)}, second / 4},
		"a game of 300 kbit/s, in packets of 600 bytes":     {[]stream{of(300e3, 600, 1)}, 0},
		"name queries, answers of 512 bytes, 80 a second":   {[]stream{{554, 1, second / 80}}, 0},
		"a hundred rows of a database, ten times a second":  {[]stream{{400, 1, second / 10}}, 0},
		"an answer of 10 KB from a database, every 4 hours": {[]stream{{1514, 7, 4 * 3600 * second}}, 0},
	} {
		changes := new(EFPolicer).play(60*second, c.streams...)
		if bulk := len(changes) == 1 && changes[0] <= c.by; len(changes) > 0 && !bulk || c.by > 0 && !bulk {
			t.Errorf("%s: its class changes at %v, want once by %v (0s: never)", name, changes, c.by)
		}
	}
	// A database's answer of 1 MB: 16 KiB of it are EF, the rest is BE, and what follows soon; queries
	// are EF again after seconds of quiet.
	var p EFPolicer
	urgent := 0
	for range 1_000_000 / 1448 {
		if !p.Sent(0, 1, 1514) {
			urgent += 1514
		}
	}
	if urgent > largeBytes || urgent < largeBytes-1514 || !p.Sent(time.Second, 1, 214) {
		t.Errorf("of a database's answer of 1 MB %d bytes are EF, or the next query is", urgent)
	}
	if p.Sent(10*time.Second, 0, 0); p.Sent(0, 1, 214) {
		t.Error("ten seconds after a database's answer of 1 MB a query is not EF")
	}
}

// A flow does not oscillate: a steady one changes its class once at most, and one of bursts, whatever
// they are, at most 7 times a minute to BE and as often back.
func TestEFHysteresis(t *testing.T) {
	const minute, most = time.Minute, 2 * 7
	for _, size := range []int{90, 214, 400, 600, 1000, 1200, 1514} {
		full := min(float64(size)/fullBytes, 1)
		edge := min(largeRateBPS/(full*full), allRateBPS)
		for _, part := range []float64{0.5, 0.9, 0.98, 1, 1.02, 1.1, 2} {
			if changes := new(EFPolicer).play(10*minute, of(part*edge, size, 1)); len(changes) > 1 {
				t.Errorf("packets of %d bytes at %.2f of the edge change their class %d times: %v", size, part, len(changes), changes)
			}
		}
	}
	worst := ""
	highest := 0
	for _, size := range []int{214, 600, 1514} {
		for _, group := range []int{1, 4, 11, 12, 44, 307, 1000} {
			for every := time.Second; every < 15*time.Second; every += every / 20 {
				changes := new(EFPolicer).play(2*minute, stream{size, group, every})
				from := 0
				for to, at := range changes {
					for at-changes[from] >= minute {
						from++
					}
					if n := to - from + 1; n > highest {
						highest, worst = n, fmt.Sprintf("%d packets of %d bytes every %v", group, size, every)
					}
				}
			}
		}
	}
	t.Logf("%s change their class most often: %d times a minute", worst, highest)
	if highest > most || highest < 2 {
		t.Errorf("%s change their class %d times a minute, want at most %d", worst, highest, most)
	}
}
