package profile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Problem: how many users may an operator expect of one instance? PiCasso's authors
// let 5 to 1000 users ask at once (section IV, figure 3) and looked at how many
// requests succeed. Here the crowds are the same and the answer is a number:
//
//	maxUsers = the most users of whose requests MinSuccessPercent got an answer, 95 of
//	           a hundred of them within the response time; where fewer users already
//	           waited longer or got none, more do not count
//
// Between the largest crowd that was served and the smallest that was not it is looked
// for by halves, until they are a tenth apart.
//
// Limits: users ask without a pause and from this machine, which does the asking with
// the processors that the instance has as well. Real users think, so that maxUsers is
// on the safe side.

// MinSuccessPercent is the percentage of requests that has to succeed.
const MinSuccessPercent = 99.0

// Instance is a running container under measurement.
type Instance interface {
	// URL is the address that users request.
	URL() string
	// Usage returns CPU seconds since the start and the present memory in bytes.
	Usage(context.Context) (cpuSeconds float64, memoryBytes uint64, err error)
	// Ended returns why the instance has ended; nil while it runs.
	Ended(context.Context) error
	Close() error
}

// Options set what Measure measures.
type Options struct {
	// Start starts an instance.
	Start func(context.Context) (Instance, error)
	// Users are the crowd sizes, measured one after the other.
	Users []int
	// Duration is the time that each crowd sends requests.
	Duration time.Duration
	// Response is the longest acceptable response time.
	Response time.Duration
	// Patience is the longest acceptable start-up time.
	Patience time.Duration
	// Starts is the number of measured starts, whose median counts.
	Starts int
	// Report is called after each measured crowd.
	Report func(Level)
}

// Level is the result of one crowd and the instance's use during it.
type Level struct {
	Users int
	Answers
	// CPUs is the mean number of CPUs that the instance used.
	CPUs float64
	// MemoryBytes is the largest memory seen.
	MemoryBytes uint64
}

// Served reports whether enough requests of the crowd succeeded in time.
func (l Level) Served(response time.Duration) bool {
	return l.SuccessPercent() >= MinSuccessPercent && l.P95 <= response
}

// Result is the result of Measure.
type Result struct {
	// Levels are ordered by their users.
	Levels []Level
	// MaxUsers is 0 if not even the smallest crowd was served.
	MaxUsers int
	StartUp  time.Duration
}

// Measure starts instances, lets crowds request pages and returns the largest crowd served.
func Measure(ctx context.Context, o Options) (result Result, err error) {
	var instance Instance
	defer func() {
		if instance != nil {
			err = errors.Join(err, instance.Close())
		}
	}()
	var times []time.Duration
	for range o.Starts {
		if instance != nil {
			if err := instance.Close(); err != nil {
				instance = nil
				return result, err
			}
		}
		began := time.Now()
		if instance, err = o.Start(ctx); err != nil {
			return result, err
		}
		if err := o.awaitAnswer(ctx, instance); err != nil {
			return result, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	result.StartUp = times[len(times)/2]
	for users := next(o.Users, nil, o.Response); users > 0; users = next(o.Users, result.Levels, o.Response) {
		level, err := o.level(ctx, instance, users)
		if err != nil {
			return result, err
		}
		o.Report(level)
		result.Levels = insert(result.Levels, level)
	}
	result.MaxUsers, _ = limits(result.Levels, o.Response)
	return result, nil
}

// insert adds a level, sorted by users.
func insert(levels []Level, l Level) []Level {
	at, _ := slices.BinarySearchFunc(levels, l.Users, func(have Level, users int) int { return cmp.Compare(have.Users, users) })
	return slices.Insert(levels, at, l)
}

// limits returns the largest crowd up to which all were served, and the next larger one, which was
// not; 0 if there is none.
func limits(levels []Level, response time.Duration) (served, failed int) {
	for _, l := range levels {
		if !l.Served(response) {
			return served, l.Users
		}
		served = l.Users
	}
	return served, 0
}

// next returns the next crowd size to measure, 0 if done. Sizes in wanted come first, because the
// results of unserved crowds are reported too.
func next(wanted []int, levels []Level, response time.Duration) int {
	for _, users := range wanted {
		if !slices.ContainsFunc(levels, func(l Level) bool { return l.Users == users }) {
			return users
		}
	}
	served, failed := limits(levels, response)
	if failed-served <= max(1, served/10) {
		return 0
	}
	return (served + failed) / 2
}

// awaitAnswer waits until an instance answers with success.
func (o *Options) awaitAnswer(ctx context.Context, instance Instance) error {
	ctx, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	user := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: max(o.Response, time.Second), CheckRedirect: stay}
	status := "nothing"
	for {
		_, _, code, err := ask(ctx, user, instance.URL())
		switch {
		case err == nil && good(code):
			return nil
		case err == nil:
			status = fmt.Sprintf("%d %s", code, http.StatusText(code))
		case ctx.Err() == nil:
			if ended := instance.Ended(ctx); ended != nil && ctx.Err() == nil {
				return ended
			}
			status = err.Error()
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("no good answer from %s in %v, the last was: %s: is it --port and --path where it answers?", instance.URL(), o.Patience, status)
			}
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// settle is the pause in which an instance recovers from the previous crowd.
const settle = 200 * time.Millisecond

// level measures one crowd.
func (o *Options) level(ctx context.Context, instance Instance, users int) (Level, error) {
	if err := instance.Ended(ctx); err != nil {
		return Level{}, fmt.Errorf("before %d users came: %w", users, err)
	}
	time.Sleep(settle)
	before, _, err := instance.Usage(ctx)
	if err != nil {
		return Level{}, err
	}
	l := Level{Users: users}
	watched := make(chan uint64, 1)
	watch, stop := context.WithCancel(ctx)
	go func() { watched <- mostMemory(watch, instance) }()
	crowd := Crowd{URL: instance.URL(), Users: users, For: o.Duration, Timeout: max(2*o.Response, time.Second)}
	l.Answers = crowd.Run(ctx)
	stop()
	l.MemoryBytes = <-watched
	if err := ctx.Err(); err != nil {
		return Level{}, err
	}
	after, memory, err := instance.Usage(ctx)
	if err != nil {
		return Level{}, err
	}
	l.CPUs = max(after-before, 0) / l.Took.Seconds()
	l.MemoryBytes = max(l.MemoryBytes, memory)
	return l, nil
}

// mostMemory returns the largest memory of an instance until ctx ends, sampled four times a second.
func mostMemory(ctx context.Context, instance Instance) (most uint64) {
	for {
		if _, memory, err := instance.Usage(ctx); err == nil {
			most = max(most, memory)
		}
		select {
		case <-ctx.Done():
			return most
		case <-time.After(250 * time.Millisecond):
		}
	}
}
