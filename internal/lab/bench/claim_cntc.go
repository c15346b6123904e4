package bench

import (
	"fmt"
	"strings"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/report"
)

// cntcClaims are those of sections 2 and 4 of CNTC, each in the mode in which
// the paper measured it.
func cntcClaims() []claim {
	overlay := func(figure string) string { return cntcGroup(figure, testbed.ModeOverlay) }
	nat := func(figure string) string { return cntcGroup(figure, testbed.ModeBridge) }
	const connections, latencyCase = "6 connections against 1", "CN1 has 6 connections"
	return []claim{
		{
			where: "figure 1a", says: "In an overlay tc cannot tell containers apart: CN1 with 6 connections gets 6/7 of the link, CN2 with one 1/7.",
			numbers: func(f findings) []number {
				return f.paperShares(overlay("figures 1a and 7a"), connections, PeerTC, connectionTolerance)
			},
			otherwise: "Connections of one queue share it by their own congestion control, and equally only over a longer time.",
		},
		{
			where: "figure 7a", says: "With CNTC both get half of the link as soon as CN1 starts, however many connections it has.",
			numbers:   func(f findings) []number { return f.shares(overlay("figures 1a and 7a"), connections) },
			otherwise: missedShares,
		},
		{
			where: "figure 1b", says: "With tc the bound of 2 ms on CN2's latency is exceeded when CN1 starts.",
			numbers: func(f findings) []number {
				return []number{f.roundTrip(number{name: "p99 with tc", rule: atLeast, ideal: 2}, overlay("figures 1b and 7b"), latencyCase, PeerTC, p99)}
			},
			otherwise: "The tc of this suite is HTB, whose queue for CN1 and CN2 together is kept short here by TCP's limit on what waits in the sender.",
		},
		{
			where: "figure 7b", says: "With CNTC the latency of CN2 grows a little and hardly exceeds its bound of 2 ms.",
			numbers: func(f findings) []number {
				return []number{f.roundTrip(number{name: "p99 with weir", rule: atMost, ideal: 2, paper: report.Number(2)}, overlay("figures 1b and 7b"), latencyCase, PeerWeir, p99)}
			},
			otherwise: "The 99th percentile of round trips is above the bound.",
		},
		{
			where: "figure 8a", says: "tc treats two containers of different priority alike.",
			numbers: func(f findings) []number {
				return f.paperShares(overlay("figure 8"), "priority", PeerTC, connectionTolerance)
			},
			otherwise: "In an overlay both are in one queue, which their connections share by their own congestion control.",
		},
		{
			where: "figure 8b", says: "With CNTC CN1 of the higher priority gets about five times as much as CN2; both have a minimum.",
			numbers:   func(f findings) []number { return f.shares(overlay("figure 8"), "priority") },
			otherwise: missedShares,
		},
		{
			where: "figure 9b", says: "When CN3 (rate-style) stops, CN1 and CN2 get its bandwidth by 1:2, give it up when CN4 starts, and have it back when that stops.",
			numbers:   func(f findings) []number { return f.shares(nat("figure 9"), "start and stop") },
			otherwise: missedShares,
		},
		{
			where: "figure 9", says: "So CNTC uses the link better than tc, whose rates stay as they were set.",
			numbers: func(f findings) []number {
				n := number{name: "link use, tc over weir", rule: atMost, ideal: 1}
				return []number{f.quotient(n, nat("figure 9"), "start and stop", PeerTC, PeerWeir, linkUse)}
			},
			otherwise: missedShares,
		},
		{
			where: "figure 10", says: "Idle bandwidth goes in equal parts to CN1 and CN2 while their priority interval is the same, and almost five times as much " +
				"to CN2 when a new container moves it to a higher one.",
			numbers: func(f findings) []number { return f.shares(nat("figure 10"), "priority interval") },
			design: "What is idle goes by weight within a priority, and all of it to the higher one between two: a ratio nobody asked for cannot be promised. " +
				"And nobody's priority changes because somebody else starts: it is what the user wrote, not derived from weights.",
			otherwise: missedShares,
		},
		{
			where: "figure 11a", says: "Control of one container with the whole link costs 0.16 % of bandwidth.",
			numbers: func(f findings) []number {
				return []number{f.overhead("bandwidth lost", nat("figure 11"), "one container, bandwidth", 0.16)}
			},
			otherwise: "Beside the token bucket that stands for the link, Weir keeps a little of its rate for what the host itself sends.",
		},
		{
			where: "figure 11a", says: "It adds 1.24 % to the latency, and not more than 0.006 ms.",
			numbers: func(f findings) []number {
				group, name := nat("figure 11"), "one container, round trip"
				added := number{name: "round trip added", unit: unitTime, rule: atMost, ideal: 0.006, paper: report.Number(0.006)}
				if result := f.of(group, name, PeerWeir); result != nil && result.Overhead != nil {
					added.measured = result.Overhead.AddedMS
				}
				return []number{f.overhead("round trip added", group, name, 1.24), added}
			},
			otherwise: "A veth pair in one machine answers in a few hundredths of a millisecond, so that each microsecond of a program at the veth, one at the uplink and " +
				"of HTB is a percent and more; the paper's packets went through network cards, and its increase of 0.006 ms is 1.24 % of 0.5 ms.",
		},
		{
			where: "figure 11b", says: "With two containers that share 80 to 20, control costs 2.8 % of bandwidth.",
			numbers: func(f findings) []number {
				return []number{f.overhead("bandwidth lost", nat("figure 11"), "80 to 20", 2.8)}
			},
			otherwise: missedShares,
		},
		{
			where: "conclusion", says: "Bandwidth and latency are guaranteed in all network modes.",
			numbers: func(f findings) []number {
				var list []number
				for _, mode := range cntcModes {
					group := cntcGroup("figures 1a and 7a", mode)
					list = append(list, named(string(mode)+", ", f.shares(group, connections))...)
					n := number{name: string(mode) + ", p99", rule: atMost, ideal: 2}
					list = append(list, f.roundTrip(n, cntcGroup("figures 1b and 7b", mode), latencyCase, PeerWeir, p99))
				}
				return list
			},
			otherwise: missedShares,
		},
	}
}

// connectionTolerance is for what connections share among themselves: nobody
// promises that.
const connectionTolerance = 0.15

// cntcGroup names the cases of a figure in a mode.
func cntcGroup(figure string, mode testbed.Mode) string { return fmt.Sprintf("%s, %s", figure, mode) }

func named(prefix string, numbers []number) []number {
	for i := range numbers {
		numbers[i].name = prefix + strings.TrimPrefix(numbers[i].name, prefix)
	}
	return numbers
}

// paperShares are shares of a peer that should be what the paper saw of it.
func (f findings) paperShares(group, name, peer string, tolerance float64) []number {
	result := f.of(group, name, peer)
	if result == nil {
		return []number{{name: name, unit: unitRate}}
	}
	var list []number
	for _, share := range result.Shares {
		if share.PaperBPS == nil {
			continue
		}
		n := share.number("")
		n.ideal, n.tolerance = *n.paper, tolerance
		list = append(list, n)
	}
	return list
}

// roundTrip is a number of milliseconds.
func (f findings) roundTrip(n number, group, name, peer string, value func(Latency) float64) number {
	n.unit = unitTime
	if result := f.of(group, name, peer); result != nil && result.Latency != nil {
		n.measured = report.Number(value(*result.Latency))
	}
	return n
}

func p99(l Latency) float64 { return l.P99MS.Median }

// linkUse is what was sent, of what the ideal sends.
func linkUse(r CaseResult) float64 { return r.LinkUse.Median }

// overhead is what Weir takes, at most what the paper's percentage says.
func (f findings) overhead(name, group, caseName string, paperPercent float64) number {
	n := number{name: name, unit: unitPart, rule: atMost, ideal: paperPercent, paper: report.Number(paperPercent)}
	if result := f.of(group, caseName, PeerWeir); result != nil && result.Overhead != nil {
		n.measured = report.Number(result.Overhead.Fraction * 100)
	}
	return n
}
