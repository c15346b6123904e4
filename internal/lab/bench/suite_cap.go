package bench

import (
	"fmt"
	"time"

	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
)

// overshootWindow is the window in which a maximum must not be exceeded.
const overshootWindow = 100 * time.Millisecond

// capLength is how long a maximum is watched: token buckets show in the beginning.
const capLength = 5 * time.Second

// capSuite measures by how much a maximum is exceeded in any window, from the
// first packet on.
func capSuite(options Options) []Case {
	var cases []Case
	for _, capBPS := range []uint64{options.RateBPS / 10, options.RateBPS / 2} {
		for _, load := range []struct {
			name string
			load Load
		}{
			{"1 TCP", Load{Protocol: traffic.TCP}},
			{"16 TCP", Load{Protocol: traffic.TCP, Connections: 16}},
			{"UDP", Load{Protocol: traffic.UDP}},
		} {
			cases = append(cases, Case{
				Group:    fmt.Sprintf("cap %s of %s", policy.FormatRate(capBPS), policy.FormatRate(options.RateBPS)),
				Name:     load.name,
				LinkBPS:  options.RateBPS,
				Length:   capLength,
				Measures: MeasureOvershoot,
				Peers:    []string{PeerHTB, PeerCNI, PeerCNIContainerd, PeerWeir, PeerWeirBalanced},
				Containers: []Container{
					{Name: "C1", Policy: Policy{Weight: 1, MaxBPS: capBPS}, Load: load.load},
				},
			})
		}
	}
	return cases
}
