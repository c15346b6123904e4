package k8s

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"runtime"
	"strings"
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
	"google.golang.org/grpc/credentials/insecure"
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

func (f *fakeContainerd) Get(ctx context.Context, r *images.GetImageRequest) (*images.GetImageResponse, error) {
	if r.GetName() == "slow:name" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookUps++
	mediaType := "application/vnd.oci.image.manifest.v1+json"
	if strings.HasPrefix(documents[f.digest], `{"manifests"`) {
		mediaType = "application/vnd.oci.image.index.v1+json"
	}
	return &images.GetImageResponse{Image: &images.Image{Target: &types.Descriptor{MediaType: mediaType, Digest: f.digest}}}, f.failed
}

type fakeContent struct {
	content.UnimplementedContentServer
}

const (
	manifestType = `{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:`
	configType   = `{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:`
)

// documents are those of images, by their digests. Those with manifests are indexes.
var documents = map[string]string{
	"sha256:1":       `{"config": ` + configType + `config"}}`,
	"sha256:2":       `{"config": ` + configType + `none"}}`,
	"sha256:3":       `{"config": ` + configType + `heavy"}}`,
	"sha256:4":       `{"config": ` + configType + `away"}}`,
	"sha256:config":  `{"config": {"Labels": {"weir.weight": "300"}}}`,
	"sha256:none":    `{"config": {"Labels": {"maker": "second"}}}`,
	"sha256:heavy":   `{"config": {"Labels": {"maker": "third", "weir.weight": "900"}}}`,
	"sha256:bare":    `{"manifests": [` + manifestType + `1"}]}`,
	"sha256:foreign": `{"manifests": [` + manifestType + `away", "platform": {"os": "linux", "architecture": "` + runtime.GOARCH + `"}}, ` + manifestType + `2", "platform": {"os": "plan9", "architecture": "z80"}}]}`,
	"sha256:both":    `{"manifests": [` + manifestType + `1"}, ` + manifestType + `2"}, ` + manifestType + `4"}]}`,
	"sha256:nested":  `{"manifests": [{"mediaType": "application/vnd.docker.distribution.manifest.list.v2+json", "digest": "sha256:bare"}]}`,
	"sha256:differ":  `{"manifests": [` + manifestType + `1"}, ` + manifestType + `3"}]}`,
	"sha256:absent":  `{"manifests": [` + manifestType + `away"}]}`,
	"sha256:inside":  `{"manifests": [` + manifestType + `2"}, ` + manifestType + `away", "data": "e30="}]}`,
	"sha256:many":    `{"manifests": [` + strings.Repeat(manifestType+`away"}, `, mostDocuments) + manifestType + `1"}]}`,
	"sha256:old":     `{"schemaVersion": 1}`,
	"sha256:text":    `text`,
	// What hides labels from those who take a configuration for something else, or one of its keys for all.
	"sha256:twice":         `{"config": ` + configType + `twice-config"}}`,
	"sha256:case":          `{"config": ` + configType + `case-config"}}`,
	"sha256:digest":        `{"config": ` + configType + `digest-config"}}`,
	"sha256:index":         `{"config": ` + configType + `index-config"}}`,
	"sha256:elsewhere":     `{"config": ` + manifestType + `1"}}`,
	"sha256:twice-config":  `{"config": {"Labels": {"weir.min": "900mbit"}}, "config": {}}`,
	"sha256:case-config":   `{"config": {"Labels": {"weir.min": "900mbit"}}, "Config": {"labelſ": {"maker": "fourth"}}}`,
	"sha256:digest-config": `{"config": {"digest": "sha256:none", "Labels": {"weir.min": "900mbit"}}}`,
	"sha256:index-config":  `{"manifests": [` + manifestType + `2"}], "config": {"Labels": {"weir.min": "900mbit"}}}`,
}

func (fakeContent) Read(r *content.ReadContentRequest, to content.Content_ReadServer) error {
	if r.GetDigest() == "sha256:slow" {
		<-to.Context().Done()
		return to.Context().Err()
	}
	text, there := documents[r.GetDigest()]
	if !there {
		return status.Error(codes.NotFound, "no such content")
	}
	return to.Send(&content.ReadContentResponse{Data: []byte(text)})
}

// TestVariants: the labels of an image are those of all variants that are there, for any platform, and unknown where these
// differ in one that counts. An image that takes long does not hold others up.
func TestVariants(t *testing.T) {
	t.Parallel()
	f := startContainerd(t)
	conn, err := grpc.NewClient("unix:"+f.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	s := services{conn: conn, images: newImageCache()}
	for digest, want := range map[string]imageLabels{
		"sha256:1":       {labels: map[string]string{"weir.weight": "300"}},
		"sha256:bare":    {labels: map[string]string{"weir.weight": "300"}},
		"sha256:nested":  {labels: map[string]string{"weir.weight": "300"}},
		"sha256:foreign": {labels: map[string]string{"maker": "second"}},
		"sha256:both":    {labels: map[string]string{"weir.weight": "300", "maker": "second"}},
		"sha256:differ":  {unknown: "read image web:1: its variants for several platforms have different labels weir.weight"},
		"sha256:absent":  {unknown: "read image web:1: no configuration of it is there"},
		"sha256:inside":  {unknown: "read image web:1: its manifest sha256:away is not in containerd's store, but inside another document"},
		"sha256:many":    {unknown: "read image web:1: it has more than 256 documents"},
		"sha256:old":     {unknown: "read image web:1: no configuration of it is there"},
		"sha256:text":    {unknown: "read image web:1: decode its manifest sha256:text: invalid character 'e' in literal true (expecting 'r')"},
		// One whose author would hide labels.
		"sha256:twice":     {labels: map[string]string{"weir.min": "900mbit"}},
		"sha256:case":      {labels: map[string]string{"weir.min": "900mbit", "maker": "fourth"}},
		"sha256:digest":    {labels: map[string]string{"weir.min": "900mbit"}},
		"sha256:index":     {labels: map[string]string{"weir.min": "900mbit"}},
		"sha256:elsewhere": {unknown: "read image web:1: no configuration of it is there"},
	} {
		f.change(func() { f.digest = digest })
		for range 2 { // also from memory
			if got := s.labelsOf(t.Context(), defaultNamespace, "web:1"); got.unknown != want.unknown || !maps.Equal(got.labels, want.labels) {
				t.Errorf("%s: %+v, not %+v", digest, got, want)
			}
		}
	}
	f.change(func() { f.digest = "sha256:slow" })
	for _, name := range []string{"web:1", "slow:name"} {
		began := time.Now()
		for range 10 {
			if got := s.labelsOf(t.Context(), defaultNamespace, name); got.unknown == "" {
				t.Errorf("a slow one: %+v", got)
			}
		}
		if took := time.Since(began); took < imageTimeout || took > callTimeout {
			t.Errorf("ten look-ups of %s, which is slow, took %v", name, took)
		}
	}
	f.change(func() { f.digest = "sha256:1" })
	if got := s.labelsOf(t.Context(), "other", "web:1"); got.unknown != "" {
		t.Errorf("of another namespace: %+v", got)
	}
	if list, err := s.running(t.Context()); err != nil || len(list) != 1 || list[0].image.unknown != "" {
		t.Errorf("the next list does not try it again: %+v, %v", list, err)
	}
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
