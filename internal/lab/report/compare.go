package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"
)

// Two reports are compared quantity by quantity. Whether the values of all repeats may
// come from the same distribution is asked with the Mann-Whitney U test, which assumes
// nothing of that distribution; medians have confidence intervals by order statistics
// (package benchmath, as benchstat uses it). What is computed is the same or not.

const (
	// alpha is how often quantities that did not change seem to.
	alpha = 0.05
	// confidence is that of intervals.
	confidence = 0.95
	// roundOff is by which part a computed value may differ between machines.
	roundOff = 1e-9
	// enoughRepeats is from how many on, on both sides, the test can tell anything at
	// alpha.
	enoughRepeats = 4
)

// Outcome is what became of a quantity.
type Outcome string

// Outcomes.
const (
	Improved Outcome = "better"
	Worsened Outcome = "worse"
	Changed  Outcome = "changed" // and neither direction is good
	Same     Outcome = "no difference beyond noise"
	TooFew   Outcome = "too few repeats"
)

// Outcomes lists all, what changed first.
func Outcomes() []Outcome { return []Outcome{Worsened, Improved, Changed, TooFew, Same} }

// Median is a median with its confidence interval, which is null at an end that too few
// values leave open.
type Median struct {
	Count  int      `json:"count"`
	Median float64  `json:"median"`
	Low    *float64 `json:"low"`
	High   *float64 `json:"high"`
}

// Change is a quantity in both reports.
type Change struct {
	Case    string  `json:"case"`
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	A       Median  `json:"a"`
	B       Median  `json:"b"`
	Outcome Outcome `json:"outcome"`
	// Ratio is B's median over A's; null if that is 0. P is how likely the values are
	// if nothing changed; null for what is computed.
	Ratio *float64 `json:"ratio"`
	P     *float64 `json:"p"`
}

// Comparison is what two reports say of each other.
type Comparison struct {
	Format int    `json:"format"`
	Title  string `json:"title"`
	// A and B are where the numbers come from.
	A Provenance `json:"a"`
	B Provenance `json:"b"`
	// Differences are what else is not the same: machine, kernel, command.
	Differences []string `json:"differences"`
	Changes     []Change `json:"changes"`
	// OnlyA and OnlyB are quantities that the other report does not have.
	OnlyA []string `json:"only_a"`
	OnlyB []string `json:"only_b"`
}

// Compare compares report B with report A. It fails if they have nothing in common.
func Compare(a, b Report) (Comparison, error) {
	c := Comparison{
		Format: Format, Title: a.Title, A: a.Provenance, B: b.Provenance,
		Differences: differences(a, b), Changes: []Change{}, OnlyA: []string{}, OnlyB: []string{},
	}
	others := map[[2]string]Quantity{}
	for _, q := range b.Quantities {
		others[[2]string{q.Case, q.Name}] = q
	}
	for _, q := range a.Quantities {
		key := [2]string{q.Case, q.Name}
		other, found := others[key]
		if !found {
			c.OnlyA = append(c.OnlyA, q.id())
			continue
		}
		delete(others, key)
		if other.Unit != q.Unit {
			return c, fmt.Errorf("%s is in %q in one report and in %q in the other", q.id(), q.Unit, other.Unit)
		}
		c.Changes = append(c.Changes, change(q, other))
	}
	for _, q := range b.Quantities {
		if _, left := others[[2]string{q.Case, q.Name}]; left {
			c.OnlyB = append(c.OnlyB, q.id())
		}
	}
	if len(c.Changes) == 0 {
		return c, fmt.Errorf("the reports have nothing in common: %q has %d quantities, %q has %d",
			a.Title, len(a.Quantities), b.Title, len(b.Quantities))
	}
	return c, nil
}

func (q Quantity) id() string { return q.Case + ": " + q.Name }

// check refuses what no report has.
func (q Quantity) check() error {
	switch {
	case q.Case == "" || q.Name == "":
		return fmt.Errorf("a quantity without case or name")
	case len(q.Values) == 0:
		return fmt.Errorf("%s has no values", q.id())
	case q.Better != "" && q.Better != Higher && q.Better != Lower:
		return fmt.Errorf("%s: better is %q, but must be %q or %q", q.id(), q.Better, Higher, Lower)
	}
	return nil
}

// change compares one quantity.
func change(a, b Quantity) Change {
	x := benchmath.NewSample(slices.Clone(a.Values), &benchmath.Thresholds{CompareAlpha: alpha})
	y := benchmath.NewSample(slices.Clone(b.Values), x.Thresholds)
	c := Change{Case: a.Case, Name: a.Name, Unit: a.Unit, A: medianOf(x), B: medianOf(y)}
	if c.A.Median != 0 {
		c.Ratio = Number(c.B.Median / c.A.Median)
	}
	off := c.B.Median - c.A.Median
	if a.Exact && b.Exact {
		c.Outcome = Same
		if math.Abs(off) > roundOff*math.Abs(c.A.Median) {
			c.Outcome = a.Better.outcome(off)
		}
		return c
	}
	test := benchmath.AssumeNothing.Compare(x, y)
	c.P = Number(test.P)
	switch {
	case test.P <= alpha:
		c.Outcome = a.Better.outcome(off)
	case min(test.N1, test.N2) < enoughRepeats:
		c.Outcome = TooFew
	default:
		c.Outcome = Same
	}
	return c
}

// outcome returns the outcome of a difference of medians beyond noise.
func (b Better) outcome(off float64) Outcome {
	switch {
	case b == "":
		return Changed
	case (b == Higher) == (off > 0):
		return Improved
	}
	return Worsened
}

func medianOf(s *benchmath.Sample) Median {
	summary := benchmath.AssumeNothing.Summary(s, confidence)
	finite := func(v float64) *float64 {
		if math.IsInf(v, 0) {
			return nil
		}
		return &v
	}
	return Median{Count: len(s.Values), Median: summary.Center, Low: finite(summary.Lo), High: finite(summary.Hi)}
}

// differences names what is not the same for both reports and may explain what changed.
func differences(a, b Report) []string {
	list := []string{}
	note := func(what, one, other string) {
		if one != other {
			list = append(list, fmt.Sprintf("%s: %s against %s", what, orNone(one), orNone(other)))
		}
	}
	x, y := a.Environment, b.Environment
	note("another kind of report", a.Title, b.Title)
	note("another machine", x.Machine, y.Machine)
	note("other processors", fmt.Sprintf("%d x %s (%s)", x.CPUs, x.CPUModel, x.Arch), fmt.Sprintf("%d x %s (%s)", y.CPUs, y.CPUModel, y.Arch))
	note("another kernel", x.Kernel, y.Kernel)
	note("another congestion control", x.TCP, y.TCP)
	note("other containers", x.Containers, y.Containers)
	note("another tc", x.TC, y.TC)
	note("another Weir", x.Weir, y.Weir)
	note("another Go", x.Go, y.Go)
	note("another command", a.Command, b.Command)
	note("another seed", fmt.Sprint(a.Seed), fmt.Sprint(b.Seed))
	return list
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// Count returns the number of quantities with an outcome.
func (c Comparison) Count(outcome Outcome) int {
	count := 0
	for _, one := range c.Changes {
		if one.Outcome == outcome {
			count++
		}
	}
	return count
}

// WriteText prints a comparison for a terminal: what changed, or with all every quantity.
func (c Comparison) WriteText(w io.Writer, all bool) error {
	fmt.Fprintf(w, "A: %s\nB: %s\n", c.A.line(), c.B.line())
	for _, difference := range c.Differences {
		fmt.Fprintf(w, "NOT THE SAME: %s\n", difference)
	}
	for i, p := range []Provenance{c.A, c.B} {
		if p.PausedRuns > 0 {
			fmt.Fprintf(w, "In %d of %d runs of %c a processor stood still.\n", p.PausedRuns, p.Runs, 'A'+i)
		}
	}
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "OUTCOME\tCASE\tQUANTITY\tA\tB\tUNIT\tB/A\tP")
	shown := 0
	for _, outcome := range Outcomes() {
		if !all && (outcome == Same || outcome == TooFew) {
			continue
		}
		for _, one := range c.Changes {
			if one.Outcome == outcome {
				shown++
				fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", one.Outcome, one.Case, one.Name, one.text(one.A), one.text(one.B), one.Unit, Text(one.Ratio), Text(one.P))
			}
		}
	}
	if shown > 0 {
		if err := tab.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	var counts []string
	for _, outcome := range Outcomes() {
		if count := c.Count(outcome); count > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", count, outcome))
		}
	}
	fmt.Fprintf(w, "%d quantities: %s.\n", len(c.Changes), strings.Join(counts, ", "))
	if tested := c.tested(); tested > 0 {
		fmt.Fprintf(w, "Of %d that could be tested, about %.1f seem to have changed by chance alone (p at most %g).\n", tested, float64(tested)*alpha, alpha)
	}
	if few := c.Count(TooFew); few > 0 {
		fmt.Fprintf(w, "%d have fewer than %d repeats on a side, from which nothing can be told: measure with --repeat %d or more.\n", few, enoughRepeats, enoughRepeats+1)
	}
	_, err := fmt.Fprintf(w, "Only in A: %d, only in B: %d.\n", len(c.OnlyA), len(c.OnlyB))
	return err
}

// tested counts the quantities that had enough repeats to be tested.
func (c Comparison) tested() int {
	count := 0
	for _, one := range c.Changes {
		if one.P != nil && one.Outcome != TooFew {
			count++
		}
	}
	return count
}

// line returns the origin of numbers in one line.
func (p Provenance) line() string {
	return fmt.Sprintf("%s, Weir %s, %s, kernel %s", p.StartedAt.Format("2006-01-02 15:04"), orNone(p.Environment.Weir), orNone(p.Environment.Machine), orNone(p.Environment.Kernel))
}

// text formats a median with its interval, or a computed value.
func (c Change) text(m Median) string {
	switch {
	case c.P == nil:
		return fmt.Sprintf("%.10g", m.Median)
	case m.Low != nil && m.High != nil:
		return fmt.Sprintf("%s (%s to %s)", Text(&m.Median), Text(m.Low), Text(m.High))
	}
	return fmt.Sprintf("%s (n=%d)", Text(&m.Median), m.Count)
}
