package loop

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
)

func TestLatency(t *testing.T) {
	for _, tc := range []struct {
		name     string
		linkBPS  uint64
		min      string
		latency  string
		smallest time.Duration // 0: it can be kept
	}{
		{"plenty", 100e6, "10mbit", "20ms", 0},
		// 2000 bits: a packet of 200 bytes is within it, a full frame is not.
		{"CNTC's own numbers", 100e6, "100kbit", "20ms", 0},
		{"just above two packets on the link", 100e6, "10mbit", "501us", 0},
		{"below two packets on the link", 100e6, "90mbit", "400us", 500001 * time.Nanosecond},
		{"the slow link's frame", 1e6, "900kbit", "20ms", 24224001 * time.Nanosecond},
	} {
		b := newBench(t, tc.linkBPS)
		c := b.start("c", "min="+tc.min, "latency="+tc.latency)
		state, reason := c.container.state()
		if tc.smallest == 0 {
			if c.latency == 0 || c.wanted().Latency != c.latency || state != v1.StateOK {
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
		trial := b.trialOf(c.container)
		if err := trial.admit(trial.policy, trial.policy, trial.shares, true, true); err == nil || err.Error() != c.refusedLatency.Error() {
			t.Errorf("%s: a request is answered %v", tc.name, err)
		}
	}

	// Without the minimum there is nothing to keep the bound with.
	b := newBench(t, 100e6)
	b.start("a", "min=90mbit")
	c := b.start("c", "min=50mbit", "latency=20ms")
	if state, reason := c.container.state(); c.latency != 0 || state != v1.StateRejected || !strings.Contains(reason, "without the minimum rate, which was refused") {
		t.Errorf("the minimum was refused: %s in force, %s, %q", c.latency, state, reason)
	}
}

// fakeDelays has counted what it was given.
type fakeDelays struct {
	histogram identity.Histogram
	paused    bool
	err       error
	keeps     func(number uint16) bool
}

func (d *fakeDelays) Close() error  { return nil }
func (d *fakeDelays) Pause() error  { d.paused = true; return d.err }
func (d *fakeDelays) Resume() error { d.paused = false; return d.err }

func (d *fakeDelays) Keep(keep func(number uint16) bool) { d.keeps = keep }

func (d *fakeDelays) Read(_ uint16, dst *identity.Histogram) error {
	*dst = d.histogram
	return d.err
}

func (d *fakeDelays) ReadClass(_ uint16, class sched.TrafficClass, dst *identity.Histogram) error {
	*dst = identity.Histogram{}
	if class == sched.EF {
		*dst = d.histogram
	}
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
	(*[16]uint32)(unsafe.Pointer(&measured.histogram))[10] = 100 // packets in one of its buckets
	want := measured.histogram.Quantile(0.99)
	if c.delay.turn(c); c.delay.older != newer || c.delay.newer != older {
		t.Error("the window does not move")
	}
	// Two periods are seen, the first of them here and in the next.
	for range 2 {
		if p99 := c.measured.p99; p99 != want || want == 0 {
			t.Errorf("shows %s, want %s", p99, want)
		}
		c.delay.turn(c)
	}
	if c.measured.p99 != 0 {
		t.Errorf("shows %s of a period that is long over", c.measured.p99)
	}
	measured.err = errors.New("gone")
	if c.delay.turn(c); c.delay.older != nil {
		t.Error("measures what cannot be read")
	}
	if c.measured.p50 != 0 || c.measured.p99 != 0 {
		t.Errorf("shows %s and %s", c.measured.p50, c.measured.p99)
	}
	measured.err = nil
	if c.delay.turn(c); c.delay.older == nil {
		t.Error("a window whose reading failed once does not begin again")
	}
	b.link.forgetMeasurements(uplink.Change{Classified: true})
	if c.delay.turn(c); c.delay.older == nil {
		t.Error("a window of a classifier that was replaced does not begin again")
	}
	b.link.forgetMeasurements(uplink.Change{Classified: true})
	c.active = false
	if c.delay.turn(c); c.delay.older != nil {
		t.Error("delays of a silent container are read")
	}
}

// Delays of a container are kept as long as it is there.
func TestDelaysOfGoneContainers(t *testing.T) {
	b := newBench(t, 100e6)
	measured := &fakeDelays{}
	b.useDelays(measured)
	c, gone := b.start("c"), b.start("gone")
	number := gone.container.Number
	b.containers.forget(gone.container)
	b.reconcile()
	if measured.keeps == nil || measured.keeps(number) || !measured.keeps(c.container.Number) || !measured.keeps(identity.NumberHost) {
		t.Error("keeps delays of a container that is gone, or drops those of one that is there or of the host")
	}
}

// Delays are measured for a part of the time, while somebody sends.
func TestDelaysArePaused(t *testing.T) {
	b := newBench(t, 100e6)
	measured := &fakeDelays{}
	b.useDelays(measured)
	c := b.start("c")
	l := newWire(b)
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
