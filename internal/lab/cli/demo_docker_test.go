//go:build docker

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
)

func TestDemoWithDocker(t *testing.T) {
	t.Parallel()
	demoShows(t)
}

func TestDemoWithDockerInterrupted(t *testing.T) {
	t.Parallel()
	demoInterrupted(t, []time.Duration{
		300 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
	})
}

func TestDemoEdgeInterrupted(t *testing.T) {
	t.Parallel()
	demoInterrupted(t, []time.Duration{
		300 * time.Millisecond, 3 * time.Second, 8 * time.Second, 25 * time.Second,
	}, "edge")
}

// TestDemoSite: beside backups that fill the uplinks the call stays below its bound, and viewers have the
// camera's minimum. With the module openvswitch the desk fills the link between the switches.
func TestDemoSite(t *testing.T) {
	if program := testbed.MissingOVSProgram(); program != "" {
		t.Skipf("no %s to show: install openvswitch-switch (scripts/install-deps.sh test)", program)
	}
	scenes := []string{"in the kernel, and", "uplink", "link l12 of switch 1 to switch 2", "A desk at node 1's switch", "in force"}
	if _, err := os.Stat("/sys/module/openvswitch"); err != nil {
		scenes = []string{"this kernel has no module openvswitch", "uplink", "link l12 of switch 1 to switch 2", "nothing is shown", "waiting"}
	}
	harness.CheckSteady(t, func() error {
		cmd, dir, finish := startDemo(t, "site", "--once")
		t.Cleanup(func() {
			if cmd.ProcessState == nil { // it has not led to the switches
				_ = cmd.Process.Signal(os.Interrupt)
				finish()
			}
		})
		leadsToOthers(t, dir)
		out := finish()
		for _, scene := range scenes {
			if !strings.Contains(out, scene) {
				t.Errorf("%q was not shown", scene)
			}
		}
		if t.Failed() {
			t.Fatal(out)
		}
		_, said, _ := strings.Cut(strings.Join(strings.Fields(out), " "), "seconds with backups: call after ")
		var p99, most, bound, camera, least, promised, all float64
		_, err := fmt.Sscanf(said, "%f ms at the 99th percentile, %f ms at most, of %f; camera %f Mbit/s, in the worst second %f Mbit/s, of %f Mbit/s promised; in all at node 2 %f Mbit/s.", &p99, &most, &bound, &camera, &least, &promised, &all)
		if err != nil || promised != siteMinBPS/1e6 {
			return fmt.Errorf("it says %q", said)
		}
		t.Logf("the camera had %.1f of %.1f Mbit/s, in the worst second %.1f, node 2 %.1f in all; the call took %.1f ms (p99)", camera, promised, least, all, p99)
		if err := saysWhatArrived(t, out, most, least); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		if p99 > bound || camera < keptPart*promised || all < 0.9*siteRateBPS/1e6 {
			return fmt.Errorf("the call took %.1f of %.1f ms, the camera had %.2f of %.2f Mbit/s, node 2 %.2f in all\n%s", p99, bound, camera, promised, all, out)
		}
		return nil
	})
}

// saysWhatArrived: what the demo says of its run is in the lines of what arrived, of which the worst are in
// the summary; other lines have no numbers but settings, and no word of how it goes.
func saysWhatArrived(t *testing.T, out string, most, least float64) error {
	t.Helper()
	told, _, _ := strings.Cut(out, "\nIn all ")
	worst, lowest, backups := 0., math.Inf(1), false
	for line := range strings.Lines(told) {
		backups = backups || strings.HasPrefix(line, "A backup")
		if arrived, ok := strings.CutPrefix(line, "arrives: "); ok {
			var p99, longest, camera float64 // 0 in a second in which nothing of it arrived
			for part := range strings.SplitSeq(arrived, "; ") {
				_, _ = fmt.Sscanf(part, "call after %f ms at the 99th percentile, %f ms at most", &p99, &longest)
				_, _ = fmt.Sscanf(part, "camera %f", &camera)
			}
			if backups {
				worst, lowest = max(worst, longest), min(lowest, camera)
			}
			continue
		}
		for word := range strings.FieldsSeq(line) {
			word = strings.TrimSuffix(strings.TrimRight(strings.TrimPrefix(word, "weir.min="), ".,:;"), "'s")
			said := strings.ContainsAny(word, "0123456789") && !strings.Contains(word, "://127.0.0.1:") && !strings.HasPrefix(word, "weir.latency=")
			if said && !slices.Contains([]string{"1", "2", "n1", "n2", "8", "50", "eth0", "10mbit", "20mbit", "6mbit", "198.18.66.2"}, word) ||
				slices.Contains([]string{"full", "below", "keeps", "stays", "first", "least", "only"}, word) {
				t.Errorf("%q is neither a setting nor measured: %s", word, line)
			}
		}
	}
	if worst != most || lowest != least {
		return fmt.Errorf("in the worst second the call took %.1f ms and the camera had %.1f Mbit/s; it says %.1f and %.1f", worst, lowest, most, least)
	}
	return nil
}

// leadsToOthers waits until the page of the agent in a demo's folder shows both switches, and that of
// weir-edge the only node.
func leadsToOthers(t *testing.T, dir string) {
	t.Helper()
	get := func(kind, path string, seen any) error {
		pages, _ := filepath.Glob(filepath.Join(dir, "*", kind+".page")) // the pattern is right
		if len(pages) != 1 {
			return fmt.Errorf("there is no page of %s", kind)
		}
		address, err := os.ReadFile(pages[0])
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+string(address)+path, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		return json.NewDecoder(answer.Body).Decode(seen)
	}
	harness.Await(t, "the agent's page leads to the switches, and there is weir-edge's", time.Minute, func() error {
		var switches v1.SDN
		var services edge.Snapshot
		err := errors.Join(get("agent", "/v1/sdn", &switches), get("edge", "/v1/snapshot", &services))
		if err == nil && (len(switches.Switches) != 2 || len(services.Nodes) != 1) {
			err = fmt.Errorf("%+v, %+v", switches, services.Nodes)
		}
		return err
	})
}

func TestDemoSiteInterrupted(t *testing.T) {
	t.Parallel()
	demoInterrupted(t, []time.Duration{
		100 * time.Millisecond, 2 * time.Second, 5 * time.Second, 15 * time.Second,
	}, "site")
}
