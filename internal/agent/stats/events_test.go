package stats

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

func TestChanges(t *testing.T) {
	running := func(name string, changes ...func(*v1.Container)) v1.Container {
		c := v1.Container{ID: "id-" + name, Name: name, Runtime: "docker", State: v1.StateOK, StartedAt: epoch}
		for _, change := range changes {
			change(&c)
		}
		return c
	}
	weight := func(c *v1.Container) { c.Policy.Weight = 300 }
	received := func(maxBPS uint64) func(*v1.Container) {
		return func(c *v1.Container) { c.In = &v1.Direction{Policy: v1.Policy{MaxBPS: maxBPS}} }
	}
	rates := func(c *v1.Container) { c.RateBPS, c.SentBytes = 5, 5 }
	later := func(c *v1.Container) { c.StartedAt = epoch.Add(time.Second) }
	early := func(c *v1.Container) { c.StartedAt = time.Time{} }
	state := func(s v1.State, reason string) func(*v1.Container) {
		return func(c *v1.Container) { c.State, c.Reason = s, reason }
	}
	degraded, rejected := state(v1.StateDegraded, "late"), state(v1.StateRejected, "full")
	list := func(c ...v1.Container) Snapshot { return Snapshot{Snapshot: v1.Snapshot{Containers: c}} }
	uplink := func(present bool, s v1.State, reason string) Snapshot {
		return Snapshot{Snapshot: v1.Snapshot{Status: v1.Status{Uplinks: []v1.Uplink{{Name: "up0", Present: present, State: s, Reason: reason}}}}}
	}
	source := func(connected bool) Snapshot {
		return Snapshot{Snapshot: v1.Snapshot{Status: v1.Status{Sources: []v1.Source{{Name: "docker", Connected: connected, Reason: "refused"}}}}}
	}
	for _, tc := range []struct {
		name          string
		before, after Snapshot
		want          string
	}{
		{"nothing", list(running("a")), list(running("a", rates)), ""},
		{"one starts", list(), list(running("a")), "started a"},
		{"one starts and is refused", list(), list(running("a", rejected)), "started a, refused a full"},
		{"of received traffic", list(running("a", received(0))), list(running("a", received(1e6))), "policy_changed a"},
		{"received traffic is shared", list(running("a")), list(running("a", received(1e6))), ""},
		{"one stops, one starts", list(running("a"), running("b")), list(running("b"), running("c")), "stopped a, started c"},
		{"one starts again", list(running("a", degraded)), list(running("a", later)), "stopped a, started a"},
		{"one is known before it has started", list(running("a", early)), list(running("a")), ""},
		{"a policy", list(running("a")), list(running("a", weight)), "policy_changed a"},
		{"degraded", list(running("a")), list(running("a", degraded)), "degraded a late"},
		{"for another reason", list(running("a", degraded)), list(running("a", state(v1.StateDegraded, "slow"))), "degraded a slow"},
		{
			"for the same reason, with other figures",
			list(running("a", state(v1.StateRejected, "minimum 60mbit cannot be guaranteed: 30.5mbit is free"))),
			list(running("a", state(v1.StateRejected, "minimum 60mbit cannot be guaranteed: 999kbit is free"))), "",
		},
		{
			"another policy is refused for the same reason",
			list(running("a", state(v1.StateRejected, "minimum 60mbit cannot be guaranteed"))),
			list(running("a", weight, state(v1.StateRejected, "minimum 70mbit cannot be guaranteed"))),
			"policy_changed a, refused a minimum 70mbit cannot be guaranteed",
		},
		{"still", list(running("a", degraded)), list(running("a", degraded, rates)), ""},
		{"refused", list(running("a", degraded)), list(running("a", rejected, weight)), "policy_changed a, refused a full"},
		{"repaired", list(running("a", rejected)), list(running("a")), "repaired a no longer rejected: full"},
		{"uplink lost", uplink(true, v1.StateOK, ""), uplink(false, v1.StateDegraded, "gone"), "uplink_lost up0 gone"},
		{"uplink back", uplink(false, v1.StateDegraded, "gone"), uplink(true, v1.StateOK, ""), "uplink_back up0"},
		{"uplink still away", uplink(false, v1.StateDegraded, "gone"), uplink(false, v1.StateDegraded, "gone"), ""},
		{"uplink degraded", uplink(true, v1.StateOK, ""), uplink(true, v1.StateDegraded, "no htb"), "degraded up0 no htb"},
		{"uplink repaired", uplink(true, v1.StateDegraded, "no htb"), uplink(true, v1.StateOK, ""), "repaired up0 no longer degraded: no htb"},
		{"engine lost", source(true), source(false), "source_lost docker: refused"},
		{"engine connected", source(false), source(true), "source_connected docker"},
	} {
		tc.after.At = epoch
		var got []string
		for _, e := range Changes(&tc.before, &tc.after) {
			words := []string{string(e.Kind), e.Container, e.Uplink, e.Message}
			words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
			got = append(got, strings.Join(words, " "))
			if !e.At.Equal(epoch) {
				t.Errorf("%s: at %s", tc.name, e.At)
			}
			if withPolicy := e.Kind == v1.EventStarted || e.Kind == v1.EventPolicyChanged; withPolicy != (e.Policy != nil) {
				t.Errorf("%s: policy %+v", tc.name, e.Policy)
			}
		}
		if got := strings.Join(got, ", "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	first := list(running("a"))
	if got := Changes(nil, &first); got != nil {
		t.Errorf("the first snapshot: %+v", got)
	}
}

// TestEFEvents: EF above its maximum is one event when it begins and one when it ends.
func TestEFEvents(t *testing.T) {
	at := func(held bool) *Snapshot {
		return &Snapshot{Snapshot: v1.Snapshot{Containers: []v1.Container{{
			ID: "1", Name: "call", State: v1.StateOK, Direction: v1.Direction{Policy: v1.Policy{Class: v1.ClassAuto}, Classes: []v1.ClassShare{{Class: v1.ClassAF}, {Class: v1.ClassEF, MaxBPS: 5e6, Held: held}}},
		}}}}
	}
	for _, test := range []struct {
		before, after bool
		want          v1.EventKind
	}{{false, true, v1.EventEFHeld}, {true, false, v1.EventEFReleased}, {true, true, ""}} {
		var kinds []v1.EventKind
		for _, e := range Changes(at(test.before), at(test.after)) {
			kinds = append(kinds, e.Kind)
		}
		if test.want == "" && len(kinds) > 0 || test.want != "" && (len(kinds) != 1 || kinds[0] != test.want) {
			t.Errorf("held %t, then %t: %v, want %q", test.before, test.after, kinds, test.want)
		}
	}
}
