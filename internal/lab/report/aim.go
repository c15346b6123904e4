package report

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Decision is what measured values say of an aim.
type Decision string

// Decisions. Undecided values neither meet nor miss an aim: more of them may tell.
const (
	Met       Decision = "met"
	Missed    Decision = "missed"
	Undecided Decision = "undecided"
)

const (
	// LeastRounds is the minimum number of ratios for a decision.
	LeastRounds = 7
	// MostRounds is how many are taken of what stays undecided. Of ratios taken and judged by sevens, the
	// three intervals, from the 1st to the 7th, the 3rd to the 11th of 14 and the 6th to the 16th of 21,
	// have the true median at most 5 times in a hundred on one wrong side in any of them (binomial).
	MostRounds = 3 * LeastRounds
	// margin is the tolerance, as a fraction of the bound.
	margin = 0.01
	// worstRatio stands for a ratio that cannot be computed: no peer costs nothing.
	worstRatio = 1e9
)

// Aim is a bound for the median of ratios that were measured one a round.
type Aim struct {
	Bound  float64 `json:"bound"`
	Better Better  `json:"better"` // Higher or Lower
}

// Judge returns the median of ratios with its interval, and what that says of the aim. The aim is
// missed if all of the interval is on the wrong side of the bound. It is met if the interval's worse end
// is on the right side, or beyond by at most a hundredth of the bound. Fewer ratios than LeastRounds are
// undecided.
func (a Aim) Judge(ratios []float64) (Median, Decision) {
	m := medianOf(benchmath.NewSample(slices.Clone(ratios), &benchmath.Thresholds{CompareAlpha: alpha}))
	if len(ratios) < LeastRounds || m.Low == nil || m.High == nil {
		return m, Undecided
	}
	best, worst, bound, allowed := *m.High, *m.Low, a.Bound, a.Bound*(1-margin)
	if a.Better == Lower { // mirrored: more is worse
		best, worst, bound, allowed = -*m.Low, -*m.High, -a.Bound, -a.Bound*(1+margin)
	}
	switch {
	case best < bound:
		return m, Missed
	case worst >= allowed:
		return m, Met
	}
	return m, Undecided
}

// Ratio returns value over other. A ratio without a meaning, as a ratio over 0, counts as the worst ratio, so that a
// failed measurement cannot meet an aim.
func (a Aim) Ratio(value, other float64) float64 {
	ratio := value / other
	switch {
	case other > 0 && !math.IsNaN(ratio) && !math.IsInf(ratio, 0):
		return ratio
	case a.Better == Lower:
		return worstRatio
	}
	return 0
}
