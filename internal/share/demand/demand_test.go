package demand

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestWindow(t *testing.T) {
	for _, tc := range []struct {
		rateBPS uint64
		want    time.Duration
	}{
		{10e9, 30 * time.Millisecond},
		{10e6, 30 * time.Millisecond},
		{4.1e6, 30 * time.Millisecond},
		{1e6, 121120 * time.Microsecond},
		{100e3, time.Second},
		{0, time.Second},
	} {
		if got := Window(tc.rateBPS); got != tc.want {
			t.Errorf("at %d bit/s: %s, want %s", tc.rateBPS, got, tc.want)
		}
	}
}

// observe is one look, with a sample of the queue.
func (m *Meter) observe(now time.Time, window time.Duration, offeredBytes, backlogBytes uint64) bool {
	m.Offer(now, window, offeredBytes)
	m.Queued(backlogBytes)
	return m.Decide(now)
}

// One look each, every 10 ms.
func TestLooks(t *testing.T) {
	const unlimited = alloc.Unlimited
	type look struct {
		bytes, backlog uint64
		want           uint64
	}
	for _, tc := range []struct {
		name  string
		looks []look
	}{
		{"silence", []look{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
		{"greedy from the first moment", []look{{1000, 500, 0}, {2000, 500, unlimited}, {3000, 1, unlimited}}},
		{
			"a queue seen once proves nothing",
			[]look{{0, 0, 0}, {0, 500, 0}, {0, 0, 0}, {0, 500, 0}, {0, 0, 0}, {0, 500, 0}, {0, 500, unlimited}},
		},
		{
			"nor does an empty one", // 12500 bytes in 10 ms are 10 Mbit/s
			[]look{{0, 9, 0}, {12500, 9, unlimited}, {25000, 0, unlimited}, {37500, 9, unlimited}, {50000, 0, unlimited}, {62500, 0, 10_500_000}},
		},
		{
			"a steady rate has five percent of headroom",
			[]look{{0, 0, 0}, {12500, 0, 10_500_000}, {25000, 0, 10_500_000}, {37500, 0, 10_500_000}},
		},
		{
			"what a frame explains changes nothing, more does", // 10, 9.33, 9, 11 and 12 Mbit/s over three looks
			[]look{
				{0, 0, 0}, {12500, 0, 10_500_000}, {25000, 0, 10_500_000}, {35000, 0, 10_500_000}, {46250, 0, 10_500_000},
				{66250, 0, 10_500_000}, {80000, 0, 12_600_000}, {80000, 0, 9_450_000}, {80000, 0, 3_850_000}, {80000, 0, 0},
			},
		},
		{"counters that start anew are no rate", []look{{1e6, 0, 0}, {2e6, 0, 840_000_000}, {0, 0, 0}, {0, 0, 0}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var m Meter
			before := uint64(0)
			for i, l := range tc.looks {
				changed := m.observe(epoch.Add(time.Duration(i)*10*time.Millisecond), MinWindow, l.bytes, l.backlog)
				if max(m.DemandBPS, l.want)-min(m.DemandBPS, l.want) > 1 { // rounding
					t.Errorf("look %d: %d, want %d", i, m.DemandBPS, l.want)
				}
				if changed != (m.DemandBPS != before) {
					t.Errorf("look %d: %d after %d, and changed is %t", i, m.DemandBPS, before, changed)
				}
				if m.LastOffered() != l.bytes {
					t.Errorf("look %d: last offered %d", i, m.LastOffered())
				}
				before = m.DemandBPS
			}
		})
	}
}

// sender is one whose packets the meter looks at, at times that the agent does
// not keep exactly.
type sender struct {
	t        *rapid.T
	meter    Meter
	window   time.Duration
	now      time.Time
	offered  float64
	rateBPS  float64
	changes  int
	interval time.Duration
}

func newSender(t *rapid.T, linkBPS uint64) *sender {
	return &sender{
		t: t, window: Window(linkBPS), now: epoch, interval: 10 * time.Millisecond,
		offered: float64(rapid.Uint64Range(0, 1<<50).Draw(t, "sent before")),
	}
}

// look lets time pass and looks; whole frames count.
func (s *sender) look(backlogBytes uint64) {
	step := s.interval + time.Duration(rapid.Int64Range(0, int64(5*time.Millisecond)).Draw(s.t, "late by"))
	s.now = s.now.Add(step)
	s.offered += s.rateBPS / 8 * step.Seconds()
	frames := uint64(s.offered) / sched.FrameBytes
	if s.meter.observe(s.now, s.window, frames*sched.FrameBytes, backlogBytes) {
		s.changes++
	}
}

func (s *sender) lookFor(d time.Duration, backlogBytes uint64) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.look(backlogBytes)
	}
}

// A sender that gets all it wants is allowed for what it sends and some
// headroom: soon for about that, and after a while for exactly that.
func TestOfSteadySender(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		link := uint64(rapid.SampledFrom([]float64{1e6, 10e6, 100e6, 1e9, 10e9}).Draw(t, "link"))
		s := newSender(t, link)
		s.rateBPS = float64(link) * rapid.Float64Range(0.001, 0.9).Draw(t, "part of the link")
		s.lookFor(2*s.window, 0)

		// A frame more or less in the window is what a rate cannot tell.
		frame := sched.FrameBytes * 8 / s.window.Seconds()
		for end := s.now.Add(3 * longWindow); s.now.Before(end); {
			s.look(0)
			got := float64(s.meter.SteadyBPS())
			if got < s.rateBPS-(chanceFrames+1)*frame || got > s.rateBPS*1.15+chanceFrames*frame {
				t.Fatalf("%.0f bit/s sent, %.0f allowed for (a frame is %.0f)", s.rateBPS, got, frame)
			}
		}
		// The same of the long window.
		frame = sched.FrameBytes * 8 / (2 * longWindow).Seconds()
		s.changes = 0
		for range 100 {
			s.look(0)
			got := float64(s.meter.SteadyBPS())
			if got < s.rateBPS-frame-1 || got > s.rateBPS+frame+1 {
				t.Fatalf("%.0f bit/s sent, %.0f taken for it (a frame is %.0f)", s.rateBPS, got, frame)
			}
			if s.changes > 0 && !s.meter.Settled(s.now) {
				t.Fatal("a steady sender leaves doubt")
			}
		}
	})
}

func TestOfGreedySender(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSender(t, 100e6)
		s.rateBPS = rapid.Float64Range(0, 50e6).Draw(t, "before")
		s.lookFor(rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond, time.Second}).Draw(t, "for"), 0)
		s.rateBPS = 100e6
		backlog := rapid.Uint64Range(1, 1<<20)
		for range agreeingSamples {
			s.look(backlog.Draw(t, "backlog"))
		}
		if s.meter.DemandBPS != alloc.Unlimited || !s.meter.WantsMore() {
			t.Fatalf("demand %d after %d looks at a queue", s.meter.DemandBPS, agreeingSamples)
		}
		s.changes = 0
		s.lookFor(time.Second, 1500)
		if s.changes > 0 {
			t.Fatalf("%d changes while nothing changed", s.changes)
		}
	})
}

// A sender that stops is forgotten within the short window and two looks, as
// everybody waits for what it leaves; if it sent less than a few frames in that
// time, when the long window has passed.
func TestOfSenderThatStops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		link := uint64(rapid.SampledFrom([]float64{1e6, 100e6, 10e9}).Draw(t, "link"))
		s := newSender(t, link)
		s.rateBPS = float64(link) * rapid.Float64Range(0.01, 1).Draw(t, "part of the link")
		s.lookFor(3*s.window, rapid.SampledFrom([]uint64{0, 1500}).Draw(t, "backlog"))
		patience := s.window
		if s.rateBPS*s.window.Seconds() < 3*sched.FrameBytes*8 {
			patience = 2 * longWindow
		}
		s.rateBPS = 0
		stopped := s.now
		for s.meter.DemandBPS > 0 {
			s.look(0)
			if s.now.Sub(stopped) > patience+2*15*time.Millisecond {
				t.Fatalf("demand %d at %s after the last packet", s.meter.DemandBPS, s.now.Sub(stopped))
			}
		}
	})
}

// The meter's memory is one window, however long it runs.
func TestKeepsOneWindow(t *testing.T) {
	var m Meter
	for i := range 10_000 {
		m.observe(epoch.Add(time.Duration(i)*10*time.Millisecond), MinWindow, uint64(i), 0)
	}
	if len(m.samples) > 5 || cap(m.samples) > 16 {
		t.Errorf("%d samples in room for %d", len(m.samples), cap(m.samples))
	}
}

// A queue is only asked for where the rate leaves room for doubt.
func TestDoubts(t *testing.T) {
	const allocated = 40_000_000 // bit/s; 50000 bytes in 10 ms
	for _, tc := range []struct {
		name    string
		perLook uint64 // bytes in 10 ms
		lackBPS uint64 // of one that wanted more
		lately  uint64 // the same, shortly after a change
		more    bool   // of one that had all it wants
	}{
		{"offers all it may send", 50_000, 0, 0, true},
		{"offers far more, which is dropped", 150_000, 0, 0, true},
		{"nearly all", 49_500, 0, 400_000, true},
		{"all but the headroom", 47_500, 0, 2_000_000, false},
		{"wavers", 40_000, 0, 8_000_000, false},
		{"slows down", 34_000, 12_800_000, 12_800_000, false},
		{"sends nothing", 0, 40_000_000, 40_000_000, false},
	} {
		var m Meter
		at := epoch
		for i := range uint64(6) {
			at = at.Add(10 * time.Millisecond)
			m.Offer(at, MinWindow, i*tc.perLook)
		}
		if got := m.LackBPS(at, allocated); got != tc.lackBPS {
			t.Errorf("%s: lacks %d", tc.name, got)
		}
		if got := m.MayWantMore(at, allocated); got != tc.more {
			t.Errorf("%s: may want more: %t", tc.name, got)
		}
		// Shortly after a change, everything is in doubt.
		m.Doubt(at.Add(-SettledAfter))
		if got := m.LackBPS(at, allocated); got != tc.lately {
			t.Errorf("%s, after a change: lacks %d", tc.name, got)
		}
		if !m.MayWantMore(at, allocated) {
			t.Errorf("%s, after a change: no doubt", tc.name)
		}
	}
}

// Without samples of the queue the estimate follows the rate, and belief stays.
func TestWithoutSamples(t *testing.T) {
	var m Meter
	at, sum := epoch, uint64(0)
	look := func(backlog int) {
		at, sum = at.Add(10*time.Millisecond), sum+12_500 // 10 Mbit/s
		m.Offer(at, MinWindow, sum)
		if backlog >= 0 {
			m.Queued(uint64(backlog))
		}
		m.Decide(at)
	}
	for range 5 {
		look(-1)
	}
	if m.DemandBPS != 10_500_000 {
		t.Errorf("demand %d of a sender nobody doubts", m.DemandBPS)
	}
	look(1500)
	look(1500)
	for range 5 {
		look(-1)
	}
	if m.DemandBPS != alloc.Unlimited {
		t.Errorf("demand %d of one that wanted more", m.DemandBPS)
	}
}

// A pause is not part of the rate that follows it.
func TestResumes(t *testing.T) {
	var m Meter
	m.Resume(epoch) // knows nothing: nothing happens
	m.Offer(epoch, MinWindow, 5000)
	later := epoch.Add(time.Hour)
	m.Resume(later)
	m.Offer(later.Add(10*time.Millisecond), MinWindow, 5000+12_500)
	m.Decide(later)
	if m.DemandBPS != 10_500_000 || m.RateBPS() != 10_000_000 {
		t.Errorf("demand %d at a rate of %d", m.DemandBPS, m.RateBPS())
	}
}
