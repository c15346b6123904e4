package bench

import (
	"fmt"
	"math"
	"strings"

	"github.com/weir-project/weir/internal/lab/report"
)

// target is one of Weir's own.
type target struct {
	name, limit string
	// bound is the largest value that meets the target. Values of which more is better are negative.
	bound float64
	text  func(value float64) string
}

// Weir's targets.
var (
	targetShare     = &target{"share error", "at most 1 %", 0.01, percentText}
	targetShortfall = &target{"floor shortfall", "at most 1 %", 0.01, func(v float64) string { return percentText(max(v, 0)) }}
	targetOvershoot = &target{"cap overshoot in any 100 ms of any run, less one frame", "at most 1 %", 0.01, percentText}
	targetLinkUse   = &target{"link use", "at least 99 %", -0.99, negatedPercentText}
	targetAdded     = &target{"p99 of a latency class beside bulk of others, above idle", "at most 0.3 ms", targetAddedLatencyMS, msText}
	targetBusy      = &target{"p99 of sparse traffic inside a busy container", "at most 10 ms", targetBusyLatencyMS, msText}
	targetAlone     = &target{"bandwidth lost without competition", "at most 0.2 %", 0.002, percentText}
	targetCompeting = &target{"bandwidth lost with competition", "at most 1 %", 0.01, percentText}
	targetCPU       = &target{"agent's CPU time, of one core", "at most 1 %", 0.01, percentText}
	targetMemory    = &target{"agent's resident memory", "at most 30 MB", 30e6, megabytesText}
	targetStart     = &target{"agent's start", "at most 3 s", 3000, wholeMSText}
	targetWatched   = &target{"agent's resident memory with pages open", "at most 40 MB", 40e6, megabytesText}
	targetTurn      = &target{"p99 of the control loop's period with pages open", "at most 55 ms", 55, msText}
	targetScrape    = &target{"scrape of /metrics", "at most 50 ms", 50, msText}
	targetScrapeCPU = &target{"CPU time of scrapes, of one core", "at most 5 %", 0.05, percentText}
	targetFlat      = &target{"packets per second with many containers, of those with one", "at least 95 %", -0.95, negatedPercentText}
	targetSettle    = &target{"time to the new allocation", "at most 50 ms", 50, func(v float64) string {
		if v >= neverSettledMS {
			return "not before the next change"
		}
		return wholeMSText(v)
	}}

	// targets are in the order of reports.
	targets = []*target{
		targetShare, targetShortfall, targetOvershoot, targetLinkUse, targetAdded, targetBusy, targetAlone, targetCompeting, targetCPU,
		targetMemory, targetStart, targetWatched, targetTurn, targetScrape, targetScrapeCPU, targetFlat, targetSettle,
	}
)

func percentText(fraction float64) string        { return fmt.Sprintf("%.2f %%", fraction*100) }
func negatedPercentText(fraction float64) string { return percentText(-fraction) }
func msText(ms float64) string                   { return fmt.Sprintf("%.3g ms", ms) }
func wholeMSText(ms float64) string              { return fmt.Sprintf("%.0f ms", ms) }
func megabytesText(bytes float64) string         { return fmt.Sprintf("%.1f MB", bytes/1e6) }

const (
	// targetAddedLatencyMS is what bulk traffic of others may add to the 99th percentile of the round
	// trips of a container with a latency bound: two full frames at 100 Mbit/s, and the delays of
	// timers and wake-ups.
	targetAddedLatencyMS = 0.3
	// targetBusyLatencyMS is the same percentile for sparse traffic inside a busy container.
	targetBusyLatencyMS = 10
	// targetAgentContainers is the largest number of containers for which the agent's targets for CPU
	// and memory hold.
	targetAgentContainers = 50
	// neverSettledMS marks a change after which the rates never settled.
	neverSettledMS = 1e9
	// disturbedCPU is the fraction of busy CPUs from which a result is marked as disturbed.
	disturbedCPU = 0.9
	// disturbedByTheft is the fraction of CPU time stolen by the hypervisor from which a result is
	// marked.
	disturbedByTheft = 0.02
	// coarsePacket is the fraction of a share above which the size of one packet is noted: the run was
	// short for the rate.
	coarsePacket = 0.005
)

// disturbance returns how the machine disturbed a result; empty if it did not.
func disturbance(result CaseResult) string {
	var notes []string
	if result.CPUBusy.Max > disturbedCPU {
		notes = append(notes, fmt.Sprintf("%.0f %% busy", result.CPUBusy.Max*100))
	}
	if result.CPUStolen.Max > disturbedByTheft {
		notes = append(notes, fmt.Sprintf("%.0f %% stolen", result.CPUStolen.Max*100))
	}
	if len(notes) == 0 {
		return ""
	}
	return " (CPUs up to " + strings.Join(notes, ", ") + ")"
}

// extremes holds the worst value seen for each target.
type extremes map[*target]extreme

type extreme struct {
	value float64
	where string
}

func (e extremes) see(t *target, value float64, where string) {
	if worst, found := e[t]; !found || value > worst.value {
		e[t] = extreme{value, where}
	}
}

func (e extremes) seeResult(result CaseResult, where string) {
	e.seeShares(result.Shares, where)
	if result.LinkUse != nil {
		e.see(targetLinkUse, -result.LinkUse.Median, where)
	}
	if o := result.Overshoot; o != nil {
		// The last frame is sent whole, so a window holds one more than the ceiling's worth. A maximum
		// that was exceeded once was exceeded: the worst repeat counts.
		e.see(targetOvershoot, o.Fraction.Max-o.OneFrame, where)
	}
	for _, reaction := range result.Reactions {
		value := reaction.SettleMS.Median
		if reaction.SettledRuns < result.Runs {
			value = neverSettledMS
		}
		e.see(targetSettle, value, where+", "+reaction.Change)
	}
	if l := result.Latency; l != nil && l.LimitMS != nil {
		if l.BaselineP99MS != nil {
			e.see(targetAdded, l.P99MS.Median-*l.BaselineP99MS, where)
		} else {
			e.see(targetBusy, l.P99MS.Median, where)
		}
	}
	if o := result.Overhead; o != nil && o.Of == overheadBandwidth {
		if o.Senders > 1 {
			e.see(targetCompeting, o.Fraction, where)
		} else {
			e.see(targetAlone, o.Fraction, where)
		}
	}
	if result.Agent != nil {
		e.seeAgent(*result.Agent, result.Cost != nil, where)
	}
	if result.Cost != nil && result.Cost.PacketsOfBaseline != nil {
		e.see(targetFlat, -*result.Cost.PacketsOfBaseline, where)
	}
}

func (e extremes) seeShares(shares []Share, where string) {
	for _, share := range shares {
		at := where + ", " + share.Container
		if share.Phase != "" {
			at = where + ", " + share.Phase + ", " + share.Container
		}
		if share.OnePacket > coarsePacket {
			at += fmt.Sprintf(" (one packet is %.1f %%)", share.OnePacket*100)
		}
		e.see(targetShare, math.Abs(share.Error), at)
		if share.MinBPS > 0 {
			e.see(targetShortfall, 1-share.Measured.Median/float64(min(share.MinBPS, share.IdealBPS)), at)
		}
	}
}

// seeAgent records the agent's use; flooded marks a case with a packet flood, which is not its
// usual load.
func (e extremes) seeAgent(a AgentUse, flooded bool, where string) {
	e.see(targetStart, a.StartMS.Median, where)
	switch {
	case a.Pages > 0:
		e.see(targetTurn, a.TurnP99MS.Median, where)
		if a.Containers <= targetAgentContainers {
			e.see(targetWatched, a.ResidentBytes.Median, where)
		}
	case a.ScrapeMS != nil:
		e.see(targetScrape, a.ScrapeMS.Median, where)
		if a.ScrapeCPU != nil {
			e.see(targetScrapeCPU, *a.ScrapeCPU, where)
		}
	case a.Containers <= targetAgentContainers && !flooded && !a.Dashboard:
		e.see(targetCPU, a.CPUOfCore.Median, where)
		e.see(targetMemory, a.ResidentBytes.Median, where)
	}
}

// verdicts compares Weir's results with its targets. Targets without a result are left out; a
// failed run is a missed target.
func verdicts(results []CaseResult) []report.Verdict {
	worst := extremes{}
	var failed []string
	for _, result := range results {
		if result.Peer != PeerWeir {
			continue
		}
		where := result.id() + disturbance(result)
		if result.Failure != "" {
			failed = append(failed, where)
		}
		worst.seeResult(result, where)
	}
	var list []report.Verdict
	if len(failed) > 0 {
		list = append(list, report.Verdict{
			Target: "every run succeeds", Limit: "all cases",
			Measured: fmt.Sprintf("%d failed", len(failed)), Where: strings.Join(failed, "; "),
		})
	}
	for _, t := range targets {
		if found, seen := worst[t]; seen {
			list = append(list, report.Verdict{
				Target: t.name, Limit: t.limit, Measured: t.text(found.value), Where: found.where, Met: found.value <= t.bound,
			})
		}
	}
	return list
}
