package all

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/bench/netmodes"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/report/machine"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/must"
)

// TestKeptIsJudgedAgain: a kept section that a build with other rules judged is not measured again; its claims are judged by these
// rules, with the rounds of then, and the page says what they were. Once judged it needs its result no more.
func TestKeptIsJudgedAgain(t *testing.T) {
	o, _ := publishing(t, "v1")
	const judgedThen, judgedNow = ",judge=4", ",judge=5"
	sources += judgedThen
	twice := netmodes.Report{
		Report: report.Report{Format: report.Format, Provenance: report.Provenance{Runs: 40, Repeat: LeastRounds, PausedRuns: 3, Environment: report.Environment{Containers: "network namespaces"}}, Tables: []report.Table{{Title: "T"}}}, Suite: netmodes.Suite, DurationS: 10,
	}
	for mode, seconds := range map[string]float64{netmodes.Native: 0.1, "bridge": 0.2} {
		twice.Results = append(twice.Results, netmodes.Result{
			Case: netmodes.Case{Mode: mode, Protocol: traffic.TCP, MessageBytes: netmodes.SmallBytes, Containers: 1}, Runs: 5,
			RateBPS: measure.Exactly(1e9), CPU: measure.Exactly(seconds),
		})
	}
	twice.JudgeAgain()
	ofTime := func(claims []report.Claim) *report.Claim {
		t.Helper()
		one := measure.Find(claims, func(c report.Claim) bool { return strings.Contains(c.Says, "twice as much of the processor") })
		if one == nil {
			t.Fatalf("no claim of processor time in %+v", claims)
		}
		return one
	}
	then := ofTime(twice.Claims)
	if then.Judgement != report.Reproduced {
		t.Fatalf("%s: %s", then.Judgement, then.Reason)
	}
	then.Values[0].Low, then.Values[0].High = report.Number(0.4), report.Number(2.9)
	made := report.Section{Name: netmodes.Suite, Page: "netmodes.html", Result: "netmodes.json", Runs: 40, Rounds: LeastRounds, RunSeconds: 2, Claims: twice.Claims}
	then.Command = "weir bench netmodes --of-then"
	must.Succeed(t, os.MkdirAll(o.Dir, 0o755))
	must.Succeed(t, writeTo(o.Dir, keptName(made.Name), jsonOf(kept{o.settings(machine.Read("v1")), made})))
	o.sections = []section{{name: netmodes.Suite, about: "a test", run: func(context.Context, Options) (report.Result, error) {
		t.Error("it was measured again")
		return nil, errors.New("measured")
	}}}
	sources = strings.Replace(sources, judgedThen, judgedNow, 1)
	if _, err := Run(t.Context(), o); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "copy the whole folder of the night, or remove netmodes.kept.json") {
		t.Errorf("without the result: %v", err)
	}
	for name, test := range map[string]struct {
		change func(r *netmodes.Report)
		want   string
	}{
		"without its cases":   {func(r *netmodes.Report) { r.Tables = nil }, "netmodes.json is not all of its result"},
		"of fewer claims":     {func(r *netmodes.Report) { r.Claims = r.Claims[1:] }, "netmodes.json is not all of its result"},
		"of no link any more": {func(r *netmodes.Report) { r.Results = nil }, "they have no claim "},
		"of another format":   {func(r *netmodes.Report) { r.Format = 99 }, "its format is 99"},
		"of other runs":       {func(r *netmodes.Report) { r.Runs = 8 }, "netmodes.json is of 8 runs in 5 rounds, the kept section of 40 in 5"},
		"of other rounds":     {func(r *netmodes.Report) { r.Repeat = 1 }, "netmodes.json is of 40 runs in 1 rounds, the kept section of 40 in 5"},
	} {
		changed := twice
		test.change(&changed)
		must.Succeed(t, writeTo(o.Dir, made.Result, jsonOf(changed)))
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("a result %s: %v, want %q", name, err, test.want)
		}
	}
	// Judging that was interrupted may have added a claim.
	twice.Claims = append(slices.Clone(twice.Claims), report.Claim{Source: then.Source, Where: "figure 99", Says: "a rule that is new"})
	must.Succeed(t, writeTo(o.Dir, made.Result, jsonOf(twice)))
	longer := o
	longer.Duration, longer.sections = 2*PublishDuration, slices.Clone(o.sections)
	longer.sections[0].paper = true
	if _, err := Run(t.Context(), longer); err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("longer runs: %v", err)
	}
	longer.Duration = o.Duration
	if _, err := Run(t.Context(), longer); err == nil || !strings.Contains(err.Error(), "kept 5 rounds of 2 s, now 5 of 10 s") {
		t.Errorf("longer runs of this section: %v", err)
	}
	for range 2 {
		index, err := Run(t.Context(), o)
		must.Succeed(t, err)
		now := ofTime(index.Sections[0].Claims)
		if now.Judgement != report.ClaimUndecided || now.Was != report.Reproduced || now.Command != then.Command || !strings.Contains(now.Reason, "0.4 to 2.9 times") {
			t.Errorf("judged again: %+v", now)
		}
		page, err := os.ReadFile(filepath.Join(o.Dir, "claims.md"))
		must.Succeed(t, err)
		for _, want := range []string{"**undecided**", "By earlier rules: reproduced.", "- netmodes: in 3 of 40 runs, which count, a processor stood still"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("the page has no %q:\n%s", want, page)
			}
		}
		if !regexp.MustCompile(`\n\| netmodes \|[^\n]*\| network namespaces \|`).Match(page) {
			t.Errorf("the page does not say what the section's containers are:\n%s", page)
		}
		if text, err := os.ReadFile(filepath.Join(o.Dir, made.Result)); err == nil {
			var result netmodes.Report
			must.Succeed(t, json.Unmarshal(text, &result))
			if got := ofTime(result.Claims); got.Judgement != report.ClaimUndecided {
				t.Errorf("its numbers say %s", got.Judgement)
			}
			must.Succeed(t, os.Remove(filepath.Join(o.Dir, made.Result)))
		}
	}
}
