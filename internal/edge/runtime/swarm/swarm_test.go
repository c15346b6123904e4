package swarm

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/swarm"

	"github.com/weir-project/weir/internal/edge/runtime"
)

func TestCheckArchitecture(t *testing.T) {
	nodes := func(architectures ...string) (list []runtime.Node) {
		for _, a := range architectures {
			list = append(list, runtime.Node{Architecture: a})
		}
		return list
	}
	for name, test := range map[string]struct {
		image string
		nodes []runtime.Node
		says  string
		note  bool
	}{
		"the same":            {"arm64", nodes("arm64"), "", false},
		"one of them":         {"arm64", nodes("amd64", "arm64"), "", false},
		"none":                {"arm64", nodes("amd64", "arm", "amd64"), "it is for arm64 and nodes are amd64, arm:", false},
		"32 bits on 64":       {"arm", nodes("amd64", "arm64"), "", true},
		"32 bits on both":     {"arm", nodes("arm64", "arm"), "", false},
		"an image of any":     {"", nodes("amd64"), "", false},
		"a node without word": {"arm64", nodes("amd64", ""), "", false},
		"no nodes":            {"arm64", nil, "", false},
	} {
		note, err := checkArchitecture("shop:1", test.image, test.nodes)
		if (note != "") != test.note {
			t.Errorf("%s: the note is %q", name, note)
		}
		if test.says == "" && err != nil || test.says != "" && (!errors.Is(err, runtime.ErrArchitecture) || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

// Users do not come to where proxies are commanded.
func TestCheckPorts(t *testing.T) {
	for port, wrong := range map[uint16]bool{80: false, firstControlPort - 1: false, firstControlPort: true, firstControlPort + controlPorts - 1: true, firstControlPort + controlPorts: false} {
		if err := checkPorts(runtime.Service{Name: "s", Ports: []runtime.Port{{Host: port, Container: 80}}}); (err != nil) != wrong {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// TestFreePort: services have ports of their own, also one that is deployed right after
// another was removed, until there is none left.
func TestFreePort(t *testing.T) {
	first, err := freePort("shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := freePort("solid", nil); err != nil || other == first {
		t.Errorf("solid has %d, as shop had: %v", other, err)
	}
	var services []swarm.Service
	taken := map[uint16]bool{}
	for range controlPorts {
		port, err := freePort("shop", services)
		if err != nil || taken[port] || port < firstControlPort || port >= firstControlPort+controlPorts {
			t.Fatalf("%d of %v: %v", port, taken, err)
		}
		taken[port] = true
		services = append(services, swarm.Service{Spec: swarm.ServiceSpec{Annotations: swarm.Annotations{Labels: map[string]string{labelPort: portText(port)}}}})
	}
	if port, err := freePort("shop", services); err == nil {
		t.Errorf("all are taken, and it has %d", port)
	}
}

// TestInstance: an instance is reached at the port of its node's address family, which
// engines choose one by one, and says what it waits for before it runs.
func TestInstance(t *testing.T) {
	task := swarm.Task{Status: swarm.TaskStatus{
		State: swarm.TaskStateRunning, ContainerStatus: &swarm.ContainerStatus{ContainerID: "c"},
		PortStatus: swarm.PortStatus{Ports: []swarm.PortConfig{ // IPv4's first
			{TargetPort: 80, PublishedPort: 49154}, {TargetPort: 80, PublishedPort: 49153},
			{TargetPort: 443, PublishedPort: 49155},
		}},
	}}
	service := swarm.Service{Spec: swarm.ServiceSpec{Annotations: swarm.Annotations{Labels: map[string]string{runtime.LabelNode: "n"}}}}
	for node, want := range map[string]string{"198.18.0.2": "198.18.0.2:49154", "2001:db8::2": "[2001:db8::2]:49153"} {
		address := netip.MustParseAddr(node)
		i := instance(service, []swarm.Task{task}, []runtime.Node{{ID: "n", Name: "one", Address: address}})
		if i.Phase != runtime.Running || i.Addresses[80].String() != want || i.Addresses[443] != netip.AddrPortFrom(address, 49155) || i.Reason != "" {
			t.Errorf("%s: %+v, want %s", node, i, want)
		}
	}
	for status, want := range map[*swarm.TaskStatus]string{
		{State: swarm.TaskStatePreparing, Message: "preparing"}:                                                                           "its task is preparing: preparing",
		{State: swarm.TaskStatePending, Message: "pending task scheduling", Err: "no suitable node (1 node not available for new tasks)"}: "its task is pending: no suitable node (1 node not available for new tasks)",
	} {
		if i := instance(service, []swarm.Task{{Status: *status}}, nil); i.Phase != runtime.Starting || i.Reason != want {
			t.Errorf("%+v, want %q", i, want)
		}
	}
}
