// Package measure is what suites have in common once they have measured: values with their
// spread, cells of tables and bars of plots for them, what results are compared by, what a
// process took, and how often and until when a run is done again.
package measure

import (
	"math"
	"slices"
	"time"
)

// Spread is a value measured several times.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// values are all of them, in the order of the runs.
	values []float64
}

// SpreadOf summarises values; of none it is all zero.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Median: Quantile(values, 0.5), Min: slices.Min(values), Max: slices.Max(values), values: values}
}

// Round returns the value of a round, without a spread; the spread itself if it has no such round.
func (s Spread) Round(i int) Spread {
	if i >= len(s.values) {
		return s
	}
	return Exactly(s.values[i])
}

// Quantile returns the value below which the fraction q of values lies, interpolated between
// the two nearest; NaN for none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// Mean of values; NaN of none.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}

// Exactly returns a value without a spread.
func Exactly(value float64) Spread { return Spread{Median: value, Min: value, Max: value} }

// Milliseconds returns a duration in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
