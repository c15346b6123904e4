package bench

import (
	"slices"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
)

// plots returns all plots of a suite: shares and CPU by group, rates over time by case.
func (r Report) plots() []report.Plot {
	var plots []report.Plot
	add := func(plot report.Plot) {
		if len(plot.Panels) > 0 {
			plots = append(plots, plot)
		}
	}
	for _, group := range r.groups() {
		add(r.sharePlot(group))
		add(r.costPlot(group))
	}
	for _, key := range r.cases() {
		add(r.seriesPlot(key))
	}
	return plots
}

// groups lists the groups of cases in order.
func (r Report) groups() []string {
	return measure.Distinct(r.Results, func(result CaseResult) string { return result.Group })
}

// peersOf lists the peers with results in a group, in the order of reports.
func (r Report) peersOf(group string) []string {
	return slices.DeleteFunc(PeerNames(), func(name string) bool {
		return !slices.ContainsFunc(r.Results, func(c CaseResult) bool { return c.Group == group && c.Peer == name && c.Runs > 0 })
	})
}

// peerSeries gives each peer its colour, the same in all plots.
func peerSeries(peers []string) []report.Series {
	return slices.DeleteFunc(report.MeasuredSeries(PeerNames()...), func(s report.Series) bool { return !slices.Contains(peers, s.Name) })
}

const (
	seriesPaper = "paper"
	seriesIdeal = "ideal"
)

func (r Report) sharePlot(group string) report.Plot {
	series := append([]report.Series{
		{Name: seriesPaper, Role: report.Paper}, {Name: seriesIdeal, Role: report.Ideal},
	}, peerSeries(r.peersOf(group))...)
	plot := report.Plot{Title: group + ": shares", Kind: report.Bars, YLabel: "Mbit/s", Series: series}
	for _, key := range r.cases() {
		results := r.of(key)
		if key.group != group || len(results) == 0 || len(results[0].Shares) == 0 ||
			results[0].Series != nil || results[0].crowded() {
			continue
		}
		var names []string
		for _, share := range results[0].Shares {
			names = append(names, share.Container)
		}
		panel := measure.NewBarPanel(key.name, series, names...)
		for _, result := range results {
			for i, share := range result.Shares {
				panel.Set(result.Peer, i, share.Measured, 1e-6)
				panel.Set(seriesIdeal, i, measure.Exactly(float64(share.IdealBPS)), 1e-6)
				// What papers say of other peers is in the table.
				if share.PaperBPS != nil && (result.Peer == PeerWeir || len(results) == 1) {
					panel.Set(seriesPaper, i, measure.Exactly(*share.PaperBPS), 1e-6)
				}
			}
		}
		plot.Panels = append(plot.Panels, *panel.Panel)
	}
	return plot.WithoutEmpty()
}

// costPlot returns CPU milliseconds per gigabit, one category per case.
func (r Report) costPlot(group string) report.Plot {
	series := peerSeries(r.peersOf(group))
	plot := report.Plot{Title: group + ": CPU time per gigabit", Kind: report.Bars, YLabel: "ms per Gbit", Series: series}
	var names []string
	var costs [][]CaseResult
	for _, key := range r.cases() {
		if results := r.of(key); key.group == group && len(results) > 0 && results[0].Cost != nil {
			names, costs = append(names, key.name), append(costs, results)
		}
	}
	if len(names) == 0 {
		return plot
	}
	panel := measure.NewBarPanel("", series, names...)
	for i, results := range costs {
		for _, result := range results {
			panel.Set(result.Peer, i, result.Cost.CPUSecondsPerGbit, 1000)
		}
	}
	plot.Panels = []report.Panel{*panel.Panel}
	return plot
}

// seriesPlot returns the rates over time of a case's last run, a panel per peer.
func (r Report) seriesPlot(key caseKey) report.Plot {
	plot := report.Plot{Title: key.group + ": " + key.name + ", rates of the last run", Kind: report.Lines, XLabel: "seconds", YLabel: "Mbit/s"}
	for _, result := range r.of(key) {
		series := result.Series
		if series == nil {
			continue
		}
		if plot.Series == nil {
			plot.Series = overTime(series.Containers)
		}
		plot.Panels = append(plot.Panels, series.panel(result.Peer))
	}
	return plot
}

// overTime returns two series for each container: its rate and its ideal.
func overTime(containers []string) []report.Series {
	var list []report.Series
	for i, name := range containers {
		list = append(list,
			report.Series{Name: name, Role: report.Measured, Colour: i},
			report.Series{Name: name + " ideal", Role: report.Ideal, Colour: i})
	}
	return list
}

func (s RateSeries) panel(title string) report.Panel {
	var seconds []float64
	if len(s.RateBPS) > 0 {
		for step := range s.RateBPS[0] {
			// A rate is that of a step, so it stands in the middle of it.
			seconds = append(seconds, (float64(step)+0.5)*s.StepMS/1000)
		}
	}
	return report.LinePanel(title, seconds, 2*len(s.RateBPS), func(series, step int) *float64 {
		container, ideal := series/2, series%2 == 1
		if ideal {
			return s.idealAt(seconds[step]*1000, container)
		}
		return report.Number(s.RateBPS[container][step] / 1e6)
	})
}

// idealAt returns the ideal of a container at a time, in Mbit/s; nil before the first sender
// starts.
func (s RateSeries) idealAt(atMS float64, container int) *float64 {
	var mbps *float64
	for _, step := range s.Ideal {
		if step.AtMS <= atMS {
			mbps = report.Number(float64(step.RateBPS[container]) / 1e6)
		}
	}
	return mbps
}
