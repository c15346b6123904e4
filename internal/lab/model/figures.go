package model

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/lab/report"
)

// The figures begin at the paper's mu_AF; where they end is not said. At the last
// point BE is still served at about the rate at which it arrives.
const (
	figureFirstBPS = 40e6
	figureLastBPS  = 66e6
	figureStepBPS  = 2e6
)

// reading is one way to understand the paper.
type reading struct {
	name    string
	plotted bool
	solve   func(context.Context, LLQ) (*Result, error)
}

// change returns the model with another decision.
func change(edit func(*LLQ)) func(context.Context, LLQ) (*Result, error) {
	return func(ctx context.Context, port LLQ) (*Result, error) {
		edit(&port)
		return port.Solve(ctx)
	}
}

// printed returns the equations as they are printed.
func printed(closing Closing) func(context.Context, LLQ) (*Result, error) {
	return func(ctx context.Context, l LLQ) (*Result, error) {
		port, err := l.Port()
		if err != nil {
			return nil, err
		}
		return SolvePrinted(ctx, port, closing)
	}
}

// The two readings of theta = "0.01 s".
var thetas = []struct {
	name          string
	pollPerSecond float64
}{{"theta is a time, 0.01 s", 100}, {"theta is a rate, 0.01 per second", 0.01}}

var readings = []reading{
	{decided, true, change(func(*LLQ) {})},
	{"--switch at-once", false, change(func(l *LLQ) { l.Switch = AtOnce })},
	{"--empty skip", false, change(func(l *LLQ) { l.Empty = Skip })},
	{asWritten, true, change(func(l *LLQ) { l.Empty = Wait })},
	{"--after-ef af", false, change(func(l *LLQ) { l.AfterEF = FromAF })},
	{"equations as printed, 2 -> 1", false, printed(ToAF)},
	{"equations as printed, 2 -> 0", true, printed(ToEF)},
}

// The readings that claims are judged by: the port as decided, and what the paper's
// equations describe without their misprints.
const (
	decided   = "as decided"
	asWritten = "--empty wait"
)

// solved is one reading with one theta.
type solved struct {
	name    string // of the reading and of theta
	reading reading
	curves  curves
}

// FiguresTitle is the title of the paper's figures as a report.
const FiguresTitle = "weir model llq: figures 3 to 5 of SDN-LLQ"

const figuresNote = "Computed, not measured: the port of the paper's section IV.C, 100 Mbit/s, packets of 1000 bytes, 33.3 Mbit/s " +
	"arriving at each queue, 5 places each; AF's rate grows, BE has the rest. The paper's curves are not printed as numbers: " +
	"what its text says of them is judged for the port as decided in docs/model.md, and listed for every other way to read the paper."

// Figures computes figures 3 to 5 in every reading and judges the claims. Where the
// numbers come from is left to the caller.
func Figures(ctx context.Context) (report.Report, error) {
	found := report.Report{Format: report.Format, Title: FiguresTitle, Note: figuresNote, Verdicts: []report.Verdict{}}
	var all []solved
	for _, theta := range thetas {
		for _, reading := range readings {
			name := reading.name + "; " + theta.name
			c, err := sweep(ctx, reading, theta.pollPerSecond)
			if err != nil {
				return report.Report{}, fmt.Errorf("solve %s: %w", name, err)
			}
			all = append(all, solved{name, reading, c})
		}
	}
	// The first of a name has theta as a time, as decided.
	of := func(name string) curves {
		return all[slices.IndexFunc(all, func(s solved) bool { return s.reading.name == name })].curves
	}
	for _, claim := range claims {
		found.Claims = append(found.Claims, claim.report(of(decided), of(asWritten)))
	}
	found.Tables = []report.Table{countTable(all), claimTable(all)}
	found.Plots = figurePlots(all)
	return found, nil
}

// report judges a claim: by the port as decided, and where that is another on
// purpose, by the paper's equations.
func (c claim) report(decided, asWritten curves) report.Claim {
	judged := report.Claim{Source: "SDN-LLQ (IEEE Access 2017)", Section: c.section, Where: c.where, Says: c.text}
	holds, numbers := c.judge(decided)
	written, writtenNumbers := c.judge(asWritten)
	switch {
	case holds:
		judged.Judgement, judged.Reason = report.Reproduced, "As decided: "+numbers+"."
	case written:
		judged.Judgement = report.DifferentByDesign
		judged.Reason = "A line that never idles while a packet waits, as decided, gives " + numbers +
			". The paper's equations let it wait at an empty queue (--empty wait), and so it holds: " + writtenNumbers + "."
	default:
		judged.Judgement = report.NotReproduced
		judged.Reason = "As decided: " + numbers + "; with --empty wait: " + writtenNumbers + "."
	}
	return judged
}

// countTable counts the claims that each reading gives.
func countTable(all []solved) report.Table {
	t := report.Table{Title: "Claims by reading", Header: []string{"READING", "REPRODUCED", "NOT REPRODUCED"}}
	for _, one := range all {
		var missed []string
		for _, claim := range claims {
			if holds, _ := claim.judge(one.curves); !holds {
				missed = append(missed, claim.text)
			}
		}
		t.Add(one.name, fmt.Sprintf("%d of %d", len(claims)-len(missed), len(claims)), strings.Join(missed, "; "))
	}
	return t
}

// claimTable returns every claim in every reading.
func claimTable(all []solved) report.Table {
	t := report.Table{Title: "Every claim in every reading", Header: []string{"CLAIM", "READING", "VERDICT", "FROM THE FIRST TO THE LAST POINT"}}
	for _, claim := range claims {
		for _, one := range all {
			holds, numbers := claim.judge(one.curves)
			verdict := string(report.NotReproduced)
			if holds {
				verdict = string(report.Reproduced)
			}
			t.Add(claim.text, one.name, verdict, numbers)
		}
	}
	return t
}

// curves are what the figures show of each queue, against AF's rate.
type curves struct {
	afMbps                      []float64
	packets, throughput, waitMS [3][]float64
}

func sweep(ctx context.Context, reading reading, pollPerSecond float64) (curves, error) {
	var c curves
	port := Paper()
	port.PollPerSecond = pollPerSecond
	for af := figureFirstBPS; af <= figureLastBPS; af += figureStepBPS {
		port.AFRateBPS = af
		r, err := reading.solve(ctx, port)
		if err != nil {
			return curves{}, fmt.Errorf("AF at %v bit/s: %w", af, err)
		}
		c.afMbps = append(c.afMbps, af/1e6)
		for q, queue := range r.Queues {
			c.packets[q] = append(c.packets[q], queue.MeanPackets)
			c.throughput[q] = append(c.throughput[q], queue.ThroughputPPS*port.BitsPerPacket()/1e6)
			c.waitMS[q] = append(c.waitMS[q], queue.WaitSeconds*1e3)
		}
	}
	return c, nil
}

// figurePlots returns figures 3 to 5, with a panel for each plotted reading.
func figurePlots(all []solved) []report.Plot {
	plot := func(title, yLabel string, y func(curves) [3][]float64) report.Plot {
		p := report.Plot{Title: title, Kind: report.Lines, XLabel: "AF's rate, Mbit/s", YLabel: yLabel, Series: QueueSeries()}
		for _, one := range all {
			if !one.reading.plotted {
				continue
			}
			panel := report.Panel{Title: one.name, X: one.curves.afMbps}
			for _, values := range y(one.curves) {
				panel.Values = append(panel.Values, numbers(values))
			}
			p.Panels = append(p.Panels, panel)
		}
		return p
	}
	return []report.Plot{
		plot("Figure 3: mean queue", "packets", func(c curves) [3][]float64 { return c.packets }),
		plot("Figure 4: throughput", "Mbit/s", func(c curves) [3][]float64 { return c.throughput }),
		plot("Figure 5: mean waiting time", "ms", func(c curves) [3][]float64 { return c.waitMS }),
	}
}

// QueueSeries gives each queue its colour, the same in all plots.
func QueueSeries() []report.Series {
	return report.MeasuredSeries("EF", "AF", "BE")
}

// numbers returns values for a plot; nil for those that are not finite.
func numbers(values []float64) []*float64 {
	list := make([]*float64, len(values))
	for n, value := range values {
		if !math.IsInf(value, 0) && !math.IsNaN(value) {
			list[n] = report.Number(value)
		}
	}
	return list
}

// claim is a sentence of section IV.C.
type claim struct {
	section, where string
	text           string
	judge          func(curves) (bool, string)
}

var claims = []claim{
	{"IV.C.1", "figure 3", "L_AF falls as mu_AF grows", func(c curves) (bool, string) { return moves(c.packets[AF], -1, "packets") }},
	{"IV.C.1", "figure 3", "L_BE rises as mu_AF grows", func(c curves) (bool, string) { return moves(c.packets[BE], 1, "packets") }},
	{"IV.C.1", "figure 3", "L_EF stays flat", func(c curves) (bool, string) { return flat(c.packets[EF], "packets") }},
	{"IV.C.2", "figure 4", "throughput of AF starts below that of BE", func(c curves) (bool, string) {
		af, be := c.throughput[AF][0], c.throughput[BE][0]
		return af < be, fmt.Sprintf("%.4g against %.4g Mbit/s", af, be)
	}},
	{"IV.C.2", "figure 4", "throughput of AF grows", func(c curves) (bool, string) { return moves(c.throughput[AF], 1, "Mbit/s") }},
	{"IV.C.2", "figure 4", "throughput of BE falls", func(c curves) (bool, string) { return moves(c.throughput[BE], -1, "Mbit/s") }},
	{"IV.C.2", "figure 4", "throughput of EF is the highest and stays flat", func(c curves) (bool, string) {
		return extreme(c.throughput, 1, "Mbit/s")
	}},
	{"IV.C.3", "figure 5", "W_AF falls as mu_AF grows", func(c curves) (bool, string) { return moves(c.waitMS[AF], -1, "ms") }},
	{"IV.C.3", "figure 5", "W_BE rises as mu_AF grows", func(c curves) (bool, string) { return moves(c.waitMS[BE], 1, "ms") }},
	{"IV.C.3", "figure 5", "W_EF is the lowest and stays flat", func(c curves) (bool, string) { return extreme(c.waitMS, -1, "ms") }},
}

// moves: whether values go in one direction, step by step.
func moves(values []float64, direction float64, unit string) (bool, string) {
	first, last := values[0], values[len(values)-1]
	text := fmt.Sprintf("%.4g to %.4g %s", first, last, unit)
	for n := 1; n < len(values); n++ {
		if !((values[n]-values[n-1])*direction > 0) {
			return false, fmt.Sprintf("%s, but %.4g to %.4g at step %d", text, values[n-1], values[n], n)
		}
	}
	return true, text
}

// flatRange is how much a line that a figure shows as flat may vary.
const flatRange = 0.1

// flat: whether values stay within a tenth of their mean.
func flat(values []float64, unit string) (bool, string) {
	low, high, sum := math.Inf(1), 0.0, 0.0
	for _, v := range values {
		low, high, sum = min(low, v), max(high, v), sum+v
	}
	if sum == 0 || math.IsInf(sum, 0) {
		return false, fmt.Sprintf("always %g %s: EF is never served", high, unit)
	}
	varies := (high - low) * float64(len(values)) / sum
	return varies <= flatRange, fmt.Sprintf("%.4g to %.4g %s, %.1f %% of the mean", low, high, unit, 100*varies)
}

// extreme: whether EF's values are flat and all the highest (direction 1) or
// lowest (-1) of the three queues.
func extreme(values [3][]float64, direction float64, unit string) (bool, string) {
	ok, text := flat(values[EF], unit)
	for n, ef := range values[EF] {
		for _, q := range []int{AF, BE} {
			if !((ef-values[q][n])*direction > 0) {
				return false, fmt.Sprintf("%s; %s has %.4g at step %d", text, QueueNames[q], values[q][n], n)
			}
		}
	}
	return ok, text
}
