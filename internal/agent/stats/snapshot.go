package stats

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/plan"
	"github.com/weir-project/weir/internal/policy"
)

// StaleAfter is how old what is known of a container may be for it to be in
// order: what nobody has looked at for longer may not be in force any more.
const StaleAfter = 10 * time.Second

// Snapshot is all that the agent tells of one moment, the host class as the last
// container. It is never changed.
type Snapshot struct {
	v1.Snapshot
	// At is when the control loop made it.
	At time.Time
	// Places are, in the order of Containers, what the API does not say of them.
	Places []Place
	// Links are, in the order of the uplinks and of each container's shares, what is shared
	// out there, and Rules what the operator laid down, as decisions see them.
	Links []plan.Link
	Rules policy.Rules
}

// Place is what of a container the API does not say: where it is on the host, and what
// decisions about its policy go by.
type Place struct {
	Image string
	Ports []discovery.Port
	// NetNSPath and CgroupPath are as in discovery.Container.
	NetNSPath, CgroupPath string
	// FlowNumber is the number under which its flows are looked at; 0: nobody does.
	FlowNumber uint16
	// Subject is the container as rules see it, and Set what was set of its policy.
	Subject policy.Subject
	Set     policy.Values
}

// HasFlows says whether the flows under a number are those of the container with that ID.
func (s *Snapshot) HasFlows(id string, number uint16) bool {
	for i := range s.Places {
		if s.Places[i].FlowNumber == number {
			return s.Containers[i].ID == id
		}
	}
	return false
}

// AsOf is the snapshot as a reader sees it at now: with its age, and with what
// has not been looked at for StaleAfter shown as degraded.
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

// staleShare says at which uplink nobody has looked at a container for too
// long, if there is one.
func staleShare(c v1.Container, now time.Time) string {
	for _, share := range c.Shares {
		age := now.Sub(share.MeasuredAt)
		if !share.MeasuredAt.IsZero() && age > StaleAfter {
			return fmt.Sprintf("%s: nothing was measured for %s", share.Uplink, age.Round(time.Second))
		}
	}
	return ""
}

// degrade takes a state that is better down, and adds a reason.
func degrade(state *v1.State, reason *string, because string) {
	if *state == v1.StateOK {
		*state = v1.StateDegraded
	}
	if *reason != "" {
		because = *reason + "; " + because
	}
	*reason = because
}

// Board is where the loop puts its latest snapshot for all to see.
type Board struct {
	latest atomic.Pointer[Snapshot]
	first  chan struct{} // closed when there is one
	once   sync.Once
}

// NewBoard returns one on which there is nothing yet.
func NewBoard() *Board { return &Board{first: make(chan struct{})} }

// Publish shows a snapshot, and returns the one before, or nil.
func (b *Board) Publish(s *Snapshot) *Snapshot {
	before := b.latest.Swap(s)
	b.once.Do(func() { close(b.first) })
	return before
}

// Latest is the latest snapshot as of now (AsOf). It waits for the first one only.
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
