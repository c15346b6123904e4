package model

import (
	"context"
	"fmt"
	"math"
)

// Figure is a plot: data, and no more about its looks than labels.
type Figure struct {
	Title  string   `json:"title"`
	XLabel string   `json:"x_label"`
	YLabel string   `json:"y_label"`
	Series []Series `json:"series"`
}

// Series is one line of a figure.
type Series struct {
	Name string    `json:"name"`
	X    []float64 `json:"x"`
	Y    []float64 `json:"y"`
}

// Verdict says whether a reading of the paper gives what the paper claims.
type Verdict struct {
	Claim      string `json:"claim"`
	Reading    string `json:"reading"`
	Reproduced bool   `json:"reproduced"`
	Reason     string `json:"reason"`
}

// Report is figures 3 to 5 of the paper with its values, and its claims.
type Report struct {
	Title    string    `json:"title"`
	Readings []string  `json:"readings"`
	Figures  []Figure  `json:"figures"`
	Verdicts []Verdict `json:"verdicts"`
}

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

// change is the model with some other decision.
func change(edit func(*LLQ)) func(context.Context, LLQ) (*Result, error) {
	return func(ctx context.Context, port LLQ) (*Result, error) {
		edit(&port)
		return port.Solve(ctx)
	}
}

// printed is the equations as they are printed.
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
	{"as decided", true, change(func(*LLQ) {})},
	{"--switch at-once", false, change(func(l *LLQ) { l.Switch = AtOnce })},
	{"--empty skip", false, change(func(l *LLQ) { l.Empty = Skip })},
	{"--empty wait", true, change(func(l *LLQ) { l.Empty = Wait })},
	{"--after-ef af", false, change(func(l *LLQ) { l.AfterEF = FromAF })},
	{"equations as printed, 2 -> 1", false, printed(ToAF)},
	{"equations as printed, 2 -> 0", true, printed(ToEF)},
}

// Figures computes figures 3 to 5 in every reading and judges the claims.
func Figures(ctx context.Context) (Report, error) {
	report := Report{Title: "SDN-LLQ, figures 3 to 5"}
	for _, theta := range thetas {
		for _, reading := range readings {
			name := reading.name + "; " + theta.name
			c, err := sweep(ctx, reading, theta.pollPerSecond)
			if err != nil {
				return Report{}, fmt.Errorf("solve %s: %w", name, err)
			}
			report.Readings = append(report.Readings, name)
			if reading.plotted {
				report.Figures = append(report.Figures, c.figures(name)...)
			}
			for _, claim := range claims {
				reproduced, reason := claim.judge(c)
				report.Verdicts = append(report.Verdicts, Verdict{claim.text, name, reproduced, reason})
			}
		}
	}
	return report, nil
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

func (c curves) figures(reading string) []Figure {
	figure := func(title, yLabel string, y [3][]float64) Figure {
		f := Figure{Title: title + " (" + reading + ")", XLabel: "AF's rate, Mbit/s", YLabel: yLabel}
		for q, name := range []string{"EF", "AF", "BE"} {
			f.Series = append(f.Series, Series{name, c.afMbps, y[q]})
		}
		return f
	}
	return []Figure{
		figure("Figure 3: mean queue", "packets", c.packets),
		figure("Figure 4: throughput", "Mbit/s", c.throughput),
		figure("Figure 5: mean waiting time", "ms", c.waitMS),
	}
}

// claim is a sentence of section IV.C.
type claim struct {
	text  string
	judge func(curves) (bool, string)
}

var claims = []claim{
	{"L_AF falls as mu_AF grows", func(c curves) (bool, string) { return moves(c.packets[AF], -1, "packets") }},
	{"L_BE rises as mu_AF grows", func(c curves) (bool, string) { return moves(c.packets[BE], 1, "packets") }},
	{"L_EF stays flat", func(c curves) (bool, string) { return flat(c.packets[EF], "packets") }},
	{"throughput of AF starts below that of BE", func(c curves) (bool, string) {
		af, be := c.throughput[AF][0], c.throughput[BE][0]
		return af < be, fmt.Sprintf("%.4g against %.4g Mbit/s", af, be)
	}},
	{"throughput of AF grows", func(c curves) (bool, string) { return moves(c.throughput[AF], 1, "Mbit/s") }},
	{"throughput of BE falls", func(c curves) (bool, string) { return moves(c.throughput[BE], -1, "Mbit/s") }},
	{"throughput of EF is the highest and stays flat", func(c curves) (bool, string) {
		return extreme(c.throughput, 1, "Mbit/s")
	}},
	{"W_AF falls as mu_AF grows", func(c curves) (bool, string) { return moves(c.waitMS[AF], -1, "ms") }},
	{"W_BE rises as mu_AF grows", func(c curves) (bool, string) { return moves(c.waitMS[BE], 1, "ms") }},
	{"W_EF is the lowest and stays flat", func(c curves) (bool, string) { return extreme(c.waitMS, -1, "ms") }},
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
