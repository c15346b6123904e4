package train

import (
	"math"
	"slices"

	"github.com/weir-project/weir/internal/apps"
)

// collapse replaces subtrees by leaves where the branches make no fewer training errors.
func collapse(n *apps.Node) {
	if n.Leaf() {
		return
	}
	if errorsOf(n) >= wrong(n.Weights)-gainSlack {
		cut(n)
		return
	}
	for _, b := range n.Branches {
		collapse(b)
	}
}

// prune applies pessimistic error pruning by subtree replacement, bottom up.
func prune(n *apps.Node, confidence float64) {
	if n.Leaf() {
		return
	}
	for _, b := range n.Branches {
		prune(b, confidence)
	}
	if estimate(n.Weights, confidence) <= estimateOf(n, confidence)+0.1 {
		cut(n)
	}
}

func cut(n *apps.Node) {
	n.Attribute, n.Nominal, n.At, n.Branches = -1, false, 0, nil
}

// errorsOf returns the training weight that the tree misclassifies.
func errorsOf(n *apps.Node) float64 {
	if n.Leaf() {
		return wrong(n.Weights)
	}
	total := 0.0
	for _, b := range n.Branches {
		total += errorsOf(b)
	}
	return total
}

func estimateOf(n *apps.Node, confidence float64) float64 {
	if n.Leaf() {
		return estimate(n.Weights, confidence)
	}
	total := 0.0
	for _, b := range n.Branches {
		total += estimateOf(b, confidence)
	}
	return total
}

// wrong returns the training weight that a leaf misclassifies.
func wrong(weights []float64) float64 { return sum(weights) - slices.Max(weights) }

// estimate returns the pessimistic number of errors of a leaf.
func estimate(weights []float64, confidence float64) float64 {
	total := sum(weights)
	if total == 0 {
		return 0
	}
	e := wrong(weights)
	return e + extraErrors(total, e, confidence)
}

// extraErrors returns how many errors C4.5 adds to e errors among n, up to the upper bound
// of the binomial confidence interval. It uses the normal approximation with continuity
// correction unless e is small.
func extraErrors(n, e, confidence float64) float64 {
	switch {
	case e < 1:
		base := n * (1 - math.Pow(confidence, 1/n))
		if e <= 0 {
			return base
		}
		return base + e*(extraErrors(n, 1, confidence)-base)
	case e+0.5 >= n:
		return max(n-e, 0)
	}
	z := math.Sqrt2 * math.Erfinv(2*(1-confidence)-1)
	f := (e + 0.5) / n
	r := (f + z*z/(2*n) + z*math.Sqrt(f/n-f*f/n+z*z/(4*n*n))) / (1 + z*z/n)
	return r*n - e
}
