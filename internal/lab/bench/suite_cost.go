package bench

import (
	"fmt"

	"github.com/weir-project/weir/internal/lab/traffic"
)

// costContainers is how many containers figure 12 goes up to.
const costContainers = 5

// smallPayloadBytes makes the packets of which a CPU can send the most.
const smallPayloadBytes = 64

const costNote = "A link without a rate is a veth pair, which by default has no queue and no lock: none. A network card has both, " +
	"and so has fifo; that is what the cost of control on a network card compares with."

// costAtLinkRate is figure 12 of qCon: CPU use with a growing number of
// containers of equal weight on a full link.
func costAtLinkRate(linkBPS uint64) []Case {
	return costCases("figure 12", linkBPS, Load{Protocol: traffic.TCP}, PeerNone, PeerHTB, PeerHTBExact, PeerHTBLow, PeerWeir, PeerWeirBalanced, PeerWeirLow)
}

// costSuite is figure 12 and the same on a link that only the CPU limits,
// with large packets (TCP) and small ones (UDP).
func costSuite(options Options) []Case {
	cases := costAtLinkRate(options.RateBPS)
	// Without a rate there is no bucket that stands for the link, so none is
	// no queue at all and fifo what a network card has.
	peers := []string{PeerNone, PeerFIFO, PeerHTB, PeerWeir}
	cases = append(cases, costCases("unlimited TCP", 0, Load{Protocol: traffic.TCP}, peers...)...)
	small := Load{Protocol: traffic.UDP, PayloadBytes: smallPayloadBytes, Flood: true}
	return append(cases, costCases("unlimited 64-byte UDP", 0, small, peers...)[:2]...)
}

func costCases(group string, linkBPS uint64, load Load, peers ...string) []Case {
	var cases []Case
	for count := 1; count <= costContainers; count++ {
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
