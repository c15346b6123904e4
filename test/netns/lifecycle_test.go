//go:build netns

package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
)

// noticed is how soon an agent has to react to what happens on its host.
const noticed = time.Second

// cycled is a container that a test starts and stops as it likes.
type cycled struct {
	bed  *harness.Bed
	name string
}

func newCycled(t *testing.T, b *harness.Bed) *cycled {
	t.Helper()
	c := &cycled{bed: b, name: strings.TrimSuffix(filepath.Base(b.Host.NetNSPath()), "-host") + "-cycled"}
	t.Cleanup(func() {
		if _, err := os.Stat(c.path()); err == nil {
			c.stop()
		}
	})
	return c
}

func (c *cycled) path() string { return testbed.NetNSDir + "/" + c.name }

// config is the container's entry in the agent's config file.
func (c *cycled) config(labels map[string]string) map[string]any {
	return map[string]any{"containers": []any{map[string]any{"name": "cycled", "netns": c.path(), "labels": labels}}}
}

func (c *cycled) start() {
	c.bed.Run("ip", "netns", "add", c.name)
	c.bed.Run("ip", "link", "add", "vcycled", "type", "veth", "peer", "name", "eth0", "netns", c.name)
	c.bed.Run("ip", "link", "set", "vcycled", "master", "containers", "up")
}

func (c *cycled) stop() {
	c.bed.Run("ip", "netns", "del", c.name)
	// The kernel takes its time with a namespace; its veth can go at once.
	c.bed.Run("sh", "-c", "ip link del vcycled 2>/dev/null || true") // it may be gone with the namespace
}

func controlled(c v1.Container) bool {
	return c.State == v1.StateOK && c.Mode == v1.ModeBridge && c.EntitledBPS > 0
}

// TestContainerComesAndGoes: a namespace that appears after the agent, first
// without a network, is taken in, and forgotten when it vanishes.
func TestContainerComesAndGoes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := newCycled(t, b)
	agent := b.StartAgent(harness.AgentOptions{Settings: c.config(labels("weight", "50"))})
	if got, there := agent.Containers()["cycled"]; there {
		t.Errorf("before it starts: %+v", got)
	}
	before := tcClasses(b)
	for range 3 {
		b.Run("ip", "netns", "add", c.name)
		agent.AwaitContainer("cycled", "without a network", noticed, func(c v1.Container) bool {
			return c.Mode == v1.ModeNone
		})
		b.Run("ip", "link", "add", "vcycled", "type", "veth", "peer", "name", "eth0", "netns", c.name)
		agent.AwaitContainer("cycled", "controlled", noticed, controlled)
		b.MustWeir("set", "cycled", "--weight", "77")
		if !set(bpfPrograms(t, b))["vcycled: weir_tap"] {
			t.Errorf("programs: %v", bpfPrograms(t, b))
		}
		c.stop()
		agent.AwaitGone("cycled", noticed)
		if left := bpfPrograms(t, b); len(left) != 1 {
			t.Errorf("programs after the container's end: %v", left)
		}
		b.Await("its class gone", noticed, func() (bool, string) {
			now := tcClasses(b)
			return slices.Equal(now, before), fmt.Sprint(now)
		})
	}
	// What was set ended with the container.
	c.start()
	if got, _ := agent.AwaitContainer("cycled", "controlled", noticed, controlled); got.Policy.Weight != 50 {
		t.Errorf("the next container of the same name has what was set for the last: %+v", got)
	}
}

// TestVethReplaced: a container whose interface is replaced while it runs stays
// under control.
func TestVethReplaced(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		newVeth bool // before the old one goes
	}{{"old one goes first", false}, {"new one comes first", true}} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			one := b.Add("one", labels("max", "10mbit"))
			agent := b.StartAgent(harness.AgentOptions{})
			b.MustWeir("set", "one", "--weight", "200")
			if test.newVeth {
				attachVeth(t, b, one.NetNSPath(), "new")
			}
			b.Run("ip", "link", "del", one.HostInterface)
			if !test.newVeth {
				agent.AwaitContainer("one", "without a network", noticed, func(c v1.Container) bool { return c.Mode == v1.ModeNone })
				attachVeth(t, b, one.NetNSPath(), "new")
			}
			b.Await("assigned", noticed, func() (bool, string) {
				programs := bpfPrograms(t, b)
				return set(programs)["vnew: weir_tap"], fmt.Sprint(programs)
			})
			got, _ := agent.AwaitContainer("one", "controlled", noticed, controlled)
			if got.Policy.Weight != 200 || got.Policy.MaxBPS != 10*mbit {
				t.Errorf("got %+v", got)
			}
			inside := []string{"nsenter", "--net=" + one.NetNSPath(), "--"}
			b.Run(append(inside, "ip", "addr", "add", one.Addr.String()+"/22", "dev", "new")...)
			gateway := one.Addr.As4()
			gateway[3] = 1
			b.Run(append(inside, "ip", "route", "replace", "default", "via", fmt.Sprintf("%d.%d.%d.%d", gateway[0], gateway[1], gateway[2], gateway[3]))...)
			b.Send(one, harness.Flood)
			// The bridge may not forward at once, and who asks for the gateway's
			// address in vain does so again after a second.
			b.AwaitTraffic(one.Slot, 3*time.Second)
			time.Sleep(300 * time.Millisecond)
			b.CheckMaximum(one.Slot, 10*mbit, time.Second)
		})
	}
}

// TestInterfaceAdded: a container does not get around its share by an
// interface that it is given while it runs.
func TestInterfaceAdded(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := b.Add("one", nil)
	agent := b.StartAgent(harness.AgentOptions{})
	classes := tcClasses(b)
	attachVeth(t, b, one.NetNSPath(), "second")
	b.Await("assigned", checkInterval+noticed, func() (bool, string) {
		programs := bpfPrograms(t, b)
		return set(programs)["vsecond: weir_tap"] && set(programs)[one.HostInterface+": weir_tap"], fmt.Sprint(programs)
	})
	if got := agent.Container("one"); !controlled(got) || !slices.Equal(tcClasses(b), classes) {
		t.Errorf("got %+v, classes %v", got, tcClasses(b))
	}
}

// TestNothingLeaks: fifty starts and stops of a container leave no descriptor
// in the agent, no BPF program or map with it, and nothing on the host.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := newCycled(t, b)
	agent := b.StartAgent(harness.AgentOptions{Settings: c.config(nil)})
	cycle := func() {
		c.start()
		agent.AwaitContainer("cycled", "controlled", noticed, controlled)
		c.stop()
		agent.AwaitGone("cycled", noticed)
	}
	// The first few open what is kept.
	for range 3 {
		cycle()
	}
	before, programs, classes := descriptors(t, agent.Pid()), bpfPrograms(t, b), tcClasses(b)
	heldBefore := agent.BPFObjects()
	const cycles = 50
	began := time.Now()
	for range cycles {
		cycle()
	}
	t.Logf("%v for one start and stop", (time.Since(began) / cycles).Round(time.Millisecond))
	// The runtime closes what a goroutine or a request held a little later.
	b.Await("as many descriptors as before", 2*time.Second, func() (bool, string) {
		after := descriptors(t, agent.Pid())
		return len(after) <= len(before), fmt.Sprintf("before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	})
	if held := agent.BPFObjects(); !slices.Equal(held, heldBefore) {
		t.Errorf("the agent held %v, holds %v", heldBefore, held)
	}
	if now := bpfPrograms(t, b); !slices.Equal(now, programs) {
		t.Errorf("programs were %v, are %v", programs, now)
	}
	if now := tcClasses(b); !slices.Equal(now, classes) {
		t.Errorf("classes were %v, are %v", classes, now)
	}
	// While containers come and go all the time it is written now and then.
	b.Await("a state file without the container", 2*time.Second, func() (bool, string) {
		state := b.Run("cat", b.Files.StatePath())
		return !strings.Contains(state, "cycled"), state
	})
}

// descriptors lists what a process has open.
func descriptors(t *testing.T, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			open = append(open, target)
		}
	}
	slices.Sort(open)
	return open
}
