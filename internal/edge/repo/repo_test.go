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
	"github.com/weir-project/weir/internal/edge/proxy"
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
	made, _, err := proxy.ArchiveOf("nginx:1", "arm64", layer.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, made, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func unused(string) bool { return false }

func push(t *testing.T, r *Repository, name string, content []byte) edge.Stored {
	t.Helper()
	stored, err := r.Push(spec.Spec{Name: name, Image: "nginx:1", MaxUsers: 50, Algorithm: spec.AlgorithmHybrid}, archive(t, content), unused)
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
	if err := r.Remove("wiki", unused); err != nil {
		t.Fatal(err)
	}
	if got := blobs(t, r); got != before {
		t.Errorf("%d files are left, want %d", got, before)
	}
	if err := r.Remove("wiki", unused); !errors.Is(err, ErrUnknown) {
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
	if err := r.Remove("shop", unused); err != nil || blobs(t, r) != 0 {
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
		if _, err := r.Push(spec.Spec{Name: "bad"}, bad, unused); !errors.As(err, &wrong) {
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
	if _, err := r.Push(spec.Spec{Name: "bad"}, bad, unused); err == nil {
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

// TestDamaged: a file that is damaged is no reason for anything else, and pushing mends it.
func TestDamaged(t *testing.T) {
	r := open(t)
	damaged := push(t, r, "shop", []byte("one"))
	push(t, r, "wiki", []byte("two"))
	layer := r.layer(t, damaged.Digest)
	for _, path := range []string{r.blobPath(layer), filepath.Join(r.blobDir(), strings.TrimPrefix(damaged.Digest, "sha256:"))} {
		if err := os.Truncate(path, 10); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.List()
	if err != nil || len(list) != 2 || !strings.Contains(list[0].Reason, "push it again") || list[1].Reason != "" {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := r.Find("wiki"); err != nil {
		t.Error(err)
	}
	if _, err := r.Find("shop"); err == nil || !strings.Contains(err.Error(), "push it again") {
		t.Errorf("it is found: %v", err)
	}
	if again := push(t, r, "shop", []byte("one")); again.Digest != damaged.Digest || !r.isWhole(layer) {
		t.Errorf("pushed again it is %+v", again)
	}
	if err := os.Truncate(r.blobPath(layer), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Remove("shop", unused), r.Remove("wiki", unused)); err != nil || blobs(t, r) != 0 {
		t.Errorf("%v, %d files are left", err, blobs(t, r))
	}
	if _, err := Unusable(errors.New("no disk")).Receive(strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "no disk") {
		t.Errorf("an image is taken where it cannot be kept: %v", err)
	}
}

// layer is the only one of an image.
func (r *Repository) layer(t *testing.T, digest string) registry.Hash {
	t.Helper()
	hash, err := registry.NewHash(digest)
	if err != nil {
		t.Fatal(err)
	}
	var image registry.Manifest
	if err := r.readJSON(hash, &image); err != nil {
		t.Fatal(err)
	}
	return image.Layers[0].Digest
}

// TestInUse: an image stays for nodes that may need it, as long as they may.
func TestInUse(t *testing.T) {
	r := open(t)
	deployed := push(t, r, "shop", []byte("one"))
	inUse := func(digest string) bool { return digest == deployed.Digest }
	layer := r.layer(t, deployed.Digest)
	for range 2 { // no more of it the second time
		if _, err := r.Push(spec.Spec{Name: "shop", Image: "nginx:2"}, archive(t, []byte("two")), inUse); err != nil {
			t.Fatal(err)
		}
	}
	if index, err := r.index(); err != nil || len(index.Manifests) != 3 {
		t.Errorf("the index is %+v, %v", index, err)
	}
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	get := func(path string) int {
		response, err := http.Get(server.URL + "/v2/services/shop/" + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	there := func() bool {
		return get("manifests/"+deployed.Digest) == http.StatusOK && get("blobs/"+layer.String()) == http.StatusOK
	}
	if !there() {
		t.Error("the image of a service that is deployed is gone when another one is pushed")
	}
	if err := r.Remove("shop", inUse); err != nil || !there() {
		t.Errorf("it is gone with its name, %v", err)
	}
	r, err := Open(r.dir)
	if err != nil || !there() {
		t.Errorf("it is gone after a restart, %v", err)
	}
	push(t, r, "wiki", []byte("three"))
	if there() || r.isWhole(layer) {
		t.Error("it stays when nobody needs it")
	}
}

// TestListWhilePushed: who looks while something is pushed sees what was there, or what is.
func TestListWhilePushed(t *testing.T) {
	r := open(t)
	push(t, r, "shop", []byte("0"))
	archives := []string{archive(t, []byte("1")), archive(t, []byte("2"))}
	done := make(chan error, 1)
	go func() {
		for i := range 40 {
			if _, err := r.Push(spec.Spec{Name: "shop", Image: "nginx:1"}, archives[i%2], unused); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		if _, err := r.Find("shop"); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
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
		"192.0.2.1:7482": "", "[2001:db8::1]:7482": "", "localhost:7482": "such as 127.0.0.1:7482", "0.0.0.0:7482": "the one at which nodes reach", "127.0.0.1:0": "port 0",
	} {
		_, err := ParseAddress(text)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
