package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/liveport"
	"github.com/weir-project/weir/internal/lab/bench/llq"
	"github.com/weir-project/weir/internal/lab/bench/netmodes"
	"github.com/weir-project/weir/internal/lab/bench/picasso"
	"github.com/weir-project/weir/internal/lab/bench/sdn"
	"github.com/weir-project/weir/internal/lab/report"
)

// resultFile writes a result as weir bench prints it.
func resultFile(t *testing.T, result any) string {
	t.Helper()
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "result.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// costResult is a result of weir bench cost with one quantity.
func costResult(kernel string, values ...float64) bench.Report {
	return bench.Report{
		Report: report.Report{
			Format: report.Format, Title: "weir bench cost",
			Provenance: report.Provenance{Environment: report.Environment{Kernel: kernel}},
			Quantities: []report.Quantity{{Case: "TCP, weir", Name: "packets a second", Unit: "1/s", Better: report.Higher, Values: values}},
		},
		Suite: "cost", Skipped: map[string]string{"cni-bandwidth": "no go"},
	}
}

func TestBenchCompare(t *testing.T) {
	a := resultFile(t, costResult("6.18", 100, 101, 99, 100, 102))
	b := resultFile(t, costResult("7.2", 90, 91, 89, 90, 92))
	code, stdout, stderr := run("bench", "compare", a, b)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{"NOT THE SAME: another kernel: 6.18 against 7.2", "worse", "packets a second", "1 quantities: 1 worse."} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not printed:\n%s", want, stdout)
		}
	}
	code, stdout, _ = run("bench", "compare", a, a, "-o", "json")
	var found report.Comparison
	if err := json.Unmarshal([]byte(stdout), &found); code != 0 || err != nil || found.Count(report.Same) != 1 || len(found.Differences) != 0 {
		t.Errorf("exit code %d, %v: %+v", code, err, found)
	}
}

// TestBenchCompareSuites: what each suite with a format of its own prints is read again.
func TestBenchCompareSuites(t *testing.T) {
	of := costResult("6.18", 1, 2, 3, 4).Report
	for _, result := range []any{
		netmodes.Report{Report: of, Suite: netmodes.Suite},
		llq.Report{Report: of, Suite: llq.Suite, DurationS: 1},
		llq.Report{Report: of, Suite: llq.SuiteFigures, Results: []llq.Result{{Peer: bench.PeerWeir, TotalBPS: 105e6}}},
		liveport.Report{Report: of, Suite: liveport.Suite},
		sdn.Report{Report: of, Suite: sdn.Suite, Switches: 100, Controllers: []sdn.Controller{{Name: "weir"}}},
		picasso.Report{Report: of, Suite: picasso.Suite, NodeCPUs: 0.1, Crowds: []picasso.Crowd{{Server: "nginx"}}},
	} {
		file := resultFile(t, result)
		if code, stdout, stderr := run("bench", "compare", file, file); code != 0 || !strings.Contains(stdout, " no difference beyond noise.") {
			t.Errorf("%T: exit code %d: %s%s", result, code, stdout, stderr)
		}
	}
}

// TestBenchCompareModel: results of the model are read too, all three kinds, and what
// is computed twice is the same.
func TestBenchCompareModel(t *testing.T) {
	written := func(args ...string) string {
		code, stdout, stderr := run(append([]string{"model", "llq", "-o", "json"}, args...)...)
		if code != 0 {
			t.Fatal(stderr)
		}
		path := filepath.Join(t.TempDir(), "model.json")
		if err := os.WriteFile(path, []byte(stdout), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, args := range [][]string{{"--joint"}, {"--sweep", "poll=1:3:1"}} {
		code, stdout, stderr := run("bench", "compare", written(args...), written(args...))
		if code != 0 || !strings.Contains(stdout, " no difference beyond noise.") || strings.Contains(stdout, "worse") {
			t.Errorf("%v: exit code %d: %s%s", args, code, stdout, stderr)
		}
	}
	code, stdout, stderr := run("bench", "compare", written(), written("--arrival", "33.4mbit,33.3mbit,33.3mbit"))
	if code != 0 || !strings.Contains(stdout, "worse") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	figures := written("--figures", filepath.Join(t.TempDir(), "x.html"))
	code, _, stderr = run("bench", "compare", figures, figures)
	if code != cmdline.Failed || !strings.Contains(stderr, "nothing in common") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestBenchCompareRefuses(t *testing.T) {
	good := resultFile(t, costResult("6.18", 1))
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "bad.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct{ file, want string }{
		{write("{\n  \"suite\": \"cost\",\n  \"format\": 1,\n  \"colour\": 3\n}"), `line 4, column 3: unknown field "colour"`},
		{write("{\n  \"suite\": \"netmodes\",\n  \"results\": [{\"link_bps\": \"20mbit\"}]\n}"), "line 3, column 28: results/0/link_bps is"},
		{write("{\n  \"suite\": \"netmodes\",\n  \"colour\": 1}"), `line 3, column 3: unknown field "colour"`},
		{write("results"), "line 1, column 1: it is no JSON"},
		{"/nowhere.json", "open /nowhere.json"},
	} {
		code, stdout, stderr := run("bench", "compare", good, test.file)
		if code != cmdline.Failed || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("exit code %d: %s, want %q", code, stderr, test.want)
		}
	}
	if code, _, stderr := run("bench", "compare", good); code != cmdline.Usage || !strings.Contains(stderr, "B.json is missing") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
