package cli

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/all"
	"github.com/weir-project/weir/internal/lab/report"
)

// allFlags are the flags of `weir bench all` as written.
type allFlags struct {
	benchFlags
	dir     string
	short   bool
	publish bool
	during  time.Duration
}

// What --short sets unless it is written.
const (
	shortWithin   = 10 * time.Minute
	shortDuration = 300 * time.Millisecond
	// shortPublishWithin is the same with --publish.
	shortPublishWithin = 2 * time.Hour
)

func newBenchAllCommand() *cobra.Command {
	var flags allFlags
	cmd := &cobra.Command{
		Use:   "all",
		Short: "Measure everything and write one report of it, with an index",
		Long: `Run every suite, the network modes, the queueing model, the OpenFlow controller's
speed and PiCasso's evaluation, and write an HTML page and a JSON file of each to one
folder, with an index.html that has all targets that were missed and all claims of
papers with what came of them.

It takes at most --within. Each report has its part of that time; cases for which
there was none are left out, and the report says how many. --short is for a first
look: ten minutes, and 0.3 s a run.

--publish makes one page of all claims, claims.md, from claims.json: the paper's value, the
ideal, the median here, of shares and queues with the lowest and highest round, verdict,
reason and a command, and where Weir loses. It takes a night (it says how long before it
starts): five rounds of 10 s, of 2 s for Weir's own targets (latency 6 s, what is received
up to 16 s; 7 to 21 rounds where ratios are judged), without a limit unless --within is
given. An interrupted night resumes with the next run, if the sources of what is measured
and of the bench, and the settings, are the same: --dir keeps each run that has ended.
Replacing a program meanwhile (make build) ends it. So the night can be several evenings:
--for 2h30m stops before a run that would not end in time, and says what is left; reports
that it can complete come first. Tools that are compared in a case are measured in one
evening; a case and the one it is compared with, such as another network mode or an idle
link, may be of two. PiCasso (an hour) and the controller are kept only when complete: give
--for more than that. All runs of a report are of one machine, kernel and congestion
control. A complete report that another machine left in --dir is not measured again, and the
page names its machine; the rest of an incomplete one is left for that machine. Copy the
whole folder, and measure on one machine at a time.

Runs during which others took more than 5 % of the processors are done again, twice at
most, and named if others did so each time: processes from before, and services that
systemd starts meanwhile. Above a tenth of a report's runs, or during all of PiCasso's or
the controller's, the page must not be published. Such runs, and failed ones, are measured
once more at the end while there is time, then by the next run, which also measures all of
PiCasso's or the controller's. Nor must a page be published that lacks a paper, as with
--no-docker or without nginx; a build of no commit is refused at the start. With --short it
takes five rounds of 2 s within two hours, of any build, and marks the page as not for
publishing.

Needs root. A peer that cannot run a case at all, and that nothing is judged by, is named
as left out. Exits with 1 when a report is missing, another run failed, or Weir missed
one of its own targets; with --no-verdict a missed target is only shown. So is an undecided
one: ratios of cost take seven rounds, and p99.9 takes runs of 6 s. With --publish it
exits with 0 when the page may be published, which names missed targets, and when the
time of --for is up unless a report failed. docs/measurements.md says how to read the
reports.`,
		Example: `  weir bench all --dir report
  weir bench all --short --no-docker --dir report
  weir bench all --publish --dir night
  weir bench all --publish --dir night --for 2h30m`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
	}
	options, set := &flags.options, cmd.Flags()
	set.StringVar(&flags.dir, "dir", "weir-report", "folder of the reports")
	set.DurationVar(&flags.within, "within", 30*time.Minute, "how long everything may take")
	set.BoolVar(&flags.short, "short", false, "ten minutes, 0.3 s a run; with --publish two hours, 2 s a run")
	set.BoolVar(&flags.publish, "publish", false, "one page of all claims: five rounds of 10 s; an interrupted night resumes")
	set.DurationVar(&flags.during, "for", 0, "with --publish: end within that long, and leave the rest for the next run (default no limit)")
	addRunFlags(set, &options.RunOptions, time.Second, 500*time.Millisecond, 1)
	flags.addVerdict(set)
	set.BoolVar(&flags.noDocker, "no-docker", false, "use bare network namespaces as containers")
	set.Uint64Var(&options.Seed, "seed", 1, "seed of what is random")
	flags.format = cmdline.AddOutputFlag(cmd)
	return cmd
}

func (f *allFlags) run(cmd *cobra.Command) error {
	f.setDefaults(cmd)
	everything := all.Options{Dir: f.dir, Within: f.within, For: f.during, Publish: f.publish, Short: f.short, Options: f.options}
	if err := everything.Check(); err != nil {
		return cmdline.WithCode(cmdline.Usage, err)
	}
	if err := cmp.Or(f.parse(), requireRoot(), f.prepare(cmd, &f.options.RunOptions)); err != nil {
		return err
	}
	everything.Options = f.options
	index, err := all.Run(cmd.Context(), everything)
	if err != nil {
		return err
	}
	page := "index.html"
	if f.publish {
		page = "claims.md"
	}
	if *f.format == cmdline.JSON {
		err = cmdline.PrintJSON(cmd.OutOrStdout(), index)
	} else {
		err = index.WriteText(cmd.OutOrStdout(), filepath.Join(f.dir, page))
	}
	if err != nil {
		return fmt.Errorf("print the results: %w", err)
	}
	return f.judge(index)
}

// judge returns an error if reports failed, or the page must not be published, or targets were missed that no page of claims names.
func (f *allFlags) judge(index report.Index) error {
	if err := failedSections(index); err != nil || len(index.Left) > 0 {
		return err
	}
	switch {
	case !f.publish:
		return f.missed(index)
	case !f.short && len(index.Withheld) > 0:
		return fmt.Errorf("the page must not be published: %s", strings.Join(index.Withheld, "; "))
	}
	return nil
}

// setDefaults sets what suites have flags for of their own, and what --short and --publish do unless it is written.
func (f *allFlags) setDefaults(cmd *cobra.Command) {
	f.rate, f.options.Overload, f.options.Containers, f.options.Readers = "100mbit", 1.5, 50, defaultReaders
	f.options.Suite = bench.SuiteNames()[0]
	within, duration, repeat := f.within, f.options.Duration, f.options.Repeat
	switch {
	case f.publish && f.short:
		within, duration, repeat = shortPublishWithin, all.ShortDuration, all.LeastRounds
	case f.publish:
		within, duration, repeat = 0, all.PublishDuration, all.LeastRounds
	case f.short:
		within, duration = shortWithin, shortDuration
	}
	set := cmd.Flags()
	if !set.Changed("within") {
		f.within = within
	}
	if !set.Changed("duration") {
		f.options.Duration = duration
	}
	if !set.Changed("repeat") {
		f.options.Repeat = repeat
	}
}

// missed returns an error if targets were missed, unless --no-verdict is given. The index names
// them, and those that so few and short runs leave undecided.
func (f *allFlags) missed(index report.Index) error {
	missed, all := 0, 0
	for _, section := range index.Sections {
		all += len(section.Verdicts)
		for _, verdict := range section.Missed() {
			if !verdict.Undecided {
				missed++
			}
		}
	}
	if missed == 0 || f.noVerdict {
		return nil
	}
	return fmt.Errorf("%d of %d targets missed (--no-verdict to look only)", missed, all)
}

// failedSections returns an error if reports are missing or incomplete.
func failedSections(index report.Index) error {
	failed := 0
	for _, section := range index.Sections {
		if section.Failure != "" {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d reports are missing or have runs that failed", failed, len(index.Sections))
	}
	return nil
}
