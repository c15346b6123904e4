package bench

import (
	"fmt"
	"math"

	"github.com/weir-project/weir/internal/report"
)

const llqSource = "SDN-LLQ (IEEE Access 2017)"

const llqPath = "The path here is another: a container's interface, a bridge, NAT and the kernel's scheduler, on processors of a virtual machine " +
	"that receive as well; the paper measures at a switch's ports. No frame waits for another one."

// llqNumber is something that the paper gives three numbers of, one for each flow.
type llqNumber struct {
	what, unit string
	totalBPS   uint64
	paper      [3]float64
	// ofFIFO numbers are FIFO's, the others those of who orders flows; reductions and
	// gains are against FIFO.
	ofFIFO bool
	value  func(fifo, peer LLQFlow) float64
}

func delayOf(f LLQFlow) float64  { return f.DelayMS.Median }
func jitterOf(f LLQFlow) float64 { return f.JitterMS.Median }

// reduction is by how many percent a value is less than FIFO's.
func reduction(value func(LLQFlow) float64) func(fifo, peer LLQFlow) float64 {
	return func(fifo, peer LLQFlow) float64 { return (1 - value(peer)/value(fifo)) * 100 }
}

// absolute is a value in microseconds.
func absolute(value func(LLQFlow) float64) func(fifo, peer LLQFlow) float64 {
	return func(_, peer LLQFlow) float64 { return value(peer) * 1e3 }
}

// The paper's numbers.
var (
	llqQuietDelay  = llqNumber{"delay without congestion", "µs", llqQuietBPS, [3]float64{4.49, 4.43, 4.46}, false, absolute(delayOf)}
	llqQuietJitter = llqNumber{"jitter without congestion", "µs", llqQuietBPS, [3]float64{1.02, 1.12, 1.09}, false, absolute(jitterOf)}
	llqDelay       = llqNumber{"delay less than FIFO's, congestion", "%", llqCongestedBPS, [3]float64{99.996, 90.66, 27.84}, false, reduction(delayOf)}
	llqJitter      = llqNumber{"jitter less than FIFO's, congestion", "%", llqCongestedBPS, [3]float64{99.85, 91.18, 34.13}, false, reduction(jitterOf)}
	llqThroughput  = llqNumber{"throughput more than FIFO's, congestion", "%", llqCongestedBPS, [3]float64{90.17, 76.06, 18.5}, false,
		func(fifo, peer LLQFlow) float64 {
			return (peer.ThroughputBPS.Median/fifo.ThroughputBPS.Median - 1) * 100
		}}

	llqQuietJitterLess = llqNumber{"jitter less than FIFO's, no congestion", "%", llqQuietBPS, [3]float64{66.17, 61.61, 50.41}, false, reduction(jitterOf)}
	llqQuietThroughput = llqNumber{"throughput of FIFO's, no congestion", "%", llqQuietBPS, [3]float64{100, 100, 100}, false,
		func(fifo, peer LLQFlow) float64 { return peer.ThroughputBPS.Median / fifo.ThroughputBPS.Median * 100 }}

	llqPaper = []llqNumber{
		{"delay without congestion", "µs", llqQuietBPS, [3]float64{6.31, 6.18, 6.24}, true, absolute(delayOf)},
		llqQuietDelay,
		{"delay less than FIFO's, no congestion", "%", llqQuietBPS, [3]float64{28.8, 28.3, 28.5}, false, reduction(delayOf)},
		{"jitter without congestion", "µs", llqQuietBPS, [3]float64{3.02, 3.93, 2.20}, true, absolute(jitterOf)},
		llqQuietJitter, llqQuietJitterLess, llqQuietThroughput,
		llqDelay, llqJitter, llqThroughput,
	}
)

// of is the number of a flow with a peer; nil if it was not measured.
func (n llqNumber) of(r LLQReport, peer string, flow int) *float64 {
	fifo, one := r.find(PeerFIFO, n.totalBPS), r.find(peer, n.totalBPS)
	if fifo == nil || one == nil {
		return nil
	}
	value := n.value(fifo.Flows[flow], one.Flows[flow])
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return nil
	}
	return &value
}

// numbers are those of some flows, each to be at least the paper's, or at most.
func (n llqNumber) numbers(r LLQReport, peer string, rule rule, flows ...int) []number {
	var list []number
	for _, flow := range flows {
		list = append(list, number{
			name: llqFlows[flow].name + ", " + n.what, unit: n.unit, rule: rule, ideal: n.paper[flow], paper: report.Number(n.paper[flow]),
			measured: n.of(r, peer, flow),
		})
	}
	return list
}

// judge judges the paper's claims for everyone who orders flows.
func (r LLQReport) judge() []report.Claim {
	var list []report.Claim
	for _, peer := range []string{PeerHTB, PeerWeir} {
		why, skipped := r.Skipped[peer]
		if !skipped && r.find(peer, llqCongestedBPS) == nil && r.find(peer, llqQuietBPS) == nil {
			continue
		}
		for _, judged := range r.judgePeer(peer) {
			if skipped {
				judged.Judgement, judged.Reason = report.NotMeasured, capital(peer)+" was left out: "+why+"."
			}
			list = append(list, judged)
		}
	}
	return list
}

// judgePeer judges them for one.
func (r LLQReport) judgePeer(peer string) []report.Claim {
	const ef, af, be = 0, 1, 2
	const conserved = "A link that always sends has a mean delay over all frames that no order of them changes (Kleinrock's conservation law): " +
		"what voice and video wait less generic data waits more, unless its queue is shorter than FIFO's."
	claims := []claim{
		{
			where: "figures 8 and 10, " + peer, says: "Without congestion delays and jitters of all flows are some microseconds.",
			numbers: func(findings) []number {
				list := append(llqQuietDelay.numbers(r, peer, atMost, ef, af, be), llqQuietJitter.numbers(r, peer, atMost, ef, af, be)...)
				for i := range list {
					list[i].tolerance = 1 // another machine: up to twice as much is "some"
				}
				return list
			},
			otherwise: r.path,
		},
		{
			where: "figure 8, " + peer, says: "Without congestion three queues reduce the delay by 28 % against one.",
			numbers: func(findings) []number {
				return llqPaper[2].numbers(r, peer, atLeast, ef, af, be)
			},
			otherwise: "A frame that meets an empty queue waits in none, however many there are; to choose among them takes work.",
		},
		{
			where: "figure 10, " + peer, says: "Without congestion three queues reduce the jitter by 66.17, 61.61 and 50.41 % against one.",
			numbers: func(findings) []number {
				return llqQuietJitterLess.numbers(r, peer, atLeast, ef, af, be)
			},
			otherwise: "Frames that meet empty queues wait in none, however many there are: the jitter is that of the path.",
		},
		{
			where: "figure 12, " + peer, says: "Without congestion the throughputs with one queue and with three are similar.",
			numbers: func(findings) []number {
				list := llqQuietThroughput.numbers(r, peer, atLeast, ef, af, be)
				for i := range list {
					list[i].tolerance = 0.01
				}
				return list
			},
			otherwise: "More than 1 % is missing of what FIFO carries.",
		},
		{
			where: "figures 7 and 9, " + peer, says: "With congestion the delay of voice is 99.996 % less than FIFO's, that of video 90.66 %.",
			numbers: func(findings) []number {
				list := llqDelay.numbers(r, peer, atLeast, ef, af)
				list[0].tolerance = 0.0005 // a few microseconds, of FIFO's tenth of a second
				return list
			},
			otherwise: r.delayLeft(peer),
		},
	}
	var list []report.Claim
	for _, one := range claims {
		list = append(list, one.judge(llqSource, findings{}))
	}
	return append(list, r.jitterClaim(peer),
		r.impossible(peer, "figure 9, "+peer, "With congestion the delay of generic data is 27.84 % less than FIFO's, too.", conserved, llqDelay, be),
		r.impossible(peer, "figure 11, "+peer, "With congestion the jitter of generic data is 34.13 % less than FIFO's, too.",
			"Generic data waits for the others' frames, as many at a time as there are.", llqJitter, be),
		r.throughputClaim(peer))
}

// delayLeft says what is left of the delay of voice in congestion, and what may be left
// of FIFO's by the paper.
func (r LLQReport) delayLeft(peer string) string {
	const ef = 0
	const bounded = "FIFO's queue here is 1000 frames; the paper's delays grow for as long as it measures."
	fifo, quiet, congested := r.find(PeerFIFO, llqCongestedBPS), r.find(peer, llqQuietBPS), r.find(peer, llqCongestedBPS)
	if fifo == nil || quiet == nil || congested == nil {
		return bounded
	}
	waits, has, path := delayOf(fifo.Flows[ef]), delayOf(congested.Flows[ef]), delayOf(quiet.Flows[ef])
	return fmt.Sprintf("%s Voice waits %.3g ms in it, so the paper's reduction would leave %.2g µs; of the %.3g µs that voice has here, %.3g µs are the path's without congestion, "+
		"and the rest is a frame that is on its way, which nobody interrupts (%.3g ms).",
		bounded, waits, waits*1e3*(1-llqDelay.paper[ef]/100), has*1e3, path*1e3, llqFrameTimeMS)
}

// jitterClaim judges by how much the jitter of voice and video is less than FIFO's. The
// ideal is what is left when congestion adds nothing to a flow: its jitter without it.
func (r LLQReport) jitterClaim(peer string) report.Claim {
	const ef, af = 0, 1
	judged := claim{
		where: "figure 11, " + peer, says: "With congestion the jitter of voice is 99.85 % less than FIFO's, that of video 91.18 %.",
		numbers:   func(findings) []number { return llqJitter.numbers(r, peer, atLeast, ef, af) },
		otherwise: "Without congestion it is less than that.",
	}.judge(llqSource, findings{})
	fifo, quiet := r.find(PeerFIFO, llqCongestedBPS), r.find(peer, llqQuietBPS)
	if fifo == nil || quiet == nil || judged.Judgement == report.NotMeasured {
		return judged
	}
	best := [...]float64{ef: 0, af: 0}
	for i := range best {
		best[i] = (1 - jitterOf(quiet.Flows[i])/jitterOf(fifo.Flows[i])) * 100
		judged.Values[i].Ideal = report.Number(best[i])
	}
	if judged.Judgement == report.NotReproduced && best[ef] < llqJitter.paper[ef] {
		judged.Judgement = report.NotReproducible
		judged.Reason = fmt.Sprintf("Because a full queue changes by a frame at a time, FIFO's jitter is %.3g µs here for voice, and without any congestion voice has %.3g µs: no scheduler takes away more than %.4g %% of it. "+
			"Nor that much: a frame that is on its way is not interrupted, and takes %.3g ms, which EF waits or not as it comes.",
			jitterOf(fifo.Flows[ef])*1e3, jitterOf(quiet.Flows[ef])*1e3, best[ef], llqFrameTimeMS)
	}
	return judged
}

// impossible judges what cannot be had at once with the rest, unless it was.
func (r LLQReport) impossible(peer, where, says, why string, n llqNumber, flow int) report.Claim {
	judged := claim{where: where, says: says, otherwise: why, numbers: func(findings) []number { return n.numbers(r, peer, atLeast, flow) }}.judge(llqSource, findings{})
	if judged.Judgement == report.NotReproduced {
		judged.Judgement, judged.Reason = report.NotReproducible, "Because: "+why
	}
	return judged
}

// throughputClaim judges the three gains, which no link has room for that FIFO fills.
func (r LLQReport) throughputClaim(peer string) report.Claim {
	judged := report.Claim{
		Source: llqSource, Where: "figure 13, " + peer, Says: "With congestion throughput of voice is 90.17 % more than FIFO's, of video 76.06 %, of generic data 18.5 %.",
	}
	fifo := r.find(PeerFIFO, llqCongestedBPS)
	ideal := idealRates(llqCongestedBPS)
	used, most := 0.0, 0.0
	for i, flow := range llqFlows {
		share := llqLinkBPS / float64(len(llqFlows))
		if fifo != nil {
			share = fifo.Flows[i].ThroughputBPS.Median
			used += share / llqLinkBPS
		}
		most += share * (1 + llqThroughput.paper[i]/100) / llqLinkBPS
		judged.Values = append(judged.Values, report.Value{
			Name: flow.name, Unit: unitPart, Paper: report.Number(llqThroughput.paper[i]), Ideal: report.Number((ideal[i]/(llqLinkBPS/3) - 1) * 100),
			Measured: llqThroughput.of(r, peer, i),
		})
	}
	if fifo == nil || r.find(peer, llqCongestedBPS) == nil {
		judged.Judgement, judged.Reason = report.NotMeasured, "This run left out cases or peers that it is about, or they failed."
		return judged
	}
	judged.Judgement = report.NotReproducible
	judged.Reason = fmt.Sprintf("Because FIFO uses %.1f %% of the link here: with all three gains the link would carry %.0f %% of its rate. "+
		"What one flow gains others lose, or nobody offered it: each sends %.3g Mbit/s, %.3g %% more than a third of the link. The ideal gains are those of "+
		"EF first up to its maximum, then AF and BE by their parts.", used*100, most*100, llqCongestedBPS/3e6, (llqCongestedBPS/float64(llqLinkBPS)-1)*100)
	return judged
}

// llqFrameTimeMS is what a frame of the experiment takes on the link.
const llqFrameTimeMS = llqFrameBytes * 8 * 1e3 / llqLinkBPS

// frameTimeMS is what a full frame of an Ethernet takes on the link.
const frameTimeMS = frameBytes * 8 * 1e3 / llqLinkBPS

// targets are Weir's own, for congestion.
func (r LLQReport) targets() []report.Verdict {
	list := []report.Verdict{}
	quiet, fifo := r.find(PeerWeir, llqQuietBPS), r.find(PeerFIFO, llqCongestedBPS)
	for _, one := range r.Results {
		if one.Peer != PeerWeir || one.TotalBPS < llqCongestedBPS {
			continue
		}
		where := fmt.Sprintf("%g Mbit/s in all", float64(one.TotalBPS)/1e6)
		parts := llqParts()
		ef, af := one.Flows[0], one.Flows[1]
		within := float64(one.TotalBPS)/3 <= float64(parts.EFBPS)
		if within {
			list = append(list, report.Verdict{
				Target: "loss of EF within its maximum", Limit: "none", Measured: finePercent(ef.Loss.Median), Where: where, Met: ef.Loss.Median == 0,
			})
		}
		if quiet != nil && within {
			added := ef.DelayMS.Median - quiet.Flows[0].DelayMS.Median
			list = append(list, report.Verdict{
				Target: "delay of EF above that without congestion", Limit: fmt.Sprintf("at most two frames' time, %.3g ms", 2*frameTimeMS),
				Measured: ms(added) + " ms", Where: where, Met: added <= 2*frameTimeMS,
			})
		}
		least := min(float64(parts.AFBPS), float64(one.TotalBPS)/3)
		short := max(0, 1-af.ThroughputBPS.Median/least)
		list = append(list, report.Verdict{
			Target: "AF short of its minimum", Limit: "at most 1 %", Measured: finePercent(short), Where: where, Met: short <= 0.01,
		})
		if one.TotalBPS == llqCongestedBPS && fifo != nil && quiet != nil {
			list = append(list, r.reductionTarget(llqDelay, delayOf, where), r.reductionTarget(llqJitter, jitterOf, where))
		}
	}
	return list
}

// reductionTarget is by how much less than FIFO EF has of something: as in the paper,
// or all but the time of one frame, which nobody interrupts once it is on its way.
func (r LLQReport) reductionTarget(n llqNumber, value func(LLQFlow) float64, where string) report.Verdict {
	quiet, congested := value(r.find(PeerWeir, llqQuietBPS).Flows[0]), value(r.find(PeerWeir, llqCongestedBPS).Flows[0])
	less := n.value(r.find(PeerFIFO, llqCongestedBPS).Flows[0], r.find(PeerWeir, llqCongestedBPS).Flows[0])
	return report.Verdict{
		Target: "EF: " + n.what, Limit: fmt.Sprintf("at least the paper's %g %%, or within a frame's time (%.3g ms) of that without congestion", n.paper[0], frameTimeMS),
		Measured: fmt.Sprintf("%.4g %%, %.3g ms more than without", less, congested-quiet), Where: where,
		Met: less >= n.paper[0] || congested <= quiet+frameTimeMS,
	}
}
