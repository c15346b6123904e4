// Package all runs every suite, and the queueing model, and makes one report of all with an
// index.
package all

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/liveport"
	"github.com/weir-project/weir/internal/lab/bench/llq"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/bench/netmodes"
	"github.com/weir-project/weir/internal/lab/bench/picasso"
	"github.com/weir-project/weir/internal/lab/bench/sdn"
	"github.com/weir-project/weir/internal/lab/model"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/report/machine"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// Options are the options of all reports.
type Options struct {
	// Dir is the folder of the reports.
	Dir string
	// Within limits the total time, divided among the reports. Cases that do not fit are left out
	// and named in the report.
	Within time.Duration
	// Publish makes a page of all claims: sections that are kept in Dir are not measured again, and nothing has a time
	// limit unless Within is set. Short marks the page as one that must not be published.
	Publish, Short bool
	// For is how long a page of claims is measured now: what would not end in time is left for the next run. Zero is no limit.
	For time.Duration
	// sections replaces all sections, for tests.
	sections []section
	// Duration is counted in every run; Options has the rest, for suites.
	bench.Options
}

const (
	// minWithin is what the shortest run of everything needs.
	minWithin = time.Minute
	indexName = "index"
	indexNote = "Everything that weir bench and weir model have to say about this machine, in one go. Runs are short: " +
		"one suite alone, with a longer --duration and --repeat 5, tells smaller differences."
)

// section is one report of all.
type section struct {
	name, about string
	// share is about the section's seconds at one second per run; 0 if it has a length.
	share float64
	run   func(context.Context, Options) (report.Result, error)
	kind
}

// kind is how a section takes part in a page of claims.
type kind struct {
	// paper sections judge a paper, and take runs of the full duration; others take at most longest (0: ownDuration).
	paper   bool
	longest time.Duration
	// fixed sections have runs of their own: neither the duration nor rounds change how long they take, unless length
	// says how long that is. Load changes no figure of computed sections.
	fixed, computed bool
	// again is the command that repeats a section; flags are its flags for options of this section, nil for none.
	again string
	flags func(Options) string
	// only returns the further flags that measure what a claim needs, by where the paper has it; empty for all. nil: all always.
	only func(o Options, where string) string
	// duration returns how long runs of a section take where runs of others take d; nil: as long.
	duration func(d time.Duration) time.Duration
	// program finds the program that the section measures besides weir, given the path of weir; nil if there is none.
	program func(weir string) (string, error)
	// judged sections measure on a page of claims only what claims and targets are judged by: part of their share.
	judged bool
	part   func(Options) float64
	// length returns about how long a section takes, and how much longer at most if ratios stay undecided; nil: share says it.
	length func(Options) (needed, more time.Duration)
	// model: its claims are of the model of docs/model.md.
	model bool
	// source is that program's part of the hashes of sources.
	source string
}

// sections returns all reports in the order of the index.
func sections() []section {
	list := []section{
		{"figures", "the queueing model of SDN-LLQ: its figures 3 to 5, computed", 1, runFigures, kind{paper: true, fixed: true, computed: true, again: "weir model llq --figures figures.html"}},
	}
	for _, name := range bench.SuiteNames() {
		paper := name == bench.SuiteQCon || name == bench.SuiteCNTC
		one := section{name, bench.About(name), 0, runSuite(name), kind{paper: paper, judged: paper, again: "weir bench " + name, flags: Options.suiteFlags}}
		one.only = func(o Options, where string) string { return bench.OnlyOf(o.suite(name), where) }
		one.length = func(o Options) (needed, more time.Duration) { return o.suite(name).Length() }
		if name == bench.SuiteLatency {
			one.longest = percentileDuration
		}
		list = append(list, one)
	}
	return append(list,
		section{llq.Suite, "SDN-LLQ's experiment: voice, video and generic data", 90, runLLQ, kind{paper: true, again: "weir bench llq", flags: Options.runFlags, duration: llqDuration, program: findController, source: sourceSDN}},
		section{liveport.Suite, "the queueing model against real packets", 35, runModel, kind{paper: true, model: true, again: "weir bench model", flags: Options.seededFlags, duration: modelDuration}},
		section{sdn.Suite, "how fast the OpenFlow controller answers", 20, runSDN, kind{fixed: true, again: "weir bench sdn", flags: Options.sdnFlags, program: findController, source: sourceSDN}},
		section{picasso.Suite, "PiCasso's evaluation, and Weir's placement beside Swarm's", 405, runPicasso, kind{paper: true, fixed: true, length: picassoTime, again: "weir bench picasso", flags: Options.picassoFlags, only: picassoOnly, duration: lastPicasso, program: picasso.FindEdge, source: "edge"}},
		section{netmodes.Suite, "what network modes of containers cost", 840, runNetmodes, kind{paper: true, again: "weir bench netmodes", flags: Options.judgedFlags, only: func(_ Options, where string) string { return netmodes.OnlyOf(where) }, judged: true, part: func(o Options) float64 { return netmodes.JudgedPart(o.netmodes()) }}})
}

// Check returns an error for invalid options, before anything starts.
func (o Options) Check() error {
	if o.Publish && (o.Repeat < LeastRounds || o.Duration < ShortDuration || !o.Short && o.Duration < PublishDuration) {
		return fmt.Errorf("a page of claims takes %d rounds of %v, or with --short of %v, at least", LeastRounds, PublishDuration, ShortDuration)
	}
	if o.For < 0 || o.For > 0 && !o.Publish {
		return errors.New("only a page of claims goes on where a run ended: for how long is not negative, and given with --publish")
	}
	if o.Within < minWithin && !(o.Publish && o.Within == 0) {
		return fmt.Errorf("everything in %v: it takes %v at least", o.Within, minWithin)
	}
	if o.Duration < netmodes.MinDuration {
		return fmt.Errorf("%v a run: it takes %v at least", o.Duration, netmodes.MinDuration)
	}
	return nil
}

// Run creates all reports and their index. A failed report is named in the index; the error is
// returned only if no further report is possible.
func Run(ctx context.Context, options Options) (report.Index, error) {
	if err := options.Check(); err != nil {
		return report.Index{}, err
	}
	if err := os.MkdirAll(options.Dir, 0o755); err != nil {
		return report.Index{}, fmt.Errorf("make the folder of the reports: %w", err)
	}
	if o := options; o.Publish {
		return publish(ctx, o)
	}
	started := time.Now()
	index := report.Index{
		Format: report.Format, Title: "weir bench all", Note: indexNote,
		Provenance: report.Provenance{
			Command: options.Command, StartedAt: started, Seed: options.Seed, Repeat: options.Repeat, Environment: machine.Read(options.Version),
		},
	}
	todo := options.todo()
	for i, one := range todo {
		left := options.Within - time.Since(started)
		options.Until = time.Now().Add(options.part(left, todo[i:]))
		fmt.Fprintf(options.Progress, "=== %s: %s, until %s\n", one.name, one.about, options.Until.Format(time.TimeOnly))
		made, err := one.make(ctx, options)
		if ctx.Err() != nil || err != nil {
			return index, errors.Join(ctx.Err(), err)
		}
		index.Sections = append(index.Sections, made)
		index.Runs += made.Runs
	}
	index.TookSeconds = time.Since(started).Seconds()
	return index, writeIndex(options.Dir, indexName, index)
}

// writeIndex writes an index as a page and as JSON.
func writeIndex(dir, name string, index report.Index) error {
	return errors.Join(writeTo(dir, name+".html", index.WriteHTML), writeTo(dir, name+".json", jsonOf(index)))
}

// todo returns the sections of a run.
func (o Options) todo() []section {
	if o.sections != nil {
		return o.sections
	}
	return sections()
}

// part returns the part of the remaining time for the first section.
func (o Options) part(left time.Duration, todo []section) time.Duration {
	sum := time.Duration(0)
	for _, one := range todo {
		needed, _ := o.estimatedTime(one)
		sum += needed
	}
	first, _ := o.estimatedTime(todo[0])
	return max(0, time.Duration(float64(left)*first.Seconds()/sum.Seconds()))
}

// make runs a section and writes its files; it returns only write errors, and that the time is up.
func (s section) make(ctx context.Context, options Options) (report.Section, error) {
	started := time.Now()
	made := report.Section{Name: s.name, About: s.about, OfModel: s.model, Verdicts: []report.Verdict{}, Claims: []report.Claim{}}
	options = s.ownOptions(options)
	found, err := s.run(ctx, options)
	made.TookSeconds = time.Since(started).Seconds()
	if skipped := (*skippedError)(nil); errors.As(err, &skipped) {
		made.Skipped = skipped.missing
		fmt.Fprintf(options.Progress, "  %v\n", err)
		return made, nil
	}
	if errors.Is(err, measure.ErrTimeIsUp) {
		return made, err
	}
	if err != nil {
		made.Failure = err.Error()
		fmt.Fprintf(options.Progress, "  failed: %v\n", err)
		return made, nil
	}
	base := found.Base()
	var page, text bytes.Buffer
	if err := errors.Join(base.WriteHTML(&page), jsonOf(found)(&text)); err != nil { // a value that is no number
		made.Failure = fmt.Sprintf("make the report: %v", err)
		fmt.Fprintf(options.Progress, "  failed: %s\n", made.Failure)
		return made, nil
	}
	if failed := found.Failed(); failed > 0 {
		made.Failure = fmt.Sprintf("Runs failed in %d cases.", failed)
	}
	made.Page, made.Result = s.name+".html", s.name+".json"
	if !s.fixed {
		made.Rounds, made.RunSeconds = options.Repeat, options.Duration.Seconds()
	}
	made.Runs, made.Note, made.Gaps, made.Disturbed = base.Runs, base.Note, base.Gaps, base.DisturbedRuns
	made.Verdicts = append(made.Verdicts, base.Verdicts...)
	made.Claims = append(made.Claims, base.Claims...)
	return made, errors.Join(writeText(options.Dir, made.Page, page.Bytes()), writeText(options.Dir, made.Result, text.Bytes()))
}

// jsonOf writes a value as -o json does.
func jsonOf(value any) func(io.Writer) error {
	return func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
}

// writeTo writes a file as writeText does.
func writeTo(dir, name string, write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return fmt.Errorf("make a report: %w", err)
	}
	return writeText(dir, name, text.Bytes())
}

// writeText writes a file, all of it or none, on the disk when it returns.
func writeText(dir, name string, text []byte) error {
	if err := measure.WriteSynced(filepath.Join(dir, name), text); err != nil {
		return fmt.Errorf("write a report: %w", err)
	}
	return nil
}

// result converts a suite's own report type to report.Result.
func result[R report.Result](found R, err error) (report.Result, error) { return found, err }

func runSuite(name string) func(context.Context, Options) (report.Result, error) {
	return func(ctx context.Context, all Options) (report.Result, error) {
		return result(bench.Run(ctx, all.suite(name)))
	}
}

func runNetmodes(ctx context.Context, all Options) (report.Result, error) {
	return result(netmodes.Run(ctx, all.netmodes()))
}

func (o Options) netmodes() netmodes.Options {
	return netmodes.Options{
		Modes: netmodes.Modes(), Protocols: []traffic.Protocol{traffic.TCP, traffic.UDP}, MessageBytes: []int{netmodes.SmallBytes, netmodes.LargeBytes},
		Containers: 4, LinksBPS: []uint64{netmodes.PaperLinkBPS, 0}, Agent: []bool{false, true}, Judged: o.Judged, RunOptions: o.RunOptions,
	}
}

// ownOptions returns the options with which a section runs.
func (s section) ownOptions(o Options) Options {
	if s.duration != nil {
		o.Duration = s.duration(o.Duration)
	}
	return o
}

func llqDuration(d time.Duration) time.Duration { return max(d, llq.MinDuration) }

func runLLQ(ctx context.Context, all Options) (report.Result, error) {
	return result(llq.Run(ctx, llq.Options{
		TotalsBPS: llq.Totals(), Peers: llq.Peers(), RunOptions: all.RunOptions,
	}))
}

// modelRuns is how many times longer than others a run of a live port is: turns of
// 10 ms even out slowly.
const modelRuns = 3

func modelDuration(d time.Duration) time.Duration { return max(modelRuns*d, liveport.MinDuration) }

func runModel(ctx context.Context, all Options) (report.Result, error) {
	return result(liveport.Run(ctx, liveport.Options{Seed: all.Seed, RunOptions: all.RunOptions}))
}

// runFigures computes the paper's figures.
func runFigures(ctx context.Context, all Options) (report.Result, error) {
	started := time.Now()
	found, err := model.Figures(ctx)
	found.Provenance = report.Provenance{
		Command: all.Command, StartedAt: started, TookSeconds: time.Since(started).Seconds(), Environment: machine.Read(all.Version),
	}
	return found, err
}

// sdnSwitches is the number of switches in Weir's target.
const sdnSwitches = 100

// runSDN measures the controller, and os-ken if it is installed.
func runSDN(ctx context.Context, all Options) (report.Result, error) {
	python, without := osKenPython(ctx)
	found, err := sdn.Run(ctx, sdn.Options{
		Switches: sdnSwitches, Python: python, RunOptions: all.RunOptions,
	})
	found.AddGap(without)
	return found, err
}

// debianPython has the packages of Debian; the first python3 in PATH may be another.
const debianPython = "/usr/bin/python3"

// osKenPython returns a Python interpreter with os-ken, or why there is none.
func osKenPython(ctx context.Context) (python, without string) {
	for _, name := range []string{"python3", debianPython} {
		if python, err := exec.LookPath(name); err == nil && sdn.CheckOSKen(ctx, python) == nil {
			return python, ""
		}
	}
	return "", "os-ken was left out: python3 has no module os_ken (apt-get install python3-os-ken); weir bench sdn --os-ken takes another interpreter."
}
