package cli

import (
	"context"
	"errors"
	"runtime/debug"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
)

// A host with few containers has a small agent, and one with many has one that need not
// collect garbage all the time.
func TestMemoryLimit(t *testing.T) {
	for containers, mb := range map[int]int64{0: 20, 50: 20, 63: 20, 64: 22, 1001: 50} {
		if got := memoryLimit(containers) >> 20; got != mb {
			t.Errorf("%d containers: %d MiB, want %d", containers, got, mb)
		}
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	looks := 0
	limitMemory(t.Context(), func(context.Context) (*stats.Snapshot, error) {
		if looks++; looks > 1 {
			return nil, errors.New("it ends")
		}
		return &stats.Snapshot{Snapshot: v1.Snapshot{Containers: make([]v1.Container, 640)}}, nil
	})
	if got := debug.SetMemoryLimit(-1); got != memoryLimit(640) {
		t.Errorf("the limit is %d, want %d", got, memoryLimit(640))
	}
}
