package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// order has what is worse first.
var order = []Decision{Missed, Undecided, Met}

func TestAim(t *testing.T) {
	atLeast, atMost := Aim{0.98, Higher}, Aim{0.6, Lower}
	repeat := func(values ...float64) []float64 { return slices.Repeat(values, LeastRounds) }
	for _, test := range []struct {
		name   string
		aim    Aim
		ratios []float64
		want   Decision
	}{
		{"nothing", atLeast, nil, Undecided},
		{"far above, but six", atLeast, []float64{2, 2, 2, 2, 2, 2}, Undecided},
		{"far above", atLeast, repeat(2), Met},
		{"equal to the bound", atLeast, repeat(0.98), Met},
		{"all just below the bound", atLeast, repeat(0.979), Missed},
		{"one above", atLeast, []float64{0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1}, Undecided},
		{"at most a hundredth below", atLeast, []float64{0.971, 0.972, 0.973, 0.98, 1, 1, 1}, Met},
		{"more than a hundredth below", atLeast, []float64{0.970, 0.972, 0.973, 0.98, 1, 1, 1}, Undecided},
		{"21, one far below", atLeast, append(slices.Repeat([]float64{1}, 20), 0), Met},
		{"all below a cost", atMost, repeat(0.5), Met},
		{"equal to a cost", atMost, repeat(0.6), Met},
		{"all just above a cost", atMost, repeat(0.601), Missed},
		{"at most a hundredth above a cost", atMost, []float64{0.5, 0.5, 0.5, 0.6, 0.6, 0.6, 0.606}, Met},
		{"more than a hundredth above a cost", atMost, []float64{0.5, 0.5, 0.5, 0.6, 0.6, 0.6, 0.607}, Undecided},
		{"a peer that cost nothing, once", atMost, append(slices.Repeat([]float64{0.5}, 6), worstRatio), Undecided},
		{"a peer that cost nothing", atMost, repeat(worstRatio), Missed},
	} {
		if _, got := test.aim.Judge(test.ratios); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// TestRatioWithoutMeaning: whatever cannot be divided is the worst ratio, and one that JSON can hold.
func TestRatioWithoutMeaning(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, of := range [][2]float64{{1, 0}, {0, 0}, {1, -1}, {nan, 1}, {1, nan}, {inf, 1}, {inf, inf}, {-inf, 1}, {1, -inf}} {
		if got := (Aim{1, Higher}).Ratio(of[0], of[1]); got != 0 {
			t.Errorf("%v over %v is %v of what should be high", of[0], of[1], got)
		}
		if got := (Aim{1, Lower}).Ratio(of[0], of[1]); got != worstRatio {
			t.Errorf("%v over %v is %v of what should be low", of[0], of[1], got)
		}
	}
	if got := (Aim{1, Lower}).Ratio(3, 2); got != 1.5 {
		t.Errorf("3 over 2 is %v", got)
	}
}

// TestAimsInRandomWorlds: the order of rounds does not matter, a better ratio never makes a decision
// worse, a harder aim never better, costs are judged as benefits in a mirror, and the median is within
// its interval.
func TestAimsInRandomWorlds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[Decision]int{}
	for world := range 3000 {
		ratios := make([]float64, []int{1, 6, 7, 8, 14, 21, 30}[random.IntN(7)])
		middle, spread := 1+0.03*random.NormFloat64(), 0.02*random.Float64()
		for i := range ratios {
			ratios[i] = math.Round((middle+spread*random.NormFloat64())*200) / 200 // with ties
		}
		aim := Aim{1, Higher}
		m, got := aim.Judge(ratios)
		seen[got]++
		if m.Low != nil && *m.Low > m.Median || m.High != nil && *m.High < m.Median {
			t.Fatalf("world %d: the median %v is not within %v to %v", world, m.Median, *m.Low, *m.High)
		}
		shuffled := slices.Clone(ratios)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if _, again := aim.Judge(shuffled); again != got {
			t.Fatalf("world %d: %s, in another order %s: %v", world, got, again, ratios)
		}
		better := slices.Clone(ratios)
		better[random.IntN(len(better))] += 0.1 * random.Float64()
		if _, after := aim.Judge(better); slices.Index(order, after) < slices.Index(order, got) {
			t.Fatalf("world %d: %s, and with a better ratio %s: %v, %v", world, got, after, ratios, better)
		}
		if _, after := (Aim{1.02, Higher}).Judge(ratios); slices.Index(order, after) > slices.Index(order, got) {
			t.Fatalf("world %d: %s, and by a harder aim %s: %v", world, got, after, ratios)
		}
		if n := len(ratios); n%LeastRounds != 0 || n == 2*LeastRounds { // an interval that is not in the middle has no mirror
			continue
		}
		mirrored := slices.Clone(ratios)
		for i, ratio := range mirrored {
			mirrored[i] = 2 - ratio
		}
		if _, other := (Aim{1, Lower}).Judge(mirrored); other != got {
			t.Fatalf("world %d: %s, in the mirror %s: %v", world, got, other, ratios)
		}
	}
	for _, one := range order {
		if seen[one] < 300 {
			t.Errorf("%d of 3000 worlds are %s", seen[one], one)
		}
	}
}

// TestSevensDecideRightly: of peers whose true ratio is the bound, rounds of seven, up to 21, call at most
// 5 of 100 missed, also where noise is skewed; and at most 5 of 100 met whose true ratio is 2 % beyond it.
func TestSevensDecideRightly(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const worlds = 4000
	for _, test := range []struct {
		aim          Aim
		ratio, noise float64
		wrong        Decision
	}{
		{Aim{1, Higher}, 1, 0.1, Missed},
		{Aim{1, Lower}, 1, 0.1, Missed},
		{Aim{1, Higher}, 0.98, 0.01, Met},
		{Aim{1, Lower}, 1.02, 0.01, Met},
	} {
		wrong := 0
		for range worlds {
			var ratios []float64
			decision := Undecided
			for decision == Undecided && len(ratios) < MostRounds {
				for range LeastRounds {
					ratios = append(ratios, test.ratio*math.Exp(test.noise*random.NormFloat64())) // its median is ratio
				}
				_, decision = test.aim.Judge(ratios)
			}
			if decision == test.wrong {
				wrong++
			}
		}
		if share := float64(wrong) / worlds; share > 0.05 {
			t.Errorf("true ratio %v, better is %s: %.3f are called %s", test.ratio, test.aim.Better, share, test.wrong)
		}
	}
}
