package bench

import (
	"slices"
	"time"
)

// The values of Options.PriorityBy: priorities are what cases say, or follow from weights.
const (
	PriorityByPolicy = "policy"
	PriorityByWeight = "weight"
)

// priorityIntervals are CNTC's levels: as many as tc has.
const priorityIntervals = htbPrios

// prioritiesOf returns CNTC's dynamic priority of each weight, the highest first (section 3.3 and figure 6): their order,
// where there are no more kinds than levels; otherwise the interval that a weight is in, of levels as wide as each other
// between the smallest and the largest weight. The paper draws these intervals and does not define them; with nine
// weights from 0.08 to 0.72, and one of 1 that joins them, these do what figure 10 tells of 0.64 and 0.72. A container
// without a weight has none.
func prioritiesOf(weights []uint32) []uint32 {
	kinds := slices.Clone(weights)
	slices.Sort(kinds)
	kinds = slices.DeleteFunc(slices.Compact(kinds), func(weight uint32) bool { return weight == 0 })
	priorities := make([]uint32, len(weights))
	for i, weight := range weights {
		switch {
		case weight == 0:
		case len(kinds) <= priorityIntervals:
			priorities[i] = uint32(slices.Index(kinds, weight))
		default:
			least, most := kinds[0], kinds[len(kinds)-1]
			interval := uint64(weight-least) * priorityIntervals / uint64(most-least)
			priorities[i] = uint32(min(interval, priorityIntervals-1))
		}
	}
	return priorities
}

// prioritised returns the case with priorities that follow from weights, also after each of its changes, for containers
// that send. One in which nothing is borrowed has no use for them: CNTC switches them off there.
func (c Case) prioritised() Case {
	if c.Rigid {
		return c
	}
	derived := c
	derived.Containers, derived.Changes = prioritised(c.Containers), nil
	var times []time.Duration
	for _, change := range c.Changes {
		times = append(times, change.At)
	}
	slices.Sort(times)
	before := derived.Containers
	for _, at := range slices.Compact(times) {
		now := prioritised(c.policiesAt(at))
		for i := range now {
			if now[i].Load.Protocol == "" {
				now[i].Priority = before[i].Priority
			}
			if now[i].Policy != before[i].Policy {
				derived.Changes = append(derived.Changes, Change{at, i, now[i].Policy})
			}
		}
		before = now
	}
	return derived
}

// prioritised returns containers with priorities that follow from weights, where they have one.
func prioritised(containers []Container) []Container {
	containers = slices.Clone(containers)
	weights := make([]uint32, len(containers))
	for i, one := range containers {
		weights[i] = one.Weight
	}
	for i, priority := range prioritiesOf(weights) {
		if weights[i] > 0 {
			containers[i].Priority = priority
		}
	}
	return containers
}
