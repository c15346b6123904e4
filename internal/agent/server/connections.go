package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// # Counting connections
//
// The kernel counts the connections of a container by a walk over all of the host's: with 100,000 of them each walk takes
// milliseconds, and a hundred containers would keep a request for longer than weir-edge waits until a node is silent.
// So a request counts for a fifth of a second at most, one request at a time, what was counted longest ago first,
// and no request counts for four times as long after that: readers together cost a fifth of a processor. Counts are shared by
// requests: one is as old as countValid at most, and is not made again before countFresh.

const (
	// mostCounted bounds the containers whose connections a request counts.
	mostCounted = 256
	// countingTime is how long a request counts, or waits for another one.
	countingTime = 200 * time.Millisecond
	// countingRest is how long no request counts after one, in multiples of what that took.
	countingRest = 4
	countFresh   = 2 * time.Second
	countValid   = 10 * time.Second
)

// connections counts the connections of containers. It is safe for concurrent use.
type connections struct {
	count func(netNSPath string) (int, error)
	// counting has a value while a request counts.
	counting chan struct{}

	mu     sync.Mutex
	counts map[string]connectionCount // by the path of the network namespace
	rest   time.Time                  // when the next request may count
}

type connectionCount struct {
	count int
	at    time.Time
}

func newConnections() *connections {
	return &connections{count: kernel.CountConnections, counting: make(chan struct{}, 1), counts: map[string]connectionCount{}}
}

// add sets the connections of the measured containers with these names, as far as they are counted in time. Containers in the
// host's network have none of their own.
func (c *connections) add(ctx context.Context, names []string, s *stats.Snapshot, list []v1.MeasuredContainer) {
	names = names[:min(len(names), mostCounted)]
	at := map[string]string{} // network namespaces by the container's ID
	for i := range s.Containers {
		at[s.Containers[i].ID] = s.Places[i].NetNSPath
	}
	paths := make([]string, len(list))
	for i := range list {
		if slices.Contains(names, list[i].Name) {
			paths[i] = at[list[i].ID]
		}
	}
	known := c.ask(ctx, paths)
	for i := range list {
		if found, is := known[paths[i]]; is {
			list[i].Connections = &found.count
		}
	}
}

// ask counts connections in network namespaces until countingTime is over, and returns the valid counts.
func (c *connections) ask(ctx context.Context, paths []string) map[string]connectionCount {
	ctx, cancel := context.WithTimeout(ctx, countingTime)
	defer cancel()
	select {
	case c.counting <- struct{}{}:
		began := time.Now()
		for _, path := range c.due(paths, began) {
			if ctx.Err() != nil {
				break
			}
			c.countOne(path)
		}
		c.noteCounted(began)
		<-c.counting
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.counts, func(_ string, known connectionCount) bool { return time.Since(known.at) > countValid })
	return maps.Clone(c.counts)
}

// due returns the namespaces to count in, the one that was counted longest ago first; none while counting rests.
func (c *connections) due(paths []string, now time.Time) (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.rest) {
		return nil
	}
	for _, path := range paths {
		if known, is := c.counts[path]; path != "" && (!is || now.Sub(known.at) >= countFresh) {
			list = append(list, path)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	slices.SortStableFunc(list, func(a, b string) int { return c.counts[a].at.Compare(c.counts[b].at) })
	return list
}

func (c *connections) countOne(path string) {
	count, err := c.count(path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil { // the container may have ended
		delete(c.counts, path)
		return
	}
	c.counts[path] = connectionCount{count, time.Now()}
}

// noteCounted sets when the next request may count.
func (c *connections) noteCounted(began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if rest := now.Add(countingRest * now.Sub(began)); rest.After(c.rest) {
		c.rest = rest
	}
}
