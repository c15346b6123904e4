package train

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weir-project/weir/internal/apps"
)

// draws is how many samples of groups an interval is of.
const draws = 1000

// Interval is a rate from 0 to 1, or a difference of two, with the 95 % interval of its bootstrap samples. Groups are
// drawn, not flows: flows of a capture resemble each other.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Contrast is one rate of two classifiers that judged the same flows.
type Contrast struct {
	Name  string `json:"name"`
	Flows int    `json:"flows"`
	// Difference is A less B, from the same samples.
	A          Interval `json:"a"`
	B          Interval `json:"b"`
	Difference Interval `json:"difference"`
}

// The names of the rates over all flows; those of the others are types and levels, whose recalls they are.
const (
	rateType  = "application type"
	rateLevel = "level"
)

// tally counts flows of a rate, and those that each classifier has right.
type tally struct{ flows, a, b int }

func (t *tally) add(other tally) {
	t.flows += other.flows
	t.a += other.a
	t.b += other.b
}

// Compare contrasts the verdicts of one stage of two classifiers on the same flows, in the same order: the fractions of
// application types and levels that are right, and the recall of each type and level that occurs.
func Compare(a, b []Judged, stage int, levels apps.Levels, seed uint64) ([]Contrast, error) {
	if !slices.EqualFunc(a, b, func(a, b Judged) bool { return a.Flow == b.Flow }) {
		return nil, fmt.Errorf("compare classifiers: one judged %d flows, the other %d, or others", len(a), len(b))
	}
	names := slices.Concat([]string{rateType, rateLevel}, apps.Types)
	for level := range apps.NumLevels {
		names = append(names, apps.Level(level).String())
	}
	of, groups, sum := map[string]int{}, [][]tally{}, make([]tally, len(names))
	for i, one := range a {
		group, known := of[one.Flow.Group]
		if !known {
			group = len(groups)
			of[one.Flow.Group], groups = group, append(groups, make([]tally, len(names)))
		}
		level := levels[one.Type]
		add := func(rate int, rightA, rightB bool) {
			one := tally{1, asOne(rightA), asOne(rightB)}
			groups[group][rate].add(one)
			sum[rate].add(one)
		}
		x, y := one.Verdicts[stage], b[i].Verdicts[stage]
		rightType, rightLevel := []bool{x.Type == one.Type, y.Type == one.Type}, []bool{x.Level == level, y.Level == level}
		add(0, rightType[0], rightType[1])
		add(1, rightLevel[0], rightLevel[1])
		add(2+one.Type, rightType[0], rightType[1])
		add(2+apps.NumTypes+int(level), rightLevel[0], rightLevel[1])
	}
	samples := make([][]tally, draws)
	random := rand.New(rand.NewPCG(seed, 2))
	for i := range samples {
		samples[i] = make([]tally, len(names))
		for range groups {
			for rate, t := range groups[random.IntN(len(groups))] {
				samples[i][rate].add(t)
			}
		}
	}
	var list []Contrast
	for rate, name := range names {
		if sum[rate].flows == 0 {
			continue
		}
		over := func(value func(tally) float64) Interval {
			var drawn []float64
			for _, s := range samples {
				if s[rate].flows > 0 {
					drawn = append(drawn, value(s[rate]))
				}
			}
			slices.Sort(drawn)
			edge := len(drawn) / 40 // 2.5 % at each end
			return Interval{value(sum[rate]), drawn[edge], drawn[len(drawn)-1-edge]}
		}
		list = append(list, Contrast{
			Name: name, Flows: sum[rate].flows,
			A:          over(func(t tally) float64 { return ratio(float64(t.a), float64(t.flows)) }),
			B:          over(func(t tally) float64 { return ratio(float64(t.b), float64(t.flows)) }),
			Difference: over(func(t tally) float64 { return ratio(float64(t.a-t.b), float64(t.flows)) }),
		})
	}
	return list, nil
}

// asOne returns 1 for what is right.
func asOne(right bool) int {
	if right {
		return 1
	}
	return 0
}
