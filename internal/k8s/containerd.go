package k8s

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/services/containers/v1"
	eventservice "github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// Problem: containerd calls NRI for the pods of its CRI alone, and runs containers of ctr, nerdctl and others as
// well.
//
// Method: containerd's events tell of tasks that are created, started and ended in all its namespaces, and its
// services what those are. The process of a task names the network, and the container's labels are its policy. A
// task is created before it starts, so its policy is usually in force before its first packet. Not always: containerd does
// not wait for weir-k8s.
//
// Limits: the subscription to events has no answer: what starts in its first moment may be missed, and is found by a
// second list (relist). While labels of an image are unknown, more lists follow.

const (
	// DefaultContainerd is containerd's socket.
	DefaultContainerd = "/run/containerd/containerd.sock"
	// relist is the time of the second list after a connection. Each further one waits twice as long, up to longestRelist.
	relist        = time.Second
	longestRelist = time.Minute
	// callTimeout limits a call of containerd.
	callTimeout = 10 * time.Second
	// defaultNamespace is that of ctr and nerdctl. Its containers are called by their names alone.
	defaultNamespace = "default"
)

// foreign are the namespaces of Docker, which the agent asks itself.
var foreign = []string{"moby", "plugins.moby"}

// isOfCRI reports whether a container is a pod's, which NRI reports: the CRI gives metadata to each of its containers. It
// also labels them, as an image's author may label those of others in its namespace (nerdctl -n k8s.io).
func isOfCRI(c *containers.Container) bool {
	of := c.GetExtensions()
	return of["io.cri-containerd.sandbox.metadata"] != nil || of["io.cri-containerd.container.metadata"] != nil
}

// containerd reports containers of a containerd.
type containerd struct {
	reporter *reporter
	socket   string
	// expected: the socket was given. Without the default one there may be no containerd, which is no fault.
	expected bool
	log      *slog.Logger
	// unknown: the labels of a container's image are not known.
	unknown bool
}

// run follows containerd until ctx ends.
func (c *containerd) run(ctx context.Context) {
	stayConnected(ctx, c.reporter, c.log, "not connected to containerd, so containers of ctr and nerdctl are not reported; trying again", func() (bool, error) {
		if _, err := os.Stat(c.socket); os.IsNotExist(err) {
			if !c.expected {
				return false, nil
			}
			return false, fmt.Errorf("no socket at %s: give containerd's as --containerd, or none", c.socket)
		}
		reached, err := c.follow(ctx)
		return reached, fmt.Errorf("follow containerd on %s: %w", c.socket, err)
	})
}

// follow reports what runs and what changes, until the connection ends. It returns whether containerd has listed
// what runs.
func (c *containerd) follow(ctx context.Context) (listed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+c.socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(limitCall))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stream, err := eventservice.NewEventsClient(conn).Subscribe(ctx, &eventservice.SubscribeRequest{
		Filters: []string{`topic~="^/tasks/(create|start|exit|delete)$"`, `topic=="/containers/update"`},
	})
	if err != nil {
		return false, err
	}
	told, ended := make(chan *types.Envelope), make(chan error, 1)
	go func() {
		for {
			e, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case told <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	s := services{conn: conn, images: newImageCache()}
	if err := c.list(ctx, s); err != nil {
		return false, err
	}
	wait := relist
	again := time.After(wait)
	for {
		select {
		case err := <-ended:
			return true, err
		case <-again:
			again, wait = nil, min(2*wait, longestRelist)
			err = c.list(ctx, s)
		case e := <-told:
			err = c.learn(ctx, s, e)
		}
		switch {
		case err != nil:
			return true, err
		case !c.unknown:
			wait = relist
		case again == nil:
			again = time.After(wait)
		}
	}
}

// limitCall limits the time of a call of containerd that has one answer.
func limitCall(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx, method, request, answer, conn, options...)
}

// list reports all that runs.
func (c *containerd) list(ctx context.Context, s services) error {
	running, err := s.running(ctx)
	if err != nil {
		return err
	}
	return c.change(ctx, update{complete: true, apply: func(b book) (v1.PodsChange, bool) {
		before := maps.Clone(b)
		clear(b)
		for _, r := range running {
			p := r.pod(before[r.id()])
			b[p.ID] = p
		}
		return v1.PodsChange{All: b.list()}, !reflect.DeepEqual(b, before)
	}})
}

// change reports a change of the book, and notes whether labels of an image are unknown then. It returns an error only if
// ctx has ended: the reporter reports again what the agent does not know.
func (c *containerd) change(ctx context.Context, u update) error {
	apply := u.apply
	u.apply = func(b book) (v1.PodsChange, bool) {
		line, changed := apply(b)
		c.unknown = false
		for _, p := range b {
			c.unknown = c.unknown || p.ImageUnknown != ""
		}
		return line, changed
	}
	if _, err := c.reporter.hand(ctx, u); err != nil {
		c.log.Debug("the agent does not know yet", "error", err)
	}
	return ctx.Err()
}

// learn reports what an event tells.
func (c *containerd) learn(ctx context.Context, s services, e *types.Envelope) error {
	if slices.Contains(foreign, e.GetNamespace()) {
		return nil
	}
	ctx = inNamespace(ctx, e.GetNamespace())
	var of interface {
		proto.Message
		GetContainerID() string
		GetPid() uint32
	}
	switch e.GetTopic() {
	case "/tasks/create":
		of = new(events.TaskCreate)
	case "/tasks/start":
		of = new(events.TaskStart)
	case "/tasks/exit":
		of = new(events.TaskExit)
	case "/tasks/delete":
		of = new(events.TaskDelete)
	default:
		var changed events.ContainerUpdate
		if err := proto.Unmarshal(e.GetEvent().GetValue(), &changed); err != nil {
			return fmt.Errorf("read the event %s: %w", e.GetTopic(), err)
		}
		return c.describe(ctx, s, e.GetNamespace(), changed.GetID(), 0)
	}
	if err := proto.Unmarshal(e.GetEvent().GetValue(), of); err != nil {
		return fmt.Errorf("read the event %s: %w", e.GetTopic(), err)
	}
	if strings.HasSuffix(e.GetTopic(), "/create") || strings.HasSuffix(e.GetTopic(), "/start") {
		return c.describe(ctx, s, e.GetNamespace(), of.GetContainerID(), of.GetPid())
	}
	id := qualified(e.GetNamespace(), of.GetContainerID())
	return c.change(ctx, update{apply: func(b book) (v1.PodsChange, bool) {
		// Other processes of the container, and of its earlier tasks, end too.
		return v1.PodsChange{Stopped: id}, b[id].pid == of.GetPid() && b.stop(id)
	}})
}

// describe reports a container whose task has a process; with pid 0 one that is known, as containerd describes it now.
func (c *containerd) describe(ctx context.Context, s services, namespace, id string, pid uint32) error {
	got, err := s.container(ctx, id)
	if status.Code(err) == codes.NotFound {
		return nil // it is gone, which an event told or will tell
	}
	if err != nil || isOfCRI(got) {
		return err
	}
	r := running{Container: got, namespace: namespace, pid: pid, image: s.labelsOf(ctx, namespace, got.GetImage())}
	return c.change(ctx, update{apply: func(b book) (v1.PodsChange, bool) {
		was := b[r.id()]
		r.pid = cmp.Or(r.pid, was.pid)
		if r.pid == 0 {
			return v1.PodsChange{}, false
		}
		p := r.pod(was)
		b[p.ID] = p
		return v1.PodsChange{Started: &p.Pod}, true
	}})
}

// inNamespace returns a context for calls in a namespace.
func inNamespace(ctx context.Context, namespace string) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs("containerd-namespace", namespace))
}

// qualified returns a name, or an ID, that no other namespace has.
func qualified(namespace, name string) string {
	if namespace == defaultNamespace {
		return name
	}
	return namespace + "/" + name
}

// running is a container that has a process.
type running struct {
	*containers.Container
	namespace string
	pid       uint32
	// image is what is known of its image now.
	image imageLabels
}

// id returns the ID that the book has.
func (r running) id() string { return qualified(r.namespace, r.GetID()) }

// pod returns the report of a container; was is what the book has of its ID. The labels of its image that were found before
// stay.
func (r running) pod(was pod) pod {
	image := r.image
	if was.pid == r.pid && was.Image == r.GetImage() && was.ImageUnknown == "" {
		image = imageLabels{labels: was.ImageLabels}
	}
	p := pod{pid: r.pid, Pod: v1.Pod{
		ID: r.id(), Name: r.name(image), Labels: r.GetLabels(), Image: r.GetImage(), ImageLabels: image.labels, ImageUnknown: image.unknown,
	}}
	if r.namespace != defaultNamespace {
		p.Namespace = r.namespace
	}
	// Also of a network that it joined: that may be older than the container, and stay when it ends.
	netns := fmt.Sprintf("/proc/%d/ns/net", r.pid)
	var spec struct {
		Linux struct {
			CgroupsPath string
			Namespaces  []struct{ Type string }
		}
	}
	if err := json.Unmarshal(r.GetSpec().GetValue(), &spec); err != nil {
		p.NetNSPath = netns // of a runtime whose specification is another one
		return p
	}
	p.CgroupPath = cgroupsPath(spec.Linux.CgroupsPath)
	for _, ns := range spec.Linux.Namespaces {
		if ns.Type == "network" {
			p.NetNSPath = netns
		}
	}
	return p
}

// name returns the name that nerdctl gave to a container, and else its ID. An image's author may not choose the name, by which
// policies are selected.
func (r running) name(image imageLabels) string {
	name := r.GetLabels()[policy.LabelNerdctlName]
	if name == "" || image.unknown != "" || name == image.labels[policy.LabelNerdctlName] {
		return r.GetID()
	}
	return name
}

// cgroupsPath returns the path of a cgroup as specifications write it: for systemd as SLICE:PREFIX:NAME (runc's
// documentation of systemd). A relative one is below the runtime's own, which is unknown here.
func cgroupsPath(written string) string {
	parts := strings.Split(written, ":")
	switch {
	case len(parts) == 3:
		return cgroupPath(cmp.Or(parts[0], "system.slice")) + "/" + parts[1] + "-" + parts[2] + ".scope"
	case strings.HasPrefix(written, "/"):
		return written
	}
	return ""
}

// services are those of one connection to containerd.
type services struct {
	conn   *grpc.ClientConn
	images imageCache
}

// container returns a container of the context's namespace.
func (s services) container(ctx context.Context, id string) (*containers.Container, error) {
	got, err := containers.NewContainersClient(s.conn).Get(ctx, &containers.GetContainerRequest{ID: id})
	return got.GetContainer(), err
}

// running returns all containers that have a process.
func (s services) running(ctx context.Context) ([]running, error) {
	clear(s.images.slow)
	all, err := namespaces.NewNamespacesClient(s.conn).List(ctx, &namespaces.ListNamespacesRequest{})
	if err != nil {
		return nil, err
	}
	var list []running
	for _, n := range all.GetNamespaces() {
		if slices.Contains(foreign, n.GetName()) {
			continue
		}
		ctx := inNamespace(ctx, n.GetName())
		processes, err := tasks.NewTasksClient(s.conn).List(ctx, &tasks.ListTasksRequest{})
		if err != nil {
			return nil, err
		}
		for _, t := range processes.GetTasks() {
			if t.GetPid() == 0 || t.GetStatus() == task.Status_STOPPED {
				continue
			}
			c, err := s.container(ctx, t.GetID())
			if status.Code(err) == codes.NotFound {
				continue
			}
			if err != nil {
				return nil, err
			}
			if !isOfCRI(c) {
				list = append(list, running{c, n.GetName(), t.GetPid(), s.labelsOf(ctx, n.GetName(), c.GetImage())})
			}
		}
	}
	return list, nil
}
