package stats

import (
	"fmt"
	"regexp"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// Changes returns the events between two snapshots, removals first, then in the order of the newer
// snapshot. It returns none if before is nil: the state at the agent's start is no event.
func Changes(before, after *Snapshot) []v1.Event {
	if before == nil {
		return nil
	}
	var events []v1.Event
	add := func(e v1.Event) {
		e.At = after.At
		events = append(events, e)
	}
	old := make(map[containerKey]*v1.Container, len(before.Containers))
	for i := range before.Containers {
		old[keyOf(&before.Containers[i])] = &before.Containers[i]
	}
	runs := make(map[containerKey]bool, len(after.Containers))
	for i := range after.Containers {
		c := &after.Containers[i]
		was, known := old[keyOf(c)]
		runs[keyOf(c)] = known && sameRun(was, c)
	}
	for i := range before.Containers {
		if c := &before.Containers[i]; !runs[keyOf(c)] {
			add(event(v1.EventStopped, c, ""))
		}
	}
	changedUplinks(before, after, add)
	changedSources(before, after, add)
	for i := range after.Containers {
		c := &after.Containers[i]
		if !runs[keyOf(c)] {
			add(event(v1.EventStarted, c, ""))
			changedState(&v1.Container{State: v1.StateOK}, c, add)
			continue
		}
		was := old[keyOf(c)]
		if was.Policy != c.Policy || was.In != nil && c.In != nil && was.In.Policy != c.In.Policy {
			add(event(v1.EventPolicyChanged, c, ""))
		}
		changedState(was, c, add)
		changedEF(was, c, add)
	}
	return events
}

type containerKey struct{ runtime, id string }

func keyOf(c *v1.Container) containerKey { return containerKey{c.Runtime, c.ID} }

// sameRun reports whether a container was not restarted in between. A container that is about to
// start has no start time yet.
func sameRun(was, is *v1.Container) bool {
	return was.StartedAt.IsZero() || was.StartedAt.Equal(is.StartedAt)
}

func event(kind v1.EventKind, c *v1.Container, message string) v1.Event {
	policy := c.Policy
	e := v1.Event{Kind: kind, ID: c.ID, Container: c.Name, Runtime: c.Runtime, Message: message}
	if kind == v1.EventStarted || kind == v1.EventPolicyChanged {
		e.Policy = &policy
		if c.In != nil {
			in := c.In.Policy
			e.In = &in
		}
	}
	return e
}

func changedState(was, is *v1.Container, add func(v1.Event)) {
	switch {
	case was.State == is.State && sameReason(was, is):
	case is.State == v1.StateRejected:
		add(event(v1.EventRefused, is, is.Reason))
	case is.State == v1.StateDegraded:
		add(event(v1.EventDegraded, is, is.Reason))
	case was.State != is.State:
		add(event(v1.EventRepaired, is, fmt.Sprintf("no longer %s: %s", was.State, was.Reason)))
	}
}

// rates are rates as policy.FormatRate writes them.
var rates = regexp.MustCompile(`\b[0-9.]+[kmgt]?bit\b`)

// sameReason reports whether a container's state has the same reason as before, apart from rates.
// Rates in a reason change whenever any container comes or goes, which is no event of the others.
func sameReason(was, is *v1.Container) bool {
	if was.Reason == is.Reason {
		return true
	}
	return was.Policy == is.Policy && rates.ReplaceAllString(was.Reason, "") == rates.ReplaceAllString(is.Reason, "")
}

// changedEF adds an event when a container's EF traffic starts to exceed its maximum, and when that
// ends.
func changedEF(was, is *v1.Container, add func(v1.Event)) {
	before, after := efOf(was), efOf(is)
	switch {
	case after.Held && !before.Held:
		add(event(v1.EventEFHeld, is, fmt.Sprintf("it sends more EF than the %s that go first (weir.ef-max): the flows that send most of it are served as be, each for 250ms at a time",
			policy.FormatRateShort(after.MaxBPS))))
	case before.Held && !after.Held && is.Policy.Class != v1.ClassNone:
		add(event(v1.EventEFReleased, is, "all of its EF goes first again"))
	}
}

func efOf(c *v1.Container) v1.ClassShare {
	for _, class := range c.Classes {
		if class.Class == v1.ClassEF {
			return class
		}
	}
	return v1.ClassShare{}
}

// changedUplinks adds events for changed uplinks. Uplinks are compared by position, as names may
// change; the order is fixed while their number stays the same.
func changedUplinks(before, after *Snapshot, add func(v1.Event)) {
	if len(before.Status.Uplinks) != len(after.Status.Uplinks) {
		return
	}
	for i, is := range after.Status.Uplinks {
		was := before.Status.Uplinks[i]
		e := v1.Event{Uplink: is.Name, Message: is.Reason}
		switch {
		case was.Present && !is.Present:
			e.Kind = v1.EventUplinkLost
		case !was.Present && is.Present:
			e.Kind = v1.EventUplinkBack
		case was.State == is.State && was.Reason == is.Reason:
			continue
		case is.State != v1.StateOK:
			e.Kind = v1.EventDegraded
		default:
			e.Kind, e.Message = v1.EventRepaired, fmt.Sprintf("no longer %s: %s", was.State, was.Reason)
		}
		add(e)
	}
}

func changedSources(before, after *Snapshot, add func(v1.Event)) {
	connected := map[string]bool{}
	for _, s := range before.Status.Sources {
		connected[s.Name] = s.Connected
	}
	for _, s := range after.Status.Sources {
		switch {
		case connected[s.Name] && !s.Connected:
			add(v1.Event{Kind: v1.EventSourceLost, Message: fmt.Sprintf("%s: %s", s.Name, s.Reason)})
		case !connected[s.Name] && s.Connected:
			add(v1.Event{Kind: v1.EventSourceConnected, Message: s.Name})
		}
	}
}
