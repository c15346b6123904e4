//go:build netns

package netns

import (
	"os"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// The user nobody has no privilege.
var nobody = []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}

// TestRefusedStarts: an agent that cannot do what it is told says why, in one
// line, and has touched nothing.
func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add("one", nil)
	before := tcConfig(b)
	without := func(capability string) []string {
		return []string{"setpriv", "--bounding-set", "-" + capability, "--inh-caps", "-" + capability}
	}
	for _, test := range []struct {
		name    string
		options harness.AgentOptions
		code    int
		want    []string
	}{
		{"unknown uplink", harness.AgentOptions{Args: []string{"--uplink", "eth77"}}, 1, []string{`"eth77"`, "ip link"}},
		{"impossible uplink", harness.AgentOptions{Args: []string{"--uplink", "a name/that is none"}}, 1, []string{"no network device"}},
		{"empty uplink", harness.AgentOptions{Args: []string{"--uplink", ""}}, 2, []string{"which uplink"}},
		{"rate of zero", harness.AgentOptions{Rate: "0"}, 2, []string{"--rate"}},
		{"rate without its unit", harness.AgentOptions{Rate: "95"}, 2, []string{"--rate", "did you mean 95mbit?"}},
		{"negative rate", harness.AgentOptions{Rate: "-5mbit"}, 2, []string{"--rate"}},
		{"rate in bytes", harness.AgentOptions{Rate: "10MB/s"}, 2, []string{"--rate", "bytes"}},
		{"rate without sense", harness.AgentOptions{Rate: "fast"}, 2, []string{"--rate"}},
		{"rate above the link's speed", harness.AgentOptions{Rate: "11gbit"}, 1, []string{"11gbit", "10gbit"}},
		{"unknown flag", harness.AgentOptions{Args: []string{"--uplonk", "x"}}, 2, []string{"--uplonk"}},
		{"argument too much", harness.AgentOptions{Args: []string{"uplink"}}, 2, []string{"unexpected argument"}},
		{"not root", harness.AgentOptions{Wrapper: nobody}, 1, []string{"run as root", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"}},
		{"without CAP_NET_ADMIN", harness.AgentOptions{Wrapper: without("net_admin")}, 1, []string{"CAP_NET_ADMIN"}},
		{"without CAP_SYS_ADMIN", harness.AgentOptions{Wrapper: without("sys_admin")}, 1, []string{"CAP_SYS_ADMIN"}},
		{"state directory is a file", harness.AgentOptions{Args: []string{"--state-dir", b.Files.ConfigPath()}}, 1, []string{b.Files.ConfigPath()}},
		{"socket cannot be made", harness.AgentOptions{Args: []string{"--socket", b.Files.ConfigPath() + "/sock"}}, 1, []string{"socket"}},
		{"group that does not exist", harness.AgentOptions{Settings: map[string]any{"socket_group": "nosuchgroup"}}, 1, []string{"nosuchgroup"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			result := b.RefusedAgent(test.options)
			if result.Code != test.code || strings.Count(strings.TrimSpace(result.Stderr), "\n") > 0 {
				t.Errorf("exit code %d, want %d, and one line; it said %q", result.Code, test.code, result.Stderr)
			}
			for _, want := range test.want {
				if !strings.Contains(result.Stderr, want) {
					t.Errorf("it said %q, want %q in it", result.Stderr, want)
				}
			}
			if now := tcConfig(b); now != before {
				t.Fatalf("the uplink was\n%s\nis\n%s", before, now)
			}
			if programs := bpfPrograms(t, b); len(programs) > 0 {
				t.Fatalf("programs: %v", programs)
			}
		})
	}
	// The rate may be left out where the device knows it, which a veth does: 98 % of its speed.
	if status := b.StartAgent(harness.AgentOptions{Rate: "-"}).Status(); status.RateBPS != 9_800*mbit {
		t.Errorf("without a rate: %+v", status)
	}
}

// TestCorruptConfig: a config file with a mistake stops the agent with the
// place of each.
func TestCorruptConfig(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	path := b.Files.ConfigPath()
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"unknown key", "uplink: uplink\nraet: 100mbit\n", []string{path + ":2", "raet"}},
		{"no YAML", "uplink: [\n", []string{path + ":"}},
		{"binary", "\x00\x01", []string{path}},
		{"minimum above maximum", "containers:\n  - name: one\n    netns: one\n    policy:\n      min: 20mbit\n      max: 10mbit\n", []string{path + ":5", "above the maximum"}},
		{"label", "containers:\n  - name: one\n    netns: one\n    labels:\n      weir.weight: heavy\n", []string{path + ":5", "heavy"}},
		{"unknown label", "containers:\n  - name: one\n    netns: one\n    labels:\n      weir.wieght: 7\n", []string{path + ":5", "weir.weight"}},
		{"two mistakes", "rate: fast\nreserve: 200%\n", []string{path + ":1", path + ":2"}},
		{"same name twice", "containers:\n  - {name: one, netns: a}\n  - {name: one, netns: b}\n", []string{path + ":3", "already used"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			must.Succeed(t, os.WriteFile(path, []byte(test.text), 0o644))
			result := b.RefusedAgent(harness.AgentOptions{KeepConfig: true})
			if result.Code != 2 {
				t.Errorf("exit code %d, want 2", result.Code)
			}
			for _, want := range test.want {
				if !strings.Contains(result.Stderr, want) {
					t.Errorf("it said %q, want %q in it", result.Stderr, want)
				}
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		must.Succeed(t, os.Remove(path))
		if result := b.RefusedAgent(harness.AgentOptions{KeepConfig: true}); result.Code != 2 || !strings.Contains(result.Stderr, path) {
			t.Errorf("got %+v", result)
		}
	})
}

// TestCommandsWithoutPermission: what a user who is not root is told.
func TestCommandsWithoutPermission(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for _, command := range []string{"ps", "top"} {
		if result := b.Weir(command); result.Code != 1 || !strings.Contains(result.Stderr, "no weir agent is running") {
			t.Errorf("weir %s without an agent: %+v", command, result)
		}
	}
	if result := b.WeirAs(nobody, "down", "--state-dir", b.Files.StateDir()); result.Code != 1 || !strings.Contains(result.Stderr, "run as root") {
		t.Errorf("weir down as nobody, without an agent: %+v", result)
	}
	// What weir doctor cannot look at without root is the first that it says.
	if result := b.WeirAs(nobody, "doctor"); result.Code != 1 || !strings.HasPrefix(result.Stdout, "privileges") ||
		!strings.Contains(strings.SplitN(result.Stdout, "\n", 2)[0], "missing") || !strings.Contains(result.Stdout, "run sudo weir doctor") {
		t.Errorf("weir doctor as nobody: %+v", result)
	}
	b.Add("one", nil)
	agent := b.StartAgent(harness.AgentOptions{})
	for _, args := range [][]string{{"ps"}, {"set", "one", "--weight", "5"}, {"down"}} {
		if result := b.WeirAs(nobody, args...); result.Code != 1 || !strings.Contains(result.Stderr, "not allowed to use "+b.Files.Socket()) {
			t.Errorf("weir %s as nobody: %+v", args[0], result)
		}
	}
	if got := agent.Container("one"); got.Policy.Weight != 100 || got.State != v1.StateOK {
		t.Errorf("got %+v", got)
	}
}

// TestLabelsThatAreNotInForce: a static container runs with what can be
// honoured, and `weir ps` says what cannot.
func TestLabelsThatAreNotInForce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add("late", labels("latency", "0.4ms", "min", "10mbit"))
	b.Add("classy", labels("class", "auto", "af-min", "90mbit"))
	b.Add("greedy", labels("min", "90mbit", "weight", "7"))
	agent := b.StartAgent(harness.AgentOptions{})
	for _, want := range []struct {
		name   string
		state  v1.State
		reason string
	}{
		{"late", v1.StateRejected, "the smallest is 50"},
		{"classy", v1.StateDegraded, "the minimum of AF 90mbit is cut"},
		{"greedy", v1.StateRejected, "85mbit is free"},
		{"host", v1.StateOK, ""},
	} {
		got := agent.Container(want.name)
		if got.State != want.state || !strings.Contains(got.Reason, want.reason) || (want.reason == "") != (got.Reason == "") {
			t.Errorf("got %+v, want %s, %q", got, want.state, want.reason)
		}
	}
	if got := agent.Container("greedy"); got.Policy.Weight != 7 || got.EntitledBPS == 0 {
		t.Errorf("what can be honoured of a container that was refused its minimum: %+v", got)
	}
}
