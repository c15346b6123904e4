//go:build netns || docker

package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/agent/top"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/test/harness"
)

// startDemo runs the demo in a process group of its own, as a terminal does, with dir as the folder
// for its files. finish waits for its end and returns what it printed.
func startDemo(t *testing.T, args ...string) (cmd *exec.Cmd, dir string, finish func() string) {
	t.Helper()
	dir = t.TempDir()
	cmd = exec.Command(harness.Program(t), append([]string{"demo"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, dir, func() string {
		t.Helper()
		if err := cmd.Wait(); err != nil {
			t.Errorf("weir demo: %v\n%s", err, out.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		return out.String()
	}
}

// demoInterrupted interrupts demos at several moments after they have begun to make things, again
// and again as impatient people do. What stays on the machine, scripts/leakcheck.sh tells.
func demoInterrupted(t *testing.T, moments []time.Duration, args ...string) {
	for _, after := range moments {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			cmd, dir, finish := startDemo(t, args...)
			harness.Await(t, "the demo makes its folder", time.Minute, func() error {
				if made, err := os.ReadDir(dir); err != nil || len(made) == 0 {
					return fmt.Errorf("there is %v, %w", made, err)
				}
				return nil
			})
			time.Sleep(after)
			for range 50 {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // fails if it has ended
				time.Sleep(10 * time.Millisecond)
			}
			finish()
		})
	}
}

// demoShows runs all scenes in a short time.
func demoShows(t *testing.T, args ...string) {
	_, _, finish := startDemo(t, append(args, "--duration", "18s")...)
	out := finish()
	for _, s := range newDemoScript(100_000_000).scenes {
		if !strings.Contains(out, cmdline.Wrap("== "+s.text, top.DefaultWidth)[0]) {
			t.Errorf("the scene %q was not shown", s.text)
		}
	}
	if !strings.Contains(out, "\ncamera ") || strings.Contains(out, "degraded") {
		t.Error("the pictures are not as expected")
	}
	if t.Failed() {
		t.Log(out)
	}
}
