package cli

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/weir-project/weir/internal/agent/stats"
)

// The garbage collector keeps a small daemon small. The limit is a goal, not a bound: an agent that
// needs more would spend its time collecting garbage, so the limit grows with the number of
// containers.
const (
	memoryLimitBytes = 20 << 20
	// containerBytes is the allowance for each container. The limit changes in steps of
	// containerStep containers, because a change stops all goroutines for a moment.
	containerBytes = 32 << 10
	containerStep  = 64
	// memoryInterval is the time between two adjustments of the limit.
	memoryInterval = time.Second
)

// memoryLimit returns the memory limit for a number of containers, in bytes.
func memoryLimit(containers int) int64 {
	return memoryLimitBytes + int64(containers/containerStep*containerStep)*containerBytes
}

// limitMemory adjusts the memory limit to the number of running containers until ctx ends.
func limitMemory(ctx context.Context, latest func(context.Context) (*stats.Snapshot, error)) {
	limit := memoryLimit(0)
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		seen, err := latest(ctx)
		if err != nil {
			return // the agent is stopping
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
