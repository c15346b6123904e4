//go:build netns

package bench

import (
	"io"
	"math"
	"os"
	"regexp"
	"testing"
	"time"
)

// TestSuiteMeasuresHTB runs a few cases for real: HTB keeps weights and
// ceilings of equal senders, and no QoS does not.
func TestSuiteMeasuresHTB(t *testing.T) {
	report, err := Run(t.Context(), Options{
		Suite:      "qcon",
		RateBPS:    100e6,
		Duration:   1500 * time.Millisecond,
		Warmup:     500 * time.Millisecond,
		Repeat:     1,
		Peers:      []string{PeerNone, PeerHTB},
		Only:       regexp.MustCompile(`figure 7: weights 1:2:3|figure 10: max 10,10,15,25|table 1: idle`),
		Overload:   1.5,
		Containers: 1,
		WeirBinary: os.Args[0],
		CacheDir:   t.TempDir(),
		Progress:   io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != 6 {
		t.Fatalf("%d results, want 3 cases of 2 peers", len(report.Results))
	}
	for _, result := range report.Results {
		name := result.Group + ": " + result.Case + ", " + result.Peer
		if result.Failure != "" {
			t.Errorf("%s failed: %s", name, result.Failure)
		}
		if result.LinkUse != nil && result.Group == "figure 7" && math.Abs(result.LinkUse.Median-1) > 0.02 {
			t.Errorf("%s: link use %.3f, want 1", name, result.LinkUse.Median)
		}
		for _, share := range result.Shares {
			t.Logf("%s, %s: %.2f Mbit/s, ideal %.2f, error %+.2f %%", name, share.Container,
				share.Measured.Median/1e6, float64(share.IdealBPS)/1e6, share.Error*100)
			if result.Peer == PeerHTB && share.MaxBPS > 0 && share.Measured.Median > 1.02*float64(share.MaxBPS) {
				t.Errorf("%s: container %s exceeds its ceiling", name, share.Container)
			}
			if result.Peer == PeerNone && share.MaxBPS == 10e6 && share.Measured.Median < 1.5*float64(share.MaxBPS) {
				t.Errorf("%s: container %s keeps a ceiling that nobody sets", name, share.Container)
			}
		}
		if latency := result.Latency; latency != nil {
			t.Logf("%s: %+v", name, *latency)
			if latency.Sent < 100 || latency.Lost > 0 || latency.P50MS.Median > 5 {
				t.Errorf("%s: %+v on an idle link", name, *latency)
			}
		}
	}
}
