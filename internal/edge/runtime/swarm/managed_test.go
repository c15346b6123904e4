package swarm

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/swarm"

	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/test/must"
)

// serviceFrom returns a service of users whose specification is JSON as Docker has it.
func serviceFrom(t *testing.T, spec string) (s swarm.Service) {
	t.Helper()
	must.Succeed(t, json.Unmarshal(fmt.Appendf(nil, `{"Spec": %s}`, spec), &s))
	return s
}

const (
	managedSpec = `{"Name": "cam", "Labels": {"weir-edge.manage": "true"}, "Mode": {"Replicated": {"Replicas": 1}}, "TaskTemplate": {"ContainerSpec": %s}%s}`
	plain       = `{"Image": "cam:1", "Labels": {"weir.min": "5mbit"}}`
)

// TestStays: what is on one node only is not moved, nor what has several tasks.
func TestStays(t *testing.T) {
	for spec, want := range map[string]string{
		fmt.Sprintf(managedSpec, plain, ""): "",
		fmt.Sprintf(managedSpec, `{"Mounts": [{"Type": "volume", "Source": "data", "Target": "/data"}]}`, ""):                                                                                                "the volume data keeps it there",
		fmt.Sprintf(managedSpec, `{"Mounts": [{"Type": "bind", "Source": "/srv", "Target": "/srv", "ReadOnly": true}]}`, ""):                                                                                 "the path /srv keeps it there",
		fmt.Sprintf(managedSpec, `{"Mounts": [{"Type": "tmpfs", "Target": "/tmp"}]}`, ""):                                                                                                                    "",
		fmt.Sprintf(managedSpec, `{"Mounts": [{"Type": "volume", "Source": "d", "Target": "/d", "ReadOnly": true, "VolumeOptions": {"DriverConfig": {"Name": "local", "Options": {"type": "nfs4"}}}}]}`, ""): "",
		fmt.Sprintf(managedSpec, `{"Mounts": [{"Type": "volume", "Source": "d", "Target": "/d", "VolumeOptions": {"DriverConfig": {"Options": {"type": "nfs"}}}}]}`, ""):                                     "its volume is for one task at a time",
		fmt.Sprintf(managedSpec, plain, `, "EndpointSpec": {"Ports": [{"Protocol": "udp", "TargetPort": 53, "PublishedPort": 53, "PublishMode": "host"}]}`):                                                  "the port 53/udp of the host keeps it there",
		fmt.Sprintf(managedSpec, plain, `, "EndpointSpec": {"Ports": [{"Protocol": "tcp", "TargetPort": 80, "PublishedPort": 80, "PublishMode": "ingress"}]}`):                                               "",
		strings.Replace(fmt.Sprintf(managedSpec, plain, ""), `"Replicas": 1`, `"Replicas": 2`, 1):                                                                                                            "it has 2 replicas, and only services with one are moved",
		strings.Replace(fmt.Sprintf(managedSpec, plain, ""), `"Replicated": {"Replicas": 1}`, `"Global": {}`, 1):                                                                                             "it is global, or a job",
	} {
		s := serviceFrom(t, spec)
		if m := managed(nil, s, nil, nil); m.Stays != want || !isManaged(&s) || !m.Wanted || m.Bound != "" {
			t.Errorf("%s: %+v, want %q", spec, m, want)
		}
	}
	s := serviceFrom(t, fmt.Sprintf(managedSpec, plain, ""))
	host := []swarm.Task{{NetworksAttachments: []swarm.NetworkAttachment{{Network: swarm.Network{Spec: swarm.NetworkSpec{Annotations: swarm.Annotations{Name: "host"}}}}}}}
	if m := managed(nil, s, host, nil); m.Stays != "the network of the host keeps it there" {
		t.Errorf("in the host's network: %q", m.Stays)
	}
	s.UpdateStatus = &swarm.UpdateStatus{State: swarm.UpdateStatePaused}
	if m := managed(nil, s, nil, nil); m.Stays != "its update is paused" {
		t.Errorf("with an update that has failed: %q", m.Stays)
	}
}

// TestIsManaged: weir-edge's own services are not moved by a label, and those of users only by theirs, or to
// take back what binds them.
func TestIsManaged(t *testing.T) {
	for labels, want := range map[string]bool{
		`{}`: false, `{"weir-edge.manage": "false"}`: false, `{"weir-edge.manage": "true"}`: true, `{"weir-edge.move": "{\"node\": \"n1\"}"}`: true, `{"weir-edge.node": "n1"}`: false,
		`{"weir-edge.manage": "true", "weir-edge.service": "shop"}`: false,
	} {
		s := serviceFrom(t, fmt.Sprintf(`{"Labels": %s, "TaskTemplate": {"ContainerSpec": {}}}`, labels))
		if isManaged(&s) != want {
			t.Errorf("%s: %v", labels, !want)
		}
	}
}

// TestRebind: a service is what it was once weir-edge's constraint is taken back, whatever of it its users
// have set, or have changed meanwhile.
func TestRebind(t *testing.T) {
	for _, more := range []string{
		"", `, "UpdateConfig": {"Order": "stop-first", "Parallelism": 3}`, `, "UpdateConfig": {"Order": ""}`, `, "UpdateConfig": {"Order": "start-first"}`,
	} {
		for _, placement := range []string{"", `, "Placement": {"Constraints": ["node.role==worker", "node.id==n2"], "MaxReplicas": 1}`} {
			was, s := serviceFrom(t, fmt.Sprintf(managedSpec, plain+placement, more)).Spec, serviceFrom(t, fmt.Sprintf(managedSpec, plain+placement, more)).Spec
			rebind(&s, move{Node: "n2", Newest: time.Unix(9, 0)})
			if p := s.TaskTemplate.Placement; p.Constraints[len(p.Constraints)-1] != "node.id==n2" || s.UpdateConfig.Order != swarm.UpdateOrderStartFirst || moveOf(s.Labels).Node != "n2" || !moveOf(s.Labels).Newest.Equal(time.Unix(9, 0)) {
				t.Errorf("%s%s: %+v", placement, more, s)
			}
			rebind(&s, move{Node: "n3"})
			rebind(&s, move{})
			if was.TaskTemplate.Placement == nil {
				was.TaskTemplate.Placement = &swarm.Placement{Constraints: []string{}} // to the swarm the same as none
			}
			if !reflect.DeepEqual(s, was) {
				t.Errorf("%s%s: %+v\nwas %+v", placement, more, s, was)
			}
		}
	}
	// Its owner changes its updates during the move.
	for change, want := range map[*swarm.UpdateConfig]swarm.UpdateConfig{
		{Parallelism: 1, Order: swarm.UpdateOrderStartFirst, Delay: time.Second}:                               {Parallelism: 1, Order: swarm.UpdateOrderStopFirst, Delay: time.Second},
		{Parallelism: 2, Order: swarm.UpdateOrderStopFirst}:                                                    {Parallelism: 2, Order: swarm.UpdateOrderStopFirst},
		{Parallelism: 1, Order: swarm.UpdateOrderStartFirst, FailureAction: swarm.UpdateFailureActionRollback}: {Parallelism: 1, Order: swarm.UpdateOrderStopFirst, FailureAction: swarm.UpdateFailureActionRollback},
	} {
		s := serviceFrom(t, fmt.Sprintf(managedSpec, plain, "")).Spec
		rebind(&s, move{Node: "n2"})
		s.UpdateConfig = change
		if rebind(&s, move{}); s.UpdateConfig == nil || *s.UpdateConfig != want {
			t.Errorf("%+v, want %+v", s.UpdateConfig, want)
		}
	}
	s := serviceFrom(t, fmt.Sprintf(managedSpec, plain, "")).Spec
	rebind(&s, move{Node: "n2"})
	s.TaskTemplate.Placement, s.UpdateConfig.Order = nil, swarm.UpdateOrderStopFirst // by its users
	rebind(&s, move{})
	if s.TaskTemplate.Placement != nil || len(s.Labels) != 1 {
		t.Errorf("changed meanwhile: %+v", s)
	}
}

// TestManagedTasks: while a task moves the old one counts, and why the new one does not run is known by the
// tasks of this move.
func TestManagedTasks(t *testing.T) {
	nodes := []runtime.Node{{ID: "n1", Name: "a"}, {ID: "n2", Name: "b"}}
	s := serviceFrom(t, fmt.Sprintf(managedSpec, plain, ""))
	rebind(&s.Spec, move{Node: "n2", Newest: time.Unix(2, 0)})
	task := func(at int64, node string, state swarm.TaskState, desired swarm.TaskState, err string) swarm.Task {
		made := swarm.Task{NodeID: node, DesiredState: desired, Status: swarm.TaskStatus{State: state, Err: err, ContainerStatus: &swarm.ContainerStatus{ContainerID: fmt.Sprint(at)}}}
		made.CreatedAt = time.Unix(at, 0)
		return made
	}
	old := task(1, "n1", swarm.TaskStateRunning, swarm.TaskStateRunning, "")
	for name, test := range map[string]struct {
		tasks       []swarm.Task
		node, waits string
	}{
		"not yet begun":     {[]swarm.Task{old}, "a", ""},
		"fetches":           {[]swarm.Task{old, task(3, "n2", swarm.TaskStatePreparing, swarm.TaskStateRunning, "")}, "a", ""},
		"no room":           {[]swarm.Task{old, task(3, "", swarm.TaskStatePending, swarm.TaskStateRunning, "no suitable node")}, "a", "no suitable node"},
		"failed once":       {[]swarm.Task{old, task(3, "n2", swarm.TaskStateFailed, swarm.TaskStateShutdown, "exit 1"), task(4, "n2", swarm.TaskStateReady, swarm.TaskStateRunning, "")}, "a", "exit 1"},
		"one before failed": {[]swarm.Task{old, task(2, "n2", swarm.TaskStateRejected, swarm.TaskStateShutdown, "no image")}, "a", ""},
		"both run":          {[]swarm.Task{old, task(3, "n2", swarm.TaskStateRunning, swarm.TaskStateRunning, "")}, "b", ""},
		"the old one ends":  {[]swarm.Task{task(1, "n1", swarm.TaskStateRunning, swarm.TaskStateShutdown, ""), task(3, "n2", swarm.TaskStateRunning, swarm.TaskStateRunning, "")}, "b", ""},
		"its node has left": {[]swarm.Task{task(1, "n9", swarm.TaskStateRunning, swarm.TaskStateRunning, "")}, "n9", ""},
		"none runs":         {nil, "", ""},
	} {
		if m := managed(nil, s, test.tasks, nodes); m.Node != test.node || m.Waits != test.waits || m.Bound != "b" {
			t.Errorf("%s: %+v", name, m)
		}
	}
}
