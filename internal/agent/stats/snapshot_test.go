package stats

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

func TestAsOf(t *testing.T) {
	taken := epoch.Add(time.Minute)
	snapshot := func() *Snapshot {
		return &Snapshot{
			At: taken,
			Snapshot: v1.Snapshot{Status: v1.Status{State: v1.StateOK, Uplinks: []v1.Uplink{{Name: "up0", State: v1.StateOK}}}, Containers: []v1.Container{
				{Name: "a", State: v1.StateOK, Direction: v1.Direction{Shares: []v1.Share{{Uplink: "up0", MeasuredAt: taken}, {Uplink: "up1"}}}},
				{Name: "b", State: v1.StateRejected, Reason: "no", Direction: v1.Direction{Shares: []v1.Share{{Uplink: "up0", MeasuredAt: taken}}}},
				{Name: "lost", State: v1.StateOK, Direction: v1.Direction{Shares: []v1.Share{{Uplink: "up0", MeasuredAt: taken}, {Uplink: "up1", MeasuredAt: taken.Add(-9 * time.Second)}}}},
			}},
		}
	}
	states := func(s *Snapshot) string {
		words := []string{string(s.Status.State), string(s.Status.Uplinks[0].State)}
		for _, c := range s.Containers {
			words = append(words, string(c.State))
		}
		return strings.Join(words, " ")
	}
	for _, tc := range []struct {
		name   string
		at     time.Time
		ageMS  float64
		want   string
		reason string // of the last container
	}{
		{"at once", taken, 0, "ok ok ok rejected ok", ""},
		{"a clock that is behind", taken.Add(-time.Second), 0, "ok ok ok rejected ok", ""},
		{"a moment later", taken.Add(1500 * time.Microsecond), 1.5, "ok ok ok rejected ok", ""},
		{"one uplink is not looked at", taken.Add(2 * time.Second), 2000, "ok ok ok rejected degraded", "up1: nothing was measured for 11s"},
		{"just in time", taken.Add(StaleAfter), 10_000, "ok ok ok rejected degraded", "up1: nothing was measured for 19s"},
		{"the loop stands", taken.Add(12 * time.Second), 12_000, "degraded degraded degraded rejected degraded", "the agent has not looked for 12s: it is busy or stuck"},
	} {
		s := snapshot()
		seen := s.AsOf(tc.at)
		if got := states(seen); got != tc.want || seen.Status.AgeMS != tc.ageMS {
			t.Errorf("%s: %s, %g ms old; want %s, %g ms", tc.name, got, seen.Status.AgeMS, tc.want, tc.ageMS)
		}
		if got := seen.Containers[2].Reason; got != tc.reason {
			t.Errorf("%s: reason %q, want %q", tc.name, got, tc.reason)
		}
		if !reflect.DeepEqual(s, snapshot()) {
			t.Errorf("%s: the snapshot was changed", tc.name)
		}
	}
	seen := snapshot().AsOf(taken.Add(time.Minute))
	if got := seen.Containers[1].Reason; got != "no; the agent has not looked for 1m0s: it is busy or stuck" {
		t.Errorf("a reason that was there: %q", got)
	}
}

func TestBoard(t *testing.T) {
	b := NewBoard()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Latest(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("before the first: %v", err)
	}
	first, second := &Snapshot{At: epoch}, &Snapshot{At: epoch.Add(time.Second)}
	is := func(got, want *Snapshot) bool { return got.At.Equal(want.At) }
	waited := make(chan *Snapshot)
	go func() {
		s, err := b.Latest(t.Context())
		if err != nil {
			t.Error(err)
		}
		waited <- s
	}()
	if before := b.Publish(first); before != nil {
		t.Errorf("before the first there was %+v", before)
	}
	if got := <-waited; !is(got, first) {
		t.Errorf("waited for %+v", got)
	}
	if before := b.Publish(second); before != first {
		t.Errorf("before the second there was %+v", before)
	}
	if got, err := b.Latest(ended); err != nil || !is(got, second) {
		t.Errorf("latest %+v, %v", got, err)
	}
}

// TestHasFlows: a flow table's number leads to the container that has it, and to no other.
func TestHasFlows(t *testing.T) {
	s := &Snapshot{
		Snapshot: v1.Snapshot{Containers: []v1.Container{{ID: "plain"}, {ID: "auto"}}},
		Places:   []Place{{}, {FlowNumber: 7}},
	}
	for id, want := range map[string]bool{"auto": true, "plain": false, "gone": false} {
		if got := s.HasFlows(id, 7); got != want {
			t.Errorf("%s: %t, want %t", id, got, want)
		}
	}
	if s.HasFlows("auto", 8) {
		t.Error("number 8 has no container")
	}
}
