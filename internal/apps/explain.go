package appid

import (
	"fmt"
	"io"
	"strings"

	"github.com/weir-project/weir/internal/appid/c45"
	"github.com/weir-project/weir/internal/appid/flow"
)

// Explain writes the rules of a stage (0 or 1), of all its trees or, if number is
// not 0, of the one with that number, from 1, in the way of J48: a test a
// line, indented by depth; behind a leaf the type, the level, the confidence in
// it, and in parentheses the weight that came here in training and what of it
// was of another type.
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
			continue // answers as its parent; no flow of the training came here
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
