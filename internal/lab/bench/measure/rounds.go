package measure

import "time"

// MaxAttempts limits the attempts of a run until no CPU was paused in it. If all had a pause, the
// one with the shortest pause counts.
const MaxAttempts = 3

// hurriedAttempts is the limit when time is short.
const hurriedAttempts = 2

// Overdue reports whether the deadline for starting a run has passed.
func Overdue(until time.Time) bool { return !until.IsZero() && time.Now().After(until) }

// LeastDisturbed repeats run until it had no CPU pause, at most MaxAttempts times and not after
// until, and returns the result with the shortest pause. again is called before each repeat. It
// stops at the first error.
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
