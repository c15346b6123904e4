//go:build docker

package k8s

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/k8s/claims"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestPods is all that one containerd and one agent can show one after the other.
func TestPods(t *testing.T) {
	n := newNode(t)
	n.startAgent()
	n.startPlugin()
	n.awaitPlugin()

	t.Run("a pod is one container", n.testOne)
	t.Run("control from the first packet on", n.testFirstPackets)
	t.Run("a pod in the host's network", n.testHostNetwork)
	t.Run("annotations are honoured on the wire", n.testShares)
	t.Run("annotations change", n.testChanged)
	t.Run("made again with its name", n.testMadeAgain)
	t.Run("limited by CNI too", n.testLimitedTwice)
	t.Run("two at once", n.testTwoPlugins)
	t.Run("the agent dies while pods start", n.testAgentDies)
	t.Run("weir-k8s dies while pods start", n.testPluginDies)
	t.Run("containerd dies", n.testContainerdDies)
	t.Run("containerd dies while pods start", n.testContainerdDiesMeanwhile)
	t.Run("all die while pods start", n.testAllDie)
	t.Run("pods end while nobody reports", n.testEndUnseen)
}

// testOne: what users see of a pod with two containers, one of whose annotations is wrong.
func (n *node) testOne(t *testing.T) {
	p := n.run(t, "web", podOptions{annotations: map[string]string{"weir.dev/min": "10mbit", "weir.dev/weight": "heavy", "weir.dev/priority": "7"}})
	n.addContainer(t, p, "app")
	n.addContainer(t, p, "log")
	got := n.agent.Container(p.name)
	want := v1.Policy{Weight: 100, MinBPS: 10e6, Priority: 7}
	if got.ID != p.id || got.Policy != harness.Policy(want) || !slices.Equal(got.Members, []string{"app", "log"}) || got.StartedAt.IsZero() {
		t.Errorf("got %+v", got)
	}
	if got.State != v1.StateDegraded || !strings.Contains(got.Reason, `weir.weight="heavy"`) {
		t.Errorf("of an annotation that cannot be read: %s, %q", got.State, got.Reason)
	}
	if said := n.MustWeir("explain", "web"); !strings.Contains(said, "its containers: app, log") {
		t.Errorf("weir explain prints\n%s", said)
	}
	if said := n.MustWeir("ps"); strings.Count(said, "shop/") != 1 {
		t.Errorf("weir ps prints\n%s", said)
	}
	n.stop(t, p)
	if _, there := n.agent.Containers()[p.name]; there {
		t.Error("it is there when it has stopped")
	}
}

// testFirstPackets: what a container sends from its first instant on is counted as its pod's, not as
// the host's.
func (n *node) testFirstPackets(t *testing.T) {
	const frameBytes = 14 + 20 + 8 + 1000
	for range 3 {
		p := n.run(t, "eager", podOptions{})
		before := n.agent.Container("host").SentBytes
		n.addContainer(t, p, "ping", "/bin/busybox", "ping", "-q", "-i", "0.001", "-s", "1000", n.Host.PeerAddr.String())
		n.agent.AwaitContainer(p.name, "sends", noticed, func(c v1.Container) bool { return c.SentBytes > 50*frameBytes })
		if early := (n.agent.Container("host").SentBytes - before) / frameBytes; early > 0 {
			t.Errorf("%d packets were counted as the host's", early)
		}
		n.stop(t, p)
	}
}

// testHostNetwork: such a pod is known by its cgroup, which its containers' are below.
func (n *node) testHostNetwork(t *testing.T) {
	p := n.run(t, "daemon", podOptions{host: true, annotations: map[string]string{"weir.dev/min": "10mbit"}})
	n.addContainer(t, p, "ping", "/bin/busybox", "ping", "-q", "-i", "0.01", n.Host.PeerAddr.String())
	c, _ := n.agent.AwaitContainer(p.name, "sends", noticed, func(c v1.Container) bool { return c.SentBytes > 1000 })
	if c.Mode != v1.ModeHost || c.State != v1.StateOK {
		t.Errorf("got %+v", c)
	}
	n.stop(t, p)
}

// testShares: weight, minimum and maximum of pods that send all they can.
func (n *node) testShares(t *testing.T) {
	var asked []harness.Claim
	for slot, pod := range []struct{ annotations, labels map[string]string }{
		{map[string]string{"weir.dev/weight": "300"}, map[string]string{"weir.weight": "300"}},
		{map[string]string{"weir.dev/min": "8mbit", "weir.dev/weight": "50"}, map[string]string{"weir.min": "8mbit", "weir.weight": "50"}},
		{map[string]string{"kubernetes.io/egress-bandwidth": "1M", "weir.dev/weight": "1000"}, map[string]string{"weir.max": "1mbit", "weir.weight": "1000"}},
	} {
		p := n.run(t, fmt.Sprint("share", slot), podOptions{annotations: pod.annotations})
		defer n.stop(t, p)
		if c := n.agent.Container(p.name); !controlled(c) || c.State != v1.StateOK || c.Mode != v1.ModeBridge || c.Runtime != "kubernetes" {
			t.Errorf("when it has started: %+v", c)
		}
		defer n.SendFrom(p.netns, slot, harness.TCP).Stop()
		asked = append(asked, harness.Claim{Labels: pod.labels, DemandBPS: harness.Unlimited})
	}
	n.CheckSharesFor(rateBPS, asked, 3*time.Second)
}

// testChanged: what weir-dra notes of a pod that runs replaces its annotations, also after weir-k8s has started again.
func (n *node) testChanged(t *testing.T) {
	folder := claims.Folder(n.kubelet)
	must.Succeed(t, os.MkdirAll(folder, 0o755))
	p := n.run(t, "web", podOptions{annotations: map[string]string{"weir.dev/min": "2mbit", "weir.dev/weight": "300"}})
	defer n.stop(t, p)
	uid := p.config["metadata"].(object)["uid"].(string)
	note := func(labels map[string]string) {
		must.Succeed(t, claims.Annotations{uid: labels}.Save(claims.AnnotationsFile(folder)))
	}
	defer os.Remove(claims.AnnotationsFile(folder))
	has := func(want v1.Policy) {
		t.Helper()
		n.agent.AwaitContainer(p.name, "has its new policy", noticed, func(c v1.Container) bool { return c.Policy == harness.Policy(want) })
	}
	note(map[string]string{"weir.max": "5mbit"})
	has(v1.Policy{Weight: 100, MaxBPS: 5e6})
	must.Succeed(t, n.plugin.End(syscall.SIGTERM, noticed))
	n.startPlugin()
	n.awaitPlugin()
	has(v1.Policy{Weight: 100, MaxBPS: 5e6})
	note(map[string]string{"weir.min": "3mbit"})
	has(v1.Policy{Weight: 100, MinBPS: 3e6})
}

// testMadeAgain: a pod that is made again at once with the same name, as those of a StatefulSet are, is another one,
// also while the runtime still has the first.
func (n *node) testMadeAgain(t *testing.T) {
	first := n.run(t, "db-0", podOptions{annotations: map[string]string{"weir.dev/weight": "200", "weir.dev/min": "12mbit"}})
	n.addContainer(t, first, "ping", "/bin/busybox", "ping", "-q", "-i", "0.01", n.Host.PeerAddr.String())
	const manyBytes = 5000 // more than a pod sends by itself
	n.agent.AwaitContainer(first.name, "sends", noticed, func(c v1.Container) bool { return c.SentBytes > manyBytes })
	n.MustWeir("set", first.name, "--weight", "400")
	_, err := n.runtime.call("StopPodSandbox", object{"podSandboxId": first.id}, &struct{}{})
	must.Succeed(t, err)
	second := n.run(t, "db-0", podOptions{annotations: map[string]string{"weir.dev/weight": "300", "weir.dev/min": "12mbit"}})
	is := func(when string) {
		t.Helper()
		c := n.agent.Container(second.name)
		if c.ID != second.id || c.Policy != harness.Policy(v1.Policy{Weight: 300, MinBPS: 12e6}) || !controlled(c) || c.State != v1.StateOK || c.SentBytes > manyBytes {
			t.Errorf("%s: %+v", when, c)
		}
	}
	is("when it has started")
	_, err = n.runtime.call("RemovePodSandbox", object{"podSandboxId": first.id}, &struct{}{})
	must.Succeed(t, err)
	is("when the first is removed")
	_ = n.plugin.End(syscall.SIGKILL, noticed) // its exit code is that of a kill
	n.startPlugin()
	n.awaitPlugin()
	is("when weir-k8s has started again")
	n.stop(t, second)
	n.agent.AwaitGone(second.name, back)
}

// testLimitedTwice: CNI's bandwidth plugin is named where it limits a pod by the same annotations.
func (n *node) testLimitedTwice(t *testing.T) {
	const file = "/etc/cni/net.d/10-flannel.conflist"
	seen := filepath.Join(n.containerd.Root(), file)
	var etc unix.Statfs_t
	if err := unix.Statfs(filepath.Join(n.containerd.Root(), "etc"), &etc); err != nil || etc.Type != unix.OVERLAYFS_SUPER_MAGIC {
		t.Skipf("the node has the machine's /etc, as the kernel has no overlay file system (%v)", err)
	}
	must.Succeed(t, os.MkdirAll(filepath.Dir(seen), 0o755))
	must.Succeed(t, os.WriteFile(seen, []byte(`{"name": "cbr0", "plugins": [{"type": "flannel"}, {"type": "bandwidth"}]}`), 0o644))
	defer os.RemoveAll(filepath.Dir(filepath.Dir(seen)))
	twice := n.run(t, "twice", podOptions{annotations: map[string]string{"kubernetes.io/egress-bandwidth": "5M"}})
	defer n.stop(t, twice)
	once := n.run(t, "once", podOptions{annotations: map[string]string{"weir.dev/max": "5mbit"}})
	defer n.stop(t, once)
	if c := n.agent.Container(twice.name); c.State != v1.StateDegraded || !strings.Contains(c.Reason, "out of "+file) || c.Policy.MaxBPS != 5e6 {
		t.Errorf("with the annotation: %+v", c)
	}
	if c := n.agent.Container(once.name); c.State != v1.StateOK {
		t.Errorf("without it: %+v", c)
	}
	if said := n.WeirAs(n.containerd.Enter(), "doctor").Stdout; !strings.Contains(said, "take the plugin bandwidth out of "+file) {
		t.Errorf("weir doctor prints\n%s", said)
	}
}

// testTwoPlugins: the agent refuses a second weir-k8s, which waits for the first to end.
func (n *node) testTwoPlugins(t *testing.T) {
	first := n.plugin
	n.startPlugin()
	n.Await("the second is refused", noticed, func() (bool, string) {
		return strings.Contains(n.plugin.Said(), "another weir-k8s reports the containers of kubernetes"), n.plugin.LastWords()
	})
	must.Succeed(t, first.End(syscall.SIGTERM, noticed))
	n.Await("the second takes over", back, func() (bool, string) {
		return strings.Contains(n.plugin.Said(), "reported all containers to the agent\" source=kubernetes"), n.plugin.LastWords()
	})
}

// startsWhile starts pods, one after the other, while act runs; and checks that all are under control
// within the time that weir has for that. Without a runtime a start fails, which mayFail permits.
func (n *node) startsWhile(t *testing.T, mayFail bool, act func()) {
	t.Helper()
	before := n.run(t, "before", podOptions{annotations: map[string]string{"weir.dev/weight": "200"}})
	n.addContainer(t, before, "ping", "/bin/busybox", "ping", "-q", "-i", "0.01", n.Host.PeerAddr.String())
	sending, _ := n.agent.AwaitContainer(before.name, "sends", noticed, func(c v1.Container) bool { return c.SentBytes > 0 })
	type result struct {
		pods   []*pod
		failed int
		err    error
	}
	end, done := make(chan struct{}), make(chan result, 1)
	var started atomic.Int64
	awaitTwo := func() {
		before := started.Load()
		n.Await("two pods start", noticed, func() (bool, string) { return started.Load() >= before+2, "they do not" })
	}
	other := n.newRuntime(t)
	go func() {
		var r result
		for i := 0; r.err == nil; i++ {
			select {
			case <-end:
				done <- r
				return
			default:
			}
			var p *pod
			if p, r.err = n.tryRun(other, fmt.Sprint("meanwhile", i), podOptions{annotations: map[string]string{"weir.dev/weight": "200"}}); r.err == nil {
				r.pods = append(r.pods, p)
				started.Add(1)
			} else if mayFail {
				r.err = nil
				r.failed++
				time.Sleep(10 * time.Millisecond)
			}
		}
		done <- r
	}()
	awaitTwo()
	act()
	returned := time.Now()
	awaitTwo()
	close(end)
	r := <-done
	must.Succeed(t, r.err)
	for _, p := range append(r.pods, before) {
		n.agent.AwaitContainer(p.name, "controlled", max(back-time.Since(returned), 0), func(c v1.Container) bool {
			return c.ID == p.id && controlled(c) && c.Policy.Weight == 200 && c.State == v1.StateOK
		})
	}
	t.Logf("%d pods started meanwhile, %d failed; all had their class %v after the return", len(r.pods), r.failed, time.Since(returned).Round(time.Millisecond))
	if n.agent.Container(before.name).SentBytes < sending.SentBytes {
		t.Error("the counters of a pod that went on began anew")
	}
	for _, p := range append(r.pods, before) {
		n.stop(t, p)
	}
}

func (n *node) testAgentDies(t *testing.T) {
	n.startsWhile(t, false, func() {
		n.agent.Kill()
		time.Sleep(500 * time.Millisecond)
		n.startAgentAlone()
	})
}

func (n *node) testPluginDies(t *testing.T) {
	n.startsWhile(t, false, func() {
		_ = n.plugin.End(syscall.SIGKILL, noticed) // its exit code is that of a kill
		time.Sleep(500 * time.Millisecond)
		if s := n.source(); s.Connected || !strings.Contains(s.Reason, "weir-k8s does not run, or is not connected to NRI") {
			t.Errorf("without weir-k8s: %+v", s)
		}
		n.startPlugin()
	})
}

// testContainerdDies: its pods run on, and go on being controlled.
func (n *node) testContainerdDies(t *testing.T) {
	p := n.run(t, "on", podOptions{annotations: map[string]string{"weir.dev/weight": "200"}})
	must.Succeed(t, n.containerd.Kill())
	if c := n.agent.Container(p.name); !controlled(c) || c.State != v1.StateOK {
		t.Errorf("without containerd: %+v", c)
	}
	must.Succeed(t, n.containerd.Start(t.Context()))
	n.runtime = n.newRuntime(n.t)
	n.Await("weir-k8s is connected again", noticed, func() (bool, string) {
		return strings.Count(n.plugin.Said(), `msg="connected to NRI"`) > 1, n.plugin.LastWords()
	})
	if c := n.agent.Container(p.name); c.ID != p.id || !controlled(c) {
		t.Errorf("with containerd back: %+v", c)
	}
	n.stop(t, p)
	n.agent.AwaitGone(p.name, back)
}

func (n *node) testContainerdDiesMeanwhile(t *testing.T) {
	n.startsWhile(t, true, func() {
		must.Succeed(t, n.containerd.Kill())
		must.Succeed(t, n.containerd.Start(t.Context()))
	})
}

// testAllDie: agent, weir-k8s and containerd die together, and return in this order's reverse.
func (n *node) testAllDie(t *testing.T) {
	n.startsWhile(t, true, func() {
		n.agent.Kill()
		_ = n.plugin.End(syscall.SIGKILL, noticed) // its exit code is that of a kill
		must.Succeed(t, n.containerd.Kill())
		must.Succeed(t, n.containerd.Start(t.Context()))
		time.Sleep(300 * time.Millisecond) // pods start as without Weir
		n.startPlugin()
		n.startAgentAlone()
	})
}

// testEndUnseen: a pod that ends while weir-k8s is not there is forgotten, also by an agent that has
// started since.
func (n *node) testEndUnseen(t *testing.T) {
	stays, ends := n.run(t, "stays", podOptions{}), n.run(t, "ends", podOptions{})
	n.Await("the agent has saved both", back, func() (bool, string) {
		saved, err := os.ReadFile(n.Files.StatePath())
		return strings.Contains(string(saved), stays.id) && strings.Contains(string(saved), ends.id), fmt.Sprint(err)
	})
	_ = n.plugin.End(syscall.SIGKILL, noticed) // its exit code is that of a kill
	n.agent.Kill()
	n.stop(t, ends)
	n.startAgentAlone()
	n.agent.AwaitGone(ends.name, noticed)
	if c := n.agent.Container(stays.name); !controlled(c) || c.State != v1.StateOK {
		t.Errorf("one that runs on: %+v", c)
	}
	n.stop(t, stays)
	n.agent.AwaitGone(stays.name, noticed)
}

// TestHardAdmission: a pod whose minimum does not fit or cannot be kept, or that starts while no agent runs, does not start;
// one with a wrong annotation or a latency that cannot be kept does.
func TestHardAdmission(t *testing.T) {
	n := newNode(t)
	n.startAgent()
	n.startPlugin("--hard-admission")
	n.awaitPlugin()
	n.run(t, "first", podOptions{annotations: map[string]string{"weir.dev/min": "12mbit"}})
	_, err := n.tryRun(n.runtime, "second", podOptions{annotations: map[string]string{"weir.dev/min": "12mbit"}})
	if err == nil || !strings.Contains(err.Error(), "shop/second is not admitted") || !strings.Contains(err.Error(), "7mbit") {
		t.Errorf("a minimum that does not fit: %v", err)
	}
	if _, there := n.agent.Containers()["shop/second"]; there {
		t.Error("the agent knows a pod that was refused")
	}
	_, err = n.tryRun(n.runtime, "receiver", podOptions{annotations: map[string]string{"weir.dev/in.min": "1mbit"}})
	if err == nil || !strings.Contains(err.Error(), "shop/receiver is not admitted") {
		t.Errorf("a minimum of received traffic, which no uplink shares: %v", err)
	}
	n.run(t, "wrong", podOptions{annotations: map[string]string{"weir.dev/weight": "heavy", "weir.dev/min": "1mbit"}})
	late := n.run(t, "late", podOptions{annotations: map[string]string{"weir.dev/latency": "1us", "weir.dev/min": "1mbit"}})
	if c := n.agent.Container(late.name); c.State != v1.StateRejected {
		t.Errorf("a latency that cannot be kept: %s, %s", c.State, c.Reason)
	}
	n.run(t, "third", podOptions{annotations: map[string]string{"weir.dev/min": "4mbit"}})
	n.agent.Kill()
	if _, err = n.tryRun(n.runtime, "fourth", podOptions{}); err == nil || !strings.Contains(err.Error(), "no weir agent is running") {
		t.Errorf("without an agent: %v", err)
	}
}

// TestRequiredPlugin: where NRI's default validator requires weir-k8s, containers of pods that start while it is away
// wait for its return, and with hard admission for their minimum. A pod that tolerates its absence starts.
func TestRequiredPlugin(t *testing.T) {
	n := newNode(t, func(o *testbed.ContainerdOptions) { o.RequiredPlugin = "90-weir" })
	n.startAgent()
	n.startPlugin("--hard-admission")
	n.awaitPlugin()
	first := n.run(t, "first", podOptions{annotations: map[string]string{"weir.dev/min": "12mbit"}})
	n.addContainer(t, first, "app")
	_ = n.plugin.End(syscall.SIGKILL, noticed) // its exit code is that of a kill
	tolerates := n.run(t, "static", podOptions{annotations: map[string]string{"tolerate-missing-plugins.noderesource.dev": "true"}})
	n.addContainer(t, tolerates, "app")
	waits := n.run(t, "waits", podOptions{annotations: map[string]string{"weir.dev/min": "4mbit"}})
	large := n.run(t, "large", podOptions{annotations: map[string]string{"weir.dev/min": "12mbit"}})
	for _, p := range []*pod{waits, large} {
		if err := n.tryAddContainer(p, "app"); err == nil || !strings.Contains(err.Error(), `required plugin "90-weir" not present`) {
			t.Errorf("%s without weir-k8s: %v", p.name, err)
		}
	}
	n.startPlugin("--hard-admission")
	n.awaitPlugin()
	n.addContainer(t, waits, "app")
	if c := n.agent.Container(waits.name); !controlled(c) || c.State != v1.StateOK || c.Policy.MinBPS != 4e6 || !slices.Equal(c.Members, []string{"app"}) {
		t.Errorf("when it has started: %+v", c)
	}
	if err := n.tryAddContainer(large, "app"); err == nil || !strings.Contains(err.Error(), "shop/large is not admitted") {
		t.Errorf("a minimum that does not fit: %v", err)
	}
	n.stop(t, first)
	n.Await("a container starts when its pod's minimum fits", back, func() (bool, string) {
		err := n.tryAddContainer(large, "app")
		return err == nil, fmt.Sprint(err)
	})
}

// TestNRIDisabled: weir-k8s says what to write, and pods are found when it is written and containerd has restarted.
func TestNRIDisabled(t *testing.T) {
	n := newNode(t, func(o *testbed.ContainerdOptions) { o.WithoutNRI = true })
	n.startAgentAlone()
	n.startPlugin()
	p := n.run(t, "web", podOptions{annotations: map[string]string{"weir.dev/weight": "200"}})
	n.Await("weir-k8s says why", noticed, func() (bool, string) {
		said := n.plugin.Said()
		return strings.Contains(said, "disable = false") && strings.Contains(said, "io.containerd.nri.v1.nri"), n.plugin.LastWords()
	})
	if _, known := n.agent.Containers()[p.name]; known {
		t.Error("the agent knows a pod of which nothing tells")
	}
	n.containerd.SetNRI(true)
	must.Succeed(t, n.containerd.Kill())
	must.Succeed(t, n.containerd.Start(t.Context()))
	n.agent.AwaitContainer(p.name, "controlled", back, func(c v1.Container) bool { return controlled(c) && c.Policy.Weight == 200 })
}
