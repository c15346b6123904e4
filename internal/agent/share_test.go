package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/identity"
)

// A guarantee is cut by a 256th at most, by two once the entitlement has
// changed, and never below the minimum.
func TestGuarantee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s share
		steps := uint64(1)
		for range 3 {
			bps := rapid.Uint64Range(0, 100e9).Draw(t, "bps")
			s.admittedBPS = rapid.Uint64Range(0, bps).Draw(t, "minimum")
			s.guarantee(bps)
			if s.guaranteedBPS > bps || s.guaranteedBPS < bps-steps*(bps/guaranteeSteps) || s.guaranteedBPS < s.admittedBPS {
				t.Fatalf("%d of %d, minimum %d", s.guaranteedBPS, bps, s.admittedBPS)
			}
			steps = 2
		}
	})
}

// Small changes of the entitlement seldom change the guarantee.
func TestGuaranteeStays(t *testing.T) {
	changes := func(containers func(n int) int, turns int) int {
		var s share
		s.guarantee(100e6 / uint64(containers(0)))
		changes := 0
		for n := range turns {
			before := s.guaranteedBPS
			if s.guarantee(100e6 / uint64(containers(n+1))); s.guaranteedBPS != before {
				changes++
			}
		}
		return changes
	}
	// 500 containers more, one after the other, halve it, step by step.
	if n := changes(func(n int) int { return 500 + n }, 500); n > guaranteeSteps {
		t.Errorf("500 containers more changed everybody's guarantee %d times", n)
	}
	// Wherever a thousand stand, one that comes and goes soon changes nothing.
	for base := range 500 {
		if n := changes(func(n int) int { return 1000 + base + n%2 }, 1000); n > 1 {
			t.Errorf("one that comes and goes beside %d changed everybody's guarantee %d times", 1000+base, n)
		}
	}
}

func TestLatency(t *testing.T) {
	for _, tc := range []struct {
		name     string
		linkBPS  uint64
		min      string
		latency  string
		smallest time.Duration // 0: it can be kept
	}{
		{"plenty", 100e6, "10mbit", "20ms", 0},
		{"the smallest at 10mbit, a frame's time", 100e6, "10mbit", "1212us", 0},
		{"below", 100e6, "10mbit", "1ms", 1211201 * time.Nanosecond},
		{"below two packets on the link", 100e6, "90mbit", "400us", 500001 * time.Nanosecond},
		{"the slow link's frame", 1e6, "900kbit", "20ms", 24224001 * time.Nanosecond},
	} {
		b := newBench(t, tc.linkBPS)
		c := b.start("c", "min="+tc.min, "latency="+tc.latency)
		state, reason := c.state()
		if tc.smallest == 0 {
			if c.latency == 0 || c.class().Latency != c.latency || state != v1.StateOK {
				t.Errorf("%s: %s in force, %s, %q", tc.name, c.latency, state, reason)
			}
			continue
		}
		var refusal *alloc.LatencyError
		if !errors.As(c.refusedLatency, &refusal) || refusal.Min != tc.smallest {
			t.Errorf("%s: refused with %v", tc.name, c.refusedLatency)
		}
		if c.latency != 0 || state != v1.StateRejected || !strings.Contains(reason, "latency") {
			t.Errorf("%s: %s in force, %s, %q", tc.name, c.latency, state, reason)
		}
		// And a request is refused with the same words.
		if err := c.admits(c.policy()); err == nil || err.Error() != c.refusedLatency.Error() {
			t.Errorf("%s: a request is answered %v", tc.name, err)
		}
	}

	// Without the minimum there is nothing to keep the bound with.
	b := newBench(t, 100e6)
	b.start("a", "min=90mbit")
	c := b.start("c", "min=50mbit", "latency=20ms")
	if state, reason := c.state(); c.latency != 0 || state != v1.StateRejected || !strings.Contains(reason, "without a minimum rate") {
		t.Errorf("the minimum was refused: %s in force, %s, %q", c.latency, state, reason)
	}
}

// fakeDelays has counted what it was given.
type fakeDelays struct {
	histogram identity.Histogram
	paused    bool
	err       error
}

func (d *fakeDelays) Close() error  { return nil }
func (d *fakeDelays) Pause() error  { d.paused = true; return d.err }
func (d *fakeDelays) Resume() error { d.paused = false; return d.err }

func (d *fakeDelays) Read(_ uint16, dst *identity.Histogram) error {
	*dst = d.histogram
	return d.err
}

// Delays are shown while something is sent, and where they can be read.
func TestDelayWindow(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.start("c")
	measured := &fakeDelays{}
	if c.wake(epoch); c.delay.older != nil {
		t.Error("measures where the kernel cannot")
	}
	b.useDelays(measured)
	c.wake(epoch)
	if c.delay.older == nil || c.delay.newer == nil {
		t.Fatal("does not measure")
	}
	older, newer := c.delay.older, c.delay.newer
	if c.delay.turn(c); c.delay.older != newer || c.delay.newer != older {
		t.Error("the window does not move")
	}
	measured.err = errors.New("gone")
	if c.delay.turn(c); c.delay.older != nil {
		t.Error("measures what cannot be read")
	}
	if p50, p99 := c.delay.quantiles(c); p50 != 0 || p99 != 0 {
		t.Errorf("shows %s and %s", p50, p99)
	}
}

// Delays are measured for a part of the time, while somebody sends.
func TestDelaysArePaused(t *testing.T) {
	b := newBench(t, 100e6)
	measured := &fakeDelays{}
	b.useDelays(measured)
	c := b.start("c")
	l := newLink(b)
	running := func(d time.Duration) (part float64) {
		const step = 50 * time.Millisecond
		for range d / step {
			l.run(step)
			if !measured.paused {
				part += step.Seconds() / d.Seconds()
			}
		}
		return part
	}
	l.run(time.Second)
	if part := running(4 * time.Second); part > 0 {
		t.Errorf("silence is measured %.0f %% of the time", 100*part)
	}
	l.greedy[c] = true
	l.run(time.Second)
	if part := running(4 * time.Second); part < 0.1 || part > 0.15 {
		t.Errorf("measured %.0f %% of the time, want an eighth", 100*part)
	}
	// What is shown always has a period in it.
	periods, ended, older := 0, false, c.delay.older
	for range 160 {
		l.run(50 * time.Millisecond)
		ended = ended || !measured.paused
		if c.delay.older != older {
			if !ended {
				t.Errorf("the window moves without a period, after %d", periods)
			}
			periods, ended, older = periods+1, false, c.delay.older
		}
	}
	if periods != 4 {
		t.Errorf("the window moved %d times in 8 s, want 4", periods)
	}
}

func TestRateMeter(t *testing.T) {
	var m rateMeter
	if got := m.bps(); got != 0 {
		t.Errorf("before any sample: %d", got)
	}
	at, bytes := epoch, uint64(1<<40)
	m.observe(at, bytes)
	if got := m.bps(); got != 0 {
		t.Errorf("after one sample: %d", got)
	}
	step := func(n int, perStep uint64) {
		for range n {
			at, bytes = at.Add(statsInterval), bytes+perStep
			m.observe(at, bytes)
		}
	}
	step(1, 312_500) // 10 Mbit/s
	if got := m.bps(); got != 2_500_000 {
		t.Errorf("after the first 250 ms: %d", got)
	}
	step(20, 312_500)
	if got := m.bps(); got != 10_000_000 {
		t.Errorf("steady: %d", got)
	}
	if len(m.samples) != 5 {
		t.Errorf("%d samples of 250 ms in a second", len(m.samples))
	}
	step(1, 1_250_000) // a second's worth at once
	if got := m.bps(); got != 17_500_000 {
		t.Errorf("burst: %d", got)
	}
	step(5, 0)
	if got := m.bps(); got != 0 {
		t.Errorf("a second after the end: %d", got)
	}
	bytes = 0
	step(1, 100) // the class was made anew
	if got := m.bps(); got != 0 {
		t.Errorf("counters that start anew: %d", got)
	}
	step(6, 312_500)
	if got := m.bps(); got != 10_000_000 {
		t.Errorf("a second later: %d", got)
	}
}
