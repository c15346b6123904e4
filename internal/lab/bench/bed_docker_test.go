//go:build docker

package bench

import (
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"

	"github.com/weir-project/weir/internal/lab/bench/measure"
)

// TestSuiteRunsInDocker runs a case of ceilings in Docker containers: HTB and
// the CNI plugin keep them, and the plugin can be put on and taken off.
func TestSuiteRunsInDocker(t *testing.T) {
	report, err := Run(t.Context(), Options{
		Suite:      "qcon",
		RateBPS:    100e6,
		Peers:      []string{PeerHTB, PeerCNI},
		Only:       regexp.MustCompile(`figure 10: max 10,10$`),
		Docker:     true,
		Overload:   1.5,
		Containers: 1,
		CacheDir:   t.TempDir(),
		RunOptions: measure.RunOptions{Duration: 1500 * time.Millisecond, Warmup: 500 * time.Millisecond, Repeat: 2, WeirBinary: harness.Program(t), Progress: io.Discard},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != 2 || report.Failed() > 0 {
		t.Fatalf("%d results, %d failed: %+v", len(report.Results), report.Failed(), report)
	}
	for _, result := range report.Results {
		if result.Runs != 2 {
			t.Errorf("%s: %d runs, want 2", result.Peer, result.Runs)
		}
		for _, share := range result.Shares {
			if share.MaxBPS > 0 && share.Measured.Median > 1.02*float64(share.MaxBPS) {
				t.Errorf("%s, %s: %.2f Mbit/s above the ceiling", result.Peer, share.Container, share.Measured.Median/1e6)
			}
		}
	}
}
