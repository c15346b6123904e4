//go:build docker

package k8s

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestContainerd is all that containers without pods, as ctr and nerdctl make them, can show one after the other.
func TestContainerd(t *testing.T) {
	n := newNode(t)
	for _, namespace := range []string{"default", "shop"} {
		must.Succeed(t, n.containerd.Import(namespace, n.containerd.Images()))
	}
	n.startAgent()
	early := n.runContainer(t, "default", testbed.PodImage, "early", "--label", "weir.weight=200")
	n.startPlugin()
	n.awaitControlled(t, "early", func(c v1.Container) bool { return c.Policy.Weight == 200 })

	t.Run("labels are honoured on the wire", func(t *testing.T) { n.testContainerLabels(t, early) })
	t.Run("labels of the image", n.testImageLabels)
	t.Run("another's network", func(t *testing.T) { n.testJoined(t, early) })
	t.Run("in the host's network", n.testHostContainer)
	t.Run("changes", n.testContainerChanges)
	t.Run("pods beside", n.testPodBeside)
	t.Run("weir-k8s dies", n.testPluginDiesBeside)
	t.Run("agent and containerd die", n.testAgentDiesBeside)
}

func (n *node) runContainer(t *testing.T, namespace, image, id string, options ...string) string {
	t.Helper()
	netns, err := n.containerd.RunContainer(namespace, image, id, options...)
	must.Succeed(t, err)
	return netns
}

func (n *node) ctr(t *testing.T, args ...string) {
	t.Helper()
	_, err := n.containerd.Ctr("default", args...)
	must.Succeed(t, err)
}

// awaitControlled waits until a container of containerd has a class and is as wanted.
func (n *node) awaitControlled(t *testing.T, name string, is func(v1.Container) bool) v1.Container {
	t.Helper()
	c, _ := n.agent.AwaitContainer(name, "controlled", back, func(c v1.Container) bool {
		return c.Runtime == v1.RuntimeContainerd && controlled(c) && c.State == v1.StateOK && is(c)
	})
	return c
}

// testContainerLabels: weights and a minimum of containers that send all they can; one is called as nerdctl does.
func (n *node) testContainerLabels(t *testing.T, early string) {
	netns := n.runContainer(t, "shop", testbed.PodImage, "4f1d", "--label", "nerdctl/name=web", "--label", "weir.min=9mbit", "--label", "weir.weight=50")
	n.awaitControlled(t, "shop/web", func(c v1.Container) bool {
		return c.ID == "shop/4f1d" && c.Policy.MinBPS == 9e6 && !c.StartedAt.IsZero()
	})
	if said := n.MustWeir("ps"); strings.Count(said, "shop/web") != 1 || strings.Count(said, "early") != 1 {
		t.Errorf("weir ps prints\n%s", said)
	}
	defer n.SendFrom(early, 0, harness.TCP).Stop()
	defer n.SendFrom(netns, 1, harness.TCP).Stop()
	n.CheckSharesFor(rateBPS, []harness.Claim{
		{Labels: map[string]string{"weir.weight": "200"}, DemandBPS: harness.Unlimited},
		{Labels: map[string]string{"weir.min": "9mbit", "weir.weight": "50"}, DemandBPS: harness.Unlimited},
	}, 3*time.Second)
	_, err := n.containerd.Ctr("shop", "task", "kill", "--signal", "KILL", "4f1d")
	must.Succeed(t, err)
	n.agent.AwaitGone("shop/web", back)
}

// testImageLabels: a minimum that the image's author wrote is not taken, though ctr makes it a label of the container.
func (n *node) testImageLabels(t *testing.T) {
	n.runContainer(t, "default", testbed.ServerImage, "server", "--label", "weir.weight=300")
	c, _ := n.agent.AwaitContainer("server", "controlled", back, controlled)
	if c.Policy != harness.Policy(v1.Policy{Weight: 300}) || !strings.Contains(c.Reason, "comes with the image") {
		t.Errorf("with a minimum of the image: %+v", c)
	}
	n.ctr(t, "task", "kill", "--signal", "KILL", "server")
}

// testJoined: a container that joins the network of an older one started when its own process did.
func (n *node) testJoined(t *testing.T, netns string) {
	owner := n.awaitControlled(t, "early", func(v1.Container) bool { return true })
	time.Sleep(time.Until(owner.StartedAt.Add(3 * time.Second))) // the time of the start of the host is known to a second
	began := time.Now()
	n.runContainer(t, "default", testbed.PodImage, "joined", "--with-ns", "network:"+netns)
	c, _ := n.agent.AwaitContainer("joined", "known", back, func(v1.Container) bool { return true })
	if late := c.StartedAt.Sub(began); late < -2*time.Second || late > noticed {
		t.Errorf("it started at %v, %v after that was asked; the owner of the network at %v", c.StartedAt, late, owner.StartedAt)
	}
	n.ctr(t, "task", "kill", "--signal", "KILL", "joined")
	n.agent.AwaitGone("joined", back)
}

// testHostContainer: a container in the host's network is known by its cgroup.
func (n *node) testHostContainer(t *testing.T) {
	n.runContainer(t, "default", testbed.PodImage, "daemon", "--net-host", "--label", "weir.weight=200")
	if c := n.awaitControlled(t, "daemon", func(c v1.Container) bool { return c.Policy.Weight == 200 }); c.Mode != v1.ModeHost {
		t.Errorf("got %+v", c)
	}
	n.ctr(t, "task", "exec", "--exec-id", "ping", "daemon", "/bin/busybox", "ping", "-q", "-c", "30", "-i", "0.01", n.Host.PeerAddr.String())
	n.agent.AwaitContainer("daemon", "sends", noticed, func(c v1.Container) bool { return c.SentBytes > 1000 })
	if _, there := n.agent.Containers()["daemon"]; !there {
		t.Error("it ended with a process that was run in it")
	}
	n.ctr(t, "task", "kill", "--signal", "KILL", "daemon")
	n.agent.AwaitGone("daemon", back)
}

// testContainerChanges: labels that change, and a container that starts again.
func (n *node) testContainerChanges(t *testing.T) {
	n.ctr(t, "containers", "label", "early", "weir.weight=400")
	n.awaitControlled(t, "early", func(c v1.Container) bool { return c.Policy.Weight == 400 })
	n.MustWeir("set", "early", "--weight", "500")
	n.ctr(t, "task", "kill", "--signal", "KILL", "early")
	n.agent.AwaitGone("early", back)
	n.ctr(t, "task", "delete", "early")
	n.ctr(t, "task", "start", "--detach", "--null-io", "early")
	n.agent.AwaitContainer("early", "known again, without what was set", back, func(c v1.Container) bool { return c.Policy.Weight == 400 })
}

// testPodBeside: pods come through NRI, and once; containers that others run in their namespace do not.
func (n *node) testPodBeside(t *testing.T) {
	p := n.run(t, "pod", podOptions{annotations: map[string]string{"weir.dev/weight": "200"}})
	defer n.stop(t, p)
	n.addContainer(t, p, "app")
	n.runContainer(t, "k8s.io", testbed.PodImage, "beside")
	n.awaitControlled(t, "k8s.io/beside", func(v1.Container) bool { return true })
	time.Sleep(300 * time.Millisecond) // an event of containerd would have been heard
	var named []string
	for name := range n.agent.Containers() {
		named = append(named, name)
	}
	if slices.Sort(named); !slices.Equal(named, []string{"early", "host", "k8s.io/beside", "shop/pod"}) {
		t.Errorf("known are %v", named)
	}
	_, err := n.containerd.Ctr("k8s.io", "task", "kill", "--signal", "KILL", "beside")
	must.Succeed(t, err)
}

// testPluginDiesBeside: containers that start and end while weir-k8s is away.
func (n *node) testPluginDiesBeside(t *testing.T) {
	const image = "localhost/weir/gone:1"
	n.ctr(t, "images", "tag", testbed.PodImage, image)
	n.runContainer(t, "default", image, "stays", "--label", "weir.weight=200", "--label", "weir.min=1mbit")
	before := n.awaitControlled(t, "stays", func(c v1.Container) bool { return c.Policy.Weight == 200 })
	n.MustWeir("set", "stays", "--weight", "700")
	_ = n.plugin.End(syscall.SIGKILL, noticed) // its exit code is that of a kill
	n.ctr(t, "images", "rm", image)
	n.runContainer(t, "default", testbed.PodImage, "meanwhile", "--label", "weir.weight=300")
	n.ctr(t, "task", "kill", "--signal", "KILL", "early")
	n.startPlugin()
	n.awaitControlled(t, "meanwhile", func(c v1.Container) bool { return c.Policy.Weight == 300 })
	n.agent.AwaitGone("early", back)
	if c := n.awaitControlled(t, "stays", func(c v1.Container) bool { return c.Policy.Weight == 700 }); !c.StartedAt.Equal(before.StartedAt) || c.Policy.MinBPS != 1e6 {
		t.Errorf("one that runs on started at %v, and then at %v, and without its image has %+v", before.StartedAt, c.StartedAt, c.Policy)
	}
}

// testAgentDiesBeside: containers that start and end while the agent, and then containerd, is away.
func (n *node) testAgentDiesBeside(t *testing.T) {
	n.agent.Kill()
	n.runContainer(t, "default", testbed.PodImage, "unseen", "--label", "weir.weight=300")
	n.ctr(t, "task", "kill", "--signal", "KILL", "meanwhile")
	n.startAgentAlone()
	n.awaitControlled(t, "unseen", func(c v1.Container) bool { return c.Policy.Weight == 300 })
	n.agent.AwaitGone("meanwhile", back)
	must.Succeed(t, n.containerd.Kill())
	if c := n.agent.Container("unseen"); !controlled(c) {
		t.Errorf("without containerd: %+v", c)
	}
	must.Succeed(t, n.containerd.Start(t.Context()))
	n.runContainer(t, "default", testbed.PodImage, "last", "--label", "weir.weight=300")
	n.awaitControlled(t, "last", func(c v1.Container) bool { return c.Policy.Weight == 300 })
	n.awaitControlled(t, "stays", func(c v1.Container) bool { return c.Policy.Weight == 700 })
	if said := n.WeirAs(n.containerd.Enter(), "doctor").Stdout; !strings.Contains(said, "containerd") {
		t.Errorf("weir doctor prints\n%s", said)
	}
}
