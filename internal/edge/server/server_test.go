package server

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/repo"
	"github.com/weir-project/weir/internal/edge/run"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/test/openapi"
)

// fakeManager has one service, and keeps what it is asked to deploy.
type fakeManager struct {
	deployed []byte
	events   *run.Events
	// image is the service's, looked whether anybody has seen that; takes is how long a
	// deployment does.
	image  string
	looked bool
	takes  time.Duration

	repository *repo.Repository
}

func (m *fakeManager) Deploy(ctx context.Context, document []byte) (edge.Deployed, error) {
	select {
	case <-ctx.Done():
		return edge.Deployed{}, ctx.Err()
	case <-time.After(m.takes):
	}
	m.deployed = document
	return edge.Deployed{Service: "shop", Changed: true}, nil
}

func (m *fakeManager) Remove(context.Context, string) error { return nil }

func (m *fakeManager) Snapshot() edge.Snapshot {
	var at time.Time
	if m.looked {
		at = time.Now()
	}
	return edge.Snapshot{
		At: at, Engine: "docker", Services: []edge.Service{{Name: "web", Image: m.image, Specification: []byte("{}")}}, Instances: []edge.Instance{}, Nodes: []edge.Node{}, Decisions: []edge.Decision{},
	}
}

func (m *fakeManager) Monitored() edge.Monitored { return edge.Monitored{Nodes: []v1.Node{}} }

func (m *fakeManager) Explain(service string) (edge.Explanation, error) {
	if service != "web" {
		return edge.Explanation{}, run.ErrUnknown
	}
	return edge.Explanation{Service: edge.Service{Specification: []byte("{}")}}, nil
}

func (m *fakeManager) Events() *run.Events { return m.events }

// serve serves an API at a socket, with a repository whose images nodes get at an address.
func serve(t *testing.T, address string) (*fakeManager, *Client, string) {
	t.Helper()
	return serveFor(t, address, requestTimeout)
}

// serveFor is serve with another timeout of requests.
func serveFor(t *testing.T, address string, timeout time.Duration) (*fakeManager, *Client, string) {
	t.Helper()
	services, err := repo.Open(filepath.Join(t.TempDir(), "repository"))
	if err != nil {
		t.Fatal(err)
	}
	manager := &fakeManager{looked: true, repository: services, events: run.NewEvents(nil, time.Now())}
	path := filepath.Join(t.TempDir(), "edge.sock")
	listener, err := httpapi.Listen("weir-edge", path, "")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	server := httpapi.NewServer(newAPI(Options{Manager: manager, Repository: services, Address: address, Version: "test", Log: log, Stop: func() {}}, timeout), log)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return manager, NewClient(path), path
}

func routes() []route { return (&api{}).routes() }

func described() openapi.API {
	api := openapi.API{
		Title:       "weir-edge",
		Description: "weir-edge's API, on its Unix socket. Rates are bits per second. Fields and paths are only ever added.",
		Name:        "name of a service",
		Sources:     []string{"../../../api/v1/*.go", "../../../api/v1/edge/*.go"},
	}
	for _, r := range routes() {
		o := openapi.Operation{Method: r.method, Path: r.path, Summary: r.summary, Request: r.request, Response: r.response, Kind: r.kind, Accepts: r.accepts}
		for _, p := range r.query {
			o.Query = append(o.Query, openapi.Parameter{Name: p.name, Summary: p.summary, Value: p.value})
		}
		api.Operations = append(api.Operations, o)
	}
	return api
}

// TestOpenAPI holds openapi.json to the routes and the types of api/v1/edge.
// Renew it with: go test ./internal/edge/server -run TestOpenAPI -update
func TestOpenAPI(t *testing.T) { openapi.Compare(t, "openapi.json", described()) }

// Everything in the document is there.
func TestOpenAPIIsServed(t *testing.T) {
	_, client, _ := serve(t, "127.0.0.1:7482")
	if _, err := client.Push(t.Context(), []byte(specification), archive(t, "one")); err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]any
	}
	if err := client.peer.Call(t.Context(), http.MethodGet, "/v1/openapi.json", nil, &document); err != nil {
		t.Fatal(err)
	}
	count := 0
	for path, methods := range document.Paths {
		for method := range methods {
			count++
			if path == "/v1/repository" && method == "post" {
				continue // pushed above
			}
			name := "web"
			if strings.HasPrefix(path, "/v1/repository/") {
				name = "shop"
			}
			path, method := strings.ReplaceAll(path, "{name}", name), strings.ToUpper(method)
			if method == http.MethodDelete && name == "shop" {
				defer func() {
					if err := client.Discard(context.Background(), "shop"); err != nil {
						t.Error(err)
					}
				}()
				continue
			}
			response, err := client.peer.Send(t.Context(), method, path+"?follow=false", []byte("{}"), nil)
			if err != nil {
				t.Errorf("%s %s: %v", method, path, err)
				continue
			}
			response.Body.Close()
		}
	}
	if want := len((&api{}).routes()); count != want {
		t.Errorf("%d operations, want %d", count, want)
	}
}

const specification = `{"par": {"serviceName": "shop", "imageName": "nginx:1", "maxUsers": "50"}, "ports": [{"host": 80, "container": 8080}]}`

// archive is an image of one file as docker save makes it.
func archive(t *testing.T, content string) io.Reader {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "file", Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(content))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	made, _, err := proxy.ArchiveOf("nginx:1", "amd64", layer.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(made)
}

// TestRepository: what is pushed can be listed and deployed by its digest; what is
// deployed is not taken away.
func TestRepository(t *testing.T) {
	manager, client, _ := serve(t, "192.0.2.1:7482")
	stored, err := client.Push(t.Context(), []byte(specification), archive(t, "one"))
	if err != nil || stored.Service != "shop" || !strings.HasPrefix(stored.Digest, "sha256:") || stored.Architecture != "amd64" || stored.SizeBytes == 0 {
		t.Fatalf("%+v, %v", stored, err)
	}
	list, err := client.Stored(t.Context())
	if err != nil || len(list) != 1 || list[0].Digest != stored.Digest {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := client.DeployStored(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	var deployed struct {
		Par struct {
			ImageName string  `json:"imageName"`
			MaxUsers  float64 `json:"maxUsers"`
			ImageSize float64 `json:"imageSize"`
		} `json:"par"`
	}
	if err := json.Unmarshal(manager.deployed, &deployed); err != nil || deployed.Par.ImageName != "192.0.2.1:7482/services/shop@"+stored.Digest || deployed.Par.MaxUsers != 50 || deployed.Par.ImageSize <= 0 {
		t.Errorf("%s, %v", manager.deployed, err)
	}
	for name, err := range map[string]error{
		"is deployed, and nodes may need its image": func() error {
			manager.image = "192.0.2.1:7482/services/shop@" + stored.Digest
			err := client.Discard(t.Context(), "shop")
			manager.image = ""
			return err
		}(),
		"is deployed, and nodes may": func() error {
			manager.looked = false // nobody knows
			err := client.Discard(t.Context(), "shop")
			manager.looked = true
			return err
		}(),
		"is not in the repository": func() error { _, err := client.DeployStored(t.Context(), "nothing"); return err }(),
		"not in the repository":    client.Discard(t.Context(), "nothing"),
		"par.maxUser: unknown key": func() error {
			_, err := client.Push(t.Context(), []byte(strings.Replace(specification, "maxUsers", "maxUser", 1)), archive(t, "x"))
			return err
		}(),
		"the label weir-edge.mode": func() error {
			_, err := client.Push(t.Context(), []byte(strings.Replace(specification, `"ports"`, `"labels": {"weir-edge.mode": "udp"}, "ports"`, 1)), archive(t, "x"))
			return err
		}(),
		"body too large": func() error {
			_, err := client.Deploy(t.Context(), make([]byte, 3<<20))
			return err
		}(),
		"as docker save makes it": func() error {
			_, err := client.Push(t.Context(), []byte(specification), strings.NewReader("no archive"))
			return err
		}(),
		"the part specification is missing": client.peer.Call(t.Context(), http.MethodPost, "/v1/repository", nil, nil),
	} {
		if strings.HasPrefix(name, "the part") { // not a form at all
			name = "push a service"
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q is not in: %v", name, err)
		}
	}
	if err := client.Discard(t.Context(), "shop"); err != nil {
		t.Error(err)
	}

	_, client, _ = serve(t, "")
	if _, err := client.Push(t.Context(), []byte(specification), archive(t, "one")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DeployStored(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), "--repository ADDRESS:PORT") {
		t.Errorf("nodes cannot get it: %v", err)
	}
}

// TestLongDeployment: an image may take longer than other requests.
func TestLongDeployment(t *testing.T) {
	const timeout = 300 * time.Millisecond
	manager, client, _ := serveFor(t, "192.0.2.1:7482", timeout)
	if _, err := client.Push(t.Context(), []byte(specification), archive(t, "one")); err != nil {
		t.Fatal(err)
	}
	manager.takes = 3 * timeout
	if _, err := client.DeployStored(t.Context(), "shop"); err != nil {
		t.Errorf("from the repository: %v", err)
	}
	if _, err := client.Deploy(t.Context(), []byte(specification)); err != nil {
		t.Errorf("from a specification: %v", err)
	}
}

// TestPushedWhileDeployed: what is deployed keeps its image when another one is pushed.
func TestPushedWhileDeployed(t *testing.T) {
	manager, client, _ := serve(t, "192.0.2.1:7482")
	push := func(content string) edge.Stored {
		t.Helper()
		stored, err := client.Push(t.Context(), []byte(specification), archive(t, content))
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	first := push("one")
	manager.image = "192.0.2.1:7482/services/shop@" + first.Digest
	push("two")
	ask := func() int {
		w := httptest.NewRecorder()
		manager.repository.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/services/shop/manifests/"+first.Digest, nil))
		return w.Code
	}
	if code := ask(); code != http.StatusOK {
		t.Errorf("a node asks for what is deployed: %d", code)
	}
	manager.image = ""
	push("three")
	if code := ask(); code != http.StatusNotFound {
		t.Errorf("what nobody needs is kept: %d", code)
	}
}

// TestMetrics: what is served is Prometheus' format, and in order.
func TestMetrics(t *testing.T) {
	handler := Handler(Options{Manager: &fakeManager{events: run.NewEvents(nil, time.Now())}, Version: "test", Log: slog.New(slog.DiscardHandler)})
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	problems, err := promlint.New(w.Body).Lint()
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") || err != nil || len(problems) > 0 {
		t.Errorf("%d %q, %v, %v", w.Code, w.Header().Get("Content-Type"), problems, err)
	}
}

// TestClient: who does not answer, and what is not there.
func TestClient(t *testing.T) {
	_, client, path := serve(t, "")
	if _, err := client.Explain(t.Context(), "nothing"); err == nil || !strings.Contains(err.Error(), "is not deployed") {
		t.Errorf("an unknown service: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := client.Events(ctx, true, func(edge.Event) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("events end with %v", err)
	}
	if _, err := NewClient(path + "x").Nodes(t.Context()); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "weir-edge run") {
		t.Errorf("nobody listens: %v", err)
	}
}
