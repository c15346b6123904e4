//go:build netns

package bench

import (
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"
)

// TestLLQMeasures: beyond the link's rate HTB by hand loses nothing of voice and keeps
// it far from the delay of one queue, and what arrives is what the link takes. An agent
// that does not order flows is left out and named.
func TestLLQMeasures(t *testing.T) {
	const congested = 150e6
	found, err := RunLLQ(t.Context(), LLQOptions{
		TotalsBPS: []uint64{llqQuietBPS, congested}, Peers: LLQPeers(), Duration: 300 * time.Millisecond, Warmup: 100 * time.Millisecond, Repeat: 1,
		WeirBinary: harness.Program(t), Progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	if found.Failed() > 0 || len(found.Results) != 6-2*len(found.Skipped) || found.Skipped[PeerFIFO]+found.Skipped[PeerHTB] != "" {
		t.Fatalf("%d results, failures %v, left out %v", len(found.Results), found.Failures, found.Skipped)
	}
	for _, one := range found.Results {
		sum := 0.0
		for _, flow := range one.Flows {
			sum += flow.ThroughputBPS.Median
		}
		// The sender may be held up; the bucket that stands for the link holds a
		// millisecond, of 300.
		if want := min(float64(one.TotalBPS), llqLinkBPS); sum < 0.5*want || sum > 1.03*want {
			t.Errorf("%s, %d bit/s: %.1f Mbit/s arrive", one.Peer, one.TotalBPS, sum/1e6)
		}
	}
	fifo, htb := found.find(PeerFIFO, congested), found.find(PeerHTB, congested)
	if loss := htb.Flows[0].Loss.Median; loss > 0.01 {
		t.Errorf("HTB loses %.1f %% of voice", 100*loss)
	}
	if own, one := htb.Flows[0].DelayMS.Median, fifo.Flows[0].DelayMS.Median; own > one/4 {
		t.Errorf("voice waits %.3g ms with HTB, %.3g ms with FIFO", own, one)
	}
	if loss := htb.Flows[2].Loss.Median; loss < 0.2 {
		t.Errorf("HTB loses %.1f %% of generic data, which has the least", 100*loss)
	}
}

// TestModelMeasures: a live port sends what the model says, roughly, in the little time
// that there is here, and HTB, which gives what is idle to others, more.
func TestModelMeasures(t *testing.T) {
	found, err := RunModel(t.Context(), ModelOptions{
		Duration: time.Second, Warmup: 200 * time.Millisecond, Repeat: 1, Seed: 1, Only: regexp.MustCompile("turns|HTB, the paper"),
		WeirBinary: harness.Program(t), Progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	if found.Failed() > 0 || len(found.Results) != 2 {
		t.Fatalf("%d results, failures %v", len(found.Results), found.Failures)
	}
	for q, queue := range found.Results[0].Queues {
		if off := queue.ThroughputPPS.Median / queue.ModelThroughputPPS; off < 0.8 || off > 1.2 {
			t.Errorf("queue %d sends %.0f packets/s, the model says %.0f", q, queue.ThroughputPPS.Median, queue.ModelThroughputPPS)
		}
		if queue.WaitMS.Median < queue.PortWaitMS || queue.PortWaitMS <= 0 {
			t.Errorf("queue %d: packets wait %.3g ms, by the port's own clock %.3g", q, queue.WaitMS.Median, queue.PortWaitMS)
		}
	}
	if af := found.Results[1].Queues[1]; af.ThroughputPPS.Median < 1.3*af.ModelThroughputPPS {
		t.Errorf("HTB sends %.0f packets/s of AF, the model %.0f", af.ThroughputPPS.Median, af.ModelThroughputPPS)
	}
}
