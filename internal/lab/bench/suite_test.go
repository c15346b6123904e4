package bench

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
)

// TestPapersCases compares the ideal of qCon's cases with its text, which
// rounds: within 10 %.
func TestPapersCases(t *testing.T) {
	found := 0
	for _, c := range qconSuite(Options{RateBPS: 100e6}) {
		ideal := c.ideal(0)
		for i, one := range c.Containers {
			paper := one.Paper.bps(PeerWeir, 0)
			if paper == nil {
				continue
			}
			found++
			if ratio := *paper / float64(ideal[i]); ratio < 0.9 || ratio > 1.1 {
				t.Errorf("%s, %s: paper %.1f Mbit/s, ideal %.1f", c.ID(), one.Name, *paper/1e6, float64(ideal[i])/1e6)
			}
		}
	}
	if found != 11 {
		t.Errorf("%d numbers of the paper, want 11", found)
	}
}

func TestSuitesAreSound(t *testing.T) {
	options := Options{RateBPS: 100e6, Seed: 1, Containers: 50, RunOptions: measure.RunOptions{Duration: time.Second}}
	for _, table := range suites {
		name := table.name
		seen := map[string]bool{}
		for _, c := range table.cases(options) {
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

// Of what comes in each kind of change is seen often, and long enough for TCP; beside it a sender is alone on a
// bottleneck of its share.
func TestReactionOfWhatComesIn(t *testing.T) {
	found := map[string]bool{}
	for _, c := range inSuite(Options{RateBPS: 100e6, Seed: 1, RunOptions: measure.RunOptions{Duration: 5 * time.Second}}) {
		if c.Group != "start and stop" {
			continue
		}
		found[c.Name] = true
		last := c.Containers[len(c.Containers)-1].Load.Active
		if len(last) != 5 || last[0].Until-last[0].From < 900*time.Millisecond {
			t.Errorf("%s: C3 receives in %v", c.Name, last)
		}
		if alone := strings.HasSuffix(c.Name, "alone"); alone && (c.LinkBPS != 50e6 || c.Path.RateBPS != 50e6) || !alone && c.LinkBPS != 100e6 {
			t.Errorf("%s: a link of %d", c.Name, c.LinkBPS)
		}
	}
	if len(found) != 5 {
		t.Errorf("cases %v, want UDP, CUBIC, BBR and those two alone", found)
	}
}

// TestRunsOfWhatComesInAreLongEnough: with short runs, too, a minimum has eight seconds of which the worst is judged, a sparse
// download 500 pings for its p99, seven rounds 20 changes of each kind, and BBR looks at the round trip once, 10 s after the start.
func TestRunsOfWhatComesInAreLongEnough(t *testing.T) {
	options := Options{Suite: "in", RateBPS: 100e6, Overload: 1.5, Containers: 1, RunOptions: measure.RunOptions{Duration: 2 * time.Second, Repeat: 1}}
	cases, err := options.Cases()
	must.Succeed(t, err)
	least := map[string]time.Duration{"a minimum beside 32 flows": 8 * time.Second, "sparse": 5 * time.Second, "a maximum": 2 * time.Second}
	judged := 0
	for _, c := range cases {
		plan := c.timing(options)
		if c.Measures.has(MeasureReaction) {
			if starts := len(c.Containers[len(c.Containers)-1].Load.Active); report.LeastRounds*starts < 20 {
				t.Errorf("%s: %d starts a run", c.ID(), starts)
			}
		} else if least[c.Group] == 0 {
			continue
		}
		judged++
		if window := plan.windowUntil - plan.windowFrom; window < least[c.Group] {
			t.Errorf("%s: a window of %v", c.ID(), window)
		}
		if c.Path != nil && c.Path.CongestionControl == bbr && c.senders() > 0 && plan.windowUntil < 11*time.Second {
			t.Errorf("%s: ends after %v", c.ID(), plan.windowUntil)
		}
	}
	if judged != 4+2+6+5 {
		t.Errorf("%d cases", judged)
	}
}

func TestCasesRefusesNonsense(t *testing.T) {
	good := Options{Suite: "cap", RateBPS: 100e6, Overload: 1.5, Containers: 50, RunOptions: measure.RunOptions{Duration: time.Second, Repeat: 1}}
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
		"few":      func(o *Options) { o.Containers = 0 },
		"many":     func(o *Options) { o.Containers = 1001 },
		"only":     func(o *Options) { o.Only = regexp.MustCompile("figure 99") },
	} {
		options := good
		spoil(&options)
		if _, err := options.Cases(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestMissingPeers: a peer for which this machine lacks a tool is a gap of the report, but a failure where it was asked for by
// name; Weir that is missing always is one.
func TestMissingPeers(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // without go
	cases := []Case{{Peers: []string{PeerNone, PeerCNI, PeerWeir}}}
	for _, named := range [][]string{nil, {PeerNone, PeerCNI, PeerWeir}} {
		peers, skipped, gaps := makePeers(t.Context(), Options{Peers: named, CacheDir: t.TempDir()}, cases)
		found := Report{Skipped: skipped}
		if len(peers) != 1 || peers[0].name != PeerNone || skipped[PeerWeir] == "" || found.Failed() != 1+len(named)/3 || len(gaps) != 1-len(named)/3 {
			t.Errorf("peers named %v: made %v, skipped %v, gaps %v", named, peers, skipped, gaps)
		}
	}
}

func TestChangeTimes(t *testing.T) {
	const s = time.Second
	c := Case{LinkBPS: 100e6, Length: 6 * s, Containers: []Container{
		{Name: "C1", Policy: Policy{Weight: 1}, Load: Load{Protocol: "udp", Active: []Interval{{0, 6 * s}}}},
		{Name: "C2", Policy: Policy{Weight: 2}, Load: Load{Protocol: "udp", Active: []Interval{{s, 5 * s}}}},
		{Name: "C3", Policy: Policy{Weight: 3}, Load: Load{Protocol: "udp", Active: []Interval{{2 * s, 3 * s}, {7 * s / 2, 19 * s / 5}}}},
	}}
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

// TestReactionHasAHundredChanges: the rounds that the suite takes by itself have 100 changes of each kind,
// each with the time to see whether rates stay.
func TestReactionHasAHundredChanges(t *testing.T) {
	for _, c := range reactionSuite(Options{RateBPS: 100e6, Seed: 1, RunOptions: measure.RunOptions{Duration: 10 * time.Second}}) {
		kinds, times := map[string]int{}, append(c.changeTimes(), c.Length)
		for i, at := range times[:len(times)-1] {
			kinds[c.describeChange(at)] += Rounds("reaction")
			if next := times[i+1] - at; next < reactionWindow+reactionTarget+reactionStay {
				t.Errorf("%s: %v from the change at %v to the next", c.ID(), next, at)
			}
		}
		together := c.Group == "start together"
		if want := 5; len(kinds) != want && !together || together && len(kinds) != 1 {
			t.Errorf("%s: changes %v, want the start and four kinds, or one of starts together", c.ID(), kinds)
		}
		for kind, count := range kinds {
			if start := strings.HasPrefix(kind, "C1 starts"); (!start || together) && count != 100 {
				t.Errorf("%s: %d times %s, want 100", c.ID(), count, kind)
			}
		}
	}
}

// TestRatesEndWithTheLastSender: after a start, rates are judged until all stop.
func TestRatesEndWithTheLastSender(t *testing.T) {
	const second = int(time.Second / reactionBin)
	c := Case{Length: 3 * time.Second, LinkBPS: 8e6, Measures: MeasureReaction, Containers: []Container{
		{Name: "C1", Policy: byWeight(1), Load: Load{Protocol: "udp", Active: []Interval{{0, time.Second}, {2 * time.Second, 3 * time.Second}}}},
	}}
	bins := make([]uint64, 3*second)
	for i := range bins {
		if i < second || i >= 2*second {
			bins[i] = 1000
		}
	}
	found := reactions(c, []observation{{Series: [][]uint64{bins}, BinWidth: reactionBin}})
	if len(found) != 1 || found[0].SettledRuns != 2 || found[0].Held.Min != 1 {
		t.Errorf("%+v, want two starts, within 5 %% all the time", found)
	}
}

func TestHTBClasses(t *testing.T) {
	classes := htb{}.classes(Case{Containers: []Container{
		{Policy: Policy{Weight: 1, MinBPS: 30e6}}, {Policy: Policy{Weight: 2}}, {Policy: Policy{Weight: 3, MaxBPS: 15e6}},
	}}, 100e6)
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

// TestLatencyModes: the suite latency has every network mode.
func TestLatencyModes(t *testing.T) {
	cases := latencySuite(Options{RateBPS: 100e6})
	for _, mode := range testbed.Modes {
		if !slices.ContainsFunc(cases, func(c Case) bool { return c.Mode == mode }) {
			t.Errorf("no case in mode %s", mode)
		}
	}
}

// TestHFSCCurves: a minimum is a real-time curve, bent for a latency as in CNTC, section 3.2, and a maximum the upper limit.
func TestHFSCCurves(t *testing.T) {
	for _, tc := range []struct {
		Policy
		want string
	}{
		{Policy{Weight: 1}, "ls m2 50000000bit"},
		{Policy{Weight: 1, MaxBPS: 20e6}, "ls m2 50000000bit ul m2 20000000bit"},
		{Policy{MinBPS: 100e3, LatencyMS: 20}, "rt m1 253549bit d 7888us m2 100000bit ls m2 50000000bit"},
		{Policy{MinBPS: 100e3, LatencyMS: 12}, "rt m2 100000bit ls m2 50000000bit"}, // as long as another's packet takes
	} {
		got := strings.Join(hfscCurves(tc.Policy, htbClass{rateBPS: 50e6, ceilBPS: tc.MaxBPS}, 1e6), " ")
		if got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.Policy, got, tc.want)
		}
	}
}

// TestCNTCIdeals checks the ideals of CNTC's cases, in percent of the link and
// to the nearest one, phase by phase.
func TestCNTCIdeals(t *testing.T) {
	want := map[string][][]uint64{
		"figures 1a and 7a: 6 connections against 1":       {{0, 100}, {50, 50}},
		"figures 1b and 7b: CN2 itself has 16 connections": {{100, 0}},
		"figure 8: priority":                               {{83, 17}},
		"figure 9: start and stop":                         {{20, 40, 40, 0}, {33, 67, 0, 0}, {25, 51, 0, 24}, {33, 67, 0, 0}},
		"figure 10: priority interval":                     {{47, 53, 0, 0, 0, 0, 0, 0, 0, 0}, {14, 86, 0, 0, 0, 0, 0, 0, 0, 0}},
		"figure 11: 80 to 20":                              {{80, 20}},
		"figure 11: one container, bandwidth":              {{100}},
	}
	seen := 0
	for _, c := range cntcSuite(Options{RateBPS: 100e6, RunOptions: measure.RunOptions{Duration: 10 * time.Second}}) {
		figure, mode, _ := strings.Cut(c.Group, ", ")
		if mode != string(c.Mode) {
			t.Errorf("%s is in mode %s", c.ID(), c.Mode)
		}
		expected, ok := want[figure+": "+c.Name]
		if !ok {
			continue
		}
		seen++
		phases := c.phases()
		if len(phases) != len(expected) {
			t.Errorf("%s: %d phases, want %d", c.ID(), len(phases), len(expected))
			continue
		}
		for i, p := range phases {
			var percent []uint64
			for _, bps := range c.ideal(p.at) {
				percent = append(percent, (bps+5e5)/1e6)
			}
			if !slices.Equal(percent, expected[i]) {
				t.Errorf("%s, phase %d: ideal %d %%, want %d %%", c.ID(), i, percent, expected[i])
			}
		}
	}
	if seen != len(want)*len(cntcModes) {
		t.Errorf("%d cases found, want each of %d in %d modes", seen, len(want), len(cntcModes))
	}
}

// TestPriorityByWeight: priorities are the order of weights, and of more than eight kinds their interval; figure 10 of
// CNTC follows from its weights alone, and figure 9, which the paper measures without priorities, stays as it is.
func TestPriorityByWeight(t *testing.T) {
	for _, tc := range []struct{ weights, want []uint32 }{
		{[]uint32{3, 1, 3, 2}, []uint32{2, 0, 2, 1}},
		{[]uint32{0, 5, 0, 7}, []uint32{0, 0, 0, 1}},
		{[]uint32{1, 2, 3, 4, 5, 6, 7, 8}, []uint32{0, 1, 2, 3, 4, 5, 6, 7}},
		{[]uint32{8, 16, 24, 32, 40, 48, 56, 64, 72}, []uint32{0, 1, 2, 3, 4, 5, 6, 7, 7}},
		{[]uint32{8, 16, 24, 32, 40, 48, 56, 64, 72, 100}, []uint32{0, 0, 1, 2, 2, 3, 4, 4, 5, 7}},
	} {
		if got := prioritiesOf(tc.weights); !slices.Equal(got, tc.want) {
			t.Errorf("weights %d: priorities %d, want %d", tc.weights, got, tc.want)
		}
	}
	options := Options{
		Suite: SuiteCNTC, RateBPS: 100e6, Overload: 1.5, Containers: 1, RunOptions: measure.RunOptions{Duration: 10 * time.Second, Repeat: 1},
		Only: regexp.MustCompile("bridge: (priority interval|start and stop|priority)$"),
	}
	told, err := options.Cases()
	if err != nil {
		t.Fatal(err)
	}
	options.PriorityBy = PriorityByWeight
	cases, err := options.Cases()
	if err != nil || len(cases) != 3 || len(told) != 3 {
		t.Fatalf("%d and %d cases, %v", len(told), len(cases), err)
	}
	for i, c := range cases {
		derived := c.Name == "priority interval"
		if derived && (c.Containers[0].Priority != 7 || c.Containers[1].Priority != 7 || len(c.Changes) != 3) {
			t.Errorf("CN1 and CN2 start with priorities %d and %d, and there are %d changes", c.Containers[0].Priority, c.Containers[1].Priority, len(c.Changes))
		}
		for at := time.Duration(0); at < c.Length; at += time.Second {
			if !slices.Equal(c.ideal(at), told[i].ideal(at)) {
				t.Errorf("%s at %v: %d, want %d", c.ID(), at, c.ideal(at), told[i].ideal(at))
			}
		}
		for k, one := range c.Containers {
			if !derived && one.Policy != told[i].Containers[k].Policy {
				t.Errorf("%s, %s: %+v, want %+v", c.ID(), one.Name, one.Policy, told[i].Containers[k].Policy)
			}
		}
	}
	options.PriorityBy = "age"
	if _, err := options.Cases(); err == nil {
		t.Error("priority by age is no error")
	}
}

// TestPaperNumbersAreOfThePapersMode: what CNTC measured in an overlay does not
// stand beside measurements behind NAT.
func TestPaperNumbersAreOfThePapersMode(t *testing.T) {
	for _, c := range cntcSuite(Options{RateBPS: 100e6, RunOptions: measure.RunOptions{Duration: 10 * time.Second}}) {
		overlay := c.Mode == "overlay"
		for _, one := range c.Containers {
			if strings.HasPrefix(c.Group, "figure 8") && one.Load.Protocol != "" && (one.Paper != nil) != overlay {
				t.Errorf("%s: %s has the paper's numbers %v", c.ID(), one.Name, one.Paper)
			}
		}
		if nat := c.Mode == "bridge"; strings.HasPrefix(c.Group, "figure 11") && (c.PaperOverhead != nil) != nat {
			t.Errorf("%s has the paper's numbers %v", c.ID(), c.PaperOverhead)
		}
	}
}

func TestShortTracesHaveSomethingToCount(t *testing.T) {
	for _, c := range cntcSuite(Options{RateBPS: 100e6, RunOptions: measure.RunOptions{Duration: 200 * time.Millisecond}}) {
		for i, p := range c.phases() {
			if c.Measures.has(MeasureTrace) && p.until-p.from < 10*time.Millisecond {
				t.Errorf("%s, phase %d: counts from %v to %v", c.ID(), i, p.from, p.until)
			}
		}
	}
}

func TestManyContainersRunLongEnough(t *testing.T) {
	found := 0
	for _, c := range accuracySuite(Options{Seed: 1}) {
		if len(c.Containers) != manyContainers {
			continue
		}
		found++
		plan := c.timing(Options{RunOptions: measure.RunOptions{Duration: time.Second, Warmup: time.Second}})
		if plan.windowFrom != 3*time.Second {
			t.Errorf("%s counts after %v", c.ID(), plan.windowFrom)
		}
		window := plan.windowUntil - plan.windowFrom
		for i, bps := range c.ideal(0) {
			sentBits := float64(bps) * window.Seconds()
			if packet := packetBytes(PeerWeir, c.LinkBPS, bps) * 8 / sentBits; packet > 0.002 {
				t.Errorf("%s, C%d: one packet is %.4f of what it sends", c.ID(), i+1, packet)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d cases of %d containers, want 2", found, manyContainers)
	}
}

// TestHTBWithoutWeights: rate-style containers have the smallest quantum.
func TestHTBWithoutWeights(t *testing.T) {
	classes := htb{}.classes(Case{Containers: []Container{
		{Policy: Policy{MinBPS: 20e6}}, {Policy: Policy{Weight: 2, MinBPS: 10e6}},
	}}, 100e6)
	want := []htbClass{
		{rateBPS: 20e6, ceilBPS: 100e6, quantumBytes: 1514},
		{rateBPS: 79.9e6, ceilBPS: 100e6, quantumBytes: 1514},
	}
	if !slices.Equal(classes, want) {
		t.Errorf("classes %+v, want %+v", classes, want)
	}
}

func TestTCAsInCNTC(t *testing.T) {
	c := Case{Rigid: true, Containers: []Container{
		{Policy: Policy{Weight: 1}},
		{Policy: Policy{Weight: 2, Priority: 3}},
		{Policy: Policy{Weight: 1, MinBPS: 40e6, LatencyMS: 2}},
	}}
	want := []htbClass{
		{rateBPS: 19.966667e6, ceilBPS: 19.966667e6, quantumBytes: 1514, prio: 2},
		{rateBPS: 39.933333e6, ceilBPS: 39.933333e6, quantumBytes: 1514, prio: 1},
		{rateBPS: 40e6, ceilBPS: 40e6, quantumBytes: 1514, prio: 0},
	}
	if got := (htb{plain: true}).classes(c, 100e6); !slices.Equal(got, want) {
		t.Errorf("classes %+v, want %+v", got, want)
	}
	for i, class := range (htb{}).classes(c, 100e6) {
		if class.ceilBPS != 100e6 {
			t.Errorf("class %d of a careful administrator borrows up to %d only", i, class.ceilBPS)
		}
	}
}
