package bench

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestOvershoot(t *testing.T) {
	const binWidth = time.Millisecond
	const ceilingBPS = 8_000_000 // 1000 bytes a bin, 100000 a window of 100 ms
	steady := make([]uint64, 500)
	for i := range steady {
		steady[i] = 1000
	}
	burst := append([]uint64{0, 0, 20_000}, steady...)
	for _, test := range []struct {
		name string
		bins []uint64
		want float64
	}{
		{"at the ceiling", steady, 0},
		{"burst in the first packets", burst, 0.19},
		{"half", steady[:50], -0.5},
		{"silence", make([]uint64, 500), -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := overshoot(test.bins, binWidth, overshootWindow, ceilingBPS); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("overshoot = %v, want %v", got, test.want)
			}
		})
	}
}

func TestSettlingMatchesBruteForce(t *testing.T) {
	const width, stay = 5, 3
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.SliceOfN(rapid.Uint64Range(95, 106), 60, 60), 1, 3).Draw(t, "series")
		change := rapid.IntRange(0, 20).Draw(t, "change")
		next := rapid.IntRange(change+width, 60).Draw(t, "next")
		// 100 bytes a millisecond.
		ideal := rapid.SliceOfN(rapid.SampledFrom([]uint64{0, 800_000}), len(rows), len(rows)).Draw(t, "ideal")
		s := settling{series: rows, binWidth: time.Millisecond, window: width * time.Millisecond, tolerance: 0.021, stay: stay * time.Millisecond}

		within := func(begin int) bool {
			for container, row := range rows {
				var sum uint64
				for _, bytes := range row[begin : begin+width] {
					sum += bytes
				}
				if ideal[container] > 0 && (sum > 510 || sum < 490) {
					return false
				}
			}
			return true
		}
		want := outcome{}
		good, begins := 0, next-width-change+1
		for begin := change; begin < change+begins; begin++ {
			if within(begin) {
				good++
			}
			if !want.settled && begin+stay <= change+begins && within(begin) && within(begin+1) && within(begin+2) {
				want.settled, want.after = true, time.Duration(begin-change)*time.Millisecond
			}
		}
		want.held = float64(good) / float64(begins)
		if got := s.after(change, next, ideal, 0); got != want {
			t.Fatalf("after(%d, %d) = %+v, brute force finds %+v", change, next, got, want)
		}
	})
}

func TestSettlingSeesASteadyState(t *testing.T) {
	row := make([]uint64, 400)
	for i := range row {
		row[i] = 50 // half of the new ideal
		if i >= 130 {
			row[i] = 100
		}
	}
	s := settling{series: [][]uint64{row}, binWidth: time.Millisecond, window: 50 * time.Millisecond, tolerance: 0.055, stay: 100 * time.Millisecond}
	got := s.after(100, 400, []uint64{800_000}, 50*time.Millisecond)
	// A window of 50 bins may hold five old ones: 250 bytes of 5000 are missing.
	if want := (outcome{settled: true, after: 25 * time.Millisecond, held: 1}); got != want {
		t.Errorf("after = %+v, want %+v", got, want)
	}
	if got := s.after(100, 120, []uint64{800_000}, 0); got.settled {
		t.Errorf("settled within a time shorter than the window: %+v", got)
	}
}
