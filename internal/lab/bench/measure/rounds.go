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

// HurriedAttempts are the same where time is short.
const HurriedAttempts = 2

// Overdue says whether it is too late to start a run.
func Overdue(until time.Time) bool { return !until.IsZero() && time.Now().After(until) }

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
