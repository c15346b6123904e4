//go:build docker

package edge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestDemo: the demo shows what it announces, and leaves nothing when it is interrupted.
// What it would leave, the suite's leak check finds.
func TestDemo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(harness.Program(t), "demo", "edge")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	out, said := &logBuffer{}, &logBuffer{}
	cmd.Stdout, cmd.Stderr = out, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- cmd.Wait() }()
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			t.Logf("it ended with %v", <-end)
		}
		if t.Failed() {
			t.Logf("it said\n%s\nand showed\n%s", said, out)
		}
	})
	const lastScene = "That was all"
	harness.Await(t, "the last scene", 4*time.Minute, func() error {
		select {
		case err := <-end:
			ended = true
			t.Fatalf("it has ended: %v", err)
		default:
		}
		if !strings.Contains(said.String(), lastScene) {
			return errNot("none")
		}
		return nil
	})
	agentPages(t, said.String())
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-end:
		ended = true
		if err != nil {
			t.Errorf("interrupted, it ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	for _, scene := range []string{
		"weir-edge push", "The page is at http://127.0.0.1:", "weir.min=12mbit", "A backup", "is halved", "dies", "is back", "Removing everything",
		" after the uplink was halved: ", " after the node died: ",
	} {
		if !strings.Contains(said.String(), scene) {
			t.Errorf("%q was not announced", scene)
		}
	}
	for _, seen := range []string{"3 of 3 nodes are ready", "2 of 3 nodes are ready", "running", "gone", "users get: shop ", "; camera 12."} {
		if !strings.Contains(out.String(), seen) {
			t.Errorf("%q was not shown", seen)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// agentPages waits until the demo's page leads to the agent of each ready node, as that answers there.
func agentPages(t *testing.T, said string) {
	t.Helper()
	_, page, _ := strings.Cut(said, "The page is at ")
	page, _, _ = strings.Cut(page, ";")
	ask := func(path string, answer any) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page+path, nil)
		must.Succeed(t, err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if err := json.NewDecoder(response.Body).Decode(answer); err != nil || response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s%s: %s, %w", page, path, response.Status, err)
		}
		return nil
	}
	harness.Await(t, "the page leads to the agents", 30*time.Second, func() error {
		var seen edge.Snapshot
		err := ask("/v1/snapshot", &seen)
		for _, n := range seen.Nodes {
			var agent v1.Snapshot
			if err == nil && n.State == "ready" {
				err = ask("/nodes/"+n.Name+"/v1/snapshot", &agent)
			}
			if err == nil && n.State == "ready" && len(agent.Status.Uplinks) != 1 {
				err = fmt.Errorf("the agent of %s says %+v", n.Name, agent)
			}
		}
		return err
	})
}
