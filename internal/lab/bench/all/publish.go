package all

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/llq"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/bench/netmodes"
	"github.com/weir-project/weir/internal/lab/bench/picasso"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/report/machine"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// A page of claims takes a night. So a complete section is kept with all that its numbers depend on, and so is each run of an
// incomplete section (measure.Journal): an interrupted page resumes with the next run. What is kept is never mixed with other sources
// or settings. All comparisons are within a section, so that all of its runs are of one host, which the page names if it is not that of
// the last run. Builds differ if the sources of what a section measures do.

// sources are hashes of bpf/, of the programs that are measured, and of the bench; `make build` sets it
// (scripts/sources.sh).
var sources string

// What a page of claims takes at least.
const (
	LeastRounds     = 5
	PublishDuration = 10 * time.Second
	ShortDuration   = 2 * time.Second
	// ownDuration is the longest run of sections about Weir's own targets, which judge by rounds.
	ownDuration = 2 * time.Second
	// percentileDuration is the same for the suite that judges p99.9, which takes 501 pings 10 ms apart.
	percentileDuration = 6 * time.Second
)

const (
	claimsName = "claims"
	claimsNote = "All claims of the papers, and Weir's own targets, with what came of them."
	// mostDisturbed is the part of a section's runs from which on it is not kept.
	mostDisturbed = 0.1
	// leastWatched is how many seconds it takes to see foreign load, which /proc counts in ticks.
	leastWatched = 1
	// overhead is roughly what a run of a second takes besides, with its warm-up.
	overhead = 1200 * time.Millisecond
)

// kept is a complete section in the folder.
type kept struct {
	Settings report.Settings `json:"settings"`
	Section  report.Section  `json:"section"`
}

// sourceSDN is the part of sources that is weir-sdn.
const sourceSDN = "sdn"

// parts returns the parts of sources that a section depends on. Suites in packages of their own are parts.
func (s section) parts() []string {
	parts := []string{"bpf", "agent", "bench"}
	if s.source != "" {
		parts = append(parts, s.source)
	}
	if slices.Contains([]string{llq.Suite, netmodes.Suite, picasso.Suite}, s.name) {
		parts = append(parts, s.name)
	}
	return parts
}

// settings returns all that numbers of this run depend on.
func (o Options) settings(e report.Environment) report.Settings {
	containers := "network namespaces"
	if o.Docker {
		containers = "docker"
	}
	return report.Settings{
		Sources: sources, Weir: e.Weir,
		Host:       report.Host{Machine: e.Machine, Processor: fmt.Sprintf("%d x %s (%s)", e.CPUs, e.CPUModel, e.Arch), Kernel: e.Kernel, TCP: e.TCP},
		Containers: containers, DurationSeconds: o.Duration.Seconds(), WarmupSeconds: o.Warmup.Seconds(), Repeat: o.Repeat, Seed: o.Seed, Short: o.Short,
	}
}

// of returns the options of a section.
func (o Options) of(s section) Options {
	if !s.paper {
		o.Duration = min(o.Duration, cmp.Or(s.longest, ownDuration))
	}
	if slices.Contains(bench.SuiteNames(), s.name) {
		o.Repeat = max(o.Repeat, o.suite(s.name).RoundsToDecide())
	}
	o.Judged = s.judged
	return o
}

// estimatedTime returns about how long a section takes, and how much longer at most if ratios stay undecided.
func (o Options) estimatedTime(s section) (needed, more time.Duration) {
	if o.Publish {
		o = o.of(s)
	}
	one := time.Duration(s.share * float64(time.Second))
	switch {
	case s.length != nil:
		return s.length(o)
	case s.fixed:
		return one, 0
	case o.Judged && s.part != nil:
		one = time.Duration(float64(one) * s.part(o))
	}
	return time.Duration(float64(one) * float64(o.Repeat) * float64(o.Duration+overhead) / float64(time.Second+overhead)), 0
}

// page is a page of claims in the making.
type page struct {
	Options
	settings report.Settings
	// end is when everything has to have ended; zero is never.
	end time.Time
	// unreplaced returns an error if a program that is measured, or measures, is not that of the start any more.
	unreplaced func() error
	// counts are the counts of journaled runs, by section, of sections that are not kept.
	counts map[string]runCount
	// elsewhere says of which host the runs of a section are, by section, and what to do, where it is another one.
	elsewhere map[string]string
}

// runCount is how many runs of a section are kept, of how many, 0 if that is not known.
type runCount struct{ kept, runs int }

// publish makes the page of all claims from the sections and runs in the folder and those that are missing there.
func publish(ctx context.Context, options Options) (report.Index, error) {
	started, environment := time.Now(), machine.Read(options.Version)
	settings := options.settings(environment)
	index := report.Index{
		Format: report.Format, Title: "weir bench all --publish", Note: claimsNote, Settings: &settings, Unclaimed: Unclaimed(),
		Provenance: report.Provenance{
			Command: options.Command, StartedAt: started, Seed: options.Seed, Repeat: options.Repeat, Environment: environment,
		},
	}
	if why := unpublishable(environment.Weir); why != "" && !options.Short {
		return index, fmt.Errorf("the page could not be published: %s, or only look, with --short", why)
	}
	release, err := claimFolder(options.Dir)
	if err != nil {
		return index, err
	}
	defer release()
	todo := options.todo()
	done, err := options.readKept(todo, settings)
	if err != nil {
		return index, err
	}
	p := page{Options: options, settings: settings, counts: map[string]runCount{}, elsewhere: map[string]string{}}
	if options.For > 0 {
		p.end = started.Add(options.For)
	}
	if err := p.readJournals(todo, done); err != nil {
		return index, err
	}
	for _, one := range todo {
		if where := p.elsewhere[one.name]; where != "" {
			index.Left = append(index.Left, one.name+": "+where)
			fmt.Fprintf(options.Progress, "%s: %s\n", one.name, where)
		} else if made, ok := done[one.name]; ok && index.Elsewhere(made) != "" {
			fmt.Fprintf(options.Progress, "%s was measured %s\n", one.name, index.Elsewhere(made))
		}
	}
	programs := options.programs(todo)
	p.unreplaced = watchFiles(programs)
	if err := checkVersions(ctx, programs, options.Version); err != nil {
		return index, err
	}
	unmeasured := p.inOrder(slices.DeleteFunc(slices.Clone(todo), func(one section) bool {
		_, ok := done[one.name]
		return ok || p.elsewhere[one.name] != ""
	}))
	p.printUnmeasured(unmeasured, len(done), started)
	for len(unmeasured) > 0 {
		one := unmeasured[0]
		own := options.of(one)
		if options.Within > 0 {
			own.Until = time.Now().Add(options.part(options.Within-time.Since(started), unmeasured))
		}
		fmt.Fprintf(options.Progress, "=== %d of %d, %s: %s\n", len(todo)-len(unmeasured)+1, len(todo), one.name, one.about)
		unmeasured = unmeasured[1:]
		made, err := p.measure(ctx, one, own)
		if errors.Is(err, measure.ErrTimeIsUp) {
			index.Left = append(index.Left, p.remains(one))
			continue
		}
		if ctx.Err() != nil || err != nil {
			return index, errors.Join(ctx.Err(), err)
		}
		done[one.name] = made
	}
	for _, one := range todo {
		if made, ok := done[one.name]; ok {
			index.Sections = append(index.Sections, made)
			index.Runs += made.Runs
		}
	}
	if err := p.repeatUnkept(ctx, &index, started); err != nil {
		return index, err
	}
	for i := range index.Sections {
		one := *measure.Find(todo, func(s section) bool { return s.name == index.Sections[i].Name })
		index.Sections[i].Command = one.command(p.of(one), "")
	}
	index.TookSeconds = time.Since(started).Seconds()
	if len(index.Left) > 0 {
		return index, nil
	}
	index.Withheld = withheld(index, todo)
	return index, errors.Join(writeIndex(options.Dir, claimsName, index), writeTo(options.Dir, claimsName+".md", index.WriteClaims))
}

// repeatUnkept measures the missing runs of sections that were not kept once more: the disturbance or the failure may be over.
func (p page) repeatUnkept(ctx context.Context, index *report.Index, started time.Time) error {
	for i := range index.Sections {
		made := &index.Sections[i]
		one := *measure.Find(p.todo(), func(s section) bool { return s.name == made.Name })
		own := p.of(one)
		if p.Within > 0 {
			own.Until = started.Add(p.Within)
		}
		if one.fixed || made.Skipped != "" || notKept(*made) == "" || measure.Overdue(own.Until) {
			continue
		}
		fmt.Fprintf(p.Progress, "=== once more, %s: %s\n", one.name, one.about)
		again, err := p.measure(ctx, one, own)
		if errors.Is(err, measure.ErrTimeIsUp) {
			continue
		}
		if ctx.Err() != nil || err != nil {
			return errors.Join(ctx.Err(), err)
		}
		index.Runs += again.Runs - made.Runs
		*made = again
	}
	return nil
}

// claimFolder lets no other process measure for the folder until release is called: both would write the same files.
func claimFolder(dir string) (release func(), err error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		folder.Close()
		return nil, fmt.Errorf("another weir bench measures for %s: wait until it ends, or choose another --dir (%w)", dir, err)
	}
	return func() { folder.Close() }, nil
}

// inOrder returns sections in the order in which they are measured if the time is limited: those with kept runs, then those that
// are complete in time. What is cut off may have to be measured anew, on another machine.
func (p page) inOrder(unmeasured []section) []section {
	if p.end.IsZero() {
		return unmeasured
	}
	begun := slices.DeleteFunc(slices.Clone(unmeasured), func(one section) bool { return p.counts[one.name].kept == 0 })
	fresh := slices.DeleteFunc(slices.Clone(unmeasured), func(one section) bool { return p.counts[one.name].kept > 0 })
	var complete, cut []section
	left := p.For
	for _, one := range append(begun, fresh...) {
		if needed := p.remaining(one); needed <= left {
			left -= needed
			complete = append(complete, one)
		} else {
			cut = append(cut, one)
		}
	}
	return append(complete, cut...)
}

// printUnmeasured prints how many of all sections are kept, and how long the unmeasured ones take, from started on.
func (p page) printUnmeasured(unmeasured []section, kept int, started time.Time) {
	needed, more := time.Duration(0), time.Duration(0)
	for _, one := range unmeasured {
		_, again := p.estimatedTime(one)
		needed, more = needed+p.remaining(one), more+again
	}
	for _, limit := range []time.Duration{p.Within, p.For} {
		if limit > 0 {
			needed = min(needed, limit)
		}
	}
	fmt.Fprintf(p.Progress, "%d sections: %d are kept in %s, %d are to be measured, which takes about %v, until %s\n",
		len(p.todo()), kept, p.Dir, len(unmeasured), needed.Round(time.Minute), started.Add(needed).Format("Mon 15:04"))
	if more > 0 && p.Within+p.For == 0 {
		fmt.Fprintf(p.Progress, "  and up to %v more if ratios stay undecided\n", more.Round(time.Minute))
	}
	for _, one := range unmeasured {
		if p.runs(one) != "" {
			fmt.Fprintf(p.Progress, "  %s\n", p.remains(one))
		}
	}
}

// readJournals counts the runs of sections that are not done, and refuses those of other settings.
func (p page) readJournals(todo []section, done map[string]report.Section) error {
	for _, one := range todo {
		if _, ok := done[one.name]; ok {
			continue
		}
		if _, err := p.readJournal(one); err != nil {
			return err
		}
	}
	return nil
}

// readJournal reads and counts the runs of a section; nil if the section does not measure run by run, or if its runs are of another
// host.
func (p page) readJournal(one section) (*measure.Journal, error) {
	if one.fixed {
		return nil, nil
	}
	path, where := filepath.Join(p.Dir, journalName(one.name)), ""
	journal, err := measure.ReadJournal(path, p.settings, func(was report.Settings) string {
		where = cmp.Or(where, was.Elsewhere(p.settings.Host))
		was.Host = p.settings.Host
		return was.Difference(p.settings, one.parts()...)
	})
	if err != nil {
		return nil, err
	}
	if kept, runs := journal.Count(); where != "" {
		p.elsewhere[one.name] = fmt.Sprintf("%d of %d runs were measured %s: go on there, or remove %s to measure them again here", kept, runs, where, path)
		return nil, nil
	}
	journal.End, journal.Check = p.end, p.unreplaced
	p.count(one, journal)
	return journal, nil
}

// count notes how many runs of a section are kept.
func (p page) count(one section, journal *measure.Journal) {
	kept, runs := journal.Count()
	p.counts[one.name] = runCount{kept, runs}
}

// remaining returns about how long a section still takes.
func (p page) remaining(one section) time.Duration {
	all, _ := p.estimatedTime(one)
	if count := p.counts[one.name]; count.runs > 0 {
		return time.Duration(float64(all) * float64(max(0, count.runs-count.kept)) / float64(count.runs))
	}
	return all
}

// runs returns how many of a section's runs are kept; empty without any.
func (p page) runs(one section) string {
	if count := p.counts[one.name]; count.kept > 0 {
		return fmt.Sprintf("%d of %d runs are kept, ", count.kept, count.runs)
	}
	return ""
}

// remains says how much of a section is left.
func (p page) remains(one section) string {
	return fmt.Sprintf("%s: %sthe rest takes about %v", one.name, p.runs(one), p.remaining(one).Round(time.Second))
}

// measure measures what is left of a section with its own options, and keeps it if it is complete. The error is
// measure.ErrTimeIsUp if something is left.
func (p page) measure(ctx context.Context, one section, own Options) (made report.Section, err error) {
	journal, err := p.readJournal(one)
	if err != nil {
		return made, err
	}
	if one.fixed && !p.end.IsZero() && time.Now().Add(p.remaining(one)).After(p.end) || journal.Late(own.Warmup+one.ownOptions(own).Duration) {
		return made, measure.ErrTimeIsUp
	}
	fmt.Fprintf(p.Progress, "  %sabout %v\n", p.runs(one), p.remaining(one).Round(time.Second))
	elapsed := 0.0
	if journal != nil {
		elapsed = journal.Elapsed().Seconds()
		defer func() {
			p.count(one, journal)
			err = errors.Join(err, journal.Close())
		}()
	}
	own.Journal = journal
	if made, err = one.makeWatched(ctx, own); ctx.Err() != nil || err != nil {
		return made, errors.Join(ctx.Err(), err)
	}
	if err := p.unreplaced(); err != nil {
		return made, err
	}
	made.TookSeconds += elapsed
	if made.Builds = []string{p.settings.Weir}; journal != nil {
		made.Builds = journal.Builds()
	}
	if reason := notKept(made); reason != "" {
		fmt.Fprintf(p.Progress, "  not kept: %s\n", reason)
		if journal != nil && manyDisturbed(made) {
			return made, journal.DropDisturbed()
		}
		return made, nil
	}
	made.Host = &p.settings.Host
	err = writeTo(p.Dir, keptName(one.name), jsonOf(kept{p.settings, made}))
	if journal != nil && err == nil {
		err = journal.Remove()
	}
	return made, err
}

func keptName(section string) string    { return section + ".kept.json" }
func journalName(section string) string { return section + ".runs.jsonl" }

// readKept returns the complete sections of the folder, judged by the rules of this build. It refuses one that is of other settings; its
// host may differ.
func (o Options) readKept(todo []section, now report.Settings) (map[string]report.Section, error) {
	done := map[string]report.Section{}
	for _, one := range todo {
		path := filepath.Join(o.Dir, keptName(one.name))
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read a kept section: %w", err)
		}
		var found kept
		if err := json.Unmarshal(text, &found); err != nil || found.Section.Name != one.name {
			return nil, fmt.Errorf("%s is no kept section %s (%w): remove it to measure it again", path, one.name, cmp.Or(err, errOtherSection))
		}
		found.Section.Host = new(found.Settings.Host)
		here := found.Settings
		here.Host = now.Host
		if differs := here.Difference(now, one.parts()...); differs != "" {
			return nil, fmt.Errorf("%s was measured with other settings: %s. Remove it to measure it again, or choose another --dir", path, differs)
		}
		if differs := o.otherRuns(one, found.Section); differs != "" {
			return nil, fmt.Errorf("%s was measured with other runs: %s. Remove it to measure it again, or choose another --dir", path, differs)
		}
		if err := o.judgeAgain(one, &found, now); err != nil {
			return nil, err
		}
		// Its runs are still there if the process was killed as it had just been kept.
		if err := os.Remove(filepath.Join(o.Dir, journalName(one.name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove the runs of %s, which is complete: %w", one.name, err)
		}
		done[one.name] = found.Section
	}
	return done, nil
}

// otherRuns returns how the rounds of a kept section differ from those of this build; empty if they do not.
func (o Options) otherRuns(one section, made report.Section) string {
	own := one.ownOptions(o.of(one))
	if seconds := own.Duration.Seconds(); !one.fixed && (made.Rounds != own.Repeat || made.RunSeconds != seconds) {
		return fmt.Sprintf("kept %d rounds of %g s, now %d of %g s", made.Rounds, made.RunSeconds, own.Repeat, seconds)
	}
	return ""
}

var errOtherSection = errors.New("it is another one")

// programs returns the programs that are measured and those that measure. A section reports its own missing programs.
func (o Options) programs(todo []section) []string {
	programs := []string{o.WeirBinary}
	lab := testbed.LabProgram(o.WeirBinary)
	if _, err := os.Stat(lab); err == nil {
		programs = append(programs, lab)
	}
	for _, one := range todo {
		if one.program == nil {
			continue
		}
		if path, err := one.program(o.WeirBinary); err == nil && !slices.Contains(programs, path) {
			programs = append(programs, path)
		}
	}
	return programs
}

// watchFiles returns a function whose error names a file that was replaced since.
func watchFiles(paths []string) func() error {
	was := map[string]fs.FileInfo{}
	for _, path := range paths {
		was[path], _ = os.Stat(path) // nil if it is not there
	}
	return func() error {
		for _, path := range paths {
			now, err := os.Stat(path)
			if err != nil || !os.SameFile(was[path], now) || now.Size() != was[path].Size() || !now.ModTime().Equal(was[path].ModTime()) {
				return fmt.Errorf("%s was replaced while it was measured: start again; runs from before are kept", path)
			}
		}
		return nil
	}
}

// checkVersions refuses programs that are not of this build: their figures would have another's name.
func checkVersions(ctx context.Context, programs []string, version string) error {
	for _, path := range programs {
		out, err := exec.CommandContext(ctx, path, "--version").Output()
		if err != nil {
			return fmt.Errorf("ask %s, which is to be measured, for its version: %w", path, err)
		}
		if _, found, _ := strings.Cut(strings.TrimSpace(string(out)), " version "); found != version {
			return fmt.Errorf("%s is version %s, this program %s: run make build", path, found, version)
		}
	}
	return nil
}

// findController returns the path of the weir-sdn that `weir sdn` runs.
func findController(weir string) (string, error) {
	path := filepath.Join(filepath.Dir(weir), "weir-sdn")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find the controller: %w", err)
	}
	return path, nil
}

// makeWatched runs a section as make does, and adds commands, and whether others used the
// machine during a section that does not watch its runs.
func (s section) makeWatched(ctx context.Context, o Options) (report.Section, error) {
	watch, err := traffic.NewForeignWatch()
	if err != nil {
		return report.Section{}, err
	}
	from, err := watch.Read()
	if err != nil {
		return report.Section{}, err
	}
	made, err := s.make(ctx, o)
	if err != nil {
		return made, err
	}
	until, err := watch.Read()
	if err != nil {
		return made, err
	}
	if s.markDisturbed(&made, until.Since(from)) {
		fmt.Fprintf(o.Progress, "  disturbed: %s\n", made.Disturbed[len(made.Disturbed)-1])
	}
	if made.Result != "" {
		if err := readConditions(o.Dir, &made); err != nil {
			return made, err
		}
	}
	for i := range made.Claims {
		made.Claims[i].Command = cmp.Or(made.Claims[i].Command, s.command(o, made.Claims[i].Where))
	}
	return made, nil
}

// markDisturbed marks a section that does not watch its runs if others took more than allowed of the processors, load,
// while it ran, and reports whether it did.
func (s section) markDisturbed(made *report.Section, load float64) bool {
	if load <= bench.MostForeign || !s.fixed || s.computed || made.TookSeconds < leastWatched {
		return false
	}
	made.WhollyDisturbed = true
	made.Disturbed = append(made.Disturbed, fmt.Sprintf("the whole section: others took %.0f %% of the processors", 100*load))
	return true
}

// command returns what repeats the runs of a claim.
func (s section) command(o Options, where string) string {
	o = s.ownOptions(o)
	text := []string{s.again}
	if s.flags != nil {
		text = append(text, s.flags(o))
	}
	if s.only != nil {
		if only := s.only(o, where); only != "" {
			text = append(text, only)
		}
	}
	return strings.Join(text, " ")
}

// runFlags returns the flags that every bench with rounds has.
func (o Options) runFlags() string {
	return fmt.Sprintf("--duration %v --warmup %v --repeat %d", o.Duration, o.Warmup, o.Repeat)
}

func (o Options) judgedFlags() string {
	if o.Judged {
		return o.runFlags() + " --judged"
	}
	return o.runFlags()
}

func (o Options) seededFlags() string { return fmt.Sprintf("%s --seed %d", o.runFlags(), o.Seed) }

func (o Options) suiteFlags() string {
	text := o.seededFlags()
	if o.Judged {
		text += " --judged"
	}
	if !o.Docker {
		text += " --no-docker"
	}
	return text
}

func (o Options) sdnFlags() string { return fmt.Sprintf("--duration %v", o.Duration) }

// suite returns the options of a suite of cases.
func (o Options) suite(name string) bench.Options {
	options := o.Options
	options.Suite = name
	return options
}

// manyDisturbed reports whether too many of a section's runs were disturbed.
func manyDisturbed(s report.Section) bool {
	return float64(len(s.Disturbed)) > mostDisturbed*float64(s.Runs)
}

// notKept returns why a section is not kept, to be measured again by the next run; empty if it is.
func notKept(s report.Section) string {
	switch {
	case s.Skipped != "":
		return "left out: " + s.Skipped
	case s.Failure != "":
		return s.Failure
	case s.WhollyDisturbed:
		return strings.Join(s.Disturbed, "; ") + ": measure again when the machine is idle"
	case manyDisturbed(s):
		return fmt.Sprintf("others used the machine in %d of %d runs: measure again when it is idle", len(s.Disturbed), s.Runs)
	case lacksTime(s):
		return "there was no time for all cases: give more time by --within"
	}
	return ""
}

// lacksTime reports whether a section lacks cases that there was no time for.
func lacksTime(s report.Section) bool { return strings.Contains(s.Note, report.NoTime) }

// unpublishable returns why no page of this build is published; empty if one is.
func unpublishable(version string) string {
	if sources == "" || strings.HasSuffix(version, "-dirty") {
		return "its build is of no commit: commit, and run make build"
	}
	return ""
}

// withheld returns why the page of sections, todo, must not be published.
func withheld(index report.Index, todo []section) (why []string) {
	if index.Settings.Short {
		why = append(why, "its runs are short (--short)")
	}
	if reason := unpublishable(index.Settings.Weir); reason != "" {
		why = append(why, reason)
	}
	for i, s := range index.Sections {
		// A page of all claims lacks no paper; a target of Weir's own may be one for which there is no tool.
		if reason := notKept(s); reason != "" && (s.Skipped == "" || todo[i].paper) {
			why = append(why, s.Name+": "+reason)
		}
	}
	return why
}
