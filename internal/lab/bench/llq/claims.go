package llq

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/claim"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/share/policy"
)

const hostPath = "The path here is another: a container's interface, a bridge, NAT and the kernel's scheduler, on processors of a virtual machine " +
	"that receive as well; the paper measures at a switch's ports. No frame waits for another one. What is more than FIFO's on the same path " +
	"(docs/measurements.md) is the scheduler's work."

// ofFIFO is why a reduction has no control.
const ofFIFO = "the numbers are compared with FIFO's already"

// paperNumber is something that the paper gives three numbers of, one for each flow.
type paperNumber struct {
	what, unit string
	totalBPS   uint64
	paper      [3]float64
	// isFIFO numbers are FIFO's, the others those of who orders flows; reductions and
	// gains are against FIFO.
	isFIFO bool
	value  func(fifo, peer Flow) float64
}

func delayOf(f Flow) float64  { return f.DelayMS.Median }
func jitterOf(f Flow) float64 { return f.JitterMS.Median }

// reduction returns by how many percent a value is less than FIFO's.
func reduction(value func(Flow) float64) func(fifo, peer Flow) float64 {
	return func(fifo, peer Flow) float64 { return (1 - value(peer)/value(fifo)) * 100 }
}

// absolute returns a value in microseconds.
func absolute(value func(Flow) float64) func(fifo, peer Flow) float64 {
	return func(_, peer Flow) float64 { return value(peer) * 1e3 }
}

// The paper's numbers.
var (
	paperQuietDelay  = paperNumber{"delay without congestion", "µs", quietBPS, [3]float64{4.49, 4.43, 4.46}, false, absolute(delayOf)}
	paperQuietJitter = paperNumber{"jitter without congestion", "µs", quietBPS, [3]float64{1.02, 1.12, 1.09}, false, absolute(jitterOf)}
	paperDelay       = paperNumber{"delay less than FIFO's, congestion", "%", congestedBPS, [3]float64{99.996, 90.66, 27.84}, false, reduction(delayOf)}
	paperJitter      = paperNumber{"jitter less than FIFO's, congestion", "%", congestedBPS, [3]float64{99.85, 91.18, 34.13}, false, reduction(jitterOf)}
	paperThroughput  = paperNumber{"throughput more than FIFO's, congestion", "%", congestedBPS, [3]float64{90.17, 76.06, 18.5}, false,
		func(fifo, peer Flow) float64 {
			return (peer.ThroughputBPS.Median/fifo.ThroughputBPS.Median - 1) * 100
		}}

	paperQuietDelayLess  = paperNumber{"delay less than FIFO's, no congestion", "%", quietBPS, [3]float64{28.8, 28.3, 28.5}, false, reduction(delayOf)}
	paperQuietJitterLess = paperNumber{"jitter less than FIFO's, no congestion", "%", quietBPS, [3]float64{66.17, 61.61, 50.41}, false, reduction(jitterOf)}
	paperQuietThroughput = paperNumber{"throughput of FIFO's, no congestion", "%", quietBPS, [3]float64{100, 100, 100}, false,
		func(fifo, peer Flow) float64 { return peer.ThroughputBPS.Median / fifo.ThroughputBPS.Median * 100 }}

	paperNumbers = []paperNumber{
		{"delay without congestion", "µs", quietBPS, [3]float64{6.31, 6.18, 6.24}, true, absolute(delayOf)},
		paperQuietDelay, paperQuietDelayLess,
		{"jitter without congestion", "µs", quietBPS, [3]float64{3.02, 3.93, 2.20}, true, absolute(jitterOf)},
		paperQuietJitter, paperQuietJitterLess, paperQuietThroughput,
		paperDelay, paperJitter, paperThroughput,
	}

	// delayLeft is what a reduction leaves. Of 99.996 % a tolerance would be many times what the paper leaves.
	delayLeft = paperNumber{"delay left of FIFO's, congestion", "%", congestedBPS, [3]float64{0.004, 9.34, 72.16}, false,
		func(fifo, peer Flow) float64 { return delayOf(peer) / delayOf(fifo) * 100 }}
)

// of returns the number of a flow with a peer; nil if it was not measured.
func (n paperNumber) of(r Report, peer string, flow int) *float64 {
	return n.number(r, peer, flow).Measured
}

// number returns the number of a flow with a peer, without what it should be.
func (n paperNumber) number(r Report, peer string, flow int) claim.Number {
	return combine([]*Result{r.find(bench.PeerFIFO, n.totalBPS), r.find(peer, n.totalBPS)}, func(of []Result) float64 {
		return n.value(of[0].Flows[flow], of[1].Flows[flow])
	})
}

// combine returns a number of several results: by the median of its rounds if all were measured as often, otherwise by
// their medians. Measured is nil if one was not measured.
func combine(results []*Result, value func([]Result) float64) (n claim.Number) {
	medians, runs := make([]Result, len(results)), 0
	for i, one := range results {
		if one == nil {
			return n
		}
		if medians[i] = *one; i == 0 {
			runs = one.Runs
		} else if one.Runs != runs {
			runs = -1
		}
	}
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	if v := value(medians); finite(v) {
		n.Measured = &v
	}
	var rounds []float64
	for i := range runs {
		of := make([]Result, len(medians))
		for k, one := range medians {
			of[k] = one.round(i)
		}
		if v := value(of); finite(v) {
			rounds = append(rounds, v)
		}
	}
	return n.Over(rounds)
}

// round returns what claims compare of one round.
func (r Result) round(i int) Result {
	r.Flows = slices.Clone(r.Flows)
	for k := range r.Flows {
		f := &r.Flows[k]
		f.ThroughputBPS, f.DelayMS, f.JitterMS, f.Loss = f.ThroughputBPS.Round(i), f.DelayMS.Round(i), f.JitterMS.Round(i), f.Loss.Round(i)
	}
	return r
}

// numbers returns the numbers of some flows, each to be at least the paper's, or at most.
func (n paperNumber) numbers(r Report, peer string, rule claim.Rule, flows ...int) []claim.Number {
	var list []claim.Number
	for _, flow := range flows {
		number := n.number(r, peer, flow)
		number.Name, number.Unit, number.Rule = sentFlows[flow].name+", "+n.what, n.unit, rule
		number.Ideal, number.Paper, number.IsLimit = n.paper[flow], report.Number(n.paper[flow]), true
		list = append(list, number)
	}
	return list
}

// JudgeAgain judges the paper's claims, and Weir's targets, on a stored report of the suite by the rules of this build.
func (r *Report) JudgeAgain() {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	r.path, r.runFlags = hostPath, fmt.Sprintf("--duration %v --warmup %v --repeat %d", seconds(r.DurationS), seconds(r.WarmupS), r.Repeat)
	rounds := claim.RoundsOf(r.Quantities)
	for i := range r.Results {
		one := &r.Results[i]
		for k := range one.Flows {
			flow := &one.Flows[k]
			of := fmt.Sprintf("%s, %g Mbit/s, %s", one.Peer, float64(one.TotalBPS)/1e6, flow.Name)
			rounds.Restore(of, "throughput", &flow.ThroughputBPS)
			rounds.Restore(of, "delay", &flow.DelayMS)
			rounds.Restore(of, "jitter", &flow.JitterMS)
			rounds.Restore(of, "loss", &flow.Loss)
		}
	}
	r.Verdicts = r.targets()
	r.Claims = report.JudgedAgain(r.Claims, r.judge())
}

// judge judges the paper's claims for everyone who orders flows.
func (r Report) judge() []report.Claim {
	list := r.fifoClaims()
	for _, peer := range []string{bench.PeerHTB, bench.PeerWeir} {
		why, skipped := r.Skipped[peer]
		if !skipped && r.find(peer, congestedBPS) == nil && r.find(peer, quietBPS) == nil {
			continue
		}
		for _, judged := range r.judgePeer(peer) {
			if skipped {
				judged.Judgement, judged.Reason = report.NotMeasured, strings.ToUpper(peer[:1])+peer[1:]+" was left out: "+why+"."
			}
			list = append(list, judged)
		}
	}
	if r.Suite == Suite {
		list = append(list, r.unmeasured()...)
	}
	return list
}

// The flows in the order of sentFlows.
const (
	ef = iota
	af
	be
)

// Where the paper has its numbers, and the rates that stand for its conditions.
const (
	delaySection, jitterSection, throughputSection = "V.B.1", "V.B.2", "V.B.3"

	withoutCongestion = "Without congestion (here 60 Mbit/s in all) "
	withCongestion    = "With congestion (here 105 Mbit/s in all; the paper's flows approach 100) "
)

// judgePeer judges them for one.
func (r Report) judgePeer(peer string) []report.Claim {
	quiet, both := []uint64{quietBPS}, []uint64{quietBPS, congestedBPS}
	return []report.Claim{
		r.flatVoice(peer), r.guardedVideo(peer),
		r.judgeOne(peer, quiet, nil, claim.Claim{
			Section: "V.B.1, V.B.2", Where: "figures 8 and 10, " + peer, Says: withoutCongestion + "delays and jitters of all flows are some microseconds.",
			// Another machine: up to twice as much is "some".
			Numbers: claim.Within(1, append(paperQuietDelay.numbers(r, peer, claim.AtMost, ef, af, be),
				paperQuietJitter.numbers(r, peer, claim.AtMost, ef, af, be)...)),
			Control: claim.Within(1, append(paperQuietDelay.numbers(r, bench.PeerFIFO, claim.AtMost, ef, af, be),
				paperQuietJitter.numbers(r, bench.PeerFIFO, claim.AtMost, ef, af, be)...)),
			Otherwise: r.path,
		}),
		r.judgeOne(peer, quiet, nil, claim.Claim{
			Section: delaySection, Where: "figure 8, " + peer, Says: withoutCongestion + "three queues reduce the delay by 28.8, 28.3 and 28.5 % against one.",
			Numbers:   paperQuietDelayLess.numbers(r, peer, claim.AtLeast, ef, af, be),
			NoControl: ofFIFO,
			Otherwise: "A frame that meets an empty queue waits in none, however many there are; to choose among them takes work.",
		}),
		r.judgeOne(peer, quiet, nil, claim.Claim{
			Section: jitterSection, Where: "figure 10, " + peer,
			Says:      withoutCongestion + "three queues reduce the jitter by 66.17, 61.61 and 50.41 % against one (the paper's own 3.93 and 1.12 µs of video are 71.5 % apart, not 61.61).",
			Numbers:   paperQuietJitterLess.numbers(r, peer, claim.AtLeast, ef, af, be),
			NoControl: ofFIFO,
			Otherwise: "Frames that meet empty queues wait in none, however many there are: the jitter is that of the path.",
		}),
		r.judgeOne(peer, quiet, []float64{100, 100, 100}, claim.Claim{
			Section: throughputSection, Where: "figure 12, " + peer, Says: withoutCongestion + "the throughputs with one queue and with three are similar.",
			Numbers:   claim.Within(0.01, paperQuietThroughput.numbers(r, peer, claim.AtLeast, ef, af, be)),
			NoControl: ofFIFO,
			Otherwise: "More than 1 % is missing of what FIFO carries.",
		}),
		r.judgeOne(peer, both, r.delayIdeals(peer), claim.Claim{
			Section: delaySection, Where: "figures 7 and 9, " + peer, Says: withCongestion + "the delay of voice is 99.996 % less than FIFO's, that of video 90.66 %.",
			// Of voice, up to twice what the paper leaves.
			Numbers:   append(claim.Within(1, delayLeft.numbers(r, peer, claim.AtMost, ef)), paperDelay.numbers(r, peer, claim.AtLeast, af)...),
			NoControl: ofFIFO,
			Otherwise: r.whyDelayLeft(peer),
		}),
		r.judgeOne(peer, both, r.withoutOthers(peer, paperJitter), claim.Claim{
			Section: jitterSection, Where: "figure 11, " + peer, Says: withCongestion + "the jitter of voice is 99.85 % less than FIFO's, that of video 91.18 %.",
			Numbers:   paperJitter.numbers(r, peer, claim.AtLeast, ef, af),
			NoControl: ofFIFO,
			Otherwise: r.whyJitterLeft(peer),
		}),
		r.judgeOne(peer, []uint64{congestedBPS}, nil, claim.Claim{
			Section: delaySection, Where: "figure 9, " + peer, Says: withCongestion + "the delay of generic data is 27.84 % less than FIFO's, too.",
			Numbers:   append(paperDelay.numbers(r, peer, claim.AtLeast, be), r.moreLoss(peer, be)),
			NoControl: ofFIFO,
			Otherwise: r.whyGenericWaits(peer),
		}),
		r.judgeOne(peer, []uint64{congestedBPS}, nil, claim.Claim{
			Section: jitterSection, Where: "figure 11, " + peer, Says: withCongestion + "the jitter of generic data is 34.13 % less than FIFO's, too.",
			Numbers:   paperJitter.numbers(r, peer, claim.AtLeast, be),
			NoControl: ofFIFO,
			Otherwise: "Generic data waits for the others' frames, as many at a time as there are.",
		}),
		r.throughputClaim(peer),
	}
}

// judgeOne judges a claim. best are the best possible values of the first numbers.
func (r Report) judgeOne(peer string, totals []uint64, best []float64, c claim.Claim) report.Claim {
	if peer != bench.PeerWeir {
		c.About = peer // only Weir can exceed what the paper did
	}
	for i := range best {
		c.Numbers[i].Best = &best[i]
	}
	judged := c.Judge(claim.PaperLLQ, r.Claims...)
	judged.Command = r.command(peer, totals)
	return judged
}

// command returns what repeats the runs of rates with FIFO and a peer.
func (r Report) command(peer string, totals []uint64) string {
	if r.Suite != Suite {
		return ""
	}
	peers, rates := []string{bench.PeerFIFO}, make([]string, len(totals))
	if peer != bench.PeerFIFO {
		peers = append(peers, peer)
	}
	for i, total := range totals {
		rates[i] = policy.FormatRate(total)
	}
	return "weir bench llq " + r.runFlags + " --rates " + strings.Join(rates, ",") + " --peers " + strings.Join(peers, ",")
}

// upToCongestion returns a peer's results at the rates of figure 7, from the lowest on to congestion, and the rates. One is
// nil if the rate without or with congestion was not measured.
func (r Report) upToCongestion(peer string, most uint64) (results []*Result, totals []uint64) {
	totals = []uint64{quietBPS, min(congestedBPS, most)}
	for _, one := range r.Results {
		if one.TotalBPS <= most && one.TotalBPS <= congestedBPS && !slices.Contains(totals, one.TotalBPS) {
			totals = append(totals, one.TotalBPS)
		}
	}
	slices.Sort(totals)
	for _, total := range totals {
		results = append(results, r.find(peer, total))
	}
	return results, totals
}

// rise returns by how many milliseconds a flow's highest delay of all rates exceeds its lowest.
func rise(of []Result, flow int) float64 {
	lowest, highest := math.Inf(1), 0.0
	for _, one := range of {
		lowest, highest = min(lowest, delayOf(one.Flows[flow])), max(highest, delayOf(one.Flows[flow]))
	}
	return highest - lowest
}

// risesOneFrame returns how much a flow's delay varies with the rate, which is to be at most a frame's time: a frame on its
// way is not interrupted.
func (r Report) risesOneFrame(peer string, flow int, most uint64) claim.Number {
	results, totals := r.upToCongestion(peer, most)
	n := combine(results, func(of []Result) float64 { return rise(of, flow) * 1e3 })
	n.Name = fmt.Sprintf("%s, highest delay above the lowest, %g to %g Mbit/s", sentFlows[flow].name, float64(totals[0])/1e6, float64(totals[len(totals)-1])/1e6)
	n.Unit, n.Rule, n.Tolerance = "µs", claim.AtMost, sentFrameTimeMS*1e3
	return n
}

// influencedBPS is the rate from which on the paper's video is delayed by other flows.
const influencedBPS = 80e6

// flatVoice judges figure 7b's voice.
func (r Report) flatVoice(peer string) report.Claim {
	_, totals := r.upToCongestion(peer, congestedBPS)
	return r.judgeOne(peer, totals, nil, claim.Claim{
		Section: "V.B", Where: "figure 7, " + peer, Says: "The sending rate does not affect the delay of voice (here: by one frame's time at most).",
		Numbers:   []claim.Number{r.risesOneFrame(peer, ef, congestedBPS)},
		Control:   []claim.Number{r.risesOneFrame(bench.PeerFIFO, ef, congestedBPS)},
		Otherwise: "Voice waits for more than the frame that is on its way.",
	})
}

// guardedVideo judges figure 7b's video.
func (r Report) guardedVideo(peer string) report.Claim {
	own, totals := r.upToCongestion(peer, congestedBPS)
	fifo, _ := r.upToCongestion(bench.PeerFIFO, congestedBPS)
	slightly := combine(slices.Concat(own, fifo), func(of []Result) float64 {
		return rise(of[:len(own)], af) / rise(of[len(own):], af) * 100
	})
	slightly.Name, slightly.Unit, slightly.Rule, slightly.Tolerance = "video, rise of its delay with the rate, of FIFO's", claim.UnitPart, claim.AtMost, 10
	return r.judgeOne(peer, totals, nil, claim.Claim{
		Section: "V.B", Where: "figure 7, " + peer,
		Says:      "The sending rate affects the delay of video slightly, from 80 Mbit/s on (here: by one frame's time at most up to 80, and by at most a tenth of FIFO's rise in all).",
		Numbers:   []claim.Number{r.risesOneFrame(peer, af, influencedBPS), slightly},
		NoControl: ofFIFO,
		Otherwise: "Video waits for other flows' frames.",
	})
}

// fifoClaims judges figure 7a.
func (r Report) fifoClaims() []report.Claim {
	congested, quiet := r.find(bench.PeerFIFO, congestedBPS), r.find(bench.PeerFIFO, quietBPS)
	if congested == nil {
		return nil
	}
	mean := func(of Result) float64 {
		return measure.Mean([]float64{delayOf(of.Flows[ef]), delayOf(of.Flows[af]), delayOf(of.Flows[be])})
	}
	alike := combine([]*Result{congested}, func(of []Result) float64 {
		furthest := 0.0
		for _, flow := range of[0].Flows {
			furthest = max(furthest, math.Abs(delayOf(flow)/mean(of[0])-1)*100)
		}
		return furthest
	})
	alike.Name, alike.Unit, alike.Rule, alike.Tolerance = "the flow whose delay is furthest from the mean, off", claim.UnitPart, claim.AtMost, 5
	grows := combine([]*Result{quiet, congested}, func(of []Result) float64 { return mean(of[1]) / mean(of[0]) })
	grows.Name, grows.Unit, grows.Rule, grows.Ideal = "mean delay at 105 Mbit/s, of that at 60", claim.UnitOf, claim.AtLeast, 10
	return []report.Claim{r.judgeOne(bench.PeerFIFO, []uint64{quietBPS, congestedBPS}, nil, claim.Claim{
		Section: "V.B", Where: "figure 7, " + bench.PeerFIFO,
		Says:    "With one queue the delays of the three flows are alike (here: within 5 %), and increase quickly when the flows reach the rate of the link (here: tenfold at least).",
		Numbers: []claim.Number{alike, grows}, NoControl: "it is about what others are compared with",
		Otherwise: "One queue does not tell flows apart: which frames find it full is chance.",
	})}
}

// moreLoss returns how much more of a flow is lost than FIFO loses of all flows, which does not tell them apart: frames
// that are lost have no delay.
func (r Report) moreLoss(peer string, flow int) claim.Number {
	n := combine([]*Result{r.find(bench.PeerFIFO, congestedBPS), r.find(peer, congestedBPS)}, func(of []Result) float64 {
		return (of[1].Flows[flow].Loss.Median - lossOf(of[0])) * 100
	})
	n.Name, n.Unit, n.Rule, n.Tolerance = sentFlows[flow].name+", loss above FIFO's of all flows", "percentage points", claim.AtMost, 0.5
	return n
}

// lossOf returns the part of all flows that is lost; each sends as much.
func lossOf(r Result) float64 {
	sum := 0.0
	for _, flow := range r.Flows {
		sum += flow.Loss.Median
	}
	return sum / float64(len(r.Flows))
}

// whyGenericWaits explains why generic data cannot wait less in congestion without being lost.
func (r Report) whyGenericWaits(peer string) string {
	text := "A link that always sends has a mean delay over all frames that no order of them changes (Kleinrock's conservation law): " +
		"what voice and video wait less generic data waits more, unless its queue is shorter than FIFO's and loses more."
	fifo, own := r.find(bench.PeerFIFO, congestedBPS), r.find(peer, congestedBPS)
	if fifo == nil || own == nil {
		return text
	}
	return text + fmt.Sprintf(" Generic data waits %.3g ms here and loses %.3g %%; with FIFO it waits %.3g ms, and all flows together lose %.3g %%.",
		delayOf(own.Flows[be]), own.Flows[be].Loss.Median*100, delayOf(fifo.Flows[be]), lossOf(*fifo)*100)
}

// whyDelayLeft explains which delay of voice remains in congestion, and which part of FIFO's the
// paper leaves.
func (r Report) whyDelayLeft(peer string) string {
	const bounded = "FIFO's queue here is 1000 frames; the paper's delays grow for as long as it measures."
	fifo, quiet, congested := r.find(bench.PeerFIFO, congestedBPS), r.find(peer, quietBPS), r.find(peer, congestedBPS)
	if fifo == nil || quiet == nil || congested == nil {
		return bounded
	}
	waits, has, path := delayOf(fifo.Flows[ef]), delayOf(congested.Flows[ef]), delayOf(quiet.Flows[ef])
	return fmt.Sprintf("%s Voice waits %.3g ms in it, so the paper's reduction would leave %.2g µs; of the %.3g µs that voice has here, %.3g µs are the path's without congestion, "+
		"and the rest is a frame that is on its way, which is not interrupted (%.3g ms).",
		bounded, waits, waits*1e3*(1-paperDelay.paper[ef]/100), has*1e3, path*1e3, sentFrameTimeMS)
}

// whyJitterLeft explains which jitter of voice remains.
func (r Report) whyJitterLeft(peer string) string {
	fifo, quiet := r.find(bench.PeerFIFO, congestedBPS), r.find(peer, quietBPS)
	best := r.withoutOthers(peer, paperJitter)
	if best == nil || best[ef] >= paperJitter.paper[ef] {
		return "A frame that is on its way is not interrupted."
	}
	return fmt.Sprintf("A full queue changes by a frame at a time, so FIFO's jitter is %.3g µs here for voice, and without any congestion voice has %.3g µs: no scheduler takes away more than %.4g %% of it. "+
		"Nor that much: a frame that is on its way is not interrupted, and takes %.3g ms, which EF waits or not as it comes.",
		jitterOf(fifo.Flows[ef])*1e3, jitterOf(quiet.Flows[ef])*1e3, best[ef], sentFrameTimeMS)
}

// withoutOthers returns a number of voice and of video, against FIFO in congestion, if congestion added nothing to them; nil
// if that was not measured.
func (r Report) withoutOthers(peer string, n paperNumber) []float64 {
	fifo, quiet := r.find(bench.PeerFIFO, congestedBPS), r.find(peer, quietBPS)
	if fifo == nil || quiet == nil {
		return nil
	}
	return []float64{n.value(fifo.Flows[ef], quiet.Flows[ef]), n.value(fifo.Flows[af], quiet.Flows[af])}
}

// delayIdeals returns the ideals of what is left of voice's delay and of the reduction of video's; nil if they were not measured.
func (r Report) delayIdeals(peer string) []float64 {
	left, less := r.withoutOthers(peer, delayLeft), r.withoutOthers(peer, paperDelay)
	if left == nil {
		return nil
	}
	return []float64{left[ef], less[af]}
}

// unmeasured returns the paper's claims that this suite cannot judge, with the commands that can.
func (r Report) unmeasured() []report.Claim {
	return []report.Claim{
		{
			Source: claim.PaperLLQ, Section: "V.A", Where: "figure 6", Says: "A switch has the queues, and its controller names the flows: figures 7 to 13 are those of a port of Open vSwitch.",
			Judgement: report.NotMeasured,
			Reason: "The figures here are those of one container's flows on its host (weir.class=auto, weir.dscp=trust), the speed of the controller is in section sdn. The queues of a switch are not measured: " +
				cmp.Or(r.noSwitch, "they are a suite of their own") + ". An older build's numbers are in docs/measurements/sdn.md.",
			Command: "weir bench sdn --figures",
		},
		{
			Source: claim.PaperLLQ, Section: "III.B.1", Where: "text", Says: "A C4.5 tree that knows ports identifies 99 % of the application types, in ten-fold cross validation on the Moore data set.",
			Judgement: report.NotMeasured, Values: []report.Value{{Name: "application types", Unit: claim.UnitPart, Paper: report.Number(99)}},
			Reason:  "The data set is not available. On Weir's flows, split by flow as in the paper, its features have 90.0 % of the types, with all flows of a capture on one side of the split 63.3 % (docs/classifier.md).",
			Command: "weir classify eval flows-mixed-train.csv.gz --folds 10 --by flow --max-rank 0 --features paper --min-leaf 2",
		},
	}
}

// throughputClaim judges the three gains, which no link has room for that FIFO fills.
func (r Report) throughputClaim(peer string) report.Claim {
	rates := idealRates(congestedBPS)
	ideals := make([]float64, len(sentFlows))
	for i := range sentFlows {
		ideals[i] = (rates[i]/(linkBPS/3) - 1) * 100
	}
	judged := r.judgeOne(peer, []uint64{congestedBPS}, ideals, claim.Claim{
		Section: throughputSection, Where: "figure 13, " + peer,
		Says:      withCongestion + "throughput of voice is 90.17 % more than FIFO's, of video 76.06 %, of generic data 18.5 %.",
		Numbers:   paperThroughput.numbers(r, peer, claim.AtLeast, ef, af, be),
		NoControl: ofFIFO,
	})
	if judged.Judgement != report.NotReproduced {
		return judged
	}
	used, most := 0.0, 0.0
	for i, flow := range r.find(bench.PeerFIFO, congestedBPS).Flows {
		share := flow.ThroughputBPS.Median / linkBPS
		used += share
		most += share * (1 + paperThroughput.paper[i]/100)
	}
	why := fmt.Sprintf("FIFO uses %.1f %% of the link here: with all three gains the link would carry %.0f %% of its rate. "+
		"What one flow gains others lose, or it was not offered: each sends %.3g Mbit/s, %.3g %% more than a third of the link. The ideal gains are those of "+
		"EF first up to its maximum, then AF and BE by their parts.", used*100, most*100, congestedBPS/3e6, (congestedBPS/float64(linkBPS)-1)*100)
	if most > 1 && r.gains(peer, ideals) {
		judged.Judgement, judged.Reason = report.NotReproducible, "Because "+why
	} else {
		judged.Reason += why
	}
	return judged
}

// mostOffGain is by how many percentage points a flow may be short of its ideal gain.
const mostOffGain = 1

// gains reports whether no flow is short of its ideal gain, in percent of FIFO's throughput.
func (r Report) gains(peer string, ideals []float64) bool {
	for flow, ideal := range ideals {
		if gain := paperThroughput.of(r, peer, flow); gain == nil || *gain < ideal-mostOffGain {
			return false
		}
	}
	return true
}

// sentFrameTimeMS is what a frame of the experiment takes on the link.
const sentFrameTimeMS = sentFrameBytes * 8 * 1e3 / linkBPS

// frameTimeMS is what a full frame of an Ethernet takes on the link.
const frameTimeMS = measure.FrameBytes * 8 * 1e3 / linkBPS

// mostShort is the part of AF's minimum that may be missing.
const mostShort = 0.01

// targets judges Weir's own targets for congestion, by the worst run.
func (r Report) targets() []report.Verdict {
	list := []report.Verdict{}
	quiet, fifo := r.find(bench.PeerWeir, quietBPS), r.find(bench.PeerFIFO, congestedBPS)
	for _, one := range r.Results {
		if one.Peer != bench.PeerWeir || one.TotalBPS < congestedBPS {
			continue
		}
		where := fmt.Sprintf("%g Mbit/s in all", float64(one.TotalBPS)/1e6)
		parts := classRates()
		ef, af := one.Flows[0], one.Flows[1]
		within := float64(one.TotalBPS)/3 <= float64(parts.EFBPS)
		if within {
			list = append(list, report.Verdict{
				Target: "loss of EF within its maximum", Limit: "none", Measured: measure.FinePercent(ef.Loss.Max), Where: where, Met: ef.Loss.Max == 0,
			})
		}
		if quiet != nil && within {
			added := ef.DelayMS.Max - quiet.Flows[0].DelayMS.Median
			list = append(list, report.Verdict{
				Target: "delay of EF above that without congestion", Limit: fmt.Sprintf("at most two frames' time, %.3g ms", 2*frameTimeMS),
				Measured: measure.MS(added) + " ms", Where: where, Met: added <= 2*frameTimeMS,
			})
		}
		least := min(float64(parts.AFBPS), float64(one.TotalBPS)/3)
		short := max(0, 1-af.ThroughputBPS.Min/least)
		list = append(list, report.Verdict{
			Target: "AF short of its minimum", Limit: fmt.Sprintf("at most %g %%", 100*mostShort), Measured: measure.FinePercent(short), Where: where, Met: short <= mostShort,
		})
		if one.TotalBPS == congestedBPS && fifo != nil && quiet != nil {
			list = append(list, r.reductionTarget(paperDelay, delayOf, where), r.reductionTarget(paperJitter, jitterOf, where))
		}
	}
	return list
}

// reductionTarget judges how much less than FIFO's a value of EF is: as in the paper, or all
// but the time of one frame, which cannot be interrupted on the line.
func (r Report) reductionTarget(n paperNumber, value func(Flow) float64, where string) report.Verdict {
	quiet, congested := value(r.find(bench.PeerWeir, quietBPS).Flows[0]), value(r.find(bench.PeerWeir, congestedBPS).Flows[0])
	less := n.value(r.find(bench.PeerFIFO, congestedBPS).Flows[0], r.find(bench.PeerWeir, congestedBPS).Flows[0])
	return report.Verdict{
		Target: "EF: " + n.what, Limit: fmt.Sprintf("at least the paper's %g %%, or within a frame's time (%.3g ms) of that without congestion", n.paper[0], frameTimeMS),
		Measured: fmt.Sprintf("%.4g %%, %.3g ms more than without", less, congested-quiet), Where: where,
		Met: less >= n.paper[0] || congested <= quiet+frameTimeMS,
	}
}
