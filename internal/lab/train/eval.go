package train

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
)

// Folds assigns flows to k parts, whole groups at a time if byGroup is set. The random
// generator starts from seed. It returns the part of each flow.
func Folds(flows []*flow.Flow, k int, byGroup bool, seed uint64) []int {
	random := rand.New(rand.NewPCG(seed, 1))
	out := make([]int, len(flows))
	if !byGroup {
		for place, i := range random.Perm(len(flows)) {
			out[i] = place % k
		}
		return out
	}
	var names []string
	for _, f := range flows {
		names = append(names, f.Group)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	part := map[string]int{}
	for i, name := range names {
		part[name] = i % k
	}
	for i, f := range flows {
		out[i] = part[f.Group]
	}
	return out
}

// Judge returns the verdicts of both stages for labelled flows.
func Judge(m *apps.Model, flows []*flow.Flow) ([]Judged, error) {
	out := make([]Judged, 0, len(flows))
	for _, f := range flows {
		t, err := typeIndex(f.Type)
		if err != nil {
			return nil, fmt.Errorf("judge flow of line %d: application type %w", f.Line, err)
		}
		out = append(out, Judged{Flow: f, Type: t, Verdicts: [2]apps.Verdict{m.Verdict(0, f), m.Verdict(1, f)}})
	}
	return out, nil
}

// CrossValidate judges every flow by a classifier trained on the other k-1 parts.
func CrossValidate(flows []*flow.Flow, opts Options, k int, byGroup bool, seed uint64, levels apps.Levels, minConfidence float64) ([]Judged, error) {
	flows = Kept(flows, opts.MaxRank)
	parts := Folds(flows, k, byGroup, seed)
	var out []Judged
	for part := range k {
		var train, test []*flow.Flow
		for i, f := range flows {
			if parts[i] == part {
				test = append(test, f)
			} else {
				train = append(train, f)
			}
		}
		if len(test) == 0 || len(train) == 0 {
			return nil, fmt.Errorf("cross-validate: part %d of %d has no flows: take fewer --folds", part+1, k)
		}
		m, err := Train(train, opts)
		if err != nil {
			return nil, err
		}
		m.Levels, m.MinConfidence = levels, minConfidence
		judged, err := Judge(m, test)
		if err != nil {
			return nil, err
		}
		out = append(out, judged...)
	}
	return out, nil
}
