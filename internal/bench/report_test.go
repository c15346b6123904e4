package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/test/golden"
)

// sampleReport has every kind of result, a failure and a missed target.
func sampleReport() Report {
	bps := func(v float64) *float64 { return &v }
	share := func(name string, paper *float64, ideal uint64, measured float64) Share {
		return Share{
			Container: name, Weight: 1, PaperBPS: paper, IdealBPS: ideal,
			Measured: Spread{measured, measured * 0.99, measured * 1.01}, Error: measured/float64(ideal) - 1,
		}
	}
	use := func(v float64) *Spread { return &Spread{v, v, v} }
	many := CaseResult{Group: "100mbit", Case: "12 containers", Peer: PeerWeir, LinkBPS: 100e6, Runs: 1, LinkUse: use(1), CPUBusy: *use(0.96)}
	for i := range 12 {
		many.Shares = append(many.Shares, share("C"+string(rune('a'+i)), nil, 8e6, 8e6+float64(i)*1e4))
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
			Overshoot: &Overshoot{WindowMS: 100, CapBPS: 10e6, Fraction: Spread{0.0416, 0.041, 0.043}, OneFrame: 0.0121},
		},
		{
			Group: "start and stop", Case: "udp", Peer: PeerWeir, LinkBPS: 100e6, Runs: 2,
			Reactions: []Reaction{
				{AtMS: 0, Change: "C1 starts", SettledRuns: 2, SettleMS: Spread{4, 3, 5}, Held: Spread{1, 1, 1}},
				{AtMS: 1000, Change: "C2 <starts>", SettledRuns: 0, Held: Spread{0.2, 0.1, 0.3}},
			},
			Series: &RateSeries{StepMS: 500, Containers: []string{"C1", "C2"}, RateBPS: [][]float64{{100e6, 100e6, 50e6, 50e6}, {0, 0, 50e6, 50e6}}},
		},
		{
			Group: "figure 12", Case: "1 containers", Peer: PeerHTB, LinkBPS: 100e6, Runs: 1,
			Cost: &Cost{
				CPUUse: Spread{0.03, 0.03, 0.03}, Baseline: Spread{0.01, 0.01, 0.01}, CPUSecondsPerGbit: Spread{0.6, 0.6, 0.6},
				PacketsPerSecond: Spread{8256, 8256, 8256}, RateBPS: Spread{100e6, 100e6, 100e6},
			},
		},
		{
			Group: "table 1", Case: "idle", Peer: PeerHTB, LinkBPS: 100e6, Runs: 1,
			Latency: &Latency{PaperMS: bps(0.6), MeanMS: Spread{0.09, 0.09, 0.09}, P50MS: Spread{0.08, 0.08, 0.08}, P99MS: Spread{0.17, 0.17, 0.17}, Sent: 299, Lost: 1},
		},
		{Group: "figure 8", Case: "1 of 5 sends", Peer: PeerWeir, Failure: "the agent ended"},
	}
	return Report{
		Suite: "qcon", Command: "weir bench qcon", StartedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), TookSeconds: 61,
		Environment: Environment{Kernel: "6.18", CPUs: 2, CPUModel: "Test", Arch: "amd64", Go: "go1.26", Weir: "dev", Containers: "network namespaces", TC: "tc"},
		DurationS:   10, WarmupS: 1, Repeat: 2,
		Results: results, Verdicts: verdicts(results),
		Skipped: map[string]string{PeerCNI: "no Go"},
	}
}

// compareGolden compares with a file in testdata.
func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	golden.Compare(t, filepath.Join("testdata", name), string(got))
}

func TestTableGolden(t *testing.T) {
	var out bytes.Buffer
	if err := sampleReport().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "table.golden", out.Bytes())
}

func TestJSONGolden(t *testing.T) {
	out, err := json.MarshalIndent(sampleReport(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "report.json.golden", append(out, '\n'))
}

func TestHTMLIsSelfContained(t *testing.T) {
	var out bytes.Buffer
	if err := sampleReport().WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "report.html.golden", out.Bytes())
	page := out.String()
	for _, outside := range []string{"src=", "href=", "@import", "url("} {
		if strings.Contains(page, outside) {
			t.Errorf("the page loads something: %s", outside)
		}
	}
	if strings.Contains(page, "<starts>") {
		t.Error("text is not escaped")
	}
}

func TestChartsAreWellFormed(t *testing.T) {
	charts := sampleReport().charts()
	if len(charts) != 3 {
		t.Fatalf("%d charts, want shares, CPU and rates", len(charts))
	}
	for _, chart := range charts {
		decoder := xml.NewDecoder(strings.NewReader(chart.svg))
		for {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", chart.title, err)
			}
		}
		if strings.Contains(chart.svg, "NaN") || strings.Contains(chart.svg, "Inf") {
			t.Errorf("%s draws a value that is none", chart.title)
		}
	}
}

func TestNiceCeiling(t *testing.T) {
	for value, want := range map[float64]float64{0: 1, 1: 1, 3.5: 4, 49: 50, 100: 100, 101: 125, 210: 250, 0.045: 0.05, 999: 1000} {
		if got := niceCeiling(value); got != want {
			t.Errorf("niceCeiling(%v) = %v, want %v", value, got, want)
		}
	}
}

func TestVerdicts(t *testing.T) {
	got := map[string]Verdict{}
	for _, verdict := range sampleReport().Verdicts {
		got[verdict.Target] = verdict
	}
	for target, met := range map[string]bool{
		"every run succeeds": false,
		"share error":        false, // the last of the twelve has 1.375 %
		"cap overshoot in any 100 ms, less one frame": false,
		"link use":                   true,
		"time to the new allocation": false,
	} {
		if verdict, ok := got[target]; !ok || verdict.Met != met {
			t.Errorf("%s: %+v, want met %v", target, verdict, met)
		}
	}
	if verdicts([]CaseResult{{Peer: PeerHTB, Failure: "x"}}) != nil {
		t.Error("other peers have no targets")
	}
}
