package train

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
)

// Dimensions of the drawing, in pixels.
const (
	drawColumn = 190
	drawLine   = 20
	drawMargin = 12
)

// levelColours are distinguishable with red-green colour blindness.
var levelColours = [apps.NumLevels]string{"#0072b2", "#009e73", "#999999"}

// drawing lays out a tree from left to right: one line per leaf, each test at the middle of
// its branches.
type drawing struct {
	b        strings.Builder
	model    *apps.Model
	features []flow.Feature
	lines    int
	columns  int
}

// Draw writes one tree of a stage (0 or 1) as SVG.
func Draw(w io.Writer, m *apps.Model, stage, tree int) error {
	s := &m.Stages[stage]
	if tree < 0 || tree >= len(s.Trees) {
		return fmt.Errorf("draw tree: stage %d has %d trees, not %d", stage+1, len(s.Trees), tree+1)
	}
	d := &drawing{model: m, features: s.Features}
	d.node(s.Trees[tree], 0)
	width, height := (d.columns+2)*drawColumn, d.lines*drawLine+2*drawMargin
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, width, height, width, height, d.b.String())
	if err != nil {
		return fmt.Errorf("draw tree: %w", err)
	}
	return nil
}

// node draws a subtree with its test in a column and returns its vertical position.
func (d *drawing) node(n *apps.Node, column int) float64 {
	d.columns = max(d.columns, column)
	x := float64(column*drawColumn + drawMargin)
	if n.Leaf() {
		y := float64(d.lines*drawLine+drawMargin) + drawLine/2
		d.lines++
		d.text(x, y, levelColours[d.model.Answer(n.Predict(nil)).Level], leafText(d.model, n))
		return y
	}
	type end struct {
		y     float64
		label string
	}
	var ends []end
	for i, branch := range n.Branches {
		if branch.Weight() > 0 {
			ends = append(ends, end{d.node(branch, column+1), testText(n, d.features, i)})
		}
	}
	y := (ends[0].y + ends[len(ends)-1].y) / 2
	next := x + drawColumn - 6
	for _, e := range ends {
		fmt.Fprintf(&d.b, `<path d="M%.0f %.0f C%.0f %.0f %.0f %.0f %.0f %.0f H%.0f" fill="none" stroke="#bbb"/>`+"\n",
			x, y, x+20, y, x+10, e.y, x+30, e.y, next)
		d.text(x+32, e.y-3, "#333333", e.label)
	}
	fmt.Fprintf(&d.b, `<circle cx="%.0f" cy="%.0f" r="3" fill="#333"/>`+"\n", x, y)
	return y
}

func (d *drawing) text(x, y float64, colour, text string) {
	fmt.Fprintf(&d.b, `<text x="%.0f" y="%.0f" fill="%s" dy="4">%s</text>`+"\n", x, y, colour, html.EscapeString(text))
}
