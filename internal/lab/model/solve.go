package model

import (
	"context"
	"fmt"
	"math"
)

// Gauss-Seidel alone needs as many sweeps as a packet needs steps through a
// queue, squared, and many more when polling is slow against service: then the
// chain almost falls apart into its phases. Aggregation mends both (Koury,
// McAllister and Stewart 1984): states are grouped by phase and one queue's
// length, the small chain of the groups is solved exactly, by the elimination of
// Grassmann, Taksar and Heyman, which subtracts nothing and so loses no digits,
// and each group is scaled to its exact share.

const (
	// tolerance is the largest residual of a solution: the share of all
	// probability flow that enters a state and does not leave it.
	tolerance = 1e-12
	maxRounds = 2000
	// sweepsPerRound between two aggregations, forth and back by turns.
	sweepsPerRound = 24
)

// solve finds the distribution at balance and its residual.
func (c *chain) solve(ctx context.Context) (distribution []float64, residual float64, err error) {
	x := make([]float64, len(c.states))
	for s := range x {
		x[s] = 1 / float64(len(x))
	}
	if len(x) == 1 {
		return x, 0, nil
	}
	var groups []partition
	for _, measure := range measures {
		groups = append(groups, c.grouping(measure))
	}
	for range maxRounds {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		for _, g := range groups {
			c.aggregate(x, g)
		}
		for range sweepsPerRound / 2 {
			c.sweep(x)
		}
		if residual = c.residual(x); residual <= tolerance {
			return x, residual, nil
		}
	}
	return nil, residual, fmt.Errorf("no balance after %d rounds: %.2g of the flow does not balance (at most %.2g is accepted); give rates that are closer to each other, or fewer places",
		maxRounds, residual, tolerance)
}

const (
	// leastShare stands for the share of a state that is too rare for a float64, so that no
	// group of states weighs nothing. All of them together are far below tolerance.
	leastShare = 1e-250
	// largeShare is from where on shares of a port that is seldom empty are scaled down. A
	// power of two, so that nothing is rounded.
	largeShare = 0x1p160
)

// sweep does two sweeps of Gauss-Seidel, forth and back.
func (c *chain) sweep(x []float64) {
	last := len(x) - 1
	for n := range 2 * len(x) {
		s := n
		if n > last {
			s = 2*last + 1 - n
		}
		x[s] = c.inflow(x, s) / c.out[s]
	}
	normalise(x)
}

func (c *chain) inflow(x []float64, s int) float64 {
	var flow float64
	low, high := c.first[s], c.first[s+1]
	from, rate := c.from[low:high], c.rate[low:high]
	for n, source := range from {
		flow += x[source] * rate[n]
	}
	return flow
}

// residual returns the part of the flow between states that does not balance.
func (c *chain) residual(x []float64) float64 {
	var wrong, all float64
	for s := range x {
		out := x[s] * c.out[s]
		wrong += math.Abs(c.inflow(x, s) - out)
		all += out
	}
	return wrong / all
}

func normalise(x []float64) {
	var sum float64
	for _, v := range x {
		sum += v
	}
	for s := range x {
		x[s] /= sum
	}
}

// measures are what states are grouped by, next to their phase. All change by at
// most one in a transition, so that the chain of groups is a band.
var measures = []func(packets [3]int) int{
	func(n [3]int) int { return n[EF] },
	func(n [3]int) int { return n[AF] },
	func(n [3]int) int { return n[BE] },
	func(n [3]int) int { return n[EF] + n[AF] + n[BE] },
	func(n [3]int) int { return n[AF] - n[BE] },
}

// partition puts each state into one of count groups, numbered so that no
// transition leads further than band numbers away.
type partition struct {
	of          []int32
	count, band int
}

// grouping groups by phase and one measure. Groups without states have no
// number.
func (c *chain) grouping(measure func([3]int) int) partition {
	low := -c.space[BE]
	most := c.space[EF] + c.space[AF] + c.space[BE] - low + 1
	number := make([]int32, phases*most)
	g := partition{of: make([]int32, len(c.states))}
	for s := range c.states {
		state := c.state(s)
		g.of[s] = int32((measure(state.packets)-low)*phases + state.phase())
		number[g.of[s]] = 1
	}
	for n, used := range number {
		if used > 0 {
			number[n] = int32(g.count)
			g.count++
		}
	}
	for s, n := range g.of {
		g.of[s] = number[n]
	}
	for s := range c.states {
		for _, source := range c.from[c.first[s]:c.first[s+1]] {
			g.band = max(g.band, int(g.of[s]-g.of[source]), int(g.of[source]-g.of[s]))
		}
	}
	return g
}

// aggregate scales each group to its share in the chain of groups.
func (c *chain) aggregate(x []float64, groups partition) {
	weight := make([]float64, groups.count)
	for s := range x {
		x[s] = max(x[s], leastShare)
		weight[groups.of[s]] += x[s]
	}
	for s := range x {
		x[s] /= weight[groups.of[s]]
	}
	rates := newBand(groups.count, groups.band)
	for s := range x {
		to := int(groups.of[s])
		for at := c.first[s]; at < c.first[s+1]; at++ {
			source := c.from[at]
			if from := int(groups.of[source]); from != to {
				*rates.at(from, to) += x[source] * c.rate[at]
			}
		}
	}
	share := rates.eliminate()
	for s := range x {
		x[s] *= share[groups.of[s]]
	}
}

// band is rates between states of a small chain whose numbers differ by at most
// width.
type band struct {
	count, width int
	rates        []float64
}

func newBand(count, width int) band {
	return band{count, width, make([]float64, count*(2*width+1))}
}

func (b band) at(from, to int) *float64 { return &b.rates[from*(2*b.width+1)+to-from+b.width] }

// eliminate solves the chain; the rates are lost.
func (b band) eliminate() []float64 {
	for last := b.count - 1; last > 0; last-- {
		low := max(0, last-b.width)
		var out float64
		for to := low; to < last; to++ {
			out += *b.at(last, to)
		}
		for from := low; from < last; from++ {
			share := *b.at(from, last) / out
			*b.at(from, last) = share
			if share == 0 {
				continue
			}
			for to := low; to < last; to++ {
				*b.at(from, to) += share * *b.at(last, to)
			}
		}
	}
	x := make([]float64, b.count)
	x[0] = 1
	for s := 1; s < b.count; s++ {
		for x[s-1] > largeShare {
			for n := range s {
				x[n] /= largeShare
			}
		}
		for from := max(0, s-b.width); from < s; from++ {
			x[s] += x[from] * *b.at(from, s)
		}
	}
	normalise(x)
	return x
}
