package bench

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/weir-project/weir/internal/policy"
)

// maxRowsPerCase is the number of containers up to which each has a row;
// beyond, a case has one row with its worst container.
const maxRowsPerCase = 10

// WriteTable prints a report for people: one aligned table per kind of
// result. Rates are in Mbit/s on the wire.
func (r Report) WriteTable(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, write := range []func(io.Writer){
		r.writeShares, r.writeOvershoots, r.writeReactions, r.writeCosts, r.writeLatencies, r.writeFailures, r.writeVerdicts,
	} {
		write(tab)
		if err := tab.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// row writes cells of a table.
func row(w io.Writer, cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }

func (r Report) writeShares(w io.Writer) {
	header := []string{"CASE", "CONTAINER", "PEER", "PAPER", "IDEAL", "MEASURED", "SPREAD", "ERROR", "LINK USE"}
	for _, c := range r.cases() {
		results := r.of(c)
		if len(results) == 0 || results[0].Shares == nil {
			continue
		}
		if header != nil {
			row(w, header...)
			header = nil
		}
		if len(results[0].Shares) > maxRowsPerCase {
			for _, result := range results {
				worst := result.worstShare()
				worst.Container = fmt.Sprintf("worst of %d: %s", len(result.Shares), worst.Container)
				shareRow(w, result, worst, true)
			}
			continue
		}
		for i := range results[0].Shares {
			for _, result := range results {
				shareRow(w, result, result.Shares[i], i == 0)
			}
		}
	}
	if header == nil {
		row(w)
	}
}

func shareRow(w io.Writer, result CaseResult, share Share, first bool) {
	paper, use := "-", ""
	if share.PaperBPS != nil {
		paper = mbps(*share.PaperBPS)
	}
	if first && result.LinkUse != nil {
		use = fmt.Sprintf("%.1f %%", result.LinkUse.Median*100)
	}
	row(w, result.Group+": "+result.Case, share.Container, result.Peer, paper, mbps(float64(share.IdealBPS)),
		mbps(share.Measured.Median), spread(share.Measured, mbps), signedPercent(share.Error), use)
}

func (c CaseResult) worstShare() (worst Share) {
	for _, share := range c.Shares {
		if math.Abs(share.Error) >= math.Abs(worst.Error) {
			worst = share
		}
	}
	return worst
}

func (r Report) writeOvershoots(w io.Writer) {
	header := []string{"CASE", "PEER", "CAP", "OVERSHOOT IN ANY 100 MS", "SPREAD", "ONE FRAME IS"}
	r.section(w, header, func(c CaseResult) bool { return c.Overshoot != nil }, func(c CaseResult) {
		o := c.Overshoot
		row(w, c.Group+": "+c.Case, c.Peer, policy.FormatRateShort(o.CapBPS), signedPercent(o.Fraction.Median),
			spread(o.Fraction, signedPercent), fmt.Sprintf("%.2f %%", o.OneFrame*100))
	})
}

func (r Report) writeReactions(w io.Writer) {
	header := []string{"CASE", "PEER", "AT", "CHANGE", "SETTLED AFTER", "SPREAD", "RUNS", "WITHIN 5 %"}
	r.section(w, header, func(c CaseResult) bool { return c.Reactions != nil }, func(c CaseResult) {
		for _, reaction := range c.Reactions {
			settled := "never"
			if reaction.SettledRuns > 0 {
				settled = ms(reaction.SettleMS.Median) + " ms"
			}
			row(w, c.Group+": "+c.Case, c.Peer, fmt.Sprintf("%.1f s", reaction.AtMS/1000), reaction.Change,
				settled, spread(reaction.SettleMS, ms), fmt.Sprintf("%d/%d", reaction.SettledRuns, c.Runs),
				fmt.Sprintf("%.1f %%", reaction.Held.Median*100))
		}
	})
}

func (r Report) writeCosts(w io.Writer) {
	header := []string{"CASE", "PEER", "CPU", "SPREAD", "CPU MS/GBIT", "PACKETS/S", "MBIT/S"}
	r.section(w, header, func(c CaseResult) bool { return c.Cost != nil }, func(c CaseResult) {
		percent := func(v float64) string { return fmt.Sprintf("%.1f %%", v*100) }
		row(w, c.Group+": "+c.Case, c.Peer, percent(c.Cost.CPUUse.Median), spread(c.Cost.CPUUse, percent),
			fmt.Sprintf("%.1f", c.Cost.CPUSecondsPerGbit.Median*1000),
			fmt.Sprintf("%.0f", c.Cost.PacketsPerSecond.Median), mbps(c.Cost.RateBPS.Median))
	})
}

func (r Report) writeLatencies(w io.Writer) {
	header := []string{"CASE", "PEER", "PAPER MS", "MEAN MS", "SPREAD", "P50", "P99", "LOST"}
	r.section(w, header, func(c CaseResult) bool { return c.Latency != nil }, func(c CaseResult) {
		l := c.Latency
		paper := "-"
		if l.PaperMS != nil {
			paper = fmt.Sprintf("%.1f", *l.PaperMS)
		}
		row(w, c.Group+": "+c.Case, c.Peer, paper, ms(l.MeanMS.Median), spread(l.MeanMS, ms),
			ms(l.P50MS.Median), ms(l.P99MS.Median), fmt.Sprintf("%d/%d", l.Lost, l.Sent))
	})
}

func (r Report) writeFailures(w io.Writer) {
	r.section(w, []string{"FAILED", "PEER", "WHY"}, func(c CaseResult) bool { return c.Failure != "" }, func(c CaseResult) {
		row(w, c.Group+": "+c.Case, c.Peer, c.Failure)
	})
	for _, name := range PeerNames() {
		if why, ok := r.Skipped[name]; ok {
			row(w, "peer "+name+" skipped: "+why)
		}
	}
}

func (r Report) writeVerdicts(w io.Writer) {
	if len(r.Verdicts) == 0 {
		return
	}
	row(w, "TARGET OF WEIR", "LIMIT", "WORST", "VERDICT", "WHERE")
	for _, v := range r.Verdicts {
		row(w, v.Target, v.Limit, v.Measured, v.word(), v.Where)
	}
}

func (v Verdict) word() string {
	if v.Met {
		return "met"
	}
	return "MISSED"
}

// section writes a table of the results that have something to show.
func (r Report) section(w io.Writer, header []string, has func(CaseResult) bool, write func(CaseResult)) {
	any := false
	for _, result := range r.Results {
		if !has(result) {
			continue
		}
		if !any {
			row(w, header...)
			any = true
		}
		write(result)
	}
	if any {
		row(w)
	}
}

// caseKey names a case of a report.
type caseKey struct{ group, name string }

// cases lists the cases of a report in order.
func (r Report) cases() []caseKey {
	var keys []caseKey
	seen := map[caseKey]bool{}
	for _, result := range r.Results {
		if key := (caseKey{result.Group, result.Case}); !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys
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

func mbps(bps float64) string { return fmt.Sprintf("%.2f", bps/1e6) }

func ms(value float64) string { return fmt.Sprintf("%.3g", value) }

func signedPercent(fraction float64) string { return fmt.Sprintf("%+.2f %%", fraction*100) }

// spread is "least-most", or nothing where it says nothing.
func spread(s Spread, format func(float64) string) string {
	if s.Min == s.Max {
		return ""
	}
	return format(s.Min) + " .. " + format(s.Max)
}

// Failed is the number of results with runs that failed.
func (r Report) Failed() int {
	count := 0
	for _, result := range r.Results {
		if result.Failure != "" {
			count++
		}
	}
	return count
}
