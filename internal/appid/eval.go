package appid

import (
	"math/rand/v2"
	"slices"

	"github.com/weir-project/weir/internal/appid/flow"
)

// Folds shares flows out to k parts, by group or flow by flow, by a generator
// that starts from seed; the result is the part of each flow.
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
