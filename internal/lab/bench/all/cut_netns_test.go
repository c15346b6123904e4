//go:build netns

package all

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/netmodes"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// For a process that is to be cut off cutDir names the folder of its page, cutProgram weir, and cutSection the page's section.
const (
	cutDir     = "WEIR_TEST_CUT_DIR"
	cutProgram = "WEIR_TEST_CUT_PROGRAM"
	cutSection = "WEIR_TEST_CUT_SECTION"
)

// smallPage returns a page of few short runs of a real suite.
func smallPage(t *testing.T, dir, weir, name string) (Options, *bytes.Buffer) {
	t.Helper()
	o, printed := publishing(t, "")
	o.WeirBinary = weir
	version, err := exec.CommandContext(t.Context(), o.WeirBinary, "--version").Output()
	must.Succeed(t, err)
	_, o.Version, _ = strings.Cut(strings.TrimSpace(string(version)), " version ")
	o.Dir, o.RateBPS, o.Docker, o.Short = dir, 20e6, false, true // also of a build of no commit
	short := func(o Options) Options {
		o.Duration, o.Warmup, o.Repeat = 200*time.Millisecond, 100*time.Millisecond, 2
		return o
	}
	o.sections = []section{
		{name: bench.SuiteCNTC, share: 1, run: func(ctx context.Context, o Options) (report.Result, error) {
			o = short(o)
			o.Only = regexp.MustCompile("^figures 1b and 7b, bridge: idle")
			return result(bench.Run(ctx, o.suite(bench.SuiteCNTC)))
		}},
		{name: netmodes.Suite, share: 1, run: func(ctx context.Context, o Options) (report.Result, error) {
			return result(netmodes.Run(ctx, netmodes.Options{
				Modes: []string{netmodes.Native, "bridge"}, Protocols: []traffic.Protocol{traffic.TCP}, MessageBytes: []int{netmodes.SmallBytes},
				Containers: 1, LinksBPS: []uint64{netmodes.PaperLinkBPS}, Agent: []bool{false, true}, RunOptions: short(o).RunOptions,
			}))
		}},
	}
	o.sections = slices.DeleteFunc(o.sections, func(one section) bool { return one.name != name })
	return o, printed
}

// TestCutPageGoesOn: a page whose processes are killed and interrupted amid real runs of a section has the runs, results and claims
// of one that was not cut off.
func TestCutPageGoesOn(t *testing.T) {
	if dir := os.Getenv(cutDir); dir != "" {
		ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
		defer stop()
		o, _ := smallPage(t, dir, os.Getenv(cutProgram), os.Getenv(cutSection))
		_, err := Run(ctx, o)
		must.Succeed(t, err)
		return
	}
	weir := harness.Program(t)
	for name, cuts := range map[string][]cut{
		bench.SuiteCNTC: {{4, syscall.SIGKILL}}, netmodes.Suite: {{3, syscall.SIGKILL}, {6, syscall.SIGINT}},
	} {
		t.Run(name, func(t *testing.T) {
			whole, _ := smallPage(t, t.TempDir(), weir, name)
			want, err := Run(t.Context(), whole)
			must.Succeed(t, err)
			o, printed := smallPage(t, t.TempDir(), weir, name)
			for _, one := range cuts {
				one.off(t, o, name)
			}
			got, err := Run(t.Context(), o)
			must.Succeed(t, err)
			if !strings.Contains(printed.String(), " runs are kept, the rest takes about ") {
				t.Errorf("it does not go on:\n%s", printed)
			}
			s, w := got.Sections[0], want.Sections[0]
			if s.Failure != w.Failure || s.Runs != w.Runs || len(s.Verdicts) != len(w.Verdicts) || len(s.Claims) != len(w.Claims) {
				t.Errorf("%d runs, failure %q, uncut %d, %q", s.Runs, s.Failure, w.Runs, w.Failure)
			}
			for k := range min(len(s.Claims), len(w.Claims)) {
				if a, b := s.Claims[k], w.Claims[k]; a.Where != b.Where || a.Says != b.Says || len(a.Values) != len(b.Values) {
					t.Errorf("claim %+v, uncut %+v", a, b)
				}
			}
			if a, b := results(t, o.Dir, name), results(t, whole.Dir, name); len(a) == 0 || !reflect.DeepEqual(a, b) {
				t.Errorf("results %v, uncut %v", a, b)
			}
		})
	}
}

// cut is a signal to the process after a number of lines of its journal, which are settings and runs.
type cut struct {
	lines int
	how   syscall.Signal
}

// off starts a process that makes a page, and signals it in the first run of its section after the lines.
func (c cut) off(t *testing.T, o Options, name string) {
	t.Helper()
	journal := filepath.Join(o.Dir, name+".runs.jsonl")
	count := func() int {
		text, _ := os.ReadFile(journal) // there is none at first
		return bytes.Count(text, []byte("\n"))
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCutPageGoesOn$")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), // a killed process leaves its folders
		cutDir+"="+o.Dir, cutProgram+"="+o.WeirBinary, cutSection+"="+name)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // programs of a killed process have its output, until the next one ends them
	must.Succeed(t, cmd.Start())
	for deadline := time.Now().Add(time.Minute); count() < c.lines; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(o.Dir, keptName(name))); err == nil || time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("%s has %d lines, its section ended (%v): %s", journal, count(), err, &out)
		}
	}
	time.Sleep(50 * time.Millisecond) // into the next run
	must.Succeed(t, cmd.Process.Signal(c.how))
	if err := cmd.Wait(); err == nil {
		t.Fatalf("%v did not end the process: %s", c.how, &out)
	}
	if count() < c.lines {
		t.Fatalf("%v left %d lines of %s, want %d", c.how, count(), journal, c.lines)
	}
}

// results returns the cases of a section's results with their numbers of runs.
func results(t *testing.T, dir, name string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name+".json"))
	must.Succeed(t, err)
	var found struct{ Results []map[string]any }
	must.Succeed(t, json.Unmarshal(text, &found))
	for _, one := range found.Results {
		list = append(list, fmt.Sprint(one["group"], one["case"], one["peer"], one["mode"], one["message_bytes"], one["agent"], one["total_bps"], one["runs"], one["failure"]))
	}
	return list
}
