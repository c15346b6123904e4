package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-project/weir/api/v1/transport"
)

// TestMetrics: the file has what the agent answered last.
func TestMetrics(t *testing.T) {
	b := newBed(t)
	path := filepath.Join(t.TempDir(), "weir.prom")
	agent := transport.Unix(b.socket)
	if err := writeMetrics(t.Context(), agent, path); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil || len(before) == 0 {
		t.Fatalf("it has %q, %v", before, err)
	}
	if found, err := os.Stat(path); err != nil || found.Mode().Perm() != 0o644 {
		t.Errorf("others may not read it: %v, %v", found.Mode(), err)
	}
	b.away = true
	if err := writeMetrics(t.Context(), agent, path); err == nil {
		t.Error("an agent that does not answer is no error")
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("it has %q, %v", after, err)
	}
}
