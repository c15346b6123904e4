package alloc_test

import (
	"slices"
	"testing"

	"github.com/weir-project/weir/internal/share/alloc"
)

// qconContainer is a container of qCon's Algorithm 1. All but its weight are credits; 0 is none.
type qconContainer struct{ weight, min, max, remaining int64 }

// qconCredits is Algorithm 1 of qCon, section 3.3.4, line by line: it gives each container its credits of a period.
func qconCredits(total int64, containers []qconContainer) {
	totalWeight, left := int64(0), int64(0)
	for _, c := range containers {
		totalWeight += c.weight
	}
	weightLeft := totalWeight
	for i := range containers {
		c := &containers[i]
		fair := (total*c.weight + totalWeight - 1) / totalWeight
		c.remaining += fair
		weightLeft -= c.weight
		if c.remaining > fair {
			left += c.remaining - fair
			if weightLeft > 0 {
				total += (left*totalWeight + weightLeft - 1) / weightLeft
				c.remaining = fair
				left = 0
			}
		}
		if c.min != 0 && c.remaining < c.min {
			total -= c.min - c.remaining
			c.remaining = c.min
		}
		if c.max != 0 && c.remaining > c.max {
			total += c.remaining - c.max
			c.remaining = c.max
		}
	}
}

// TestAlgorithm1 gives qCon's own cases to its Algorithm 1, with containers in the order of the paper and the other way
// round, and to the level, which is the same in both. A period has 100,000 credits, one for each kbit/s of the link.
func TestAlgorithm1(t *testing.T) {
	const link = 100_000
	for _, tc := range []struct {
		name       string
		containers []qconContainer
		// forward and backward are the credits that containers come to have, in the order of containers.
		forward, backward []int64
		level             []uint64
	}{
		{
			"figure 7: weights", []qconContainer{{weight: 1}, {weight: 2}, {weight: 3}},
			[]int64{16_667, 33_334, 50_000}, []int64{16_667, 33_334, 50_000}, []uint64{16_667, 33_333, 50_000},
		},
		{ // A minimum is taken from those that come after, in proportion to all weights, its own included.
			"figure 9: a minimum", []qconContainer{{weight: 1, min: 30_000}, {weight: 2}, {weight: 3}, {weight: 4}, {weight: 5}},
			[]int64{30_000, 10_223, 15_334, 20_445, 25_556}, []int64{30_000, 13_334, 20_000, 26_667, 33_334},
			[]uint64{30_000, 10_000, 15_000, 20_000, 25_000},
		},
		{ // What a maximum leaves goes to those that come after, less the part of who leaves it.
			"figure 10: a maximum", []qconContainer{{weight: 1, max: 10_000}, {weight: 1}, {weight: 1}, {weight: 1}, {weight: 1}},
			[]int64{10_000, 22_000, 22_000, 22_000, 22_000}, []int64{10_000, 20_000, 20_000, 20_000, 20_000},
			[]uint64{10_000, 22_500, 22_500, 22_500, 22_500},
		},
		{
			"figure 11: all three", []qconContainer{{weight: 1, min: 30_000}, {weight: 2}, {weight: 3, max: 15_000}},
			[]int64{30_000, 28_889, 15_000}, []int64{30_000, 45_000, 15_000}, []uint64{30_000, 55_000, 15_000},
		},
		{ // The second is silent, and has its credits of the period before: they go to those that come after it.
			"work conservation", []qconContainer{{weight: 1}, {weight: 1, remaining: 50_000}},
			[]int64{50_000, 100_000}, []int64{100_000, 50_000}, []uint64{100_000, 0},
		},
	} {
		forward, backward := slices.Clone(tc.containers), slices.Clone(tc.containers)
		slices.Reverse(backward)
		qconCredits(link, forward)
		qconCredits(link, backward)
		slices.Reverse(backward)
		for i := range tc.containers {
			if forward[i].remaining != tc.forward[i] || backward[i].remaining != tc.backward[i] {
				t.Errorf("%s: container %d has %d credits, %d with the order reversed, want %d and %d", tc.name, i, forward[i].remaining, backward[i].remaining, tc.forward[i], tc.backward[i])
			}
		}
		var containers []alloc.Container
		for _, c := range tc.containers {
			one := alloc.Container{Weight: uint32(c.weight), FloorBPS: uint64(c.min), CeilingBPS: alloc.Unlimited, DemandBPS: alloc.Unlimited}
			if c.max > 0 {
				one.CeilingBPS = uint64(c.max)
			}
			if c.remaining > 0 { // it has sent nothing
				one.DemandBPS = 0
			}
			containers = append(containers, one)
		}
		for range 2 {
			if got := alloc.Allocate(link, containers, alloc.Entitle(link, containers)); !slices.Equal(got, tc.level) {
				t.Errorf("%s: the level gives %d, want %d", tc.name, got, tc.level)
			}
			slices.Reverse(containers)
			slices.Reverse(tc.level)
		}
	}
}
