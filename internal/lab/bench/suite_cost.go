package bench

import (
	"fmt"

	"github.com/weir-project/weir/internal/lab/traffic"
)

// costContainers is how many containers figure 12 goes up to.
const costContainers = 5

// unlimitedContainers are how many send on a link without a rate.
var unlimitedContainers = []int{1, 2, 5, 50}

// smallPayloadBytes makes the packets of which a CPU can send the most.
const smallPayloadBytes = 64

const costNote = "A link without a rate is a veth pair, which by default has no queue and no lock: none. A network card has both, " +
	"and so has fifo; that is what the cost of control on a network card compares with."

// costAtLinkRate is figure 12 of qCon: CPU use with a growing number of
// containers of equal weight on a full link.
func costAtLinkRate(linkBPS uint64) []Case {
	return costCases("figure 12", linkBPS, Load{Protocol: traffic.TCP}, []int{1, 2, 3, 4, costContainers}, PeerNone, PeerHTB, PeerHTBExact, PeerHTBLow, PeerWeir, PeerWeirBalanced, PeerWeirLow)
}

// costSuite is figure 12 and the same on a link that only the CPU limits,
// with large packets (TCP) and small ones (UDP).
func costSuite(options Options) []Case {
	cases := costAtLinkRate(options.RateBPS)
	for i := range cases {
		cases[i].Ratios = aimsFigure12
	}
	// Without a rate there is no bucket that stands for the link, so none is
	// no queue at all and fifo what a network card has.
	peers := []string{PeerNone, PeerFIFO, PeerHTB, PeerWeir}
	add := func(group string, load Load, aim *ratioAim) {
		for _, c := range costCases(group, 0, load, unlimitedContainers, peers...) {
			c.Ratios = []*ratioAim{aim}
			cases = append(cases, c)
		}
	}
	add("unlimited TCP", Load{Protocol: traffic.TCP}, aimTCP)
	add("unlimited 64-byte UDP", Load{Protocol: traffic.UDP, PayloadBytes: smallPayloadBytes, Flood: true}, aimPackets)
	return cases
}

func costCases(group string, linkBPS uint64, load Load, counts []int, peers ...string) []Case {
	var cases []Case
	for _, count := range counts {
		one := Case{
			Group: group, Name: fmt.Sprintf("%d containers", count), LinkBPS: linkBPS,
			Measures: MeasureCost, Peers: peers,
		}
		for i := range count {
			one.Containers = append(one.Containers, Container{Name: fmt.Sprintf("C%d", i+1), Policy: Policy{Weight: 1}, Load: load})
		}
		cases = append(cases, one)
	}
	return cases
}
