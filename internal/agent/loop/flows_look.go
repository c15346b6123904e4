package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/stats"
)

// mostFlows is how many flows are told of at once: the kernel may know a million, which
// would take the agent gigabytes to say.
const mostFlows = 20_000

// Flows are the live flows of the containers whose class is auto, or of one of them:
// those seen last first, so many of each at most; 0 for as many as there may be, which
// is mostFlows of all together. As all that is only looked at it does not enter the
// loop: the latest snapshot says whose they are. Errors: ErrUnknown, ErrAmbiguous,
// ErrRefused for one whose flows nobody looks at.
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
		live, err := a.flowsLately.of(flowKey{number, most}, time.Now(), func(now time.Time) ([]v1.Flow, error) {
			return a.flows.Live(number, most, now)
		})
		if err != nil {
			return nil, err
		}
		after, err := a.board.Latest(ctx)
		if err != nil {
			return nil, err
		}
		if !after.HasFlows(c.ID, number) {
			continue // meanwhile the number became another's
		}
		for _, f := range live {
			f.Container, f.ID = c.Name, c.ID
			out = append(out, f)
		}
	}
	return out, nil
}

// withFlows are the containers of that name whose flows are looked at, all for "", by
// their places in the snapshot.
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
		return nil, fmt.Errorf("%w: nobody looks at the flows of %s: its class is not auto (weir set %s --class auto)", ErrRefused, c, c)
	}
	return []int{i}, nil
}

// flowsAge is how old flows may be that are told of once more.
const flowsAge = 500 * time.Millisecond

// flowsLately are flows that were read a moment ago, so that many readers cost no more
// than one: a table takes the kernel milliseconds to tell.
type flowsLately struct {
	mu    sync.Mutex
	began time.Time
	held  int
	by    map[flowKey][]v1.Flow
}

// flowKey is what was asked for: the flows of a number, so many at most.
type flowKey struct {
	number uint16
	most   int
}

// of are the flows of a key, which nobody may change. One reader at a time asks the kernel.
func (f *flowsLately) of(key flowKey, now time.Time, read func(time.Time) ([]v1.Flow, error)) ([]v1.Flow, error) {
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

// drop lets go of what is held, which may be megabytes.
func (f *flowsLately) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held, f.by = 0, nil
}
