package cli

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/weir-project/weir/internal/stats"
)

// The garbage collector is kept from letting a small daemon grow. That is a goal, not a
// bound: an agent that needs more would do little but collect garbage, so those that have
// many containers may have more.
const (
	memoryLimitBytes = 20 << 20
	// containerBytes is what each container may add, and containerStep so many change
	// the limit at a time, as that stops all goroutines for a moment.
	containerBytes = 32 << 10
	containerStep  = 64
	// memoryInterval is how often that is looked at.
	memoryInterval = time.Second
)

// memoryLimit is the goal for so many containers, in bytes.
func memoryLimit(containers int) int64 {
	return memoryLimitBytes + int64(containers/containerStep*containerStep)*containerBytes
}

// limitMemory keeps the goal to what runs, until ctx ends.
func limitMemory(ctx context.Context, latest func(context.Context) (*stats.Snapshot, error)) {
	limit := memoryLimit(0)
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		seen, err := latest(ctx)
		if err != nil {
			return // the agent ends
		}
		if now := memoryLimit(len(seen.Containers)); now != limit {
			limit = now
			debug.SetMemoryLimit(limit)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
