package stats

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/share/plan"
	"github.com/weir-project/weir/internal/share/policy"
)

// StaleAfter is the maximum age of a container's reading. After that its policy may not be in force
// any more, and it is shown as degraded.
const StaleAfter = 10 * time.Second

// Snapshot is the agent's state at one moment, the host class as the last container. It is
// immutable.
type Snapshot struct {
	v1.Snapshot
	// At is the time when the control loop made it.
	At time.Time
	// Places holds internal data of the containers that the API does not show, in the order of
	// Containers.
	Places []Place
	// Links are the uplinks as input for decisions, in the order of the uplinks and of each
	// container's shares; LinksIn are what of them shares what they receive. Rules are the operator's.
	Links   []plan.Link
	LinksIn []plan.Link
	Rules   policy.Rules
}

// Place is internal data of a container: its location on the host, and the input of decisions about
// its policy.
type Place struct {
	Image string
	Ports []discovery.Port
	// NetNSPath and CgroupPath are as in discovery.Container.
	NetNSPath, CgroupPath string
	// EdgeProxy: it is a proxy of weir-edge.
	EdgeProxy bool
	// FlowNumber is the number of its flow table; 0 for none.
	FlowNumber uint16
	// Subject is the container as rules see it; Set is the part of its policy that `weir set`
	// changed.
	Subject policy.Subject
	Set     policy.Values
}

// HasFlows reports whether the flow table of number belongs to the container with that ID.
func (s *Snapshot) HasFlows(id string, number uint16) bool {
	for i := range s.Places {
		if s.Places[i].FlowNumber == number {
			return s.Containers[i].ID == id
		}
	}
	return false
}

// AsOf returns the snapshot as seen at now: with its age, and with containers that were not read
// for StaleAfter marked as degraded.
func (s *Snapshot) AsOf(now time.Time) *Snapshot {
	copied := *s
	seen := &copied
	age := max(now.Sub(s.At), 0)
	seen.Status.AgeMS = float64(age.Round(time.Microsecond)) / float64(time.Millisecond)
	if age > StaleAfter {
		reason := fmt.Sprintf("the agent has not looked for %s: it is busy or stuck", age.Round(time.Second))
		seen.Status.Uplinks = slices.Clone(s.Status.Uplinks)
		for i := range seen.Status.Uplinks {
			u := &seen.Status.Uplinks[i]
			degrade(&u.State, &u.Reason, reason)
		}
		degrade(&seen.Status.State, &seen.Status.Reason, reason)
		seen.Containers = slices.Clone(s.Containers)
		for i := range seen.Containers {
			c := &seen.Containers[i]
			degrade(&c.State, &c.Reason, reason)
		}
		return seen
	}
	cloned := false
	for i, c := range s.Containers {
		reason := staleShare(c, now)
		if reason == "" {
			continue
		}
		if !cloned {
			seen.Containers, cloned = slices.Clone(s.Containers), true
		}
		degrade(&seen.Containers[i].State, &seen.Containers[i].Reason, reason)
	}
	return seen
}

// staleShare returns an uplink whose reading of a container is too old, or "".
func staleShare(c v1.Container, now time.Time) string {
	for _, share := range c.Shares {
		age := now.Sub(share.MeasuredAt)
		if !share.MeasuredAt.IsZero() && age > StaleAfter {
			return fmt.Sprintf("%s: nothing was measured for %s", share.Uplink, age.Round(time.Second))
		}
	}
	return ""
}

// degrade lowers a better state to degraded, and adds a reason.
func degrade(state *v1.State, reason *string, because string) {
	if *state == v1.StateOK {
		*state = v1.StateDegraded
	}
	if *reason != "" {
		because = *reason + "; " + because
	}
	*reason = because
}

// Board holds the latest snapshot for all readers.
type Board struct {
	latest atomic.Pointer[Snapshot]
	first  chan struct{} // closed at the first snapshot
	once   sync.Once
}

// NewBoard returns an empty board.
func NewBoard() *Board { return &Board{first: make(chan struct{})} }

// Publish replaces the latest snapshot, and returns the previous one, or nil.
func (b *Board) Publish(s *Snapshot) *Snapshot {
	before := b.latest.Swap(s)
	b.once.Do(func() { close(b.first) })
	return before
}

// Latest returns the latest snapshot as of now (AsOf). It waits only for the first one.
func (b *Board) Latest(ctx context.Context) (*Snapshot, error) {
	if b.latest.Load() == nil {
		select {
		case <-b.first:
		case <-ctx.Done():
			return nil, fmt.Errorf("agent is starting or stopping: %w", ctx.Err())
		}
	}
	return b.latest.Load().AsOf(time.Now()), nil
}
