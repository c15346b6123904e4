//go:build docker

package edge

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/runtime"
	runtimeswarm "github.com/weir-project/weir/internal/edge/runtime/swarm"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// testManaged: a Swarm service that weir-edge did not make, whose minimum its node refuses goes to a node with room, and is
// then what it was before. One that cannot go stays and runs, and weir-edge says why.
func (c *cluster) testManaged(t *testing.T) {
	for _, engine := range c.engines {
		_, err := engine.Run(t.Context(), testbed.RunOptions{Name: "greedy", Image: heavyImage, Labels: map[string]string{"weir.min": "30mbit"}})
		must.Succeed(t, err)
	}
	leaves := func(node int) { must.Succeed(t, c.engines[node].Remove(context.Background(), "greedy")) }
	nodes, err := c.engine.API().NodeList(t.Context(), client.NodeListOptions{})
	must.Succeed(t, err)
	number := func(id string) int {
		at := slices.IndexFunc(nodes.Items, func(n swarm.Node) bool { return n.ID == id })
		return slices.IndexFunc(c.nodes, func(n *testbed.NetContainer) bool { return n.Addr.String() == nodes.Items[at].Status.Addr })
	}
	const forbidden = 0
	never := "node.id!=" + nodes.Items[slices.IndexFunc(nodes.Items, func(n swarm.Node) bool { return number(n.ID) == forbidden })].ID
	c.runManaged(t, "cam", &swarm.Placement{Constraints: []string{never}}, nil)
	c.runManaged(t, "kept", nil, []mount.Mount{{Type: mount.TypeVolume, Source: "data", Target: "/data"}})
	was := c.service(t, "cam")
	home, container := c.awaitTask(t, "cam", number)
	c.awaitSaid(t, "cam", "cannot promise 30mbit more", "explain cam", "ps")
	c.awaitSaid(t, "kept", "but the volume data keeps it there", "explain kept", "ps")
	removed := func(name string) {
		_, err := c.engine.API().ServiceRemove(context.Background(), name, client.ServiceRemoveOptions{})
		must.Succeed(t, err)
	}
	removed("kept") // it waits for the same room
	// The swarm knows what its users want of nodes.
	leaves(forbidden)
	c.awaitSaid(t, "cam", "the swarm cannot run it on", "explain cam")
	if at, still := c.awaitTask(t, "cam", number); at != home || still != container {
		t.Errorf("the task was at %d (%s), and is at %d (%s)", home, container, at, still)
	}
	const other = 3 - forbidden
	there := other - home
	began := time.Now()
	leaves(there)
	harness.Await(t, "it runs elsewhere", 2*time.Minute, func() error {
		if at, _ := c.awaitTask(t, "cam", number); at != there {
			return errNot(c.must(t, "explain", "cam"))
		}
		return nil
	})
	t.Logf("it runs there %v after there was room", time.Since(began).Round(100*time.Millisecond))
	c.awaitSaid(t, "cam", "which keeps its minimum 30mbit")
	_, container = c.awaitTask(t, "cam", number)
	harness.Await(t, "the service is what it was", 20*time.Second, func() error {
		if is := c.service(t, "cam"); !reflect.DeepEqual(is.Labels, was.Labels) || !reflect.DeepEqual(is.UpdateConfig, was.UpdateConfig) ||
			!slices.Equal(is.TaskTemplate.Placement.Constraints, was.TaskTemplate.Placement.Constraints) {
			return errNot(fmt.Sprintf("%+v\nwas %+v", is, was))
		}
		return nil
	})
	// Neither what is taken back nor anything else starts it anew.
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if at, still := c.awaitTask(t, "cam", number); at != there || still != container {
			t.Fatalf("it is at %d (%s), and was at %d (%s)", at, still, there, container)
		}
	}
	t.Logf("weir-edge explain cam\n%s%s", c.must(t, "explain", "cam"), c.must(t, "ps"))
	c.testTakenBack(t, number)
	leaves(home)
	removed("cam")
	harness.Await(t, "nothing is promised", 30*time.Second, func() error {
		nodes, err := c.client.Nodes(t.Context())
		if err == nil && slices.ContainsFunc(nodes, func(n edge.Node) bool { return n.PromisedBPS > 0 }) {
			err = errNot(c.must(t, "nodes"))
		}
		return err
	})
}

// testTakenBack: where a move is taken back while the new task starts, the task that runs stays. Only the first
// one becomes healthy.
func (c *cluster) testTakenBack(t *testing.T, number func(id string) int) {
	t.Helper()
	api := c.engine.API()
	c.runManaged(t, "slow", nil, nil, func(s *swarm.ContainerSpec) {
		s.Labels = nil
		s.Healthcheck = &container.HealthConfig{Test: []string{"CMD", "/bin/busybox", "test", "-e", "/healthy"}, Interval: time.Second, StartPeriod: 5 * time.Minute}
	})
	starting := func() (task swarm.Task) {
		t.Helper()
		harness.Await(t, "a task starts", time.Minute, func() error {
			tasks, err := api.TaskList(t.Context(), client.TaskListOptions{Filters: make(client.Filters).Add("service", "slow").Add("desired-state", "running")})
			if err != nil {
				return err
			}
			at := slices.IndexFunc(tasks.Items, func(one swarm.Task) bool {
				return one.Status.State == swarm.TaskStateStarting && one.Status.ContainerStatus != nil
			})
			if at < 0 {
				return errNot(fmt.Sprintf("%+v", tasks.Items))
			}
			task = tasks.Items[at]
			return nil
		})
		return task
	}
	first := starting()
	_, err := c.engines[number(first.NodeID)].Exec(t.Context(), first.Status.ContainerStatus.ContainerID, "/bin/busybox", "touch", "/healthy")
	must.Succeed(t, err)
	home, runs := c.awaitTask(t, "slow", number)
	rt, err := runtimeswarm.New(t.Context(), runtimeswarm.Options{Socket: c.engine.Socket(), LookOnly: true})
	must.Succeed(t, err)
	defer rt.Close()
	slow := func() runtime.Managed {
		state, err := rt.Look(t.Context())
		must.Succeed(t, err)
		return state.Managed[slices.IndexFunc(state.Managed, func(m runtime.Managed) bool { return m.Spec.Name == "slow" })]
	}
	all, err := rt.Nodes(t.Context())
	must.Succeed(t, err)
	away := all[slices.IndexFunc(all, func(n runtime.Node) bool { return n.ID != first.NodeID })].Name
	must.Succeed(t, slow().Bind(t.Context(), away))
	starting()
	if err := slow().Bind(t.Context(), ""); err != nil && !errors.Is(err, runtime.ErrChanged) {
		t.Fatal(err)
	}
	// weir-edge, which finds it so, does the rest.
	harness.Await(t, "the service is what it was", 30*time.Second, func() error {
		if is := c.service(t, "slow"); len(is.Labels) != 1 || is.UpdateConfig != nil || is.TaskTemplate.Placement != nil && len(is.TaskTemplate.Placement.Constraints) > 0 {
			return errNot(fmt.Sprintf("%+v", is))
		}
		return nil
	})
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if at, still := c.awaitTask(t, "slow", number); at != home || still != runs {
			t.Fatalf("it is at %d (%s), and was at %d (%s)", at, still, home, runs)
		}
	}
	_, err = api.ServiceRemove(context.Background(), "slow", client.ServiceRemoveOptions{})
	must.Succeed(t, err)
}

// runManaged makes a service of one task with a minimum.
func (c *cluster) runManaged(t *testing.T, name string, placement *swarm.Placement, mounts []mount.Mount, changes ...func(*swarm.ContainerSpec)) {
	t.Helper()
	image, err := c.engine.API().ImageInspect(t.Context(), heavyImage)
	must.Succeed(t, err)
	one := uint64(1)
	made := &swarm.ContainerSpec{Image: image.ID, Labels: map[string]string{"weir.min": "30mbit"}, Mounts: mounts}
	for _, change := range changes {
		change(made)
	}
	_, err = c.engine.API().ServiceCreate(t.Context(), client.ServiceCreateOptions{Spec: swarm.ServiceSpec{
		Annotations:  swarm.Annotations{Name: name, Labels: map[string]string{"weir-edge.manage": "true"}},
		Mode:         swarm.ServiceMode{Replicated: &swarm.ReplicatedService{Replicas: &one}},
		TaskTemplate: swarm.TaskSpec{ContainerSpec: made, Placement: placement},
	}})
	must.Succeed(t, err)
}

// service returns what a Swarm service is to be.
func (c *cluster) service(t *testing.T, name string) swarm.ServiceSpec {
	t.Helper()
	found, err := c.engine.API().ServiceInspect(t.Context(), name, client.ServiceInspectOptions{})
	must.Succeed(t, err)
	return found.Service.Spec
}

// awaitTask waits until one task of a service runs, and returns where, and its container.
func (c *cluster) awaitTask(t *testing.T, service string, number func(id string) int) (node int, container string) {
	t.Helper()
	harness.Await(t, service+" has a task", time.Minute, func() error {
		tasks, err := c.engine.API().TaskList(t.Context(), client.TaskListOptions{Filters: make(client.Filters).Add("service", service).Add("desired-state", "running")})
		if err != nil {
			return err
		}
		running := slices.DeleteFunc(tasks.Items, func(one swarm.Task) bool { return one.Status.State != swarm.TaskStateRunning })
		if len(running) != 1 {
			return errNot(fmt.Sprint(len(running), " tasks run"))
		}
		node, container = number(running[0].NodeID), running[0].Status.ContainerStatus.ContainerID
		return nil
	})
	return node, container
}

// awaitSaid waits until weir-edge says something of a service, as an event and where it is asked.
func (c *cluster) awaitSaid(t *testing.T, service, what string, asked ...string) {
	t.Helper()
	harness.Await(t, service+": "+what, time.Minute, func() error {
		for _, command := range append(asked, "events") {
			out, err := c.weirEdge(strings.Fields(command)...)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
				return strings.Contains(line, what) && (command != "events" || strings.Contains(line, " "+service))
			}) {
				return errNot(command + ": " + out)
			}
		}
		return nil
	})
}
