package measure

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxAttempts is how often a run is done at most until no processor stood still
// in it. If one always did, the run counts in which it did so for the shortest time.
const MaxAttempts = 3

// hurriedAttempts are the same where time is short.
const hurriedAttempts = 2

// Overdue says whether it is too late to start a run.
func Overdue(until time.Time) bool { return !until.IsZero() && time.Now().After(until) }

// LeastDisturbed runs until no processor stood still in a run, MaxAttempts times at most and
// not after until, and returns the run in which one did so for the shortest time. pause is
// for how long one did; again is told that of each run that is repeated. It ends with the
// first error.
func LeastDisturbed[T any](until time.Time, run func() (T, error), pause func(T) time.Duration, again func(pause time.Duration)) (best T, err error) {
	attempts := MaxAttempts
	if !until.IsZero() {
		attempts = hurriedAttempts
	}
	for attempt := 1; ; attempt++ {
		seen, err := run()
		if err != nil {
			return seen, err
		}
		if attempt == 1 || pause(seen) < pause(best) {
			best = seen
		}
		if pause(best) == 0 || attempt == attempts || Overdue(until) {
			return best, nil
		}
		again(pause(seen))
	}
}

// LeftOut says how many cases there was no time for.
func LeftOut(cases int) string {
	if cases == 0 {
		return ""
	}
	return fmt.Sprintf("There was no time for %d cases.", cases)
}

// Joined puts sentences one after the other.
func Joined(sentences ...string) string {
	return strings.Join(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), " ")
}
