package measure

import (
	"math"
	"testing"
)

func TestRound(t *testing.T) {
	s := SpreadOf([]float64{3, 1, 2})
	for i, want := range []float64{3, 1, 2, 2} {
		if got := s.Round(i); got.Median != want {
			t.Errorf("round %d: %+v, want %v", i, got, want)
		}
	}
}

func TestQuantile(t *testing.T) {
	for _, test := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 1, 2, 3}, 0.5, 2.5},
		{[]float64{7}, 0.99, 7},
		{[]float64{0, 100}, 0.99, 99},
	} {
		if got := Quantile(test.values, test.q); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("quantile(%v, %v) = %v, want %v", test.values, test.q, got, test.want)
		}
	}
	if !math.IsNaN(Quantile(nil, 0.5)) || !math.IsNaN(Mean(nil)) {
		t.Error("a summary of no values must not look like a value")
	}
}
