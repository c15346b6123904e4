package llq

import (
	"fmt"
	"math"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/claim"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
)

const source = "SDN-LLQ (IEEE Access 2017)"

const hostPath = "The path here is another: a container's interface, a bridge, NAT and the kernel's scheduler, on processors of a virtual machine " +
	"that receive as well; the paper measures at a switch's ports. No frame waits for another one."

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

	paperQuietJitterLess = paperNumber{"jitter less than FIFO's, no congestion", "%", quietBPS, [3]float64{66.17, 61.61, 50.41}, false, reduction(jitterOf)}
	paperQuietThroughput = paperNumber{"throughput of FIFO's, no congestion", "%", quietBPS, [3]float64{100, 100, 100}, false,
		func(fifo, peer Flow) float64 { return peer.ThroughputBPS.Median / fifo.ThroughputBPS.Median * 100 }}

	paperNumbers = []paperNumber{
		{"delay without congestion", "µs", quietBPS, [3]float64{6.31, 6.18, 6.24}, true, absolute(delayOf)},
		paperQuietDelay,
		{"delay less than FIFO's, no congestion", "%", quietBPS, [3]float64{28.8, 28.3, 28.5}, false, reduction(delayOf)},
		{"jitter without congestion", "µs", quietBPS, [3]float64{3.02, 3.93, 2.20}, true, absolute(jitterOf)},
		paperQuietJitter, paperQuietJitterLess, paperQuietThroughput,
		paperDelay, paperJitter, paperThroughput,
	}
)

// of returns the number of a flow with a peer; nil if it was not measured.
func (n paperNumber) of(r Report, peer string, flow int) *float64 {
	fifo, one := r.find(bench.PeerFIFO, n.totalBPS), r.find(peer, n.totalBPS)
	if fifo == nil || one == nil {
		return nil
	}
	value := n.value(fifo.Flows[flow], one.Flows[flow])
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return nil
	}
	return &value
}

// rounds returns the number of a flow with a peer in each round; none if both were not measured as often.
func (n paperNumber) rounds(r Report, peer string, flow int) (values []float64) {
	fifo, one := r.find(bench.PeerFIFO, n.totalBPS), r.find(peer, n.totalBPS)
	if fifo == nil || one == nil || fifo.Runs != one.Runs {
		return nil
	}
	for i := range one.Runs {
		if value := n.value(fifo.Flows[flow].round(i), one.Flows[flow].round(i)); !math.IsNaN(value) && !math.IsInf(value, 0) {
			values = append(values, value)
		}
	}
	return values
}

// round returns what claims compare of one round.
func (f Flow) round(i int) Flow {
	f.ThroughputBPS, f.DelayMS, f.JitterMS = f.ThroughputBPS.Round(i), f.DelayMS.Round(i), f.JitterMS.Round(i)
	return f
}

// numbers returns the numbers of some flows, each to be at least the paper's, or at most.
func (n paperNumber) numbers(r Report, peer string, rule claim.Rule, flows ...int) []claim.Number {
	var list []claim.Number
	for _, flow := range flows {
		list = append(list, claim.Number{
			Name: sentFlows[flow].name + ", " + n.what, Unit: n.unit, Rule: rule, Ideal: n.paper[flow], Paper: report.Number(n.paper[flow]),
			Measured: n.of(r, peer, flow),
		}.Over(n.rounds(r, peer, flow)))
	}
	return list
}

// judge judges the paper's claims for everyone who orders flows.
func (r Report) judge() []report.Claim {
	var list []report.Claim
	for _, peer := range []string{bench.PeerHTB, bench.PeerWeir} {
		why, skipped := r.Skipped[peer]
		if !skipped && r.find(peer, congestedBPS) == nil && r.find(peer, quietBPS) == nil {
			continue
		}
		for _, judged := range r.judgePeer(peer) {
			if peer != bench.PeerWeir {
				judged.About = peer
			}
			if skipped {
				judged.Judgement, judged.Reason = report.NotMeasured, strings.ToUpper(peer[:1])+peer[1:]+" was left out: "+why+"."
			}
			list = append(list, judged)
		}
	}
	return list
}

// judgePeer judges them for one.
func (r Report) judgePeer(peer string) []report.Claim {
	const ef, af, be = 0, 1, 2
	const conserved = "A link that always sends has a mean delay over all frames that no order of them changes (Kleinrock's conservation law): " +
		"what voice and video wait less generic data waits more, unless its queue is shorter than FIFO's."
	claims := []claim.Claim{
		{
			Where: "figures 8 and 10, " + peer, Says: "Without congestion delays and jitters of all flows are some microseconds.",
			// Another machine: up to twice as much is "some".
			Numbers: claim.Within(1, append(paperQuietDelay.numbers(r, peer, claim.AtMost, ef, af, be),
				paperQuietJitter.numbers(r, peer, claim.AtMost, ef, af, be)...)),
			Control: claim.Within(1, append(paperQuietDelay.numbers(r, bench.PeerFIFO, claim.AtMost, ef, af, be),
				paperQuietJitter.numbers(r, bench.PeerFIFO, claim.AtMost, ef, af, be)...)),
			Otherwise: r.path,
		},
		{
			Where: "figure 8, " + peer, Says: "Without congestion three queues reduce the delay by 28 % against one.",
			Numbers:   paperNumbers[2].numbers(r, peer, claim.AtLeast, ef, af, be),
			NoControl: ofFIFO,
			Otherwise: "A frame that meets an empty queue waits in none, however many there are; to choose among them takes work.",
		},
		{
			Where: "figure 10, " + peer, Says: "Without congestion three queues reduce the jitter by 66.17, 61.61 and 50.41 % against one.",
			Numbers:   paperQuietJitterLess.numbers(r, peer, claim.AtLeast, ef, af, be),
			NoControl: ofFIFO,
			Otherwise: "Frames that meet empty queues wait in none, however many there are: the jitter is that of the path.",
		},
		{
			Where: "figure 12, " + peer, Says: "Without congestion the throughputs with one queue and with three are similar.",
			Numbers:   claim.Within(0.01, paperQuietThroughput.numbers(r, peer, claim.AtLeast, ef, af, be)),
			Control:   claim.Within(0.01, paperQuietThroughput.numbers(r, bench.PeerFIFO, claim.AtLeast, ef, af, be)),
			Otherwise: "More than 1 % is missing of what FIFO carries.",
		},
		{
			Where: "figures 7 and 9, " + peer, Says: "With congestion the delay of voice is 99.996 % less than FIFO's, that of video 90.66 %.",
			// For voice, a few microseconds of FIFO's tenth of a second.
			Numbers:   append(claim.Within(0.0005, paperDelay.numbers(r, peer, claim.AtLeast, ef)), paperDelay.numbers(r, peer, claim.AtLeast, af)...),
			NoControl: ofFIFO,
			Otherwise: r.delayLeft(peer),
		},
	}
	var list []report.Claim
	for _, one := range claims {
		list = append(list, one.Judge(source))
	}
	return append(list, r.jitterClaim(peer),
		r.impossible(peer, "figure 9, "+peer, "With congestion the delay of generic data is 27.84 % less than FIFO's, too.", conserved, paperDelay, be),
		r.impossible(peer, "figure 11, "+peer, "With congestion the jitter of generic data is 34.13 % less than FIFO's, too.",
			"Generic data waits for the others' frames, as many at a time as there are.", paperJitter, be),
		r.throughputClaim(peer))
}

// delayLeft explains which delay of voice remains in congestion, and which part of FIFO's the
// paper leaves.
func (r Report) delayLeft(peer string) string {
	const ef = 0
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

// jitterClaim judges by how much the jitter of voice and video is less than FIFO's. The
// ideal is what is left when congestion adds nothing to a flow: its jitter without it.
func (r Report) jitterClaim(peer string) report.Claim {
	const ef, af = 0, 1
	judged := claim.Claim{
		Where: "figure 11, " + peer, Says: "With congestion the jitter of voice is 99.85 % less than FIFO's, that of video 91.18 %.",
		Numbers:   paperJitter.numbers(r, peer, claim.AtLeast, ef, af),
		NoControl: ofFIFO,
		Otherwise: "Without congestion it is less than that.",
	}.Judge(source)
	fifo, quiet := r.find(bench.PeerFIFO, congestedBPS), r.find(peer, quietBPS)
	if fifo == nil || quiet == nil || judged.Judgement == report.NotMeasured {
		return judged
	}
	best := [...]float64{ef: 0, af: 0}
	for i := range best {
		best[i] = (1 - jitterOf(quiet.Flows[i])/jitterOf(fifo.Flows[i])) * 100
		judged.Values[i].Ideal = report.Number(best[i])
	}
	if judged.Judgement == report.NotReproduced && best[ef] < paperJitter.paper[ef] {
		judged.Judgement = report.NotReproducible
		judged.Reason = fmt.Sprintf("Because a full queue changes by a frame at a time, FIFO's jitter is %.3g µs here for voice, and without any congestion voice has %.3g µs: no scheduler takes away more than %.4g %% of it. "+
			"Nor that much: a frame that is on its way is not interrupted, and takes %.3g ms, which EF waits or not as it comes.",
			jitterOf(fifo.Flows[ef])*1e3, jitterOf(quiet.Flows[ef])*1e3, best[ef], sentFrameTimeMS)
	}
	return judged
}

// impossible judges what cannot be had at once with the rest, unless it was.
func (r Report) impossible(peer, where, says, why string, n paperNumber, flow int) report.Claim {
	judged := claim.Claim{Where: where, Says: says, Otherwise: why, NoControl: ofFIFO, Numbers: n.numbers(r, peer, claim.AtLeast, flow)}.Judge(source)
	if judged.Judgement == report.NotReproduced {
		judged.Judgement, judged.Reason = report.NotReproducible, "Because: "+why
	}
	return judged
}

// throughputClaim judges the three gains, which no link has room for that FIFO fills.
func (r Report) throughputClaim(peer string) report.Claim {
	judged := report.Claim{
		Source: source, Where: "figure 13, " + peer, Says: "With congestion throughput of voice is 90.17 % more than FIFO's, of video 76.06 %, of generic data 18.5 %.",
	}
	fifo := r.find(bench.PeerFIFO, congestedBPS)
	ideal := idealRates(congestedBPS)
	used, most := 0.0, 0.0
	for i, flow := range sentFlows {
		share := linkBPS / float64(len(sentFlows))
		if fifo != nil {
			share = fifo.Flows[i].ThroughputBPS.Median
			used += share / linkBPS
		}
		most += share * (1 + paperThroughput.paper[i]/100) / linkBPS
		judged.Values = append(judged.Values, claim.Number{
			Name: flow.name, Unit: claim.UnitPart, Paper: report.Number(paperThroughput.paper[i]), Ideal: (ideal[i]/(linkBPS/3) - 1) * 100,
			Measured: paperThroughput.of(r, peer, i),
		}.Over(paperThroughput.rounds(r, peer, i)).Value())
	}
	if fifo == nil || r.find(peer, congestedBPS) == nil {
		judged.Judgement, judged.Reason = report.NotMeasured, "This run left out cases or peers that it is about, or they failed."
		return judged
	}
	judged.Judgement = report.NotReproducible
	judged.Reason = fmt.Sprintf("Because FIFO uses %.1f %% of the link here: with all three gains the link would carry %.0f %% of its rate. "+
		"What one flow gains others lose, or it was not offered: each sends %.3g Mbit/s, %.3g %% more than a third of the link. The ideal gains are those of "+
		"EF first up to its maximum, then AF and BE by their parts.", used*100, most*100, congestedBPS/3e6, (congestedBPS/float64(linkBPS)-1)*100)
	return judged
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
