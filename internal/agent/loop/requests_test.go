package loop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/test/must"
)

// serve runs the requests of a bench as Run does, until the test ends.
func (b *bench) serve() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case request := <-b.requests:
				request()
			case <-ctx.Done():
				return
			}
		}
	}()
	b.t.Cleanup(func() { cancel(); <-done })
	return context.Background()
}

func ptr(s string) *string { return &s }

func TestSet(t *testing.T) {
	b := newBench(t, 100e6)
	a, c := b.start("a", "min=50mbit", "weight=200"), b.start("c", "min=30mbit")
	ctx := b.serve()
	set := func(name string, change v1.PolicyChange) (v1.Container, error) {
		t.Helper()
		return b.Set(ctx, name, change)
	}

	view, err := set("a", v1.PolicyChange{Min: ptr("60mbit"), Max: ptr("80mbit")})
	if err != nil || view.Policy.MinBPS != 60e6 || view.Policy.MaxBPS != 80e6 || view.Policy.Weight != 200 || view.State != v1.StateOK {
		t.Errorf("set: %+v, %v", view, err)
	}
	if a.admittedBPS != 60e6 {
		t.Errorf("admitted %d", a.admittedBPS)
	}
	applied := b.scheduler.applied[len(b.scheduler.applied)-1]
	if applied.Competitors[1].CeilingBPS != 80e6 {
		t.Errorf("the scheduler was told %+v", applied.Competitors[1])
	}
	if saved, err := state.Open(b.dir); err != nil || saved.Containers[0].Set == nil {
		t.Errorf("what was set is not saved: %v, %+v", err, saved)
	}

	// What is refused changes nothing, not even what would have been fine.
	before := a.container.policy()
	for _, tc := range []struct {
		name   string
		change v1.PolicyChange
		err    error
		says   string
	}{
		{"a", v1.PolicyChange{Weight: ptr("300"), Min: ptr("66mbit")}, ErrRefused, "at most 65mbit"},
		{"a", v1.PolicyChange{Weight: ptr("300"), Max: ptr("fast")}, ErrRefused, "max"},
		{"a", v1.PolicyChange{Max: ptr("10mbit")}, ErrRefused, "above the maximum"},
		{"host", v1.PolicyChange{Weight: ptr("300")}, ErrRefused, "config file"},
		{"nobody", v1.PolicyChange{Weight: ptr("300")}, ErrUnknown, ""},
	} {
		_, err := set(tc.name, tc.change)
		if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("set %s: %v", tc.name, err)
		}
		if a.container.policy() != before || a.admittedBPS != 60e6 || a.refused != nil || b.host.container.policy().Weight != 100 {
			t.Errorf("set %s: changed to %+v", tc.name, a.container.policy())
		}
	}
	var floor *alloc.FloorError
	if _, err := set("a", v1.PolicyChange{Min: ptr("66mbit")}); !errors.As(err, &floor) || floor.OthersBPS != 30e6 || floor.HeldBPS != 60e6 {
		t.Errorf("refusal %v", err)
	}

	// The last bit that is free is free.
	if _, err := set("a", v1.PolicyChange{Min: ptr("65mbit")}); err != nil || a.admittedBPS != 65e6 {
		t.Errorf("set to all that is free: %v", err)
	}
	if view, err = b.Reset(ctx, "a"); err != nil || view.Policy.MinBPS != 50e6 || view.Policy.MaxBPS != 0 || a.admittedBPS != 50e6 {
		t.Errorf("reset: %+v, %v", view, err)
	}
	if _, err := set("c", v1.PolicyChange{Min: ptr("45mbit")}); err != nil || c.admittedBPS != 45e6 {
		t.Errorf("what was reset is free for others: %v", err)
	}
	if _, err := b.Reset(ctx, "nobody"); !errors.Is(err, ErrUnknown) {
		t.Errorf("reset nobody: %v", err)
	}
	if _, err := set("a", v1.PolicyChange{Min: ptr("none")}); err != nil || a.admittedBPS != 0 {
		t.Errorf("no minimum: %v, %d", err, a.admittedBPS)
	}
}

// TestSetIsLogged: the log has what a change made of both directions; of a container that has no values for received traffic,
// where that is not shared, only the one.
func TestSetIsLogged(t *testing.T) {
	b := newBench(t, 100e6)
	var log bytes.Buffer
	b.Agent.log = slog.New(slog.NewTextHandler(&log, nil))
	b.start("a")
	ctx := b.serve()
	for _, tc := range []struct {
		change v1.PolicyChange
		has    []string
		lacks  string
	}{
		{v1.PolicyChange{Weight: ptr("300")}, []string{`name=a policy="{Weight:300 `}, "in="},
		{v1.PolicyChange{InMax: ptr("8mbit")}, []string{`policy="{Weight:300 `, ` in="{Weight:300 MinBPS:0 MaxBPS:8000000 `}, "nothing"},
	} {
		log.Reset()
		_, err := b.Set(ctx, "a", tc.change)
		must.Succeed(t, err)
		for _, text := range tc.has {
			if !strings.Contains(log.String(), text) || strings.Contains(log.String(), tc.lacks) {
				t.Errorf("the log says %q, want %q and not %q", log.String(), text, tc.lacks)
			}
		}
	}
}

// A minimum that was refused is in the way of no other change; to ask for it again is
// refused again. What no link could give is refused to a container without a network, too.
func TestSetBesideARefusal(t *testing.T) {
	b := newBench(t, 100e6)
	b.start("a", "min=80mbit")
	late, lonely := b.start("late", "min=50mbit"), b.start("lonely")
	b.start("hasty", "min=1mbit", "latency=1us")
	b.containers.free(lonely.container)
	lonely.container.Mode = v1.ModeNone
	b.reconcile()
	if late.refused == nil {
		t.Fatal("late is not refused")
	}
	ctx := b.serve()
	for _, tc := range []struct {
		name   string
		change v1.PolicyChange
		says   string // "" if it is made
	}{
		{"late", v1.PolicyChange{Weight: ptr("300")}, ""},
		{"late", v1.PolicyChange{Min: ptr("50mbit")}, "at most 14mbit"},
		{"late", v1.PolicyChange{Weight: ptr("400"), Latency: ptr("20ms")}, "at most 14mbit"},
		{"late", v1.PolicyChange{Min: ptr("13mbit")}, ""},
		{"hasty", v1.PolicyChange{Min: ptr("2mbit")}, ""}, // its bound cannot be kept, with or without that
		{"hasty", v1.PolicyChange{Min: ptr("2mbit"), Latency: ptr("2us")}, "latency 2µs cannot be guaranteed"},
		{"lonely", v1.PolicyChange{Min: ptr("96mbit")}, "at most 95mbit"},
		{"lonely", v1.PolicyChange{Min: ptr("95mbit")}, ""},
	} {
		_, err := b.Set(ctx, tc.name, tc.change)
		if tc.says == "" && err != nil || tc.says != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("set %s %+v: %v, want %q", tc.name, tc.change, err, tc.says)
		}
	}
	if late.container.policy().Weight != 300 || late.admittedBPS != 13e6 {
		t.Errorf("late has %+v, admitted %d", late.container.policy(), late.admittedBPS)
	}
}

// A policy that cannot be saved is in force all the same, and that is what is said.
// Another class takes along what was set for the one before, which nobody could take away
// but with all that was set.
func TestSetAnotherClass(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.start("c")
	ctx := b.serve()
	for _, change := range []v1.PolicyChange{
		{Class: ptr("auto"), EFMax: ptr("20%"), AFMin: ptr("10%"), DSCP: ptr("both"), Weight: ptr("300")},
		{Class: ptr("ef")},
		{Class: ptr("none")},
	} {
		view, err := b.Set(ctx, "c", change)
		if err != nil || view.State != v1.StateOK || view.Policy.Weight != 300 {
			t.Errorf("class %s: %v; %s, %q, weight %d", *change.Class, err, view.State, view.Reason, view.Policy.Weight)
		}
		if ef := c.container.policy().EFMax.Percent; *change.Class == "ef" && ef != 20 {
			t.Errorf("class ef has a maximum of %v%%", ef)
		}
	}
}

func TestSetNotSaved(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	ctx := b.serve()
	if err := os.RemoveAll(b.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.dir, nil, 0o600); err != nil { // no directory any more
		t.Fatal(err)
	}
	const says = "in force, but could not be saved: a restart of the agent loses it; make room or mend the disk, and ask again: write state: "
	view, err := b.Set(ctx, "a", v1.PolicyChange{Weight: ptr("300")})
	if err == nil || !strings.Contains(err.Error(), says) || view.Policy.Weight != 300 || a.container.policy().Weight != 300 {
		t.Errorf("set: %v, weight %d", err, a.container.policy().Weight)
	}
	view, err = b.Reset(ctx, "a")
	if err == nil || !strings.Contains(err.Error(), says) || view.Policy.Weight != 100 || a.container.policy().Weight != 100 {
		t.Errorf("reset: %v, weight %d", err, a.container.policy().Weight)
	}
}

func TestSnapshot(t *testing.T) {
	b := newBench(t, 100e6)
	b.start("second").container.Seen.StartedAt = epoch.AddDate(1, 0, 0)
	b.start("first")
	b.reconcile()
	seen, err := b.Latest(context.Background())
	list, status := seen.Containers, seen.Status
	if err != nil || len(list) != 3 || list[0].Name != "first" || list[1].Name != "second" || list[2].Name != "host" {
		t.Fatalf("containers %+v, %v", list, err)
	}
	if h := list[2]; h.Mode != v1.ModeHost || h.State != v1.StateOK || h.Runtime != "host" {
		t.Errorf("host class %+v", h)
	}
	if !list[1].StartedAt.Equal(epoch.AddDate(1, 0, 0)) {
		t.Errorf("started at %s", list[1].StartedAt)
	}
	if status.Uplink != "up0" || status.RateBPS != 100e6 || status.ReserveBPS != 5e6 || !status.Uplinks[0].Present ||
		status.Scheduler != "fake" || status.State != v1.StateOK || status.Version != "test" || len(status.Sources) != 1 {
		t.Errorf("status %+v", status)
	}
	b.containers.asked = append(b.containers.asked, "podman")
	if sources := b.status().Sources; len(sources) != 1 {
		t.Errorf("with an engine that never came: %+v", sources)
	}
	b.containers.asked = nil
	if sources := b.status().Sources; sources == nil {
		t.Error("without sources there is no list of them, but null in JSON")
	}
	b.machine.gone = true
	b.advance(b.link)
	b.reconcile()
	seen, err = b.Latest(context.Background())
	if status := seen.Status; err != nil || status.State != v1.StateDegraded || !strings.HasPrefix(status.Reason, "up0 is gone") || status.Uplinks[0].Present {
		t.Errorf("status of a lost uplink %+v, %v", status, err)
	}
}

// TestLookingDoesNotWait: while the loop is busy, requests that only read get an answer, and others an error that says what to do.
func TestLookingDoesNotWait(t *testing.T) {
	b := newBench(t, 100e6)
	b.start("a")
	kernel := b.useFlows()
	auto := b.startAuto("auto")
	kernel.flows = map[uint16]int{auto.container.Number: 3}
	b.reconcile()
	ctx := b.serve()
	busy, done := make(chan struct{}), make(chan struct{})
	go func() {
		if err := b.do(ctx, func() { close(busy); <-done }); err != nil {
			t.Error(err)
		}
	}()
	<-busy
	defer close(done)
	late, cancel := context.WithDeadline(ctx, time.Now())
	defer cancel()
	if _, err := b.Reset(late, "a"); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "agent is busy or stopping: try again, ") {
		t.Errorf("a request without an answer in time: %v", err)
	}
	seen, err := b.Latest(ctx)
	if err != nil || len(seen.Containers) != 3 || seen.Status.Uplink != "up0" {
		t.Errorf("snapshot %+v, %v", seen, err)
	}
	for _, name := range []string{"", "auto"} {
		looking, cancel := context.WithTimeout(ctx, 10*time.Second)
		flows, err := b.Flows(looking, name, 2)
		cancel()
		if err != nil || len(flows) != 2 || flows[0].Container != "auto" || flows[0].ID != auto.container.Seen.ID {
			t.Errorf("flows of %q: %+v, %v", name, flows, err)
		}
	}
	if _, err := b.Flows(ctx, "a", 0); !errors.Is(err, ErrRefused) {
		t.Errorf("flows of one whose class is not auto: %v", err)
	}
	if _, err := b.Flows(ctx, "b", 0); !errors.Is(err, ErrUnknown) {
		t.Errorf("flows of nobody: %v", err)
	}
	if got := b.Events().Since(0).Events; len(got) != 1 || got[0].Kind != v1.EventAgentStarted {
		t.Errorf("events %+v", got)
	}
}

// What a request changed is seen by whoever looks after its answer.
func TestSetIsSeen(t *testing.T) {
	b := newBench(t, 100e6)
	b.start("a")
	b.reconcile()
	ctx := b.serve()
	for _, weight := range []string{"200", "300"} {
		if _, err := b.Set(ctx, "a", v1.PolicyChange{Weight: &weight}); err != nil {
			t.Fatal(err)
		}
		seen, err := b.Latest(ctx)
		if err != nil || fmt.Sprint(seen.Containers[0].Policy.Weight) != weight {
			t.Errorf("weight %d after %s was set (%v)", seen.Containers[0].Policy.Weight, weight, err)
		}
	}
	if _, err := b.Set(ctx, "a", v1.PolicyChange{Min: ptr("99mbit")}); !errors.Is(err, ErrRefused) {
		t.Errorf("set to more than there is: %v", err)
	}
	var kinds []v1.EventKind
	for _, event := range b.Events().Since(0).Events {
		kinds = append(kinds, event.Kind)
	}
	want := []v1.EventKind{v1.EventAgentStarted, v1.EventPolicyChanged, v1.EventPolicyChanged, v1.EventRefused}
	if !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
}

// What is sent is counted on, whatever happens to the classes.
func TestTotalsGrow(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	b.reconcile()
	now := epoch
	look := func(stats kernel.ClassStats, directBytes uint64, drops uint32) v1.Share {
		t.Helper()
		now = now.Add(statsInterval)
		b.classifier.offered[a.container.Number] += 1000
		b.classifier.directBytes[a.container.Number] = directBytes
		b.scheduler.kernel.count(a.container.Number, stats)
		b.scheduler.kernel.queues = map[kernel.Handle]kernel.QueueStats{kernel.NewHandle(a.container.Number, 0): {DroppedPackets: drops, MarkedPackets: drops + 1}}
		b.control(now)
		return a.view()
	}
	b.control(now)
	expect := func(got v1.Share, bytes, packets, drops uint64) {
		t.Helper()
		if got.SentBytes != bytes || got.SentPackets != packets || got.DroppedPackets != drops || !got.MeasuredAt.Equal(now) {
			t.Errorf("%+v, want %d bytes, %d packets, %d drops at %s", got, bytes, packets, drops, now)
		}
	}
	expect(look(kernel.ClassStats{SentBytes: 1000, SentPackets: 10}, 500, 2), 1500, 20, 2)
	// The class is made again.
	expect(look(kernel.ClassStats{SentBytes: 300, SentPackets: 3}, 500, 0), 1800, 23, 2)
	// The container gets another number, whose last holder had sent something.
	old := a.container.Number
	b.containers.free(a.container)
	b.reconcile()
	if !b.containers.assign(a.container, old+5) {
		t.Fatal("no number")
	}
	b.reconcile()
	b.control(now)
	expect(look(kernel.ClassStats{SentBytes: 50, SentPackets: 1, BacklogBytes: 7}, 0, 1), 1850, 24, 3)
	if got := a.view(); got.BacklogBytes != 7 {
		t.Errorf("backlog %d", got.BacklogBytes)
	}
}

// A request to an agent that is stuck ends with its context.
func TestRequestsEnd(t *testing.T) {
	b := newBench(t, 100e6)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := b.Latest(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("look at an agent that has not begun: %v", err)
	}
	if _, err := b.Reset(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("reset: %v", err)
	}
}
