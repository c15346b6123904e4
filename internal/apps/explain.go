package apps

import (
	"fmt"
	"io"
	"strings"

	"github.com/weir-project/weir/internal/apps/c45"
	"github.com/weir-project/weir/internal/apps/flow"
)

// Explain writes the rules of a stage (0 or 1) in J48's format, one test per line, indented
// by depth. number selects one tree, from 1; 0 selects all. A leaf shows type, level and
// confidence, then in parentheses its training weight and the misclassified part of it.
func (m *Model) Explain(w io.Writer, stage, number int) error {
	s := &m.Stages[stage]
	var b strings.Builder
	for i, tree := range s.Trees {
		if number != 0 && number != i+1 {
			continue
		}
		nodes, depth := tree.Size()
		fmt.Fprintf(&b, "Stage %d, tree %d of %d: %d nodes, at most %d tests\n\n", stage+1, i+1, len(s.Trees), nodes, depth)
		if tree.Leaf() {
			fmt.Fprintf(&b, "%s\n", m.leafText(tree))
		}
		m.explainNode(&b, tree, s.Features, 0)
		b.WriteString("\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print rules: %w", err)
	}
	return nil
}

func (m *Model) explainNode(b *strings.Builder, n *c45.Node, features []flow.Feature, depth int) {
	for i, branch := range n.Branches {
		if total(branch.Weights) == 0 {
			continue // no training flow came here: it answers like its parent
		}
		b.WriteString(strings.Repeat("|   ", depth) + testText(n, features, i))
		if branch.Leaf() {
			b.WriteString(": " + m.leafText(branch))
		}
		b.WriteString("\n")
		m.explainNode(b, branch, features, depth+1)
	}
}

func testText(n *c45.Node, features []flow.Feature, branch int) string {
	f := &features[n.Attribute]
	switch {
	case n.Nominal:
		return f.Name + " = " + f.Values[branch]
	case branch == 0:
		return fmt.Sprintf("%s <= %.0f", f.Name, n.At)
	}
	return fmt.Sprintf("%s > %.0f", f.Name, n.At)
}

func (m *Model) leafText(n *c45.Node) string {
	a := m.answer(n.Predict(nil))
	all := total(n.Weights)
	wrong := all - n.Weights[a.appType]
	text := fmt.Sprintf("%s, %s %.2f (%.1f", Types[a.appType], a.level, a.levelConfidence, all)
	if wrong > 0.05 {
		text += fmt.Sprintf("/%.1f", wrong)
	}
	return text + ")"
}
