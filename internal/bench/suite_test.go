package bench

import (
	"regexp"
	"testing"
	"time"
)

// TestPapersCases compares the ideal of qCon's cases with its text, which
// rounds and measures goodput: within 15 %.
func TestPapersCases(t *testing.T) {
	found := 0
	for _, c := range qconSuite(Options{RateBPS: 100e6}) {
		ideal := c.ideal(0)
		for i, one := range c.Containers {
			if one.PaperMbps == 0 {
				continue
			}
			found++
			if ratio := one.PaperMbps * 1e6 / float64(ideal[i]); ratio < 0.85 || ratio > 1.15 {
				t.Errorf("%s, %s: paper %v Mbit/s, ideal %.1f", c.ID(), one.Name, one.PaperMbps, float64(ideal[i])/1e6)
			}
		}
	}
	if found != 9 {
		t.Errorf("%d numbers of the paper, want 9", found)
	}
}

func TestSuitesAreSound(t *testing.T) {
	options := Options{RateBPS: 100e6, Duration: time.Second, Seed: 1}
	for _, name := range SuiteNames() {
		seen := map[string]bool{}
		for _, c := range suites[name](options) {
			if seen[c.ID()] {
				t.Errorf("%s: case %q twice", name, c.ID())
			}
			seen[c.ID()] = true
			for _, change := range c.Changes {
				if change.At >= c.Length {
					t.Errorf("%s, %s: a change after the end", name, c.ID())
				}
			}
			var sum uint64
			for _, bps := range c.ideal(0) {
				sum += bps
			}
			if sum > c.LinkBPS {
				t.Errorf("%s, %s: the ideal is more than the link", name, c.ID())
			}
		}
	}
}

func TestCasesRefusesNonsense(t *testing.T) {
	good := Options{Suite: "cap", RateBPS: 100e6, Duration: time.Second, Repeat: 1, Overload: 1.5}
	if cases, err := good.Cases(); err != nil || len(cases) != 6 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for name, spoil := range map[string]func(*Options){
		"suite":    func(o *Options) { o.Suite = "speed" },
		"peer":     func(o *Options) { o.Peers = []string{PeerHTB, "cake"} },
		"repeat":   func(o *Options) { o.Repeat = 0 },
		"duration": func(o *Options) { o.Duration = 0 },
		"warm-up":  func(o *Options) { o.Warmup = -1 },
		"overload": func(o *Options) { o.Overload = 1 },
		"only":     func(o *Options) { o.Only = regexp.MustCompile("figure 99") },
	} {
		options := good
		spoil(&options)
		if _, err := options.Cases(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestChangeTimes(t *testing.T) {
	c := startStopCase("udp", 100e6)
	var got []time.Duration
	for _, at := range c.changeTimes() {
		got = append(got, at/time.Millisecond)
	}
	want := []time.Duration{0, 1000, 2000, 3000, 3500, 3800, 5000}
	if len(got) != len(want) {
		t.Fatalf("changes at %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("changes at %v, want %v", got, want)
		}
	}
	if text := c.describeChange(2 * time.Second); text != "C3 starts" {
		t.Errorf("change at 2 s is %q", text)
	}
	// C1 alone, then 1:2, then 1:2:3.
	for at, share := range map[time.Duration]uint64{500: 100e6, 1500: 33333333, 2500: 16666667} {
		if ideal := c.ideal(at * time.Millisecond); ideal[0]/10 != share/10 {
			t.Errorf("C1's ideal at %d ms is %d, want %d", at, ideal[0], share)
		}
	}
}

func TestHTBClasses(t *testing.T) {
	classes := htbClasses([]Container{
		{Weight: 1, MinBPS: 30e6}, {Weight: 2}, {Weight: 3, MaxBPS: 15e6},
	}, 100e6)
	want := []htbClass{
		{rateBPS: 30e6, ceilBPS: 100e6, quantumBytes: 1514},
		{rateBPS: 54.9e6, ceilBPS: 100e6, quantumBytes: 3028},
		{rateBPS: 15e6, ceilBPS: 15e6, quantumBytes: 4542},
	}
	for i := range want {
		if classes[i] != want[i] {
			t.Errorf("class %d is %+v, want %+v", i, classes[i], want[i])
		}
	}
}

func TestParseCPUBusy(t *testing.T) {
	busy, err := parseCPUBusy("cpu  100 10 200 5000 700 3 7 50 9 9")
	if want := 3200 * time.Millisecond; err != nil || busy != want {
		t.Errorf("busy %v, %v; want %v", busy, err, want)
	}
	if _, err := parseCPUBusy("intr 1 2 3"); err == nil {
		t.Error("read CPU times from another line")
	}
}
