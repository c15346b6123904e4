package bench

import (
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/lab/traffic"
)

// qconLinkMbps is the link of qCon's evaluation; the numbers of its figures
// are scaled from it to the link under test.
const qconLinkMbps = 100

const qconFigure3 = "figure 3"

// qconGoodput is the goodput netperf reports on 100 Mbit/s Ethernet: 1448 of the 1538 bytes of a
// full frame on the wire.
const qconGoodput = 1448. / 1538

const qconNote = "The paper's link has 100 Mbit/s; its numbers are scaled to the link under test. They are netperf's, of payload, of which full frames " +
	"carry 94.15 Mbit/s, and stand here as rates on the wire: 43 as 45.7. The paper does not say whether its minimums and maximums hold for " +
	"payload (then C5 of figure 10 has 34.15 left, with maximums on the wire 37.7 of payload), so of cases with limits none of its numbers counts as further off. " +
	"Table 1 refers to the setup of figure 12, in which containers send, but behind their queue Docker alone would not take 0.5 ms: here its link is idle."

// qconFigure is one figure of qCon, section 4.1 (Sensors 2018, 18, 3444), as
// far as its text and captions give it.
type qconFigure struct {
	figure  string
	weights []uint32 // for all cases that do not set their own
	peers   []string // nil: the usual ones
	cases   []qconCase
}

// qconCase lists rates in Mbit/s by container; missing ones are none.
type qconCase struct {
	name    string
	weights []uint32
	sending int // the first so many; 0 means all
	min     []uint64
	max     []uint64
	paper   map[int]float64 // payload that the paper measured, by container from 1
}

var qconFigures = []qconFigure{
	{figure: "figure 7", cases: []qconCase{
		{name: "weights 1:1:1", weights: []uint32{1, 1, 1}},
		{name: "weights 1:2:3", weights: []uint32{1, 2, 3}, paper: map[int]float64{1: 16, 3: 43}},
		{name: "weights 1:3:5", weights: []uint32{1, 3, 5}},
	}},
	{figure: "figure 8", weights: []uint32{1, 2, 3, 4, 5}, cases: []qconCase{
		{name: "1 of 5 sends", sending: 1},
		{name: "2 of 5 send", sending: 2},
		{name: "3 of 5 send", sending: 3},
		{name: "4 of 5 send", sending: 4},
		{name: "5 of 5 send", sending: 5, paper: map[int]float64{2: 12, 4: 24}},
	}},
	{figure: "figure 9", weights: []uint32{1, 2, 3, 4, 5}, cases: []qconCase{
		{name: "no minimum"},
		{name: "min 30", min: []uint64{30}, paper: map[int]float64{1: 31}},
		{name: "min 30,20", min: []uint64{30, 20}, paper: map[int]float64{2: 20}},
		{name: "min 30,20,15", min: []uint64{30, 20, 15}},
		{name: "min 30,20,15,15", min: []uint64{30, 20, 15, 15}},
	}},
	{figure: "figure 10", weights: []uint32{1, 1, 1, 1, 1}, peers: []string{PeerNone, PeerHTB, PeerCNI, PeerWeir}, cases: []qconCase{
		{name: "no maximum"},
		{name: "max 10", max: []uint64{10}, paper: map[int]float64{1: 9}},
		{name: "max 10,10", max: []uint64{10, 10}},
		{name: "max 10,10,15", max: []uint64{10, 10, 15}},
		{name: "max 10,10,15,25", max: []uint64{10, 10, 15, 25}, paper: map[int]float64{3: 15, 4: 25, 5: 34}},
	}},
	{figure: "figure 11", weights: []uint32{1, 2, 3}, cases: []qconCase{
		{name: "weights only"},
		{name: "C1 min 30", min: []uint64{30}, paper: map[int]float64{1: 31}},
		{name: "C1 min 30, C3 max 15", min: []uint64{30}, max: []uint64{0, 0, 15}},
	}},
}

// qconSuite is section 4 of qCon, figures 7 to 12 and table 1, and figure 3 of its section 2.
func qconSuite(options Options) []Case {
	cases := qconRoundRobin(options.RateBPS)
	for _, figure := range qconFigures {
		for _, entry := range figure.cases {
			cases = append(cases, entry.build(figure, options.RateBPS))
		}
	}
	cases = append(cases, costAtLinkRate(options.RateBPS)...)
	return append(cases, latencyCases(options.RateBPS)...)
}

// qconRoundRobin is figure 3: three containers with DRR. Its text gives no numbers, but that those of TCP were similar.
func qconRoundRobin(linkBPS uint64) []Case {
	var cases []Case
	for _, protocol := range []traffic.Protocol{traffic.TCP, traffic.UDP} {
		one := Case{
			Group: qconFigure3, Name: "weights 3:2:1, " + string(protocol), LinkBPS: linkBPS,
			Peers: []string{PeerNone, PeerWeir, PeerDRR, PeerHFSC},
		}
		for i, weight := range []uint32{3, 2, 1} {
			one.Containers = append(one.Containers, Container{Name: fmt.Sprintf("C%d", i+1), Policy: byWeight(weight), Load: Load{Protocol: protocol}})
		}
		cases = append(cases, one)
	}
	return cases
}

func (q qconCase) build(figure qconFigure, linkBPS uint64) Case {
	weights := q.weights
	if weights == nil {
		weights = figure.weights
	}
	built := Case{Group: figure.figure, Name: q.name, LinkBPS: linkBPS, Peers: figure.peers}
	for i, weight := range weights {
		one := Container{
			Name:   fmt.Sprintf("C%d", i+1),
			Policy: Policy{Weight: weight, MinBPS: scaled(q.min, i, linkBPS), MaxBPS: scaled(q.max, i, linkBPS)},
			Paper:  Paper{anyPeer: {q.paper[i+1] / qconGoodput * float64(linkBPS) / qconLinkMbps}},
		}
		if q.sending == 0 || i < q.sending {
			one.Load = Load{Protocol: traffic.TCP}
		}
		built.Containers = append(built.Containers, one)
	}
	return built
}

// scaled takes entry i, in Mbit/s of qCon's link, to bits per second of ours.
func scaled(mbps []uint64, i int, linkBPS uint64) uint64 {
	if i >= len(mbps) {
		return 0
	}
	return mbps[i] * linkBPS / qconLinkMbps
}

// latencyCases are table 1: UDP pings of 64 bytes, on an idle link and beside two
// containers that fill it. The paper has the setup of its section 4.2, in which
// containers send; behind their queue Docker alone would not take 0.5 ms.
func latencyCases(linkBPS uint64) []Case {
	bulk := Load{Protocol: traffic.TCP, Connections: 16}
	paper := map[string]float64{PeerNone: 0.5, PeerHTB: 0.6, PeerWeir: 0.5}
	peers := append(slices.Clone(defaultPeers), PeerDRR, PeerHFSC)
	return []Case{
		{
			Group: "table 1", Name: "idle", LinkBPS: linkBPS, Measures: MeasureLatency, Peers: peers, PaperLatencyMS: paper,
			Containers: []Container{{Name: "C1", Policy: Policy{Weight: 1}}},
		},
		{
			Group: "table 1", Name: "beside 2 x 16 TCP", LinkBPS: linkBPS, Measures: MeasureLatency, Peers: peers,
			Containers: []Container{
				{Name: "C1", Policy: Policy{Weight: 1}},
				{Name: "C2", Policy: Policy{Weight: 1}, Load: bulk},
				{Name: "C3", Policy: Policy{Weight: 1}, Load: bulk},
			},
		},
	}
}
