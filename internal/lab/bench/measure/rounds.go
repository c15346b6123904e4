package measure

import (
	"slices"
	"time"
)

// MaxAttempts limits the attempts of a run until nothing disturbed it. If something disturbed all,
// the least disturbed one counts.
const MaxAttempts = 3

// hurriedAttempts is the limit when time is short.
const hurriedAttempts = 2

// Overdue reports whether the deadline for starting a run has passed.
func Overdue(until time.Time) bool { return !until.IsZero() && time.Now().After(until) }

// LeastDisturbed repeats run until nothing disturbed it, at most MaxAttempts times and not after
// until, and returns the least disturbed result. disturbances are what disturbed a result, the worst
// kind first, each 0 if it did not. again is called before each repeat. LeastDisturbed stops at the first error.
func LeastDisturbed[T any](until time.Time, run func() (T, error), disturbances func(T) []float64, again func(T)) (best T, err error) {
	attempts := MaxAttempts
	if !until.IsZero() {
		attempts = hurriedAttempts
	}
	for attempt := 1; ; attempt++ {
		seen, err := run()
		if err != nil {
			return seen, err
		}
		if attempt == 1 || slices.Compare(disturbances(seen), disturbances(best)) < 0 {
			best = seen
		}
		if slices.Max(disturbances(best)) == 0 || attempt == attempts || Overdue(until) {
			return best, nil
		}
		again(seen)
	}
}
