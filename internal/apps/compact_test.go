package apps

import (
	"strings"
	"testing"
)

// small is a classifier of three nodes: one test and its leaves for stage 1, of
// which a leaf is also stage 2.
func small() *Compact {
	return &Compact{
		Nodes: []CompactNode{
			{Feature: 2, Threshold: 1023, Left: 1, Right: 2},
			{Feature: LeafFeature, Type: 2, Level: 0},
			{Feature: LeafFeature, Type: 9, Level: 2},
		},
		Roots: [2][]uint16{{0}, {2}},
	}
}

func TestCorruptTrees(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Compact)
		want   string
	}{
		"itself":       {func(c *Compact) { c.Nodes[0].Left = 0 }, "node 0: it leads to node 0: want 1 to 2"},
		"outside":      {func(c *Compact) { c.Nodes[0].Right = 3 }, "node 0: it leads to node 3"},
		"feature":      {func(c *Compact) { c.Nodes[0].Feature = 200 }, "feature 200 is not known"},
		"late feature": {func(c *Compact) { c.Nodes[0].Feature = 32 }, "stage 1: node 0 tests feature 32, which the first packet does not have"},
		"type":         {func(c *Compact) { c.Nodes[1].Type = 10 }, "application type 10 of 10"},
		"level":        {func(c *Compact) { c.Nodes[1].Level = 3 }, "level 3 of 3"},
		"root":         {func(c *Compact) { c.Roots[1][0] = 7 }, "stage 2 begins at node 7 of 3"},
		"no root":      {func(c *Compact) { c.Roots[0] = nil }, "stage 1 has 0 trees"},
		"many roots":   {func(c *Compact) { c.Roots[0] = make([]uint16, 9) }, "stage 1 has 9 trees"},
		"no nodes":     {func(c *Compact) { c.Nodes = nil }, "0 nodes"},
		"too deep":     {chain, "node 32 is the test number 33 of its path, want at most 32"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := small()
			if err := tree.Check(); err != nil {
				t.Fatal(err)
			}
			c.change(tree)
			if err := tree.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// chain makes a path of one test more than there may be.
func chain(c *Compact) {
	c.Nodes = nil
	for i := range uint16(MaxDepth + 1) {
		c.Nodes = append(c.Nodes, CompactNode{Feature: 2, Left: i + 1, Right: i + 1})
	}
	c.Nodes = append(c.Nodes, CompactNode{Feature: LeafFeature})
	c.Roots = [2][]uint16{{0}, {MaxDepth}}
}
