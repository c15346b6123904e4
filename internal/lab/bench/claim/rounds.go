package claim

import (
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
)

// Rounds are the values of a stored report by case and name. Its spreads are written without them.
type Rounds map[[2]string][]float64

// RoundsOf returns the values of quantities.
func RoundsOf(quantities []report.Quantity) Rounds {
	rounds := Rounds{}
	for _, q := range quantities {
		rounds[[2]string{q.Case, q.Name}] = q.Values
	}
	return rounds
}

// Restore gives a spread its rounds; nil, and one without such a quantity, stay as they are.
func (r Rounds) Restore(of, name string, s *measure.Spread) {
	if values := r[[2]string{of, name}]; s != nil && len(values) > 0 {
		*s = measure.SpreadOf(values)
	}
}
