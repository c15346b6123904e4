//go:build docker

package edge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/repo"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// testEngineOfOthers is what weir-edge makes of an engine that others use, too. logins is its folder of
// docker login.
func (s *site) testEngineOfOthers(t *testing.T, logins string) {
	t.Run("all instances are of one image", s.testPinned)
	t.Run("an image for 32 bits", s.testNarrow)
	t.Run("a registry that wants a login", func(t *testing.T) { s.testLogin(t, logins) })
	t.Run("a proxy's name is taken", s.testTaken)
	t.Run("services are pruned", s.testPruned)
}

// testPruned: a service is removed by weir-edge only.
func (s *site) testPruned(t *testing.T) {
	isThere := func(service string) bool {
		_, err := s.engine.API().ContainerInspect(t.Context(), "edgeproxy-"+service, client.ContainerInspectOptions{})
		return err == nil
	}
	awaitAgain := func(service string) {
		t.Helper()
		harness.Await(t, "the service "+service+" is there again", 20*time.Second, func() error {
			said := false
			err := s.client.Events(t.Context(), false, func(e edge.Event) error {
				said = said || e.Service == service && strings.Contains(e.Message, "another program had removed the container of its proxy")
				return nil
			})
			if err == nil && (!said || !isThere(service)) {
				err = errNot(s.must(t, "events"))
			}
			return err
		})
	}
	// Without an agent no minimum is promised, so it waits.
	must.Succeed(t, s.deploy(t, specification("pruned", pagesImage, 8114, 10, map[string]string{"weir.min": "1mbit"})))
	_, err := s.engine.API().ContainerPrune(t.Context(), client.ContainerPruneOptions{})
	must.Succeed(t, err)
	awaitAgain("pruned")
	s.must(t, "rm", "pruned")
	must.Succeed(t, s.deploy(t, specification("removed", pagesImage, 8114, 10, nil)))
	s.awaitRunning(t, "removed", 1, 20*time.Second)
	must.Succeed(t, s.engine.Remove(t.Context(), "edgeproxy-removed"))
	awaitAgain("removed")
	harness.Await(t, "it answers", 20*time.Second, func() error { return s.get(8114) })
	s.must(t, "rm", "removed")
	time.Sleep(3 * time.Second)
	if isThere("pruned") || isThere("removed") {
		t.Error("it was removed by weir-edge, and is there again")
	}
}

// testPinned: a new image of the same name is for services that are deployed later.
func (s *site) testPinned(t *testing.T) {
	const image = "example.test/moving:1"
	s.importPages(t, image)
	must.Succeed(t, s.deploy(t, specification("pinned", image, 8110, 10, nil)))
	defer s.must(t, "rm", "pinned")
	before := s.inspect(t, s.awaitRunning(t, "pinned", 1, 20*time.Second)[0].ContainerID)
	s.importPages(t, image, "--bytes", "1")
	must.Succeed(t, s.engine.Remove(t.Context(), before.ID))
	harness.Await(t, "another instance answers", 10*time.Second, func() error {
		for _, i := range s.ps(t) {
			if i.Service == "pinned" && i.State == "running" && i.ContainerID != before.ID {
				if after := s.inspect(t, i.ContainerID); after.Image != before.Image || i.Image != image {
					t.Errorf("it runs %s as %s, and the first one %s", after.Image, i.Image, before.Image)
				}
				return nil
			}
		}
		return errNot(s.must(t, "ps"))
	})
}

func (s *site) inspect(t *testing.T, name string) (c struct{ ID, Image string }) {
	t.Helper()
	found, err := s.engine.API().ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
	must.Succeed(t, err)
	c.ID, c.Image = found.Container.ID, found.Container.Image
	return c
}

// testNarrow: an image for 32 bits is deployed, with a note.
func (s *site) testNarrow(t *testing.T) {
	narrow, found := map[string]string{"amd64": "386", "arm64": "arm"}[runtime.GOARCH]
	if !found {
		t.Skip("no image for 32 bits runs on this processor")
	}
	s.importForeign(t, "example.test/narrow:1", narrow)
	text, err := json.Marshal(specification("narrow", "example.test/narrow:1", 8111, 10, nil))
	must.Succeed(t, err)
	deployed, err := s.client.Deploy(t.Context(), text)
	must.Succeed(t, err)
	s.must(t, "rm", "narrow")
	if !slices.ContainsFunc(deployed.Notes, func(note string) bool { return strings.Contains(note, "is for "+narrow) }) {
		t.Errorf("it is deployed with %q", deployed.Notes)
	}
}

// testLogin: weir-edge logs in as docker login has been told to.
func (s *site) testLogin(t *testing.T, logins string) {
	stored := s.pushed(t, "locked", 8112, 1000)
	images, err := repo.Open(filepath.Join(s.dir, "repository"))
	must.Succeed(t, err)
	address := lockedRegistry(t, images, s.Host.NetNSPath())
	document := specification("locked", repo.Reference(address, "locked", stored.Digest), 8112, 10, nil)
	s.refused(t, document, "the image is not there")
	login(t, logins, address)
	must.Succeed(t, s.deploy(t, document))
	s.awaitRunning(t, "locked", 1, 20*time.Second)
	s.must(t, "rm", "locked")
}

// lockedRegistry gives the images of a repository to the user me with the password secret, at the same
// loopback address of several network namespaces.
func lockedRegistry(t *testing.T, images *repo.Repository, namespaces ...string) (address string) {
	t.Helper()
	registry := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.Handler().ServeHTTP(w, r)
	})}
	t.Cleanup(func() { registry.Close() })
	address = "127.0.0.1:0"
	for _, netns := range namespaces {
		must.Succeed(t, testbed.InNetNS(netns, func() error {
			listener, err := net.Listen("tcp", address)
			if err == nil {
				address = listener.Addr().String()
				go func() { _ = registry.Serve(listener) }()
			}
			return err
		}))
	}
	return address
}

// login writes what docker login keeps in a folder.
func login(t *testing.T, folder, address string) {
	t.Helper()
	text := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, address, base64.StdEncoding.EncodeToString([]byte("me:secret")))
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte(text), 0o600))
}

// testTaken: a container that weir-edge has not made is not called a service.
func (s *site) testTaken(t *testing.T) {
	_, err := s.engine.Run(t.Context(), testbed.RunOptions{Name: "edgeproxy-taken", Image: pagesImage})
	must.Succeed(t, err)
	defer func() { must.Succeed(t, s.engine.Remove(context.Background(), "edgeproxy-taken")) }()
	s.refused(t, specification("taken", pagesImage, 8113, 10, nil), "edgeproxy-taken", "has not made", "rename")
}
