package train

import (
	"cmp"
	"math"
	"slices"
)

// candidate is a test that a node may use.
type candidate struct {
	attribute int
	at        float64
	bags      [][]float64 // class weights of each branch
	gain      float64
	ratio     float64
}

func (c *candidate) weights() []float64 {
	weights := make([]float64, len(c.bags))
	for b, bag := range c.bags {
		weights[b] = sum(bag)
	}
	return weights
}

// choose returns the test with the best gain ratio among the tests of at least average gain
// (C4.5). The gain ratio alone would favour tests that split off tiny groups.
func (g *grower) choose(rows []Row, total float64) (*candidate, bool) {
	var all []*candidate
	average, counted := 0.0, 0
	for a, attribute := range g.set.Attributes {
		var c *candidate
		if n := len(attribute.Values); n > 0 {
			c = g.nominal(rows, a, total)
		} else {
			c = g.continuous(rows, a, total)
		}
		if c == nil {
			continue
		}
		all = append(all, c)
		n := float64(len(attribute.Values))
		if n == 0 || g.manyValued || n < 0.3*float64(len(g.set.Rows)) {
			average += c.gain
			counted++
		}
	}
	if counted > 0 {
		average /= float64(counted)
	}
	var best *candidate
	ratio := 0.0
	for _, c := range all {
		if c.gain >= average-gainSlack && c.ratio > ratio+tiny {
			best, ratio = c, c.ratio
		}
	}
	return best, best != nil
}

func (g *grower) nominal(rows []Row, attribute int, total float64) *candidate {
	bags := g.bags(len(g.set.Attributes[attribute].Values))
	for _, row := range rows {
		if v := row.Values[attribute]; !math.IsNaN(v) {
			bags[int(v)][row.Class] += row.Weight
		}
	}
	c := &candidate{attribute: attribute, bags: bags}
	large := 0
	for _, w := range c.weights() {
		if w >= g.opts.MinLeaf {
			large++
		}
	}
	if large < 2 {
		return nil
	}
	c.gain = gain(bags, total)
	return c.rated(total)
}

func (g *grower) bags(n int) [][]float64 {
	bags := make([][]float64, n)
	for b := range bags {
		bags[b] = make([]float64, g.set.Classes)
	}
	return bags
}

func (g *grower) continuous(rows []Row, attribute int, total float64) *candidate {
	known := make([]Row, 0, len(rows))
	for _, row := range rows {
		if !math.IsNaN(row.Values[attribute]) {
			known = append(known, row)
		}
	}
	slices.SortStableFunc(known, func(a, b Row) int { return cmp.Compare(a.Values[attribute], b.Values[attribute]) })
	bags := g.bags(2)
	for _, row := range known {
		bags[1][row.Class] += row.Weight
	}
	right := sum(bags[1])
	// As in J48: each branch needs a tenth of an even share, but 2 to 25 rows.
	least := min(max(0.1*right/float64(g.set.Classes), g.opts.MinLeaf), max(25, g.opts.MinLeaf))
	if right < 2*least {
		return nil
	}
	before, cuts, best, bestGain := entropySum(bags[1]), 0, -1, 0.0
	left := 0.0
	for i := 1; i < len(known); i++ {
		moved := known[i-1]
		bags[0][moved.Class] += moved.Weight
		bags[1][moved.Class] -= moved.Weight
		left, right = left+moved.Weight, right-moved.Weight
		if moved.Values[attribute]+valueStep >= known[i].Values[attribute] {
			continue
		}
		if left < least-tiny || right < least-tiny {
			continue
		}
		cuts++
		if gained := gainFrom(before, bags, total); gained > bestGain+tiny {
			best, bestGain = i, gained
		}
	}
	if best < 0 {
		return nil
	}
	c := &candidate{attribute: attribute, bags: g.bags(2)}
	for i, row := range known {
		b := 0
		if i >= best {
			b = 1
		}
		c.bags[b][row.Class] += row.Weight
	}
	if c.gain = bestGain - math.Log2(float64(cuts))/total; c.gain <= tiny {
		return nil
	}
	low, high := known[best-1].Values[attribute], known[best].Values[attribute]
	if c.at = (low + high) / 2; c.at >= high {
		c.at = low
	}
	return c.rated(total)
}

// rated computes the gain ratio. Rows without the value count as a branch of their own in
// the split information. It returns nil if the test gains nothing.
func (c *candidate) rated(total float64) *candidate {
	if c.gain <= tiny {
		return nil
	}
	info := xlog2x(total)
	known := 0.0
	for _, w := range c.weights() {
		info -= xlog2x(w)
		known += w
	}
	info -= xlog2x(total - known)
	if info <= tiny {
		return nil
	}
	c.ratio = c.gain / (info / total)
	return c
}

// gain returns the information gain, scaled by the weight of rows with a known value.
func gain(bags [][]float64, total float64) float64 {
	all := make([]float64, len(bags[0]))
	for _, bag := range bags {
		for class, w := range bag {
			all[class] += w
		}
	}
	return gainFrom(entropySum(all), bags, total)
}

// gainFrom is gain with the entropy before the test given. The fraction of known values
// cancels against their weight.
func gainFrom(before float64, bags [][]float64, total float64) float64 {
	after := 0.0
	for _, bag := range bags {
		after += entropySum(bag)
	}
	return (before - after) / total
}

// entropySum returns the entropy of a class distribution times its weight, in bits.
func entropySum(bag []float64) float64 {
	total, out := 0.0, 0.0
	for _, w := range bag {
		total += w
		out -= xlog2x(w)
	}
	return out + xlog2x(total)
}

func xlog2x(w float64) float64 {
	if w < tiny {
		return 0
	}
	return w * math.Log2(w)
}
