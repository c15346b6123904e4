package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-project/weir/internal/lab/traffic"
)

// reactionRounds of 20 cycles, which 10 s have, make 100 changes of each kind.
const reactionRounds = 5

// reactionSuite measures the time to the new allocation when containers
// start, alone and together, stop and burst, and when a policy is changed, with
// senders that react to nothing (UDP) and with TCP.
func reactionSuite(options Options) []Case {
	var cases []Case
	cycles := int(math.Ceil(2 * options.Duration.Seconds()))
	for _, protocol := range []traffic.Protocol{traffic.UDP, traffic.TCP} {
		cases = append(cases, startStopsCase(protocol, options, cycles), setCase(protocol, options, cycles))
	}
	return append(cases, startTogetherCase(options, cycles))
}

// changeGaps returns the times between one change and the next: long enough to see whether rates stay,
// and random, so that changes meet the control loop at any time of its turn.
func changeGaps(seed uint64) func() time.Duration {
	random := rand.New(rand.NewPCG(seed, 0))
	return func() time.Duration { return 300*time.Millisecond + time.Duration(random.IntN(60))*time.Millisecond }
}

// startStopsCase: C1 sends all the time, C2 starts and stops once a cycle, and meanwhile C3 bursts.
func startStopsCase(protocol traffic.Protocol, options Options, cycles int) Case {
	gap, at := changeGaps(options.Seed), time.Duration(0)
	var second, third []Interval
	for range cycles {
		start := at + gap()
		burst := start + gap()
		over := burst + gap()
		at = over + gap()
		second, third = append(second, Interval{start, at}), append(third, Interval{burst, over})
	}
	at += gap()
	load := func(active ...Interval) Load { return Load{Protocol: protocol, Active: active} }
	return Case{
		Group: "start and stop", Name: string(protocol), LinkBPS: options.RateBPS,
		Length: at, Measures: MeasureReaction, Peers: []string{PeerNone, PeerHTB, PeerWeir, PeerWeirBalanced},
		Containers: []Container{
			{Name: "C1", Policy: Policy{Weight: 1}, Load: load(Interval{0, at})},
			{Name: "C2", Policy: Policy{Weight: 2}, Load: load(second...)},
			{Name: "C3", Policy: Policy{Weight: 3}, Load: load(third...)},
		},
	}
}

// startTogetherCase: all start at once and stop at once, each cycle. Each has saved as much as a silent
// container may. TCP is left out: how fast it fills an idle link is not the scheduler's matter.
func startTogetherCase(options Options, cycles int) Case {
	gap, at := changeGaps(options.Seed), time.Duration(0)
	var active []Interval
	for range cycles {
		start := at + gap()
		at = start + gap()
		active = append(active, Interval{start, at})
	}
	c := Case{
		Group: "start together", Name: string(traffic.UDP), LinkBPS: options.RateBPS,
		Length: at + gap(), Measures: MeasureReaction, Peers: []string{PeerNone, PeerHTB, PeerWeir, PeerWeirBalanced},
	}
	for i := range 3 {
		c.Containers = append(c.Containers, Container{
			Name: fmt.Sprintf("C%d", i+1), Policy: byWeight(uint32(i + 1)), Load: Load{Protocol: traffic.UDP, Active: active},
		})
	}
	return c
}

// setCase: all send, and each cycle C1 gets another weight and back, a floor and a ceiling by
// `weir set`; only Weir can change policies.
func setCase(protocol traffic.Protocol, options Options, cycles int) Case {
	load := Load{Protocol: protocol}
	c := Case{
		Group: "weir set", Name: string(protocol), LinkBPS: options.RateBPS, Measures: MeasureReaction,
		Peers: []string{PeerWeir, PeerWeirBalanced},
		Containers: []Container{
			{Name: "C1", Policy: Policy{Weight: 1}, Load: load},
			{Name: "C2", Policy: Policy{Weight: 2}, Load: load},
			{Name: "C3", Policy: Policy{Weight: 3}, Load: load},
		},
	}
	gap := changeGaps(options.Seed)
	for range cycles {
		for _, policy := range []Policy{{Weight: 5}, {Weight: 1}, {Weight: 1, MinBPS: options.RateBPS * 4 / 10}, {Weight: 1, MaxBPS: options.RateBPS / 10}} {
			c.Length += gap()
			c.Changes = append(c.Changes, Change{At: c.Length, Policy: policy})
		}
	}
	c.Length += gap()
	return c
}
