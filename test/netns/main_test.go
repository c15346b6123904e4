//go:build netns

package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code := harness.Main(m)
	if left := children(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "the tests left behind:\n\t%s\n", strings.Join(left, "\n\t"))
		code = 1
	}
	return code
}

// children are the processes that this one started and that still run.
// Namespaces are looked after by harness.Bed, everything else on the machine
// by scripts/leakcheck.sh.
func children() []string {
	var left []string
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, pid := range strings.Fields(string(text)) {
			command, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			left = append(left, "process "+pid+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return left
}

// TestLeftChildIsFound proves that the check at the end can fail.
func TestLeftChildIsFound(t *testing.T) {
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	}()
	// A process has no command line for a moment after it was started.
	var left []string
	for range 100 {
		if left = children(); len(left) == 1 && strings.Contains(left[0], "sleep 60") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("found %q, want one process", left)
}

func newBed(t *testing.T) *harness.Bed {
	t.Helper()
	return harness.NewBed(t, testbed.HostOptions{})
}

// labels makes a container's labels from names without their prefix and
// values, in turn.
func labels(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m["weir."+pairs[i]] = pairs[i+1]
	}
	return m
}

// competitor is a container of a test and what it sends.
type competitor struct {
	labels map[string]string
	load   harness.Load
}

// compete starts containers one, two, three and so on, an agent, and their
// loads.
func compete(t *testing.T, b *harness.Bed, options harness.AgentOptions, competitors ...competitor) (*harness.Agent, []*harness.Container) {
	t.Helper()
	names := []string{"one", "two", "three", "four", "five"}
	var containers []*harness.Container
	for i, c := range competitors {
		containers = append(containers, b.Add(names[i], c.labels))
	}
	agent := b.StartAgent(options)
	for i, c := range competitors {
		b.Send(containers[i], c.load)
	}
	return agent, containers
}

// claims are what competitors should get: all want all they can have, but for
// those whose load is below the link's rate.
func claims(rateBPS uint64, competitors ...competitor) []harness.Claim {
	var list []harness.Claim
	for _, c := range competitors {
		demand := harness.Unlimited
		if c.load.RateBPS != 0 && c.load.RateBPS < rateBPS {
			demand = c.load.RateBPS
		}
		steady := c.load.Protocol == traffic.UDP && c.load.RateBPS != 0
		list = append(list, harness.Claim{Labels: c.labels, DemandBPS: demand, Steady: steady})
	}
	return list
}
