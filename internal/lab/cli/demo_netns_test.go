//go:build netns

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
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
		cmd, dir, finish := startDemo(t, "site", "--once")
		t.Cleanup(func() {
			if cmd.ProcessState == nil { // it has not led to the switches
				_ = cmd.Process.Signal(os.Interrupt)
				finish()
			}
		})
		leadsToSwitches(t, dir)
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

// leadsToSwitches waits until the page of the agent in a demo's folder shows both switches.
func leadsToSwitches(t *testing.T, dir string) {
	t.Helper()
	harness.Await(t, "the agent's page leads to the switches", time.Minute, func() error {
		pages, _ := filepath.Glob(filepath.Join(dir, "*", "agent.page")) // the pattern is right
		if len(pages) != 1 {
			return errors.New("there is no page")
		}
		address, err := os.ReadFile(pages[0])
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+string(address)+"/v1/sdn", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		var seen v1.SDN
		if err := json.NewDecoder(answer.Body).Decode(&seen); err != nil || len(seen.Switches) != 2 {
			return fmt.Errorf("%s: %+v, %w", answer.Status, seen, err)
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
