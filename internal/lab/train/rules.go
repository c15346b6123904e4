package train

import (
	"fmt"
	"io"
	"strings"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
)

// Explain writes the rules of a stage (0 or 1) in J48's format, one test per line, indented
// by depth. number selects one tree, from 1; 0 selects all. A leaf shows type, level and
// confidence, then in parentheses its training weight and the misclassified part of it.
func Explain(w io.Writer, m *apps.Model, stage, number int) error {
	s := &m.Stages[stage]
	var b strings.Builder
	for i, tree := range s.Trees {
		if number != 0 && number != i+1 {
			continue
		}
		nodes, depth := size(tree)
		fmt.Fprintf(&b, "Stage %d, tree %d of %d: %d nodes, at most %d tests\n\n", stage+1, i+1, len(s.Trees), nodes, depth)
		if tree.Leaf() {
			fmt.Fprintf(&b, "%s\n", leafText(m, tree))
		}
		explainNode(&b, m, tree, s.Features, 0)
		b.WriteString("\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print rules: %w", err)
	}
	return nil
}

func explainNode(b *strings.Builder, m *apps.Model, n *apps.Node, features []flow.Feature, depth int) {
	for i, branch := range n.Branches {
		if branch.Weight() == 0 {
			continue // no training flow came here: it answers like its parent
		}
		b.WriteString(strings.Repeat("|   ", depth) + testText(n, features, i))
		if branch.Leaf() {
			b.WriteString(": " + leafText(m, branch))
		}
		b.WriteString("\n")
		explainNode(b, m, branch, features, depth+1)
	}
}

func testText(n *apps.Node, features []flow.Feature, branch int) string {
	f := &features[n.Attribute]
	switch {
	case n.Nominal:
		return f.Name + " = " + f.Values[branch]
	case branch == 0:
		return fmt.Sprintf("%s <= %.0f", f.Name, n.At)
	}
	return fmt.Sprintf("%s > %.0f", f.Name, n.At)
}

func leafText(m *apps.Model, n *apps.Node) string {
	a := m.Answer(n.Predict(nil))
	all := n.Weight()
	wrong := all - n.Weights[a.Type]
	text := fmt.Sprintf("%s, %s %.2f (%.1f", apps.Types[a.Type], a.Level, a.LevelConfidence, all)
	if wrong > 0.05 {
		text += fmt.Sprintf("/%.1f", wrong)
	}
	return text + ")"
}

// size returns the number of nodes and the number of tests on the longest path.
func size(n *apps.Node) (nodes, depth int) {
	nodes = 1
	for _, b := range n.Branches {
		bn, bd := size(b)
		nodes += bn
		depth = max(depth, bd+1)
	}
	return nodes, depth
}
