//go:build cluster

package k8s

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/k8s/claims"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestClaims is all that one node of Kubernetes can show one after the other. Of its uplink's 20 Mbit/s
// 19 may be promised.
func TestClaims(t *testing.T) {
	c := newCluster(t, clusterOptions{})
	c.startWeir()
	c.awaitCapacity("19M")
	c.create("camera", podOptions{claim: "8M"})
	c.awaitRunning("camera")
	c.create("backup", podOptions{annotations: map[string]string{"weir.dev/weight": "5000"}})
	c.awaitRunning("backup")

	t.Run("a claimed minimum is kept", c.testMinimum)
	t.Run("a claim says what the kernel has", c.testCondition)
	t.Run("annotations change", c.testAnnotations)
	t.Run("annotations of the node change", c.testNode)
	t.Run("the scheduler counts", c.testPending)
	t.Run("what was promised is taken before the pod starts", c.testTaken)
	t.Run("a pod in the host's network", c.testHostNetwork)
	t.Run("the agent dies", c.testAgentDies)
	t.Run("the drivers restart", c.testDriversRestart)
	t.Run("two drivers", c.testTwoDrivers)
	t.Run("slices, events and claims of others", c.testOfOthers)
	t.Run("the API server is away", c.testWithoutAPIServer)
	t.Run("a claim is deleted while its pod runs", c.testDeleted)
}

// testMinimum: a claim is a minimum of its pod.
func (c *cluster) testMinimum(t *testing.T) {
	camera := c.agent.Container("shop/camera")
	if camera.Policy.MinBPS != 8e6 || camera.State != v1.StateOK || !controlled(camera) {
		t.Errorf("the agent has %+v", camera)
	}
	c.awaitGuaranteed("camera", "True", "InForce")
	c.checkMinimum()
}

// checkMinimum: the camera has its 8 Mbit/s beside a backup with fifty times its weight.
func (c *cluster) checkMinimum() {
	c.t.Helper()
	defer c.SendFrom(c.netnsOf("backup"), 0, harness.TCP).Stop()
	defer c.SendFrom(c.netnsOf("camera"), 1, harness.TCP).Stop()
	c.CheckSharesFor(rateBPS, []harness.Claim{
		{Labels: map[string]string{"weir.weight": "5000"}, DemandBPS: harness.Unlimited},
		{Labels: map[string]string{"weir.min": "8mbit"}, DemandBPS: harness.Unlimited},
	}, 3*time.Second)
}

// testCondition: an operator takes the minimum away, and gives it back.
func (c *cluster) testCondition(t *testing.T) {
	for _, step := range []struct {
		command        []string
		status, reason string
	}{
		{[]string{"set", "shop/camera", "--min", "2mbit"}, "False", "Refused"},
		{[]string{"reset", "shop/camera"}, "True", "InForce"},
	} {
		c.MustWeir(step.command...)
		began := time.Now()
		said := c.awaitGuaranteed("camera", step.status, step.reason).Message
		t.Logf("%v after weir %s: %s", time.Since(began).Round(time.Millisecond), step.command[0], said)
	}
}

// testAnnotations: annotations of a pod that runs are in force within a second of their change, also such that changed
// while weir-dra was away. What cannot be in force is an event of the pod.
func (c *cluster) testAnnotations(t *testing.T) {
	await := func(what string, is func(v1.Container) bool) {
		t.Helper()
		c.agent.AwaitContainer("shop/backup", what, noticed, is)
	}
	fastest := time.Hour
	for _, weight := range []uint32{300, 5000, 300} {
		c.annotate("backup", object{"weir.dev/weight": fmt.Sprint(weight)})
		began := time.Now()
		await("has its new weight", func(b v1.Container) bool { return b.Policy.Weight == weight && b.State == v1.StateOK })
		fastest = min(fastest, time.Since(began))
		t.Logf("in force after %v", time.Since(began).Round(time.Millisecond))
	}
	if fastest > time.Second { // of three: others use this machine, too
		t.Errorf("annotations are in force after %v at best", fastest)
	}
	c.annotate("backup", object{"weir.dev/weight": "heavy"})
	c.awaitEvent("backup", `weir.weight="heavy"`)
	c.annotate("backup", object{"weir.dev/weight": nil, "weir.dev/min": "99mbit"})
	c.awaitEvent("backup", "minimum 99mbit cannot be guaranteed")
	c.annotate("camera", object{"weir.dev/min": "2mbit"})
	c.awaitEvent("camera", "annotation weir.dev/min: 2mbit has no effect: the pod's minimums are those of its claim")
	c.annotate("camera", object{"weir.dev/min": nil})
	c.endProgram("weir-dra", syscall.SIGKILL)
	c.annotate("backup", object{"weir.dev/weight": "5000", "weir.dev/min": nil})
	c.Run(append(c.containerd.Enter(), "rm", claims.AnnotationsFile(claims.Folder(c.kubelet)))...) // as of a node that is new to this
	c.startDRA()
	await("has the annotations that changed without weir-dra", func(b v1.Container) bool {
		return b.Policy.Weight == 5000 && b.Policy.MinBPS == 0 && b.State == v1.StateOK
	})
}

// annotateNode changes annotations of the node; nil removes one.
func (c *cluster) annotateNode(annotations object) {
	c.t.Helper()
	c.must("PATCH", "/api/v1/nodes/"+nodeName, object{"metadata": object{"annotations": annotations}}, nil)
}

// awaitRate waits until the uplink has a rate, and returns how long that took.
func (c *cluster) awaitRate(bps uint64) time.Duration {
	c.t.Helper()
	return c.await(fmt.Sprint("the uplink has ", bps), func() (bool, any) {
		list, err := c.agent.Client.Uplinks(c.t.Context())
		return err == nil && len(list) == 1 && list[0].RateBPS == bps, fmt.Sprint(list, err)
	})
}

// testNode: rates that annotations of the node say are in force within a second, also while the API server is away and at an
// agent that starts then; wrong ones change nothing, and are an event of the node.
func (c *cluster) testNode(t *testing.T) {
	fastest := time.Hour
	for _, rate := range []struct {
		text     string
		bps      uint64
		capacity string
	}{{"16mbit", 16e6, "15200k"}, {"30M", 30e6, "28500k"}, {"12mbit", 12e6, "11400k"}} {
		c.annotateNode(object{"weir.dev/rate": rate.text})
		took := c.awaitRate(rate.bps)
		c.awaitCapacity(rate.capacity)
		fastest = min(fastest, took)
		t.Logf("in force after %v", took.Round(time.Millisecond))
	}
	if fastest > time.Second { // of three: others use this machine, too
		t.Errorf("rates are in force after %v at best", fastest)
	}
	c.awaitGuaranteed("camera", "True", "InForce")
	for wrong, words := range map[string]string{
		"fast":    `annotation weir.dev/rate: "fast" is not a rate; write a number and a unit, for example 30mbit; the node's rates stay as they were`,
		"200gbit": "the agent refuses the annotations weir.dev/rate: ",
	} {
		c.annotateNode(object{"weir.dev/rate": wrong})
		c.awaitEventIn("", nodeName, words)
		c.awaitRate(12e6)
	}
	c.annotateNode(object{"weir.dev/rate": "12mbit", "weir.dev/rate.gone": "1mbit"})
	c.awaitEventIn("", nodeName, "annotation weir.dev/rate.gone: the agent shares no uplink gone: write the name of one of "+c.Host.UplinkName)
	c.annotateNode(object{"weir.dev/rate.gone": nil})

	c.endProgram("kube-apiserver", syscall.SIGKILL)
	c.agent.Kill()
	c.startAgentAlone()
	c.awaitRate(12e6)
	c.startAPIServer()
	c.annotateNode(object{"weir.dev/rate": nil})
	c.awaitRate(20e6)
	c.awaitCapacity("19M")
	c.awaitGuaranteed("camera", "True", "InForce")
}

// testPending: a pod that fits no node waits with the scheduler's words, and starts when another ends.
func (c *cluster) testPending(t *testing.T) {
	c.create("first", podOptions{claim: "6M"})
	c.awaitRunning("first")
	c.create("second", podOptions{claim: "6M"})
	if why := c.awaitPending("second"); !strings.Contains(why, "0/1 nodes are available") {
		t.Errorf("the scheduler says %q", why)
	}
	c.end("first")
	c.awaitGuaranteed("second", "True", "InForce")
	c.end("second")
}

// testTaken: kubelet is away while a minimum without a claim takes what the scheduler has promised.
func (c *cluster) testTaken(t *testing.T) {
	c.endProgram("kubelet", syscall.SIGTERM)
	c.create("late", podOptions{claim: "8M"})
	c.awaitPod("late", "has its node", func(p kubePod) bool { return p.Spec.NodeName == nodeName })
	c.MustWeir("set", "shop/backup", "--min", "7mbit")
	c.awaitCapacity("12M")
	c.startKubelet()
	c.awaitEvent("late", "minimum 8mbit cannot be guaranteed: 4mbit is left at uplink")
	if p, err := c.pod("late"); err != nil || p.Status.Phase != "Pending" {
		t.Errorf("the pod is %+v, %v", p, err)
	}
	if camera := c.agent.Container("shop/camera"); camera.State != v1.StateOK || camera.Shares[0].AdmittedBPS != 8e6 {
		t.Errorf("one that runs has lost its minimum: %+v", camera)
	}
	c.MustWeir("reset", "shop/backup")
	c.awaitRunning("late")
	c.awaitGuaranteed("late", "True", "InForce")
	c.end("late")
}

// testHostNetwork: such a pod is known by its cgroup.
func (c *cluster) testHostNetwork(t *testing.T) {
	c.create("daemon", podOptions{claim: "2M", host: true})
	c.awaitRunning("daemon")
	c.awaitGuaranteed("daemon", "True", "InForce")
	if d := c.agent.Container("shop/daemon"); d.Mode != v1.ModeHost || d.Policy.MinBPS != 2e6 {
		t.Errorf("the agent has %+v", d)
	}
	c.end("daemon")
}

// testAgentDies: while the agent is away the condition of a claim is Unknown, and True again when the agent answers.
func (c *cluster) testAgentDies(*testing.T) {
	c.agent.Kill()
	c.awaitGuaranteed("camera", "Unknown", "NoAgent")
	c.startAgentAlone()
	c.awaitGuaranteed("camera", "True", "InForce")
}

// testDriversRestart: a pod that starts while weir-dra is away starts when it is back; those that run keep
// their claims, and the times of their conditions.
func (c *cluster) testDriversRestart(t *testing.T) {
	before := c.awaitGuaranteed("camera", "True", "InForce")
	c.endProgram("weir-dra", syscall.SIGKILL)
	_ = c.plugin.End(syscall.SIGKILL, noticed) // its exit code is that of a kill
	c.create("meanwhile", podOptions{claim: "2M"})
	c.awaitPod("meanwhile", "has its node", func(p kubePod) bool { return p.Spec.NodeName == nodeName })
	c.startPlugin()
	c.awaitPlugin()
	c.startDRA()
	c.awaitRunning("meanwhile")
	c.awaitGuaranteed("meanwhile", "True", "InForce")
	if now := c.awaitGuaranteed("camera", "True", "InForce"); now != before {
		t.Errorf("after a restart %+v, before %+v", now, before)
	}
	c.end("meanwhile")
	c.awaitCapacity("19M")
}

// testTwoDrivers: a second weir-dra exits with 1 and names the locked file.
func (c *cluster) testTwoDrivers(t *testing.T) {
	first := c.running["weir-dra"]
	c.startDRA()
	second := c.running["weir-dra"]
	c.running["weir-dra"] = first
	c.await("the second ends", func() (bool, any) {
		select {
		case <-second.Ended():
			return true, nil
		default:
			return false, second.LastWords()
		}
	})
	if second.ExitCode() != 1 || !strings.Contains(second.Said(), "another weir-dra runs on this node") {
		t.Errorf("exit code %d: %s", second.ExitCode(), second.Said())
	}
}

// testOfOthers: weir-dra's token can change neither other nodes' slices and events nor those of other programs, nor which devices
// a claim has, also with the rights that it has before Kubernetes 1.36.
func (c *cluster) testOfOthers(t *testing.T) {
	for _, of := range []struct{ driver, node, refused string }{
		{"weir.dev", "other", "on its own node alone"},
		{"gpu.example.com", nodeName, "on its own node alone"},
		{"weir.dev", nodeName, ""},
	} {
		path := claimAPI + "resourceslices"
		err := c.doAs(c.token, "POST", path+"?dryRun=All", object{"metadata": object{"name": "tried"}, "spec": object{
			"driver": of.driver, "nodeName": of.node, "pool": object{"name": "tried", "generation": 1, "resourceSliceCount": 1},
		}}, nil)
		if err == nil != (of.refused == "") || err != nil && !strings.Contains(err.Error(), of.refused) {
			t.Errorf("%+v: %v", of, err)
		}
	}
	for _, of := range []struct{ component, node, refused string }{
		{"weir", "other", "as those of its own node"},
		{"kubelet", nodeName, "as those of its own node"},
		{"weir", nodeName, ""},
	} {
		err := c.doAs(c.token, "POST", "/api/v1/"+inShop+"events?dryRun=All", object{
			"metadata": object{"name": "tried"}, "involvedObject": object{"kind": "Pod", "namespace": "shop", "name": "camera"},
			"source": object{"component": of.component, "host": of.node}, "reason": "Tried", "message": "tried",
		}, nil)
		if err == nil != (of.refused == "") || err != nil && !strings.Contains(err.Error(), of.refused) {
			t.Errorf("%+v: %v", of, err)
		}
	}
	name, _, err := c.claimOf("camera")
	must.Succeed(t, err)
	const access = "/apis/rbac.authorization.k8s.io/v1/"
	metadata := object{"name": "before-1.36"}
	c.must("POST", access+"clusterroles", object{"metadata": metadata, "rules": []object{{
		"apiGroups": []string{"resource.k8s.io"}, "resources": []string{"resourceclaims/binding"}, "verbs": []string{"update", "patch"},
	}}}, nil)
	c.must("POST", access+"clusterrolebindings", object{
		"metadata": metadata, "roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "before-1.36"},
		"subjects": []object{{"kind": "ServiceAccount", "name": "weir", "namespace": "kube-system"}},
	}, nil)
	for _, status := range []object{{"allocation": nil, "reservedFor": nil}, {"reservedFor": nil}} {
		c.await(fmt.Sprint("the policy refuses ", status), func() (bool, any) { // the API server does until it knows the role
			err := c.doAs(c.token, "PATCH", claimAPI+inShop+"resourceclaims/"+name+"/status?dryRun=All", object{"status": status}, nil)
			return err != nil && strings.Contains(err.Error(), "weir-dra writes the conditions of a claim's devices alone"), err
		})
	}
	c.must("DELETE", access+"clusterroles/before-1.36", nil, nil)
	c.must("DELETE", access+"clusterrolebindings/before-1.36", nil, nil)
}

// testWithoutAPIServer: minimums stay in force while the API server is away; capacities and conditions are written when
// it answers again.
func (c *cluster) testWithoutAPIServer(t *testing.T) {
	c.endProgram("kube-apiserver", syscall.SIGKILL)
	c.MustWeir("set", "shop/backup", "--min", "3mbit")
	time.Sleep(3 * time.Second)
	// However long it is away: the next agent and the next weir-k8s have the claim from weir-dra's notes.
	c.agent.Kill()
	_ = c.plugin.End(syscall.SIGKILL, noticed) // its exit code is that of a kill
	c.startAgentAlone()
	c.startPlugin()
	c.awaitPlugin()
	if camera := c.agent.Container("shop/camera"); camera.State != v1.StateOK || camera.Policy.MinBPS != 8e6 || camera.Shares[0].EntitledBPS < 8e6 {
		t.Errorf("the agent has %+v", camera)
	}
	c.startAPIServer()
	c.awaitCapacity("16M")
	c.MustWeir("reset", "shop/backup")
	c.awaitCapacity("19M")
	c.awaitGuaranteed("camera", "True", "InForce")
}

// testDeleted: Kubernetes keeps the claim until its pod has ended; then nothing is left of it.
func (c *cluster) testDeleted(t *testing.T) {
	name, _, err := c.claimOf("camera")
	must.Succeed(t, err)
	c.must("DELETE", claimAPI+inShop+"resourceclaims/"+name, nil, nil)
	time.Sleep(2 * time.Second)
	if _, found, err := c.claimOf("camera"); err != nil || found.Status.Devices[0].Conditions[0].Status != "True" {
		t.Errorf("the claim is %+v, %v", found, err)
	}
	if camera := c.agent.Container("shop/camera"); camera.State != v1.StateOK || camera.Policy.MinBPS != 8e6 {
		t.Errorf("the agent has %+v", camera)
	}
	c.end("camera")
	c.await("no claim is left", func() (bool, any) {
		err := c.do("GET", claimAPI+inShop+"resourceclaims/"+name, nil, nil)
		ledger := c.Run(append(c.containerd.Enter(), "cat", "/var/lib/kubelet/plugins/weir.dev/claims.json")...)
		return err != nil && strings.TrimSpace(ledger) == "{}", fmt.Sprint(err, ledger)
	})
	c.awaitCapacity("19M")
}
