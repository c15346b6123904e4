package apps

import (
	"fmt"
	"math"

	"github.com/weir-project/weir/internal/apps/flow"
)

// MaxDepth limits the tests on a path of a tree. It also holds in the binary form, where a
// nominal test becomes several.
const MaxDepth = 32

// MaxNodes and MaxTrees limit the binary form to the size of the BPF maps.
const (
	MaxNodes = 16384
	MaxTrees = 8
)

// LeafFeature marks a leaf in the binary form.
const LeafFeature = 0xff

// CompactNode is a tree node in the form that BPF programs read: 16 bytes, little-endian,
// all trees in one array. An inner node continues at Left if the feature's word is at most
// Threshold, otherwise at Right. Both indexes are larger than the node's own, so every walk
// ends. Confidences are in units of 1/65535.
type CompactNode struct {
	Feature         uint8 // flow.Feature.Code, or LeafFeature
	Type            uint8 // leaf only
	Level           uint8 // leaf only
	_               uint8
	Threshold       uint32
	Left, Right     uint16
	TypeConfidence  uint16 // leaf only
	LevelConfidence uint16 // leaf only
}

// Compact is a classifier in the binary form.
type Compact struct {
	Nodes []CompactNode
	// Roots are the root indexes of each stage's trees.
	Roots         [2][]uint16
	MinConfidence uint16
}

// Compact converts a model to the binary form.
func (m *Model) Compact() (*Compact, error) {
	c := &Compact{MinConfidence: uint16(math.Round(m.MinConfidence * math.MaxUint16))}
	for i := range m.Stages {
		for _, tree := range m.Stages[i].Trees {
			c.Roots[i] = append(c.Roots[i], uint16(min(len(c.Nodes), math.MaxUint16)))
			c.add(m, &m.Stages[i], tree, tree.Weights)
		}
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	return c, nil
}

// add appends a tree and returns its root index. Indexes overflow beyond MaxNodes, which
// Check reports.
func (c *Compact) add(m *Model, s *Stage, n *Node, parent []float64) uint16 {
	if n.Weight() == 0 {
		n = &Node{Attribute: -1, Weights: parent}
	}
	at := len(c.Nodes)
	c.Nodes = append(c.Nodes, CompactNode{})
	if n.Leaf() {
		a := m.Answer(n.Predict(nil))
		c.Nodes[at] = CompactNode{
			Feature: LeafFeature, Type: uint8(a.Type), Level: uint8(a.Level),
			TypeConfidence: part(a.TypeConfidence), LevelConfidence: part(a.LevelConfidence),
		}
		return uint16(at)
	}
	f := &s.Features[n.Attribute]
	node := CompactNode{Feature: f.Code}
	if n.Nominal {
		c.Nodes = c.Nodes[:at]
		return c.addNominal(m, s, n, 0, len(n.Branches))
	}
	node.Threshold = f.Word(math.Floor(n.At))
	node.Left = c.add(m, s, n.Branches[0], n.Weights)
	node.Right = c.add(m, s, n.Branches[1], n.Weights)
	c.Nodes[at] = node
	return uint16(at)
}

// addNominal appends a binary search for the branch of the values from (inclusive) to
// (exclusive).
func (c *Compact) addNominal(m *Model, s *Stage, n *Node, from, to int) uint16 {
	if to-from == 1 {
		return c.add(m, s, n.Branches[from], n.Weights)
	}
	at := len(c.Nodes)
	c.Nodes = append(c.Nodes, CompactNode{})
	f := &s.Features[n.Attribute]
	middle := (from + to) / 2
	node := CompactNode{Feature: f.Code, Threshold: f.Word(float64(middle - 1))}
	node.Left = c.addNominal(m, s, n, from, middle)
	node.Right = c.addNominal(m, s, n, middle, to)
	c.Nodes[at] = node
	return uint16(at)
}

func part(p float64) uint16 { return uint16(math.Round(p * math.MaxUint16)) }

// Check returns an error if the nodes are not safe for a BPF program.
func (c *Compact) Check() error {
	if len(c.Nodes) == 0 || len(c.Nodes) > MaxNodes {
		return fmt.Errorf("check tree: %d nodes, want 1 to %d: train with fewer --trees or a larger --min-leaf", len(c.Nodes), MaxNodes)
	}
	late := map[uint8]bool{}
	for _, f := range flow.Features(Types) {
		late[f.Code] = f.Late
	}
	for i, n := range c.Nodes {
		if err := c.checkNode(i, n, late); err != nil {
			return fmt.Errorf("check tree: node %d: %w", i, err)
		}
	}
	for stage, roots := range c.Roots {
		if len(roots) == 0 || len(roots) > MaxTrees {
			return fmt.Errorf("check tree: stage %d has %d trees, want 1 to %d", stage+1, len(roots), MaxTrees)
		}
		for _, root := range roots {
			if int(root) >= len(c.Nodes) {
				return fmt.Errorf("check tree: stage %d begins at node %d of %d", stage+1, root, len(c.Nodes))
			}
			if err := c.checkPaths(root, stage == 0, late); err != nil {
				return fmt.Errorf("check tree: stage %d: %w", stage+1, err)
			}
		}
	}
	return nil
}

func (c *Compact) checkNode(i int, n CompactNode, late map[uint8]bool) error {
	if n.Feature == LeafFeature {
		switch {
		case int(n.Type) >= NumTypes:
			return fmt.Errorf("application type %d of %d", n.Type, NumTypes)
		case int(n.Level) >= NumLevels:
			return fmt.Errorf("level %d of %d", n.Level, NumLevels)
		}
		return nil
	}
	if _, known := late[n.Feature]; !known {
		return fmt.Errorf("feature %d is not known: this tree is of another version of weir or damaged", n.Feature)
	}
	for _, next := range []uint16{n.Left, n.Right} {
		if int(next) <= i || int(next) >= len(c.Nodes) {
			return fmt.Errorf("it leads to node %d: want %d to %d", next, i+1, len(c.Nodes)-1)
		}
	}
	return nil
}

// checkPaths validates the features and depth of all paths of a tree. Children have larger
// indexes than parents, so one pass from the end computes the depths.
func (c *Compact) checkPaths(root uint16, first bool, late map[uint8]bool) error {
	reached := map[uint16]int{root: 0}
	for i := int(root); i < len(c.Nodes); i++ {
		depth, ok := reached[uint16(i)]
		n := c.Nodes[i]
		if !ok || n.Feature == LeafFeature {
			continue
		}
		if depth >= MaxDepth {
			return fmt.Errorf("node %d is the test number %d of its path, want at most %d: train with a smaller --max-depth",
				i, depth+1, MaxDepth)
		}
		if first && late[n.Feature] {
			return fmt.Errorf("node %d tests feature %d, which the first packet does not have", i, n.Feature)
		}
		for _, next := range []uint16{n.Left, n.Right} {
			reached[next] = max(reached[next], depth+1)
		}
	}
	return nil
}

// Verdict walks the trees of stage 0 or 1 like the BPF program; word returns the word of a
// feature by its code. Confidences are summed as integers, so that ties are decided the
// same way everywhere.
func (c *Compact) Verdict(stage int, word func(code uint8) uint32) Verdict {
	var v votes
	for _, at := range c.Roots[stage] {
		n := c.Nodes[at]
		for n.Feature != LeafFeature {
			if word(n.Feature) <= n.Threshold {
				n = c.Nodes[n.Left]
			} else {
				n = c.Nodes[n.Right]
			}
		}
		v.add(Verdict{
			Type: int(n.Type), Level: Level(n.Level),
			TypeConfidence: float64(n.TypeConfidence), LevelConfidence: float64(n.LevelConfidence),
		})
	}
	out := v.verdict(float64(c.MinConfidence))
	out.TypeConfidence /= math.MaxUint16
	out.LevelConfidence /= math.MaxUint16
	return out
}
