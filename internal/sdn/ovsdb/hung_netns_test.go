//go:build netns

package ovsdb

import (
	"context"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// TestDatabaseHangs: of a database that is there and does not answer nobody is told
// that all is well; once it answers again, so it is.
func TestDatabaseHangs(t *testing.T) {
	address, _, server := database(t)
	m := New(Options{
		Address: address, RateBPS: 1e8, Queues: qos.Shares{EFMax: 0.5, AFMin: 0.3}.Map(),
		Controls: func(topology.DPID) bool { return true }, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	state := func(want string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			status := m.Status()
			if status[topology.Port{Switch: 0xab, Number: 1}].State == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("not %q within a minute: %+v", want, status)
			}
		}
	}
	state("ok")
	signal := func(s syscall.Signal) {
		if err := server.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	state("unknown")
	signal(syscall.SIGCONT)
	state("ok")
}
