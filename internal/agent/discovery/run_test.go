package discovery

import (
	"context"
	"errors"
	"testing"
	"time"
)

// fakeSource reports one container, then waits or fails.
type fakeSource struct {
	name string
	err  error
}

func (s fakeSource) Name() string { return s.name }

func (s fakeSource) Run(ctx context.Context, events chan<- Event) error {
	select {
	case events <- Event{Source: s.name, Snapshot: &Snapshot{}}:
	case <-ctx.Done():
		return nil
	}
	if s.err != nil {
		return s.err
	}
	<-ctx.Done()
	return nil
}

func TestRunKeepsOtherSourcesWhenOneFails(t *testing.T) {
	broken := errors.New("broken")
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan Event)
	done := make(chan error)
	go func() {
		done <- Run(ctx, []Source{fakeSource{name: "a"}, fakeSource{"b", broken}, fakeSource{name: "c"}}, events)
	}()
	snapshots, failed := 0, ""
	for range 4 {
		e := <-events
		if e.Snapshot != nil {
			snapshots++
		} else if errors.Is(e.Disconnected, broken) {
			failed = e.Source
		}
	}
	if snapshots != 3 || failed != "b" {
		t.Errorf("%d snapshots, %q failed", snapshots, failed)
	}
	select {
	case err := <-done:
		t.Fatalf("Run ended: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run after its context ended: %v", err)
	}
}

func TestRunEndsWhenAllSourcesFail(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	events := make(chan Event, 10)
	err := Run(t.Context(), []Source{fakeSource{"a", one}, fakeSource{"b", two}}, events)
	if !errors.Is(err, one) || !errors.Is(err, two) {
		t.Errorf("got %v", err)
	}
}

func TestRunOfNothing(t *testing.T) {
	if err := Run(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
}
