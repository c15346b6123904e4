package bench

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/share/policy"
)

// maxRowsPerCase is the number of containers up to which each has a row;
// beyond, a case has one row with its worst container.
const maxRowsPerCase = 10

// tables returns the tables that have rows.
func (r Report) tables() []report.Table {
	return report.Filled(r.shareTable(), r.incomingTable(), r.overshootTable(), r.reactionTable(), r.costTable(), r.ratioTable(), r.latencyTable(), r.overheadTable(),
		r.agentTable(), r.failureTable(), r.gapTable())
}

func (r Report) shareTable() report.Table {
	t := report.Table{Title: "Shares, Mbit/s", Header: []string{"CASE", "CONTAINER", "PEER", "PAPER", "IDEAL", "MEASURED", "SPREAD", "ERROR", "ONE PACKET IS", "LINK USE"}}
	for _, c := range r.cases() {
		results := r.of(c)
		if len(results) == 0 {
			continue
		}
		if results[0].crowded() {
			for _, result := range results {
				worst := result.worstShare()
				worst.Container = fmt.Sprintf("worst of %d: %s", len(result.Shares), worst.Container)
				addShare(&t, result, worst, true)
			}
			continue
		}
		for i := range results[0].Shares {
			for _, result := range results {
				addShare(&t, result, result.Shares[i], i == 0)
			}
		}
	}
	return t
}

func addShare(t *report.Table, result CaseResult, share Share, withUse bool) {
	use := ""
	if withUse && result.LinkUse != nil {
		use = measure.Percent(result.LinkUse.Median)
	}
	where := result.id()
	if share.Phase != "" {
		where += ", " + share.Phase
	}
	t.Add(where, share.Container, result.Peer, measure.Optional(share.PaperBPS, measure.Mbps), measure.Mbps(float64(share.IdealBPS)),
		measure.Mbps(share.Measured.Median), measure.SpreadText(share.Measured, measure.Mbps), measure.SignedPercent(share.Error),
		measure.FinePercent(share.OnePacket), use)
}

// crowded says that a case has too many containers for a row each.
func (c CaseResult) crowded() bool { return c.Series == nil && len(c.Shares) > maxRowsPerCase }

// worstShare is the share with the largest error; there must be one.
func (c CaseResult) worstShare() Share {
	worst := c.Shares[0]
	for _, share := range c.Shares {
		if math.Abs(share.Error) > math.Abs(worst.Error) {
			worst = share
		}
	}
	return worst
}

func (r Report) overshootTable() report.Table {
	t := report.Table{Title: "Ceilings", Header: []string{"CASE", "PEER", "CAP", "OVERSHOOT IN ANY 100 MS", "SPREAD", "ONE FRAME IS"}}
	for _, result := range r.Results {
		if o := result.Overshoot; o != nil {
			t.Add(result.id(), result.Peer, policy.FormatRateShort(o.CapBPS), measure.SignedPercent(o.Fraction.Median),
				measure.SpreadText(o.Fraction, measure.SignedPercent), measure.FinePercent(o.OneFrame))
		}
	}
	return t
}

func (r Report) incomingTable() report.Table {
	t := report.Table{Title: "What comes in, in the worst second", Header: []string{"CASE", "PEER", "OF A MINIMUM", "OVER A MAXIMUM AT FIRST", "ARRIVES, AT LEAST", "AT MOST"}}
	lowest, highest := func(s measure.Spread) float64 { return s.Min }, func(s measure.Spread) float64 { return s.Max }
	cell := func(s *measure.Spread, worst func(measure.Spread) float64, format func(float64) string) string {
		if s == nil {
			return measure.Optional(nil, format)
		}
		return format(worst(*s))
	}
	for _, result := range r.Results {
		if in := result.Incoming; in != nil && (in.MinimumKept != nil || in.ArrivesLeast != nil) {
			t.Add(result.id(), result.Peer, cell(in.MinimumKept, lowest, measure.Percent), cell(in.FirstSecondOver, highest, measure.SignedPercent),
				cell(in.ArrivesLeast, lowest, measure.Percent), cell(in.ArrivesMost, highest, measure.Percent))
		}
	}
	return t
}

func (r Report) reactionTable() report.Table {
	t := report.Table{Title: "Reaction", Header: []string{"CASE", "PEER", "AT", "CHANGE", "SETTLED AFTER", "SPREAD", "CHANGES", "WITHIN 5 %"}}
	for _, result := range r.Results {
		for _, reaction := range result.Reactions {
			settled := "never"
			if reaction.SettledRuns > 0 {
				settled = measure.MS(reaction.SettleMS.Median) + " ms"
			}
			t.Add(result.id(), result.Peer, fmt.Sprintf("%.1f s", reaction.AtMS/1000), reaction.Change,
				settled, measure.SpreadText(reaction.SettleMS, measure.MS), fmt.Sprintf("%d/%d", reaction.SettledRuns, reaction.Changes),
				measure.Percent(reaction.Held.Median))
		}
	}
	return t
}

func (r Report) costTable() report.Table {
	t := report.Table{Title: "CPU", Header: []string{"CASE", "PEER", "CPU", "SPREAD", "BASELINE", "CPU MS/GBIT", "PACKETS/S", "OF BASELINE", "MBIT/S"}}
	for _, result := range r.Results {
		if c := result.Cost; c != nil {
			t.Add(result.id(), result.Peer, measure.Percent(c.CPUUse.Median), measure.SpreadText(c.CPUUse, measure.Percent), measure.Percent(c.Baseline.Max),
				fmt.Sprintf("%.1f", c.CPUSecondsPerGbit.Median*1000),
				fmt.Sprintf("%.0f", c.PacketsPerSecond.Median), measure.Optional(c.PacketsOfBaseline, measure.Percent), measure.Mbps(c.RateBPS.Median))
		}
	}
	return t
}

func (r Report) latencyTable() report.Table {
	t := report.Table{Title: "Round trips, ms", Header: []string{"CASE", "PEER", "PAPER", "MEAN", "SPREAD", "P50", "P99", "P99.9", "BASELINE P99", "LIMIT FOR WEIR", "LOST"}}
	for _, result := range r.Results {
		l := result.Latency
		if l == nil {
			continue
		}
		t.Add(result.id(), result.Peer, measure.Optional(l.PaperMS, measure.MS), measure.MS(l.MeanMS.Median), measure.SpreadText(l.MeanMS, measure.MS),
			measure.MS(l.P50MS.Median), measure.MS(l.P99MS.Median), measure.MS(l.P999MS.Median), measure.Optional(l.BaselineP99MS, measure.MS), measure.Optional(l.LimitMS, measure.MS),
			fmt.Sprintf("%d/%d", l.Lost, l.Sent))
	}
	return t
}

func (r Report) overheadTable() report.Table {
	t := report.Table{Title: "Overhead, against none", Header: []string{"CASE", "PEER", "OF", "PAPER", "OVERHEAD", "ADDED MS"}}
	for _, result := range r.Results {
		if o := result.Overhead; o != nil {
			t.Add(result.id(), result.Peer, o.Of, measure.Optional(o.Paper, measure.SignedPercent), measure.SignedPercent(o.Fraction), measure.Optional(o.AddedMS, measure.MS))
		}
	}
	return t
}

func (r Report) agentTable() report.Table {
	t := report.Table{Title: "The agent itself", Header: []string{"CASE", "CONTAINERS", "CPU OF ONE CORE", "SPREAD", "MEMORY MB", "ANONYMOUS, FILES, BPF", "STARTED IN", "TURN P99", "SCRAPE"}}
	for _, result := range r.Results {
		if a := result.Agent; a != nil {
			t.Add(result.id(), strconv.Itoa(a.Containers), measure.FinePercent(a.CPUOfCore.Median), measure.SpreadText(a.CPUOfCore, measure.FinePercent),
				fmt.Sprintf("%.1f", a.MemoryBytes.Median/1e6),
				fmt.Sprintf("%.1f, %.1f, %.1f", a.AnonymousBytes.Median/1e6, (a.ResidentBytes.Median-a.AnonymousBytes.Median)/1e6, a.BPFBytes.Median/1e6), fmt.Sprintf("%.0f ms", a.StartMS.Median), fmt.Sprintf("%.0f ms", a.TurnP99MS.Median), scrapeCell(a))
		}
	}
	return t
}

// scrapeCell is how long a scrape took, and what all took of a core.
func scrapeCell(a *AgentUse) string {
	switch {
	case a.ScrapeMS == nil:
		return "-"
	case a.ScrapeCPU == nil:
		return fmt.Sprintf("%.1f ms", a.ScrapeMS.Median)
	}
	return fmt.Sprintf("%.1f ms, %s of a core every %g s", a.ScrapeMS.Median, measure.FinePercent(*a.ScrapeCPU), a.ScrapeIntervalS)
}

func (r Report) failureTable() report.Table {
	t := report.Table{Title: "Failures", Header: []string{"FAILED", "PEER", "WHY"}}
	for _, result := range r.Results {
		if result.Failure != "" {
			t.AddFailure(result.id(), result.Peer, result.Failure)
		}
	}
	for _, name := range PeerNames() {
		if why, ok := r.Skipped[name]; ok {
			t.Add("all cases", name, why)
		}
	}
	return t
}

// gapTable lists what the report lacks.
func (r Report) gapTable() report.Table {
	t := report.Table{Title: "Left out", Header: []string{"LEFT OUT"}}
	for _, gap := range r.Gaps {
		t.Add(gap)
	}
	return t
}

// Failed is the number of results with runs that failed, and of peers that
// could not take part. Peers that cannot run a case at all are gaps unless it
// is judged by them.
func (r Report) Failed() int {
	count := len(r.Skipped)
	for _, result := range r.Results {
		if result.Failure != "" && (result.Runs > 0 || r.judgesBy(result)) {
			count++
		}
	}
	return count
}

// judgesBy reports whether a claim, a target or a ratio is judged by a result.
func (r Report) judgesBy(result CaseResult) bool {
	return r.Claims != nil || strings.HasPrefix(result.Peer, PeerWeir) || slices.ContainsFunc(r.Results, func(other CaseResult) bool {
		return other.id() == result.id() && slices.ContainsFunc(other.Ratios, func(ratio Ratio) bool { return ratio.Over == result.Peer })
	})
}

// failureGaps names the peers that could not run a case at all, if nothing is judged by them there.
func (r Report) failureGaps() (gaps []string) {
	for _, result := range r.Results {
		if result.Failure != "" && result.Runs == 0 && !r.judgesBy(result) {
			gaps = append(gaps, fmt.Sprintf("The peer %s was left out of %s, as each run failed: %s.", result.Peer, result.id(), result.Failure))
		}
	}
	return gaps
}

// id names the case of a result.
func (c CaseResult) id() string { return c.Group + ": " + c.Case }

// caseKey names a case of a report.
type caseKey struct{ group, name string }

// cases returns the cases of a report in order.
func (r Report) cases() []caseKey {
	return measure.Distinct(r.Results, func(result CaseResult) caseKey { return caseKey{result.Group, result.Case} })
}

// of lists the results of a case by those peers that could run it.
func (r Report) of(key caseKey) []CaseResult {
	var results []CaseResult
	for _, result := range r.Results {
		if (caseKey{result.Group, result.Case}) == key && result.Runs > 0 {
			results = append(results, result)
		}
	}
	return results
}
