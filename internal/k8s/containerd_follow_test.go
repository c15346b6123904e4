package k8s

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// fakeRuntime is a containerd that has containers, each with a task, and tells subscribers of what their filters match.
type fakeRuntime struct {
	socket string
	server *grpc.Server

	mu          sync.Mutex
	containers  map[string]fakeContainer // by NAMESPACE/ID
	subscribers []*fakeSubscriber
	sent        []string // topics of what subscribers were told
	listed      int      // how often namespaces were listed
}

// ofCRI is the label of a fake container of the CRI, "sandbox" or "container".
const ofCRI = "of CRI"

type fakeContainer struct {
	pid    uint32
	labels map[string]string
}

type fakeSubscriber struct {
	filters []string
	told    chan *types.Envelope
}

// matches evaluates filters of one condition each, of a topic.
func (s *fakeSubscriber) matches(topic string) bool {
	return slices.ContainsFunc(s.filters, func(filter string) bool {
		pattern, isPattern := strings.CutPrefix(filter, "topic~=")
		value, err := strconv.Unquote(strings.TrimPrefix(pattern, "topic=="))
		if err != nil {
			panic(err)
		}
		return !isPattern && topic == value || isPattern && regexp.MustCompile(value).MatchString(topic)
	})
}

func startFakeRuntime(t *testing.T) *fakeRuntime {
	f := &fakeRuntime{socket: filepath.Join(t.TempDir(), "containerd.sock"), server: grpc.NewServer(), containers: map[string]fakeContainer{}}
	namespaces.RegisterNamespacesServer(f.server, runtimeNamespaces{of: f})
	containers.RegisterContainersServer(f.server, runtimeContainers{of: f})
	tasks.RegisterTasksServer(f.server, runtimeTasks{of: f})
	eventservice.RegisterEventsServer(f.server, runtimeEvents{of: f})
	listener, err := net.Listen("unix", f.socket)
	must(t, err)
	served := make(chan struct{})
	go func() {
		_ = f.server.Serve(listener)
		close(served)
	}()
	t.Cleanup(func() { f.server.Stop(); <-served })
	return f
}

// set changes or, without a process, removes a container. Subscribers get no event of that.
func (f *fakeRuntime) set(name string, c fakeContainer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.containers[name] = c; c.pid == 0 {
		delete(f.containers, name)
	}
}

// tell sends an event to those whose filters match.
func (f *fakeRuntime) tell(namespace, topic string, event proto.Message) {
	value, err := proto.Marshal(event)
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.subscribers {
		if s.matches(topic) {
			f.sent = append(f.sent, topic)
			s.told <- &types.Envelope{Namespace: namespace, Topic: topic, Event: &anypb.Any{Value: value}}
		}
	}
}

// awaitSecondList waits until the follower learns by events alone.
func (f *fakeRuntime) awaitSecondList(t *testing.T) {
	awaitTrue(t, "the second list", func() bool { return f.lists() == 2 })
	time.Sleep(settle) // it reads the tasks
}

func (f *fakeRuntime) lists() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed
}

// namespaceOf returns the namespace of a call.
func namespaceOf(ctx context.Context) string {
	in, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(in.Get("containerd-namespace"), "")
}

type (
	runtimeNamespaces struct {
		namespaces.UnimplementedNamespacesServer
		of *fakeRuntime
	}
	runtimeContainers struct {
		containers.UnimplementedContainersServer
		of *fakeRuntime
	}
	runtimeTasks struct {
		tasks.UnimplementedTasksServer
		of *fakeRuntime
	}
	runtimeEvents struct {
		eventservice.UnimplementedEventsServer
		of *fakeRuntime
	}
)

func (s runtimeNamespaces) List(context.Context, *namespaces.ListNamespacesRequest) (*namespaces.ListNamespacesResponse, error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.listed++
	answer := &namespaces.ListNamespacesResponse{}
	for _, name := range []string{"default", "shop", "k8s.io", "moby"} {
		answer.Namespaces = append(answer.Namespaces, &namespaces.Namespace{Name: name})
	}
	return answer, nil
}

func (s runtimeContainers) Get(ctx context.Context, r *containers.GetContainerRequest) (*containers.GetContainerResponse, error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	c, there := s.of.containers[namespaceOf(ctx)+"/"+r.GetID()]
	if !there {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	got := &containers.Container{ID: r.GetID(), Labels: c.labels}
	if kind := c.labels[ofCRI]; kind != "" {
		got.Extensions = map[string]*anypb.Any{"io.cri-containerd." + kind + ".metadata": {}}
	}
	return &containers.GetContainerResponse{Container: got}, nil
}

func (s runtimeTasks) List(ctx context.Context, _ *tasks.ListTasksRequest) (*tasks.ListTasksResponse, error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	answer := &tasks.ListTasksResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.of.containers)) {
		if id, here := strings.CutPrefix(name, namespaceOf(ctx)+"/"); here {
			answer.Tasks = append(answer.Tasks, &task.Process{ID: id, Pid: s.of.containers[name].pid, Status: task.Status_RUNNING})
		}
	}
	return answer, nil
}

func (s runtimeEvents) Subscribe(r *eventservice.SubscribeRequest, stream eventservice.Events_SubscribeServer) error {
	sub := &fakeSubscriber{filters: r.GetFilters(), told: make(chan *types.Envelope, 100)}
	s.of.mu.Lock()
	s.of.subscribers = append(s.of.subscribers, sub)
	s.of.mu.Unlock()
	for {
		select {
		case e := <-sub.told:
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// follow runs a follower of the fake containerd, and returns what it has told an agent: names and weights.
func (f *fakeRuntime) follow(t *testing.T) (known func() string) {
	agent := &fakeAgent{socket: filepath.Join(t.TempDir(), "weir.sock")}
	agent.start(t)
	r, end := startReporter(agent.socket, 20*time.Second)
	c := &containerd{reporter: r, socket: f.socket, log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { c.run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait(); end(); agent.stop() })
	return func() string {
		agent.mu.Lock()
		defer agent.mu.Unlock()
		var said []string
		for id, p := range agent.pods {
			said = append(said, strings.TrimSuffix(id+" "+p.Labels["weir.weight"], " "))
		}
		slices.Sort(said)
		return strings.Join(said, ", ")
	}
}

// awaitKnown waits until an agent knows what is wanted.
func awaitKnown(t *testing.T, what string, known func() string, want string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); known() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: the agent knows %q, not %q", what, known(), want)
		}
	}
}

// settle is how long a change that must not happen is waited for.
const settle = 50 * time.Millisecond

// TestContainerdEvents: each event alone has its effect, after all lists were made.
func TestContainerdEvents(t *testing.T) {
	t.Parallel()
	f := startFakeRuntime(t)
	known := f.follow(t)
	f.awaitSecondList(t)
	weight := func(w string) map[string]string { return map[string]string{"weir.weight": w} }

	f.set("default/a", fakeContainer{7, weight("2")})
	f.tell("default", "/tasks/create", &events.TaskCreate{ContainerID: "a", Pid: 7})
	awaitKnown(t, "created", known, "a 2")
	f.set("shop/b", fakeContainer{8, nil})
	f.tell("shop", "/tasks/start", &events.TaskStart{ContainerID: "b", Pid: 8})
	awaitKnown(t, "started", known, "a 2, shop/b")
	f.set("default/a", fakeContainer{7, weight("3")})
	f.tell("default", "/containers/update", &events.ContainerUpdate{ID: "a"})
	awaitKnown(t, "labels changed", known, "a 3, shop/b")

	f.tell("default", "/tasks/exit", &events.TaskExit{ContainerID: "a", ID: "exec", Pid: 70})
	f.tell("shop", "/tasks/delete", &events.TaskDelete{ContainerID: "b", Pid: 6})
	time.Sleep(settle)
	awaitKnown(t, "other processes ended", known, "a 3, shop/b")

	f.tell("default", "/tasks/exit", &events.TaskExit{ContainerID: "a", ID: "a", Pid: 7})
	awaitKnown(t, "ended", known, "shop/b")
	f.tell("shop", "/tasks/delete", &events.TaskDelete{ContainerID: "b", Pid: 8})
	awaitKnown(t, "deleted", known, "")

	for _, topic := range []string{"/tasks/exec-started", "/tasks/oom", "/tasks/started", "/containers/create", "/images/update", "/my/tasks/start"} {
		f.tell("default", topic, &events.ContainerUpdate{ID: "a"})
	}
	want := []string{"/tasks/create", "/tasks/start", "/containers/update", "/tasks/exit", "/tasks/delete", "/tasks/exit", "/tasks/delete"}
	if !slices.Equal(f.sent, want) {
		t.Errorf("it was told of %v, not %v", f.sent, want)
	}
	if f.lists() != 2 {
		t.Errorf("it listed %d times", f.lists())
	}
}

// TestContainerdSecondList: what no event told in the first moment of a subscription is found.
func TestContainerdSecondList(t *testing.T) {
	t.Parallel()
	f := startFakeRuntime(t)
	f.set("default/a", fakeContainer{7, nil})
	f.set("default/b", fakeContainer{8, nil})
	known := f.follow(t)
	awaitKnown(t, "the first list", known, "a, b")
	f.set("default/a", fakeContainer{})
	f.set("default/c", fakeContainer{9, nil})
	awaitKnown(t, "the second list", known, "b, c")
}

// TestContainerdNamespaces: pods of the CRI and containers of Docker are others' to report, and those of others in the
// CRI's namespace are not, whatever their image's labels say.
func TestContainerdNamespaces(t *testing.T) {
	t.Parallel()
	f := startFakeRuntime(t)
	of := func(kind string) map[string]string { return map[string]string{ofCRI: kind} }
	all := map[string]fakeContainer{
		"default/a": {1, map[string]string{"io.cri-containerd.kind": "container"}}, "shop/a": {2, nil}, "moby/a": {3, nil},
		"k8s.io/pod": {4, of("sandbox")}, "k8s.io/app": {5, of("container")}, "k8s.io/a": {6, map[string]string{"io.cri-containerd.kind": "container"}},
	}
	const want = "a, k8s.io/a, shop/a"
	for name, c := range all {
		f.set(name, c)
	}
	known := f.follow(t)
	awaitKnown(t, "by list", known, want)
	f.awaitSecondList(t)
	each := func(tell func(namespace, id string, pid uint32)) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			namespace, id, _ := strings.Cut(name, "/")
			tell(namespace, id, all[name].pid)
		}
	}
	each(func(namespace, id string, pid uint32) {
		f.tell(namespace, "/tasks/exit", &events.TaskExit{ContainerID: id, Pid: pid})
	})
	awaitKnown(t, "ended", known, "")
	each(func(namespace, id string, pid uint32) {
		f.tell(namespace, "/tasks/create", &events.TaskCreate{ContainerID: id, Pid: pid})
		f.tell(namespace, "/containers/update", &events.ContainerUpdate{ID: id})
	})
	awaitKnown(t, "by events", known, want)
	time.Sleep(settle)
	awaitKnown(t, "after all events", known, want)
}

// TestNoContainerd: weir-k8s warns once of a missing socket that --containerd names, and not of a missing default one.
func TestNoContainerd(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "containerd.sock")
	for expected, want := range map[bool]string{true: "no socket at " + socket, false: ""} {
		var said strings.Builder
		ctx, cancel := context.WithTimeout(t.Context(), 3*runtimeInterval)
		defer cancel()
		c := &containerd{socket: socket, expected: expected, log: slog.New(slog.NewTextHandler(&said, nil))}
		c.run(ctx)
		if want == "" && said.Len() > 0 || !strings.Contains(said.String(), want) || strings.Count(said.String(), "not connected to containerd") > 1 {
			t.Errorf("given %t: said %s", expected, said.String())
		}
	}
	for args, want := range map[string]string{
		"--containerd=":                DefaultContainerd,
		"--nri=":                       "/nri.sock",
		"--nri=none --containerd=none": "nothing is left to report",
		"--nri=none --hard-admission":  "leave --nri none out",
	} {
		var said strings.Builder
		if code := Run(append([]string{"weir-k8s"}, strings.Fields(args)...), io.Discard, &said); code != 2 || !strings.Contains(said.String(), want) {
			t.Errorf("%s: %d, %s", args, code, said.String())
		}
	}
}
