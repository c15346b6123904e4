package bench

import (
	"time"

	"github.com/weir-project/weir/internal/lab/traffic"
)

// reactionSuite measures the time to the new allocation when containers
// start, stop and burst, and when a policy is changed, with senders that
// react to nothing (UDP) and with TCP.
func reactionSuite(options Options) []Case {
	var cases []Case
	for _, protocol := range []traffic.Protocol{traffic.UDP, traffic.TCP} {
		cases = append(cases, startStopCase(protocol, options.RateBPS), setCase(protocol, options.RateBPS))
	}
	return cases
}

// startStopCase: C1 sends all the time, C2 from 1 to 5 seconds and C3 bursts
// from 2 to 3 and, shortly, from 3.5 to 3.8 seconds.
func startStopCase(protocol traffic.Protocol, linkBPS uint64) Case {
	const ms = time.Millisecond
	load := func(active ...Interval) Load { return Load{Protocol: protocol, Active: active} }
	return Case{
		Group: "start and stop", Name: string(protocol), LinkBPS: linkBPS,
		Length: 6000 * ms, Measures: MeasureReaction,
		Peers: []string{PeerNone, PeerHTB, PeerWeir},
		Containers: []Container{
			{Name: "C1", Policy: Policy{Weight: 1}, Load: load(Interval{0, 6000 * ms})},
			{Name: "C2", Policy: Policy{Weight: 2}, Load: load(Interval{1000 * ms, 5000 * ms})},
			{Name: "C3", Policy: Policy{Weight: 3}, Load: load(Interval{2000 * ms, 3000 * ms}, Interval{3500 * ms, 3800 * ms})},
		},
	}
}

// setCase: all send, and C1 gets another weight, a floor and a ceiling by
// `weir set`; only Weir can change policies.
func setCase(protocol traffic.Protocol, linkBPS uint64) Case {
	load := Load{Protocol: protocol}
	return Case{
		Group: "weir set", Name: string(protocol), LinkBPS: linkBPS,
		Length: 5 * time.Second, Measures: MeasureReaction,
		Peers: []string{PeerWeir},
		Containers: []Container{
			{Name: "C1", Policy: Policy{Weight: 1}, Load: load},
			{Name: "C2", Policy: Policy{Weight: 2}, Load: load},
			{Name: "C3", Policy: Policy{Weight: 3}, Load: load},
		},
		Changes: []Change{
			{At: 1 * time.Second, Container: 0, Policy: Policy{Weight: 5}},
			{At: 2 * time.Second, Container: 0, Policy: Policy{Weight: 1}},
			{At: 3 * time.Second, Container: 0, Policy: Policy{Weight: 1, MinBPS: linkBPS * 4 / 10}},
			{At: 4 * time.Second, Container: 0, Policy: Policy{Weight: 1, MaxBPS: linkBPS / 10}},
		},
	}
}
