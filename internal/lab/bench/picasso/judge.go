package picasso

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/lab/report"
)

// Weir's targets, and docs/measurements/edge.md, "The competition for uplinks", for what is judged how.
const (
	mostResponsePercent    = 40
	leastThroughputPercent = 130
	leastMinimumPercent    = 99
	mostEdgeBytes          = 60e6
)

// judgeTargets judges Weir's targets.
func (r *Report) judgeTargets() {
	for _, load := range userLoads() {
		if worst, ok := r.worst(load.name, func(c Competitor) float64 { return c.UserMeanMS }, highest); ok {
			r.Verdicts = append(r.Verdicts, report.Verdict{
				Target: "response time under competition, " + load.name, Limit: fmt.Sprintf("at most %d %% of Swarm's own", mostResponsePercent),
				Measured: fmt.Sprintf("%.1f %%", worst.percent), Where: fmt.Sprintf("%s: %.0f ms, Swarm %.0f ms", worst.scenario, worst.weir, worst.swarm),
				Met: worst.percent <= mostResponsePercent, Change: loadChange(load, worst.percent <= mostResponsePercent),
			})
		}
		if !load.closed() { // who arrives gets what he asks for from either
			continue
		}
		if worst, ok := r.worst(load.name, func(c Competitor) float64 { return c.PayloadBPS }, lowest); ok {
			r.Verdicts = append(r.Verdicts, report.Verdict{
				Target: "throughput under competition, " + load.name, Limit: fmt.Sprintf("at least %d %% of Swarm's own", leastThroughputPercent),
				Measured: fmt.Sprintf("%.1f %%", worst.percent), Where: fmt.Sprintf("%s: %.1f Mbit/s, Swarm %.1f", worst.scenario, worst.weir/1e6, worst.swarm/1e6),
				Met: worst.percent >= leastThroughputPercent, Change: loadChange(load, worst.percent >= leastThroughputPercent),
			})
		}
	}
	if m := r.Minimum; m != nil {
		r.Verdicts = append(r.Verdicts, report.Verdict{
			Target: "minimum of all users of a service together", Limit: fmt.Sprintf("at least %d %%", leastMinimumPercent), Measured: fmt.Sprintf("%.2f %%", m.percent()),
			Where: fmt.Sprintf("%s: %.3f of %.1f Mbit/s", allBusy(PaperNodes), m.GotBPS/1e6, m.PromisedBPS/1e6), Met: m.percent() >= leastMinimumPercent,
		})
	}
	if r.EdgePeakBytes > 0 {
		r.Verdicts = append(r.Verdicts, report.Verdict{
			Target: fmt.Sprintf("memory of weir-edge with %d nodes", r.EdgeNodes), Limit: fmt.Sprintf("below %.0f MB", mostEdgeBytes/1e6),
			Measured: fmt.Sprintf("%.1f MB", float64(r.EdgePeakBytes)/1e6), Where: fmt.Sprintf("the most it had; %.1f MB at the end", float64(r.EdgeResidentBytes)/1e6),
			Met: r.EdgePeakBytes < mostEdgeBytes,
		})
	}
}

// percent returns what users got of the minimum.
func (m MinimumKept) percent() float64 { return m.GotBPS / m.PromisedBPS * 100 }

// loadChange returns what would have to change for a target of a load; empty if it is met, or that is not known.
func loadChange(load userLoad, met bool) string {
	if met || !load.closed() {
		return ""
	}
	return "Swarm would have to place on more of the busy nodes: by chance it takes some free ones, too; and queues as short as Weir's would have to be fair to connections (fq_codel)"
}

// sides are what both sides come to in a scenario, the means over its orders.
type sides struct {
	scenario             string
	swarm, weir, percent float64
}

func highest(a, b sides) int { return cmp.Compare(b.percent, a.percent) }
func lowest(a, b sides) int  { return cmp.Compare(a.percent, b.percent) }

// worst returns the first scenario in an order; false if there is none.
func (r Report) worst(load string, value func(Competitor) float64, order func(a, b sides) int) (sides, bool) {
	var list []sides
	for _, c := range r.Competition {
		if c.Differ && !slices.ContainsFunc(list, func(s sides) bool { return s.scenario == c.Scenario }) {
			if s, ok := r.sidesOf(c.Scenario, load, value); ok {
				list = append(list, s)
			}
		}
	}
	if len(list) == 0 {
		return sides{}, false
	}
	return slices.MinFunc(list, order), true
}

// sidesOf takes the orders that were measured of both sides.
func (r Report) sidesOf(scenario, load string, value func(Competitor) float64) (sides, bool) {
	of := map[string]map[int]float64{placedBySwarm: {}, placedByWeir: {}}
	for _, c := range r.Competition {
		if c.Scenario == scenario && c.Load == load {
			of[c.PlacedBy][c.Order] = value(c)
		}
	}
	s, count := sides{scenario: scenario}, 0.0
	for order, swarm := range of[placedBySwarm] {
		if weir, both := of[placedByWeir][order]; both {
			s.swarm, s.weir, count = s.swarm+swarm, s.weir+weir, count+1
		}
	}
	if s.swarm == 0 {
		return s, false
	}
	s.swarm, s.weir = s.swarm/count, s.weir/count
	s.percent = s.weir / s.swarm * 100
	return s, true
}

// competitionTables returns all results of the competition.
func (r Report) competitionTables() []report.Table {
	versus := report.Table{Title: "Competition for uplinks", Header: []string{
		"NODES", "ORDER", "LOAD", "PLACED BY", "ON", "OF THEM BUSY", "USERS' MEAN MS", "REQUESTS' MEAN MS", "P95 MS", "REQUESTS/S", "MBIT/S", "ALL UPLINKS, MBIT/S", "REQUESTS", "FAILED",
	}}
	for _, c := range r.Competition {
		versus.Add(c.Scenario, fmt.Sprint(c.Order), c.Load, c.PlacedBy, strings.Join(c.Nodes, ", "), fmt.Sprint(c.OnBusy),
			fmt.Sprintf("%.1f", c.UserMeanMS), fmt.Sprintf("%.1f", c.MeanMS), fmt.Sprintf("%.1f", c.P95MS), fmt.Sprintf("%.0f", c.RequestsPerS),
			fmt.Sprintf("%.1f", c.PayloadBPS/1e6), fmt.Sprintf("%.1f", c.UplinkBPS/1e6), fmt.Sprint(c.Requests), fmt.Sprint(c.Failed))
	}
	return []report.Table{versus}
}
