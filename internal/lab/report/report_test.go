package report

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/test/golden"
	"github.com/weir-project/weir/third_party/uplot"
)

// sample has one of everything, and text that would be markup if nobody
// escaped it.
func sample() Report {
	r := Report{
		Format: Format, Title: "A <title>", Note: "Numbers are <scaled>.",
		Provenance: Provenance{
			Command: "weir bench '</script>'", StartedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), TookSeconds: 61, Seed: 7, Repeat: 3,
			Runs: 12, RepeatedRuns: 2, PausedRuns: 1,
			Environment: Environment{
				Machine: "Board", CPUs: 4, CPUModel: "Cortex", Arch: "arm64", MemoryBytes: 4e9, Kernel: "6.18", TCP: "cubic", Weir: "v1", Go: "go1.26",
			},
		},
		Verdicts: []Verdict{
			{Target: "share error", Limit: "at most 1 %", Measured: "0.2 %", Where: "figure 7", Met: true},
			{Target: "link use", Limit: "at least 99 %", Measured: "98 %", Where: "figure 8"},
		},
		Plots: []Plot{
			{
				Title: "Shares", Kind: Bars, YLabel: "Mbit/s",
				Series: []Series{{"paper", Paper, 0}, {"</script><b>", Measured, 1}},
				Panels: []Panel{{
					Title: "1:2", Categories: []string{"C1", "C2"},
					Values: [][]*float64{{Number(16), nil}, {Number(33), Number(66)}},
					Low:    [][]*float64{{nil, nil}, {Number(32), nil}}, High: [][]*float64{{nil, nil}, {Number(34), nil}},
				}},
			},
			{
				Title: "Rates", Kind: Lines, XLabel: "seconds", YLabel: "Mbit/s",
				Series: []Series{{"C1", Measured, 0}, {"C1 ideal", Ideal, 0}},
				Panels: []Panel{{X: []float64{0, 1}, Values: [][]*float64{{Number(1), Number(2)}, {nil, Number(2)}}}},
			},
		},
	}
	for i, judgement := range Judgements() {
		r.Claims = append(r.Claims, Claim{
			Source: "Paper", Where: "figure " + string(rune('1'+i)), Says: "It <works>.", Judgement: judgement, Reason: "Because.",
			Values: []Value{{Name: "C1", Unit: "Mbit/s", Paper: Number(16), Ideal: Number(16.6666), Measured: nil}},
		})
	}
	shares := Table{Title: "Shares", Header: []string{"CASE", "MBIT/S"}}
	shares.Add("1:2 <x>", "33")
	r.Tables = []Table{shares}
	return r
}

func TestJSONGolden(t *testing.T) {
	out, err := json.MarshalIndent(sample(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, filepath.Join("testdata", "report.json.golden"), string(out)+"\n")
}

// TestCommandsAddFields: what a command adds stands beside the report's fields,
// and anybody can read the report without knowing the command.
func TestCommandsAddFields(t *testing.T) {
	text, err := json.Marshal(struct {
		Report
		Results []int `json:"results"`
	}{sample(), []int{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Title != "A <title>" || got.Seed != 7 || len(got.Claims) != len(Judgements()) || *got.Plots[0].Panels[0].Values[1][1] != 66 {
		t.Errorf("read %+v", got)
	}
}

func TestTextGolden(t *testing.T) {
	var out bytes.Buffer
	if err := sample().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, filepath.Join("testdata", "report.txt.golden"), out.String())
}

// TestPageGolden compares all of the page but the libraries in it.
func TestPageGolden(t *testing.T) {
	text := writtenPage(t)
	for what, part := range map[string]string{"uPlot's script": uplot.Script, "uPlot's style": uplot.Style, "page.css": pageStyle, "page.js": pageScript} {
		if !strings.Contains(text, part) {
			t.Errorf("the page lacks %s", what)
		}
		text = strings.ReplaceAll(text, part, "["+what+"]\n")
	}
	golden.Compare(t, filepath.Join("testdata", "page.html.golden"), text)
}

func writtenPage(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	if err := sample().WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestPageLoadsNothing: no address in it but the one in uPlot's comment, and
// none that is fetched.
func TestPageLoadsNothing(t *testing.T) {
	text := writtenPage(t)
	for _, outside := range []string{" src=", "@import", "url(", "<link", "fetch(", "XMLHttpRequest", "import("} {
		if strings.Contains(text, outside) {
			t.Errorf("the page may load something: %s", outside)
		}
	}
	for _, address := range regexp.MustCompile(`href="[^"]*"`).FindAllString(text, -1) {
		if !strings.HasPrefix(address, `href="#`) {
			t.Errorf("the page leads elsewhere: %s", address)
		}
	}
	if count := strings.Count(text, "</script>"); count != 2 {
		t.Errorf("%d scripts end, want the two of the page: data is not escaped", count)
	}
	for _, raw := range []string{"<works>", "<scaled>", "<x>", "<b>", "<title>A <"} {
		if strings.Contains(text, raw) {
			t.Errorf("text is not escaped: %s", raw)
		}
	}
}

// TestPageWithoutPlots carries no library for nothing.
func TestPageWithoutPlots(t *testing.T) {
	var out bytes.Buffer
	if err := (Report{Title: "Empty"}).WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"<script", "Claims", "targets"} {
		if strings.Contains(out.String(), part) {
			t.Errorf("an empty report has %s", part)
		}
	}
}

func TestMissed(t *testing.T) {
	if missed := sample().Missed(); len(missed) != 1 || missed[0].Target != "link use" {
		t.Errorf("missed %+v", missed)
	}
}

func TestWithoutEmpty(t *testing.T) {
	plot := sample().Plots[0]
	plot.Series = append([]Series{{"nobody", Paper, 0}}, plot.Series...)
	panel := &plot.Panels[0]
	none := []*float64{nil, nil}
	panel.Values, panel.Low, panel.High = append([][]*float64{none}, panel.Values...), append([][]*float64{none}, panel.Low...), append([][]*float64{none}, panel.High...)
	if got, want := plot.WithoutEmpty(), sample().Plots[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPauses(t *testing.T) {
	const again = "2 runs were done again because a processor stood still or others used it, which no scheduler can make up for"
	for _, test := range []struct {
		provenance Provenance
		want       string
	}{
		{Provenance{}, "No run was done again because a processor stood still or others used it."},
		{Provenance{RepeatedRuns: 2}, again + "."},
		{Provenance{RepeatedRuns: 2, PausedRuns: 1}, again + "; in 1 that count one stood still as well."},
		{Provenance{PausesUnknown: true}, "Whether processors stood still meanwhile is not known: what watches them ended early."},
	} {
		if got := test.provenance.Pauses(); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.provenance, got, test.want)
		}
	}
}

func TestAddNote(t *testing.T) {
	var r Report
	r.AddNote("A.")
	r.AddNote("")
	r.AddLeftOut(0)
	r.AddLeftOut(3)
	r.AddGap("B\nC.")
	r.AddGap("")
	if r.Note != "A. There was no time for 3 cases. B; C." || len(r.Gaps) != 2 || r.Gaps[1] != "B; C." {
		t.Errorf("got %q, %q", r.Note, r.Gaps)
	}
}

// TestJudgedAgain: a claim says what it was by the first rules, if that is something else, and why it was not measured.
func TestJudgedAgain(t *testing.T) {
	claim := func(says string, judgement, was Judgement, reason string) Claim {
		return Claim{Source: "A (2000)", Where: "figure 1", Says: says, Judgement: judgement, Was: was, Reason: reason}
	}
	earlier := []Claim{
		claim("same", Reproduced, "", "Before."), claim("changed", Reproduced, "", "Before."), claim("not measured", NotMeasured, "", "No tool."),
		claim("changed twice", ClaimUndecided, Reproduced, "Before."), claim("changed back", ClaimUndecided, Reproduced, "Before."),
	}
	got := JudgedAgain(earlier, []Claim{
		claim("same", Reproduced, "", "Now."), claim("changed", ClaimUndecided, "", "Now."), claim("not measured", NotMeasured, "", "Now."),
		claim("changed twice", NotReproduced, "", "Now."), claim("changed back", Reproduced, "", "Now."), claim("new", NotMeasured, "", "Now."),
	})
	const was = " By earlier rules: reproduced."
	want := []Claim{
		claim("same", Reproduced, "", "Now."), claim("changed", ClaimUndecided, Reproduced, "Now."+was), earlier[2],
		claim("changed twice", NotReproduced, Reproduced, "Now."+was), claim("changed back", Reproduced, "", "Now."), claim("new", NotMeasured, "", "Now."),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
