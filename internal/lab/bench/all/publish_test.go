package all

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/liveport"
	"github.com/weir-project/weir/internal/lab/bench/llq"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/bench/netmodes"
	"github.com/weir-project/weir/internal/lab/bench/picasso"
	"github.com/weir-project/weir/internal/lab/bench/sdn"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/test/must"
)

// publishing returns options of a page of claims whose weir has a version, and what the run prints.
func publishing(t *testing.T, version string) (Options, *bytes.Buffer) {
	t.Helper()
	dir, printed := t.TempDir(), &bytes.Buffer{}
	weir := filepath.Join(dir, "weir")
	writeProgram(t, weir, "weir version "+version)
	old := sources
	sources = "bpf=1,agent=2,bench=3"
	t.Cleanup(func() { sources = old })
	return Options{
		Dir: filepath.Join(dir, "page"), Publish: true,
		Options: bench.Options{Overload: 1.5, Containers: 50, RunOptions: measure.RunOptions{
			Duration: PublishDuration, Warmup: time.Second, Repeat: LeastRounds, WeirBinary: weir, Version: version, Command: "weir bench all --publish", Progress: printed,
		}},
	}, printed
}

// writeProgram writes a program that prints a line.
func writeProgram(t *testing.T, path, line string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte("#!/bin/sh\necho "+line+"\n"), 0o755))
}

// counted returns a section with a report, and how often it ran.
func counted(name string, found report.Report) (section, *int) {
	ran := 0
	return section{name: name, about: "a test", share: 1, kind: kind{again: "weir bench " + name, flags: Options.runFlags}, run: func(context.Context, Options) (report.Result, error) {
		ran++
		return found, nil
	}}, &ran
}

// without is a section whose tool is missing.
func without(context.Context, Options) (report.Result, error) {
	return nil, &skippedError{"dockerd is not installed"}
}

// TestPublishGoesOn: what was complete before a cut-off is not measured again, the page has all, and the computed figures
// of the real section have their commands.
func TestPublishGoesOn(t *testing.T) {
	o, printed := publishing(t, "v1")
	one, ran := counted("one", report.Report{Gaps: []string{"No tool."}, Provenance: report.Provenance{Runs: 20}, Claims: []report.Claim{{
		Source: "A (2000)", Where: "figure 1", Says: "Much.", Judgement: report.NotReproduced, Reason: "Less.",
		Values: []report.Value{{Name: "rate", Unit: "Mbit/s", Paper: report.Number(9), Ideal: report.Number(10), Measured: report.Number(8), Low: report.Number(7), High: report.Number(8.5)}},
	}}})
	ctx, cut := context.WithCancel(t.Context())
	last, lastRan := counted("last", report.Report{Verdicts: []report.Verdict{{Target: "speed", Limit: "much", Measured: "less", Where: "here", Change: "work"}}})
	whole := last.run
	last.run = func(ctx context.Context, o Options) (report.Result, error) {
		if _, err := publish(ctx, o); err == nil || !strings.Contains(err.Error(), "another weir bench measures for "+o.Dir+": wait until it ends") {
			t.Errorf("a second start for the same folder: %v", err)
		}
		if *lastRan == 0 {
			*lastRan++
			cut()
			return nil, ctx.Err()
		}
		return whole(ctx, o)
	}
	o.sections = []section{sections()[0], one, last}
	limited := o
	limited.sections, limited.Within, limited.Dir = []section{{name: "long", share: 1e6, run: without}}, 3*time.Hour, t.TempDir()
	if _, err := Run(t.Context(), limited); err != nil || !strings.Contains(printed.String(), "which takes about 3h0m0s") {
		t.Errorf("%v: a limit of three hours: %s", err, printed)
	}
	printed.Reset()
	if _, err := Run(ctx, o); err == nil {
		t.Fatal("the cut-off is no error")
	}
	for _, want := range []string{"3 sections: 0 are kept", "3 are to be measured, which takes about", "=== 2 of 3, one"} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("%q was not printed:\n%s", want, printed)
		}
	}
	printed.Reset()
	index, err := Run(t.Context(), o)
	if err != nil || *ran != 1 || *lastRan != 2 || len(index.Sections) != 3 || len(index.Withheld) != 0 || !strings.Contains(printed.String(), "2 are kept in") {
		t.Fatalf("%v: the first ran %d times, the last %d, %+v\n%s", err, *ran, *lastRan, index, printed)
	}
	page, err := os.ReadFile(filepath.Join(o.Dir, "claims.md"))
	must.Succeed(t, err)
	for _, want := range []string{
		"| figure 1 | Much. | **not reproduced** | rate: paper 9, ideal 10, here 8 (7 to 8.5) Mbit/s | Less. | `weir bench one --duration 2s --warmup 1s --repeat 5` |",
		"| qCon (Sensors 2018) | 3.3.4 | algorithm 1: ", "`weir model llq --figures figures.html`", "## Where Weir loses", "| last: speed, much (missed) | less, here | work |", "bpf=1,agent=2,bench=3", "\n| one | a test | 5 of 2 s |", "## Missing and disturbed\n\n- one: No tool.\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	text, err := os.ReadFile(filepath.Join(o.Dir, "claims.json"))
	must.Succeed(t, err)
	var again report.Index
	must.Succeed(t, json.Unmarshal(text, &again))
	var b bytes.Buffer
	if must.Succeed(t, again.WriteClaims(&b)); b.String() != string(page) {
		t.Error("the page is not what its JSON makes")
	}
	// A complete section of another kernel is not measured again: the page says which.
	moveKept(t, filepath.Join(o.Dir, keptName("one")), "6.0-other")
	printed.Reset()
	_, err = Run(t.Context(), o)
	must.Succeed(t, err)
	page, err = os.ReadFile(filepath.Join(o.Dir, "claims.md"))
	hosts := regexp.MustCompile(`(?s)\n- host 2: [^\n]*kernel 6\.0-other,.*\n\| figures \|[^\n]* 1 \|[^\n]*\n\| one \|[^\n]* 2 \| [^\n]*\n\| last \|[^\n]* 1 \| `)
	if err != nil || *ran != 1 || !hosts.Match(page) {
		t.Errorf("%v, measured %d times; want the other host in the page:\n%s", err, *ran, page)
	}
	text, err = os.ReadFile(filepath.Join(o.Dir, "claims.json"))
	must.Succeed(t, err)
	must.Succeed(t, json.Unmarshal(text, &again))
	if got := again.Sections[1].Host.Kernel; got != "6.0-other" || again.Settings.Kernel == got || !strings.Contains(printed.String(), "one was measured with kernel 6.0-other\n") {
		t.Errorf("the section is of kernel %s, the page of %s; printed: %s", got, again.Settings.Kernel, printed)
	}
}

// moveKept replaces the kernel of the settings in a file.
func moveKept(t *testing.T, path, kernel string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	was := regexp.MustCompile(`"kernel": ?"[^"]*"`).Find(text) // the first one
	must.Succeed(t, os.WriteFile(path, bytes.Replace(text, was, []byte(`"kernel":"`+kernel+`"`), 1), 0o644))
}

// inRuns returns a section of 20 runs that takes kept ones, calls cut in each other one, and keeps it. measured counts them.
func inRuns(name string, cut func()) (one section, measured *int) {
	measured = new(int)
	return section{name: name, about: "a test", share: 1000, kind: kind{again: "weir bench " + name, flags: Options.runFlags}, run: func(ctx context.Context, o Options) (report.Result, error) {
		o.Journal.Expect(20)
		for range 20 {
			if _, kept := o.Journal.TakeNext("run"); kept {
				continue
			}
			if o.Journal.Late(time.Second) {
				return nil, measure.ErrTimeIsUp
			}
			if cut(); ctx.Err() != nil {
				return nil, ctx.Err()
			}
			*measured++
			if err := o.Journal.Add(measure.KeptRun{Key: "run", TookNS: 1e9}); err != nil {
				return nil, err
			}
		}
		return report.Report{Provenance: report.Provenance{Runs: 20}}, nil
	}}, measured
}

// TestPublishGoesOnInASection: runs before a cut-off are not measured again, also by another build of the same sources, which the
// page names; their file is removed with the last one. Runs of other sources are refused; those of another kernel are left, and other
// sections are measured.
func TestPublishGoesOnInASection(t *testing.T) {
	o, printed := publishing(t, "v1")
	ctx, cut := context.WithCancel(t.Context())
	runs := 0
	one, measured := inRuns("one", func() {
		if runs++; runs == 9 {
			cut()
		}
	})
	o.sections = []section{one}
	if _, err := Run(ctx, o); err == nil || *measured != 8 {
		t.Fatalf("%v after %d runs", err, *measured)
	}
	kept := sources
	sources = "bpf=9,agent=2,bench=3"
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "one.runs.jsonl were measured with other settings: sources: kept bpf=1") {
		t.Errorf("runs of other sources: %v", err)
	}
	sources = kept + ",edge=7" // which the section does not measure
	other := o
	other.Dir = t.TempDir()
	runsFile := filepath.Join(other.Dir, "one.runs.jsonl")
	text, err := os.ReadFile(filepath.Join(o.Dir, "one.runs.jsonl"))
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(runsFile, text, 0o644))
	moveKept(t, runsFile, "6.0-other")
	more, ran := counted("more", report.Report{})
	other.sections = []section{one, more}
	writeProgram(t, o.WeirBinary, "weir version v1")
	index, err := Run(t.Context(), other)
	if want := "one: 8 of 20 runs were measured with kernel 6.0-other: go on there, or remove " + runsFile + " to measure them again here"; err != nil || *measured != 8 || *ran != 1 || !slices.Equal(index.Left, []string{want}) {
		t.Errorf("%v: %d and %d runs, left %q", err, *measured, *ran, index.Left)
	}
	if want := "2 sections: 0 are kept in " + other.Dir + ", 1 are to be measured"; !strings.Contains(printed.String(), want) {
		t.Errorf("%q was not printed:\n%s", want, printed)
	}
	if kept, err := os.ReadFile(runsFile); err != nil || !strings.Contains(string(kept), "6.0-other") {
		t.Errorf("%v: the runs of another kernel are gone: %s", err, kept)
	}
	o.Version = "v2"
	writeProgram(t, o.WeirBinary, "weir version v2")
	printed.Reset()
	index, err = Run(t.Context(), o)
	if err != nil || *measured != 20 || !strings.Contains(printed.String(), "one: 8 of 20 runs are kept, the rest takes about ") || !slices.Equal(index.Sections[0].Builds, []string{"v1", "v2"}) {
		t.Errorf("%v after %d runs: %+v\n%s", err, *measured, index, printed)
	}
	if index.Sections[0].TookSeconds < 8 {
		t.Errorf("it took %g s, of which the kept runs took 8", index.Sections[0].TookSeconds)
	}
	page, err := os.ReadFile(filepath.Join(o.Dir, "claims.md"))
	if err != nil || !regexp.MustCompile(`\n\| one \|[^\n]*\| v1, v2 \|`).Match(page) {
		t.Errorf("%v: the page does not name the builds:\n%s", err, page)
	}
	runsFile = filepath.Join(o.Dir, "one.runs.jsonl")
	if _, err := os.Stat(runsFile); err == nil {
		t.Error("the runs of a kept section are still there")
	}
	must.Succeed(t, os.WriteFile(runsFile, text, 0o644)) // as if the process had been killed as it had just kept the section
	_, err = Run(t.Context(), o)
	must.Succeed(t, err)
	if _, err := os.Stat(runsFile); err == nil || *measured != 20 {
		t.Errorf("after %d runs the runs of a kept section are there again", *measured)
	}
}

// TestPublishRefusesReplaced: a run or a section in which a program is replaced is not kept, and ends the page; runs from before are
// kept.
func TestPublishRefusesReplaced(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		o, printed := publishing(t, "v1")
		lab := o.WeirBinary + "-lab"
		writeProgram(t, lab, "weir-lab version v1")
		runs := 0
		one, measured := inRuns("one", func() {
			if runs++; runs == 9 {
				must.Succeed(t, os.Rename(o.WeirBinary, o.WeirBinary+".old"))
				writeProgram(t, o.WeirBinary, "weir version v1")
			}
		})
		if one.fixed = fixed; fixed {
			one.run = func(context.Context, Options) (report.Result, error) {
				writeProgram(t, lab, "weir-lab version v2")
				return report.Report{}, nil
			}
		}
		o.sections = []section{one}
		_, err := Run(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), " was replaced while it was measured: start again") {
			t.Errorf("fixed: %v: error %v\n%s", fixed, err, printed)
		}
		if _, err := os.Stat(filepath.Join(o.Dir, keptName("one"))); err == nil {
			t.Errorf("fixed: %v: the section is kept", fixed)
		}
		if fixed {
			continue
		}
		if _, err := Run(t.Context(), o); err != nil || *measured != 9+12 {
			t.Errorf("%v: %d runs, of which 8 are kept", err, *measured)
		}
	}
}

// failingReport is a report in which the runs of some cases failed.
type failingReport struct {
	report.Report
	failed int
}

func (r failingReport) Failed() int { return r.failed }

// TestPublishKeepsGoodRuns: after a section with a failed run, or with many disturbed runs, only these are measured again, once
// more at the end and then by the next start.
func TestPublishKeepsGoodRuns(t *testing.T) {
	for name, test := range map[string]struct{ failed, disturbed int }{"failed": {1, 0}, "disturbed": {0, 3}, "both": {2, 4}} {
		t.Run(name, func(t *testing.T) {
			o, printed := publishing(t, "v1")
			measured, goes := 0, 0
			o.sections = []section{{name: "one", share: 1000, kind: kind{again: "weir bench one", flags: Options.runFlags}, run: func(_ context.Context, o Options) (report.Result, error) {
				goes++
				bad, found := goes <= 2, failingReport{Report: report.Report{Provenance: report.Provenance{Runs: 20}}}
				lacks := -1
				for range 20 {
					if run, kept := o.Journal.TakeNext("run"); kept {
						found.DisturbedRuns = append(found.DisturbedRuns, run.Disturbed...)
						continue
					}
					measured++
					lacks++
					if bad && lacks < test.failed {
						o.Journal.SkipRun("run")
						found.failed = 1
						continue
					}
					run := measure.KeptRun{Key: "run"}
					if bad && lacks < test.failed+test.disturbed {
						run.Disturbed = []string{"others"}
						found.DisturbedRuns = append(found.DisturbedRuns, "others")
					}
					must.Succeed(t, o.Journal.Add(run))
				}
				return found, nil
			}}}
			for start, want := range []int{20 + test.failed + test.disturbed, 20 + 2*(test.failed+test.disturbed)} {
				index, err := Run(t.Context(), o)
				if err != nil || measured != want || (len(index.Withheld) == 0) != (start > 0) {
					t.Errorf("start %d: %v, %d runs, want %d, withheld for %q\n%s", start+1, err, measured, want, index.Withheld, printed)
				}
			}
			if _, err := os.Stat(filepath.Join(o.Dir, "one.runs.jsonl")); err == nil {
				t.Error("the runs of a kept section are still there")
			}
		})
	}
}

// TestPublishEndsInTime: a run or a section that would not end in time is left for the next run, without an error and without a
// page; what fits is measured, and first.
func TestPublishEndsInTime(t *testing.T) {
	o, printed := publishing(t, "v1")
	o.For = 3 * time.Minute
	runs := 0
	one, measured := inRuns("one", func() { runs++ })
	whole := one.run
	one.run = func(ctx context.Context, o Options) (report.Result, error) {
		if runs == 0 { // runs of which the longest takes more than is left
			runs = 1
			o.Journal.Expect(20)
			for range 4 {
				must.Succeed(t, o.Journal.Add(measure.KeptRun{Key: "run", TookNS: 1e9}))
			}
			must.Succeed(t, o.Journal.Add(measure.KeptRun{Key: "run", TookNS: int64(10 * time.Minute)}))
		}
		return whole(ctx, o)
	}
	long, ran := counted("long", report.Report{})
	long.fixed, long.share = true, 600
	short, shortRan := counted("short", report.Report{})
	o.sections = []section{one, long, short}
	index, err := Run(t.Context(), o)
	left := strings.Join(index.Left, "; ")
	if err != nil || *measured != 0 || *ran != 0 || *shortRan != 1 || !strings.Contains(left, "one: 5 of 20 runs are kept, ") || !strings.Contains(left, "long: the rest takes about 10m0s") {
		t.Errorf("%v: %d, %d, %d runs, left %q\n%s", err, *measured, *ran, *shortRan, left, printed)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, "claims.md")); err == nil {
		t.Error("there is a page")
	}
	// What is complete in time comes before what is cut off; the page has all in their order.
	if text := printed.String(); strings.Index(text, "=== 1 of 3, short") > strings.Index(text, "=== 2 of 3, one") || !strings.Contains(text, "=== 1 of 3, short") {
		t.Errorf("what fits is not measured first:\n%s", text)
	}
	o.For = 0
	if index, err := Run(t.Context(), o); err != nil || len(index.Left) != 0 || index.Sections[0].Name != "one" || *measured != 15 || *ran != 1 || *shortRan != 1 {
		t.Errorf("%v: %d, %d, %d runs, left %q", err, *measured, *ran, *shortRan, index.Left)
	}
	o.Publish, o.For, o.Within = false, time.Hour, time.Hour
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "given with --publish") {
		t.Errorf("for an hour without a page of claims: %v", err)
	}
}

// TestPublishOrder: where the time is limited, sections with kept runs come first, then those that are complete in time.
func TestPublishOrder(t *testing.T) {
	p := page{Options: Options{For: 10 * time.Minute}, end: time.Now(), counts: map[string]runCount{"begun": {5, 10}}}
	var todo []section
	for _, one := range []struct {
		name    string
		minutes float64
	}{{"long", 11}, {"six", 6}, {"begun", 8}, {"five", 5}, {"none", 0}} {
		todo = append(todo, section{name: one.name, share: 60 * one.minutes, kind: kind{fixed: true}})
	}
	names := func(list []section) (text string) {
		for _, one := range list {
			text += one.name + " "
		}
		return text
	}
	if got, want := names(p.inOrder(todo)), "begun six none long five "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if p.end = (time.Time{}); names(p.inOrder(todo)) != names(todo) {
		t.Errorf("without a limit: %q", names(p.inOrder(todo)))
	}
}

// TestPublishRefusesMixed: a kept section of another build or of other settings is refused before anything runs, with what
// differs and what to do; so is one that cannot be read, a program of another build, and a build of no commit.
func TestPublishRefusesMixed(t *testing.T) {
	for _, test := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Seed = 7 }, "seed: kept 0, now 7"},
		{func(o *Options) { o.Repeat = 6 }, "rounds: kept 5, now 6"},
		{func(*Options) { sources = "bpf=9,agent=2,bench=3" }, "sources: kept bpf=1,agent=2,bench=3, now bpf=9"},
		{func(o *Options) {
			must.Succeed(t, os.WriteFile(filepath.Join(o.Dir, keptName("one")), []byte("{"), 0o644))
		}, "is no kept section one"},
		{func(o *Options) { o.Short, o.Version, sources = true, "v2", "" }, "build: kept v1, now v2"},
		{func(*Options) { sources = "" }, "its build is of no commit: commit, and run make build, or only look, with --short"},
		{func(o *Options) { o.Version = "v1-dirty" }, "its build is of no commit"},
		{func(*Options) { sources = "bpf=1,agent=2,sdn=4,bench=3" }, "sources: kept bpf=1,agent=2,bench=3, now bpf=1,agent=2,sdn=4"},
		{func(o *Options) { o.Version, o.Dir = "v2", t.TempDir() }, "is version v1, this program v2: run make build"},
		{func(o *Options) {
			o.Dir = t.TempDir()
			writeProgram(t, o.WeirBinary+"-sdn", "weir-sdn version v0")
		}, "weir-sdn is version v0, this program v1: run make build"},
	} {
		o, _ := publishing(t, "v1")
		one, ran := counted("one", report.Report{})
		one.program, one.source = findController, sourceSDN // there is none at first
		o.sections = []section{one}
		_, err := Run(t.Context(), o)
		must.Succeed(t, err)
		test.change(&o)
		if _, err = Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), test.want) || *ran != 1 {
			t.Errorf("error %v after %d runs, want one with %q", err, *ran, test.want)
		}
		if strings.Contains(test.want, ": kept ") && !strings.Contains(err.Error(), "Remove it to measure it again, or choose another --dir") {
			t.Errorf("%v does not say what to do", err)
		}
	}
}

// TestPublishWithholds: runs that others disturbed are named; too many, failures, missing cases, short runs and builds of no
// commit withhold the page, and such a section is measured again. A missing tool is left out and said; that of a paper
// withholds the page.
func TestPublishWithholds(t *testing.T) {
	disturbed := func(n int) report.Report {
		return report.Report{Provenance: report.Provenance{Runs: 20, DisturbedRuns: slices.Repeat([]string{"round 1: others took 50 % of the processors"}, n)}}
	}
	failing := func(context.Context, Options) (report.Result, error) { return nil, os.ErrPermission }
	late := report.Report{}
	late.AddLeftOut(3)
	for name, test := range map[string]struct {
		found  report.Report
		run    func(context.Context, Options) (report.Result, error)
		change func(*Options)
		paper  bool
		kept   bool
		why    string // the page is withheld
		said   string // on the page
	}{
		"few disturbed":  {found: disturbed(2), kept: true, said: "one, disturbed: round 1: others took 50 %"},
		"many disturbed": {found: disturbed(3), why: "one: others used the machine in 3 of 20 runs", said: "one, disturbed: round 1"},
		"missing tool":   {run: without, said: "one: left out: dockerd is not installed"},
		"missing paper":  {run: without, paper: true, why: "one: left out: dockerd is not installed", said: "Not for publishing"},
		"failure":        {run: failing, why: "one: permission denied", said: "one: permission denied"},
		"no time":        {found: late, why: "one: there was no time for all cases", said: "Not for publishing"},
		"short":          {change: func(o *Options) { o.Short, o.Duration = true, ShortDuration }, kept: true, why: "its runs are short", said: "Not for publishing"},
		"no commit":      {change: func(o *Options) { o.Short, sources = true, "" }, kept: true, why: "its runs are short (--short); its build is of no commit", said: "Not for publishing"},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := publishing(t, "v1")
			one, ran := counted("one", test.found)
			if whole := one.run; test.run != nil {
				one.run = func(ctx context.Context, o Options) (report.Result, error) {
					_, _ = whole(ctx, o)
					return test.run(ctx, o)
				}
			}
			if test.change != nil {
				test.change(&o)
			}
			one.paper = test.paper
			o.sections = []section{one}
			_, err := Run(t.Context(), o)
			must.Succeed(t, err)
			index, err := Run(t.Context(), o)
			must.Succeed(t, err)
			if why := strings.Join(index.Withheld, "; "); why != test.why && (test.why == "" || !strings.HasPrefix(why, test.why)) {
				t.Errorf("withheld for %q, want %q", why, test.why)
			}
			if (*ran == 1) != test.kept {
				t.Errorf("it ran %d times; kept: %v", *ran, test.kept)
			}
			page, err := os.ReadFile(filepath.Join(o.Dir, "claims.md"))
			if err != nil || !strings.Contains(string(page), test.said) {
				t.Errorf("%v: the page has no %q:\n%s", err, test.said, page)
			}
		})
	}
}

// TestWhollyDisturbed: a section that does not watch its runs is not kept if others used the machine during it, however
// many runs it has; others, computed ones and ones too short to tell are not marked.
func TestWhollyDisturbed(t *testing.T) {
	for name, test := range map[string]struct {
		kind    kind
		seconds float64
		load    float64
		marked  bool
	}{
		"disturbed":     {kind{fixed: true}, 60, 0.5, true},
		"idle":          {kind{fixed: true}, 60, 0.01, false},
		"watches runs":  {kind{}, 60, 0.5, false},
		"computed":      {kind{fixed: true, computed: true}, 60, 0.5, false},
		"short to tell": {kind{fixed: true}, 0.5, 0.5, false},
	} {
		made := report.Section{Name: name, Runs: 60, TookSeconds: test.seconds}
		marked := section{kind: test.kind}.markDisturbed(&made, test.load)
		why := withheld(report.Index{Settings: &report.Settings{}, Sections: []report.Section{made}}, []section{{}})
		refused := strings.Contains(strings.Join(why, "; "), "the whole section: others took 50 % of the processors: measure again")
		if marked != test.marked || refused != test.marked || (notKept(made) != "") != test.marked {
			t.Errorf("%s: marked: %v, withheld for %q, not kept for %q; want %v", name, marked, why, notKept(made), test.marked)
		}
	}
	if notKept(report.Section{WhollyDisturbed: true}) == "" { // as a file from elsewhere may say
		t.Error("a section that was disturbed by nothing that it names is kept")
	}
}

// TestClaimsKeepCommands: a claim that has a command keeps it.
func TestClaimsKeepCommands(t *testing.T) {
	o, _ := publishing(t, "v1")
	o.Dir = t.TempDir()
	one, _ := counted("one", report.Report{Claims: []report.Claim{{Where: "figure 1"}, {Where: "figure 6", Command: "weir bench other"}}})
	made, err := one.makeWatched(t.Context(), o)
	if err != nil || !strings.HasPrefix(made.Claims[0].Command, "weir bench one ") || made.Claims[1].Command != "weir bench other" {
		t.Errorf("%v: %+v", err, made.Claims)
	}
}

// TestPublishTime: everything takes a night, suites as long as their runs, and fewer or shorter runs are refused.
func TestPublishTime(t *testing.T) {
	o, printed := publishing(t, "v1")
	o.RateBPS, o.Readers = 100e6, 100
	if (page{Options: o}).printUnmeasured(sections(), 20, time.Now()); !strings.Contains(printed.String(), "more if ratios stay undecided") {
		t.Errorf("it does not say how much longer it may take: %s", printed)
	}
	sum, undecided := time.Duration(0), time.Duration(0)
	for _, one := range sections() {
		if one.again == "" {
			t.Errorf("section %s has no command", one.name)
		}
		needed, more := o.estimatedTime(one)
		sum, undecided = sum+needed, undecided+more
		// A round of agent has two runs of 20 s beside scrapes, one of cost 22 runs of 4 s, with a second of the idle machine.
		if least := map[string]time.Duration{"agent": 5 * 2 * 20 * time.Second, "cost": 7 * 22 * 4 * time.Second}[one.name]; needed < least || (more > 0) != (one.name == "cost" || one.name == "in") {
			t.Errorf("%s takes %v and up to %v more, at least %v", one.name, needed, more, least)
		}
	}
	if sum < 5*time.Hour || sum > 10*time.Hour || undecided < 30*time.Minute || undecided > 3*time.Hour {
		t.Errorf("everything takes %v, and up to %v more", sum, undecided)
	}
	// PiCasso is kept only when complete, and half an evening is for others.
	crowds := section{share: 100, kind: kind{fixed: true, length: picassoTime}}
	if got, _ := o.estimatedTime(crowds); got < 50*time.Minute || got > 70*time.Minute {
		t.Errorf("five rounds of PiCasso take %v", got)
	}
	short := o
	short.Short = true
	if got, _ := short.estimatedTime(crowds); got > 30*time.Minute {
		t.Errorf("PiCasso's part of a short page takes %v", got)
	}
	for _, change := range []func(*Options){func(o *Options) { o.Repeat = 4 }, func(o *Options) { o.Duration = 9 * time.Second }, func(o *Options) { o.Short, o.Duration = true, time.Second }} {
		few := o
		change(&few)
		if _, err := Run(t.Context(), few); err == nil || !strings.Contains(err.Error(), "a page of claims takes 5 rounds of 10s, or with --short of 2s, at least") {
			t.Errorf("%+v: %v", few, err)
		}
	}
}

// TestClaimCommands: each claim of a suite of cases gets the cases of its figure.
func TestClaimCommands(t *testing.T) {
	o, _ := publishing(t, "v1")
	for _, test := range [][3]string{
		{"qcon", "figure 9, last case", " --only '^(figure 9)[:,]'"},
		{"qcon", "table 1", " --only '^(table 1)[:,]'"},
		{"cntc", "figure 7b", " --only '^(figures 1b and 7b)[:,]'"},
		{"cntc", "figure 9b", " --only '^(figure 9)[:,]'"},
		{"cntc", "contribution 3", ""},
	} {
		s := sectionNamed(test[0])
		o.RateBPS, o.Docker = 100e6, true
		if got, want := s.command(o, test[1]), "weir bench "+test[0]+" --duration 10s --warmup 1s --repeat 5 --seed 0"+test[2]; got != want {
			t.Errorf("%s: %q, want %q", test[1], got, want)
		}
	}
}

func sectionNamed(name string) section {
	return *measure.Find(sections(), func(s section) bool { return s.name == name })
}

// TestPicassoCommands: each claim of PiCasso gets the part of its figure.
func TestPicassoCommands(t *testing.T) {
	o, _ := publishing(t, "v1")
	s := sectionNamed(picasso.Suite)
	for where, part := range map[string]string{
		"table I": "success", "figure 3": "success", "figures 5 and 8": "replicas", "figure 7b": "replicas", "replicas of a node": "capacity", "figure 9": "cost",
	} {
		if got := s.command(o, where); !strings.HasSuffix(got, " --parts "+part) {
			t.Errorf("%s: %q, want part %s", where, got, part)
		}
	}
	if got := s.command(o, ""); strings.Contains(got, "--parts") {
		t.Errorf("of no figure: %q", got)
	}
}

// TestNetmodesCommands: a claim on network modes gets the modes and the link of its figure.
func TestNetmodesCommands(t *testing.T) {
	for _, test := range [][3]string{
		{netmodes.Suite, "figure 3, no limit", "bench --modes native,bridge --protocols tcp,udp --bytes 64,1024 --containers 1 --links none --agent without"},
		{netmodes.Suite, "", "bench"},
		{sdn.Suite, "figure 3, no limit", "bench"},
	} {
		s := sectionNamed(test[0])
		s.again, s.flags = "bench", nil
		if got := s.command(Options{}, test[1]); got != test[2] {
			t.Errorf("%s, %s: %q, want %q", test[0], test[1], got, test[2])
		}
	}
}

// TestSectionCommands: commands have the flags of the runs that were judged.
func TestSectionCommands(t *testing.T) {
	o, _ := publishing(t, "v1")
	o.Seed, o.Warmup = 7, 500*time.Millisecond
	want := map[string]string{
		"figures":      "weir model llq --figures figures.html",
		"qcon":         "weir bench qcon --duration 10s --warmup 500ms --repeat 5 --seed 7 --judged --no-docker",
		"cost":         "weir bench cost --duration 2s --warmup 500ms --repeat 7 --seed 7 --no-docker",
		"latency":      "weir bench latency --duration 6s --warmup 500ms --repeat 5 --seed 7 --no-docker",
		llq.Suite:      "weir bench llq --duration 10s --warmup 500ms --repeat 5",
		liveport.Suite: "weir bench model --duration 30s --warmup 500ms --repeat 5 --seed 7",
		sdn.Suite:      "weir bench sdn --duration 2s",
		picasso.Suite:  "weir bench picasso --requests 10000 --for 15s --users 5,100,500,1000 --repeat 5 --starts 5 --duration 3s --nodes 4 --orders 2",
		netmodes.Suite: "weir bench netmodes --duration 10s --warmup 500ms --repeat 5 --judged",
	}
	for _, one := range sections() {
		if text, checked := want[one.name]; checked && one.command(o.of(one), "") != text {
			t.Errorf("%s: %q, want %q", one.name, one.command(o.of(one), ""), text)
		}
		if (one.flags == nil) != one.computed {
			t.Errorf("%s has no flags", one.name)
		}
	}
}

// TestParts: a section depends on its program and on the files that its suite alone uses, not on those of others.
func TestParts(t *testing.T) {
	for _, test := range []struct {
		section
		want string
	}{
		{section{name: "llq", kind: kind{source: sourceSDN}}, "bpf agent bench sdn llq"},
		{section{name: "agent"}, "bpf agent bench"},
	} {
		if got := strings.Join(test.parts(), " "); got != test.want {
			t.Errorf("%s depends on %s, want %s", test.name, got, test.want)
		}
	}
}
