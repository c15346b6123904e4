package bench

import (
	"fmt"

	"github.com/weir-project/weir/internal/lab/bench/claim"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// cntcClaims returns the claims of sections 2 and 4 of CNTC, each in the mode in which the
// paper measured it.
func cntcClaims(f findings) []claim.Claim {
	overlay := func(figure string) string { return cntcGroup(figure, testbed.ModeOverlay) }
	nat := func(figure string) string { return cntcGroup(figure, testbed.ModeBridge) }
	const connections, latencyCase = "6 connections against 1", "CN1 has 6 connections"
	const figure11, alone, ping, both = "figure 11", "one container, bandwidth", "one container, round trip", "80 to 20"
	claims := []claim.Claim{
		{
			Section: "2", Where: "figure 1a", About: PeerTC, Says: "In an overlay tc cannot tell containers apart: CN1 with 6 connections gets 6/7 of the link, CN2 with one 1/7.",
			Numbers:   f.paperShares(overlay("figures 1a and 7a"), connections, PeerTC, PeerTC),
			Control:   f.paperShares(overlay("figures 1a and 7a"), connections, PeerTC, PeerWeir),
			Otherwise: "Connections of one queue share it by their own congestion control, and equally only over a longer time.",
		},
		{
			Section: "4.1", Where: "figure 7a", Says: "With CNTC both get half of the link as soon as CN1 starts, however many connections it has.",
			Numbers:   f.shares(PeerWeir, overlay("figures 1a and 7a"), connections),
			Control:   f.shares(PeerTC, overlay("figures 1a and 7a"), connections),
			Otherwise: missedShares,
		},
		{
			Section: "2", Where: "figure 1b", About: PeerTC, Says: "With tc the bound of 2 ms on CN2's latency is exceeded when CN1 starts.",
			Numbers:   []claim.Number{f.roundTrip(claim.Number{Name: "p99 with tc", Rule: claim.AtLeast, Ideal: 2}, overlay("figures 1b and 7b"), latencyCase, PeerTC, p99)},
			Control:   []claim.Number{f.roundTrip(claim.Number{Name: "p99 with weir", Rule: claim.AtLeast, Ideal: 2}, overlay("figures 1b and 7b"), latencyCase, PeerWeir, p99)},
			Otherwise: "The tc of this suite is HTB, whose queue for CN1 and CN2 together is kept short here by TCP's limit on what waits in the sender.",
		},
		{
			Section: "4.1", Where: "figure 7b", Says: "With CNTC the latency of CN2 grows a little and hardly exceeds its bound of 2 ms.",
			Numbers:   []claim.Number{f.roundTrip(claim.Number{Name: "p99 with weir", Rule: claim.AtMost, Ideal: 2}, overlay("figures 1b and 7b"), latencyCase, PeerWeir, p99)},
			Control:   []claim.Number{f.roundTrip(claim.Number{Name: "p99 without control", Rule: claim.AtMost, Ideal: 2}, overlay("figures 1b and 7b"), latencyCase, PeerNone, p99)},
			Otherwise: "The 99th percentile of round trips is above the bound.",
		},
		{
			Section: "4.1", Where: "figure 8a", About: PeerTC, Says: "tc treats two containers of different priority alike.",
			Numbers:   f.paperShares(overlay("figure 8"), "priority", PeerTC, PeerTC),
			Control:   f.paperShares(overlay("figure 8"), "priority", PeerTC, PeerWeir),
			Otherwise: "In an overlay both are in one queue, which their connections share by their own congestion control.",
		},
		{
			Section: "4.1", Where: "figure 8b", Says: "With CNTC CN1 of the higher priority gets about five times as much as CN2; both have a minimum.",
			Numbers: f.shares(PeerWeir, overlay("figure 8"), "priority"),
			Control: f.shares(PeerTC, overlay("figure 8"), "priority"),
			Design: "Five to one follows from no rule of Weir's: priority is strict. The paper does not name the minimums; this suite takes a sixth of the link " +
				"for each, so the higher priority gets 1/6 + 4/6, for any two priorities. Only in an overlay does this say anything: behind a bridge " +
				"plain tc makes five to one of such priorities and minimums as well.",
			Otherwise: missedShares,
		},
		{
			Section: "4.2", Where: "figure 9b", Says: "When CN3 (rate-style) stops, CN1 and CN2 get its bandwidth by 1:2, give it up when CN4 starts, and have it back when that stops.",
			Numbers:   f.shares(PeerWeir, nat("figure 9"), "start and stop"),
			Control:   f.shares(PeerTC, nat("figure 9"), "start and stop"),
			Otherwise: missedShares,
		},
		{
			Section: "4.2", Where: "figure 9", Says: "So CNTC uses the link better than tc, whose rates stay as they were set.", NoControl: besideTC,
			Numbers: []claim.Number{f.quotient(claim.Number{Name: "link use, tc over weir", Rule: claim.AtMost, Ideal: 1},
				nat("figure 9"), "start and stop", PeerTC, PeerWeir, linkUse)},
			Otherwise: missedShares,
		},
		{
			Section: "4.2", Where: "figure 10", Says: "Idle bandwidth goes in equal parts to CN1 and CN2 while their priority interval is the same, and almost five times as much " +
				"to CN2 when a new container moves it to a higher one.",
			Numbers: f.shares(PeerWeir, nat("figure 10"), "priority interval"),
			Control: f.shares(PeerNone, nat("figure 10"), "priority interval"),
			Design: "What is idle goes by weight within a priority, and all of it to the higher one between two: a ratio that no user asked for cannot be promised. " +
				"And no priority changes because another container starts: it is what the user wrote, not derived from weights.",
			Otherwise: missedShares,
		},
		{
			Section: "4.3", Where: "figure 11a", Says: "Control of one container with the whole link costs 0.16 % of bandwidth.",
			NoControl: costOfBandwidth,
			Numbers:   []claim.Number{f.overhead("bandwidth lost", nat(figure11), alone, 0.16)},
			Otherwise: "Beside the token bucket that stands for the link, Weir keeps a little of its rate for what the host itself sends.",
		},
		{
			Section: "4.3", Where: "figure 11a", Says: "Control of one container costs no more bandwidth than tc.", NoControl: besideTC,
			Numbers:   []claim.Number{f.aboveTC("bandwidth lost, less tc's", nat(figure11), alone, nil, 0.05)},
			Otherwise: "Beside the token bucket that stands for the link, Weir keeps a little of its rate for what the host itself sends.",
		},
		{
			Section: "4.3", Where: "figure 11a", Says: "It adds 1.24 % to the latency, and not more than 0.006 ms.", NoControl: "it limits costs, and a link without Weir has none",
			Numbers: []claim.Number{
				f.overhead("round trip added", nat(figure11), ping, 1.24), f.addedRoundTrip(nat(figure11), ping, 0.006),
			},
			Otherwise: "A veth pair in one machine answers in a few hundredths of a millisecond, so that each microsecond of a program at the veth, one at the uplink and " +
				"of HTB is a percent and more; the paper's packets went through network cards, and its increase of 0.006 ms is 1.24 % of 0.5 ms.",
		},
		{
			Section: "4.3", Where: "figure 11a", Says: "It adds as little to the latency as tc: 1.24 and 1.19 %.", NoControl: besideTC,
			Numbers:   []claim.Number{f.aboveTC("round trip added, less tc's", nat(figure11), ping, report.Number(0.05), 0.05)},
			Otherwise: "Of a round trip through a veth pair 0.05 % is some 50 ns, less than rounds differ by.",
		},
		{
			Section: "4.3", Where: "figure 11b", Says: "With two containers that share 80 to 20, control costs 2.8 % of bandwidth.",
			NoControl: costOfBandwidth,
			Numbers:   []claim.Number{f.overhead("bandwidth lost", nat(figure11), both, 2.8)},
			Otherwise: missedShares,
		},
		{
			Section: "4.3", Where: "figure 11b", Says: "It costs as little bandwidth as tc, 2.8 and 2.7 %, so that there is no overhead but packet scheduling's own.", NoControl: besideTC,
			Numbers:   []claim.Number{f.aboveTC("bandwidth lost, less tc's", nat(figure11), both, report.Number(0.1), 0.1)},
			Otherwise: missedShares,
		},
	}
	for _, mode := range cntcModes {
		claims = append(claims, claim.Claim{
			Section: "1", Where: "contribution 3", Says: fmt.Sprintf("Bandwidth and latency are guaranteed in all network modes: in mode %s.", mode),
			Numbers:   f.guarantees(PeerWeir, mode, connections, latencyCase),
			Control:   f.guarantees(PeerTC, mode, connections, latencyCase),
			Otherwise: missedShares,
		})
	}
	return claims
}

// Why claims of the costs of control have no control.
const (
	costOfBandwidth = "it limits costs, and the paper has as little for tc. A token bucket of the same rate stands for the link, so that little can be lost here"
	besideTC        = "it compares with tc already"
)

// connectionTolerance is the tolerance for shares of connections within one container, which no
// peer controls.
const connectionTolerance = 0.15

// guarantees returns shares and latencies with a peer in a mode.
func (f findings) guarantees(peer string, mode testbed.Mode, shares, latency string) []claim.Number {
	n := claim.Number{Name: "p99", Rule: claim.AtMost, Ideal: 2}
	return append(f.shares(peer, cntcGroup("figures 1a and 7a", mode), shares), f.roundTrip(n, cntcGroup("figures 1b and 7b", mode), latency, peer, p99))
}

// cntcGroup names the cases of a figure in a mode.
func cntcGroup(figure string, mode testbed.Mode) string { return fmt.Sprintf("%s, %s", figure, mode) }

// paperShares returns what peer made of a case's shares, each compared with what the paper has for paperPeer.
func (f findings) paperShares(group, name, paperPeer, peer string) []claim.Number {
	paper, result := f.of(group, name, paperPeer), f.of(group, name, peer)
	if paper == nil || result == nil {
		return []claim.Number{{Name: name, Unit: claim.UnitRate}}
	}
	var list []claim.Number
	for _, share := range paper.Shares {
		if share.PaperBPS == nil {
			continue
		}
		n := share.number("")
		n.Ideal, n.Tolerance, n.Measured, n.Low, n.High = *n.Paper, connectionTolerance, nil, nil, nil
		if one := measure.Find(result.Shares, func(s Share) bool { return s.Phase == share.Phase && s.Container == share.Container }); one != nil {
			n.Measured = report.Number(one.Measured.Median / 1e6)
			n.Low, n.High = report.Number(one.Measured.Min/1e6), report.Number(one.Measured.Max/1e6)
		}
		list = append(list, n)
	}
	return list
}

// roundTrip returns a round trip of a peer in milliseconds.
func (f findings) roundTrip(n claim.Number, group, name, peer string, value func(Latency) float64) claim.Number {
	n.Unit = claim.UnitTime
	if result := f.of(group, name, peer); result != nil && result.Latency != nil {
		n = n.Over(result.over(result, func(r, _ CaseResult) float64 { return value(*r.Latency) }))
	}
	return n
}

func p99(l Latency) float64 { return l.P99MS.Median }

// linkUse returns the sent rate relative to the ideal allocation.
func linkUse(r CaseResult) float64 { return r.LinkUse.Median }

// overhead returns Weir's overhead, of which the paper's percentage is the most.
func (f findings) overhead(name, group, caseName string, paperPercent float64) claim.Number {
	n := claim.Number{Name: name, Unit: claim.UnitPart, Rule: claim.AtMost, Paper: report.Number(paperPercent), Tolerance: paperPercent}
	if result := f.of(group, caseName, PeerWeir); result != nil && result.Overhead != nil {
		n.Measured = report.Number(result.Overhead.Fraction * 100)
		if none := f.of(group, caseName, PeerNone); none != nil && none.Runs == result.Runs {
			n = n.Over(result.over(none, func(with, none CaseResult) float64 { fraction, _ := lost(with, none); return fraction * 100 }))
		}
	}
	return n
}

// aboveTC returns by how many points of percent Weir's overhead is above tc's.
func (f findings) aboveTC(name, group, caseName string, paper *float64, most float64) claim.Number {
	n := claim.Number{Name: name, Unit: claim.UnitPart, Rule: claim.AtMost, Paper: paper, Tolerance: most}
	weir, tc, none := f.of(group, caseName, PeerWeir), f.of(group, caseName, PeerTC), f.of(group, caseName, PeerNone)
	if weir == nil || tc == nil || none == nil {
		return n
	}
	points := func(weir, tc, none CaseResult) float64 {
		ours, _ := lost(weir, none)
		theirs, _ := lost(tc, none)
		return (ours - theirs) * 100
	}
	if weir.Runs != tc.Runs || weir.Runs != none.Runs {
		n.Measured = report.Number(points(*weir, *tc, *none))
		return n
	}
	var rounds []float64
	for i := range weir.Runs {
		rounds = append(rounds, points(weir.round(i), tc.round(i), none.round(i)))
	}
	return n.Over(rounds)
}

// addedRoundTrip returns the round trip added by Weir, of which the paper's milliseconds are the most.
func (f findings) addedRoundTrip(group, caseName string, paperMS float64) claim.Number {
	n := claim.Number{Name: "round trip added", Unit: claim.UnitTime, Rule: claim.AtMost, Paper: report.Number(paperMS), Tolerance: paperMS}
	if result := f.of(group, caseName, PeerWeir); result != nil && result.Overhead != nil {
		n.Measured = result.Overhead.AddedMS
		if none := f.of(group, caseName, PeerNone); none != nil && none.Runs == result.Runs {
			n = n.Over(result.over(none, func(with, none CaseResult) float64 { _, added := lost(with, none); return added }))
		}
	}
	return n
}
