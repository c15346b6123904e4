package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// target is one of Weir's own, judged by the worst run of the worst case, which is what a user
// meets; what compares two cases is judged by their medians.
type target struct {
	name string
	// bound is the largest value that meets the target. Values of which more is better are negative.
	bound float64
	unit  unit
}

// unit shows a value: times factor, in a format, with a name.
type unit struct {
	name, format string
	factor       float64
}

var (
	percent   = unit{"%", "%.2f", 100}
	ms        = unit{"ms", "%.3g", 1}
	gigabits  = unit{"Gbit/s", "%.2f", 1e-9}
	thousands = unit{"thousand a second", "%.0f", 1e-3}
	wholeMS   = unit{"ms", "%.0f", 1} // of changes, which may never settle
	seconds   = unit{"s", "%.1f", 1e-3}
	megabytes = unit{"MB", "%.1f", 1e-6}
)

// Weir's targets.
var (
	targetShare     = &target{"share error", 0.01, percent}
	targetShortfall = &target{"minimum shortfall", 0.01, percent}
	targetOvershoot = &target{"excess over a maximum in any 100 ms of any run, less one frame", 0.01, percent}
	targetLinkUse   = &target{"link use", -0.99, percent}
	targetAdded999  = &target{"p99.9 of a latency container beside bulk, above idle", 0.5, ms}
	targetAdded     = &target{"p99 of a latency class beside bulk of others, above idle", targetAddedLatencyMS, ms}
	targetBusy      = &target{"p99 of sparse traffic inside a busy container", targetBusyLatencyMS, ms}
	targetAlone     = &target{"bandwidth lost without competition", 0.002, percent}
	targetCompeting = &target{"bandwidth lost with competition", 0.01, percent}
	targetCPU       = &target{"agent's CPU time, of one core", 0.01, percent}
	targetSilent    = &target{"agent's CPU time while all are silent, of one core", 0.003, percent}
	targetFlooded   = &target{"agent's CPU time beside a flood of up to 1000 containers, of one core", 0.02, percent}
	targetMemory    = &target{"agent's memory, with its BPF maps", 25e6, megabytes}
	targetStart     = &target{"agent's start", 3000, seconds}
	targetWatched   = &target{"agent's memory with pages open", 32e6, megabytes}
	targetWatching  = &target{"agent's CPU time with pages open, of one core", 0.02, percent}
	targetTurn      = &target{"p99 of the control loop's period with pages open", 55, ms}
	targetScrape    = &target{"scrape of /metrics", 50, ms}
	targetScrapeCPU = &target{"CPU time of scrapes, of one core", 0.05, percent}
	targetFlat      = &target{"packets per second with many containers, of those with one", -0.95, percent}
	targetSettle    = &target{"time to the new allocation", measure.Milliseconds(reactionTarget), wholeMS}
	// Of what comes in.
	targetInUDP     = &target{"share error of UDP that comes in", 0.01, percent}
	targetInTCP     = &target{"share error of TCP that comes in", 0.02, percent}
	targetInMinimum = &target{"a minimum of what comes in, in the worst second", -0.99, percent}
	targetInFirst   = &target{"excess over a maximum of what comes in, first second", 0.05, percent}
	targetInOver    = &target{"excess over a maximum of what comes in, in any 100 ms after it, less one frame", 0.02, percent}
	targetArrives   = &target{"what arrives of --in-rate, in the worst second", 1.01, percent}
	targetGoodput   = &target{"what is received of --in-rate", -0.94, percent}
	targetInAdded   = &target{"p99 of a sparse download beside 16 bulk ones of others, above idle", targetInLatencyMS, ms}
	targetInOwn     = &target{"p99 of a sparse download beside 16 bulk ones of its container, above idle", targetInOwnLatencyMS, ms}
	targetInRate    = &target{"TCP that comes in without a rate", -targetInBPS, gigabits}
	targetInPackets = &target{"64-byte packets that come in", -targetInPPS, thousands}
	targetInSettle  = map[string]*target{
		"udp": {"time to the new allocation, UDP that comes in", 20, wholeMS},
		"tcp": {"time to the new allocation, TCP that comes in", 200, wholeMS},
	}

	// targets are in the order of reports.
	targets = []*target{
		targetShare, targetShortfall, targetOvershoot, targetLinkUse, targetAdded, targetAdded999, targetBusy, targetAlone, targetCompeting,
		targetSilent, targetCPU, targetFlooded, targetMemory, targetStart, targetWatched, targetWatching, targetTurn, targetScrape, targetScrapeCPU, targetFlat, targetSettle,
		targetInUDP, targetInTCP, targetInMinimum, targetInFirst, targetInOver, targetArrives, targetGoodput, targetInAdded, targetInOwn,
		targetInSettle["udp"], targetInSettle["tcp"], targetInRate, targetInPackets,
	}
)

// wakesChange is for round trips whose tail is the machine's. It names the trace (docs/measurements.md).
const wakesChange = "the measuring programs would have to wake sooner: in a trace of `d45e17f9` 96 % of the longest round trips waited for a processor at their ends, on a kernel that does not preempt itself"

// What comes in misses its aims with BBR.
const (
	bbrChange      = "BBR would have to take losses for a sign of a full link"
	bbrQueueChange = "BBR would have to leave the queue before the uplink short: the queue of what comes in is behind it"
)

// changes are what would have to change for targets whose miss has a known cause.
var changes = map[*target]string{
	targetMemory:          "smaller maps of flows and delays, or a runtime with a smaller heap",
	targetCPU:             "the agent would have to read demand and counters, and check taps, when something happens, not each tick",
	targetSilent:          "checks of the whole state and of taps would have to become rarer, or events of the kernel",
	targetWatching:        "the loop would have to take less for those that send: that is most of it, as a page gets its snapshots in one response",
	targetFlooded:         "checks of taps and of the whole state would have to look at changed containers only",
	targetOvershoot:       "HTB's ceiling would have to be further below a maximum, or save less, which costs a part of the maximum",
	targetAdded:           wakesChange,
	targetAdded999:        wakesChange,
	targetInTCP:           bbrChange,
	targetArrives:         bbrChange,
	targetGoodput:         bbrChange + ": what is lost comes again",
	targetInMinimum:       bbrChange,
	targetInAdded:         bbrQueueChange,
	targetInOwn:           bbrQueueChange,
	targetInSettle["udp"]: "the first look at a change would have to come sooner than two samples of the queue, of 10 ms each, agree",
	targetInSettle["tcp"]: "queues would have to hold what senders grow by: longer ones, behind which a sparse download waits",
	targetSettle:          "TCP senders would have to go on sending while the machine is busy, and with balanced packets to be smaller",
}

// ToMeet returns what would have to change for the target of a name, "" if that is not known.
func ToMeet(target string) string {
	for t, change := range changes {
		if strings.TrimSuffix(target, ", balanced") == t.name {
			return change
		}
	}
	for _, aim := range aimsFigure12 {
		if aim.peer == PeerWeir && aim.name == target {
			return "packets would have to be larger, as with precision balanced or low: each one wakes a processor"
		}
	}
	return ""
}

// Limit returns the limit of the target of a name as text, and as a number, of which a negative one is the least.
func Limit(name string) (text string, bound float64, err error) {
	i := slices.IndexFunc(targets, func(t *target) bool { return t.name == name })
	if i < 0 {
		return "", 0, fmt.Errorf("there is no target %q", name)
	}
	return targets[i].limit(), targets[i].bound, nil
}

func (t *target) limit() string {
	if t.bound < 0 {
		return fmt.Sprintf("at least %g %s", -t.bound*t.unit.factor, t.unit.name)
	}
	return fmt.Sprintf("at most %g %s", t.bound*t.unit.factor, t.unit.name)
}

func (t *target) text(value float64) string {
	switch {
	case value >= neverSettledMS && t.unit == wholeMS:
		return "not before the next change"
	case t.bound < 0:
		value = -value
	}
	return fmt.Sprintf(t.unit.format+" %s", value*t.unit.factor, t.unit.name)
}

const (
	// targetAddedLatencyMS is what bulk traffic of others may add to the 99th percentile of the round
	// trips of a container with a latency bound: two full frames at 100 Mbit/s, and the delays of
	// timers and wake-ups.
	targetAddedLatencyMS = 0.3
	// targetInLatencyMS is what bulk downloads of other containers may add to a sparse one's.
	targetInLatencyMS = 10
	// targetInOwnLatencyMS is what they may add to one of their own container.
	targetInOwnLatencyMS = 15
	// targetInBPS and targetInPPS are what the smallest machine has to receive, in packets of any size and of 64
	// bytes: a port of 5 Gbit/s. What control costs is judged by aimInTCP.
	targetInBPS, targetInPPS = 5e9, 100e3
	// targetBusyLatencyMS is the same percentile for sparse traffic inside a busy container.
	targetBusyLatencyMS = 10
	// targetAgentContainers is the largest number of containers for which the agent's targets for CPU
	// and memory hold.
	targetAgentContainers = 50
	// leastPings are those of a run of which the 99.9th percentile says something: not all of it is the
	// slowest one.
	leastPings = 501
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
	// undecided: too little was measured to tell.
	undecided bool
}

// decision returns what a value says of the target.
func (t *target) decision(x extreme) report.Decision {
	switch {
	case x.undecided:
		return report.Undecided
	case x.value <= t.bound:
		return report.Met
	}
	return report.Missed
}

func (e extremes) see(t *target, value float64, where string) {
	e.note(t, extreme{value: value, where: where})
}

// note keeps the worst: what is missed comes before what is undecided, and that before what is met.
func (e extremes) note(t *target, x extreme) {
	worst, found := e[t]
	if !found || cmp.Or(byDecision(t.decision(x), t.decision(worst)), cmp.Compare(x.value, worst.value)) > 0 {
		e[t] = x
	}
}

// byDecision compares decisions; the worst is the largest.
func byDecision(a, b report.Decision) int {
	order := []report.Decision{report.Met, report.Undecided, report.Missed}
	return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
}

func (e extremes) seeResult(result CaseResult, where string) {
	if result.Incoming != nil {
		e.seeIncoming(result, where)
		return
	}
	e.seeShares(result.Shares, where)
	if result.LinkUse != nil {
		e.see(targetLinkUse, -result.LinkUse.Min, where)
	}
	if o := result.Overshoot; o != nil {
		// The last frame is sent whole, so a window holds one more than the ceiling's worth.
		e.see(targetOvershoot, o.Fraction.Max-o.OneFrame, where)
	}
	e.seeReactions(targetSettle, result, where)
	if l := result.Latency; l != nil && l.LimitMS != nil {
		if l.BaselineP99MS != nil {
			e.see(targetAdded, l.P99MS.Max-*l.BaselineP99MS, where)
			added := extreme{value: l.P999MS.Max - *l.BaselineP999MS, where: where}
			if l.Lost == 0 && l.Sent < leastPings*result.Runs { // a lost answer alone is more than the bound
				added.undecided = true
				added.where += fmt.Sprintf(", %d pings in %d runs: p99.9 takes %d a run", l.Sent, result.Runs, leastPings)
			}
			e.note(targetAdded999, added)
		} else {
			e.see(targetBusy, l.P99MS.Max, where)
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

// seeIncoming records what came in.
func (e extremes) seeIncoming(result CaseResult, where string) {
	in, target := result.Incoming, targetInUDP
	if in.Protocol == string(traffic.TCP) {
		target = targetInTCP
	}
	for _, share := range result.Shares {
		if in.FirstSecondOver == nil { // how much of a maximum one flow uses is its own matter
			e.see(target, share.worst(), where+", "+share.Container)
		}
	}
	if in.MinimumKept != nil {
		e.see(targetInMinimum, -in.MinimumKept.Min, where)
	}
	if in.FirstSecondOver != nil {
		e.see(targetInFirst, in.FirstSecondOver.Max, where)
		e.see(targetInOver, result.Overshoot.Fraction.Max-result.Overshoot.OneFrame, where)
	} else if in.ArrivesMost != nil && result.LinkUse != nil {
		e.see(targetArrives, in.ArrivesMost.Max, where)
		e.see(targetGoodput, -result.LinkUse.Min, where)
	}
	if l := result.Latency; l != nil && l.BaselineP99MS != nil {
		added := targetInAdded
		if l.OwnTraffic {
			added = targetInOwn
		}
		e.see(added, l.P99MS.Max-*l.BaselineP99MS, where)
	}
	switch {
	case result.Cost == nil:
	case target == targetInTCP:
		e.see(targetInRate, -result.Cost.RateBPS.Min, where)
	default:
		e.see(targetInPackets, -result.Cost.PacketsPerSecond.Min, where)
	}
	e.seeReactions(targetInSettle[in.Protocol], result, where)
}

// worst is the largest error of any run.
func (s Share) worst() float64 {
	return max(s.Measured.Max/float64(s.IdealBPS)-1, 1-s.Measured.Min/float64(s.IdealBPS))
}

func (e extremes) seeReactions(target *target, result CaseResult, where string) {
	for _, reaction := range result.Reactions {
		value := reaction.SettleMS.Max
		if reaction.SettledRuns < reaction.Changes {
			value = neverSettledMS
		}
		e.see(target, value, fmt.Sprintf("%s, %s, %d changes", where, reaction.Change, reaction.Changes))
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
		e.see(targetShare, share.worst(), at)
		if share.MinBPS > 0 {
			e.see(targetShortfall, max(1-share.Measured.Min/float64(min(share.MinBPS, share.IdealBPS)), 0), at)
		}
	}
}

// seeAgent records the agent's use; flooded marks a case with a packet flood, which is not its
// usual load.
func (e extremes) seeAgent(a AgentUse, flooded bool, where string) {
	e.see(targetStart, a.StartMS.Max, where)
	switch {
	case a.Pages > 0:
		e.see(targetTurn, a.TurnP99MS.Max, where)
		if a.Containers <= targetAgentContainers {
			e.see(targetWatched, a.MemoryBytes.Max, where)
			e.see(targetWatching, a.CPUOfCore.Max, where)
		}
	case a.ScrapeMS != nil:
		e.see(targetScrape, a.ScrapeMS.Max, where)
		if a.ScrapeCPU != nil {
			e.see(targetScrapeCPU, *a.ScrapeCPU, where)
		}
	case flooded:
		e.see(targetFlooded, a.CPUOfCore.Max, where)
	case a.Containers <= targetAgentContainers && !a.Dashboard:
		cpu := targetCPU
		if a.Senders == 0 {
			cpu = targetSilent
		}
		e.see(cpu, a.CPUOfCore.Max, where)
		e.see(targetMemory, a.MemoryBytes.Max, where)
	}
}

// verdicts compares Weir's results with its targets. Targets without a result are left out; a
// failed run is a missed target.
func verdicts(results []CaseResult) []report.Verdict {
	precisions := []struct {
		peer, suffix string
		worst        extremes
	}{{PeerWeir, "", extremes{}}, {PeerWeirBalanced, ", balanced", extremes{}}, {PeerWeirLow, ", low", nil}} // low has no targets but those of cost
	var failed []string
	for _, result := range results {
		for _, precision := range precisions {
			if result.Peer != precision.peer {
				continue
			}
			where := result.id() + precision.suffix + disturbance(result)
			if result.Failure != "" {
				failed = append(failed, where)
			}
			if precision.worst != nil {
				precision.worst.seeResult(result, where)
			}
		}
	}
	var list []report.Verdict
	if len(failed) > 0 {
		list = append(list, report.Verdict{
			Target: "every run succeeds", Limit: "all cases",
			Measured: fmt.Sprintf("%d failed", len(failed)), Where: strings.Join(failed, "; "),
		})
	}
	for _, t := range targets {
		for _, precision := range precisions {
			found, seen := precision.worst[t]
			if !seen {
				continue
			}
			one := report.Verdict{
				Target: t.name + precision.suffix, Limit: t.limit(), Measured: t.text(found.value), Where: found.where,
				Met: t.decision(found) == report.Met, Undecided: found.undecided,
			}
			if !one.Met {
				one.Change = ToMeet(t.name)
			}
			list = append(list, one)
		}
	}
	return append(list, ratioVerdicts(results)...)
}
