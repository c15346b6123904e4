package bench

import (
	"fmt"
	"math"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
)

// Weir's targets.
const (
	targetShareError = 0.01
	targetShortfall  = 0.01
	targetOvershoot  = 0.01
	targetLinkUse    = 0.99

	// targetAddedLatencyMS is what bulk traffic of others may add to the 99th
	// percentile of the round trips of a container with a latency bound: two
	// full frames at 100 Mbit/s, and what timers and wake-ups take.
	targetAddedLatencyMS = 0.3
	// targetBusyLatencyMS is the same percentile for sparse traffic inside a
	// busy container.
	targetBusyLatencyMS = 10

	targetOverheadAlone     = 0.002
	targetOverheadCompeting = 0.01

	// The targets for the agent: CPU and memory with up to targetAgentContainers, start time with
	// any number.
	targetAgentContainers = 50
	targetAgentCPU        = 0.01
	targetAgentBytes      = 30e6
	targetAgentStartMS    = 3000
	// Targets with open pages: the agent's memory and the control loop's delay; and the CPU for
	// scrapes.
	targetWatchedBytes = 40e6
	targetTurnP99MS    = 55
	targetScrapeMS     = 50
	targetScrapeCPU    = 0.05
	// targetFlat is the smallest packet rate with many containers, relative to one container.
	targetFlat = 0.95
)

// disturbedCPU is the fraction of busy CPUs from which a result is marked as disturbed.
const disturbedCPU = 0.9

// disturbedByTheft is the fraction of CPU time stolen by the hypervisor from which a result is
// marked.
const disturbedByTheft = 0.02

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

// coarsePacket is the fraction of a share above which a packet more or less
// says so: the run was short for the rate.
const coarsePacket = 0.005

// worst is the largest value seen and its case.
type worst struct {
	value float64
	where string
	found bool
}

func (w *worst) see(value float64, where string) {
	if !w.found || value > w.value {
		*w = worst{value, where, true}
	}
}

// extremes are Weir's worst values for each target.
type extremes struct {
	shareError, shortfall, excess, idleLink, settle worst

	added, busy, aloneLoss, competingLoss, notFlat worst

	agentCPU, agentBytes, agentStart, watchedBytes, turnP99, scrape, scrapeCPU worst

	failed []string
}

func (f *extremes) see(result CaseResult) {
	where := result.id() + disturbance(result)
	if result.Failure != "" {
		f.failed = append(f.failed, where)
	}
	f.seeShares(result.Shares, where)
	if result.LinkUse != nil {
		f.idleLink.see(-result.LinkUse.Median, where)
	}
	if result.Overshoot != nil {
		// The last frame is sent whole, so a window holds one more than
		// the ceiling's worth. A maximum that was exceeded once was exceeded:
		// the worst repeat counts.
		f.excess.see(result.Overshoot.Fraction.Max-result.Overshoot.OneFrame, where)
	}
	for _, reaction := range result.Reactions {
		seeReaction(&f.settle, reaction, result.Runs, where)
	}
	if l := result.Latency; l != nil && l.LimitMS != nil {
		if l.BaselineP99MS != nil {
			f.added.see(l.P99MS.Median-*l.BaselineP99MS, where)
		} else {
			f.busy.see(l.P99MS.Median, where)
		}
	}
	if o := result.Overhead; o != nil && o.Of == overheadBandwidth {
		if o.Senders > 1 {
			f.competingLoss.see(o.Fraction, where)
		} else {
			f.aloneLoss.see(o.Fraction, where)
		}
	}
	if result.Agent != nil {
		f.seeAgent(*result.Agent, result.Cost != nil, where)
	}
	if result.Cost != nil && result.Cost.PacketsOfBaseline != nil {
		f.notFlat.see(-*result.Cost.PacketsOfBaseline, where)
	}
}

func (f *extremes) seeShares(shares []Share, where string) {
	for _, share := range shares {
		at := where + ", " + share.Container
		if share.Phase != "" {
			at = where + ", " + share.Phase + ", " + share.Container
		}
		if share.OnePacket > coarsePacket {
			at += fmt.Sprintf(" (one packet is %.1f %%)", share.OnePacket*100)
		}
		f.shareError.see(math.Abs(share.Error), at)
		if share.MinBPS > 0 {
			f.shortfall.see(1-share.Measured.Median/float64(min(share.MinBPS, share.IdealBPS)), at)
		}
	}
}

// seeAgent records the agent's use; flooded marks a case with a packet flood, which is not its
// usual load.
func (f *extremes) seeAgent(a AgentUse, flooded bool, where string) {
	f.agentStart.see(a.StartMS.Median, where)
	switch {
	case a.Pages > 0:
		f.turnP99.see(a.TurnP99MS.Median, where)
		if a.Containers <= targetAgentContainers {
			f.watchedBytes.see(a.ResidentBytes.Median, where)
		}
	case a.ScrapeMS != nil:
		f.scrape.see(a.ScrapeMS.Median, where)
		if a.ScrapeCPU != nil {
			f.scrapeCPU.see(*a.ScrapeCPU, where)
		}
	case a.Containers <= targetAgentContainers && !flooded && !a.Dashboard:
		f.agentCPU.see(a.CPUOfCore.Median, where)
		f.agentBytes.see(a.ResidentBytes.Median, where)
	}
}

// verdicts compares Weir's results with its targets. Targets without a result are left out; a
// failed run is a missed target.
func verdicts(results []CaseResult) []report.Verdict {
	var f extremes
	for _, result := range results {
		if result.Peer == PeerWeir {
			f.see(result)
		}
	}
	var list []report.Verdict
	if len(f.failed) > 0 {
		list = append(list, report.Verdict{
			Target: "every run succeeds", Limit: "all cases",
			Measured: fmt.Sprintf("%d failed", len(f.failed)), Where: strings.Join(f.failed, "; "),
		})
	}
	add := func(w worst, target, limit, measured string, met bool) {
		if w.found {
			list = append(list, report.Verdict{Target: target, Limit: limit, Measured: measured, Where: w.where, Met: met})
		}
	}
	percent := func(fraction float64) string { return fmt.Sprintf("%.2f %%", fraction*100) }
	add(f.shareError, "share error", "at most 1 %", percent(f.shareError.value), f.shareError.value <= targetShareError)
	add(f.shortfall, "floor shortfall", "at most 1 %", percent(max(f.shortfall.value, 0)), f.shortfall.value <= targetShortfall)
	add(f.excess, "cap overshoot in any 100 ms of any run, less one frame", "at most 1 %", percent(f.excess.value), f.excess.value <= targetOvershoot)
	add(f.idleLink, "link use", "at least 99 %", percent(-f.idleLink.value), -f.idleLink.value >= targetLinkUse)
	settled := fmt.Sprintf("%.0f ms", f.settle.value)
	if f.settle.value >= neverSettledMS {
		settled = "not before the next change"
	}
	ms := func(value float64) string { return fmt.Sprintf("%.3g ms", value) }
	add(f.added, "p99 of a latency class beside bulk of others, above idle", "at most 0.3 ms", ms(f.added.value), f.added.value <= targetAddedLatencyMS)
	add(f.busy, "p99 of sparse traffic inside a busy container", "at most 10 ms", ms(f.busy.value), f.busy.value <= targetBusyLatencyMS)
	add(f.aloneLoss, "bandwidth lost without competition", "at most 0.2 %", percent(f.aloneLoss.value), f.aloneLoss.value <= targetOverheadAlone)
	add(f.competingLoss, "bandwidth lost with competition", "at most 1 %", percent(f.competingLoss.value), f.competingLoss.value <= targetOverheadCompeting)
	add(f.agentCPU, "agent's CPU time, of one core", "at most 1 %", percent(f.agentCPU.value), f.agentCPU.value <= targetAgentCPU)
	add(f.agentBytes, "agent's resident memory", "at most 30 MB", fmt.Sprintf("%.1f MB", f.agentBytes.value/1e6), f.agentBytes.value <= targetAgentBytes)
	add(f.agentStart, "agent's start", "at most 3 s", fmt.Sprintf("%.0f ms", f.agentStart.value), f.agentStart.value <= targetAgentStartMS)
	add(f.watchedBytes, "agent's resident memory with pages open", "at most 40 MB", fmt.Sprintf("%.1f MB", f.watchedBytes.value/1e6), f.watchedBytes.value <= targetWatchedBytes)
	add(f.turnP99, "p99 of the control loop's period with pages open", "at most 55 ms", ms(f.turnP99.value), f.turnP99.value <= targetTurnP99MS)
	add(f.scrape, "scrape of /metrics", "at most 50 ms", ms(f.scrape.value), f.scrape.value <= targetScrapeMS)
	add(f.scrapeCPU, "CPU time of scrapes, of one core", "at most 5 %", percent(f.scrapeCPU.value), f.scrapeCPU.value <= targetScrapeCPU)
	add(f.notFlat, "packets per second with many containers, of those with one", "at least 95 %", percent(-f.notFlat.value), -f.notFlat.value >= targetFlat)
	add(f.settle, "time to the new allocation", "at most 50 ms", settled, f.settle.value <= measure.Milliseconds(reactionTarget))
	return list
}

// neverSettledMS marks a change after which the rates never settled.
const neverSettledMS = 1e9

func seeReaction(settle *worst, reaction Reaction, runs int, where string) {
	value := reaction.SettleMS.Median
	if reaction.SettledRuns < runs {
		value = neverSettledMS
	}
	settle.see(value, where+", "+reaction.Change)
}
