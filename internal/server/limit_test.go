package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/access"
	"github.com/weir-project/weir/internal/stats"
)

// Whoever may open the socket cannot use up the agent's files, and what was closed
// makes room again.
func TestTooManyConnections(t *testing.T) {
	server := New(&fakeAgent{events: stats.NewEvents(time.Now())}, slog.New(slog.DiscardHandler)).Socket(access.Admin)
	if server.IdleTimeout == 0 {
		t.Error("a connection that nobody uses stays open for ever")
	}
	socket := serve(t, server)
	var open []net.Conn
	for range maxConnections + 1 {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
	}
	last := open[maxConnections]
	if err := last.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("one connection too many: %v, want it closed", err)
	}
	for _, conn := range open {
		conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		if _, err = client.Unix(socket).Status(ctx); err == nil {
			return
		}
	}
	t.Errorf("when they are closed: %v", err)
}
