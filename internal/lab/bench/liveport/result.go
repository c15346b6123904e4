package liveport

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/model"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/traffic"
)

const note = "Real packets: arrivals are Poisson, packet sizes exponential, the link is a veth pair behind a bucket of 100 Mbit/s. " +
	"The port is a program that serves three queues as the model has it; HTB is the kernel's, with a class for each queue. " +
	"Waiting times are from the kernel's stamp of a packet's arrival at the port (with HTB: from the sender's write) to that at the neighbour. " +
	"The model is solved for what arrived, in numbers and sizes."

// The limits of a live run against the model.
const (
	throughputLimit = 0.02
	waitLimit       = 0.15
	// intervalBatches is how many parts of a run intervals are made from.
	intervalBatches = 10
	// studentT is Student's t of 95 % with 9 degrees of freedom.
	studentT = 2.262
)

// Report is what `weir bench model -o json` prints. Field names are only ever
// added to.
type Report struct {
	report.Report
	Suite     string   `json:"suite"`
	DurationS float64  `json:"duration_s"` // counted per run
	WarmupS   float64  `json:"warmup_s"`   // before it
	Results   []Result `json:"results"`
	// Failures are cases in which a run failed, and why.
	Failures map[string]string `json:"failures,omitempty"`
}

// Failed returns the number of cases in which a run failed.
func (r Report) Failed() int { return len(r.Failures) }

// Result is what a live port did and what the model says of it.
type Result struct {
	Case
	Runs int `json:"runs"`
	// GapVariation is that of the times between arrivals: 1 for a Poisson process.
	GapVariation float64  `json:"gap_variation"`
	MeanBytes    float64  `json:"mean_bytes"`
	Queues       [3]Queue `json:"queues"` // EF, AF, BE
	// MaxLateMS is by how much a packet left the port too late at most.
	MaxLateMS float64 `json:"max_late_ms"`
}

// Queue is one queue; the model's numbers are those for what arrived.
type Queue struct {
	ArrivedPPS    float64        `json:"arrived_pps"`
	ThroughputPPS measure.Spread `json:"throughput_pps"`
	WaitMS        measure.Spread `json:"wait_ms"`
	Loss          measure.Spread `json:"loss"`
	// ThroughputInterval and WaitInterval are half of the 95 % confidence intervals,
	// from batches of all runs.
	ThroughputInterval float64 `json:"throughput_interval_pps"`
	WaitInterval       float64 `json:"wait_interval_ms"`
	// PortWaitMS is the wait by the port's own clock, without what the machine adds:
	// LateMS by which packets leave the port too late, and the rest of the way.
	PortWaitMS float64 `json:"port_wait_ms"`
	LateMS     float64 `json:"late_ms"`

	ModelThroughputPPS float64 `json:"model_throughput_pps"`
	ModelWaitMS        float64 `json:"model_wait_ms"`
	ModelLoss          float64 `json:"model_loss"`
	// LineRateThroughputPPS and LineRateWaitMS are the model's if every queue is
	// served at the link's rate; only for HTB.
	LineRateThroughputPPS float64 `json:"line_rate_throughput_pps,omitempty"`
	LineRateWaitMS        float64 `json:"line_rate_wait_ms,omitempty"`
}

// newResult summarises the runs of a case and solves the model for each.
func newResult(ctx context.Context, c Case, seen []observation) (Result, error) {
	result := Result{Case: c, Runs: len(seen)}
	count := float64(len(seen))
	var throughputs, waits [3][]float64 // of batches
	var perRun [3]struct{ throughput, wait, loss []float64 }
	for _, one := range seen {
		result.GapVariation += one.Port.GapVariation / count
		result.MeanBytes += one.meanBytes() / count
		result.MaxLateMS = max(result.MaxLateMS, float64(one.Port.MaxLateNS)/1e6)
		solved, err := c.solved(ctx, one, c.serviceBPS())
		if err != nil {
			return result, fmt.Errorf("solve the model for %s: %w", c.Name, err)
		}
		atLine, err := c.solved(ctx, one, lineRate)
		if err != nil {
			return result, fmt.Errorf("solve the model for %s: %w", c.Name, err)
		}
		for q := range result.Queues {
			queue, of := &result.Queues[q], one.Arrivals[q]
			arrived := float64(one.Port.Arrived[q])
			queue.ArrivedPPS += arrived / one.seconds() / count
			queue.PortWaitMS += one.Port.WaitNS[q] / 1e6 / count
			queue.LateMS += one.Port.LateNS[q] / 1e6 / count
			queue.ModelThroughputPPS += solved.Queues[q].ThroughputPPS / count
			queue.ModelWaitMS += solved.Queues[q].WaitSeconds * 1e3 / count
			queue.ModelLoss += solved.Queues[q].Loss / count
			if c.Server == serverHTB {
				queue.LineRateThroughputPPS += atLine.Queues[q].ThroughputPPS / count
				queue.LineRateWaitMS += atLine.Queues[q].WaitSeconds * 1e3 / count
			}
			perRun[q].throughput = append(perRun[q].throughput, float64(len(of))/one.seconds())
			perRun[q].loss = append(perRun[q].loss, 1-float64(len(of))/max(arrived, 1))
			perRun[q].wait = append(perRun[q].wait, meanDelayMS(of))
			rates, delays := one.batches(q)
			throughputs[q], waits[q] = append(throughputs[q], rates...), append(waits[q], delays...)
		}
	}
	for q := range result.Queues {
		queue := &result.Queues[q]
		queue.ThroughputPPS, queue.WaitMS, queue.Loss = measure.SpreadOf(perRun[q].throughput), measure.SpreadOf(perRun[q].wait), measure.SpreadOf(perRun[q].loss)
		queue.ThroughputInterval, queue.WaitInterval = interval(throughputs[q]), interval(waits[q])
	}
	return result, nil
}

// batches returns the throughput, in packets a second, and the mean wait of each part of a run.
func (o observation) batches(queue int) (throughput, waitMS []float64) {
	length := (o.Port.UntilNS - o.Port.FromNS) / intervalBatches
	parts := make([][]traffic.Arrival, intervalBatches)
	for _, one := range o.Arrivals[queue] {
		part := min(int((one.SentNS-o.Port.FromNS)/length), intervalBatches-1)
		parts[part] = append(parts[part], one)
	}
	for _, part := range parts {
		throughput = append(throughput, float64(len(part))/(float64(length)/1e9))
		if len(part) > 0 {
			waitMS = append(waitMS, meanDelayMS(part))
		}
	}
	return throughput, waitMS
}

func meanDelayMS(arrivals []traffic.Arrival) float64 {
	var sum float64
	for _, one := range arrivals {
		sum += measure.Milliseconds(one.Delay())
	}
	return sum / max(float64(len(arrivals)), 1)
}

// interval returns half of the confidence interval of the mean of batches.
func interval(batches []float64) float64 {
	if len(batches) < 2 {
		return 0
	}
	center, square := measure.Mean(batches), 0.0
	for _, value := range batches {
		square += (value - center) * (value - center)
	}
	n := float64(len(batches))
	return studentT * math.Sqrt(square/(n-1)/n)
}

// complete adds what follows from the results.
func (r *Report) complete() {
	for _, result := range r.Results {
		r.Claims = append(r.Claims, result.claims()...)
	}
	r.Tables, r.Plots = r.tables(), r.plots()
	var list measure.Quantities
	for i := range r.Results {
		result := &r.Results[i]
		for q, name := range model.QueueNames {
			queue, of := &result.Queues[q], result.Name+", "+name
			list.Add(of, "throughput", "1/s", report.Higher, &queue.ThroughputPPS)
			list.Add(of, "wait", "ms", report.Lower, &queue.WaitMS)
			list.Add(of, "loss", "fraction", report.Lower, &queue.Loss)
		}
	}
	r.Quantities = list
}

// liveSource is Weir's model; model.Figures judges the paper's claims on figures 3 to 5.
const liveSource = "Weir's own queueing model (docs/model.md)"

// claims judge the model by a live port.
func (r Result) claims() []report.Claim {
	throughput := report.Claim{Source: liveSource, Where: r.Name, Says: "Throughput of every queue is that of the model, within 2 %."}
	wait := report.Claim{Source: liveSource, Where: r.Name, Says: "The mean wait of EF is that of the model, within 15 %."}
	off, within := 0.0, 0.0
	for q, name := range model.QueueNames {
		queue := r.Queues[q]
		off = max(off, math.Abs(queue.ThroughputPPS.Median/queue.ModelThroughputPPS-1))
		within = max(within, queue.ThroughputInterval/queue.ModelThroughputPPS)
		throughput.Values = append(throughput.Values, report.Value{
			Name: strings.ToUpper(name), Unit: "packets/s", Ideal: report.Number(queue.ModelThroughputPPS), Measured: report.Number(queue.ThroughputPPS.Median),
			Low: report.Number(queue.ThroughputPPS.Min), High: report.Number(queue.ThroughputPPS.Max),
		})
		wait.Values = append(wait.Values, report.Value{
			Name: strings.ToUpper(name), Unit: "ms", Ideal: report.Number(queue.ModelWaitMS), Measured: report.Number(queue.WaitMS.Median),
			Low: report.Number(queue.WaitMS.Min), High: report.Number(queue.WaitMS.Max),
		})
	}
	ef := r.Queues[model.EF]
	r.judge(&throughput, off, throughputLimit, within, "")
	r.judge(&wait, math.Abs(ef.WaitMS.Median/ef.ModelWaitMS-1), waitLimit, ef.WaitInterval/ef.ModelWaitMS, r.why())
	return []report.Claim{throughput, wait}
}

// judge judges whether a live port agrees with the model within a limit. within is half of the
// confidence interval, as a fraction.
func (r Result) judge(c *report.Claim, off, limit, within float64, why string) {
	numbers := fmt.Sprintf("The largest difference is %.2f %%, of %.0f %% allowed; the confidence interval is +- %.2f %%.", off*100, limit*100, within*100)
	switch {
	case off <= limit:
		c.Judgement, c.Reason = report.Reproduced, numbers
	case r.Server == serverHTB:
		c.Judgement, c.Reason = report.DifferentByDesign, numbers+" "+r.htbDiffers()
	case off-within <= limit:
		c.Judgement, c.Reason = report.NotReproduced, numbers+" The run was too short to tell: the interval reaches into what is allowed."
	default:
		c.Judgement, c.Reason = report.NotReproduced, strings.TrimSpace(numbers+" "+why)
	}
}

// why returns the part of EF's wait that the machine added, as measured.
func (r Result) why() string {
	ef := r.Queues[model.EF]
	return fmt.Sprintf("By the port's own clock the wait is %.4g ms, %.1f %% from the model; packets leave it %.4g ms late on average (at most %.3g ms), "+
		"as it has to wait for a processor, and the rest of the way takes %.4g ms.",
		ef.PortWaitMS, (ef.PortWaitMS/ef.ModelWaitMS-1)*100, ef.LateMS, r.MaxLateMS, ef.WaitMS.Median-ef.PortWaitMS-ef.LateMS)
}

// htbDiffers explains how HTB deviates from the model, with the model of that.
func (r Result) htbDiffers() string {
	text := "HTB gives a class its rate over time, not to each of its packets: every packet goes at the link's rate, and what one class leaves another has. " +
		"With every queue served at the link's rate the model says "
	var parts []string
	for q, name := range model.QueueNames {
		queue := r.Queues[q]
		parts = append(parts, fmt.Sprintf("%s %.4g packets/s and %.3g ms (measured: %.4g and %.3g)", strings.ToUpper(name),
			queue.LineRateThroughputPPS, queue.LineRateWaitMS, queue.ThroughputPPS.Median, queue.WaitMS.Median))
	}
	text += strings.Join(parts, ", ") + "."
	text += fmt.Sprintf(" A bucket lets a packet go as soon as those before it are paid for, so its own time on the link (%.3g ms on average), which the model counts, "+
		"is not in what was measured; and EF, while it is within its rate, does not wait for a packet of AF or BE that is on its way.", 8e3*r.MeanBytes/linkBPS)
	if r.FixedSize {
		text += " Packets of one size wait less than exponential ones of the same mean."
	}
	return text
}

func (r Report) tables() []report.Table {
	t := report.Table{Title: "Live ports and the model", Header: []string{
		"PORT", "QUEUE", "ARRIVED/S", "SENT/S: MODEL", "MEASURED", "OFF", "WAIT MS: MODEL", "MEASURED", "OFF", "BY THE PORT'S CLOCK", "LEFT LATE", "LOSS: MODEL", "MEASURED",
	}}
	for _, result := range r.Results {
		for q, name := range model.QueueNames {
			queue := result.Queues[q]
			port := []string{"-", "-"}
			if result.Server == serverPort {
				port = []string{measure.MS(queue.PortWaitMS), measure.MS(queue.LateMS)}
			}
			t.Add(result.Name, name, fmt.Sprintf("%.0f", queue.ArrivedPPS),
				fmt.Sprintf("%.1f", queue.ModelThroughputPPS), fmt.Sprintf("%.1f +- %.1f", queue.ThroughputPPS.Median, queue.ThroughputInterval),
				measure.SignedPercent(queue.ThroughputPPS.Median/queue.ModelThroughputPPS-1),
				fmt.Sprintf("%.4g", queue.ModelWaitMS), fmt.Sprintf("%.4g +- %.2g", queue.WaitMS.Median, queue.WaitInterval),
				measure.SignedPercent(queue.WaitMS.Median/queue.ModelWaitMS-1), port[0], port[1],
				measure.FinePercent(queue.ModelLoss), measure.FinePercent(queue.Loss.Median))
		}
	}
	arrivals := report.Table{Title: "What arrived", Header: []string{"PORT", "MEAN SIZE, BYTES", "VARIATION OF GAPS (POISSON: 1)", "RUNS", "LATEST PACKET, MS"}}
	for _, result := range r.Results {
		arrivals.Add(result.Name, fmt.Sprintf("%.1f", result.MeanBytes), fmt.Sprintf("%.3f", result.GapVariation), fmt.Sprint(result.Runs), measure.MS(result.MaxLateMS))
	}
	failures := report.Table{Title: "Failures", Header: []string{"FAILED", "WHY"}}
	for _, name := range slices.Sorted(maps.Keys(r.Failures)) {
		failures.AddFailure(name, r.Failures[name])
	}
	return append([]report.Table{t, arrivals}, report.Filled(failures)...)
}

// plots returns throughput and wait of each port beside the model's.
func (r Report) plots() []report.Plot {
	const seriesModel, seriesLine, seriesLive = "model", "model, every queue at the link's rate", "measured"
	series := []report.Series{{Name: seriesModel, Role: report.Ideal}, {Name: seriesLine, Role: report.Paper}, {Name: seriesLive, Role: report.Measured}}
	plot := func(title, label string, of func(Queue) (model, line float64, measured measure.Spread, within float64)) report.Plot {
		p := report.Plot{Title: title, Kind: report.Bars, YLabel: label, Series: series}
		for _, result := range r.Results {
			panel := measure.NewBarPanel(result.Name, series, "EF", "AF", "BE")
			for q, queue := range result.Queues {
				computed, line, measured, within := of(queue)
				panel.Set(seriesModel, q, measure.Exactly(computed), 1)
				if result.Server == serverHTB {
					panel.Set(seriesLine, q, measure.Exactly(line), 1)
				}
				panel.Set(seriesLive, q, measure.Spread{Median: measured.Median, Min: measured.Median - within, Max: measured.Median + within}, 1)
			}
			p.Panels = append(p.Panels, *panel.Panel)
		}
		return p.WithoutEmpty()
	}
	return []report.Plot{
		plot("Live ports: throughput", "packets/s", func(q Queue) (float64, float64, measure.Spread, float64) {
			return q.ModelThroughputPPS, q.LineRateThroughputPPS, q.ThroughputPPS, q.ThroughputInterval
		}),
		plot("Live ports: mean wait", "ms", func(q Queue) (float64, float64, measure.Spread, float64) {
			return q.ModelWaitMS, q.LineRateWaitMS, q.WaitMS, q.WaitInterval
		}),
	}
}
