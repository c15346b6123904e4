package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
)

//go:embed report.html.tmpl
var reportTemplate string

// page is what the template shows.
type page struct {
	Report
	Pauses      string // what the machine's mean for the report
	Met, Missed int
	Figures     []pageFigure
	Tables      []pageTable
}

type pageFigure struct {
	Title string
	SVG   template.HTML
}

type pageTable struct {
	Title  string
	Header []string
	Rows   [][]string
}

// WriteHTML writes a report as one self-contained page: plots, tables, the
// environment and the verdict.
func (r Report) WriteHTML(w io.Writer) error {
	parsed, err := template.New("report").Parse(reportTemplate)
	if err != nil {
		return fmt.Errorf("parse the report's template: %w", err)
	}
	p := page{Report: r, Pauses: r.pauseNote()}
	for _, verdict := range r.Verdicts {
		if verdict.Met {
			p.Met++
		} else {
			p.Missed++
		}
	}
	for _, chart := range r.charts() {
		// The drawing escapes what it is given.
		p.Figures = append(p.Figures, pageFigure{Title: chart.title, SVG: template.HTML(chart.svg)})
	}
	for _, t := range r.tables() {
		p.Tables = append(p.Tables, pageTable{Title: t.title, Header: t.header, Rows: t.rows})
	}
	if err := parsed.Execute(w, p); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

type chart struct{ title, svg string }

// charts are all plots of a report: shares and CPU by group, rates over time
// by case and peer.
func (r Report) charts() []chart {
	var charts []chart
	for _, group := range r.groups() {
		if c := r.shareChart(group); len(c.panels) > 0 {
			charts = append(charts, chart{c.title, c.svg()})
		}
		if c := r.costChart(group); len(c.panels) > 0 {
			charts = append(charts, chart{c.title, c.svg()})
		}
	}
	for _, result := range r.Results {
		if result.Series == nil {
			continue
		}
		c := result.seriesChart()
		charts = append(charts, chart{c.title, c.svg()})
	}
	return charts
}

// groups lists the groups of cases in order.
func (r Report) groups() []string {
	var groups []string
	for _, key := range r.cases() {
		if !slices.Contains(groups, key.group) {
			groups = append(groups, key.group)
		}
	}
	return groups
}

// peersOf lists the peers with results in a group, in the order of reports.
func (r Report) peersOf(group string) []string {
	return slices.DeleteFunc(PeerNames(), func(name string) bool {
		return !slices.ContainsFunc(r.Results, func(c CaseResult) bool { return c.Group == group && c.Peer == name && c.Runs > 0 })
	})
}

// coloured gives each peer its colour, the same in all plots.
func coloured(peers []string) []series {
	all := numbered(PeerNames())
	return slices.DeleteFunc(all, func(one series) bool { return !slices.Contains(peers, one.name) })
}

var missing = bar{value: math.NaN()}

func exactly(value float64) bar { return bar{value, value, value} }

func scaledBar(s Spread, factor float64) bar {
	return bar{s.Median * factor, s.Min * factor, s.Max * factor}
}

func (r Report) shareChart(group string) barChart {
	peers := r.peersOf(group)
	c := barChart{title: group + ": shares", unit: "Mbit/s", series: append([]series{{"paper", lightGrey}, {"ideal", darkGrey}}, coloured(peers)...)}
	for _, key := range r.cases() {
		results := r.of(key)
		if key.group != group || len(results) == 0 || len(results[0].Shares) == 0 ||
			results[0].Series != nil || results[0].crowded() {
			continue
		}
		panel := barPanel{title: key.name}
		for i, share := range results[0].Shares {
			bars := []bar{missing, exactly(float64(share.IdealBPS) / 1e6)}
			if share.PaperBPS != nil {
				bars[0] = exactly(*share.PaperBPS / 1e6)
			}
			for _, peer := range peers {
				one := missing
				for _, result := range results {
					if result.Peer == peer {
						one = scaledBar(result.Shares[i].Measured, 1e-6)
					}
				}
				bars = append(bars, one)
			}
			panel.groups = append(panel.groups, barGroup{share.Container, bars})
		}
		c.panels = append(c.panels, panel)
	}
	return c
}

// costChart has one group of bars per case: CPU milliseconds per gigabit.
func (r Report) costChart(group string) barChart {
	peers := r.peersOf(group)
	c := barChart{title: group + ": CPU time per gigabit", unit: "ms/Gbit", series: coloured(peers)}
	for _, key := range r.cases() {
		results := r.of(key)
		if key.group != group || len(results) == 0 || results[0].Cost == nil {
			continue
		}
		bars := make([]bar, len(peers))
		for i, peer := range peers {
			bars[i] = missing
			for _, result := range results {
				if result.Peer == peer {
					bars[i] = scaledBar(result.Cost.CPUSecondsPerGbit, 1000)
				}
			}
		}
		c.panels = append(c.panels, barPanel{title: key.name, groups: []barGroup{{"", bars}}})
	}
	return c
}

func (c CaseResult) seriesChart() lineChart {
	chart := lineChart{
		title: c.id() + ", " + c.Peer + ": rates of the last run", unit: "Mbit/s",
		series: numbered(c.Series.Containers), stepMS: c.Series.StepMS,
	}
	for _, rates := range c.Series.RateBPS {
		values := make([]float64, len(rates))
		for i, bps := range rates {
			values[i] = bps / 1e6
		}
		chart.values = append(chart.values, values)
	}
	for _, step := range c.Series.Ideal {
		level := levels{fromMS: step.AtMS}
		for _, bps := range step.RateBPS {
			level.values = append(level.values, float64(bps)/1e6)
		}
		chart.levels = append(chart.levels, level)
	}
	return chart
}
