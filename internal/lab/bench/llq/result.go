package llq

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/traffic"
)

const note = "One container sends voice, video and generic data, frames of 1000 bytes in turn. Delay is one way, from the sender's write to " +
	"the kernel's stamp of the arrival at the neighbour; jitter is the mean difference between the delays of one flow's successive frames. " +
	"Flows are marked with EF, AF31 and CS1, which Weir trusts (weir.dscp=trust): unmarked, its EF policer serves a flow of such frames as BE, voice or not. " +
	"The link is a veth pair behind a bucket of 100 Mbit/s, so a frame's own time on a wire (0.08 ms) is in no delay. " +
	"The paper measures at a switch, as weir bench sdn --figures does."

// Report is what `weir bench llq -o json` prints. Field names are only ever added to.
type Report struct {
	report.Report
	Suite     string   `json:"suite"`
	DurationS float64  `json:"duration_s"` // counted per run
	WarmupS   float64  `json:"warmup_s"`   // before it
	Results   []Result `json:"results"`
	// Failures are runs that failed, by peer and rate; Skipped are peers of which all
	// did. Each with the reason.
	Failures map[string]string `json:"failures,omitempty"`
	Skipped  map[string]string `json:"skipped,omitempty"`
	// path explains why delays differ from the paper's even without queueing, noSwitch why no switch is measured; runFlags
	// are the options of the runs.
	path, noSwitch, runFlags string
}

// Failed returns the number of cases with failed runs, and of peers without any other.
func (r Report) Failed() int { return len(r.Failures) + len(r.Skipped) }

// Result is what a peer made of one rate.
type Result struct {
	Peer string `json:"peer"`
	// TotalBPS is what the flows send together.
	TotalBPS uint64 `json:"total_bps"`
	Runs     int    `json:"runs"`
	Flows    []Flow `json:"flows"`
	// Steps are the parts of the last run that Flows have values over time for.
	StepMS float64 `json:"step_ms"`
}

// Flow is what became of a flow.
type Flow struct {
	Name  string `json:"name"`
	Class string `json:"class"`
	// SentBPS is the rate sent, ThroughputBPS the rate received, IdealBPS the ideal rate.
	SentBPS       measure.Spread `json:"sent_bps"`
	ThroughputBPS measure.Spread `json:"throughput_bps"`
	IdealBPS      float64        `json:"ideal_bps"`
	Loss          measure.Spread `json:"loss"`
	DelayMS       measure.Spread `json:"delay_ms"` // mean
	DelayP50MS    measure.Spread `json:"delay_p50_ms"`
	DelayP99MS    measure.Spread `json:"delay_p99_ms"`
	JitterMS      measure.Spread `json:"jitter_ms"`
	// Over time, by step of the last run; null where nothing arrived.
	DelaysMS       []*float64 `json:"delays_ms"`
	JittersMS      []*float64 `json:"jitters_ms"`
	ThroughputsBPS []*float64 `json:"throughputs_bps"`
}

// timeSteps is how many parts of a run a plot over time has.
const timeSteps = 20

// idealRates returns each flow's ideal rate if each sends a third of the total.
func idealRates(totalBPS uint64) [3]float64 {
	each := totalBPS / 3
	ef, af, be := classRates().Divide(each, each, each)
	return [3]float64{float64(ef), float64(af), float64(be)}
}

func newResult(peer string, totalBPS uint64, runs []observation) Result {
	result := Result{Peer: peer, TotalBPS: totalBPS, Runs: len(runs)}
	ideal := idealRates(totalBPS)
	if peer == bench.PeerFIFO { // where all are alike
		ideal = [3]float64{min(float64(totalBPS), linkBPS) / 3}
		ideal[1], ideal[2] = ideal[0], ideal[0]
	}
	last := runs[len(runs)-1]
	result.StepMS = last.seconds() * 1e3 / timeSteps
	for i, flow := range sentFlows {
		of := func(value func(observation) float64) measure.Spread {
			var values []float64
			for _, run := range runs {
				if v := value(run); !math.IsNaN(v) {
					values = append(values, v)
				}
			}
			return measure.SpreadOf(values)
		}
		one := Flow{
			Name: flow.name, Class: flow.class, IdealBPS: ideal[i],
			SentBPS:       of(func(r observation) float64 { return float64(r.Sent[i]) * sentFrameBytes * 8 / r.seconds() }),
			ThroughputBPS: of(func(r observation) float64 { return r.receivedBPS(i) }),
			Loss: of(func(r observation) float64 {
				return max(0, 1-float64(len(r.Arrivals[i]))/max(float64(r.Sent[i]), 1))
			}),
			DelayMS:    of(func(r observation) float64 { return measure.Mean(delaysMS(r.Arrivals[i])) }),
			DelayP50MS: of(func(r observation) float64 { return measure.Quantile(delaysMS(r.Arrivals[i]), 0.5) }),
			DelayP99MS: of(func(r observation) float64 { return measure.Quantile(delaysMS(r.Arrivals[i]), 0.99) }),
			JitterMS:   of(func(r observation) float64 { return jitterMS(r.Arrivals[i]) }),
		}
		one.overTime(last, i)
		result.Flows = append(result.Flows, one)
	}
	return result
}

// receivedBPS returns a flow's received rate in the measured time.
func (r observation) receivedBPS(flow int) float64 {
	return float64(r.Arrived[flow]) * sentFrameBytes * 8 / r.seconds()
}

// overTime fills in the steps of a run.
func (f *Flow) overTime(run observation, flow int) {
	parts := make([][]traffic.Arrival, timeSteps)
	for _, one := range run.Arrivals[flow] {
		step := (one.SentNS - run.FromNS) * timeSteps / (run.UntilNS - run.FromNS)
		step = min(max(step, 0), timeSteps-1) // the first and the last frame were written while they were counted
		parts[step] = append(parts[step], one)
	}
	known := func(v float64) *float64 {
		if math.IsNaN(v) {
			return nil
		}
		return &v
	}
	for _, part := range parts {
		f.DelaysMS = append(f.DelaysMS, known(measure.Mean(delaysMS(part))))
		f.JittersMS = append(f.JittersMS, known(jitterMS(part)))
		f.ThroughputsBPS = append(f.ThroughputsBPS, known(float64(len(part))*sentFrameBytes*8*timeSteps/run.seconds()))
	}
}

func delaysMS(arrivals []traffic.Arrival) []float64 {
	list := make([]float64, 0, len(arrivals))
	for _, one := range arrivals {
		list = append(list, measure.Milliseconds(one.Delay()))
	}
	return list
}

// jitterMS returns the mean difference between the delays of successive frames; NaN for fewer
// than two.
func jitterMS(arrivals []traffic.Arrival) float64 {
	if len(arrivals) < 2 {
		return math.NaN()
	}
	sum := 0.0
	for i := 1; i < len(arrivals); i++ {
		sum += math.Abs(measure.Milliseconds(arrivals[i].Delay() - arrivals[i-1].Delay()))
	}
	return sum / float64(len(arrivals)-1)
}

// find returns the result of a peer at a rate; nil if there is none.
func (r Report) find(peer string, totalBPS uint64) *Result {
	return measure.Find(r.Results, func(one Result) bool { return one.Peer == peer && one.TotalBPS == totalBPS })
}

// peers lists the peers with results, in the order of reports.
func (r Report) peers() []string {
	return slices.DeleteFunc(Peers(), func(name string) bool {
		return !slices.ContainsFunc(r.Results, func(one Result) bool { return one.Peer == name })
	})
}

// complete adds what follows from the results.
func (r *Report) complete() {
	r.Verdicts = r.targets()
	r.Claims = r.judge()
	r.Tables = r.tables()
	r.Plots = append(r.ratePlots(), r.timePlots()...)
	var list measure.Quantities
	for i := range r.Results {
		result := &r.Results[i]
		for k := range result.Flows {
			flow := &result.Flows[k]
			of := fmt.Sprintf("%s, %g Mbit/s, %s", result.Peer, float64(result.TotalBPS)/1e6, flow.Name)
			list.Add(of, "throughput", "bit/s", "", &flow.ThroughputBPS)
			list.Add(of, "delay", "ms", report.Lower, &flow.DelayMS)
			list.Add(of, "jitter", "ms", report.Lower, &flow.JitterMS)
			list.Add(of, "loss", "fraction", report.Lower, &flow.Loss)
		}
	}
	r.Quantities = list
}

func (r Report) tables() []report.Table {
	paper := report.Table{Title: "The paper's numbers beside this machine's", Header: []string{"WHAT", "PEER", "VOICE: PAPER", "HERE", "VIDEO: PAPER", "HERE", "GENERIC: PAPER", "HERE"}}
	for _, claim := range paperNumbers {
		for _, peer := range r.peers() {
			if (peer == bench.PeerFIFO) != claim.isFIFO {
				continue
			}
			cells := []string{claim.what, peer}
			for flow := range sentFlows {
				cells = append(cells, fmt.Sprintf("%g %s", claim.paper[flow], claim.unit), measure.Optional(claim.of(r, peer, flow), func(v float64) string {
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
			all.Add(fmt.Sprintf("%g", float64(one.TotalBPS)/1e6), one.Peer, flow.Name, flow.Class, measure.Mbps(flow.SentBPS.Median), measure.Mbps(flow.IdealBPS), measure.Mbps(flow.ThroughputBPS.Median),
				measure.SpreadText(flow.ThroughputBPS, measure.Mbps), measure.FinePercent(flow.Loss.Median), measure.MS(flow.DelayMS.Median), measure.SpreadText(flow.DelayMS, measure.MS), measure.MS(flow.DelayP50MS.Median), measure.MS(flow.DelayP99MS.Median),
				measure.MS(flow.JitterMS.Median), measure.SpreadText(flow.JitterMS, measure.MS))
		}
	}
	failed := report.Table{Title: "Failures", Header: []string{"FAILED", "WHY"}}
	for _, name := range Peers() {
		if why, ok := r.Skipped[name]; ok {
			failed.AddFailure(name+" was left out", why)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(r.Failures)) {
		failed.AddFailure(what, r.Failures[what])
	}
	return append([]report.Table{paper, all}, report.Filled(failed)...)
}

// ratePlots returns figure 7, and the same of jitter, throughput and loss: a panel for each peer,
// over the rate of all flows.
func (r Report) ratePlots() []report.Plot {
	totals := measure.Distinct(r.Results, func(one Result) uint64 { return one.TotalBPS })
	slices.Sort(totals)
	if len(totals) < 2 {
		return nil
	}
	var mbps []float64
	for _, total := range totals {
		mbps = append(mbps, float64(total)/1e6)
	}
	var names []string
	for _, flow := range sentFlows {
		names = append(names, flow.name+" ("+flow.class+")")
	}
	plot := func(title, label string, value func(Flow) float64) report.Plot {
		p := report.Plot{Title: title, Kind: report.Lines, XLabel: "sent in all, Mbit/s", YLabel: label, Series: report.MeasuredSeries(names...)}
		for _, peer := range r.peers() {
			p.Panels = append(p.Panels, report.LinePanel(peer, mbps, len(names), func(flow, at int) *float64 {
				if one := r.find(peer, totals[at]); one != nil {
					return report.Number(value(one.Flows[flow]))
				}
				return nil
			}))
		}
		return p
	}
	return []report.Plot{
		plot("Figure 7: delay over the sending rate", "ms", func(f Flow) float64 { return f.DelayMS.Median }),
		plot("Jitter over the sending rate", "ms", func(f Flow) float64 { return f.JitterMS.Median }),
		plot("Throughput over the sending rate", "Mbit/s", func(f Flow) float64 { return f.ThroughputBPS.Median / 1e6 }),
		plot("Loss over the sending rate", "%", func(f Flow) float64 { return f.Loss.Median * 100 }),
	}
}

// timePlots returns figures 8 to 13: a panel for each flow, over time, with all peers.
func (r Report) timePlots() []report.Plot {
	peers := r.peers()
	series := slices.DeleteFunc(report.MeasuredSeries(Peers()...), func(s report.Series) bool { return !slices.Contains(peers, s.Name) })
	delays, jitters := func(f Flow) []*float64 { return f.DelaysMS }, func(f Flow) []*float64 { return f.JittersMS }
	rates := func(f Flow) []*float64 { return f.ThroughputsBPS }
	var plots []report.Plot
	for _, figure := range []struct {
		title, label string
		totalBPS     uint64
		factor       float64
		values       func(Flow) []*float64
	}{
		{"Figure 8: delay without congestion", "µs", quietBPS, 1e3, delays},
		{"Figure 9: delay with congestion", "ms", congestedBPS, 1, delays},
		{"Figure 10: jitter without congestion", "µs", quietBPS, 1e3, jitters},
		{"Figure 11: jitter with congestion", "ms", congestedBPS, 1, jitters},
		{"Figure 12: throughput without congestion", "Mbit/s", quietBPS, 1e-6, rates},
		{"Figure 13: throughput with congestion", "Mbit/s", congestedBPS, 1e-6, rates},
	} {
		any := measure.Find(r.Results, func(one Result) bool { return one.TotalBPS == figure.totalBPS })
		if any == nil {
			continue
		}
		var seconds []float64
		for step := range timeSteps {
			seconds = append(seconds, (float64(step)+0.5)*any.StepMS/1000)
		}
		p := report.Plot{
			Title: fmt.Sprintf("%s, %g Mbit/s in all", figure.title, float64(figure.totalBPS)/1e6), Kind: report.Lines,
			XLabel: "seconds", YLabel: figure.label, Series: series,
		}
		for i, flow := range sentFlows {
			p.Panels = append(p.Panels, report.LinePanel(flow.name, seconds, len(peers), func(peer, step int) *float64 {
				one := r.find(peers[peer], figure.totalBPS)
				if one == nil {
					return nil
				}
				if value := figure.values(one.Flows[i])[step]; value != nil {
					return report.Number(*value * figure.factor)
				}
				return nil
			}))
		}
		plots = append(plots, p)
	}
	return plots
}
