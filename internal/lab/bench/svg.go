package bench

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The plots are drawn by hand: two kinds of them, in 200 lines, do not pay for
// a plotting library, and the result needs nothing but itself.

const (
	plotHeight   = 240 // of the area with data
	plotTop      = 16
	plotLeft     = 56
	plotBottom   = 44
	barWidth     = 8
	groupGap     = 12
	panelGap     = 28
	linesWidth   = 720
	axisSteps    = 5
	legendHeight = 22
)

// palette is distinguishable with the common kinds of colour blindness (Okabe
// and Ito, and one for the seventh peer).
var palette = []string{"#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#882255"}

// Greys are for what was not measured here.
const (
	lightGrey = "#c4c4c4"
	darkGrey  = "#4d4d4d"
)

// series is a name with a colour.
type series struct{ name, colour string }

// numbered gives names the colours of the palette in order.
func numbered(names []string) []series {
	list := make([]series, len(names))
	for i, name := range names {
		list[i] = series{name, palette[i%len(palette)]}
	}
	return list
}

// bar is one value with its spread; a NaN value is left out.
type bar struct{ value, low, high float64 }

// barGroup is bars side by side, one per series.
type barGroup struct {
	label string
	bars  []bar
}

// barPanel is neighbouring groups under one title.
type barPanel struct {
	title  string
	groups []barGroup
}

// barChart is panels side by side on one scale.
type barChart struct {
	title, unit string
	series      []series
	panels      []barPanel
}

func (c barChart) svg() string {
	width, top := plotLeft, 0.0
	for _, panel := range c.panels {
		width += panel.width(len(c.series)) + panelGap
		for _, group := range panel.groups {
			for _, b := range group.bars {
				if !math.IsNaN(b.value) {
					top = max(top, b.high)
				}
			}
		}
	}
	d := newDrawing(max(width, legendWidth(c.series)), top, c.title, c.unit)
	d.legend(c.series)
	x := plotLeft
	for _, panel := range c.panels {
		d.text(x+panel.width(len(c.series))/2, d.base()+34, "middle", panel.title)
		for _, group := range panel.groups {
			d.text(x+len(c.series)*barWidth/2, d.base()+16, "middle", group.label)
			for i, b := range group.bars {
				d.bar(x+i*barWidth, b, c.series[i].colour, c.series[i].name+": "+label(b.value))
			}
			x += len(c.series)*barWidth + groupGap
		}
		x += panelGap - groupGap
	}
	return d.end()
}

func (p barPanel) width(series int) int {
	return len(p.groups)*(series*barWidth+groupGap) - groupGap
}

// lineChart is values over time, in equal steps.
type lineChart struct {
	title, unit string
	series      []series
	stepMS      float64
	values      [][]float64
	// levels are what the values should be, with a vertical line where they
	// change.
	levels []levels
}

// levels has a value for each series, from a time until the next levels.
type levels struct {
	fromMS float64
	values []float64
}

func (c lineChart) svg() string {
	top, steps := 0.0, 1
	for _, level := range c.levels {
		top = max(top, slices.Max(append(level.values, 0)))
	}
	for _, values := range c.values {
		steps = max(steps, len(values))
		for _, value := range values {
			top = max(top, value)
		}
	}
	d := newDrawing(plotLeft+linesWidth+panelGap, top, c.title, c.unit)
	d.legend(c.series)
	x := func(atMS float64) float64 { return plotLeft + atMS/c.stepMS/float64(steps)*linesWidth }
	for number, level := range c.levels {
		untilMS := float64(steps) * c.stepMS
		if number+1 < len(c.levels) {
			untilMS = c.levels[number+1].fromMS
		}
		fmt.Fprintf(&d.out, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#999" stroke-dasharray="3 3"/>`,
			x(level.fromMS), plotTop+legendHeight, x(level.fromMS), d.base())
		for i, value := range level.values {
			fmt.Fprintf(&d.out, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="6 4" opacity="0.6"/>`,
				x(level.fromMS), d.y(value), x(untilMS), d.y(value), c.series[i].colour)
		}
	}
	for i, values := range c.values {
		var points []string
		for step, value := range values {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x((float64(step)+0.5)*c.stepMS), d.y(value)))
		}
		fmt.Fprintf(&d.out, `<polyline fill="none" stroke-width="1.5" stroke="%s" points="%s"/>`,
			c.series[i].colour, strings.Join(points, " "))
	}
	for second := 0; float64(second)*1000 <= float64(steps)*c.stepMS; second++ {
		d.text(int(x(float64(second)*1000)), d.base()+16, "middle", fmt.Sprintf("%d s", second))
	}
	return d.end()
}

// drawing is an SVG with a vertical axis from 0.
type drawing struct {
	out   strings.Builder
	width int
	top   float64 // value at the upper end of the axis
}

func newDrawing(width int, highest float64, title, unit string) *drawing {
	d := &drawing{width: width, top: niceCeiling(highest)}
	height := plotTop + legendHeight + plotHeight + plotBottom
	fmt.Fprintf(&d.out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="11">`,
		width, height, width, height)
	fmt.Fprintf(&d.out, `<title>%s</title>`, html.EscapeString(title))
	for i := range axisSteps + 1 {
		value := d.top * float64(i) / axisSteps
		fmt.Fprintf(&d.out, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e0e0e0"/>`, plotLeft-4, d.y(value), width, d.y(value))
		d.text(plotLeft-8, int(d.y(value))+4, "end", label(value))
	}
	d.text(4, plotTop+legendHeight-8, "start", unit)
	return d
}

// base is where the axis has 0.
func (d *drawing) base() int { return plotTop + legendHeight + plotHeight }

func (d *drawing) y(value float64) float64 {
	return float64(d.base()) - value/d.top*plotHeight
}

func (d *drawing) text(x, y int, anchor, text string) {
	fmt.Fprintf(&d.out, `<text x="%d" y="%d" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(text))
}

// bar draws a bar and, where they differ, a whisker from low to high.
func (d *drawing) bar(x int, b bar, colour, hint string) {
	if math.IsNaN(b.value) {
		return
	}
	fmt.Fprintf(&d.out, `<rect x="%d" y="%.1f" width="%d" height="%.1f" fill="%s"><title>%s</title></rect>`,
		x, d.y(b.value), barWidth-1, float64(d.base())-d.y(b.value), colour, html.EscapeString(hint))
	if b.low < b.high {
		middle := float64(x) + (barWidth-1)/2.0
		fmt.Fprintf(&d.out, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#000"/>`, middle, d.y(b.low), middle, d.y(b.high))
	}
}

func (d *drawing) legend(list []series) {
	x := plotLeft
	for _, one := range list {
		fmt.Fprintf(&d.out, `<rect x="%d" y="2" width="10" height="10" fill="%s"/>`, x, one.colour)
		d.text(x+14, 11, "start", one.name)
		x += legendEntryWidth(one.name)
	}
}

// legendEntryWidth is the room a name takes, at about 6.5 pixels a letter.
func legendEntryWidth(name string) int { return 28 + len(name)*13/2 }

func legendWidth(list []series) int {
	width := plotLeft
	for _, one := range list {
		width += legendEntryWidth(one.name)
	}
	return width
}

func (d *drawing) end() string {
	fmt.Fprintf(&d.out, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#000"/></svg>`, plotLeft-4, d.base(), d.width, d.base())
	return d.out.String()
}

// niceCeiling is the smallest value not below the given one that divides into
// even steps of an axis; 1 for nothing.
func niceCeiling(value float64) float64 {
	if value <= 0 || math.IsInf(value, 0) || math.IsNaN(value) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(value)))
	for _, factor := range []float64{1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 7.5} {
		if factor*power >= value {
			return factor * power
		}
	}
	return 10 * power
}

// label is a value with as many digits as help.
func label(value float64) string {
	return fmt.Sprintf("%.4g", value)
}
