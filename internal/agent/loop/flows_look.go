package loop

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
)

// mostFlows bounds the flows of one response: the kernel may hold a million, which would take
// gigabytes to encode.
const mostFlows = 20_000

// Flows returns the live flows of the containers whose class is auto, or of the container name. It
// returns the flows seen last first, at most so many of each container; with 0, at most mostFlows
// in total. Like every read it stays outside the loop: the latest snapshot has the containers'
// numbers. Errors: ErrUnknown, ErrAmbiguous, ErrRefused for a container of another class.
func (a *Agent) Flows(ctx context.Context, name string, most int) ([]v1.Flow, error) {
	before, err := a.board.Latest(ctx)
	if err != nil {
		return nil, err
	}
	wanted, err := withFlows(before, name)
	if err != nil {
		return nil, err
	}
	if each := mostFlows / max(1, len(wanted)); most <= 0 || most > each {
		most = each
	}
	out := []v1.Flow{}
	for _, i := range wanted {
		c, number := &before.Containers[i], before.Places[i].FlowNumber
		live, err := a.flowsLately.get(flowKey{number, most}, time.Now(), func(now time.Time) ([]v1.Flow, error) {
			return a.attach.Flows.Live(number, most, now)
		})
		if err != nil {
			return nil, err
		}
		after, err := a.board.Latest(ctx)
		if err != nil {
			return nil, err
		}
		if !after.HasFlows(c.ID, number) {
			continue // the number belongs to another container by now
		}
		for _, f := range live {
			f.Container, f.ID = c.Name, c.ID
			out = append(out, f)
		}
	}
	return out, nil
}

// withFlows returns the snapshot indexes of the containers of that name, all for "", whose flows
// are classified.
func withFlows(seen *stats.Snapshot, name string) (wanted []int, err error) {
	if name == "" {
		for i := range seen.Containers {
			if seen.Places[i].FlowNumber != 0 {
				wanted = append(wanted, i)
			}
		}
		slices.SortFunc(wanted, func(x, y int) int { return int(seen.Places[x].FlowNumber) - int(seen.Places[y].FlowNumber) })
		return wanted, nil
	}
	i, err := Find(seen.Containers, name)
	if err != nil {
		return nil, err
	}
	if seen.Places[i].FlowNumber == 0 {
		c := seen.Containers[i].Name
		return nil, fmt.Errorf("%w: %s has no flow table, as its class is not auto (weir set %s --class auto)", ErrRefused, c, c)
	}
	return []int{i}, nil
}

// flowsAge is the maximum age of cached flows.
const flowsAge = 500 * time.Millisecond

// flowsLately caches flows for flowsAge, so that many readers cost no more than one: the kernel
// takes milliseconds to list a table.
type flowsLately struct {
	mu    sync.Mutex
	began time.Time
	held  int
	by    map[flowKey][]v1.Flow
}

// flowKey is a request for flows: a number and the maximum of flows.
type flowKey struct {
	number uint16
	most   int
}

// get returns the flows for a key; the caller must not change them. One reader at a time asks the
// kernel.
func (f *flowsLately) get(key flowKey, now time.Time, read func(time.Time) ([]v1.Flow, error)) ([]v1.Flow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if age := now.Sub(f.began); f.by == nil || age < 0 || age > flowsAge {
		f.began, f.held, f.by = now, 0, map[flowKey][]v1.Flow{}
		time.AfterFunc(flowsAge, f.drop)
	}
	if live, ok := f.by[key]; ok {
		return live, nil
	}
	live, err := read(now)
	if err == nil && f.held+len(live) <= mostFlows {
		f.held += len(live)
		f.by[key] = live
	}
	return live, err
}

// drop empties the cache, which may hold megabytes.
func (f *flowsLately) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held, f.by = 0, nil
}
