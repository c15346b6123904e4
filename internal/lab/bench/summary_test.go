package bench

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/meter"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// seenRates is a run of one second in which containers sent these rates, in
// Mbit/s.
func seenRates(mbps ...uint64) observation {
	o := observation{Window: time.Second}
	for _, rate := range mbps {
		o.Arrived = append(o.Arrived, meter.Counter{Bytes: rate * 1e6 / 8, Packets: rate * 100})
	}
	return o
}

func TestSharesAreMediansOfRuns(t *testing.T) {
	load := Load{Protocol: traffic.TCP}
	c := Case{LinkBPS: 100e6, Containers: []Container{
		{Name: "C1", Policy: Policy{Weight: 1}, Load: load}, {Name: "C2", Policy: Policy{Weight: 1}}, {Name: "C3", Policy: Policy{Weight: 3}, Load: load, Paper: Paper{anyPeer: {70e6}}},
	}}
	list, use := shares(c, PeerWeir, []observation{seenRates(20, 0, 79), seenRates(26, 0, 74), seenRates(25, 0, 73)})
	if len(list) != 2 || list[0].Container != "C1" || list[1].Container != "C3" {
		t.Fatalf("shares of %+v, want C1 and C3", list)
	}
	if want := (measure.Spread{Median: 25e6, Min: 20e6, Max: 26e6}); !equals(list[0].Measured, want) || list[0].Error != 0 || list[0].PaperBPS != nil {
		t.Errorf("C1: %+v, want %+v without error", list[0], want)
	}
	if got := list[1]; got.IdealBPS != 75e6 || math.Abs(got.Error+1.0/75) > 1e-9 || *got.PaperBPS != 70e6 {
		t.Errorf("C3: %+v", got)
	}
	if want := (measure.Spread{Median: 0.99, Min: 0.98, Max: 1}); !equals(*use, want) {
		t.Errorf("link use %+v, want %+v", *use, want)
	}
}

func TestSharesOfNobody(t *testing.T) {
	for name, c := range map[string]Case{
		"nobody sends":        {LinkBPS: 100e6, Containers: []Container{{Name: "C1", Policy: Policy{Weight: 1}}}},
		"link without a rate": {Containers: []Container{{Name: "C1", Policy: Policy{Weight: 1}, Load: Load{Protocol: traffic.TCP}}}},
	} {
		if list, use := shares(c, PeerWeir, []observation{seenRates(0)}); list != nil || use != nil {
			t.Errorf("%s: shares %+v, use %+v", name, list, use)
		}
	}
}

func TestCostLeavesTheIdleMachineOut(t *testing.T) {
	o := seenRates(500, 500)
	const processors = 4 // whatever part of them may run this test
	o.CPU = traffic.CPUTimes{Busy: processors * 300 * time.Millisecond, Idle: processors * 700 * time.Millisecond}
	o.IdleCPU = 0.1
	got := cost([]observation{o})
	for name, pair := range map[string][2]float64{
		"CPU use":               {got.CPUUse.Median, 0.2},
		"seconds per gigabit":   {got.CPUSecondsPerGbit.Median, 0.2 * processors},
		"packets per second":    {got.PacketsPerSecond.Median, 100_000},
		"rate, bits per second": {got.RateBPS.Median, 1e9},
	} {
		if math.Abs(pair[0]-pair[1]) > pair[1]*1e-6 {
			t.Errorf("%s is %v, want %v", name, pair[0], pair[1])
		}
	}
}

// pinged is a run with a number of answers that took a millisecond each, and a number of lost answers.
func pinged(answered, lost int) observation {
	return observation{Ping: traffic.PingResult{Sent: answered + lost, Lost: lost, RTTs: slices.Repeat([]time.Duration{time.Millisecond}, answered)}}
}

// TestLostAnswerCountsAsTimeout: a lost answer is as slow as the timeout in every percentile.
func TestLostAnswerCountsAsTimeout(t *testing.T) {
	got := latency(Case{PaperLatencyMS: map[string]float64{PeerHTB: 0.6}}, PeerHTB, []observation{pinged(97, 3), pinged(0, 2), pinged(100, 0)})
	if got.P50MS.Median != 1 || got.P99MS.Median != 1000 || got.P999MS.Median != 1000 || got.MeanMS.Median != 30.97 || got.Sent != 202 || got.Lost != 5 || *got.PaperMS != 0.6 {
		t.Errorf("latency %+v", *got)
	}
}

// TestLostAnswersJudge: losses under load miss the targets of latency, however few pings are left, and
// losses while idle make them no easier; too few pings for p99.9 are said.
func TestLostAnswersJudge(t *testing.T) {
	cases := []Case{
		{Group: "g", Name: "idle", Measures: MeasureLatency},
		{Group: "g", Name: "busy", Measures: MeasureLatency, Baseline: "idle", MaxLatencyMS: targetAddedLatencyMS},
	}
	for name, test := range map[string]struct {
		idle, busy observation
		p99, p999  report.Decision
	}{
		"nothing lost":          {pinged(990, 0), pinged(990, 0), report.Met, report.Met},
		"all lost under load":   {pinged(990, 0), pinged(0, 10), report.Missed, report.Missed},
		"some lost under load":  {pinged(990, 0), pinged(490, 5), report.Missed, report.Missed},
		"all lost while idle":   {pinged(0, 10), pinged(990, 0), report.Missed, report.Missed},
		"as many lost in both":  {pinged(490, 5), pinged(490, 5), report.Missed, report.Missed},
		"a second without loss": {pinged(100, 0), pinged(99, 0), report.Met, report.Undecided},
	} {
		results := []CaseResult{summarise(cases[0], PeerWeir, []observation{test.idle}), summarise(cases[1], PeerWeir, []observation{test.busy})}
		compare(cases, results)
		list := verdicts(results)
		for target, want := range map[*target]report.Decision{targetAdded: test.p99, targetAdded999: test.p999} {
			verdict := verdictOn(t, list, target.name)
			reason := strings.HasSuffix(verdict.Where, ", 99 pings in 1 runs: p99.9 takes 501 a run")
			if verdict.Word() != string(want) || reason != (want == report.Undecided) {
				t.Errorf("%s: %+v, want it %s", name, verdict, want)
			}
		}
	}
}

// TestUndecidedIsNoMiss: a case that misses a target comes before one that does not tell, and that before
// one that meets it.
func TestUndecidedIsNoMiss(t *testing.T) {
	few, good, bad := extreme{value: 2, undecided: true}, extreme{value: 0.2}, extreme{value: 0.6}
	for _, test := range []struct {
		seen []extreme
		want report.Decision
	}{
		{[]extreme{good, few}, report.Undecided}, {[]extreme{few, good}, report.Undecided},
		{[]extreme{few, bad}, report.Missed}, {[]extreme{bad, few}, report.Missed}, {[]extreme{good}, report.Met},
	} {
		e := extremes{}
		for _, one := range test.seen {
			e.note(targetAdded999, one)
		}
		if got := targetAdded999.decision(e[targetAdded999]); got != test.want {
			t.Errorf("%+v: %s, want %s", test.seen, got, test.want)
		}
	}
}

// TestRunWithoutAnswersFails: with Weir, and on an idle link with any peer; floods beside another peer may
// take every answer.
func TestRunWithoutAnswersFails(t *testing.T) {
	idle := Case{Measures: MeasureLatency, Containers: []Container{{Name: "C1"}, {Name: "C2"}}}
	busy := Case{Measures: MeasureLatency, Containers: []Container{{Name: "C1"}, {Name: "C2", Load: Load{Protocol: traffic.UDP}}}}
	for name, test := range map[string]struct {
		c     Case
		peer  string
		seen  observation
		fails bool
	}{
		"one answer":               {busy, PeerWeir, pinged(1, 9), false},
		"weir, busy":               {busy, PeerWeir, pinged(0, 9), true},
		"weir, balanced, busy":     {busy, PeerWeirBalanced, pinged(0, 9), true},
		"weir, idle":               {idle, PeerWeir, pinged(0, 9), true},
		"another peer, busy":       {busy, PeerNone, pinged(0, 9), false},
		"another peer, idle":       {idle, PeerNone, pinged(0, 9), true},
		"another peer, never sent": {busy, PeerNone, pinged(0, 0), true},
		"no latency measured":      {Case{}, PeerWeir, pinged(0, 0), false},
	} {
		if err := test.c.checkPings(test.peer, test.seen.Ping); (err != nil) != test.fails {
			t.Errorf("%s: %v, want an error: %v", name, err, test.fails)
		}
	}
}

func TestReactionsSpanFromChangeToChange(t *testing.T) {
	c := inStartStopCase(traffic.UDP, Options{RateBPS: 100e6, Seed: 1, RunOptions: measure.RunOptions{Duration: 2 * time.Second}})
	o := observation{BinWidth: time.Millisecond}
	for i := range c.Containers {
		row := make([]uint64, c.Length/time.Millisecond)
		for bin := range row {
			// Everyone gets the ideal of 30 ms ago.
			at := max(time.Duration(bin)*time.Millisecond-30*time.Millisecond, 0)
			row[bin] = c.ideal(at)[i] / 8 / 1000
		}
		o.Series = append(o.Series, row)
	}
	list := reactions(c, []observation{o})
	if len(list) != 5 {
		t.Fatalf("%d kinds of changes, want 5", len(list))
	}
	for i, reaction := range list {
		changes := inCycles
		if reaction.Change == "C1 starts" {
			changes = 1
		}
		// A window may hold a little of the old rates and still be within 5 %.
		late := reaction.SettleMS.Max
		if reaction.Changes != changes || reaction.SettledRuns != changes || reaction.Held.Min != 1 || late > 30 || i > 0 && reaction.SettleMS.Min < 20 {
			t.Errorf("%s: %+v, want about 30 ms", reaction.Change, reaction)
		}
	}
	series := rateSeries(c, o, seriesStep)
	if steps := len(series.RateBPS[0]); steps != int(c.Length/seriesStep) {
		t.Errorf("%d steps of %v, want %v of them", steps, seriesStep, c.Length)
	}
}

// TestTraceSharesAreOfPhases: C2 starts after one of two seconds, and what is
// sent while things settle does not count.
func TestTraceSharesAreOfPhases(t *testing.T) {
	load := Load{Protocol: traffic.TCP}
	late := Load{Protocol: traffic.TCP, Active: []Interval{{time.Second, 2 * time.Second}}}
	c := Case{LinkBPS: 80e6, Length: 2 * time.Second, Measures: MeasureTrace, Containers: []Container{
		{Name: "C1", Policy: Policy{Weight: 1}, Load: load, Paper: Paper{PeerTC: {80e6, 20e6}, PeerWeir: {0, 40e6}}},
		{Name: "C2", Policy: Policy{Weight: 1}, Load: late},
	}}
	o := observation{BinWidth: time.Millisecond}
	const full = 10_000 // bytes in a bin at 80 Mbit/s
	one, two := make([]uint64, 2000), make([]uint64, 2000)
	for i := range 2000 {
		settling := i < 250 || i >= 1000 && i < 1250
		switch {
		case settling:
			one[i] = full / 100
		case i < 1000:
			one[i] = full
		default:
			one[i], two[i] = full*6/10, full*4/10
		}
	}
	o.Series = [][]uint64{one, two}
	list, use := shares(c, PeerWeir, []observation{o})
	if len(list) != 3 {
		t.Fatalf("%d shares, want one and two: %+v", len(list), list)
	}
	for i, want := range []struct {
		phase, container string
		idealBPS         uint64
		measured         float64
		paper            float64
	}{
		{"from 0.0 s (C1 starts)", "C1", 80e6, 80e6, 0},
		{"from 1.0 s (C2 starts)", "C1", 40e6, 48e6, 40e6},
		{"from 1.0 s (C2 starts)", "C2", 40e6, 32e6, 0},
	} {
		got := list[i]
		if got.Phase != want.phase || got.Container != want.container || got.IdealBPS != want.idealBPS ||
			math.Abs(got.Measured.Median-want.measured) > 1 || (got.PaperBPS != nil) != (want.paper != 0) {
			t.Errorf("share %d: %+v, want %+v", i, got, want)
		}
		if got.PaperBPS != nil && *got.PaperBPS != want.paper {
			t.Errorf("share %d: paper %v, want %v", i, *got.PaperBPS, want.paper)
		}
	}
	if math.Abs(use.Median-1) > 1e-9 {
		t.Errorf("link use %v, want 1", use.Median)
	}
	if series := rateSeries(c, o, traceStep); len(series.RateBPS[0]) != 20 || len(series.Ideal) != 2 || series.Ideal[1].AtMS != 1000 {
		t.Errorf("series of %d steps, ideal %+v", len(series.RateBPS[0]), series.Ideal)
	}
}

func TestCompare(t *testing.T) {
	same := func(v float64) measure.Spread { return measure.Spread{Median: v, Min: v, Max: v} }
	cases := []Case{
		{Group: "g", Name: "idle", Measures: MeasureLatency | MeasureOverhead, PaperOverhead: map[string]float64{PeerTC: 0.01}},
		{Group: "g", Name: "busy", Measures: MeasureLatency, Baseline: "idle", MaxLatencyMS: 0.3},
		{Group: "g", Name: "inside", Measures: MeasureLatency, MaxLatencyMS: 10},
		{Group: "g", Name: "bulk", Measures: MeasureOverhead},
		{Group: "g", Name: "1", Measures: MeasureCost},
		{Group: "g", Name: "9", Measures: MeasureCost, Baseline: "1"},
		{Group: "other", Name: "9", Measures: MeasureCost, Baseline: "1"},
	}
	latency := func(name, peer string, ms float64) CaseResult {
		return CaseResult{Group: "g", Case: name, Peer: peer, Runs: 1, Latency: &Latency{MeanMS: same(ms), P99MS: same(2 * ms)}}
	}
	sent := func(peer string, bps ...float64) CaseResult {
		result := CaseResult{Group: "g", Case: "bulk", Peer: peer, Runs: 1}
		for _, one := range bps {
			result.Shares = append(result.Shares, Share{Measured: same(one)})
		}
		return result
	}
	packets := func(group, name string, rate float64) CaseResult {
		return CaseResult{Group: group, Case: name, Peer: PeerWeir, Runs: 1, Cost: &Cost{PacketsPerSecond: same(rate)}}
	}
	results := []CaseResult{
		latency("idle", PeerNone, 1), latency("idle", PeerTC, 1.5), latency("idle", PeerWeir, 1.1),
		latency("busy", PeerWeir, 4), latency("inside", PeerWeir, 4),
		sent(PeerNone, 50e6, 50e6), sent(PeerWeir, 60e6, 39e6), {Group: "g", Case: "bulk", Peer: PeerTC},
		packets("g", "1", 100), packets("g", "9", 98), packets("other", "9", 98),
	}
	compare(cases, results)
	if o := results[1].Overhead; o.Of != overheadRoundTrip || o.Fraction != 0.5 || *o.AddedMS != 0.5 || *o.Paper != 0.01 {
		t.Errorf("tc's round trip: %+v", o)
	}
	if o := results[6].Overhead; o.Of != overheadBandwidth || math.Abs(o.Fraction-0.01) > 1e-9 || o.Senders != 2 || o.Paper != nil {
		t.Errorf("Weir's bandwidth: %+v", o)
	}
	if l := results[3].Latency; *l.BaselineP99MS != 2.2 || *l.LimitMS != 2.5 {
		t.Errorf("beside bulk: baseline %v, limit %v", *l.BaselineP99MS, *l.LimitMS)
	}
	if l := results[4].Latency; l.BaselineP99MS != nil || *l.LimitMS != 10 {
		t.Errorf("inside: %+v", l)
	}
	if ratio := results[9].Cost.PacketsOfBaseline; *ratio != 0.98 {
		t.Errorf("packets of baseline %v, want 0.98", *ratio)
	}
	for _, i := range []int{0, 5, 7, 8, 10} {
		r := results[i]
		if r.Overhead != nil || r.Cost != nil && r.Cost.PacketsOfBaseline != nil {
			t.Errorf("%s, %s is compared with itself or nothing", r.id(), r.Peer)
		}
	}
}

// TestNothingArrived: a report of runs in which nothing arrived has numbers only, and compares nothing with nothing.
func TestNothingArrived(t *testing.T) {
	zero := CaseResult{Group: "g", Case: "bulk", Peer: PeerNone, Runs: 1, Shares: []Share{{}}, Cost: cost([]observation{seenRates(0)})}
	weir := zero
	weir.Peer, weir.Case = PeerWeir, "more"
	results := []CaseResult{zero, {Group: "g", Case: "bulk", Peer: PeerWeir, Runs: 1, Cost: zero.Cost}, weir}
	compare([]Case{{Group: "g", Name: "bulk", Measures: MeasureOverhead}, {Group: "g", Name: "more", Baseline: "bulk"}}, results)
	if _, err := json.Marshal(results); err != nil || results[1].Overhead != nil {
		t.Errorf("%v: %+v", err, results[1].Overhead)
	}
}

// equals compares what is printed of spreads.
func equals(s, other measure.Spread) bool {
	return s.Median == other.Median && s.Min == other.Min && s.Max == other.Max
}

// TestLatencyOfWhatComesIn: traffic of its own container may delay a sparse download by more than others' may.
func TestLatencyOfWhatComesIn(t *testing.T) {
	baselineMS := 20.0
	for own, target := range map[bool]*target{false: targetInAdded, true: targetInOwn} {
		result := CaseResult{Group: "g", Case: "beside", Peer: PeerWeir, Runs: 1, Incoming: &Incoming{Protocol: string(traffic.TCP)}}
		result.Latency = &Latency{P99MS: measure.SpreadOf([]float64{32}), BaselineP99MS: &baselineMS, OwnTraffic: own}
		if got := verdictOn(t, verdicts([]CaseResult{result}), target.name); got.Met != own {
			t.Errorf("own: %v: %+v", own, got)
		}
	}
	busy := Case{Measures: MeasureLatency, Containers: []Container{{Name: "C1", Load: Load{Protocol: traffic.TCP}}}}
	if !latency(busy, PeerWeir, nil).OwnTraffic {
		t.Error("traffic of the measured container itself is not noted")
	}
}

// TestCostOfWhatComesIn: TCP and small packets have rates of their own to reach, by the worst run.
func TestCostOfWhatComesIn(t *testing.T) {
	result := func(protocol traffic.Protocol, bps, packets float64) CaseResult {
		return CaseResult{
			Group: "g", Case: string(protocol), Peer: PeerWeir, Runs: 2, Incoming: &Incoming{Protocol: string(protocol)},
			Cost: &Cost{RateBPS: measure.SpreadOf([]float64{bps, 9e9}), PacketsPerSecond: measure.SpreadOf([]float64{packets, 500e3})},
		}
	}
	for _, enough := range []bool{true, false} {
		bps, packets := 5.1e9, 101e3
		if !enough {
			bps, packets = 4.9e9, 99e3
		}
		list := verdicts([]CaseResult{result(traffic.TCP, bps, 1), result(traffic.UDP, 1, packets)})
		for _, target := range []*target{targetInRate, targetInPackets} {
			if got := verdictOn(t, list, target.name); got.Met != enough {
				t.Errorf("enough: %v: %+v", enough, got)
			}
		}
	}
}

// TestIdleUse: a disturbed second before a run is not taken for what the machine needs anyway.
func TestIdleUse(t *testing.T) {
	for name, test := range map[string]struct {
		seconds []float64
		want    float64
		watched int
	}{
		"quiet":           {[]float64{0.03, 0}, 0.03, 1},
		"disturbed first": {[]float64{0.9, 0.46, 0.04, 0}, 0.04, 3},
		"always busy":     {[]float64{0.4, 0.5, 0.3, 0.6, 0.7, 0}, 0.3, 5},
	} {
		watched := 0
		got, err := idleUse(t.Context(), func(context.Context) (float64, error) {
			watched++
			return test.seconds[watched-1], nil
		})
		if err != nil || got != test.want || watched != test.watched {
			t.Errorf("%s: %v after %d seconds, %v; want %v after %d", name, got, watched, err, test.want, test.watched)
		}
	}
}

// TestSecondsOfWhatComesIn: each run counts by its worst second, and all of them are compared.
func TestSecondsOfWhatComesIn(t *testing.T) {
	run := func(ofMinimum, arrives [2]uint64) (o observation) {
		at := meter.Snapshot{Slots: make([]meter.Counter, 2)}
		o.Seconds = []reading{{Snapshot: at}}
		for i := range ofMinimum {
			at.Slots = slices.Clone(at.Slots)
			at.MonotonicNS += 2e9 // a reading may be late
			at.Slots[1].Bytes += 2 * ofMinimum[i] * 1e6 / 8 / 100
			at.Other.Bytes += 2 * arrives[i] * 1e8 / 8 / 100
			o.Seconds = append(o.Seconds, reading{Snapshot: at})
		}
		return o
	}
	c := Case{Group: "g", Name: "minimum", Incoming: true, LinkBPS: 100e6, Path: &Path{}, Containers: []Container{{Name: "C1"}, {Name: "C2", Policy: Policy{MinBPS: 1e6}}}}
	result := CaseResult{Group: c.Group, Case: c.Name, Peer: PeerWeir, Runs: 2}
	result.Incoming = incomingOf(c, []observation{run([2]uint64{90, 100}, [2]uint64{99, 102}), run([2]uint64{110, 80}, [2]uint64{98, 97})})
	result.Shares = []Share{{IdealBPS: 100, Measured: measure.SpreadOf([]float64{99, 103})}, {IdealBPS: 200, Measured: measure.SpreadOf([]float64{190, 200})}}
	got := map[string][]float64{}
	for _, q := range (Report{Results: []CaseResult{result}}).quantities() {
		got[q.Name] = q.Values
	}
	for name, want := range map[string][]float64{
		"of a minimum in the worst second":                {0.9, 0.8},
		"what arrives of the rate in the emptiest second": {0.99, 0.97},
		"what arrives of the rate in the fullest second":  {1.02, 0.98},
		"largest share error":                             {0.05, 0.03},
	} {
		if !slices.EqualFunc(got[name], want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
	c.Path, c.Containers = nil, c.Containers[:1]
	if in := incomingOf(c, []observation{run([2]uint64{1, 1}, [2]uint64{1, 1})}); in.MinimumKept != nil || in.ArrivesMost != nil || in.FirstSecondOver != nil {
		t.Errorf("without a minimum, a maximum and a bottleneck: %+v", in)
	}
}
