//go:build netns

package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// checkInterval is how often an agent compares everything with the kernel;
// a foreign change is mended a little later at the latest.
const checkInterval = 5 * time.Second

// foreign are qdiscs that an administrator may have configured.
var foreign = []struct {
	name string
	add  []string
}{
	{"tbf", []string{"qdisc add dev uplink root handle 5: tbf rate 80mbit burst 64kb latency 50ms"}},
	{"tbf without a handle", []string{"qdisc add dev uplink root tbf rate 80mbit burst 64kb latency 50ms"}},
	{"htb", []string{
		"qdisc add dev uplink root handle 1: htb default 20 r2q 5",
		"class add dev uplink parent 1: classid 1:1 htb rate 90mbit burst 15k",
		"class add dev uplink parent 1:1 classid 1:10 htb rate 30mbit ceil 90mbit prio 1 quantum 1514",
		"class add dev uplink parent 1:1 classid 1:20 htb rate 60mbit ceil 90mbit prio 2 quantum 3028",
		"qdisc add dev uplink parent 1:10 handle 10: bfifo limit 50000",
	}},
	{"bfifo", []string{"qdisc add dev uplink root handle 7: bfifo limit 100000"}},
}

// TestForeignQdisc: a foreign qdisc is left alone, or put aside when
// that was asked for, and put back as it was by weir down: while the agent
// runs, after it was killed, and after it was started again.
func TestForeignQdisc(t *testing.T) {
	t.Parallel()
	for _, f := range foreign {
		t.Run(f.name, func(t *testing.T) {
			b := newBed(t)
			one := b.Add("one", nil)
			for _, command := range f.add {
				b.Run(append([]string{"tc"}, strings.Fields(command)...)...)
			}
			before, gso := tcConfig(b), gsoMaxBytes(t, one)
			result := b.RefusedAgent(harness.AgentOptions{})
			kind, _, _ := strings.Cut(f.name, " ")
			if result.Code != 1 || !strings.Contains(result.Stderr, kind) || !strings.Contains(result.Stderr, "--replace") {
				t.Errorf("without --replace: %+v", result)
			}
			if now := tcConfig(b); now != before {
				t.Fatalf("a refusal changed\n%s\nto\n%s", before, now)
			}
			for _, round := range []string{"agent alive", "agent killed", "agent restarted"} {
				agent := b.StartAgent(harness.AgentOptions{Args: []string{"--replace"}})
				// The uplink's, the container's tap and the bridge's.
				if state := agent.Status().State; state != v1.StateOK || len(bpfPrograms(t, b)) != 3 {
					t.Errorf("%s: state %s, programs %v", round, state, bpfPrograms(t, b))
				}
				switch round {
				case "agent alive":
					b.MustWeir("down")
					agent.Ended()
				case "agent killed":
					agent.Kill()
					b.MustWeir("down", "--state-dir", b.Files.StateDir())
				default:
					agent.Stop()
					agent = b.StartAgent(harness.AgentOptions{}) // ours by now: no --replace needed
					b.MustWeir("down")
					agent.Ended()
				}
				if now := tcConfig(b); now != before {
					t.Errorf("%s: the uplink was\n%s\nis\n%s", round, before, now)
				}
				checkNothingLeft(t, b)
				if now := gsoMaxBytes(t, one); now != gso {
					t.Errorf("%s: gso_max_size was %d, is %d", round, gso, now)
				}
			}
		})
	}
}

// TestForeignFilter: queueing with filters cannot be put back, so it is not
// taken away.
func TestForeignFilter(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for _, command := range []string{
		"qdisc add dev uplink root handle 1: htb default 10",
		"class add dev uplink parent 1: classid 1:10 htb rate 30mbit",
		"filter add dev uplink parent 1: bpf bytecode 1,6_0_0_4294967295, flowid 1:10",
	} {
		args := strings.Fields(command)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
		}
		b.Run(append([]string{"tc"}, args...)...)
	}
	before := tcConfig(b)
	result := b.RefusedAgent(harness.AgentOptions{Args: []string{"--replace"}})
	if result.Code != 1 || !strings.Contains(result.Stderr, "filters") {
		t.Errorf("got %+v", result)
	}
	if now := tcConfig(b); now != before {
		t.Errorf("a refusal changed\n%s\nto\n%s", before, now)
	}
}

// TestDown: weir down leaves nothing, with and without a running agent, and
// may be said twice. Traffic goes on.
func TestDown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		dead bool
	}{{"agent alive", false}, {"agent killed", true}} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			containers := []*harness.Container{b.Add("one", nil), b.Add("two", labels("max", "10mbit"))}
			b.Run("ip", "link", "add", "lan4", "numtxqueues", "4", "type", "veth", "peer", "name", "lan4far")
			before := b.Run("tc", "qdisc", "show")
			gso := gsoMaxBytes(t, containers[0])
			agent := b.StartAgent(harness.AgentOptions{})
			if limited := gsoMaxBytes(t, containers[0]); limited >= gso {
				t.Errorf("packets of containers may have %d bytes with an agent, %d without", limited, gso)
			}
			b.Send(containers[1], harness.Load{Protocol: harness.Flood.Protocol, RateBPS: 20 * mbit})
			b.Await("tags are cleared at a device with several queues", 10*time.Second, func() (bool, string) {
				return len(b.Programs("weir_clear")) > 0, fmt.Sprint(b.Programs("weir_clear"))
			})
			if test.dead {
				agent.Kill()
			}
			out := b.MustWeir("down", "--state-dir", b.Files.StateDir())
			if out != "" {
				t.Errorf("weir down prints %q on standard output", out)
			}
			if !test.dead {
				agent.Ended()
			}
			checkNothingLeft(t, b)
			if after := b.Run("tc", "qdisc", "show"); after != before {
				t.Errorf("queueing was\n%s\nis\n%s", before, after)
			}
			for _, c := range containers {
				if now := gsoMaxBytes(t, c); now != gso {
					t.Errorf("gso_max_size of %s was %d, is %d", c.Name, gso, now)
				}
			}
			b.Check(300*time.Millisecond, func(m harness.Measurement) error {
				if m.BPS[1] < (1-m.Slack)*19*mbit {
					return fmt.Errorf("after weir down a container that sends 20 Mbit/s gets %.2f through; CPU: %s", m.BPS[1]/mbit, m.CPU)
				}
				return nil
			})
			if again := b.Weir("down", "--state-dir", b.Files.StateDir()); again.Code != 0 || !strings.Contains(again.Stderr, "nothing to remove") {
				t.Errorf("weir down again: %+v", again)
			}
		})
	}
	t.Run("state lost", func(t *testing.T) {
		b := newBed(t)
		b.Add("one", nil)
		b.Add("two", nil)
		b.StartAgent(harness.AgentOptions{Args: []string{"--in-rate", "50mbit"}}).Kill()
		result := b.Weir("down", "--state-dir", t.TempDir())
		for _, says := range []string{
			"uplink given back, but ", "neither queueing nor packet limit (gso_max_size) are put back", "in-uplink removed\n", "from the devices of 2 containers\n", "--state-dir` with the folder that the agent had",
		} {
			if !strings.Contains(result.Stderr, says) {
				t.Errorf("it does not say %q:\n%s", says, result.Stderr)
			}
		}
		checkNothingLeft(t, b)
		if left := b.Run("ip", "link", "show", "type", "ifb"); result.Code != 0 || left != "" {
			t.Errorf("code %d, left: %s", result.Code, left)
		}
	})
	t.Run("no such folder", func(t *testing.T) {
		b := newBed(t)
		nowhere := filepath.Join(b.Dir, "nowhere")
		result := b.Weir("down", "--state-dir", nowhere)
		if result.Code != 1 || !strings.Contains(result.Stderr, "there is no folder "+nowhere) {
			t.Errorf("got %+v", result)
		}
		if _, err := os.Stat(nowhere); !os.IsNotExist(err) {
			t.Errorf("weir down makes the folder that it is to look into: %v", err)
		}
	})
	t.Run("no such uplink", func(t *testing.T) {
		b := newBed(t)
		result := b.Weir("down", "--state-dir", b.Files.StateDir(), "--uplink", "nowhere")
		if result.Code != 1 || !strings.Contains(result.Stderr, `"nowhere"`) {
			t.Errorf("got %+v", result)
		}
	})
}

// TestSecondAgent: one uplink has one agent, and one socket, and the second
// does not harm the first.
func TestSecondAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add("one", nil)
	first := b.StartAgent(harness.AgentOptions{})
	before := tcConfig(b)
	for name, args := range map[string][]string{
		"same socket":          nil,
		"another socket":       {"--socket", b.Dir + "/other.sock"},
		"another socket, too":  {"--socket", b.Dir + "/other.sock", "--state-dir", b.Dir + "/other"},
		"another uplink":       {"--uplink", "containers"},
		"uplink, as a replace": {"--replace", "--socket", b.Dir + "/other.sock"},
	} {
		result := b.RefusedAgent(harness.AgentOptions{Args: args, KeepConfig: true})
		if result.Code != 1 || !strings.Contains(result.Stderr, "another weir agent") {
			t.Errorf("%s: %+v", name, result)
		}
	}
	// Nor does one in another network namespace, where no lock of this one's is, take
	// what the first remembers for its own.
	result := b.RefusedAgent(harness.AgentOptions{KeepConfig: true, Wrapper: []string{"unshare", "--net"},
		Args: []string{"--uplink", "lo", "--socket", b.Dir + "/other.sock"}})
	if result.Code != 1 || !strings.Contains(result.Stderr, b.Files.StateDir()+": give another --state-dir") {
		t.Errorf("in another network namespace: %+v", result)
	}
	if result := b.Weir("ps"); result.Code != 0 {
		t.Errorf("weir ps at the first agent: %+v", result)
	}
	if now := tcConfig(b); now != before {
		t.Errorf("the uplink was\n%s\nis\n%s", before, now)
	}
	// weir ps says that an agent runs whose socket was removed.
	b.Run("rm", b.Files.Socket())
	if result := b.Weir("ps"); result.Code != 1 || !strings.Contains(result.Stderr, fmt.Sprintf("a weir agent runs here, process %d, and does not listen on %s", first.Pid(), b.Files.Socket())) {
		t.Errorf("weir ps without a socket: %+v", result)
	}
	// A socket that a killed agent left is no agent.
	first.Kill()
	b.StartAgent(harness.AgentOptions{})
}

// TestMended: what another program removes is put back.
func TestMended(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	// Not TCP, which would remember the damage longer than it lasts.
	competitors := []competitor{{labels("weight", "100"), harness.Flood}, {labels("weight", "300"), harness.Flood}}
	agent, _ := compete(t, b, harness.AgentOptions{}, competitors...)
	b.WarmUp() // new counters must not catch up with those of before while they are read
	before := tcClasses(b)
	for _, damage := range []struct {
		name    string
		command []string
	}{
		{"root qdisc", []string{"tc", "qdisc", "del", "dev", "uplink", "root"}},
		{"a queue", []string{"tc", "qdisc", "replace", "dev", "uplink", "parent", "7e11:10", "handle", "99:", "bfifo", "limit", "3000"}},
		{"the rate of a class", []string{"tc", "class", "change", "dev", "uplink", "parent", "7e11:4010", "classid", "7e11:10", "htb", "rate", "1kbit", "ceil", "2kbit"}},
	} {
		t.Run(damage.name, func(t *testing.T) {
			whole, sent := tcConfig(b), queueing(t, b)["class htb 7e11:ffff"].bytes
			b.Run(damage.command...)
			// What is mended before one can look has begun to count anew.
			if tcConfig(b) == whole && queueing(t, b)["class htb 7e11:ffff"].bytes > sent {
				t.Fatal("the damage shows nowhere")
			}
			took := b.Await("mended", checkInterval+time.Second, func() (bool, string) {
				now := tcClasses(b)
				config := tcConfig(b)
				return slices.Equal(now, before) && !strings.Contains(config, "2Kbit") && !strings.Contains(config, "limit 3000b"), config
			})
			t.Logf("mended after %v", took.Round(time.Millisecond))
		})
	}
	t.Run("classifier", func(t *testing.T) {
		detachUplink(t, b)
		b.Await("mended", checkInterval+time.Second, func() (bool, string) {
			programs := bpfPrograms(t, b)
			return set(programs)["uplink: weir_uplink"], fmt.Sprint(programs)
		})
	})
	if status := agent.Status(); status.State != v1.StateOK {
		t.Errorf("got %+v", status)
	}
	b.CheckShares(100*mbit, claims(100*mbit, competitors...))
}

// relink makes the uplink of a NAT host anew, as when a card is plugged out
// and in.
func relink(b *harness.Bed, more ...string) {
	add := append([]string{"ip", "link", "add", "uplink"}, more...)
	b.Run(append(add, "type", "veth", "peer", "name", b.Host.PeerInterface+"2", "netns", b.Host.PeerNetNSPath())...)
	b.RunPeer("ip", "link", "set", b.Host.PeerInterface+"2", "up")
	b.Run("ip", "link", "set", "uplink", "up")
}

// TestUplinkComesAndGoes: an uplink that is deleted is waited for, and one
// that is renamed is followed, also for received traffic.
func TestUplinkComesAndGoes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := b.Add("one", labels("max", "10mbit"))
	agent := shareIncoming(b, nil)
	b.MustWeir("set", "one", "--weight", "500")
	for _, again := range []struct {
		name             string
		sameIndex, stops bool
	}{
		{"made again", false, false},
		{"made again with the same index", true, false},
		// Between two turns of the agent's loop.
		{"made again unseen", false, true},
		{"made again unseen with the same index", true, true},
	} {
		t.Run(again.name, func(t *testing.T) {
			var more []string
			if again.sameIndex {
				more = []string{"index", fmt.Sprint(b.UplinkIndex())}
			}
			if again.stops {
				must.Succeed(t, syscall.Kill(agent.Pid(), syscall.SIGSTOP))
				defer func() { _ = syscall.Kill(agent.Pid(), syscall.SIGCONT) }() // also if what follows fails
			}
			b.Run("ip", "link", "del", "uplink")
			if !again.stops {
				b.Await("missed", time.Second, func() (bool, string) {
					status := agent.Status()
					return status.State == v1.StateDegraded && strings.Contains(status.Reason, "uplink is gone"), fmt.Sprintf("%+v", status)
				})
				if got := agent.Container("one"); got.Policy.Weight != 500 {
					t.Errorf("while the uplink is gone: %+v", got)
				}
			}
			relink(b, more...)
			if again.stops {
				must.Succeed(t, syscall.Kill(agent.Pid(), syscall.SIGCONT))
			}
			b.Await("shared out again", checkInterval+time.Second, func() (bool, string) {
				status := agent.Status()
				return status.State == v1.StateOK && slices.Contains(tcClasses(b), "class htb 7e11:10") && redirected(b) &&
					set(bpfPrograms(t, b))["uplink: weir_uplink"], fmt.Sprintf("%+v %v", status, tcClasses(b))
			})
			if got := agent.Container("one"); got.Policy.Weight != 500 || got.State != v1.StateOK {
				t.Errorf("on the new uplink: %+v", got)
			}
		})
	}
	t.Run("renamed", func(t *testing.T) {
		b.Run("ip", "link", "set", "uplink", "down")
		b.Await("said", checkInterval+time.Second, func() (bool, string) {
			status := agent.Status()
			return status.State == v1.StateDegraded && strings.Contains(status.Reason, "uplink sends nothing: it is switched off"), fmt.Sprintf("%+v", status)
		})
		b.Run("ip", "link", "set", "uplink", "name", "wan0")
		b.Run("ip", "link", "set", "wan0", "up")
		b.Await("noticed", checkInterval+time.Second, func() (bool, string) {
			status := agent.Status()
			return status.Uplink == "wan0" && status.State == v1.StateOK, fmt.Sprintf("%+v", status)
		})
		if _, err := b.Meter.Snapshot(); err != nil {
			t.Error(err)
		}
		if ifbs := b.Run("ip", "-o", "link", "show", "type", "ifb"); strings.Count(ifbs, "\n") != 1 {
			t.Errorf("IFBs: %s", ifbs)
		}
		// The next agent is told the new name, and knows what was set.
		agent.Kill()
		agent = b.StartAgent(harness.AgentOptions{Args: []string{"--uplink", "wan0", "--in-rate", "50mbit"}})
		if got := agent.Container("one"); got.Policy.Weight != 500 {
			t.Errorf("with the new name: %+v", got)
		}
		agent.Kill()
		b.MustWeir("down", "--state-dir", b.Files.StateDir())
		checkNothingLeft(t, b)
		if limit := gsoMaxBytes(t, one); limit < 65536 {
			t.Errorf("gso_max_size of one is %d", limit)
		}
	})
}

// TestRootReplaced: a program that replaces Weir's root qdisc ends its control, and
// every view shows that; where Weir may, it puts its own back.
func TestRootReplaced(t *testing.T) {
	t.Parallel()
	const replaced = "the root qdisc of uplink was replaced by another program (pfifo qdisc ("
	b := newBed(t)
	one := b.Add("one", labels("max", "5mbit"))
	agent := b.StartAgent(harness.AgentOptions{})
	b.Send(one, harness.Load{Protocol: harness.Flood.Protocol, RateBPS: 20 * mbit})
	kept := func(m harness.Measurement) error {
		if got := m.BPS[0]; got > (1.01+m.Slack)*5*mbit {
			return fmt.Errorf("sends %.2f Mbit/s with a maximum of 5", got/mbit)
		}
		return nil
	}
	b.Check(300*time.Millisecond, kept)

	b.Run("tc", "qdisc", "replace", "dev", "uplink", "root", "pfifo")
	got, took := agent.AwaitContainer("one", "degraded", checkInterval+time.Second, func(c v1.Container) bool {
		return c.State == v1.StateDegraded && strings.Contains(c.Reason, replaced)
	})
	t.Logf("noticed after %v", took.Round(time.Millisecond))
	if got.RateBPS != 0 {
		t.Errorf("a rate of %d where nobody counts", got.RateBPS)
	}
	if host := agent.Container("host"); !strings.Contains(host.Reason, replaced) {
		t.Errorf("the host: %+v", host)
	}
	if status := agent.Status(); status.State != v1.StateDegraded || !strings.Contains(status.Reason, "tc qdisc del dev uplink root") {
		t.Errorf("status: %+v", status)
	}
	for _, command := range [][]string{{"ps"}, {"set", "one", "--max", "6mbit"}, {"doctor"}} {
		if result := b.Weir(command...); !strings.Contains(strings.Join(strings.Fields(result.Stdout), " "), "replaced by another program") {
			t.Errorf("weir %s: %+v", command, result)
		}
	}
	if said := agent.Said(); strings.Contains(said, "has no htb") || !strings.Contains(said, "replaced by another program") {
		t.Errorf("the log: %s", said)
	}
	if root := b.Run("tc", "qdisc", "show", "dev", "uplink", "root"); !strings.Contains(root, "pfifo") {
		t.Errorf("somebody's own was touched without leave: %s", root)
	}

	inForce := func(c v1.Container) bool { return c.State == v1.StateOK }
	b.Run("tc", "qdisc", "del", "dev", "uplink", "root")
	agent.AwaitContainer("one", "in force again", checkInterval+time.Second, inForce)
	agent.Stop()

	agent = b.StartAgent(harness.AgentOptions{Args: []string{"--replace"}})
	b.Run("tc", "qdisc", "replace", "dev", "uplink", "root", "handle", "55:", "pfifo", "limit", "77")
	b.Await("put back", checkInterval+time.Second, func() (bool, string) {
		classes := tcClasses(b)
		return slices.Contains(classes, "class htb 7e11:10"), fmt.Sprint(classes)
	})
	agent.AwaitContainer("one", "in force", time.Second, inForce)
	b.Check(300*time.Millisecond, func(m harness.Measurement) error {
		if got := m.BPS[0]; got > (1.01+m.Slack)*6*mbit {
			return fmt.Errorf("sends %.2f Mbit/s with a maximum of 6", got/mbit)
		}
		return nil
	})
	b.MustWeir("down")
	agent.Ended()
	if root := b.Run("tc", "qdisc", "show", "dev", "uplink", "root"); !strings.Contains(root, "pfifo 55: root") || !strings.Contains(root, "77") {
		t.Errorf("weir down put back: %s", root)
	}
}

// TestDownWhileUplinkIsGone: there is nothing to give back, and no reason to
// fail.
func TestDownWhileUplinkIsGone(t *testing.T) {
	t.Parallel()
	for _, dead := range []bool{false, true} {
		t.Run(map[bool]string{false: "agent alive", true: "agent killed"}[dead], func(t *testing.T) {
			b := newBed(t)
			one := b.Add("one", nil)
			gso := gsoMaxBytes(t, one)
			agent := b.StartAgent(harness.AgentOptions{})
			b.Run("ip", "link", "del", "uplink")
			if dead {
				agent.Kill()
			}
			b.MustWeir("down", "--state-dir", b.Files.StateDir())
			if !dead {
				agent.Ended()
			}
			checkNothingLeft(t, b)
			if now := gsoMaxBytes(t, one); now != gso {
				t.Errorf("gso_max_size was %d, is %d", gso, now)
			}
		})
	}
}

// TestBridgeAsUplink: what containers that are ports of a bridge send through
// another port of it passes the bridge's own device by. Where there is one port
// that leads out that is shared out instead; otherwise they are told.
func TestBridgeAsUplink(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		options testbed.HostOptions
		uplink  string
		arrange func(*testing.T, *harness.Bed)
	}{
		{"a port leads out", testbed.HostOptions{Attachment: testbed.AttachBridged, Link: testbed.LinkVLAN}, "containers", nil},
		{"containers behind NAT", testbed.HostOptions{Attachment: testbed.AttachNATBridged, Link: testbed.LinkVLAN}, "lan", nil},
		{"containers behind NAT, the port by its name", testbed.HostOptions{Attachment: testbed.AttachNATBridged}, "uplink", nil},
		{"containers behind a VLAN of their bridge", testbed.HostOptions{Attachment: testbed.AttachNATBridged}, "uplink", behindVLAN},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := harness.NewBed(t, tc.options)
			one, two := b.Add("one", labels("max", "10mbit")), b.Add("two", labels("max", "5mbit"))
			if tc.arrange != nil {
				tc.arrange(t, b)
			}
			checkMaximums(t, b, tc.uplink, one, two)
		})
	}
	t.Run("no port is known to", func(t *testing.T) {
		// To Weir the uplink's veth is one like those of containers.
		b := harness.NewBed(t, testbed.HostOptions{Attachment: testbed.AttachBridged})
		b.Add("one", labels("max", "10mbit"))
		agent := b.StartAgent(harness.AgentOptions{Args: []string{"--uplink", "containers"}})
		agent.AwaitContainer("one", "degraded", time.Second, func(c v1.Container) bool {
			return c.State == v1.StateDegraded && strings.Contains(c.Reason, "name each port that leads out")
		})
	})
}

// checkMaximums asserts that two containers send their maximums of 10 and 5 Mbit/s by the bed's uplink,
// with an agent for a device, which weir down ends.
func checkMaximums(t *testing.T, b *harness.Bed, uplink string, one, two *harness.Container) {
	t.Helper()
	agent := b.StartAgent(harness.AgentOptions{Args: []string{"--uplink", uplink}})
	if status := agent.Status(); status.State != v1.StateOK || status.Uplink != "uplink" {
		t.Errorf("status: %+v", status)
	}
	b.Send(one, harness.Load{Protocol: harness.Flood.Protocol, RateBPS: 40 * mbit})
	b.Send(two, harness.Load{Protocol: harness.Flood.Protocol, RateBPS: 40 * mbit, V6: true})
	b.WarmUp()
	b.Check(300*time.Millisecond, func(m harness.Measurement) error {
		if m.BPS[0] > (1.01+m.Slack)*10*mbit || m.BPS[1] > (1.01+m.Slack)*5*mbit || m.BPS[0] < (0.8-m.Slack)*10*mbit || m.BPS[1] < (0.8-m.Slack)*5*mbit {
			return fmt.Errorf("send %.2f and %.2f Mbit/s with a maximum of 10 and 5", m.BPS[0]/mbit, m.BPS[1]/mbit)
		}
		return nil
	})
	if c := agent.Container("one"); c.State != v1.StateOK || c.SentBytes == 0 {
		t.Errorf("weir ps: %+v", c)
	}
	b.MustWeir("down")
	agent.Ended()
	checkNothingLeft(t, b)
}

// behindVLAN puts containers into a VLAN of their bridge, by whose device they reach the host.
func behindVLAN(t *testing.T, b *harness.Bed) {
	if err := kernel.ProbeLink("vlan"); err != nil {
		t.Skipf("this kernel has no vlan: %v", err)
	}
	b.Run("ip", "link", "add", "link", "containers", "name", "containers.7", "type", "vlan", "id", "7")
	b.Run("ip", "link", "set", "containers", "type", "bridge", "vlan_filtering", "1")
	b.Run("bridge", "vlan", "add", "dev", "containers", "vid", "7", "self")
	for line := range strings.Lines(b.Run("ip", "-o", "link", "show", "master", "containers")) {
		port, _, _ := strings.Cut(strings.Fields(line)[1], "@")
		b.Run("bridge", "vlan", "add", "dev", port, "vid", "7", "pvid", "untagged")
	}
	moveAddresses(b, "containers", "containers.7")
}

// TestBridgedUplinkGivenBack: an uplink that is a port of a bridge stays one.
func TestBridgedUplinkGivenBack(t *testing.T) {
	t.Parallel()
	b := harness.NewBed(t, testbed.HostOptions{Attachment: testbed.AttachBridged})
	b.Add("one", nil)
	before := b.Run("tc", "qdisc", "show")
	agent := b.StartAgent(harness.AgentOptions{})
	b.MustWeir("down")
	agent.Ended()
	checkNothingLeft(t, b)
	if after := b.Run("tc", "qdisc", "show"); after != before {
		t.Errorf("queueing was\n%s\nis\n%s", before, after)
	}
	if port := b.Run("ip", "-o", "link", "show", "uplink"); !strings.Contains(port, "master containers") {
		t.Errorf("the uplink: %s", port)
	}
}
