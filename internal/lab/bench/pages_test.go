package bench

import (
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

func TestTurnP99(t *testing.T) {
	turns := func(sum float64, counts ...uint64) v1.Turns {
		view := v1.Turns{SumSeconds: sum, Count: counts[len(counts)-1]}
		for i, bound := range []float64{0.04, 0.055, 0.1}[:len(counts)-1] {
			view.Buckets = append(view.Buckets, v1.TurnBucket{UpToSeconds: bound, Count: counts[i]})
		}
		return view
	}
	for _, tc := range []struct {
		before, after v1.Turns
		want          float64
	}{
		{v1.Turns{}, turns(1, 99, 100, 100, 100), 40},
		{turns(1, 50, 50, 100, 100), turns(2, 149, 150, 200, 200), 40},
		{v1.Turns{}, turns(1, 98, 99, 100, 100), 55},
		{v1.Turns{}, turns(7, 10, 10, 10, 100), 7000},
		{turns(1, 1, 1, 1, 1), turns(1, 1, 1, 1, 1), 0},
	} {
		if got := turnP99MS(tc.before, tc.after); got != tc.want {
			t.Errorf("%+v: %v ms, want %v", tc.after, got, tc.want)
		}
	}
	if got := middle([]time.Duration{3 * time.Millisecond, 9 * time.Millisecond, time.Millisecond}); got != 3 {
		t.Errorf("the median is %v ms", got)
	}
}
