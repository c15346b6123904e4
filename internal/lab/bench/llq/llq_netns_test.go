//go:build netns

package llq

import (
	"io"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/test/harness"
)

// TestLLQMeasures: beyond the link's rate HTB by hand and Weir lose nothing of voice and keep it far from the delay of one queue, and
// what arrives is what the link takes. Runs are long enough for the EF policer to see unmarked flows. An agent that does not order
// flows is named.
func TestLLQMeasures(t *testing.T) {
	const congested = 150e6
	found, err := Run(t.Context(), Options{
		TotalsBPS: []uint64{quietBPS, congested}, Peers: Peers(),
		RunOptions: measure.RunOptions{Duration: 300 * time.Millisecond, Warmup: 100 * time.Millisecond, Repeat: 1, WeirBinary: harness.Program(t), Progress: io.Discard},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Failures) > 0 || len(found.Results) != 6-2*len(found.Skipped) || found.Skipped[bench.PeerFIFO]+found.Skipped[bench.PeerHTB] != "" {
		t.Fatalf("%d results, failures %v, left out %v", len(found.Results), found.Failures, found.Skipped)
	}
	for _, one := range found.Results {
		sum := 0.0
		for _, flow := range one.Flows {
			sum += flow.ThroughputBPS.Median
		}
		// The sender may be held up; the bucket that stands for the link holds a
		// millisecond, of 300.
		if want := min(float64(one.TotalBPS), linkBPS); sum < 0.5*want || sum > 1.03*want {
			t.Errorf("%s, %d bit/s: %.1f Mbit/s arrive", one.Peer, one.TotalBPS, sum/1e6)
		}
	}
	fifo := found.find(bench.PeerFIFO, congested)
	for _, peer := range []string{bench.PeerHTB, bench.PeerWeir} {
		ordered := found.find(peer, congested)
		if ordered == nil {
			continue // it is left out
		}
		if loss := ordered.Flows[0].Loss.Median; loss > 0.01 {
			t.Errorf("%s loses %.1f %% of voice", peer, 100*loss)
		}
		if own, one := ordered.Flows[0].DelayMS.Median, fifo.Flows[0].DelayMS.Median; own > one/4 {
			t.Errorf("voice waits %.3g ms with %s, %.3g ms with FIFO", own, peer, one)
		}
		if loss := ordered.Flows[2].Loss.Median; loss < 0.2 {
			t.Errorf("%s loses %.1f %% of generic data, which has the least", peer, 100*loss)
		}
	}
}
