package apps

import "math"

// Node is a node of a decision tree, with its subtree.
type Node struct {
	// Attribute is the index of the tested attribute; -1 marks a leaf.
	Attribute int
	// Nominal is a test with a branch for each value; else there are two.
	Nominal bool
	// At is the threshold of a continuous attribute: values up to At take the first branch.
	At       float64
	Branches []*Node
	// Weights is the training weight of each class at this node.
	Weights []float64
}

// Leaf reports whether the node has no test.
func (n *Node) Leaf() bool { return n.Attribute < 0 }

// Weight returns the training weight of all classes.
func (n *Node) Weight() float64 {
	total := 0.0
	for _, w := range n.Weights {
		total += w
	}
	return total
}

// Branch returns the index of the branch for a known value.
func (n *Node) Branch(v float64) int {
	switch {
	case n.Nominal:
		return int(v)
	case v <= n.At:
		return 0
	}
	return 1
}

// Predict returns the probability of each class. If a tested value is missing, it averages
// over all branches by their training weight.
func (n *Node) Predict(values []float64) []float64 {
	out := make([]float64, len(n.Weights))
	n.predict(values, 1, out)
	return out
}

func (n *Node) predict(values []float64, weight float64, out []float64) {
	total := n.Weight()
	if n.Leaf() {
		for class, w := range n.Weights {
			if total > 0 {
				out[class] += weight * w / total
			}
		}
		return
	}
	descend := func(b *Node, weight float64) {
		// A branch without training rows answers like its parent.
		if b.Weight() == 0 {
			for class, w := range n.Weights {
				out[class] += weight * w / total
			}
			return
		}
		b.predict(values, weight, out)
	}
	v := values[n.Attribute]
	if !math.IsNaN(v) && (!n.Nominal || (v >= 0 && int(v) < len(n.Branches))) {
		descend(n.Branches[n.Branch(v)], weight)
		return
	}
	for _, b := range n.Branches {
		if w := b.Weight(); w > 0 {
			descend(b, weight*w/total)
		}
	}
}
