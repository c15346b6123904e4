package bench

import (
	"fmt"
	"math"
	"strings"

	"github.com/weir-project/weir/internal/report"
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

	// The targets for the agent itself: CPU and memory with up to
	// targetAgentContainers, the time to start with any number.
	targetAgentContainers = 50
	targetAgentCPU        = 0.01
	targetAgentBytes      = 30e6
	targetAgentStartMS    = 3000
	// With pages open: the memory, and how late the control loop may be. What a scrape
	// of any number of containers may take.
	targetWatchedBytes = 40e6
	targetTurnP99MS    = 55
	targetScrapeMS     = 50
	targetScrapeCPU    = 0.05
	// targetFlat is how many packets a second there must be with many
	// containers, of those with one.
	targetFlat = 0.95
)

// disturbedCPU is the fraction of busy CPUs above which a result says so: what
// is measured did not always run when it should have.
const disturbedCPU = 0.9

// disturbedByTheft is the same for CPUs that a hypervisor took.
const disturbedByTheft = 0.02

// disturbance says how the machine disturbed a result; empty if it did not.
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

// worst keeps the largest of some values and where it was found.
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

// verdicts compares what Weir did with its targets. A target that no result is
// about is left out; a run that failed is a miss of its own.
func verdicts(results []CaseResult) []report.Verdict {
	var shareError, shortfall, excess, idleLink, settle worst
	var added, busy, aloneLoss, competingLoss, agentCPU, agentBytes, agentStart, notFlat worst
	var watchedBytes, turnP99, scrape, scrapeCPU worst
	var failed []string
	var list []report.Verdict
	for _, result := range results {
		if result.Peer != PeerWeir {
			continue
		}
		where := result.id() + disturbance(result)
		if result.Failure != "" {
			failed = append(failed, where)
		}
		for _, share := range result.Shares {
			at := where + ", " + share.Container
			if share.Phase != "" {
				at = where + ", " + share.Phase + ", " + share.Container
			}
			if share.OnePacket > coarsePacket {
				at += fmt.Sprintf(" (one packet is %.1f %%)", share.OnePacket*100)
			}
			shareError.see(math.Abs(share.Error), at)
			if share.MinBPS > 0 {
				shortfall.see(1-share.Measured.Median/float64(min(share.MinBPS, share.IdealBPS)), at)
			}
		}
		if result.LinkUse != nil {
			idleLink.see(-result.LinkUse.Median, where)
		}
		if result.Overshoot != nil {
			// The last frame is sent whole, so a window holds one more than
			// the ceiling's worth. A maximum that was exceeded once was exceeded:
			// the worst repeat counts.
			excess.see(result.Overshoot.Fraction.Max-result.Overshoot.OneFrame, where)
		}
		for _, reaction := range result.Reactions {
			seeReaction(&settle, reaction, result.Runs, where)
		}
		if l := result.Latency; l != nil && l.LimitMS != nil {
			if l.BaselineP99MS != nil {
				added.see(l.P99MS.Median-*l.BaselineP99MS, where)
			} else {
				busy.see(l.P99MS.Median, where)
			}
		}
		if o := result.Overhead; o != nil && o.Of == overheadBandwidth {
			if o.Senders > 1 {
				competingLoss.see(o.Fraction, where)
			} else {
				aloneLoss.see(o.Fraction, where)
			}
		}
		if a := result.Agent; a != nil {
			agentStart.see(a.StartMS.Median, where)
			// A flood of packets is not what the agent usually runs beside.
			switch {
			case a.Pages > 0:
				turnP99.see(a.TurnP99MS.Median, where)
				if a.Containers <= targetAgentContainers {
					watchedBytes.see(a.ResidentBytes.Median, where)
				}
			case a.ScrapeMS != nil:
				scrape.see(a.ScrapeMS.Median, where)
				if a.ScrapeCPU != nil {
					scrapeCPU.see(*a.ScrapeCPU, where)
				}
			case a.Containers <= targetAgentContainers && result.Cost == nil && !a.Dashboard:
				agentCPU.see(a.CPUOfCore.Median, where)
				agentBytes.see(a.ResidentBytes.Median, where)
			}
		}
		if result.Cost != nil && result.Cost.PacketsOfBaseline != nil {
			notFlat.see(-*result.Cost.PacketsOfBaseline, where)
		}
	}
	if len(failed) > 0 {
		list = append(list, report.Verdict{
			Target: "every run succeeds", Limit: "all cases",
			Measured: fmt.Sprintf("%d failed", len(failed)), Where: strings.Join(failed, "; "),
		})
	}
	add := func(w worst, target, limit, measured string, met bool) {
		if w.found {
			list = append(list, report.Verdict{Target: target, Limit: limit, Measured: measured, Where: w.where, Met: met})
		}
	}
	percent := func(fraction float64) string { return fmt.Sprintf("%.2f %%", fraction*100) }
	add(shareError, "share error", "at most 1 %", percent(shareError.value), shareError.value <= targetShareError)
	add(shortfall, "floor shortfall", "at most 1 %", percent(max(shortfall.value, 0)), shortfall.value <= targetShortfall)
	add(excess, "cap overshoot in any 100 ms of any run, less one frame", "at most 1 %", percent(excess.value), excess.value <= targetOvershoot)
	add(idleLink, "link use", "at least 99 %", percent(-idleLink.value), -idleLink.value >= targetLinkUse)
	settled := fmt.Sprintf("%.0f ms", settle.value)
	if settle.value >= neverSettledMS {
		settled = "not before the next change"
	}
	ms := func(value float64) string { return fmt.Sprintf("%.3g ms", value) }
	add(added, "p99 of a latency class beside bulk of others, above idle", "at most 0.3 ms", ms(added.value), added.value <= targetAddedLatencyMS)
	add(busy, "p99 of sparse traffic inside a busy container", "at most 10 ms", ms(busy.value), busy.value <= targetBusyLatencyMS)
	add(aloneLoss, "bandwidth lost without competition", "at most 0.2 %", percent(aloneLoss.value), aloneLoss.value <= targetOverheadAlone)
	add(competingLoss, "bandwidth lost with competition", "at most 1 %", percent(competingLoss.value), competingLoss.value <= targetOverheadCompeting)
	add(agentCPU, "agent's CPU time, of one core", "at most 1 %", percent(agentCPU.value), agentCPU.value <= targetAgentCPU)
	add(agentBytes, "agent's resident memory", "at most 30 MB", fmt.Sprintf("%.1f MB", agentBytes.value/1e6), agentBytes.value <= targetAgentBytes)
	add(agentStart, "agent's start", "at most 3 s", fmt.Sprintf("%.0f ms", agentStart.value), agentStart.value <= targetAgentStartMS)
	add(watchedBytes, "agent's resident memory with pages open", "at most 40 MB", fmt.Sprintf("%.1f MB", watchedBytes.value/1e6), watchedBytes.value <= targetWatchedBytes)
	add(turnP99, "p99 of the control loop's period with pages open", "at most 55 ms", ms(turnP99.value), turnP99.value <= targetTurnP99MS)
	add(scrape, "scrape of /metrics", "at most 50 ms", ms(scrape.value), scrape.value <= targetScrapeMS)
	add(scrapeCPU, "CPU time of scrapes, of one core", "at most 5 %", percent(scrapeCPU.value), scrapeCPU.value <= targetScrapeCPU)
	add(notFlat, "packets per second with many containers, of those with one", "at least 95 %", percent(-notFlat.value), -notFlat.value >= targetFlat)
	add(settle, "time to the new allocation", "at most 50 ms", settled, settle.value <= milliseconds(reactionTarget))
	return list
}

// neverSettledMS stands for a change whose allocation was not reached.
const neverSettledMS = 1e9

func seeReaction(settle *worst, reaction Reaction, runs int, where string) {
	value := reaction.SettleMS.Median
	if reaction.SettledRuns < runs {
		value = neverSettledMS
	}
	settle.see(value, where+", "+reaction.Change)
}
