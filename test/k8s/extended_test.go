//go:build cluster

package k8s

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
)

// TestExtended: where the API server and the scheduler do not count capacity of devices, as before Kubernetes 1.36, they
// count an extended resource of the node, which is the minimum of a pod that requests it. Of 20 Mbit/s 19 may be promised.
func TestExtended(t *testing.T) {
	c := newCluster(t, clusterOptions{gates: []string{"DRAConsumableCapacity=false", "DRAFractionalCapacityRange=false"}})
	c.startWeir()
	c.awaitKbps(19000)
	c.awaitEventIn("", nodeName, "the node offers weir.dev/egress-kbps")
	c.create("camera", podOptions{kbps: "8000"})
	c.awaitRunning("camera")
	hasMinimum := func(pod string, bps uint64) {
		t.Helper()
		c.agent.AwaitContainer("shop/"+pod, "has what it requests", noticed, func(p v1.Container) bool {
			return p.State == v1.StateOK && p.Policy.MinBPS == bps && controlled(p)
		})
	}
	hasMinimum("camera", 8e6)
	c.create("backup", podOptions{annotations: map[string]string{"weir.dev/weight": "5000"}})
	c.awaitRunning("backup")
	c.checkMinimum()

	// What others are promised is not offered; what pods have stays part of it.
	c.MustWeir("set", "shop/backup", "--min", "3mbit")
	c.awaitKbps(16000)
	c.create("second", podOptions{kbps: "8000"})
	c.awaitRunning("second")
	hasMinimum("second", 8e6)
	c.create("third", podOptions{kbps: "1"})
	if why := c.awaitPending("third"); !strings.Contains(why, "Insufficient weir.dev/egress-kbps") {
		t.Errorf("the scheduler says %q", why)
	}
	c.awaitKbps(16000)
	c.end("second")
	c.awaitRunning("third")
	hasMinimum("third", 1e3)
	c.end("third")
	c.MustWeir("reset", "shop/backup")
	c.awaitKbps(19000)

	// Others' nodes, and other parts of its own, are none of weir-dra's business.
	for name, tried := range map[string]struct{ node, patch string }{
		"another node":     {"other", `{"status": {"capacity": {"weir.dev/egress-kbps": "1"}}}`},
		"another resource": {nodeName, `{"status": {"capacity": {"cpu": "1"}}}`},
		"a condition":      {nodeName, `{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`},
		"addresses":        {nodeName, `{"status": {"addresses": [{"type": "InternalIP", "address": "198.19.0.9"}]}}`},
		"its ports":        {nodeName, `{"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 9}}}}`},
		"volumes":          {nodeName, `{"status": {"volumesAttached": [{"name": "a", "devicePath": "/dev/sdz"}]}}`},
		"images":           {nodeName, `{"status": {"images": [{"names": ["evil"], "sizeBytes": 1}]}}`},
		"finalizers":       {nodeName, `{"metadata": {"finalizers": ["weir.dev/stays"]}}`},
	} {
		if tried.node != nodeName {
			c.must("POST", "/api/v1/nodes", object{"metadata": object{"name": tried.node}, "status": object{"capacity": object{"cpu": "1"}, "allocatable": object{"cpu": "1"}}}, nil)
		}
		err := c.doAs(c.token, "PATCH", "/api/v1/nodes/"+tried.node+"/status?dryRun=All", json.RawMessage(tried.patch), nil)
		if err == nil || !strings.Contains(err.Error(), "weir-dra writes ") {
			t.Errorf("weir-dra may change %s: %v", name, err)
		}
		if tried.node != nodeName {
			c.must("DELETE", "/api/v1/nodes/"+tried.node, nil, nil)
		}
	}

	// What is in force stays without weir-dra and the API server.
	c.endProgram("weir-dra", syscall.SIGKILL)
	c.endProgram("kube-apiserver", syscall.SIGKILL)
	c.agent.Kill()
	c.startAgentAlone()
	hasMinimum("camera", 8e6)
	c.startAPIServer()
	c.startDRA()
	hasMinimum("camera", 8e6)
	c.end("camera")
	c.awaitKbps(19000)
}

// awaitKbps waits until the scheduler may count on so much of the node.
func (c *cluster) awaitKbps(want int64) {
	c.t.Helper()
	c.await(fmt.Sprint("the node offers ", want), func() (bool, any) {
		var n struct {
			Status struct{ Allocatable map[string]string }
		}
		err := c.do("GET", "/api/v1/nodes/"+nodeName, nil, &n)
		said := n.Status.Allocatable["weir.dev/egress-kbps"]
		got, _ := parseQuantity(said)
		return said != "" && got == want, fmt.Sprint(n, err)
	})
}
