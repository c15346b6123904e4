package bench

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

const (
	// bottleneckShare is what in_rate is of the bottleneck before the uplink.
	bottleneckShare     = 0.95
	bottleneckQueueTime = 200 * time.Millisecond
	manyFlows           = 16
	// inWarmup is what TCP takes to find its share over a long queue and round trip.
	inWarmup = 3 * time.Second
	// inCycles are the starts and stops of a run at least.
	inCycles = 3
	bbr      = "bbr"
)

// BBR stops sending for a new look at the round trip when a connection is 10 s old (ProbeRTT). A minimum, a maximum and sparse
// downloads are judged by a worst second, window or round trip: of BBR they are measured beyond that. Many flows take longer to find
// their shares.
const (
	inMinimumWarmup, inMinimumDuration  = 8 * time.Second, 8 * time.Second
	inSparseWarmupBBR, inSparseDuration = 6 * time.Second, 5 * time.Second
	inMaximumDurationBBR                = 8 * time.Second
)

// inCongestionControls are the servers'.
var inCongestionControls = []string{"cubic", bbr}

// inRoundTrips are those of the ways from where containers download.
var inRoundTrips = []time.Duration{20 * time.Millisecond, 50 * time.Millisecond}

const inNote = "Policies are for what containers receive, counted at their sockets as bytes on the wire. UDP comes from a neighbour on " +
	"a link that only the CPU limits; TCP from a server with a round trip of its own, over a bottleneck before the uplink with a FIFO " +
	"of 200 ms, of which --in-rate is 95 %. Without control nothing but that FIFO shares the link. htb is at the containers' bridge, " +
	"which only the mode bridge has. cni-bandwidth and the policer, which drops what exceeds a bucket of 100 ms, know maximums only. ifb-fq_codel " +
	"(equal shares for flows) and cake-ingress (for containers) know no policies; what TCP downloads without stops or maximums. weir-in shares what comes in beside what goes out; what that costs what goes out is judged."

// inSuite measures shares of what comes in.
func inSuite(options Options) []Case {
	var cases []Case
	for _, mode := range []testbed.Mode{testbed.ModeBridge, testbed.ModeHost, testbed.ModeMacvlan, testbed.ModeOverlay} {
		for _, control := range append([]string{""}, inCongestionControls...) {
			one := Case{Group: "weights 1 to 5", Name: fmt.Sprintf("%s, %s", mode, cmp.Or(control, "udp")), Mode: mode, MinWarmup: inWarmup}
			load := Load{Protocol: traffic.UDP}
			if control != "" {
				// Macvlan and overlay networks end at the neighbour.
				if mode == testbed.ModeMacvlan || mode == testbed.ModeOverlay || mode == testbed.ModeHost && control != inCongestionControls[0] {
					continue
				}
				load.Protocol, one.Path = traffic.TCP, &Path{RoundTrip: inRoundTrips[0], CongestionControl: control}
			}
			for i := range 5 {
				one.Containers = append(one.Containers, Container{Name: fmt.Sprintf("C%d", i+1), Policy: Policy{Weight: uint32(i + 1)}, Load: load})
			}
			cases = append(cases, one)
		}
	}
	bulk := func(name string, connections int, p Policy) Container {
		return Container{Name: name, Policy: p, Load: Load{Protocol: traffic.TCP, Connections: connections}}
	}
	for number := range len(inRoundTrips) * len(inCongestionControls) {
		roundTrip, control := inRoundTrips[number%len(inRoundTrips)], inCongestionControls[number/len(inRoundTrips)]
		path := &Path{RoundTrip: roundTrip, CongestionControl: control}
		add := func(group, name string, c Case) {
			c.Group, c.Name, c.Path = group, fmt.Sprintf("%s%s, round trip %v", name, control, roundTrip), path
			c.MinWarmup = max(c.MinWarmup, inWarmup)
			cases = append(cases, c)
		}
		add(fmt.Sprintf("a minimum beside %d flows", 2*manyFlows), "", Case{MinWarmup: inMinimumWarmup, MinDuration: inMinimumDuration, Containers: []Container{
			bulk("C1", 1, Policy{Weight: 1, MinBPS: options.RateBPS * 3 / 10}),
			bulk("C2", manyFlows, Policy{Weight: 5}),
			bulk("C3", manyFlows, Policy{Weight: 5}),
		}})
		if roundTrip != inRoundTrips[0] {
			continue
		}
		add("1 flow against 16", "", Case{Containers: []Container{bulk("C1", 1, Policy{Weight: 1}), bulk("C2", manyFlows, Policy{Weight: 1})}})
		maximumPeers := []string{PeerNone, PeerHTB, PeerCNI, PeerPolicer, PeerWeir}
		maximum := Case{Measures: MeasureOvershoot, Peers: maximumPeers, Containers: []Container{bulk("C1", 1, Policy{Weight: 1, MaxBPS: options.RateBPS / 5})}}
		if control == bbr {
			maximum.MinDuration = inMaximumDurationBBR
		}
		add("a maximum", "", maximum)
		idle := Container{Name: "C1", Policy: Policy{Weight: 1}}
		sparse := Case{Measures: MeasureLatency, MinDuration: inSparseDuration, Containers: []Container{idle}}
		add("sparse", "alone, ", sparse)
		sparse.Baseline, sparse.MaxLatencyMS = cases[len(cases)-1].Name, targetInLatencyMS
		if control == bbr {
			sparse.MinWarmup = inSparseWarmupBBR
		}
		sparse.Containers = []Container{idle, bulk("C2", manyFlows, Policy{Weight: 1})}
		add("sparse", "", sparse)
		sparse.MaxLatencyMS, sparse.Containers = targetInOwnLatencyMS, []Container{bulk("C1", manyFlows, Policy{Weight: 1})}
		add("sparse", "of the same container, ", sparse)
	}
	cases = append(cases, inStartStopCase(traffic.UDP, options))
	for _, control := range inCongestionControls {
		path := Path{RoundTrip: inRoundTrips[0], CongestionControl: control}
		one := inStartStopCase(traffic.TCP, options)
		one.Name, one.Path = control, &path
		// The last container on a bottleneck of its share: what its sender takes to fill that, without a scheduler.
		alone, ownPath := one, path
		alone.Name, alone.Path, alone.Peers, alone.Containers = control+" alone", &ownPath, []string{PeerNone}, one.Containers[2:]
		alone.LinkBPS /= 2
		ownPath.RateBPS = alone.LinkBPS
		cases = append(cases, one, alone)
	}
	for i := range cases {
		c := &cases[i]
		c.Incoming, c.LinkBPS = true, cmp.Or(c.LinkBPS, options.RateBPS)
		if c.Path != nil {
			c.Path.RateBPS = cmp.Or(c.Path.RateBPS, uint64(float64(c.LinkBPS)/bottleneckShare))
			c.Path.QueueTime = bottleneckQueueTime
		}
		switch {
		case c.mode() != testbed.ModeBridge:
			c.Peers = []string{PeerWeir}
		case c.Path == nil: // nothing limits the link
			c.Peers = []string{PeerHTB, PeerWeir}
		case c.Peers == nil && !c.Measures.has(MeasureReaction):
			c.Peers = append(slices.Clone(defaultPeers), PeerIFB, PeerCAKE)
		}
	}
	tcp, small := Load{Protocol: traffic.TCP}, Load{Protocol: traffic.UDP, PayloadBytes: smallPayloadBytes, Flood: true}
	unlimited := slices.Concat(costCases("unlimited TCP", 0, tcp, []int{costContainers}, PeerNone, PeerWeir),
		costCases("unlimited 64-byte UDP", 0, small, []int{costContainers}, PeerNone, PeerWeir))
	unlimited[0].Ratios = []*ratioAim{aimInTCP}
	for _, c := range unlimited {
		c.Incoming = true
		cases = append(cases, c)
	}
	sent := slices.Concat(costCases("TCP that goes out", 0, tcp, []int{costContainers}, PeerWeir, PeerWeirIn),
		costCases("64-byte UDP that goes out", 0, small, []int{costContainers}, PeerWeir, PeerWeirIn))
	sent[0].Ratios, sent[1].Ratios = []*ratioAim{aimOutTCP}, []*ratioAim{aimOutUDP}
	return append(cases, sent...)
}

// inStartStopCase is startStopsCase with more time between changes, as TCP takes longer to follow a limit on what comes in:
// one change of each kind for a second of the duration, and inCycles at least.
func inStartStopCase(protocol traffic.Protocol, options Options) Case {
	c := startStopsCase(protocol, options, max(int(options.Duration.Seconds()), inCycles))
	const slower = 3
	c.Peers, c.Length = nil, slower*c.Length
	for i := range c.Containers {
		for j, active := range c.Containers[i].Load.Active {
			c.Containers[i].Load.Active[j] = Interval{slower * active.From, slower * active.Until}
		}
	}
	return c
}
