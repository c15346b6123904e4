//go:build docker || cluster

package k8s

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/k8s/claims"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/packaging"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const (
	// noticed is how long news may take to be known.
	noticed = 10 * time.Second
	// back is how long after the return of the agent or of weir-k8s pods that started meanwhile may
	// be without their class.
	back = 2 * time.Second
	// rateBPS is the uplink's: little enough to be filled on a busy machine.
	rateBPS = 20e6
)

// node is a bed with a containerd, an agent and weir-k8s.
type node struct {
	*harness.Bed
	t          testing.TB
	containerd *testbed.Containerd
	programs   string
	// kubelet is its folder.
	kubelet string
	runtime *runtime
	agent   *harness.Agent
	plugin  *testbed.Process
	made    atomic.Int64
}

// newNode makes a node, whose containerd the function, if any, may configure.
func newNode(t testing.TB, configure ...func(*testbed.ContainerdOptions)) *node {
	programs, err := filepath.Abs("../../bin/kubernetes")
	must.Succeed(t, err)
	if _, err := os.Stat(filepath.Join(programs, "containerd")); err != nil {
		t.Skip("no containerd 2: make bin/kubernetes")
	}
	n := &node{Bed: harness.NewBed(t, testbed.HostOptions{}), t: t, programs: programs}
	n.kubelet = n.Dir
	options := testbed.ContainerdOptions{
		NetNSPath: n.Host.NetNSPath(), Programs: programs, Subnet: n.Host.EngineBridgeCIDR().Masked().String(),
	}
	for _, change := range configure {
		change(&options)
	}
	n.containerd, err = testbed.StartContainerd(t.Context(), options)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd said:\n%s", n.containerd.Said())
		}
		must.Succeed(t, n.containerd.Stop(context.Background()))
	})
	n.runtime = n.newRuntime(t)
	return n
}

// startAgent starts an agent where the files of the node are.
func (n *node) startAgent() {
	n.t.Helper()
	n.agent = n.StartAgent(n.agentOptions())
}

// startAgentAlone starts an agent without weir-k8s.
func (n *node) startAgentAlone() {
	n.t.Helper()
	n.agent = n.LaunchAgent(n.agentOptions())
	n.Await("the agent answers", noticed, func() (bool, string) {
		_, err := n.agent.Client.Status(n.t.Context())
		return err == nil, fmt.Sprint(err)
	})
}

func (n *node) agentOptions() harness.AgentOptions {
	confined, err := packaging.Confined()
	must.Succeed(n.t, err)
	return harness.AgentOptions{Rate: "20mbit", Args: []string{"--rates-file", claims.RatesFile(claims.Folder(n.kubelet))}, Wrapper: append(n.containerd.Enter(), confined...)}
}

func (n *node) startPlugin(args ...string) {
	n.t.Helper()
	program := filepath.Join(filepath.Dir(harness.Program(n.t)), "weir-k8s")
	// Without capabilities, as its unit runs it.
	command := slices.Concat(n.containerd.Enter(), []string{"setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--",
		program, "--socket", n.Files.Socket(), "--kubelet", n.kubelet, "--containerd", n.containerd.Socket(), "--verbose"}, args)
	plugin, err := testbed.StartProcess("weir-k8s", exec.Command(command[0], command[1:]...))
	must.Succeed(n.t, err)
	n.plugin = plugin
	n.t.Cleanup(func() {
		_ = plugin.End(syscall.SIGKILL, noticed) // some tests have killed it
		if n.t.Failed() {
			n.t.Logf("weir-k8s said:\n%s", plugin.Said())
		}
	})
}

// awaitPlugin waits until weir-k8s has reported all pods.
func (n *node) awaitPlugin() {
	n.t.Helper()
	n.Await("the agent hears of pods", noticed, func() (bool, string) {
		return n.source().Connected, n.plugin.LastWords()
	})
}

// source is what the agent says of weir-k8s.
func (n *node) source() v1.Source {
	n.t.Helper()
	for _, s := range n.agent.Status().Sources {
		if s.Name == "kubernetes" {
			return s
		}
	}
	return v1.Source{}
}

// runtime calls a CRI, one call after the other.
type runtime struct {
	calls   *json.Encoder
	answers *json.Decoder
}

// newRuntime starts a program that calls the CRI.
func (n *node) newRuntime(t testing.TB) *runtime {
	t.Helper()
	cmd := exec.Command(filepath.Join(n.programs, "cri"), n.containerd.Socket())
	in, err := cmd.StdinPipe()
	must.Succeed(t, err)
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	cmd.Stderr = os.Stderr
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		must.Succeed(t, cmd.Wait())
	})
	return &runtime{json.NewEncoder(in), json.NewDecoder(out)}
}

// object is a JSON object, as protocol buffers are written in JSON.
type object = map[string]any

// call returns the answer to a request, and how long it took.
func (r *runtime) call(method string, request, response any) (time.Duration, error) {
	if err := r.calls.Encode(object{"method": method, "request": request}); err != nil {
		return 0, err
	}
	var answer struct {
		Response json.RawMessage
		Error    string
		TookNS   time.Duration `json:"took_ns"`
	}
	if err := r.answers.Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Error != "" {
		return answer.TookNS, fmt.Errorf("%s: %s", method, answer.Error)
	}
	return answer.TookNS, json.Unmarshal(answer.Response, response)
}

// pod is a pod that runs.
type pod struct {
	id, name string
	config   object
	// netns opens its network namespace.
	netns string
	took  time.Duration
}

// podOptions describe a pod.
type podOptions struct {
	annotations map[string]string
	host        bool
	// claim is the minimum that it claims by a template.
	claim string
	// kbps is what it requests of the extended resource.
	kbps string
	// uid is given by the API server, if that has the pod.
	uid string
}

// tryRun runs a pod as kubelet does.
func (n *node) tryRun(r *runtime, name string, o podOptions) (*pod, error) {
	uid := cmp.Or(o.uid, fmt.Sprint("uid", n.made.Add(1)))
	network := "POD"
	if o.host {
		network = "NODE"
	}
	p := &pod{name: "shop/" + name, config: object{
		"metadata":    object{"name": name, "uid": uid, "namespace": "shop"},
		"annotations": o.annotations, "logDirectory": n.Dir,
		"linux": object{
			"cgroupParent":    n.containerd.CgroupParent() + "/pod" + uid,
			"securityContext": object{"namespaceOptions": object{"network": network}},
		},
	}}
	var made struct{ PodSandboxID string }
	var err error
	if p.took, err = r.call("RunPodSandbox", object{"config": p.config}, &made); err != nil {
		return nil, err
	}
	p.id = made.PodSandboxID
	p.netns, err = r.netnsOf(p.id)
	return p, err
}

// netnsOf returns the path of a pod's network namespace.
func (r *runtime) netnsOf(id string) (string, error) {
	var status struct{ Info map[string]string }
	if _, err := r.call("PodSandboxStatus", object{"podSandboxId": id, "verbose": true}, &status); err != nil {
		return "", err
	}
	var info struct{ Pid int }
	err := json.Unmarshal([]byte(status.Info["info"]), &info)
	return fmt.Sprintf("/proc/%d/ns/net", info.Pid), err
}

func (n *node) run(t testing.TB, name string, o podOptions) *pod {
	t.Helper()
	p, err := n.tryRun(n.runtime, name, o)
	must.Succeed(t, err)
	return p
}

// addContainer starts a container of a pod.
func (n *node) addContainer(t *testing.T, p *pod, name string, args ...string) {
	t.Helper()
	must.Succeed(t, n.tryAddContainer(p, name, args...))
}

func (n *node) tryAddContainer(p *pod, name string, args ...string) error {
	var made struct{ ContainerID string }
	if _, err := n.runtime.call("CreateContainer", object{"podSandboxId": p.id, "sandboxConfig": p.config, "config": object{
		"metadata": object{"name": name}, "image": object{"image": testbed.PodImage}, "command": args, "linux": object{},
	}}, &made); err != nil {
		return err
	}
	_, err := n.runtime.call("StartContainer", object{"containerId": made.ContainerID}, &struct{}{})
	return err
}

// stop ends a pod.
func (n *node) stop(t testing.TB, p *pod) {
	t.Helper()
	for _, method := range []string{"StopPodSandbox", "RemovePodSandbox"} {
		_, err := n.runtime.call(method, object{"podSandboxId": p.id}, &struct{}{})
		must.Succeed(t, err)
	}
}

// controlled reports whether a pod has a class.
func controlled(c v1.Container) bool {
	return len(c.Shares) > 0 && c.Shares[0].Controlled
}
