package k8s

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/content/v1"
	eventservice "github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
)

// fakeContainerd is a containerd with one container, whose process and image may change. Its labels are those of the image
// "sha256:1", and one more.
type fakeContainerd struct {
	images.UnimplementedImagesServer
	socket string
	told   chan *types.Envelope

	mu      sync.Mutex
	pid     uint32
	digest  string
	failed  error // of look-ups of the image
	lookUps int
}

func startContainerd(t *testing.T) *fakeContainerd {
	t.Helper()
	f := &fakeContainerd{socket: filepath.Join(t.TempDir(), "containerd.sock"), told: make(chan *types.Envelope), pid: 7, digest: "sha256:1"}
	listener, err := net.Listen("unix", f.socket)
	must(t, err)
	server := grpc.NewServer()
	images.RegisterImagesServer(server, f)
	content.RegisterContentServer(server, fakeContent{})
	eventservice.RegisterEventsServer(server, fakeEvents{f: f})
	namespaces.RegisterNamespacesServer(server, fakeNamespaces{})
	containers.RegisterContainersServer(server, fakeContainers{})
	tasks.RegisterTasksServer(server, fakeTasks{f: f})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return f
}

func (f *fakeContainerd) change(how func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how()
}

// tell sends an event.
func (f *fakeContainerd) tell(t *testing.T, topic string, event proto.Message) {
	t.Helper()
	text, err := proto.Marshal(event)
	must(t, err)
	f.told <- &types.Envelope{Namespace: "default", Topic: topic, Event: &anypb.Any{Value: text}}
}

func (f *fakeContainerd) Get(context.Context, *images.GetImageRequest) (*images.GetImageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookUps++
	return &images.GetImageResponse{Image: &images.Image{Target: &types.Descriptor{Digest: f.digest}}}, f.failed
}

type fakeContent struct {
	content.UnimplementedContentServer
}

func (fakeContent) Read(r *content.ReadContentRequest, to content.Content_ReadServer) error {
	text := `{}`
	switch r.GetDigest() {
	case "sha256:1":
		text = `{"config": {"digest": "sha256:config"}}`
	case "sha256:2":
		text = `{"config": {"digest": "sha256:none"}}`
	case "sha256:config":
		text = `{"config": {"Labels": {"weir.weight": "300"}}}`
	case "sha256:none":
		text = `{"config": {"Labels": {"maker": "second"}}}`
	}
	return to.Send(&content.ReadContentResponse{Data: []byte(text)})
}

type fakeEvents struct {
	eventservice.UnimplementedEventsServer
	f *fakeContainerd
}

func (e fakeEvents) Subscribe(_ *eventservice.SubscribeRequest, to eventservice.Events_SubscribeServer) error {
	for {
		select {
		case <-to.Context().Done():
			return nil
		case said := <-e.f.told:
			if err := to.Send(said); err != nil {
				return err
			}
		}
	}
}

type fakeNamespaces struct {
	namespaces.UnimplementedNamespacesServer
}

func (fakeNamespaces) List(context.Context, *namespaces.ListNamespacesRequest) (*namespaces.ListNamespacesResponse, error) {
	return &namespaces.ListNamespacesResponse{Namespaces: []*namespaces.Namespace{{Name: "default"}}}, nil
}

type fakeContainers struct {
	containers.UnimplementedContainersServer
}

func (fakeContainers) Get(context.Context, *containers.GetContainerRequest) (*containers.GetContainerResponse, error) {
	labels := map[string]string{"weir.weight": "300", "weir.min": "20mbit"}
	return &containers.GetContainerResponse{Container: &containers.Container{ID: "web", Image: "web:1", Labels: labels}}, nil
}

type fakeTasks struct {
	tasks.UnimplementedTasksServer
	f *fakeContainerd
}

func (s fakeTasks) List(context.Context, *tasks.ListTasksRequest) (*tasks.ListTasksResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return &tasks.ListTasksResponse{Tasks: []*task.Process{{ID: "web", Pid: s.f.pid, Status: task.Status_RUNNING}}}, nil
}

// TestImageGone: what is known of a container's image stays when the image goes or its name is given to another one, until the
// container starts again. What is not known is looked for again.
func TestImageGone(t *testing.T) {
	t.Parallel()
	f := startContainerd(t)
	log := slog.New(slog.DiscardHandler)
	c := &containerd{reporter: newReporter(client.Unix(filepath.Join(t.TempDir(), "none.sock")), v1.RuntimeContainerd, log), socket: f.socket, log: log}
	began := time.Now()
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	running.Go(func() { c.reporter.run(ctx) })
	running.Go(func() { c.run(ctx) })
	seen := func() (p pod) {
		_, _ = c.reporter.update(ctx, func(b book) (v1.PodsChange, bool) { p = b["web"]; return v1.PodsChange{}, false })
		return p
	}
	await := func(what string, is func(pod) bool) {
		t.Helper()
		for began := time.Now(); !is(seen()); time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("%s: %+v", what, seen())
			}
		}
	}
	known := func(p pod) bool {
		return p.ImageUnknown == "" && maps.Equal(p.ImageLabels, map[string]string{"weir.weight": "300"})
	}
	await("at first", known)
	for _, tc := range []struct {
		what string
		how  func()
	}{
		{"the image is gone", func() { f.failed = status.Error(codes.NotFound, "image web:1: not found") }},
		{"containerd is busy", func() { f.failed = status.Error(codes.Unavailable, "busy") }},
		{"another image has the name", func() { f.digest, f.failed = "sha256:2", nil }},
	} {
		f.change(func() { tc.how(); f.lookUps = 0 })
		for range 2 { // when the second one is looked up, the first one is known
			f.tell(t, "/containers/update", &events.ContainerUpdate{ID: "web"})
		}
		await(tc.what, func(pod) bool { f.mu.Lock(); defer f.mu.Unlock(); return f.lookUps > 1 })
		if p := seen(); !known(p) {
			t.Errorf("%s: %+v", tc.what, p)
		}
	}
	time.Sleep(time.Until(began.Add(2 * relist))) // the second list is done
	f.change(func() { f.pid, f.failed = 8, status.Error(codes.NotFound, "image web:1: not found") })
	f.tell(t, "/tasks/start", &events.TaskStart{ContainerID: "web", Pid: 8})
	await("started again without its image", func(p pod) bool { return p.pid == 8 && p.ImageUnknown == "its image web:1 is gone" })
	f.change(func() { f.failed = nil })
	await("its image is there again", func(p pod) bool { return p.ImageUnknown == "" && p.ImageLabels["maker"] == "second" })
}
