package repo

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	registry "github.com/google/go-containerregistry/pkg/v1"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

func open(t *testing.T) *Repository {
	t.Helper()
	r, err := Open(filepath.Join(t.TempDir(), "repository"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// archive is an image whose only layer has a file of that content.
func archive(t *testing.T, content []byte) string {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "file", Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(content)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	made, _, err := runtime.ImageArchive("nginx:1", "arm64", layer.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, made, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func push(t *testing.T, r *Repository, name string, content []byte) edge.Stored {
	t.Helper()
	stored, err := r.Push(spec.Spec{Name: name, Image: "nginx:1", MaxUsers: 50, Algorithm: spec.AlgorithmHybrid}, archive(t, content))
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func blobs(t *testing.T, r *Repository) int {
	t.Helper()
	files, err := os.ReadDir(r.blobDir())
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

func TestPushAndRemove(t *testing.T) {
	r := open(t)
	zeros := make([]byte, 1<<20)
	first := push(t, r, "shop", zeros)
	if first.Architecture != "arm64" || first.SizeBytes == 0 || first.SizeBytes > 100_000 {
		t.Errorf("layers are not compressed: %+v", first)
	}
	parsed, err := spec.Parse(first.Specification)
	if err != nil || parsed.MaxUsers != 50 || parsed.ImageBytes != first.SizeBytes {
		t.Errorf("the specification became %s, %v", first.Specification, err)
	}
	if again := push(t, r, "shop", zeros); again.Digest != first.Digest {
		t.Errorf("the same image has another digest: %s and %s", first.Digest, again.Digest)
	}
	before := blobs(t, r)
	push(t, r, "wiki", zeros) // its layers are there already
	if got := blobs(t, r); got != before+2 {
		t.Errorf("%d files, and %d with another service of the same image", before, got)
	}
	push(t, r, "shop", []byte("another")) // in its place
	if err := r.Remove("wiki"); err != nil {
		t.Fatal(err)
	}
	if got := blobs(t, r); got != before {
		t.Errorf("%d files are left, want %d", got, before)
	}
	if err := r.Remove("wiki"); !errors.Is(err, ErrUnknown) {
		t.Errorf("removed again: %v", err)
	}
	// Another weir-edge, later.
	if r, err = Open(r.dir); err != nil {
		t.Fatal(err)
	}
	list, err := r.List()
	if err != nil || len(list) != 1 || list[0].Service != "shop" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := r.Remove("shop"); err != nil || blobs(t, r) != 0 {
		t.Errorf("%v, %d files are left", err, blobs(t, r))
	}
}

// TestBroken: what is no image, what was interrupted, and a repository that was damaged.
func TestBroken(t *testing.T) {
	r := open(t)
	push(t, r, "shop", []byte("one"))
	bad := filepath.Join(t.TempDir(), "bad.tar")
	for _, content := range []string{"", "no archive", strings.Repeat("\x00", 2048)} {
		if err := os.WriteFile(bad, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var wrong *BadImageError
		if _, err := r.Push(spec.Spec{Name: "bad"}, bad); !errors.As(err, &wrong) {
			t.Errorf("%q: %v", content, err)
		}
	}
	// A layer that ends too early.
	whole, err := os.ReadFile(archive(t, make([]byte, 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Push(spec.Spec{Name: "bad"}, bad); err == nil {
		t.Error("half an image was taken")
	}
	if list, err := r.List(); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := r.Receive(io.MultiReader(strings.NewReader("half"), failing{})); err == nil {
		t.Error("a connection that broke off is no error")
	}
	// What a weir-edge left that was killed is removed, and what it had put there is not.
	kept := blobs(t, r)
	for _, path := range []string{filepath.Join(r.dir, ".new-1"), filepath.Join(r.blobDir(), ".new-2")} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(r.dir); err != nil || blobs(t, r) != kept {
		t.Errorf("%v, %d files", err, blobs(t, r))
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, ".new-*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if err := os.WriteFile(filepath.Join(r.dir, indexFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(r.dir); err == nil || !strings.Contains(err.Error(), indexFile) {
		t.Errorf("a damaged index: %v", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the connection broke off") }

// TestRegistry: images are read as the distribution specification says, parts of them as
// well, and nothing can be written.
func TestRegistry(t *testing.T) {
	r := open(t)
	random := make([]byte, 100_000)
	_, _ = rand.Read(random)
	stored := push(t, r, "My_Shop", random)
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	base := server.URL + "/v2/services/my-shop"
	type answered struct {
		*http.Response
		body []byte
	}
	get := func(path string, header ...string) answered {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answered{response, body}
	}
	for _, reference := range []string{stored.Digest, "latest"} {
		response := get(base + "/manifests/" + reference)
		digest, _, _ := registry.SHA256(bytes.NewReader(response.body))
		if response.StatusCode != http.StatusOK || digest.String() != stored.Digest || response.Header.Get("Docker-Content-Digest") != stored.Digest {
			t.Fatalf("%s: %s, %s", reference, response.Status, response.body)
		}
	}
	var manifest registry.Manifest
	if err := json.Unmarshal(get(base+"/manifests/latest").body, &manifest); err != nil {
		t.Fatal(err)
	}
	layer := base + "/blobs/" + manifest.Layers[0].Digest.String()
	response := get(layer)
	whole := response.body
	if digest, _, _ := registry.SHA256(bytes.NewReader(whole)); digest != manifest.Layers[0].Digest {
		t.Errorf("%s, another layer", response.Status)
	}
	// Docker goes on so where a transfer broke off.
	response = get(layer, "Range", "bytes=50000-")
	if response.StatusCode != http.StatusPartialContent || !slices.Equal(response.body, whole[50000:]) {
		t.Errorf("%s, %d bytes", response.Status, len(response.body))
	}
	response = get(base + "/referrers/" + stored.Digest)
	var referrers registry.IndexManifest
	if err := json.Unmarshal(response.body, &referrers); err != nil || len(referrers.Manifests) != 1 || referrers.Manifests[0].ArtifactType != specificationType {
		t.Errorf("%s: %s", response.Status, response.body)
	}
	for path, want := range map[string]int{
		server.URL + "/v2/": 200, base + "/tags/list": 200, base + "/manifests/other": 404, base + "/blobs/sha256:" + strings.Repeat("0", 64): 404,
		base + "/blobs/nonsense": 400, base + "/blobs/sha256:..%2f..%2findex.json": 400, server.URL + "/v2/_catalog": 404, server.URL + "/": 404,
	} {
		if response := get(path); response.StatusCode != want {
			t.Errorf("%s: %s, %s", path, response.Status, response.body)
		}
	}
	answer, err := http.Post(base+"/blobs/uploads/", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("something may be written: %s", answer.Status)
	}
}

func TestReference(t *testing.T) {
	if got := Reference("192.0.2.1:7482", "A-_b", "sha256:0"); got != "192.0.2.1:7482/services/a-b@sha256:0" {
		t.Error(got)
	}
	for text, says := range map[string]string{
		"192.0.2.1:7482": "", "[2001:db8::1]:7482": "", "localhost:7482": "such as 127.0.0.1:7482", "0.0.0.0:7482": "the one at which nodes reach", "127.0.0.1:0": "has no port",
	} {
		_, err := ParseAddress(text)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
