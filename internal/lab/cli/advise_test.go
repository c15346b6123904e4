package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/bench/netmodes"
	"github.com/weir-project/weir/internal/lab/report"
)

// measured is what weir bench netmodes found on a machine: bridge twice as fast as
// host, no macvlan, and nothing known of Weir.
func measured(host, kernel string) netmodes.Report {
	one := func(mode string, bps float64) netmodes.Result {
		return netmodes.Result{
			Case: netmodes.Case{Mode: mode, Protocol: "tcp", MessageBytes: 64, Containers: 1}, Runs: 3,
			RateBPS: measure.Spread{Median: bps}, CPU: measure.Spread{Median: 0.5},
		}
	}
	return netmodes.Report{
		Report: report.Report{Format: report.Format, Provenance: report.Provenance{Environment: report.Environment{Kernel: kernel}}},
		Suite:  netmodes.Suite, Host: host, Results: []netmodes.Result{one("bridge", 200e6), one("host", 100e6)},
		Unavailable: map[string]string{"macvlan": "no driver"},
	}
}

// adviseOn runs weir advise on measurements, with nobody at the agent's socket.
func adviseOn(t *testing.T, path string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	args = append([]string{"advise", "--measurements", path, "--socket", filepath.Join(t.TempDir(), "none.sock")}, args...)
	code = Run(append([]string{"weir"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// TestAdvise: what the bench keeps is what advice is made of.
func TestAdvise(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib", "netmodes.json")
	host, kernel := thisMachine()
	if err := keep(path, measured(host, kernel)); err != nil {
		t.Fatal(err)
	}
	code, out, errs := adviseOn(t, path, "--bytes", "64")
	if code != 0 || !strings.HasPrefix(out, "bridge\n") || errs != "" {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	for _, want := range []string{"200.0 Mbit/s", "-50 % throughput", "this host does not have it: no driver", "not measured with Weir's agent", "kernel " + kernel} {
		if !strings.Contains(out, want) {
			t.Errorf("does not say %q:\n%s", want, out)
		}
	}
	code, out, _ = adviseOn(t, path, "web", "--bytes", "64", "-o", "json")
	var result adviceOutput
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	if result.Mode != "bridge" || result.Container != "web" || len(result.Options) != 3 || result.Options[0].Controlled != nil {
		t.Errorf("%+v", result)
	}
	if !strings.Contains(strings.Join(result.Warnings, ";"), "--containers says how many") {
		t.Errorf("warnings %q without an agent", result.Warnings)
	}
}

// TestAdviseOnBadMeasurements: none, others' and damaged ones.
func TestAdviseOnBadMeasurements(t *testing.T) {
	path := filepath.Join(t.TempDir(), "netmodes.json")
	code, _, errs := adviseOn(t, path)
	if code != 1 || !strings.Contains(errs, "weir bench netmodes --save") {
		t.Errorf("without measurements: exit code %d, %s", code, errs)
	}
	if err := keep(path, measured("elsewhere", "2.4.0")); err != nil {
		t.Fatal(err)
	}
	code, out, errs := adviseOn(t, path)
	if code != 0 || !strings.HasPrefix(out, "bridge") || !strings.Contains(errs, "of host elsewhere") || !strings.Contains(errs, "of kernel 2.4.0") {
		t.Errorf("measurements of another machine: exit code %d, %s%s", code, out, errs)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, errs = adviseOn(t, path)
	if code != 1 || !strings.Contains(errs, path+": line ") || !strings.Contains(errs, "make them again") {
		t.Errorf("half a file: exit code %d, %s", code, errs)
	}
}

func TestAdviseUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--protocol", "sctp"}, {"--containers", "0"}, {"--bytes", "-1"}, {"--rate", "fast"}, {"a", "b"},
	} {
		if code, out, errs := adviseOn(t, "none.json", args...); code != cmdline.Usage {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, errs)
		} else if len(args) == 2 && args[1] == "b" && errs != "weir: unexpected argument \"b\": weir advise [IMAGE|CONTAINER] [flags]\n" {
			t.Errorf("%q: %s", args, errs)
		}
	}
	for _, args := range [][]string{
		{"--links", "quick"}, {"--agent", "maybe"}, {"--modes", "token-ring"}, {"--bytes", "9000"}, {"--containers", "100"},
	} {
		var out, errs bytes.Buffer
		if code := Run(append([]string{"weir", "bench", "netmodes"}, args...), &out, &errs); code != cmdline.Usage {
			t.Errorf("bench netmodes %q: exit code %d: %s", args, code, errs.String())
		}
	}
}

// TestAdviseAsksTheAgent: a running container is one of those that send, an image
// is one more.
func TestAdviseAsksTheAgent(t *testing.T) {
	snapshot := v1.Snapshot{Containers: []v1.Container{
		{Name: "web", Mode: "bridge", Direction: v1.Direction{SentBytes: 106 * 1000, SentPackets: 1000}}, {Name: "db", Mode: "host"},
		{Name: "sidecar", Mode: "bridge", CountedWith: "1"}, {Name: "offline", Mode: v1.ModeNone}, {ID: "host", Name: "host", Runtime: "host", Mode: "host"},
	}}
	for _, test := range []struct {
		name, changed     string
		containers, bytes int
		mode              string
		notes             int
	}{
		{"web", "", 2, 64, "bridge", 0},
		{"db", "", 2, 1024, "host", 0},
		{"nginx", "", 3, 1024, "", 1},
		{"", "", 2, 1024, "", 0},
		{"web", "bytes", 2, 1024, "bridge", 0},
		{"web", "containers", 7, 64, "bridge", 0},
	} {
		var flags adviseFlags
		flags.question.Containers, flags.question.MessageBytes = 7, 1024
		result := adviceOutput{Container: test.name}
		notes := flags.askOf(snapshot, &result, func(name string) bool { return name == test.changed })
		if q := flags.question; q.Containers != test.containers || q.MessageBytes != test.bytes || result.CurrentMode != test.mode || len(notes) != test.notes {
			t.Errorf("%+v: %+v, mode %q, notes %q", test, q, result.CurrentMode, notes)
		}
	}
}

// TestAdviseWithoutTheAgent: who may not ask the agent gets advice all the same.
func TestAdviseWithoutTheAgent(t *testing.T) {
	for err, want := range map[error]string{
		fmt.Errorf("%w to use the socket", client.ErrNotAllowed): "not allowed to use the socket",
		fmt.Errorf("%w on it", client.ErrNoAgent):                "no agent runs",
	} {
		notes, failed := notAsked(err, true)
		if failed != nil || len(notes) != 1 || !strings.Contains(notes[0], want) {
			t.Errorf("%v: %v, notes %q", err, failed, notes)
		}
	}
	if _, err := notAsked(errors.New("damaged"), true); err == nil {
		t.Error("another error is none")
	}
}

// TestAdviseCheck: the advice is compared with measurements of other scenarios.
func TestAdviseCheck(t *testing.T) {
	dir := t.TempDir()
	own, other := filepath.Join(dir, "netmodes.json"), filepath.Join(dir, "other.json")
	host, kernel := thisMachine()
	exhaustive := measured(host, kernel)
	for i := range exhaustive.Results {
		exhaustive.Results[i].MessageBytes = 200
	}
	for path, m := range map[string]netmodes.Report{own: measured(host, kernel), other: exhaustive} {
		if err := keep(path, m); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := adviseOn(t, own, "--check", other)
	if code != 0 || !strings.Contains(out, "agrees in 1 of 1 scenarios") || !strings.Contains(out, "bridge   bridge") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code, _, errs = adviseOn(t, own, "--check", filepath.Join(dir, "none.json")); code != 1 || !strings.Contains(errs, "none.json") || !strings.Contains(errs, "bench netmodes -o json") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	for _, idle := range [][]string{{"web"}, {"--containers", "2"}, {"--rate", "10mbit"}} {
		if code, _, errs = adviseOn(t, own, append(idle, "--check", other)...); code != cmdline.Usage || !strings.Contains(errs, "leave out") {
			t.Errorf("%q with --check: exit code %d: %s", idle, code, errs)
		}
	}
}

// TestAdviseRateRefuses: nothing is sent before the options are known to be right.
func TestAdviseRateRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"SERVER":           nil,
		"5s to 5m0s":       {"server.invalid", "--duration", "1s"},
		"whole seconds":    {"server.invalid", "--duration", "5500ms"},
		"1 to 32":          {"server.invalid", "--streams", "33"},
		"invalid argument": {"server.invalid", "--port", "70000"},
	} {
		var out, errs bytes.Buffer
		code := Run(append([]string{"weir", "advise", "rate"}, args...), &out, &errs)
		if code != cmdline.Usage || !strings.Contains(errs.String(), want) || out.Len() > 0 {
			t.Errorf("%q: exit code %d, %s, want %q", args, code, errs.String(), want)
		}
	}
}
