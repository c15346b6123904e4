// Package train makes classifiers for package apps from labelled flows: it reads tables and
// captures, grows decision trees with C4.5, scores them and prints them.
//
// The problem: say from a few numbers of a flow's first packets which kind of
// application sends it, by rules that a person can read and that a BPF program
// can follow in a few steps.
//
// The method is Quinlan's C4.5 (release 8): at every node the attribute with
// the best gain ratio among those whose information gain is at least average;
// continuous attributes are cut in two, at a value that occurs, and their gain
// is reduced by what it costs to say where (log2 of the candidates over the
// weight, the MDL correction); nominal ones get a branch for each value. A row
// with a missing value goes down every branch with a part of its weight. Then
// what a pessimistic estimate of the error (the upper bound of a confidence
// interval) does not bear out is pruned. Where books leave something open this
// does what WEKA's J48 does, and a test compares the two.
//
// Limits: subtrees are replaced by leaves and never raised (J48's -S), rows
// are held in memory, and nothing is drawn by chance: the same rows in the same
// order give the same tree.
package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/weir-project/weir/internal/apps"
)

// Missing is the value of an unknown attribute.
var Missing = math.NaN()

// Attribute is one column of a training set.
type Attribute struct {
	Name string
	// Values names the values of a nominal attribute, which are coded 0, 1, ...; empty for
	// a continuous attribute.
	Values []string
}

// Row is one training example.
type Row struct {
	Values []float64 // one per attribute
	Class  int
	Weight float64
}

// Set is a training set.
type Set struct {
	Attributes []Attribute
	Classes    int
	Rows       []Row
}

// TreeOptions are the parameters of C4.5.
type TreeOptions struct {
	MinLeaf    float64 // at least two branches of a test must have this weight
	Confidence float64 // confidence level of pruning; 0 disables pruning
	MaxDepth   int     // most tests on a path; 0 means no limit
}

// TreeDefaults returns the default parameters of C4.5 and J48.
func TreeDefaults() TreeOptions { return TreeOptions{MinLeaf: 2, Confidence: 0.25} }

// Tolerances for comparing gains and values, as in J48.
const (
	tiny      = 1e-6
	valueStep = 1e-5
	gainSlack = 1e-3
)

// Check returns an error if a training set is invalid.
func (s *Set) Check() error {
	if s.Classes < 1 {
		return errors.New("check training set: no classes")
	}
	for i, row := range s.Rows {
		if len(row.Values) != len(s.Attributes) {
			return fmt.Errorf("check training set: row %d has %d values, want %d", i, len(row.Values), len(s.Attributes))
		}
		if row.Class < 0 || row.Class >= s.Classes {
			return fmt.Errorf("check training set: row %d is of class %d of %d", i, row.Class, s.Classes)
		}
		if !(row.Weight > 0) || math.IsInf(row.Weight, 0) {
			return fmt.Errorf("check training set: row %d has weight %v", i, row.Weight)
		}
		for a, v := range row.Values {
			if math.IsInf(v, 0) {
				return fmt.Errorf("check training set: row %d has %s = %v", i, s.Attributes[a].Name, v)
			}
			if n := len(s.Attributes[a].Values); n > 0 && !math.IsNaN(v) && (v != math.Trunc(v) || v < 0 || int(v) >= n) {
				return fmt.Errorf("check training set: row %d has %s = %v, which has %d values", i, s.Attributes[a].Name, v, n)
			}
		}
	}
	if len(s.Rows) == 0 {
		return errors.New("check training set: no rows")
	}
	return nil
}

// Grow builds a tree from a training set and prunes it.
func Grow(s *Set, opts TreeOptions) (*apps.Node, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	g := &grower{set: s, opts: opts, sorted: make([][]float64, len(s.Attributes))}
	for a, attribute := range s.Attributes {
		if len(attribute.Values) > 0 {
			continue
		}
		for _, row := range s.Rows {
			if !math.IsNaN(row.Values[a]) {
				g.sorted[a] = append(g.sorted[a], row.Values[a])
			}
		}
		slices.Sort(g.sorted[a])
	}
	// As in J48, nominal attributes with very many values are excluded from the average
	// gain, unless all attributes are of that kind.
	g.manyValued = true
	for _, attribute := range s.Attributes {
		if n := len(attribute.Values); n > 0 && float64(n) < 0.3*float64(len(s.Rows)) {
			g.manyValued = false
		}
	}
	root := g.grow(s.Rows, 0)
	collapse(root)
	if opts.Confidence > 0 {
		prune(root, opts.Confidence)
	}
	return root, nil
}

type grower struct {
	set        *Set
	opts       TreeOptions
	sorted     [][]float64 // the sorted values of each continuous attribute
	manyValued bool
}

// grow builds the subtree for rows.
func (g *grower) grow(rows []Row, depth int) *apps.Node {
	weights := make([]float64, g.set.Classes)
	for _, row := range rows {
		weights[row.Class] += row.Weight
	}
	node := &apps.Node{Attribute: -1, Weights: weights}
	total := sum(weights)
	if total < 2*g.opts.MinLeaf || total-slices.Max(weights) < tiny || (g.opts.MaxDepth > 0 && depth >= g.opts.MaxDepth) {
		return node
	}
	best, ok := g.choose(rows, total)
	if !ok {
		return node
	}
	node.Attribute = best.attribute
	if node.Nominal = len(g.set.Attributes[best.attribute].Values) > 0; !node.Nominal {
		node.At = g.occurring(best.attribute, best.at)
	}
	for _, part := range split(node, rows, best.weights()) {
		branch := &apps.Node{Attribute: -1, Weights: make([]float64, g.set.Classes)}
		if len(part) > 0 {
			branch = g.grow(part, depth+1)
		}
		node.Branches = append(node.Branches, branch)
	}
	return node
}

// occurring returns the largest training value that does not exceed at, so that rules name
// values that were seen.
func (g *grower) occurring(attribute int, at float64) float64 {
	values := g.sorted[attribute]
	i := sort.Search(len(values), func(i int) bool { return values[i] > at })
	if i == 0 {
		return at
	}
	return values[i-1]
}

// split distributes rows to branches. A row without the value goes to all branches, its
// weight divided in proportion to theirs.
func split(n *apps.Node, rows []Row, weights []float64) [][]Row {
	parts := make([][]Row, len(weights))
	total := sum(weights)
	for _, row := range rows {
		if v := row.Values[n.Attribute]; !math.IsNaN(v) {
			parts[n.Branch(v)] = append(parts[n.Branch(v)], row)
			continue
		}
		for b, w := range weights {
			if w > 0 {
				part := row
				part.Weight = row.Weight * w / total
				parts[b] = append(parts[b], part)
			}
		}
	}
	return parts
}

func sum(weights []float64) float64 {
	total := 0.0
	for _, w := range weights {
		total += w
	}
	return total
}
