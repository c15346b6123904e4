package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/test/must"
)

// worldSeen is an observation of a suite that measures nothing.
type worldSeen struct {
	Value uint64
	Disturbance
}

// worldRecorder is a recorder on a machine of which others take load.
type worldRecorder struct {
	*Recorder[runKey, worldSeen]
	load float64
}

func newWorldRecorder(options measure.RunOptions) *worldRecorder {
	r := &worldRecorder{}
	r.Recorder = &Recorder[runKey, worldSeen]{Options: options, foreign: func() (func() (float64, error), error) {
		return func() (float64, error) { return r.load, nil }, nil
	}}
	return r
}

// drawn returns a number that follows from what it is drawn for.
func drawn(of ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, of...)
	return rand.New(rand.NewPCG(h.Sum64(), 1)).Uint64()
}

// runWorld runs a suite of seven keys in the order of a seed: some runs fail, some are repeated or disturbed, and keys go on for
// more rounds by what was seen of them. cut is called in each run.
func runWorld(ctx context.Context, r *worldRecorder, seed uint64, cut func()) error {
	const keys, rounds = 7, 3
	r.Options.Journal.Expect(keys * rounds)
	for round := range 2 * rounds {
		for _, number := range rand.New(rand.NewPCG(seed, uint64(round))).Perm(keys) {
			key, sum := runKey{fmt.Sprint(number), PeerWeir}, uint64(0)
			for _, seen := range r.Of(key).Seen {
				sum += seen.Value
			}
			if round >= rounds && sum%2 == 0 {
				continue
			}
			attempt := 0
			err := r.Run(ctx, key, "a run", 0, func() (seen worldSeen, err error) {
				attempt++
				cut()
				draw := drawn(seed, round, number, attempt)
				r.load = float64(draw%7) / 100 // too much is more than 0.05
				if draw%11 == 0 {
					return seen, errors.New("no answer")
				}
				seen.Value = draw
				if draw%3 == 0 {
					seen.Pause = time.Duration(draw % 1000)
				}
				return seen, ctx.Err()
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// TestCutRunsGoOn: processes that are cut off in any runs, any number of times, by a signal or while they write, come to the same
// observations, failures, repeats and disturbed runs as one that is not.
func TestCutRunsGoOn(t *testing.T) {
	for seed := range uint64(100) {
		outcome := func(r *worldRecorder) (found report.Report, of map[runKey]Observed[worldSeen]) {
			of = map[runKey]Observed[worldSeen]{}
			for key, one := range r.observed {
				copied := *one
				if one.Failure != nil {
					copied.Failure = errors.New(one.Failure.Error())
				}
				of[key] = copied
			}
			r.Complete(&found)
			return found, of
		}
		read := func(path string) *measure.Journal {
			journal, err := measure.ReadJournal(path, report.Settings{Weir: "v1"}, func(report.Settings) string { return "" })
			must.Succeed(t, err)
			return journal
		}
		dir := t.TempDir()
		options := measure.RunOptions{Progress: io.Discard, Journal: read(filepath.Join(dir, "whole.runs.jsonl"))}
		whole := newWorldRecorder(options)
		must.Succeed(t, runWorld(t.Context(), whole, seed, func() {}))
		must.Succeed(t, options.Journal.Close())
		wantFound, want := outcome(whole)

		path, random, measured := filepath.Join(dir, "x.runs.jsonl"), rand.New(rand.NewPCG(seed, 2)), 0
		for process := 0; ; process++ {
			options.Journal = read(path)
			r := newWorldRecorder(options)
			ctx, cancel := context.WithCancel(t.Context())
			runs, last := 0, random.IntN(9+process) // a failed run runs in each process
			err := runWorld(ctx, r, seed, func() {
				measured++
				if runs++; runs > last {
					cancel()
				}
			})
			cancel()
			must.Succeed(t, options.Journal.Close())
			if err == nil {
				found, got := outcome(r)
				if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(found, wantFound) {
					t.Fatalf("seed %d, %d processes: %+v %+v, uncut %+v %+v", seed, process+1, found, got, wantFound, want)
				}
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if random.IntN(2) == 0 {
				file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
				must.Succeed(t, err)
				_, err = file.WriteString(`{"run":{"key":"{3 we`)
				must.Succeed(t, errors.Join(err, file.Close()))
			}
		}
		if measured == 0 || wantFound.Runs < 7 {
			t.Errorf("seed %d: %d runs, %d count", seed, measured, wantFound.Runs)
		}
	}
}

// TestFailedRunsAreMeasuredAgain: a process measures again what failed in the process before, and nothing else, in the order of
// rounds; a case without a run that failed there counts as observed.
func TestFailedRunsAreMeasuredAgain(t *testing.T) {
	path, key, missing := filepath.Join(t.TempDir(), "x.runs.jsonl"), runKey{"1", "a"}, runKey{"2", "b"}
	var measured []uint64
	for process, want := range [][]uint64{{0, 1, 2, 3}, {1}} {
		journal, err := measure.ReadJournal(path, report.Settings{}, func(report.Settings) string { return "" })
		must.Succeed(t, err)
		r := newWorldRecorder(measure.RunOptions{Progress: io.Discard, Journal: journal})
		if r.HasObserved(key) != (process > 0) || r.HasObserved(missing) {
			t.Errorf("process %d: observed: %v, %v", process, r.HasObserved(key), r.HasObserved(missing))
		}
		measured = nil
		for round := range uint64(4) {
			untaken, err := r.TakeKept(key, missing)
			must.Succeed(t, err)
			if !slices.Contains(untaken, missing) {
				t.Error("a run that never was is taken")
			}
			r.Fail(errors.New("no device"), missing)
			if !slices.Contains(untaken, key) {
				continue
			}
			must.Succeed(t, r.Run(t.Context(), key, "a", 0, func() (seen worldSeen, err error) {
				measured = append(measured, round)
				if process == 0 && round == 1 {
					err = errors.New("no answer")
				}
				return worldSeen{Value: round}, err
			}))
		}
		if !slices.Equal(measured, want) {
			t.Errorf("process %d measured rounds %d, want %d", process, measured, want)
		}
		var values []uint64
		for _, one := range r.Of(key).Seen {
			values = append(values, one.Value)
		}
		if process == 1 && (!slices.Equal(values, []uint64{0, 1, 2, 3}) || r.Of(key).Failure != nil) {
			t.Errorf("observed rounds %d, failure %v", values, r.Of(key).Failure)
		}
		must.Succeed(t, journal.Close())
	}
}

// TestDisturbedRunsAreRepeated: a run that a pause of a processor disturbed is done again at once, twice at most; with a journal also
// one that others disturbed. The attempt counts of which others took least, then the one with the shortest pause; the run is disturbed
// if others took too much of that.
func TestDisturbedRunsAreRepeated(t *testing.T) {
	for name, test := range map[string]struct {
		journal       bool
		loads         []float64
		pauses        []time.Duration
		want          uint64 // the attempt that counts
		wantDisturbed int
	}{
		"nothing":             {true, []float64{MostForeign}, []time.Duration{0}, 0, 0},
		"others":              {true, []float64{0.06, 0}, []time.Duration{0, 0}, 1, 0},
		"others, no journal":  {false, []float64{0.06}, []time.Duration{0}, 0, 1},
		"a pause":             {true, []float64{0, 0.01}, []time.Duration{time.Second, 0}, 1, 0},
		"a pause, no journal": {false, []float64{0, 0.5}, []time.Duration{time.Second, 0}, 1, 1},
		"one, then another":   {true, []float64{0, 0.5, 0}, []time.Duration{2 * time.Second, 0, time.Second}, 2, 0},
		"others always":       {true, []float64{0.5, 0.2, 0.3}, []time.Duration{0, time.Second, 0}, 1, 1},
		"pauses always":       {true, []float64{0.04, 0.03, 0}, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, 0, 0},
	} {
		options := measure.RunOptions{Progress: io.Discard}
		if test.journal {
			var err error
			options.Journal, err = measure.ReadJournal(filepath.Join(t.TempDir(), "x.runs.jsonl"), report.Settings{}, func(report.Settings) string { return "" })
			must.Succeed(t, err)
		}
		r, attempt := newWorldRecorder(options), 0
		key := runKey{"1", "a"}
		must.Succeed(t, r.Run(t.Context(), key, "a", 0, func() (seen worldSeen, err error) {
			r.load, seen.Pause, seen.Value = test.loads[attempt], test.pauses[attempt], uint64(attempt)
			attempt++
			return seen, nil
		}))
		var found report.Report
		r.Complete(&found)
		if got := r.Of(key).Seen[0].Value; got != test.want || len(found.DisturbedRuns) != test.wantDisturbed ||
			attempt != len(test.loads) || found.RepeatedRuns != attempt-1 {
			t.Errorf("%s: attempt %d of %d counts, disturbed: %q, repeated: %d", name, got, attempt, found.DisturbedRuns, found.RepeatedRuns)
		}
	}
}

// TestClearTriesAgain: a later call repeats a removal that failed, until it succeeds, and each failed call returns an error.
func TestClearTriesAgain(t *testing.T) {
	r := newWorldRecorder(measure.RunOptions{Progress: io.Discard})
	calls, works := map[string]int{}, false
	remove := func(name string) func() error {
		return func() error {
			calls[name]++
			if name == "busy" && !works {
				return errors.New("device is busy")
			}
			return nil
		}
	}
	if r.Clear(remove("busy")) == nil || r.Clear(remove("idle")) == nil {
		t.Error("what is left behind is no error")
	}
	works = true
	must.Succeed(t, r.Clear())
	must.Succeed(t, r.Clear())
	if calls["busy"] != 3 || calls["idle"] != 1 {
		t.Errorf("calls: %v", calls)
	}
}

// TestFailSetting: runs whose setting failed have failed, unless the suite was interrupted.
func TestFailSetting(t *testing.T) {
	r, failure := newWorldRecorder(measure.RunOptions{Progress: io.Discard}), errors.New("no such device")
	a, b := runKey{"1", "a"}, runKey{"2", "b"}
	must.Succeed(t, r.FailSetting(t.Context(), failure, a))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.FailSetting(ended, failure, b); !errors.Is(err, context.Canceled) || r.Of(b).Failure != nil || !errors.Is(r.Of(a).Failure, failure) {
		t.Errorf("%v: %v, %v", err, r.Of(a).Failure, r.Of(b).Failure)
	}
}

// TestRunsEndInTime: a run that would not end in time is not begun, nor repeated, and nothing of it is kept; a run that is kept is
// taken at any time.
func TestRunsEndInTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.runs.jsonl")
	read := func() *worldRecorder {
		journal, err := measure.ReadJournal(path, report.Settings{}, func(report.Settings) string { return "" })
		must.Succeed(t, err)
		return newWorldRecorder(measure.RunOptions{Progress: io.Discard, Journal: journal})
	}
	r, a, b := read(), runKey{"1", "a"}, runKey{"2", "b"}
	once := func() (worldSeen, error) { return worldSeen{Value: 1}, nil }
	r.Options.Journal.End = time.Now().Add(time.Hour)
	must.Succeed(t, r.Run(t.Context(), a, "a", time.Minute, once))
	attempts := 0
	err := r.Run(t.Context(), b, "b", time.Minute, func() (seen worldSeen, err error) {
		attempts++
		r.Options.Journal.End = time.Now().Add(time.Second) // less than a minute
		seen.Pause = time.Second
		return seen, nil
	})
	if !errors.Is(err, measure.ErrTimeIsUp) || attempts != 1 {
		t.Errorf("%v after %d attempts", err, attempts)
	}
	r = read()
	r.Options.Journal.End = time.Now()
	must.Succeed(t, r.Run(t.Context(), a, "a", time.Minute, func() (worldSeen, error) { t.Error("it is kept"); return once() }))
	if err := r.Run(t.Context(), b, "b", time.Minute, once); !errors.Is(err, measure.ErrTimeIsUp) || len(r.Of(a).Seen) != 1 || r.Of(b).Failure != nil {
		t.Errorf("%v: %+v, %+v", err, r.Of(a), r.Of(b))
	}
}

// TestRunLength: a run takes as long as its case's script, or its case's least warm-up and duration, and a little more.
func TestRunLength(t *testing.T) {
	options := Options{RunOptions: measure.RunOptions{Duration: 2 * time.Second, Warmup: time.Second}}
	for _, test := range []struct {
		c    Case
		want time.Duration
	}{
		{Case{}, 3 * time.Second}, {Case{Length: 38 * time.Second}, 38 * time.Second},
		{Case{MinDuration: 20 * time.Second, MinWarmup: 3 * time.Second}, 23 * time.Second}, {Case{Measures: MeasureCost}, 4 * time.Second},
	} {
		if got := test.c.runLength(options); got < test.want || got > test.want+time.Second {
			t.Errorf("%+v: %v, want %v or a little more", test.c, got, test.want)
		}
	}
}

// TestObservationIsKept: a journal keeps all of an observation.
func TestObservationIsKept(t *testing.T) {
	must.Keep[observation](t, measure.Pack, measure.Unpack)
}

// TestJudgedOnly: without the runs that --judged leaves out, all claims and targets are judged as with them; without one of those
// that it takes, some claim is not, but for Weir's own and losses above none, of which targets are judged, too.
func TestJudgedOnly(t *testing.T) {
	for _, suite := range []string{SuiteQCon, SuiteCNTC} {
		o := Options{Suite: suite, RateBPS: 100e6, Overload: 1.5, Containers: 50, Judged: true, RunOptions: measure.RunOptions{Duration: 10 * time.Second, Repeat: 1}}
		cases, err := o.Cases()
		must.Succeed(t, err)
		var judged []CaseResult
		all := idealResults(t, suite)
		for i, result := range all {
			if result.Cost != nil { // as summarise leaves them
				result.Shares, result.LinkUse = nil, nil
				all[i] = result
			}
			for _, c := range cases {
				if c.Group == result.Group && c.Name == result.Case && c.takesPart(result.Peer) {
					judged = append(judged, result)
				}
			}
		}
		if !reflect.DeepEqual(judgeClaims(suite, judged), judgeClaims(suite, all)) || !reflect.DeepEqual(verdicts(judged), verdicts(all)) {
			t.Errorf("%s is judged otherwise", suite)
		}
		claims := judgeClaims(suite, judged)
		for _, c := range cases {
			for _, peer := range c.peers() {
				if strings.HasPrefix(peer, PeerWeir) && !c.Measures.has(MeasureCost) || peer == PeerNone && c.Measures.has(MeasureOverhead) {
					continue
				}
				without := slices.DeleteFunc(slices.Clone(judged), func(r CaseResult) bool { return r.Group == c.Group && r.Case == c.Name && r.Peer == peer })
				if reflect.DeepEqual(judgeClaims(suite, without), claims) {
					t.Errorf("%s: no claim needs %s", c.ID(), peer)
				}
			}
		}
		only, _ := o.Length()
		o.Judged = false
		if all, _ := o.Length(); only < all/5 || only > all*7/10 {
			t.Errorf("%s: runs of %v are judged, of %v", suite, only, all)
		}
	}
}
