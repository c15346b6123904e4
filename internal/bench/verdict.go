package bench

import (
	"fmt"
	"math"
	"strings"
)

// Weir's targets.
const (
	targetShareError = 0.01
	targetShortfall  = 0.01
	targetOvershoot  = 0.01
	targetLinkUse    = 0.99
)

// disturbedCPU is the fraction of busy CPUs above which a result says so: what
// is measured did not always run when it should have.
const disturbedCPU = 0.9

// coarseFrame is the fraction of a share above which a frame more or less says
// so: the run was short for the rate.
const coarseFrame = 0.005

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
func verdicts(results []CaseResult) []Verdict {
	var shareError, shortfall, excess, idleLink, settle worst
	var failed []string
	var list []Verdict
	for _, result := range results {
		if result.Peer != PeerWeir {
			continue
		}
		where := result.id()
		if result.CPUBusy.Max > disturbedCPU {
			where += fmt.Sprintf(" (CPUs up to %.0f %% busy)", result.CPUBusy.Max*100)
		}
		if result.Failure != "" {
			failed = append(failed, where)
		}
		for _, share := range result.Shares {
			at := where + ", " + share.Container
			if share.OneFrame > coarseFrame {
				at += fmt.Sprintf(" (one frame is %.1f %%)", share.OneFrame*100)
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
			// the ceiling's worth.
			excess.see(result.Overshoot.Fraction.Median-result.Overshoot.OneFrame, where)
		}
		for _, reaction := range result.Reactions {
			seeReaction(&settle, reaction, result.Runs, where)
		}
	}
	if len(failed) > 0 {
		list = append(list, Verdict{
			Target: "every run succeeds", Limit: "all cases",
			Measured: fmt.Sprintf("%d failed", len(failed)), Where: strings.Join(failed, "; "),
		})
	}
	add := func(w worst, target, limit, measured string, met bool) {
		if w.found {
			list = append(list, Verdict{Target: target, Limit: limit, Measured: measured, Where: w.where, Met: met})
		}
	}
	percent := func(fraction float64) string { return fmt.Sprintf("%.2f %%", fraction*100) }
	add(shareError, "share error", "at most 1 %", percent(shareError.value), shareError.value <= targetShareError)
	add(shortfall, "floor shortfall", "at most 1 %", percent(max(shortfall.value, 0)), shortfall.value <= targetShortfall)
	add(excess, "cap overshoot in any 100 ms, less one frame", "at most 1 %", percent(excess.value), excess.value <= targetOvershoot)
	add(idleLink, "link use", "at least 99 %", percent(-idleLink.value), -idleLink.value >= targetLinkUse)
	settled := fmt.Sprintf("%.0f ms", settle.value)
	if settle.value >= neverSettledMS {
		settled = "not before the next change"
	}
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
