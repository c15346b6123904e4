//go:build docker

package edge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
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
		"weir-edge push", "The page is at http://127.0.0.1:", "weir.min=12mbit", "A backup", "beside the camera", "has room for it, 19mbit: ", "weir-edge deploy garage.json", "dies", "is back", "Removing everything",
		"The viewers of the garage got ", " after it was removed: ", " after the node died: ",
	} {
		if !strings.Contains(said.String(), scene) {
			t.Errorf("%q was not announced", scene)
		}
	}
	for _, seen := range []string{"3 of 3 nodes are ready", "2 of 3 nodes are ready", "running", "gone", "users get: shop ", "; camera 12.", "; garage 12."} {
		if !strings.Contains(out.String(), seen) {
			t.Errorf("%q was not shown", seen)
		}
	}
	if left := unmeasured(said.String(), out.String()); left != "" {
		t.Errorf("figures that no user has measured:\n%s", left)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// measured are the sentences of the demo about what users measured at their sockets, settings the figures that
// are not measured: names, addresses, the number of users, and the values of labels.
var (
	measured = regexp.MustCompile(strings.Join([]string{
		`Since [a-z ]+ the viewers of the [a-z]+ have had 97 % of the minimum or more in each second: [\d.]+ Mbit/s in the worst one\.`,
		`The viewers of the [a-z]+ had less than 97 % of the minimum for [\d.]+ s, until [\d.]+ s after [a-z ]+: [\d.]+ Mbit/s in the worst second\.`,
		`The viewers of the [a-z]+ got [\d.]+ Mbit/s in the last second\.`,
		`users get: .*`,
	}, "|"))
	settings = regexp.MustCompile(strings.Join([]string{
		`\b[\d.]+mbit\b`, `\b99\.9 %`, `weir\.weight=1000`, `\b(6|28) users`, `allows 10 at`, `\b8 viewers`, `\bnode 1\b`, `weir-demo/pages:1`, `weir-demo/video:1`,
		`\b3 private Docker`, `\b[023] of 3 nodes`, `https?://[\d.:]+`, `\b198\.1[89]\.[\d.]+:\d+`, `\beth0\b`,
	}, "|"))
)

// unmeasured returns the words of the demo's story, on its standard error and output, with a figure that is neither
// measured nor a setting.
func unmeasured(said, shown string) string {
	for _, found := range regexp.MustCompile(`(?m)^  (\S+) +(?:ready|stale|gone|draining) `).FindAllStringSubmatch(shown, -1) {
		said, shown = strings.ReplaceAll(said, found[1], "NODE"), strings.ReplaceAll(shown, found[1], "NODE")
	}
	text := strings.Join(strings.Fields(measured.ReplaceAllString(said+"\n"+shown, "")), " ")
	words := strings.Fields(settings.ReplaceAllString(text, ""))
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return !strings.ContainsAny(word, "0123456789") }), " ")
}

// TestUnmeasured: a figure that the demo would make up is found.
func TestUnmeasured(t *testing.T) {
	const node = "  vm-4x1 ready    camera running\n\n"
	for said, ok := range map[string]bool{
		"docker run --name garage --label weir.min=12mbit on vm-4x1, beside the camera: 8\nviewers come to it.":                                  true,
		"Since the backups started the viewers of the camera have had 97 % of the minimum or more in each second: 11.9 Mbit/s in the worst one.": true,
		"The camera has 12.0 Mbit/s.":       false,
		"The shop answers within 50 ms.":    false,
		"weir-edge moves it in 3 seconds.":  false,
		"  | node vm-4x1 has room, 19mbit:": true,
	} {
		if left := unmeasured(said, "users get: shop 300 answers/s in 20 ms; camera 12.0 Mbit/s\n\n3 of 3 nodes are ready\n"+node); (left == "") != ok {
			t.Errorf("%q: %q is left", said, left)
		}
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
