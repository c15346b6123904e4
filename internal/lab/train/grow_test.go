package train

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// weather is Quinlan's example: outlook, temperature, humidity, wind -> play.
func weather() *Set {
	s := &Set{Classes: 2, Attributes: []Attribute{
		{Name: "outlook", Values: []string{"sunny", "overcast", "rainy"}},
		{Name: "temperature"}, {Name: "humidity"},
		{Name: "windy", Values: []string{"true", "false"}},
	}}
	for _, r := range [][5]float64{
		{0, 85, 85, 1, 1}, {0, 80, 90, 0, 1}, {1, 83, 86, 1, 0}, {2, 70, 96, 1, 0}, {2, 68, 80, 1, 0},
		{2, 65, 70, 0, 1}, {1, 64, 65, 0, 0}, {0, 72, 95, 1, 1}, {0, 69, 70, 1, 0}, {2, 75, 80, 1, 0},
		{0, 75, 70, 0, 0}, {1, 72, 90, 0, 0}, {1, 81, 75, 1, 0}, {2, 71, 91, 0, 1},
	} {
		s.Rows = append(s.Rows, Row{Values: append([]float64(nil), r[:4]...), Class: int(r[4]), Weight: 1})
	}
	return s
}

// TestWeather grows the tree that J48 grows from WEKA's weather.numeric: outlook,
// below it humidity <= 75 and windy.
func TestWeather(t *testing.T) {
	tree, err := Grow(weather(), TreeDefaults())
	must.Succeed(t, err)
	if tree.Attribute != 0 || !tree.Nominal || len(tree.Branches) != 3 {
		t.Fatalf("root: %+v", tree)
	}
	sunny, overcast, rainy := tree.Branches[0], tree.Branches[1], tree.Branches[2]
	if sunny.Attribute != 2 || sunny.At != 75 {
		t.Errorf("sunny: %+v, want humidity <= 75", sunny)
	}
	if !overcast.Leaf() || rainy.Attribute != 3 {
		t.Errorf("overcast: %+v, rainy: %+v", overcast, rainy)
	}
	nodes, depth := size(tree)
	if nodes != 8 || depth != 2 {
		t.Errorf("%d nodes, depth %d", nodes, depth)
	}
	// Without outlook, all branches answer by what they weighed: the sunny one
	// with humidity 70 says play (2 of 2), overcast play, rainy not windy play.
	p := tree.Predict([]float64{Missing, 70, 70, 1})
	if math.Abs(p[0]-1) > 1e-9 {
		t.Errorf("missing outlook: %v", p)
	}
	p = tree.Predict([]float64{Missing, 70, 90, 0})
	if want := 4.0 / 14; math.Abs(p[0]-want) > 1e-9 {
		t.Errorf("missing outlook, humid and windy: %v, want play %v", p, want)
	}
}

func TestErrorsAreEstimatedPessimistically(t *testing.T) {
	// Quinlan's figures for U25%(e, n): n times the bound.
	for _, c := range []struct{ n, e, want float64 }{
		{6, 0, 1.235}, {9, 0, 1.285}, {1, 0, 0.75}, {16, 1, 2.511},
	} {
		got := c.e + extraErrors(c.n, c.e, 0.25)
		if math.Abs(got-c.want) > 0.04 {
			t.Errorf("U(%v, %v) * n = %.3f, want %.3f", c.e, c.n, got, c.want)
		}
	}
	if got := extraErrors(4, 4, 0.25); got != 0 {
		t.Errorf("all wrong: %v more", got)
	}
	if a, b := extraErrors(10, 0.5, 0.25), extraErrors(10, 0, 0.25); a <= 0 || a >= b+1 {
		t.Errorf("between none and one error: %v, %v", a, b)
	}
}

// noisy is a set with a pattern, noise and missing values.
func noisy(seed uint64, n int) *Set {
	random := rand.New(rand.NewPCG(seed, 7))
	s := &Set{Classes: 3, Attributes: []Attribute{{Name: "x"}, {Name: "y"}, {Name: "kind", Values: []string{"a", "b", "c"}},
		{Name: "noise1", Values: []string{"a", "b", "c", "d"}}, {Name: "noise2", Values: []string{"a", "b", "c", "d"}}}}
	for range n {
		x, y, kind := float64(random.IntN(1000)), float64(random.IntN(50)), random.IntN(3)
		class := 0
		if x > 300 {
			class = 1
		}
		if kind == 2 && y > 20 {
			class = 2
		}
		if random.IntN(10) == 0 {
			class = random.IntN(3)
		}
		row := Row{Values: []float64{x, y, float64(kind), float64(random.IntN(4)), float64(random.IntN(4))}, Class: class, Weight: 1}
		if random.IntN(20) == 0 {
			row.Values[random.IntN(3)] = Missing
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

func TestNoiseIsPrunedAndTheSameRowsGiveTheSameTree(t *testing.T) {
	s := noisy(1, 1500)
	pruned, err := Grow(s, TreeDefaults())
	must.Succeed(t, err)
	full, err := Grow(s, TreeOptions{MinLeaf: 2})
	must.Succeed(t, err)
	small, _ := size(pruned)
	large, _ := size(full)
	if small*2 > large {
		t.Errorf("pruning left %d of %d nodes", small, large)
	}
	hits := 0
	test := noisy(2, 1000)
	for _, row := range test.Rows {
		p := pruned.Predict(row.Values)
		best := 0
		for c := range p {
			if p[c] > p[best] {
				best = c
			}
		}
		if best == row.Class {
			hits++
		}
	}
	if hits < 880 {
		t.Errorf("%d of 1000 right, want what the noise leaves (about 930)", hits)
	}
	again, _ := Grow(s, TreeDefaults())
	if !reflect.DeepEqual(pruned, again) {
		t.Error("the same rows gave another tree")
	}
	flat, _ := Grow(s, TreeOptions{MinLeaf: 2, MaxDepth: 1})
	if _, depth := size(flat); depth != 1 {
		t.Errorf("depth %d, want the bound 1", depth)
	}
}

// TestAverageGain: a test that cuts off two rows of 100 has the better ratio and
// less gain than average; the guard prefers the one that tells more.
func TestAverageGain(t *testing.T) {
	s := &Set{Classes: 2, Attributes: []Attribute{{Name: "crumb", Values: []string{"no", "yes"}}, {Name: "half", Values: []string{"no", "yes"}}}}
	for i := range 100 {
		half, crumb := float64(i/50), 0.0
		class := i / 50
		if i%50 < 8 {
			class = 1 - class
		}
		if i == 98 || i == 99 {
			crumb, class = 1, 1
		}
		s.Rows = append(s.Rows, Row{Values: []float64{crumb, half}, Class: class, Weight: 1})
	}
	tree, err := Grow(s, TreeDefaults())
	must.Succeed(t, err)
	if tree.Attribute != 1 {
		t.Errorf("the root tests attribute %d", tree.Attribute)
	}
}

func TestBadSets(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Set)
		want   string
	}{
		"no rows":         {func(s *Set) { s.Rows = nil }, "no rows"},
		"no classes":      {func(s *Set) { s.Classes = 0 }, "no classes"},
		"class":           {func(s *Set) { s.Rows[1].Class = 2 }, "row 1 is of class 2 of 2"},
		"short row":       {func(s *Set) { s.Rows[0].Values = s.Rows[0].Values[:2] }, "row 0 has 2 values, want 4"},
		"weight":          {func(s *Set) { s.Rows[3].Weight = math.NaN() }, "row 3 has weight NaN"},
		"infinite":        {func(s *Set) { s.Rows[2].Values[1] = math.Inf(1) }, "temperature = +Inf"},
		"unknown nominal": {func(s *Set) { s.Rows[2].Values[0] = 3 }, "outlook = 3, which has 3 values"},
	} {
		t.Run(name, func(t *testing.T) {
			s := weather()
			c.change(s)
			if _, err := Grow(s, TreeDefaults()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
