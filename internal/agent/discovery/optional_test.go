package discovery

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// snapshots is a source that reports one snapshot.
type snapshots struct{}

func (snapshots) Name() string { return "late" }

func (snapshots) Run(ctx context.Context, events chan<- Event) error {
	events <- Event{Source: "late", Snapshot: &Snapshot{}}
	<-ctx.Done()
	return nil
}

// TestOptional: an engine that is started after the agent is noticed, and nothing
// is said of one that is not there.
func TestOptional(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	path := filepath.Join(t.TempDir(), "engine.sock")
	events, done := make(chan Event), make(chan error, 1)
	go func() {
		done <- Run(ctx, []Source{Optional{Source: snapshots{}, Path: path, Interval: time.Millisecond}}, events)
	}()
	select {
	case e := <-events:
		t.Fatalf("without a socket: %+v", e)
	case <-time.After(20 * time.Millisecond):
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-events:
		if e.Source != "late" || e.Snapshot == nil {
			t.Errorf("got %+v", e)
		}
	case <-time.After(30 * time.Second):
		t.Error("the socket is not noticed")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	// It also ends while it waits.
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := (Optional{Source: snapshots{}, Path: path + "2"}).Run(ctx, events); err != nil {
		t.Error(err)
	}
}
