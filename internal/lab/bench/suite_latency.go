package bench

import (
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// latencySuite measures round trips of a container with a latency bound, alone and beside another that
// sends more than the link carries, in every mode.
func latencySuite(options Options) []Case {
	const idle = "idle"
	var cases []Case
	for _, mode := range testbed.Modes {
		for _, other := range []struct {
			name string
			load Load
		}{
			{idle, Load{}},
			{"beside 16 TCP", tcpLoad(16)},
			{"beside UDP", Load{Protocol: traffic.UDP}},
			{"beside 64-byte UDP", Load{Protocol: traffic.UDP, PayloadBytes: smallPayloadBytes}},
		} {
			c := Case{
				Group: string(mode), Name: other.name, Mode: mode, LinkBPS: options.RateBPS,
				Measures: MeasureLatency, Peers: []string{PeerNone, PeerHTB, PeerWeir, PeerWeirBalanced},
				Containers: []Container{
					{Name: "C1", Policy: Policy{Weight: 1, MinBPS: options.RateBPS / 10, LatencyMS: 2}},
					{Name: "C2", Policy: byWeight(1), Load: other.load},
				},
			}
			if other.name != idle {
				c.Baseline, c.MaxLatencyMS = idle, targetAddedLatencyMS
			}
			cases = append(cases, c)
		}
	}
	return cases
}
