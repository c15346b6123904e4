package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/test/golden"
)

// sampleReport has every kind of result, a failure and a missed target.
func sampleReport() Report {
	bps := func(v float64) *float64 { return &v }
	share := func(name string, paper *float64, ideal uint64, measured float64) Share {
		return Share{
			Container: name, Weight: 1, PaperBPS: paper, IdealBPS: ideal,
			Measured: measure.Spread{Median: measured, Min: measured * 0.99, Max: measured * 1.01}, Error: measured/float64(ideal) - 1,
		}
	}
	use := func(v float64) *measure.Spread { return &measure.Spread{Median: v, Min: v, Max: v} }
	many := CaseResult{Group: "100mbit", Case: "12 containers", Peer: PeerWeir, LinkBPS: 100e6, Runs: 1, LinkUse: use(1), CPUBusy: *use(0.96), CPUStolen: *use(0.03)}
	for i := range 12 {
		many.Shares = append(many.Shares, share("C"+string(rune('a'+i)), nil, 8e6, 8e6+float64(i)*1e4))
	}
	// Each container in each of two phases: more shares than containers that
	// have a row each, and still a row for each.
	traced := CaseResult{Group: "figure 9, bridge", Case: "start and stop", Mode: "bridge", Peer: PeerWeir, LinkBPS: 100e6, Runs: 1, LinkUse: use(0.999)}
	traced.Series = &RateSeries{StepMS: 500, Ideal: []IdealStep{{0, nil}, {1000, nil}}}
	for _, phase := range []string{"from 0.0 s (C6 stops)", "from 1.0 s (C6 starts)"} {
		for i := range 6 {
			one := share("C"+string(rune('1'+i)), nil, 16e6, 16e6)
			one.Phase, one.OnePacket = phase, 0.0123
			traced.Shares = append(traced.Shares, one)
		}
	}
	results := []CaseResult{
		{
			Group: "figure 7", Case: "weights 1:2", Peer: PeerNone, LinkBPS: 100e6, Runs: 2, LinkUse: use(0.994),
			Shares: []Share{share("C1", bps(16e6), 33333333, 50e6), share("C2", nil, 66666667, 49.4e6)},
		},
		{
			Group: "figure 7", Case: "weights 1:2", Peer: PeerWeir, LinkBPS: 100e6, Runs: 2, LinkUse: use(1),
			Shares: []Share{share("C1", bps(16e6), 33333333, 33.3e6), share("C2", nil, 66666667, 66.7e6)},
		},
		many,
		{
			Group: "cap 10mbit of 100mbit", Case: "UDP", Peer: PeerWeir, LinkBPS: 100e6, Runs: 2,
			Overshoot: &Overshoot{WindowMS: 100, CapBPS: 10e6, Fraction: measure.Spread{Median: 0.0416, Min: 0.041, Max: 0.043}, OneFrame: 0.0121},
		},
		{
			Group: "start and stop", Case: "udp", Peer: PeerWeir, LinkBPS: 100e6, Runs: 2,
			Reactions: []Reaction{
				{AtMS: 0, Change: "C1 starts", Changes: 2, SettledRuns: 2, SettleMS: measure.Spread{Median: 4, Min: 3, Max: 5}, Held: measure.Spread{Median: 1, Min: 1, Max: 1}},
				{AtMS: 1000, Change: "C2 <starts>", Changes: 2, SettledRuns: 0, Held: measure.Spread{Median: 0.2, Min: 0.1, Max: 0.3}},
			},
			Series: &RateSeries{
				StepMS: 500, Containers: []string{"C1", "C2"}, RateBPS: [][]float64{{100e6, 100e6, 50e6, 50e6}, {0, 0, 50e6, 50e6}},
				Ideal: []IdealStep{{0, []uint64{100e6, 0}}, {1000, []uint64{50e6, 50e6}}},
			},
		},
		traced,
		{
			Group: "figure 12", Case: "1 containers", Peer: PeerHTB, LinkBPS: 100e6, Runs: 1,
			Cost: &Cost{
				CPUUse: measure.Spread{Median: 0.03, Min: 0.03, Max: 0.03}, Baseline: measure.Spread{Median: 0.01, Min: 0.01, Max: 0.01}, CPUSecondsPerGbit: measure.Spread{Median: 0.6, Min: 0.6, Max: 0.6},
				PacketsPerSecond: measure.Spread{Median: 8256, Min: 8256, Max: 8256}, RateBPS: measure.Spread{Median: 100e6, Min: 100e6, Max: 100e6},
			},
		},
		{
			Group: "table 1", Case: "idle", Peer: PeerHTB, LinkBPS: 100e6, Runs: 1,
			Latency: &Latency{PaperMS: bps(0.6), MeanMS: measure.Spread{Median: 0.09, Min: 0.09, Max: 0.09}, P50MS: measure.Spread{Median: 0.08, Min: 0.08, Max: 0.08}, P99MS: measure.Spread{Median: 0.17, Min: 0.17, Max: 0.17}, Sent: 299, Lost: 1},
		},
		{
			Group: "figure 7b, bridge", Case: "beside bulk", Mode: "bridge", Peer: PeerWeir, LinkBPS: 100e6, Runs: 1,
			Latency: &Latency{
				PaperMS: bps(2), MeanMS: measure.Spread{Median: 0.2, Min: 0.2, Max: 0.2}, P50MS: measure.Spread{Median: 0.2, Min: 0.2, Max: 0.2}, P99MS: measure.Spread{Median: 0.6, Min: 0.6, Max: 0.6}, P999MS: measure.Exactly(0.7), Sent: 100,
				BaselineP99MS: bps(0.2), BaselineP999MS: bps(0.3), LimitMS: bps(0.5),
			},
		},
		{
			Group: "figure 7b, bridge", Case: "inside", Mode: "bridge", Peer: PeerWeir, LinkBPS: 100e6, Runs: 1,
			Latency: &Latency{MeanMS: measure.Spread{Median: 4, Min: 4, Max: 4}, P50MS: measure.Spread{Median: 4, Min: 4, Max: 4}, P99MS: measure.Spread{Median: 9.9, Min: 9.9, Max: 9.9}, Sent: 100, LimitMS: bps(10)},
		},
		{
			Group: "figure 11, bridge", Case: "one container", Mode: "bridge", Peer: PeerWeir, LinkBPS: 100e6, Runs: 1,
			Overhead: &Overhead{Of: overheadBandwidth, Senders: 1, Paper: bps(0.0016), Fraction: 0.003},
		},
		{
			Group: "figure 11, bridge", Case: "80 to 20", Mode: "bridge", Peer: PeerWeir, LinkBPS: 100e6, Runs: 1,
			Overhead: &Overhead{Of: overheadBandwidth, Senders: 2, Paper: bps(0.028), Fraction: 0.003},
		},
		{
			Group: "figure 11, bridge", Case: "round trip", Mode: "bridge", Peer: PeerWeir, LinkBPS: 100e6, Runs: 1,
			Overhead: &Overhead{Of: overheadRoundTrip, Fraction: 0.5, AddedMS: bps(0.05)},
		},
		{
			Group: "50 containers at 100mbit", Case: "idle", Mode: "bridge", Peer: PeerWeir, LinkBPS: 100e6, Runs: 1,
			Agent: &AgentUse{Containers: 50, Senders: 50, CPUOfCore: measure.Spread{Median: 0.009, Min: 0.008, Max: 0.011}, MemoryBytes: measure.Spread{Median: 31e6, Min: 31e6, Max: 31e6}, ResidentBytes: measure.Spread{Median: 30e6, Min: 30e6, Max: 30e6}, AnonymousBytes: measure.Spread{Median: 18e6, Min: 18e6, Max: 18e6}, BPFBytes: measure.Spread{Median: 1e6, Min: 1e6, Max: 1e6}, StartMS: measure.Spread{Median: 200, Min: 200, Max: 200}},
		},
		{
			Group: "scale", Case: "1000 containers", Mode: "bridge", Peer: PeerWeir, Runs: 1,
			Agent: &AgentUse{Containers: 1000, CPUOfCore: measure.Spread{Median: 0.5, Min: 0.5, Max: 0.5}, ResidentBytes: measure.Spread{Median: 90e6, Min: 90e6, Max: 90e6}, StartMS: measure.Spread{Median: 2500, Min: 2500, Max: 2500}},
			Cost:  &Cost{PacketsPerSecond: measure.Spread{Median: 97e3, Min: 97e3, Max: 97e3}, PacketsOfBaseline: bps(0.97)},
		},
		{
			Group: "looked at: 50 containers, 5 send", Case: "100 pages", Mode: "bridge", Peer: PeerWeir, LinkBPS: 100e6, Runs: 1,
			Agent: &AgentUse{
				Containers: 50, Pages: 100, CPUOfCore: measure.Spread{Median: 0.1, Min: 0.1, Max: 0.1}, ResidentBytes: measure.Spread{Median: 39e6, Min: 39e6, Max: 39e6},
				StartMS: measure.Spread{Median: 200, Min: 200, Max: 200}, TurnP99MS: measure.Spread{Median: 60, Min: 60, Max: 60},
			},
		},
		{
			Group: "scrapes of 1000 containers", Case: "scraped", Mode: "bridge", Peer: PeerWeir, LinkBPS: 100e6, Runs: 1,
			Agent: &AgentUse{
				Containers: 1000, CPUOfCore: measure.Spread{Median: 0.1, Min: 0.1, Max: 0.1}, ResidentBytes: measure.Spread{Median: 39e6, Min: 39e6, Max: 39e6},
				StartMS: measure.Spread{Median: 200, Min: 200, Max: 200}, TurnP99MS: measure.Spread{Median: 42, Min: 42, Max: 42},
				ScrapeMS: &measure.Spread{Median: 40, Min: 40, Max: 40}, ScrapeIntervalS: 5, ScrapeCPU: bps(0.012),
			},
		},
		{Group: "figure 8", Case: "1 of 5 sends", Peer: PeerWeir, Failure: "the agent ended"},
	}
	found := Report{
		Report: report.Report{
			Format: report.Format, Title: "weir bench qcon", Note: "Numbers are <scaled>.",
			Provenance: report.Provenance{
				Command: "weir bench qcon", StartedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), TookSeconds: 61, Seed: 1, Repeat: 2, Runs: 14,
				Environment: report.Environment{Machine: "Board", Kernel: "6.18", CPUs: 2, CPUModel: "Test", Arch: "amd64", Go: "go1.26", Weir: "dev", Containers: "network namespaces", TC: "tc", TCP: "cubic"},
			},
		},
		Suite: "qcon", DurationS: 10, WarmupS: 1,
		Results: results,
		Skipped: map[string]string{PeerCNI: "no Go"},
	}
	found.complete()
	return found
}

// compareGolden compares with a file in testdata.
func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	golden.Compare(t, filepath.Join("testdata", name), string(got))
}

// TestFailingPeer: a peer that never runs a case is a gap unless Weir, a claim or a ratio is judged by it; one that runs it at times
// has failed.
func TestFailingPeer(t *testing.T) {
	for name, test := range map[string]struct {
		suite, peer string
		runs        int
		failed      int
	}{
		"other tool":          {"in", PeerCAKE, 0, 0},
		"other tool at times": {"in", PeerCAKE, 3, 1},
		"Weir":                {"in", PeerWeirIn, 0, 1},
		"of a ratio":          {"in", PeerHTB, 0, 1},
		"of a claim":          {SuiteQCon, PeerTC, 0, 1},
	} {
		r := Report{Suite: test.suite, Results: []CaseResult{
			{Group: "g", Case: "c", Peer: PeerWeir, Runs: 5, Ratios: []Ratio{{Of: "x", Over: PeerHTB}}},
			{Group: "g", Case: "c", Peer: test.peer, Runs: test.runs, Failure: "no\nqdisc"},
		}}
		r.complete()
		if gap := strings.Join(r.Gaps, ""); r.Failed() != test.failed || (gap == "") != (test.failed > 0) ||
			gap != "" && gap != "The peer cake-ingress was left out of g: c, as each run failed: no; qdisc." {
			t.Errorf("%s: %d failed, gap %q", name, r.Failed(), gap)
		}
	}
}

func TestTableGolden(t *testing.T) {
	var out bytes.Buffer
	if err := sampleReport().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "table.golden", out.Bytes())
}

func TestJSONGolden(t *testing.T) {
	found := sampleReport()
	// Package report knows how these look.
	found.Claims, found.Tables, found.Plots = nil, nil, nil
	out, err := json.MarshalIndent(found, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "report.json.golden", append(out, '\n'))
}

// TestPlotsHaveWhatIsDrawn: a row for each series and a value, or none, for
// each category; all panels of a plot are drawn on one scale.
func TestPlotsHaveWhatIsDrawn(t *testing.T) {
	plots := sampleReport().Plots
	if len(plots) != 5 {
		t.Fatalf("%d plots, want shares, CPU of two groups and rates of two cases", len(plots))
	}
	for _, plot := range plots {
		for _, panel := range plot.Panels {
			if len(panel.Values) != len(plot.Series) {
				t.Errorf("%s: %d rows for %d series", plot.Title, len(panel.Values), len(plot.Series))
			}
			for i, row := range panel.Values {
				if len(row) != len(panel.Categories)+len(panel.X) {
					t.Errorf("%s, %s: %d values", plot.Title, plot.Series[i].Name, len(row))
				}
			}
		}
	}
	shares := plots[0].Panels[0]
	for i, want := range map[int]float64{0: 16, 1: 33.333333, 2: 50, 3: 33.3} { // paper, ideal, none, weir
		if got := shares.Values[i][0]; got == nil || math.Abs(*got-want) > 1e-3 {
			t.Errorf("C1, %s: %v, want %v", plots[0].Series[i].Name, report.Text(got), want)
		}
	}
	if shares.Values[0][1] != nil {
		t.Error("the paper has no number for C2")
	}
}

func TestIdealOverTime(t *testing.T) {
	series := RateSeries{Ideal: []IdealStep{{AtMS: 100, RateBPS: []uint64{8e6}}, {AtMS: 200, RateBPS: []uint64{4e6}}}}
	for at, want := range map[float64]string{50: "-", 100: "8", 199: "8", 200: "4"} {
		if got := report.Text(series.idealAt(at, 0)); got != want {
			t.Errorf("at %v ms: %s, want %s", at, got, want)
		}
	}
}

func TestPeersHaveColoursOfTheirOwn(t *testing.T) {
	const palette = 17 // of page.css
	seen := map[int]string{}
	for _, one := range peerSeries(PeerNames()) {
		if other, taken := seen[one.Colour%palette]; taken {
			t.Errorf("%s and %s have the same colour", one.Name, other)
		}
		seen[one.Colour%palette] = one.Name
	}
}

func TestVerdicts(t *testing.T) {
	got := map[string]report.Verdict{}
	for _, verdict := range sampleReport().Verdicts {
		got[verdict.Target] = verdict
	}
	for target, met := range map[string]bool{
		"every run succeeds": false,
		"share error":        false, // the last of the twelve has 1.375 %
		"excess over a maximum in any 100 ms of any run, less one frame": false,
		"link use":                   true,
		"time to the new allocation": false,
		"p99 of a latency class beside bulk of others, above idle":   false,
		"p99 of sparse traffic inside a busy container":              true,
		"bandwidth lost without competition":                         false,
		"bandwidth lost with competition":                            true,
		"agent's CPU time, of one core":                              false, // 1.1 % in one run
		"agent's memory, with its BPF maps":                          false,
		"agent's start":                                              true,
		"packets per second with many containers, of those with one": true,
	} {
		if verdict, ok := got[target]; !ok || verdict.Met != met {
			t.Errorf("%s: %+v, want met %v", target, verdict, met)
		}
	}
	if verdicts([]CaseResult{{Peer: PeerHTB, Failure: "x"}}) != nil {
		t.Error("other peers have no targets")
	}
	for _, peer := range []string{PeerWeir, PeerWeirBalanced, PeerWeirLow} {
		if list := verdicts([]CaseResult{{Peer: peer, Failure: "x"}}); len(list) != 1 || list[0].Met {
			t.Errorf("%s failed: %+v", peer, list)
		}
	}
}

// TestWorstRunJudges: one run of three that misses a target is enough.
func TestWorstRunJudges(t *testing.T) {
	for target, one := range map[*target]struct {
		good, bad float64
		result    func(measure.Spread) CaseResult
	}{
		targetShare: {99.5e6, 98e6, func(s measure.Spread) CaseResult { return CaseResult{Shares: []Share{{IdealBPS: 100e6, Measured: s}}} }},
		targetShortfall: {40e6, 39e6, func(s measure.Spread) CaseResult {
			return CaseResult{Shares: []Share{{IdealBPS: 50e6, MinBPS: 40e6, Measured: s}}}
		}},
		targetOvershoot: {0.009, 0.03, func(s measure.Spread) CaseResult { return CaseResult{Overshoot: &Overshoot{Fraction: s}} }},
		targetLinkUse:   {0.995, 0.98, func(s measure.Spread) CaseResult { return CaseResult{LinkUse: &s} }},
		targetSettle: {50, 51, func(s measure.Spread) CaseResult {
			return CaseResult{Runs: 3, Reactions: []Reaction{{Changes: 3, SettledRuns: 3, SettleMS: s}}}
		}},
		targetBusy:   {10, 11, func(s measure.Spread) CaseResult { return CaseResult{Latency: &Latency{P99MS: s, LimitMS: new(10.0)}} }},
		targetSilent: {0.003, 0.004, func(s measure.Spread) CaseResult { return CaseResult{Agent: &AgentUse{CPUOfCore: s}} }},
		targetCPU:    {0.01, 0.011, func(s measure.Spread) CaseResult { return CaseResult{Agent: &AgentUse{Senders: 1, CPUOfCore: s}} }},
		targetFlooded: {0.02, 0.021, func(s measure.Spread) CaseResult {
			return CaseResult{Cost: &Cost{}, Agent: &AgentUse{Containers: 1000, Senders: 1, CPUOfCore: s}}
		}},
		targetWatching: {0.02, 0.021, func(s measure.Spread) CaseResult {
			return CaseResult{Agent: &AgentUse{Senders: 5, Pages: 100, CPUOfCore: s}}
		}},
		targetWatched: {32e6, 33e6, func(s measure.Spread) CaseResult { return CaseResult{Agent: &AgentUse{Pages: 100, MemoryBytes: s}} }},
		targetAdded999: {0.7, 0.8, func(s measure.Spread) CaseResult {
			return CaseResult{Latency: &Latency{Sent: 3 * leastPings, P999MS: s, LimitMS: new(1.0), BaselineP99MS: new(0.2), BaselineP999MS: new(0.25)}}
		}},
		targetMemory: {25e6, 26e6, func(s measure.Spread) CaseResult { return CaseResult{Agent: &AgentUse{Senders: 1, MemoryBytes: s}} }},
	} {
		for _, worst := range []float64{one.good, one.bad} {
			for peer, suffix := range map[string]string{PeerWeir: "", PeerWeirBalanced: ", balanced"} {
				result := one.result(measure.SpreadOf([]float64{one.good, worst, one.good}))
				result.Peer, result.Runs = peer, 3
				list := verdicts([]CaseResult{result})
				i := slices.IndexFunc(list, func(v report.Verdict) bool { return v.Target == target.name+suffix })
				if i < 0 || list[i].Met != (worst == one.good) {
					t.Errorf("%s: %v in one run: %+v", target.name, worst, list)
				}
			}
		}
	}
}

// TestOneUnsettledChangeJudges: one change of a hundred after which rates never settle is a miss, whatever
// the others took.
func TestOneUnsettledChangeJudges(t *testing.T) {
	for settled, met := range map[int]bool{100: true, 99: false, 0: false} {
		list := verdicts([]CaseResult{{Peer: PeerWeir, Runs: 5, Reactions: []Reaction{{Changes: 100, SettledRuns: settled, SettleMS: measure.Exactly(5)}}}})
		if len(list) != 1 || list[0].Met != met {
			t.Errorf("%d of 100 changes settled: %+v", settled, list)
		}
	}
}
