package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/loop"
	"github.com/weir-project/weir/internal/agent/server"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/agent/top"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/test/golden"
	"github.com/weir-project/weir/test/must"
)

// compareGolden compares text with a file of testdata.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	golden.Compare(t, filepath.Join("testdata", name+".golden"), got)
}

// fakeAgent answers with what it is given.
type fakeAgent struct {
	containers []v1.Container
	status     v1.Status
	err        error
	events     *stats.Events
	called     []string
	change     v1.PolicyChange
	flows      []v1.Flow
}

func (a *fakeAgent) call(format string, args ...any) {
	a.called = append(a.called, fmt.Sprintf(format, args...))
}

func (a *fakeAgent) Snapshot(context.Context) (v1.Snapshot, error) {
	a.call("snapshot")
	return v1.Snapshot{Status: a.status, Containers: a.containers}, a.err
}

func (a *fakeAgent) Latest(ctx context.Context) (*stats.Snapshot, error) {
	seen, err := a.Snapshot(ctx)
	return &stats.Snapshot{Snapshot: seen, Places: make([]stats.Place, len(seen.Containers))}, err
}

func (a *fakeAgent) Events() *stats.Events {
	if a.events == nil {
		return stats.NewEvents(time.UnixMilli(1)) // its last number is 0
	}
	return a.events
}

func (a *fakeAgent) Flows(_ context.Context, name string, most int) ([]v1.Flow, error) {
	a.call("flows %q %d", name, most)
	return a.flows, a.err
}

func (a *fakeAgent) History() *stats.History { return new(stats.History) }

func (a *fakeAgent) Set(_ context.Context, name string, change v1.PolicyChange, conditions ...loop.Condition) (v1.Container, error) {
	a.call("set %s", name)
	a.change = change
	return a.containers[0], a.err
}

func (a *fakeAgent) Reset(_ context.Context, name string, conditions ...loop.Condition) (v1.Container, error) {
	a.call("reset %s", name)
	return a.containers[0], a.err
}

func (a *fakeAgent) Try(_ context.Context, name string, _ v1.PolicyChange) (v1.Policy, error) {
	a.call("try %s", name)
	return a.containers[0].Policy, a.err
}

func (a *fakeAgent) Reload(context.Context) (v1.Reloaded, error) {
	a.call("reload")
	return v1.Reloaded{Changes: []string{"eth0: rate 2gbit instead of 1gbit"}}, a.err
}

func (a *fakeAgent) Learn(context.Context, discovery.Event) (v1.PodState, error) {
	return v1.PodState{}, a.err
}

func (a *fakeAgent) Down(context.Context) error {
	a.call("down")
	return a.err
}

// serve puts an agent on a socket and returns that.
func (a *fakeAgent) serve(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "weir.sock")
	listener, err := httpapi.Listen("weir agent", socket, "")
	must.Succeed(t, err)
	s := server.New(a, slog.New(slog.DiscardHandler)).Socket(access.Admin)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return socket
}

// run runs a command line.
func run(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Run(args, &out, &err)
	return code, out.String(), err.String()
}

// busyHost is an uplink with a container of every kind.
func busyHost() *fakeAgent {
	agent := &fakeAgent{
		status: v1.Status{
			Version: "test", Uplink: "eth0", RateBPS: 100e6, ReserveBPS: 5e6, SentBPS: 93_260_000,
			Scheduler: "htb+fq_codel", State: v1.StateOK,
			Uplinks: []v1.Uplink{{
				Name: "eth0", RateBPS: 100e6, ReserveBPS: 5e6, SentBPS: 93_260_000, Scheduler: "htb+fq_codel", State: v1.StateOK,
			}},
			Sources: []v1.Source{{Name: "docker", Connected: true}},
		},
		containers: []v1.Container{
			{
				ID: "0123456789abcdef", Name: "web", Runtime: "docker", Mode: v1.ModeBridge, Direction: v1.Direction{Policy: v1.Policy{Weight: 300, MinBPS: 20e6, MaxBPS: 80e6, Priority: 10, LatencyMS: 2.5}, PolicyFrom: v1.PolicyFrom{
					Weight: v1.LayerSet, Min: v1.LayerPolicies, Max: v1.LayerDefaults,
					Priority: v1.LayerLimits, Latency: v1.LayerLabels, Class: v1.LayerBuiltIn,
				}, EntitledBPS: 60e6, AllocatedBPS: 60e6, RateBPS: 59_960_000, BacklogBytes: 123_456, SentBytes: 1 << 40, DroppedPackets: 1234, MarkedPackets: 5678, DelayP50MS: 0.124, DelayP99MS: 12.4}, State: v1.StateOK,
			},
			{
				ID: "1123456789abcdef", Name: "backup", Runtime: "docker", Mode: v1.ModeBridge, Direction: v1.Direction{Policy: v1.Policy{Weight: 100}, EntitledBPS: 20e6, AllocatedBPS: 33_300_000, RateBPS: 33_300_000, BacklogBytes: 40_000_000}, State: v1.StateOK,
			},
			{
				ID: "2123456789abcdef", Name: "a-name-that-somebody-generated-and-nobody-can-remember", Runtime: "podman", Mode: v1.ModeBridge, Direction: v1.Direction{Policy: v1.Policy{Weight: 10000, MinBPS: 30e6}, EntitledBPS: 20e6, BacklogBytes: 999}, State: v1.StateRejected, Reason: "minimum 30mbit cannot be guaranteed: 10mbit is free (uplink 100mbit, reserve 5mbit, other minimums 85mbit); ask for at most 10mbit or lower the minimum of another container",
			},
			{
				ID: "3123456789abcdef", Name: "vpn", Runtime: "docker", Mode: v1.ModeHost, Direction: v1.Direction{Policy: v1.Policy{Weight: 100}}, State: v1.StateDegraded, Reason: `it uses the host's network and is counted in the host class; weir.max="fäst": is not a rate (no maximum applies)`,
			},
			{ID: "4123456789abcdef", Name: "ünïcode", Runtime: "static", Mode: v1.ModeNone, Direction: v1.Direction{Policy: v1.Policy{Weight: 1}}, State: v1.StateOK},
			{
				ID: "host", Name: "host", Runtime: "host", Mode: v1.ModeHost, Direction: v1.Direction{Policy: v1.Policy{Weight: 100}, EntitledBPS: 1e6, AllocatedBPS: 1e6}, State: v1.StateOK,
			},
		},
	}
	for i := range agent.containers {
		c := &agent.containers[i]
		c.Shares = []v1.Share{{
			Uplink: "eth0", EntitledBPS: c.EntitledBPS, AllocatedBPS: c.AllocatedBPS, RateBPS: c.RateBPS,
			BacklogBytes: c.BacklogBytes, SentBytes: c.SentBytes, DroppedPackets: c.DroppedPackets, MarkedPackets: c.MarkedPackets,
			DelayP50MS: c.DelayP50MS, DelayP99MS: c.DelayP99MS,
		}}
	}
	return agent
}

// twoUplinks is busyHost with another uplink, where its first container sends.
func twoUplinks() *fakeAgent {
	agent := busyHost()
	agent.status.Uplinks = append(agent.status.Uplinks, v1.Uplink{
		Name: "wwan0", RateBPS: 10e6, ReserveBPS: 500e3, SentBPS: 5e6, Scheduler: "htb+fq_codel", State: v1.StateOK,
	})
	agent.containers = agent.containers[:2]
	for i := range agent.containers {
		c := &agent.containers[i]
		c.Shares = append(c.Shares, v1.Share{Uplink: "wwan0", EntitledBPS: 5e6, RateBPS: uint64(5e6 * (1 - i))})
	}
	return agent
}

func TestPs(t *testing.T) {
	for _, tc := range []struct {
		golden string
		agent  *fakeAgent
		args   []string
	}{
		{"ps", busyHost(), nil},
		{"ps-two-uplinks", twoUplinks(), nil},
		{"ps-wide", busyHost(), []string{"-o", "wide"}},
		{"ps-json", busyHost(), []string{"-o", "json"}},
		{"ps-empty", &fakeAgent{containers: []v1.Container{}}, nil},
		{"ps-empty-json", &fakeAgent{containers: []v1.Container{}}, []string{"--output=json"}},
	} {
		t.Run(tc.golden, func(t *testing.T) {
			code, stdout, stderr := run(append([]string{"ps", "--socket", tc.agent.serve(t)}, tc.args...)...)
			if code != 0 || stderr != "" {
				t.Errorf("exit code %d, %q", code, stderr)
			}
			compareGolden(t, tc.golden, stdout)
		})
	}
	socket := busyHost().serve(t)
	if code, stdout, stderr := run("ps", "web", "-o", "json", "--socket", socket); code != 0 || strings.Count(stdout, `"runtime"`) != 1 || !strings.Contains(stdout, `"name": "web"`) {
		t.Errorf("one container: %d, %q, %q", code, stdout, stderr)
	}
	if code, stdout, stderr := run("ps", "wbe", "--socket", socket); code != cmdline.Failed || stdout != "" || !strings.Contains(stderr, `"wbe"; `+"`weir ps` lists those that run") {
		t.Errorf("an unknown container: %d, %q, %q", code, stdout, stderr)
	}
}

func TestTopOnce(t *testing.T) {
	code, stdout, stderr := run("top", "--once", "--socket", busyHost().serve(t))
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	compareGolden(t, "top-120", stdout)

	code, stdout, stderr = run("top", "-o", "json", "--socket", busyHost().serve(t))
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	compareGolden(t, "top-json", stdout)
}

func TestTopWidths(t *testing.T) {
	sample := top.Sample{Status: busyHost().status, Containers: busyHost().containers}
	empty := top.Sample{Status: sample.Status}
	degraded := top.Sample{Status: sample.Status, Containers: sample.Containers[5:]}
	degraded.Status.State, degraded.Status.Reason = v1.StateDegraded, "eth0 is gone; it is shared out again when it comes back"
	degraded.Status.Sources = []v1.Source{{Name: "docker", Reason: "no answer"}, {Name: "podman", Connected: true}}
	for _, tc := range []struct {
		golden string
		sample top.Sample
		width  int
	}{
		{"top-200", sample, 200},
		{"top-80", sample, 80},
		{"top-40", sample, 40},
		{"top-empty", empty, 120},
		{"top-degraded", degraded, 120},
		{"top-two-uplinks", top.Sample{Status: twoUplinks().status, Containers: twoUplinks().containers}, 120},
	} {
		t.Run(tc.golden, func(t *testing.T) {
			compareGolden(t, tc.golden, top.Render(top.Compute(tc.sample, top.ByRate), top.Window{Width: tc.width}))
		})
	}
	// However narrow, no line is wider than the terminal.
	for width := 1; width < 250; width++ {
		for line := range strings.Lines(top.Render(top.Compute(sample, top.ByRate), top.Window{Width: width})) {
			if got := len([]rune(strings.TrimSuffix(line, "\n"))); got > width {
				t.Fatalf("%d characters in a line for %d: %q", got, width, line)
			}
		}
	}
}

func TestBytesOrDash(t *testing.T) {
	for bytes, want := range map[uint64]string{0: "-", 1: "1B", 9999: "9999B", 10_000: "10kB", 9_999_999: "9999kB", 10_000_000: "10MB"} {
		if got := cmdline.BytesOrDash(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}

func TestDoctorTable(t *testing.T) {
	var b strings.Builder
	findings := []finding{{"kernel", resultOK, "6.18.5"}, {"privileges", resultMissing, "the checks below and the agent need root: not root"}}
	findings = append(findings, examineQdiscs(func(options kernel.Options) error {
		if options.Kind() == "fq_codel" {
			return syscall.ENOENT
		}
		return nil
	})...)
	err := printFindings(&b, append(findings, finding{"agent", resultOK, ""}))
	must.Succeed(t, err)
	compareGolden(t, "doctor", b.String())
}

func TestSetFlags(t *testing.T) {
	p := func(s string) *string { return &s }
	for _, tc := range []struct {
		args []string
		want v1.PolicyChange
	}{
		{[]string{"--weight", "300"}, v1.PolicyChange{Weight: p("300")}},
		{[]string{"--min=20mbit", "--max=none"}, v1.PolicyChange{Min: p("20mbit"), Max: p("none")}},
		{[]string{"--priority", "0"}, v1.PolicyChange{Priority: p("0")}},
		{
			[]string{"--weight=1", "--min=2k", "--max=3k", "--priority=4", "--latency=5ms", "--class=ef"},
			v1.PolicyChange{Weight: p("1"), Min: p("2k"), Max: p("3k"), Priority: p("4"), Latency: p("5ms"), Class: p("ef")},
		},
	} {
		a := busyHost()
		code, stdout, stderr := run(append([]string{"set", "web", "--socket", a.serve(t)}, tc.args...)...)
		if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "NAME") || !strings.Contains(stdout, "web") {
			t.Errorf("%v: exit code %d, %q, %q", tc.args, code, stdout, stderr)
		}
		if !reflect.DeepEqual(a.called, []string{"set web"}) || !reflect.DeepEqual(a.change, tc.want) {
			t.Errorf("%v: %v with %+v, want %+v", tc.args, a.called, a.change, tc.want)
		}
	}
	a := busyHost()
	if code, stdout, _ := run("reset", "web", "--socket", a.serve(t)); code != 0 || !reflect.DeepEqual(a.called, []string{"reset web"}) || !strings.Contains(stdout, "web") {
		t.Errorf("reset: exit code %d, %v, %q", code, a.called, stdout)
	}
}

func TestDownAsksTheAgent(t *testing.T) {
	a := busyHost()
	if code, stdout, stderr := run("down", "--socket", a.serve(t)); code != 0 || stdout+stderr != "" || !reflect.DeepEqual(a.called, []string{"down"}) {
		t.Errorf("exit code %d, %q, %q, %v", code, stdout, stderr, a.called)
	}
	// An agent that fails is an agent: nothing is removed behind its back.
	a.err = errors.New("give eth0 back: no")
	if code, _, stderr := run("down", "--socket", a.serve(t)); code != 1 || stderr != "weir: give eth0 back: no\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestExitCodes(t *testing.T) {
	failing := &fakeAgent{err: fmt.Errorf("%w: min 66mbit", loop.ErrRefused), containers: make([]v1.Container, 1)}
	socket := failing.serve(t)
	nowhere := filepath.Join(t.TempDir(), "weir.sock")
	badConfig := filepath.Join(t.TempDir(), "weir.yaml")
	must.Succeed(t, os.WriteFile(badConfig, []byte("uplink: eth0\nrate: fast\n"), 0o600))
	emptyConfig := filepath.Join(t.TempDir(), "empty.yaml")
	must.Succeed(t, os.WriteFile(emptyConfig, nil, 0o600))
	for _, tc := range []struct {
		args string // joined by spaces
		code int
		says string
	}{
		{"nonsense", 2, `unknown command "nonsense"`},
		{"modl", 2, `unknown command "modl" for "weir"; did you mean model?`},
		{"ps web extra", 2, `unexpected argument "extra": weir ps`},
		{"ps --nonsense", 2, "weir ps --help"},
		{"ps web --all-nodes", 2, `omit "web"`},
		{"ps --all-nodes --remote https://192.0.2.1:7481", 2, "give one of both"},
		{"ps -n shop", 2, "add --all-nodes"},
		{"ps -o xml", 2, `"xml" is not table or json or wide`},
		{"ps -o", 2, "needs an argument"},
		{"--nonsense", 2, "unknown flag"},
		{"top extra", 2, `unexpected argument "extra"`},
		{"top --interval 10ms", 2, "too short"},
		{"top --interval soon", 2, "invalid"},
		{"set", 2, "NAME is missing: weir set NAME"},
		{"set web", 2, "nothing to set"},
		{"set web db --weight 3", 2, `unexpected argument "db"`},
		{"set web --weight 10001 --socket " + nowhere, 2, `weight "10001": write a whole number from 0 to 10000`},
		{"set web --min 10MB/s --socket " + nowhere, 2, "bytes are not accepted; for 10 megabit write 10mbit"},
		{"set web --latency= --socket " + nowhere, 2, "latency is empty"}, // as of a variable that is not set
		{"set web --weight", 2, "needs an argument"},
		{"reset", 2, "NAME is missing"},
		{"reset web db", 2, `unexpected argument "db"`},
		{"down now", 2, `unexpected argument "now"`},
		{"doctor now", 2, `unexpected argument "now"`},
		{"agent now", 2, `unexpected argument "now"`},
		{"agent --config " + emptyConfig, 2, "which uplink? Give --uplink IF"},
		{"agent --config " + badConfig, 2, badConfig + ":2: rate: "},
		{"agent --uplink eth0 --config " + nowhere, 2, "no such file"},
		{"agent --rate 10mbit --config " + nowhere, 2, "no such file"},
		{"token a#b --file /nowhere/weir/tokens", 2, `"a#b" is not a name for a token: write 1 to 64 characters`},
		{"ps --remote https://192.0.2.1:7481 --cert " + nowhere, 2, "--cert and --key belong together"},
		{"token me --file /nowhere/weir/tokens", 1, "make its folder (mkdir /nowhere/weir)"},
		{"bench cost", 1, "install the package weir-lab"},
		{"flows web db", 2, `unexpected argument "db": weir flows [NAME]`},
		{"agent --uplink eth0 --rate fast --config " + emptyConfig, 2, "--rate"},

		{"ps --socket " + nowhere, 1, "no weir agent is running on " + nowhere},
		{"top --once --socket " + nowhere, 1, "no weir agent is running"},
		{"set web --weight 3 --socket " + nowhere, 1, "no weir agent is running"},
		{"set web --min 66mbit --socket " + socket, 1, "refused: min 66mbit"},
		{"reset web --socket " + socket, 1, "refused: min 66mbit"},
		{"ps --socket " + socket, 1, "refused: min 66mbit"},

		{"help nope", 2, "unknown command \"nope\" for \"weir\"; weir --help lists the commands\n"},
		{"help ps nope", 2, `"nope"`},
		{"top --sort size", 2, `"size" is neither rate nor start`},

		{"help", 0, ""},
		{"help set", 0, ""},
		{"--help", 0, ""},
		{"set --help", 0, ""},
		{"--version", 0, ""},
		{"", 0, ""},
	} {
		code, stdout, stderr := run(strings.Fields(tc.args)...)
		if code != tc.code || !strings.Contains(stderr, tc.says) {
			t.Errorf("weir %s: exit code %d, want %d; %q", tc.args, code, tc.code, stderr)
		}
		if code != 0 && (stdout != "" || !strings.HasPrefix(stderr, "weir: ") || strings.Count(stderr, "\n") != 1) {
			t.Errorf("weir %s: not one line on standard error: %q, %q", tc.args, stdout, stderr)
		}
		if code == 0 && (stdout == "" || stderr != "") {
			t.Errorf("weir %s: data on standard output, nothing else: %q, %q", tc.args, stdout, stderr)
		}
	}
}
