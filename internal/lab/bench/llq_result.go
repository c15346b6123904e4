package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/report"
)

const llqNote = "One container sends voice, video and generic data, frames of 1000 bytes in turn. Delay is one way, from the sender's write to " +
	"the kernel's stamp of the arrival at the neighbour; jitter is the mean difference between the delays of one flow's successive frames. " +
	"The link is a veth pair behind a bucket of 100 Mbit/s, so a frame's own time on a wire (0.08 ms) is in no delay."

// LLQReport is what `weir bench llq -o json` prints. Field names are only ever added to.
type LLQReport struct {
	report.Report
	Suite     string      `json:"suite"`
	DurationS float64     `json:"duration_s"` // counted per run
	WarmupS   float64     `json:"warmup_s"`   // before it
	Results   []LLQResult `json:"results"`
	// Failures are runs that failed, by peer and rate; Skipped are peers that could
	// not take part. Each with the reason.
	Failures map[string]string `json:"failures,omitempty"`
	Skipped  map[string]string `json:"skipped,omitempty"`
	// path is why delays are others than the paper's where no frame waits.
	path string
}

// Failed is the number of cases with runs that failed. A peer that cannot order flows
// here is no failure.
func (r LLQReport) Failed() int { return len(r.Failures) }

// LLQResult is what a peer made of one rate.
type LLQResult struct {
	Peer string `json:"peer"`
	// TotalBPS is what the flows send together.
	TotalBPS uint64    `json:"total_bps"`
	Runs     int       `json:"runs"`
	Flows    []LLQFlow `json:"flows"`
	// Steps are the parts of the last run that Flows have values over time for.
	StepMS float64 `json:"step_ms"`
}

// LLQFlow is what became of a flow.
type LLQFlow struct {
	Name  string `json:"name"`
	Class string `json:"class"`
	// SentBPS is what was sent, ThroughputBPS what arrived, IdealBPS what should.
	SentBPS       Spread  `json:"sent_bps"`
	ThroughputBPS Spread  `json:"throughput_bps"`
	IdealBPS      float64 `json:"ideal_bps"`
	Loss          Spread  `json:"loss"`
	DelayMS       Spread  `json:"delay_ms"` // mean
	DelayP50MS    Spread  `json:"delay_p50_ms"`
	DelayP99MS    Spread  `json:"delay_p99_ms"`
	JitterMS      Spread  `json:"jitter_ms"`
	// Over time, by step of the last run; null where nothing arrived.
	DelaysMS       []*float64 `json:"delays_ms"`
	JittersMS      []*float64 `json:"jitters_ms"`
	ThroughputsBPS []*float64 `json:"throughputs_bps"`
}

// llqSteps is how many parts of a run a plot over time has.
const llqSteps = 20

// idealRates are what each flow should get when all send a third of a total.
func idealRates(totalBPS uint64) [3]float64 {
	each := totalBPS / 3
	ef, af, be := llqParts().Divide(each, each, each)
	return [3]float64{float64(ef), float64(af), float64(be)}
}

func newLLQResult(peer string, totalBPS uint64, runs []llqRun) LLQResult {
	result := LLQResult{Peer: peer, TotalBPS: totalBPS, Runs: len(runs)}
	ideal := idealRates(totalBPS)
	if peer == PeerFIFO { // where all are alike
		ideal = [3]float64{min(float64(totalBPS), llqLinkBPS) / 3}
		ideal[1], ideal[2] = ideal[0], ideal[0]
	}
	last := runs[len(runs)-1]
	result.StepMS = last.seconds() * 1e3 / llqSteps
	for i, flow := range llqFlows {
		of := func(value func(llqRun) float64) Spread {
			var values []float64
			for _, run := range runs {
				if v := value(run); !math.IsNaN(v) {
					values = append(values, v)
				}
			}
			return spreadOf(values)
		}
		one := LLQFlow{
			Name: flow.name, Class: flow.class, IdealBPS: ideal[i],
			SentBPS:       of(func(r llqRun) float64 { return float64(r.sent[i]) * llqFrameBytes * 8 / r.seconds() }),
			ThroughputBPS: of(func(r llqRun) float64 { return r.receivedBPS(i) }),
			Loss: of(func(r llqRun) float64 {
				return max(0, 1-float64(len(r.arrivals[i]))/max(float64(r.sent[i]), 1))
			}),
			DelayMS:    of(func(r llqRun) float64 { return mean(delaysMS(r.arrivals[i])) }),
			DelayP50MS: of(func(r llqRun) float64 { return quantile(delaysMS(r.arrivals[i]), 0.5) }),
			DelayP99MS: of(func(r llqRun) float64 { return quantile(delaysMS(r.arrivals[i]), 0.99) }),
			JitterMS:   of(func(r llqRun) float64 { return jitterMS(r.arrivals[i]) }),
		}
		one.overTime(last, i)
		result.Flows = append(result.Flows, one)
	}
	return result
}

// receivedBPS is what arrived of a flow in the time that is counted.
func (r llqRun) receivedBPS(flow int) float64 {
	return float64(r.arrived[flow]) * llqFrameBytes * 8 / r.seconds()
}

// overTime fills in the steps of a run.
func (f *LLQFlow) overTime(run llqRun, flow int) {
	parts := make([][]traffic.Arrival, llqSteps)
	for _, one := range run.arrivals[flow] {
		step := int((one.SentNS - run.fromNS) * llqSteps / (run.untilNS - run.fromNS))
		parts[step] = append(parts[step], one)
	}
	known := func(v float64) *float64 {
		if math.IsNaN(v) {
			return nil
		}
		return &v
	}
	for _, part := range parts {
		f.DelaysMS = append(f.DelaysMS, known(mean(delaysMS(part))))
		f.JittersMS = append(f.JittersMS, known(jitterMS(part)))
		f.ThroughputsBPS = append(f.ThroughputsBPS, known(float64(len(part))*llqFrameBytes*8*llqSteps/run.seconds()))
	}
}

func delaysMS(arrivals []traffic.Arrival) []float64 {
	list := make([]float64, 0, len(arrivals))
	for _, one := range arrivals {
		list = append(list, milliseconds(one.Delay()))
	}
	return list
}

// jitterMS is the mean difference between the delays of successive frames; NaN of
// fewer than two.
func jitterMS(arrivals []traffic.Arrival) float64 {
	if len(arrivals) < 2 {
		return math.NaN()
	}
	sum := 0.0
	for i := 1; i < len(arrivals); i++ {
		sum += math.Abs(milliseconds(arrivals[i].Delay() - arrivals[i-1].Delay()))
	}
	return sum / float64(len(arrivals)-1)
}

// find is what a peer made of a rate; nil if it did not.
func (r LLQReport) find(peer string, totalBPS uint64) *LLQResult {
	i := slices.IndexFunc(r.Results, func(one LLQResult) bool { return one.Peer == peer && one.TotalBPS == totalBPS })
	if i < 0 {
		return nil
	}
	return &r.Results[i]
}

// peers lists the peers with results, in the order of reports.
func (r LLQReport) peers() []string {
	return slices.DeleteFunc(LLQPeers(), func(name string) bool {
		return !slices.ContainsFunc(r.Results, func(one LLQResult) bool { return one.Peer == name })
	})
}

// complete adds what follows from the results.
func (r *LLQReport) complete() {
	r.Verdicts = r.targets()
	r.Claims = r.judge()
	r.Tables = r.tables()
	r.Plots = append(r.ratePlots(), r.timePlots()...)
	var list quantities
	for i := range r.Results {
		result := &r.Results[i]
		for k := range result.Flows {
			flow := &result.Flows[k]
			of := fmt.Sprintf("%s, %g Mbit/s, %s", result.Peer, float64(result.TotalBPS)/1e6, flow.Name)
			list.add(of, "throughput", "bit/s", "", &flow.ThroughputBPS)
			list.add(of, "delay", "ms", report.Lower, &flow.DelayMS)
			list.add(of, "jitter", "ms", report.Lower, &flow.JitterMS)
			list.add(of, "loss", "fraction", report.Lower, &flow.Loss)
		}
	}
	r.Quantities = list
}

func (r LLQReport) tables() []report.Table {
	paper := report.Table{Title: "The paper's numbers beside this machine's", Header: []string{"WHAT", "PEER", "VOICE: PAPER", "HERE", "VIDEO: PAPER", "HERE", "GENERIC: PAPER", "HERE"}}
	for _, claim := range llqPaper {
		for _, peer := range r.peers() {
			if (peer == PeerFIFO) != claim.ofFIFO {
				continue
			}
			cells := []string{claim.what, peer}
			for flow := range llqFlows {
				cells = append(cells, fmt.Sprintf("%g %s", claim.paper[flow], claim.unit), optional(claim.of(r, peer, flow), func(v float64) string {
					return fmt.Sprintf("%.4g %s", v, claim.unit)
				}))
			}
			paper.Add(cells...)
		}
	}
	all := report.Table{Title: "All rates", Header: []string{
		"TOTAL, MBIT/S", "PEER", "FLOW", "CLASS", "SENT, MBIT/S", "IDEAL", "ARRIVED", "SPREAD", "LOSS", "DELAY MS", "SPREAD", "P50", "P99", "JITTER MS", "SPREAD",
	}}
	for _, one := range r.Results {
		for _, flow := range one.Flows {
			all.Add(fmt.Sprintf("%g", float64(one.TotalBPS)/1e6), one.Peer, flow.Name, flow.Class, mbps(flow.SentBPS.Median), mbps(flow.IdealBPS), mbps(flow.ThroughputBPS.Median),
				spread(flow.ThroughputBPS, mbps), finePercent(flow.Loss.Median), ms(flow.DelayMS.Median), spread(flow.DelayMS, ms), ms(flow.DelayP50MS.Median), ms(flow.DelayP99MS.Median),
				ms(flow.JitterMS.Median), spread(flow.JitterMS, ms))
		}
	}
	tables := []report.Table{paper, all}
	failed := report.Table{Title: "Failures", Header: []string{"FAILED", "WHY"}}
	for _, name := range LLQPeers() {
		if why, ok := r.Skipped[name]; ok {
			failed.Add(name+" was left out", strings.ReplaceAll(why, "\n", "; "))
		}
	}
	for _, total := range LLQTotals() {
		for _, name := range LLQPeers() {
			key := fmt.Sprintf("%s, %g Mbit/s", name, float64(total)/1e6)
			if why, ok := r.Failures[key]; ok {
				failed.Add(key, strings.ReplaceAll(why, "\n", "; "))
			}
		}
	}
	if len(failed.Rows) > 0 {
		tables = append(tables, failed)
	}
	return tables
}

// flowSeries gives each flow its colour.
func flowSeries() []report.Series {
	var list []report.Series
	for i, flow := range llqFlows {
		list = append(list, report.Series{Name: flow.name + " (" + flow.class + ")", Role: report.Measured, Colour: i})
	}
	return list
}

// ratePlots are figure 7, and the same of jitter, throughput and loss: a panel for each
// peer, over the rate of all flows.
func (r LLQReport) ratePlots() []report.Plot {
	var totals []uint64
	for _, one := range r.Results {
		if !slices.Contains(totals, one.TotalBPS) {
			totals = append(totals, one.TotalBPS)
		}
	}
	slices.Sort(totals)
	if len(totals) < 2 {
		return nil
	}
	plot := func(title, label string, value func(LLQFlow) float64) report.Plot {
		p := report.Plot{Title: title, Kind: report.Lines, XLabel: "sent in all, Mbit/s", YLabel: label, Series: flowSeries()}
		for _, peer := range r.peers() {
			panel := report.Panel{Title: peer, Values: make([][]*float64, len(llqFlows))}
			for _, total := range totals {
				panel.X = append(panel.X, float64(total)/1e6)
				one := r.find(peer, total)
				for i := range llqFlows {
					var point *float64
					if one != nil {
						point = report.Number(value(one.Flows[i]))
					}
					panel.Values[i] = append(panel.Values[i], point)
				}
			}
			p.Panels = append(p.Panels, panel)
		}
		return p
	}
	return []report.Plot{
		plot("Figure 7: delay over the sending rate", "ms", func(f LLQFlow) float64 { return f.DelayMS.Median }),
		plot("Jitter over the sending rate", "ms", func(f LLQFlow) float64 { return f.JitterMS.Median }),
		plot("Throughput over the sending rate", "Mbit/s", func(f LLQFlow) float64 { return f.ThroughputBPS.Median / 1e6 }),
		plot("Loss over the sending rate", "%", func(f LLQFlow) float64 { return f.Loss.Median * 100 }),
	}
}

// timePlots are figures 8 to 13: a panel for each flow, over time, with all peers.
func (r LLQReport) timePlots() []report.Plot {
	var series []report.Series
	for i, name := range LLQPeers() {
		if slices.Contains(r.peers(), name) {
			series = append(series, report.Series{Name: name, Role: report.Measured, Colour: i})
		}
	}
	var plots []report.Plot
	add := func(title, label string, totalBPS uint64, factor float64, values func(LLQFlow) []*float64) {
		p := report.Plot{Title: fmt.Sprintf("%s, %g Mbit/s in all", title, float64(totalBPS)/1e6), Kind: report.Lines, XLabel: "seconds", YLabel: label, Series: series}
		for i, flow := range llqFlows {
			panel := report.Panel{Title: flow.name}
			for _, peer := range r.peers() {
				one := r.find(peer, totalBPS)
				row := make([]*float64, llqSteps)
				if one != nil {
					for step, value := range values(one.Flows[i]) {
						if value != nil {
							row[step] = report.Number(*value * factor)
						}
					}
					if panel.X == nil {
						for step := range llqSteps {
							panel.X = append(panel.X, (float64(step)+0.5)*one.StepMS/1000)
						}
					}
				}
				panel.Values = append(panel.Values, row)
			}
			if panel.X != nil {
				p.Panels = append(p.Panels, panel)
			}
		}
		if len(p.Panels) > 0 {
			plots = append(plots, p)
		}
	}
	delays, jitters := func(f LLQFlow) []*float64 { return f.DelaysMS }, func(f LLQFlow) []*float64 { return f.JittersMS }
	rates := func(f LLQFlow) []*float64 { return f.ThroughputsBPS }
	add("Figure 8: delay without congestion", "µs", llqQuietBPS, 1e3, delays)
	add("Figure 9: delay with congestion", "ms", llqCongestedBPS, 1, delays)
	add("Figure 10: jitter without congestion", "µs", llqQuietBPS, 1e3, jitters)
	add("Figure 11: jitter with congestion", "ms", llqCongestedBPS, 1, jitters)
	add("Figure 12: throughput without congestion", "Mbit/s", llqQuietBPS, 1e-6, rates)
	add("Figure 13: throughput with congestion", "Mbit/s", llqCongestedBPS, 1e-6, rates)
	return plots
}
