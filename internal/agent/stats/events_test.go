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

func TestEvents(t *testing.T) {
	e := NewEvents(epoch)
	first := uint64(epoch.UnixMilli())
	if b := e.Since(0); len(b.Events) > 0 || b.Missed > 0 || b.Closed {
		t.Errorf("nothing has happened: %+v", b)
	}
	more := e.Since(0).More
	e.Add()
	select {
	case <-more:
		t.Error("told of nothing")
	default:
	}
	add := func(n int) {
		for range n {
			e.Add(v1.Event{Kind: v1.EventStarted}, v1.Event{Kind: v1.EventStopped})
		}
	}
	add(1)
	<-more
	numbers := func(b Batch) (list []uint64) {
		for _, event := range b.Events {
			list = append(list, event.Seq-first)
		}
		return list
	}
	for _, tc := range []struct {
		name  string
		since uint64
		want  []uint64
	}{
		{"from the start", 0, []uint64{0, 1}},
		{"after the events of an earlier agent", first - 5000, []uint64{0, 1}},
		{"after the first", first, []uint64{1}},
		{"after the last", first + 1, nil},
		{"from the future", first + 2, []uint64{0, 1}},
	} {
		if b := e.Since(tc.since); !slices.Equal(numbers(b), tc.want) || b.Missed > 0 {
			t.Errorf("%s: %v, missed %d", tc.name, numbers(b), b.Missed)
		}
	}

	// A reader that sleeps misses what is not kept, and is told how much.
	add(keptEvents/2 + 4) // 10 more than are kept, with the 2 before
	var got []uint64
	missed, since := uint64(0), first+1
	for {
		b := e.Since(since)
		if len(b.Events) == 0 {
			break
		}
		if len(b.Events) > batchEvents {
			t.Fatalf("%d events at once", len(b.Events))
		}
		missed += b.Missed
		got = append(got, numbers(b)...)
		since = b.Events[len(b.Events)-1].Seq
	}
	if missed != 8 || len(got) != keptEvents || got[0] != 10 || got[len(got)-1] != keptEvents+9 {
		t.Errorf("missed %d, got %d from %d", missed, len(got), got[0])
	}
	for i := range got {
		if got[i] != got[0]+uint64(i) {
			t.Fatalf("event %d has number %d", i, got[i])
		}
	}

	// Whoever waits when it ends is told.
	more = e.Since(since).More
	e.Close()
	e.Close()
	<-more
	e.Add(v1.Event{Kind: v1.EventStopped})
	if b := e.Since(since); !b.Closed || len(b.Events) != 1 {
		t.Errorf("after the end: %+v", b)
	}
}

// Nobody who reads makes whoever adds wait, and nobody is told a thing twice.
func TestEventsAtOnce(t *testing.T) {
	e := NewEvents(epoch)
	const events, readers = 20_000, 4
	done := make(chan uint64, readers)
	for range readers {
		go func() {
			since, seen := uint64(0), uint64(0)
			for {
				b := e.Since(since)
				seen += b.Missed
				for _, event := range b.Events {
					seen++
					since = event.Seq
				}
				if len(b.Events) > 0 {
					continue
				}
				if b.Closed {
					done <- seen
					return
				}
				<-b.More
			}
		}()
	}
	for range events {
		e.Add(v1.Event{})
	}
	e.Close()
	for range readers {
		if seen := <-done; seen != events {
			t.Errorf("a reader got or missed %d events of %d", seen, events)
		}
	}
}

func TestKeeps(t *testing.T) {
	e := NewEvents(time.UnixMilli(5000))
	keeps := func(want map[uint64]bool) {
		t.Helper()
		for seq, kept := range want {
			if e.Keeps(seq) != kept {
				t.Errorf("all after %d: %t", seq, !kept)
			}
		}
	}
	keeps(map[uint64]bool{0: false, 4998: false, 4999: true, 5000: false})
	for range keptEvents + 10 {
		e.Add(v1.Event{})
	}
	keeps(map[uint64]bool{4999: false, 5008: false, 5009: true, 5000 + keptEvents + 9: true, 5000 + keptEvents + 10: false})
}
