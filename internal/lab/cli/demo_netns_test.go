//go:build netns

package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
)

func TestDemoWithNamespaces(t *testing.T) {
	t.Parallel()
	demoShows(t, "--no-docker")
}

func TestDemoWithNamespacesInterrupted(t *testing.T) {
	t.Parallel()
	demoInterrupted(t, []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 3 * time.Second,
	}, "--no-docker")
}

// TestDemoSite: beside full uplinks the call stays below its bound, and all that the camera sends
// arrives. With the module openvswitch the desk fills the link between the switches.
func TestDemoSite(t *testing.T) {
	if program := testbed.MissingOVSProgram(); program != "" {
		t.Skipf("no %s to show: install openvswitch-switch (scripts/install-deps.sh test)", program)
	}
	scenes := []string{"in the kernel, and", "camera (static, bridge): ok", "A desk at node 1's switch", "in force"}
	if _, err := os.Stat("/sys/module/openvswitch"); err != nil {
		scenes = []string{"this kernel has no module openvswitch", "camera (static, bridge): ok", "nothing is shown", "waiting"}
	}
	harness.CheckSteady(t, func() error {
		_, _, finish := startDemo(t, "site", "--once")
		out := finish()
		for _, scene := range scenes {
			if !strings.Contains(out, scene) {
				t.Errorf("%q was not shown", scene)
			}
		}
		if t.Failed() {
			t.Fatal(out)
		}
		_, said, _ := strings.Cut(strings.Join(strings.Fields(out), " "), "with full uplinks: call after ")
		var p99, most, bound, got, sent float64
		var lost int
		_, err := fmt.Sscanf(said, "%f ms at the 99th percentile, %f ms at most, of %f; camera %f Mbit/s of %f Mbit/s sent, %d packets lost.", &p99, &most, &bound, &got, &sent, &lost)
		if err != nil || sent == 0 {
			t.Fatalf("%v: it says %q", err, said)
		}
		if p99 > bound || lost > 0 || got < 0.99*sent {
			return fmt.Errorf("the call took %.1f of %.1f ms, %.2f of %.2f Mbit/s of the camera arrived, %d packets were lost\n%s", p99, bound, got, sent, lost, out)
		}
		return nil
	})
}

func TestDemoSiteInterrupted(t *testing.T) {
	t.Parallel()
	demoInterrupted(t, []time.Duration{
		100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 9 * time.Second,
	}, "site")
}
