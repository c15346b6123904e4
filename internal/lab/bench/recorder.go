package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// Recorder runs the cases of a suite and keeps what was observed in each, by key. It watches the
// machine meanwhile, and repeats a run in which a processor was paused; with a journal, which is kept only if few runs are disturbed,
// also one in which others used the processors.
type Recorder[K comparable, O interface{ LongestPause() time.Duration }] struct {
	Options  measure.RunOptions
	pauses   *testbed.PauseWatch
	observed map[K]*Observed[O]
	// foreign begins to measure what others take of the processors; what it returns says which part they took since.
	foreign func() (since func() (float64, error), err error)
	leftOut int
	// disturbed are the observed runs during which others used the machine.
	disturbed []string
	// Repeated counts the repeated runs.
	Repeated int
	// longest is the longest run so far, without its repeats.
	longest time.Duration
	// unremoved are removes of earlier settings that failed.
	unremoved []func() error
}

// Observed holds the observations of one key, a run each, and the last failure.
type Observed[O any] struct {
	Seen    []O
	Failure error
}

// Disturbance is the part of an observation that says what disturbed the run.
type Disturbance struct {
	// Pause is the longest pause of a processor in the run; 0 if none was long.
	Pause time.Duration
}

// LongestPause returns the longest pause of a processor.
func (d Disturbance) LongestPause() time.Duration { return d.Pause }

// NewRecorder starts to watch the machine, until Close.
func NewRecorder[K comparable, O interface{ LongestPause() time.Duration }](ctx context.Context, o measure.RunOptions) (*Recorder[K, O], error) {
	watch, err := traffic.NewForeignWatch()
	if err != nil {
		return nil, err
	}
	foreign := func() (func() (float64, error), error) {
		from, err := watch.Read()
		return func() (float64, error) {
			until, err := watch.Read()
			return until.Since(from), err
		}, err
	}
	pauses, err := testbed.StartPauseWatch(ctx, o.WeirBinary, testbed.LeastPause)
	return &Recorder[K, O]{Options: o, pauses: pauses, foreign: foreign}, err
}

// Close ends the watch and notes in a report whether it may have missed pauses.
func (r *Recorder[K, O]) Close(found *report.Report) { found.PausesUnknown = !r.pauses.Close() }

// Longest returns the longest pause that overlaps a CLOCK_MONOTONIC interval; 0 if there is none.
func (r *Recorder[K, O]) Longest(fromNS, untilNS int64) time.Duration {
	return r.pauses.Longest(fromNS, untilNS)
}

// LeaveOut reports whether the time is over, and then counts cases as left out.
func (r *Recorder[K, O]) LeaveOut(cases int) bool {
	overdue := measure.Overdue(r.Options.Until)
	if overdue {
		r.leftOut += cases
	}
	return overdue
}

// Of returns what was observed of a key.
func (r *Recorder[K, O]) Of(key K) *Observed[O] {
	if r.observed == nil {
		r.observed = map[K]*Observed[O]{}
	}
	if r.observed[key] == nil {
		r.observed[key] = &Observed[O]{}
	}
	return r.observed[key]
}

// HasObserved reports whether a run of a key has an observation, here or in the journal.
func (r *Recorder[K, O]) HasObserved(key K) bool {
	return len(r.Of(key).Seen) > 0 || r.Options.Journal.HasRunOf(fmt.Sprint(key))
}

// TakeKept takes the next run of each key from the journal, and returns the keys whose next run is to be measured.
func (r *Recorder[K, O]) TakeKept(keys ...K) (untaken []K, err error) {
	for _, key := range keys {
		run, kept := r.Options.Journal.TakeNext(fmt.Sprint(key))
		if !kept {
			untaken = append(untaken, key)
			continue
		}
		var seen O
		if err := measure.Unpack(run.Seen, &seen); err != nil {
			return nil, err
		}
		of := r.Of(key)
		of.Seen = append(of.Seen, seen)
		r.Repeated += run.Repeated
		r.disturbed = append(r.disturbed, run.Disturbed...)
	}
	return untaken, nil
}

// TakeTogether is TakeKept of runs that are compared with each other: unless one process has measured them all, all are untaken.
func (r *Recorder[K, O]) TakeTogether(keys ...K) (untaken []K, err error) {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = fmt.Sprint(key)
	}
	r.Options.Journal.ForgetApart(names...)
	return r.TakeKept(keys...)
}

// MostForeign is the part of the processors' time from which on foreign load disturbs a run.
const MostForeign = 0.05

// attempt is what was observed in an attempt of a run, and the part of the processors that others took meanwhile.
type attempt[O interface{ LongestPause() time.Duration }] struct {
	seen    O
	foreign float64
}

// tooForeign returns the part of the processors that others took; 0 if that disturbs no run.
func (a attempt[O]) tooForeign() float64 {
	if a.foreign <= MostForeign {
		return 0
	}
	return a.foreign
}

// watchForeign runs a run and measures what others take of the processors meanwhile.
func (r *Recorder[K, O]) watchForeign(run func() (O, error)) (a attempt[O], err error) {
	since, err := r.foreign()
	if err != nil {
		return a, err
	}
	a.seen, err = run()
	load, loadErr := since()
	a.foreign = load
	return a, errors.Join(err, loadErr)
}

// Run runs a case until nothing disturbs it, a few times at most, and keeps the least disturbed
// observation, or the failure; a run in the journal is taken instead. Its errors are the end of ctx or of the time, and those of the
// journal. The name is for readers; length is about how long a run takes.
func (r *Recorder[K, O]) Run(ctx context.Context, key K, name string, length time.Duration, run func() (O, error)) error {
	if untaken, err := r.TakeKept(key); len(untaken) == 0 || err != nil {
		return err
	}
	kept := measure.KeptRun{Key: fmt.Sprint(key), Repeated: -r.Repeated}
	started := time.Now()
	once := func() (attempt[O], error) {
		if r.Options.Journal.Late(max(r.longest, length)) {
			return attempt[O]{}, measure.ErrTimeIsUp
		}
		begun := time.Now()
		defer func() { r.longest = max(r.longest, time.Since(begun)) }()
		return r.watchForeign(run)
	}
	disturbances := func(a attempt[O]) []float64 {
		foreign := 0.0
		if r.Options.Journal != nil {
			foreign = a.tooForeign()
		}
		return []float64{foreign, a.seen.LongestPause().Seconds()}
	}
	best, err := measure.LeastDisturbed(r.Options.Until, once, disturbances, func(a attempt[O]) {
		r.Repeated++
		why := fmt.Sprintf("a processor stood still for %v", a.seen.LongestPause().Round(time.Millisecond))
		if disturbances(a)[0] > 0 {
			why = fmt.Sprintf("others took %.0f %% of the processors", 100*a.foreign)
		}
		fmt.Fprintf(r.Options.Progress, "  %s: once more\n", why)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, measure.ErrTimeIsUp) { // repeats as well: the run is measured again
		return err
	}
	kept.TookNS = time.Since(started).Nanoseconds()
	kept.Repeated += r.Repeated
	if err != nil {
		r.Fail(err, key)
		return nil
	}
	if best.tooForeign() > 0 {
		kept.Disturbed = []string{fmt.Sprintf("%s: others took %.0f %% of the processors", name, 100*best.foreign)}
		r.disturbed = append(r.disturbed, kept.Disturbed...)
		fmt.Fprintf(r.Options.Progress, "  disturbed: others took %.0f %% of the processors\n", 100*best.foreign)
	}
	of := r.Of(key)
	of.Seen = append(of.Seen, best.seen)
	if r.Options.Journal == nil {
		return nil
	}
	if kept.Seen, err = measure.Pack(best.seen); err != nil {
		return err
	}
	return r.Options.Journal.Add(kept)
}

// Fail records why the next runs of some keys failed.
func (r *Recorder[K, O]) Fail(err error, keys ...K) {
	for _, key := range keys {
		r.Of(key).Failure = err
		r.Options.Journal.SkipRun(fmt.Sprint(key))
		fmt.Fprintf(r.Options.Progress, "  failed: %v\n", err)
	}
}

// FailSetting is Fail of runs for which something could not be set up. It returns only the error of ctx.
func (r *Recorder[K, O]) FailSetting(ctx context.Context, err error, keys ...K) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.Fail(err, keys...)
	return nil
}

// Clear calls the removes, and those that failed in earlier calls. Leftovers would make later runs wrong: call Clear before
// each setting as well, and fail the setting's runs if it returns an error.
func (r *Recorder[K, O]) Clear(removes ...func() error) error {
	var problems []error
	r.unremoved = slices.DeleteFunc(append(r.unremoved, removes...), func(remove func() error) bool {
		err := remove()
		problems = append(problems, err)
		return err == nil
	})
	if err := errors.Join(problems...); err != nil {
		fmt.Fprintf(r.Options.Progress, "  not removed: %v\n", err)
		return fmt.Errorf("remove what earlier runs needed: %w", err)
	}
	return nil
}

// Complete adds the counts of runs to a report.
func (r *Recorder[K, O]) Complete(found *report.Report) {
	found.RepeatedRuns, found.DisturbedRuns = r.Repeated, r.disturbed
	found.AddLeftOut(r.leftOut)
	for _, of := range r.observed {
		found.Runs += len(of.Seen)
		for _, seen := range of.Seen {
			if seen.LongestPause() > 0 {
				found.PausedRuns++
			}
		}
	}
}
