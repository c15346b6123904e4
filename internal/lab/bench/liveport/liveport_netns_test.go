//go:build netns

package liveport

import (
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"

	"github.com/weir-project/weir/internal/lab/bench/measure"
)

// TestModelMeasures: a live port sends what the model says, roughly, in the little time
// that there is here, and HTB, which gives what is idle to others, more.
func TestModelMeasures(t *testing.T) {
	found, err := Run(t.Context(), Options{Seed: 1, Only: regexp.MustCompile("turns|HTB, the paper"),
		RunOptions: measure.RunOptions{Duration: time.Second, Warmup: 200 * time.Millisecond, Repeat: 1, WeirBinary: harness.Program(t), Progress: io.Discard},
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
