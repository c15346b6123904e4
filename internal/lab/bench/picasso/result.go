package picasso

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
)

const note = "Nodes are Docker engines in network namespaces, with %.3g processors and 1 GB for their containers, and a link of " +
	"100 Mbit/s each way behind a queue of a thousand packets. The round trip of 5 ms is added at the users' end, for a connection and for " +
	"each request. Forwarding and address translation are the kernel's and count for no container. Requests are of the page alone, each on a " +
	"connection of its own, as ab makes them. %s stands for %s. %s stands for %s. How large a crowd the first can stand is what it was told, " +
	"not what was found. For figure 9 nodes are not capped. A node's load is how many " +
	"threads of its containers run or wait, for the limit of their processors as well, four times a second: what the kernel smooths to a load average. " +
	"Load averages and pressure (PSI) themselves are the machine's here: control groups of version 1 have none."

const crowdNote = " A crowd sends at most %d requests, and begins none after %g s; who waits for 5 s gives up, and counts as 5 s in response times of claims. The paper's sent 10000, thirty times."

const competitionNote = " In the competition each node's uplink has %g Mbit/s; docs/measurements/edge.md (\"The competition for uplinks\") says what is compared and judged. " +
	"Where all nodes are busy placing cannot help, and the minimum is judged; where some are not, all else is. In a closed loop that fills what there is " +
	"the response time is the inverse of the throughput."

const tomcatNote = "Before tomcat is measured it answers %d requests, on a node that is not capped, so that Java has compiled what they need."

// complete adds what follows from the measurements.
func (r *Report) complete() {
	servers := r.webServers()
	nano, heavy := servers[0], servers[3]
	r.Note = fmt.Sprintf(note, r.NodeCPUs, nano.name, nano.standsFor, heavy.name, heavy.standsFor)
	if len(r.Crowds) > 0 {
		r.Note += fmt.Sprintf(crowdNote, r.CrowdRequests, r.CrowdSeconds)
	}
	if r.Tomcat != "" {
		r.AddNote(fmt.Sprintf(tomcatNote, tomcatWarmUp))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Missing)) {
		r.AddGap(fmt.Sprintf("%s was not measured: %s.", name, r.Missing[name]))
	}
	if len(r.Competition) > 0 {
		r.Note += fmt.Sprintf(competitionNote, float64(r.CompetitionLinkBPS)/1e6)
	}
	r.AddLeftOut(r.LeftOut)
	r.judge()
	r.Tables = r.tables()
	r.Plots = r.plots()
	for _, c := range measure.Distinct(r.Crowds, keyOf) {
		of := fmt.Sprintf("%s, %s, %d users", c.server, c.layout, c.users)
		r.Quantities = append(r.Quantities,
			report.Quantity{Case: of, Name: "good answers", Unit: "%", Better: report.Higher, Values: r.each(c, Crowd.SuccessPercent)},
			report.Quantity{Case: of, Name: "response time", Unit: "ms", Better: report.Lower, Values: r.each(c, meanMSOf)})
	}
	for _, c := range r.Competition {
		of := fmt.Sprintf("competition, %s, order %d, %s, %s", c.Scenario, c.Order, c.Load, c.PlacedBy)
		r.Quantities = append(r.Quantities,
			report.Quantity{Case: of, Name: "response time", Unit: "ms", Better: report.Lower, Values: []float64{c.UserMeanMS}},
			report.Quantity{Case: of, Name: "throughput", Unit: "bit/s", Better: report.Higher, Values: []float64{c.PayloadBPS}})
	}
}

// crowdKey is what the crowds of all rounds have in common.
type crowdKey struct {
	server, layout string
	figure3        bool
	users          int
}

func keyOf(c Crowd) crowdKey { return crowdKey{c.Server, c.Layout, c.Figure3, c.Users} }

// judge judges the paper's claims and Weir's targets.
func (r *Report) judge() {
	for _, one := range r.claims() {
		judged := one.judge()
		judged.About += r.tomcatOf(judged)
		r.Claims = append(r.Claims, judged)
	}
	r.judgeTargets()
}

func (r Report) tables() []report.Table {
	crowds := report.Table{Title: "Crowds", Header: []string{"SERVER", "LAYOUT", "USERS", "REQUESTS", "GOOD %", "MEAN MS", "P95 MS", "REQUESTS/S", "NODE CPU %", "CONTAINERS' CPU %", "NODE LOAD", "MOST", "MEMORY MB"}}
	for _, c := range r.Crowds {
		crowds.Add(c.Server, c.Layout, fmt.Sprint(c.Users), fmt.Sprint(c.Requests), fmt.Sprintf("%.2f", c.SuccessPercent()), fmt.Sprintf("%.1f", c.MeanMS),
			fmt.Sprintf("%.1f", c.P95MS), fmt.Sprintf("%.0f", c.RequestsPerS), fmt.Sprintf("%.0f", c.NodeCPUPercent), eachOf(c.ContainerCPUPercents),
			fmt.Sprintf("%.1f", c.NodeLoad), fmt.Sprintf("%.0f", c.NodeLoadMost),
			fmt.Sprintf("%.1f", float64(c.MemoryBytes)/1e6))
	}
	sizes := report.Table{Title: "Table I: sizes of images", Header: []string{"SERVER", "PAPER", "HERE", "STANDS FOR"}}
	for _, s := range r.webServers() {
		if bytes, ok := r.ImageBytes[s.name]; ok {
			sizes.Add(s.name, fmt.Sprintf("%g MB", paperImageMB(s.name)), fmt.Sprintf("%.2f MB", float64(bytes)/1e6), s.standsFor)
		}
	}
	return report.Filled(append([]report.Table{crowds, sizes, r.capacityTable()}, r.competitionTables()...)...)
}

// eachOf returns values in whole numbers, for a cell.
func eachOf(values []float64) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = fmt.Sprintf("%.0f", value)
	}
	return strings.Join(texts, ", ")
}

// A node is exhausted from mostBusyPercent of its processor on, or if fewer requests than leastGoodPercent have a good answer.
const (
	mostBusyPercent  = 95
	leastGoodPercent = 99
)

// exhausted reports whether a load was more than its nodes stand.
func (c Crowd) exhausted() bool {
	return c.NodeCPUPercent >= mostBusyPercent || c.SuccessPercent() < leastGoodPercent
}

// capacityTable is section IV.C: what replicas on one node come to, and whether they exhaust it, by medians of rounds.
func (r Report) capacityTable() report.Table {
	t := report.Table{Title: "Section IV.C: replicas on one node, each asked for an eighth of what one alone answers", Header: []string{"SERVER", "LAYOUT", "REQUESTS/S EACH", "GOOD %", "MEAN MS", "P95 MS", "NODE CPU %", "MEMORY MB", "NODE IS EXHAUSTED"}}
	for _, one := range measure.Distinct(r.Capacity, keyOf) {
		median := func(value func(Crowd) float64) float64 {
			var rounds []float64
			for _, c := range r.Capacity {
				if keyOf(c) == one {
					rounds = append(rounds, value(c))
				}
			}
			return measure.SpreadOf(rounds).Median
		}
		exhausted := median(func(c Crowd) float64 {
			if c.exhausted() {
				return 1
			}
			return 0
		})
		t.Add(one.server, one.layout, fmt.Sprintf("%.1f", median(func(c Crowd) float64 { return c.ArrivalsPerS })), fmt.Sprintf("%.2f", median(Crowd.SuccessPercent)),
			fmt.Sprintf("%.1f", median(meanMSOf)), fmt.Sprintf("%.1f", median(func(c Crowd) float64 { return c.P95MS })), fmt.Sprintf("%.0f", median(nodeCPUOf)),
			fmt.Sprintf("%.1f", median(memoryOf)/1e6), map[bool]string{true: "yes", false: "no"}[exhausted > 0.5])
	}
	return t
}

func (r Report) plots() (plots []report.Plot) {
	servers := measure.Distinct(r.Crowds, func(c Crowd) string { return c.Server })
	var users []float64
	for _, c := range r.Crowds {
		if c.Figure3 && !slices.Contains(users, float64(c.Users)) {
			users = append(users, float64(c.Users))
		}
	}
	slices.Sort(users)
	series := report.MeasuredSeries(servers...)
	if len(users) > 1 {
		panel := report.LinePanel("", users, len(servers), func(server, at int) *float64 {
			return medianOrNil(r.successOf(servers[server], int(users[at])))
		})
		plots = append(plots, report.Plot{Title: "Figure 3: requests answered well", Kind: report.Lines, XLabel: "users", YLabel: "%", Series: series, Panels: []report.Panel{panel}})
	}
	layouts := paperLayouts()
	var names []string
	for _, l := range layouts {
		names = append(names, l.String())
	}
	bars := func(title, label string, value func(Crowd) float64) {
		panel, measured := measure.NewBarPanel("", series, names...), false
		for i, l := range layouts {
			for _, server := range servers {
				if values := r.each(crowdOf(server, l), value); len(values) > 0 {
					panel.Set(server, i, measure.SpreadOf(values), 1)
					measured = true
				}
			}
		}
		if measured {
			plots = append(plots, report.Plot{Title: title, Kind: report.Bars, YLabel: label, Series: series, Panels: []report.Panel{*panel.Panel}}.WithoutEmpty())
		}
	}
	bars("Figures 5 and 8: processor of a node", "%", nodeCPUOf)
	bars("Figure 8: load of a node", "threads that run or wait", nodeLoadOf)
	bars("Figure 6: processor of the container that uses most, of what its node has", "%", Crowd.mostContainerCPU)
	bars("Figure 7: response time (who gives up counts as 5 s)", "ms", Crowd.waitedMS)
	return append(plots, r.curves()...)
}

// curves returns figures 5 and 6: what one to four containers on a node use over time, of the first round.
func (r Report) curves() (plots []report.Plot) {
	local := []layout{{1, 1}, {2, 1}, {4, 1}}
	var names []string
	for _, l := range local {
		names = append(names, l.String())
	}
	for _, figure := range []struct {
		title, label string
		value        func(m Moment) float64
	}{
		{"Figure 5: processor of a node over time", "%", func(m Moment) float64 { return m.NodeCPUPercent }},
		{"Figure 5: load of a node over time", "threads that run or wait", func(m Moment) float64 { return m.NodeLoad }},
		{"Figure 5: memory of a node over time", "MB", func(m Moment) float64 { return float64(m.MemoryBytes) / 1e6 }},
		{"Figure 6: processor of the first container over time, of what its node has", "%", func(m Moment) float64 { return m.ContainerCPUPercent }},
	} {
		plot := report.Plot{Title: figure.title, Kind: report.Lines, XLabel: "seconds", YLabel: figure.label, Series: report.MeasuredSeries(names...)}
		for _, server := range measure.Distinct(r.Crowds, func(c Crowd) string { return c.Server }) {
			moments, seconds := make([][]Moment, len(local)), []float64{}
			for i, l := range local {
				if c := measure.Find(r.Crowds, func(c Crowd) bool { return keyOf(c) == crowdOf(server, l) }); c != nil {
					moments[i] = c.Moments
				}
				for _, m := range moments[i] {
					seconds = append(seconds, m.Seconds)
				}
			}
			slices.Sort(seconds)
			if seconds = slices.Compact(seconds); len(seconds) > 0 {
				plot.Panels = append(plot.Panels, report.LinePanel(server, seconds, len(local), func(i, at int) *float64 {
					return valueAt(moments[i], seconds[at], figure.value)
				}))
			}
		}
		if len(plot.Panels) > 0 {
			plots = append(plots, plot)
		}
	}
	return plots
}

// valueAt returns a value of moments at a time, on the line between the two around it; nil before and after all.
func valueAt(moments []Moment, seconds float64, value func(Moment) float64) *float64 {
	after := slices.IndexFunc(moments, func(m Moment) bool { return m.Seconds >= seconds })
	switch {
	case after < 0 || after == 0 && moments[0].Seconds > seconds:
		return nil
	case moments[after].Seconds == seconds:
		return report.Number(value(moments[after]))
	}
	a, b := moments[after-1], moments[after]
	part := (seconds - a.Seconds) / (b.Seconds - a.Seconds)
	return report.Number(value(a) + part*(value(b)-value(a)))
}
