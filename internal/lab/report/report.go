// Package report is what every command that measures or computes has to say
// for itself: one result format and one page that shows it.
//
// A Report is data only: where the numbers come from (Provenance), what they
// were held against (Verdicts for targets of Weir's own, Claims for what papers
// say), and tables and plots. A command embeds a Report in its own result, next
// to its raw numbers, so that all of them can be read as a Report. WriteHTML
// turns one into a page that needs nothing but itself; plots are drawn by uPlot.
package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Format is the version of the format. Fields are only ever added; what changes
// the meaning of one raises it.
const Format = 1

// Report is a result. Its JSON is flat: a command's own fields stand beside it.
type Report struct {
	Format int    `json:"format"`
	Title  string `json:"title"`
	// Note is what a reader must know of the numbers.
	Note string `json:"note,omitempty"`
	// Gaps are what the report lacks, and why: sentences that are also part of Note.
	Gaps []string `json:"gaps,omitempty"`
	Provenance
	Verdicts []Verdict `json:"verdicts"`
	Claims   []Claim   `json:"claims,omitempty"`
	Tables   []Table   `json:"tables,omitempty"`
	Plots    []Plot    `json:"plots,omitempty"`
	// Quantities are all numbers that runs of one command can be compared by.
	Quantities []Quantity `json:"quantities,omitempty"`
}

// Quantity is one thing that was measured or computed, run by run.
type Quantity struct {
	// Case and Name together name it: what was done, and what of it is counted.
	Case string `json:"case"`
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Better says which direction is good; empty where none is.
	Better Better `json:"better,omitempty"`
	// Values has one for each repeat. Exact ones are computed: any difference counts.
	Values []float64 `json:"values"`
	Exact  bool      `json:"exact,omitempty"`
}

// Better is the direction in which a quantity is good.
type Better string

// Directions.
const (
	Higher Better = "higher"
	Lower  Better = "lower"
)

// Provenance is where numbers come from.
type Provenance struct {
	Command     string      `json:"command"`
	StartedAt   time.Time   `json:"started_at"`
	TookSeconds float64     `json:"took_seconds"`
	Seed        uint64      `json:"seed"`
	Repeat      int         `json:"repeat"` // rounds; numbers are their medians
	Environment Environment `json:"environment"`
	// Runs are all that count. RepeatedRuns were done again because the machine
	// stood still or others used it; in PausedRuns, which count, it stood still.
	// PausesUnknown: that could not be watched.
	Runs          int  `json:"runs"`
	RepeatedRuns  int  `json:"repeated_runs"`
	PausedRuns    int  `json:"paused_runs"`
	PausesUnknown bool `json:"pauses_unknown,omitempty"`
	// DisturbedRuns are runs that count during which others used the machine, and how much.
	DisturbedRuns []string `json:"disturbed_runs,omitempty"`
}

// Verdict is whether a target of Weir's own was met.
type Verdict struct {
	Target   string `json:"target"`
	Limit    string `json:"limit"`
	Measured string `json:"measured"`
	Where    string `json:"where"` // the worst case
	Met      bool   `json:"met"`
	// Undecided targets are not met either: what was measured does not tell.
	Undecided bool `json:"undecided,omitempty"`
	// Change is what would have to change for the target to be met, on a published page.
	Change string `json:"change,omitempty"`
}

// Missed returns the verdicts on targets that are not met, undecided ones included.
func (r Report) Missed() []Verdict {
	var missed []Verdict
	for _, verdict := range r.Verdicts {
		if !verdict.Met {
			missed = append(missed, verdict)
		}
	}
	return missed
}

// Judgement is what became of a claim.
type Judgement string

// Judgements.
const (
	Reproduced        Judgement = "reproduced"
	Exceeded          Judgement = "exceeded" // better than what the paper reached
	NotReproduced     Judgement = "not reproduced"
	ClaimUndecided    Judgement = "undecided"           // it holds in some rounds, and in some it does not
	DifferentByDesign Judgement = "different by design" // and just as the design says
	NotReproducible   Judgement = "not reproducible"    // impossible, and the reason says why
	SaysNothing       Judgement = "says nothing"        // it also holds without what it is about
	NotMeasured       Judgement = "not measured"        // the cases or peers were not run
)

// Judgements lists all, as reports do.
func Judgements() []Judgement {
	return []Judgement{Exceeded, Reproduced, DifferentByDesign, NotReproduced, ClaimUndecided, NotReproducible, SaysNothing, NotMeasured}
}

// Claim is something that a paper says, and what became of it.
type Claim struct {
	Source string `json:"source"` // the paper
	// Section is where the paper has it, such as "4.1"; empty if the paper has no section for it.
	Section string `json:"section,omitempty"`
	Where   string `json:"where"` // figure or table, or what else tells it apart
	Says    string `json:"says"`
	// About is what the numbers are of; empty is Weir.
	About     string    `json:"about,omitempty"`
	Judgement Judgement `json:"judgement"`
	// Was is the judgement by the rules of the build that measured, if it is another one.
	Was Judgement `json:"was,omitempty"`
	// Reason says why: it names the rule, or why the result is another.
	Reason string  `json:"reason"`
	Values []Value `json:"values,omitempty"`
	// Command repeats what the claim is judged by, on a published page.
	Command string `json:"command,omitempty"`
}

// Value is a number of a claim; null is what is not known.
type Value struct {
	Name     string   `json:"name"`
	Unit     string   `json:"unit"`
	Paper    *float64 `json:"paper"`
	Ideal    *float64 `json:"ideal"`
	Measured *float64 `json:"measured"`
	// Low and High are the lowest and the highest round: of five rounds a 94 % interval of the median (by order
	// statistics), of seven a 98 % one. Null where the report keeps no rounds of the value.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
}

// AddNote adds a sentence to the note; an empty one adds nothing.
func (r *Report) AddNote(sentence string) {
	r.Note = strings.TrimSpace(r.Note + " " + sentence)
}

// AddGap names something that the report lacks, in a sentence that says why, in its note and on a page of claims. It is
// no failure; an empty sentence adds nothing.
func (r *Report) AddGap(sentence string) {
	if sentence = strings.ReplaceAll(sentence, "\n", "; "); sentence != "" {
		r.Gaps = append(r.Gaps, sentence)
		r.AddNote(sentence)
	}
}

// NoTime is in the note of a report that lacks cases.
const NoTime = "There was no time for"

// AddLeftOut notes how many cases were left out for lack of time.
func (r *Report) AddLeftOut(cases int) {
	if cases > 0 {
		r.AddGap(fmt.Sprintf(NoTime+" %d cases.", cases))
	}
}

// Result is what a command found: a Report, and numbers of its own beside it.
type Result interface {
	// Base returns the Report in it.
	Base() Report
	// Failed returns the number of cases in which runs failed.
	Failed() int
	WriteText(w io.Writer) error
}

// Base implements Result.
func (r Report) Base() Report { return r }

// Failed returns 0: what ends at its first failure has no failed cases.
func (Report) Failed() int { return 0 }

// Count returns the number of claims with a judgement.
func (r Report) Count(judgement Judgement) int {
	count := 0
	for _, claim := range r.Claims {
		if claim.Judgement == judgement {
			count++
		}
	}
	return count
}

// IsSame reports whether another judgement is on the same claim.
func (c Claim) IsSame(other Claim) bool {
	return c.Source == other.Source && c.Where == other.Where && c.Says == other.Says
}

// JudgedAgain returns judgements by other rules than those of earlier ones, with what they were. What was not measured keeps its reason.
func JudgedAgain(earlier, now []Claim) []Claim {
	for i := range now {
		one := &now[i]
		at := slices.IndexFunc(earlier, one.IsSame)
		if at < 0 {
			continue
		}
		was := earlier[at]
		if first := cmp.Or(was.Was, was.Judgement); first != one.Judgement {
			one.Was = first
			one.Reason += fmt.Sprintf(" By earlier rules: %s.", first)
		} else if first == NotMeasured {
			one.Reason = was.Reason
		}
	}
	return now
}

// Table is rows of text under a header.
type Table struct {
	Title  string     `json:"title"`
	Header []string   `json:"header"`
	Rows   [][]string `json:"rows"`
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// AddFailure appends what failed and why, on one line.
func (t *Table) AddFailure(what ...string) {
	what[len(what)-1] = strings.ReplaceAll(what[len(what)-1], "\n", "; ")
	t.Add(what...)
}

// Filled returns the tables that have rows.
func Filled(tables ...Table) []Table {
	return slices.DeleteFunc(tables, func(t Table) bool { return len(t.Rows) == 0 })
}

// PlotKind is how a plot is drawn.
type PlotKind string

// Kinds of plots.
const (
	Bars  PlotKind = "bars"  // values of categories
	Lines PlotKind = "lines" // values over a number, such as time
)

// Role is what the values of a series are.
type Role string

// Roles. What was not measured here is drawn so that one sees it: grey bars,
// dashed lines.
const (
	Measured Role = "measured"
	Paper    Role = "paper"
	Ideal    Role = "ideal"
)

// Plot is one figure: panels side by side that share series and scale.
type Plot struct {
	Title string   `json:"title"`
	Kind  PlotKind `json:"kind"`
	// XLabel and YLabel name the axes, with their units.
	XLabel string   `json:"x_label,omitempty"`
	YLabel string   `json:"y_label"`
	Series []Series `json:"series"`
	Panels []Panel  `json:"panels"`
}

// Series is what has one colour in a plot.
type Series struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Colour numbers the colours of what is measured, so that the same thing has
	// the same one in all plots; an ideal over time has that of what it is for.
	Colour int `json:"colour"`
}

// Panel is one set of axes.
type Panel struct {
	Title string `json:"title,omitempty"`
	// Categories are those of bars, X the numbers of lines, growing.
	Categories []string  `json:"categories,omitempty"`
	X          []float64 `json:"x,omitempty"`
	// Values has a row for each series with a value, or null, for each category
	// or X. Low and High, where there are any, are the spread of these.
	Values [][]*float64 `json:"values"`
	Low    [][]*float64 `json:"low,omitempty"`
	High   [][]*float64 `json:"high,omitempty"`
}

// MeasuredSeries returns a series for each name, with a colour of its own.
func MeasuredSeries(names ...string) []Series {
	list := make([]Series, len(names))
	for i, name := range names {
		list[i] = Series{Name: name, Role: Measured, Colour: i}
	}
	return list
}

// LinePanel returns a panel with a line for each of count series: its value at each x, nil for a
// gap.
func LinePanel(title string, x []float64, count int, value func(series, at int) *float64) Panel {
	panel := Panel{Title: title, X: x, Values: make([][]*float64, count)}
	for series := range count {
		for at := range x {
			panel.Values[series] = append(panel.Values[series], value(series, at))
		}
	}
	return panel
}

// WithoutEmpty returns the plot without the series that have no value in any panel, such as
// those of a paper without numbers.
func (p Plot) WithoutEmpty() Plot {
	trimmed := p
	trimmed.Series, trimmed.Panels = nil, make([]Panel, len(p.Panels))
	for n, panel := range p.Panels {
		panel.Values, panel.Low, panel.High = nil, nil, nil
		trimmed.Panels[n] = panel
	}
	some := func(rows [][]*float64, i int) bool {
		return i < len(rows) && slices.ContainsFunc(rows[i], func(value *float64) bool { return value != nil })
	}
	for i, series := range p.Series {
		if !slices.ContainsFunc(p.Panels, func(panel Panel) bool { return some(panel.Values, i) }) {
			continue
		}
		trimmed.Series = append(trimmed.Series, series)
		for n, panel := range p.Panels {
			to := &trimmed.Panels[n]
			to.Values = append(to.Values, panel.Values[i])
			if panel.Low != nil && panel.High != nil {
				to.Low, to.High = append(to.Low, panel.Low[i]), append(to.High, panel.High[i])
			}
		}
	}
	return trimmed
}

// Number returns a pointer to a value.
func Number(value float64) *float64 { return &value }
