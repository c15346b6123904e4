package meter

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestMostInMatchesBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bins := rapid.SliceOfN(rapid.Uint64Range(0, 5000), 1, 300).Draw(t, "bins")
		width := rapid.IntRange(1, 120).Draw(t, "width")
		var want uint64
		for begin := range bins {
			var sum uint64
			for i := begin; i < min(begin+width, len(bins)); i++ {
				sum += bins[i]
			}
			want = max(want, sum)
		}
		if got := MostIn(bins, width); got != want {
			t.Fatalf("MostIn = %d, brute force finds %d", got, want)
		}
	})
}

func TestSumOfSlots(t *testing.T) {
	s := Series{Bytes: [][]uint64{{1, 2}, {10, 20}, {100, 200}}}
	if got := s.Sum(0, 2); !slices.Equal(got, []uint64{101, 202}) {
		t.Errorf("got %v", got)
	}
}
