package bench

import (
	"math"
	"slices"
)

// Spread is a value measured several times.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// values are all of them, in the order of the runs.
	values []float64
}

// spreadOf summarises values; of none it is all zero.
func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Median: quantile(values, 0.5), Min: slices.Min(values), Max: slices.Max(values), values: values}
}

// quantile is the value below which the fraction q of values lies,
// interpolated between the two nearest; NaN of none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// mean of values; NaN of none.
func mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}
