package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench/claim"
	"github.com/weir-project/weir/internal/lab/report"
)

// qconResolutionMbps: the text rounds to whole megabits of payload.
const qconResolutionMbps = 1 / qconGoodput

// qconClaims returns the claims of sections 2 and 4 of qCon.
func qconClaims(f findings) []claim.Claim {
	const tcp, udp = "weights 3:2:1, tcp", "weights 3:2:1, udp"
	claims := []claim.Claim{
		{
			Section: "2.3", Where: qconFigure3, About: PeerDRR, Says: "With DRR three containers with weights of 3:2:1 that send TCP get about the same.",
			Numbers:   f.equalShares(qconFigure3, tcp, PeerDRR),
			Control:   f.equalShares(qconFigure3, tcp, PeerWeir),
			Otherwise: fullQueues,
		},
		{
			Section: "2.3", Where: qconFigure3, About: PeerDRR, Says: "With UDP, too, DRR cannot guarantee shares by weight.",
			Numbers:   []claim.Number{f.shareError(qconFigure3, udp, PeerDRR)},
			Control:   []claim.Number{f.shareError(qconFigure3, udp, PeerWeir)},
			Otherwise: fullQueues,
		},
		qconShares(f, "4.1.1", "figure 7", "C3 of weights 1:2:3 gets 43 Mbit/s of payload and C1 16; with 1:3:5 C3 gets five times as much as C1; "+
			"with 1:1:1 all get the same.", "weights 1:1:1", "weights 1:2:3", "weights 1:3:5"),
		qconShares(f, "4.1.1", "figure 8", "C1 alone uses the whole link; as others start, each gets its share by weight: 24 Mbit/s of payload for C4 and 12 for C2 when "+
			"all five send.", "1 of 5 sends", "2 of 5 send", "3 of 5 send", "4 of 5 send", "5 of 5 send"),
		qconShares(f, "4.1.2", "figure 9", "Reserved minimums are reached while weights share the rest: 31 Mbit/s of payload for C1 with a minimum of 30, "+
			"20 for C2 with 20, and C3 its 15.", "no minimum", "min 30", "min 30,20", "min 30,20,15"),
		qconShares(f, "4.1.2", "figure 9, last case", "With minimums of 30, 20, 15 and 15 Mbit/s the four get them, and C5 what is left, less than without minimums.",
			"min 30,20,15,15"),
		qconShares(f, "4.1.3", "figure 10", "A container with a maximum of 10 Mbit/s gets 9 of payload and the rest goes to the others; with maximums of 10, 10, 15 and 25 "+
			"C3 and C4 get 15 and 25 and C5 34.", "no maximum", "max 10", "max 10,10", "max 10,10,15", "max 10,10,15,25"),
		qconShares(f, "4.1.4", "figure 11", "Weights alone, then with a minimum of 30 Mbit/s for C1, which gets 31 of payload while the others get less.", "weights only", "C1 min 30"),
		{
			Section: "4.1.4", Where: "figure 11, last case", Says: "When C3 is limited to 15 Mbit/s, what it leaves goes to C1 and C2 by their weights, and both get more.",
			Numbers: f.shares(PeerWeir, "figure 11", "C1 min 30, C3 max 15"),
			Control: f.shares(PeerNone, "figure 11", "C1 min 30, C3 max 15"),
			Design: "A minimum raises a container to that rate, as in qCon (3.3.3): of the 85 Mbit/s beside C3, weight 1 of 3 is 28.3, below " +
				"C1's minimum of 30. So C1 stays at 30 and C2 gets all that C3 leaves. The paper's text has C1 above 30; its Algorithm 1 within a period " +
				"has it at 30 too, and gives C2 28.9, or 45 if containers come in the other order.",
			Otherwise: missedShares,
		},
		{
			Section: "4.2", Where: "figure 12", Says: "qCon takes the least processor time of the three, less than Docker without control and than tc, with one to five containers.",
			Numbers:   f.costs(PeerWeir, claim.AtMost, PeerNone, PeerHTB),
			NoControl: "it compares with the other two already",
			Otherwise: "On a link this slow Weir has packets cut to a few frames, so that shares hold within 50 ms and latency bounds are kept; " +
				"every packet passes the stack by itself, where the peers pass up to 64 KB at once. That costs processor time. qCon handles whole " +
				"packets in the bridge, every 30 ms, and bounds no latency.",
		},
		{
			Section: "4.2", Where: "figure 12", Says: "qCon takes the least processor time of the three: Weir with precision low.",
			Numbers:   f.costs(PeerWeirLow, claim.AtMost, PeerNone, PeerHTB),
			NoControl: "it compares with the other two already",
			Otherwise: "With precision low a packet lasts up to 5.25 ms of the link, about as long as HTB's, so both take about the same; what Weir takes more with few containers was not traced.",
		},
		{
			Section: "4.2", Where: "figure 12", About: PeerHTB, Says: "Linux Traffic Control takes the most processor time, for its lock, the more the more containers send.",
			Numbers:   append(f.costs(PeerHTB, claim.AtLeast, PeerNone, PeerWeir), f.growth(PeerHTB)),
			NoControl: "it compares tc with the other two already",
			Otherwise: "The link without control is a token bucket here, which has a lock of its own, and a lock is not what limits 100 Mbit/s on this processor. " +
				"Weir with precision exact cuts packets, and HTB does not.",
		},
		{
			Section: "4.3", Where: "table 1", Says: "A round trip of 64 bytes takes 0.5 ms with qCon as with Docker alone.",
			Numbers: []claim.Number{f.quotient(claim.Number{
				Name: "mean round trip, weir over none", Rule: claim.AtMost, Ideal: 1, Paper: report.Number(1), Tolerance: 0.1,
			}, "table 1", "idle", PeerWeir, PeerNone, meanRoundTrip)},
			NoControl: "it compares with a link without Weir. That the link is idle is this suite's reading",
			Otherwise: "A veth pair answers much faster than the paper's Raspberry Pi over Ethernet, so the few microseconds of Weir's programs and of " +
				"HTB are a larger part of a round trip; the table of round trips has them. The paper gives its numbers to 0.1 ms.",
		},
		{
			Section: "4.3", Where: "table 1", About: PeerHTB, Says: "A round trip of 64 bytes takes 0.6 ms with tc, similar to qCon's.",
			Numbers: []claim.Number{f.quotient(claim.Number{
				Name: "mean round trip, htb over none", Ideal: 1.2, Paper: report.Number(1.2), Tolerance: tenthsOfMS,
			}, "table 1", "idle", PeerHTB, PeerNone, meanRoundTrip)},
			NoControl: "it compares with a link without control. That the link is idle is this suite's reading",
			Otherwise: "A veth pair answers much faster than the paper's Raspberry Pi over Ethernet, so HTB's microseconds are another part of a round trip.",
		},
	}
	return claims
}

const fullQueues = "The paper's board sent each packet as soon as it was queued, so DRR had none to choose from. Here the token bucket that stands for " +
	"the link is what limits, queues are full, and DRR keeps weights."

// tenthsOfMS is what rounding to 0.1 ms makes of 0.6 to 0.5: 1 to 1.44 instead of 1.2.
const tenthsOfMS = 0.2

const missedShares = "Look at the shares of the case, and at how busy the machine was."

// qconShares returns a claim about the shares of cases of a figure, with which where begins.
func qconShares(f findings, section, where, says string, cases ...string) claim.Claim {
	judged := claim.That(where, says, missedShares)
	judged.Section = section
	figure, _, _ := strings.Cut(where, ",")
	for _, name := range cases {
		numbers := f.shares(PeerWeir, figure, name)
		for i := range numbers {
			numbers[i].Resolution = f.of(figure, name, PeerWeir).resolution()
		}
		judged.Numbers = append(judged.Numbers, numbers...)
		judged.Control = append(judged.Control, f.shares(PeerNone, figure, name)...)
	}
	return judged
}

// resolution returns how finely the paper's numbers tell its aim, in Mbit/s: not at all with minimums or maximums, which may
// hold for payload or on the wire.
func (c *CaseResult) resolution() float64 {
	if c != nil && slices.ContainsFunc(c.Shares, func(s Share) bool { return s.MinBPS > 0 || s.MaxBPS > 0 }) {
		return math.Inf(1)
	}
	return qconResolutionMbps
}

// costs compares a peer's CPU time with that of others, by number of sending containers.
func (f findings) costs(peer string, rule claim.Rule, others ...string) (list []claim.Number) {
	for count := 1; count <= costContainers; count++ {
		name := fmt.Sprintf("%d containers", count)
		for _, over := range others {
			n := claim.Number{Name: fmt.Sprintf("%s, %s over %s", name, peer, over), Rule: rule, Ideal: 1}
			list = append(list, f.quotient(n, "figure 12", name, peer, over, cpuUse))
		}
	}
	return list
}

// growth returns how many times as much CPU time a peer takes when all containers send as when one does.
func (f findings) growth(peer string) claim.Number {
	one, all := f.of("figure 12", "1 containers", peer), f.of("figure 12", fmt.Sprintf("%d containers", costContainers), peer)
	n := claim.Number{Name: fmt.Sprintf("%s, %d containers over 1", peer, costContainers), Rule: claim.AtLeast, Ideal: 1}
	return divided(n, all, one, cpuUse)
}

// equalShares returns a peer's shares of a case, each compared with an equal part of the link.
func (f findings) equalShares(group, name, peer string) []claim.Number {
	list := f.shares(peer, group, name)
	if result := f.of(group, name, peer); result != nil {
		for i := range list {
			list[i].Ideal, list[i].Tolerance = float64(result.LinkBPS)/1e6/float64(len(list)), connectionTolerance
		}
	}
	return list
}

// leastUnfair is the error of a share, in percent, from which a peer does not keep weights.
const leastUnfair = 5

// shareError returns the largest error of a peer's shares of a case, which makes them unfair.
func (f findings) shareError(group, name, peer string) claim.Number {
	n := claim.Number{Name: "largest error of a share with " + peer, Unit: claim.UnitPart, Rule: claim.AtLeast, Ideal: leastUnfair}
	if result := f.of(group, name, peer); result != nil && len(result.Shares) > 0 {
		n = n.Over(result.over(result, func(r, _ CaseResult) float64 { return r.shareErrors().Median * 100 }))
	}
	return n
}

// cpuUse returns the traffic's CPU use as a fraction of all CPUs.
func cpuUse(r CaseResult) float64 { return r.Cost.CPUUse.Median }

// meanRoundTrip returns the mean round trip in milliseconds.
func meanRoundTrip(r CaseResult) float64 { return r.Latency.MeanMS.Median }
