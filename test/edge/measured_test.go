//go:build docker

package edge

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"

	"github.com/weir-project/weir/internal/edge/store"
)

// measured is what weir-edge has kept of the starts of an image. It must not run.
func (s *site) measured(t *testing.T, image string) store.StartUp {
	t.Helper()
	kept, err := store.Open(filepath.Join(s.dir, "edge.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	return kept.StartUp(image)
}

// testDescriptor: the paper's descriptor makes a service as a specification does, and
// port_host is the port that users come to.
func (s *site) testDescriptor(t *testing.T) {
	if err := s.deploy(t, map[string]any{"imageName": pagesImage, "port_host": "8085", "port_container": "80"}); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the service answers", 20*time.Second, func() error { return s.get(8085) })
	if found := s.awaitRunning(t, "pages", 1, 10*time.Second); found[0].Image != pagesImage {
		t.Errorf("got %+v", found[0])
	}
	s.must(t, "rm", "pages")
}
