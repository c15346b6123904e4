package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"log/slog"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/test/must"
	"github.com/weir-project/weir/test/pki"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// ended waits until the other side has closed a connection, and says whether it has.
func ended(t *testing.T, conn net.Conn) bool {
	t.Helper()
	must.Succeed(t, conn.SetReadDeadline(time.Now().Add(patience)))
	_, err := io.Copy(io.Discard, conn)
	var late net.Error
	return !errors.As(err, &late) || !late.Timeout()
}

func dial(t *testing.T, network, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, address)
	must.Succeed(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Whoever may open the socket cannot use up the agent's files, and who asks at once
// comes through beside those who say nothing.
func TestSilentConnections(t *testing.T) {
	server := New(&fakeAgent{events: stats.NewEvents(time.Now())}, slog.New(slog.DiscardHandler)).Socket(access.Admin)
	if server.IdleTimeout == 0 {
		t.Error("a connection that nobody uses stays open for ever")
	}
	socket := serve(t, server)
	var open []net.Conn
	for range 3 * socketBudget.Strangers {
		open = append(open, dial(t, "unix", socket))
	}
	for i, conn := range open[:2*socketBudget.Strangers] {
		if !ended(t, conn) {
			t.Fatalf("of %d silent connections, number %d is still open", len(open), i)
		}
	}
	if _, err := client.Unix(socket).Status(t.Context()); err != nil {
		t.Errorf("beside silent connections: %v", err)
	}
}

// Root has so many connections; one that is closed makes room again.
func TestConnectionsOfRoot(t *testing.T) {
	socket := serve(t, New(&fakeAgent{events: stats.NewEvents(time.Now())}, slog.New(slog.DiscardHandler)).Socket(access.Admin))
	ask := func() (net.Conn, string) {
		conn := dial(t, "unix", socket)
		if _, err := io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: weir\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 1<<10)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		n, err := conn.Read(answer)
		must.Succeed(t, err)
		return conn, string(answer[:n])
	}
	var open []net.Conn
	for i := range socketBudget.Roles[access.Root] {
		conn, answer := ask()
		if open = append(open, conn); !strings.Contains(answer, " 200 OK") {
			t.Fatalf("connection %d: %s", i, answer)
		}
	}
	if _, answer := ask(); !strings.Contains(answer, " 503 ") || !strings.Contains(answer, "too many connections at once of root") {
		t.Errorf("one connection too many: %s", answer)
	}
	open[0].Close()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, answer := ask(); strings.Contains(answer, " 200 OK") {
			return
		} else if time.Now().After(end) {
			t.Fatalf("when one is closed: %s", answer)
		}
	}
}

// Hundreds who say nothing, from the address of who asks, keep out nobody who has a
// token; nor do those who may look and use up all of their connections.
func TestRemoteCrowd(t *testing.T) {
	b := serveRemote(t)
	address := strings.TrimPrefix(b.url, "https://")
	for i := range httpapi.RemoteBudget.Strangers + 300 {
		conn := dial(t, "tcp", address)
		if i%3 == 0 { // half a greeting
			_, _ = conn.Write([]byte{0x16, 0x03, 0x01, 0x02})
		}
	}
	ask := func(who, token string) error {
		began := time.Now()
		_, err := b.as(t, token, pki.Pair{}).Status(t.Context())
		t.Logf("%s: %v after %s", who, err, time.Since(began))
		return err
	}
	if err := ask("admin beside 300", b.admin); err != nil {
		t.Errorf("beside 300 silent connections: %v", err)
	}
	// Slow readers, with a token that may look: what they ask for is sent until nobody
	// reads it any more.
	trust, err := client.LoadTLS(b.authority.Path, "", "")
	must.Succeed(t, err)
	trust.ServerName = "node.example"
	for i := range httpapi.RemoteBudget.Caller {
		conn, err := tls.DialWithDialer(&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i))}}, "tcp", address, trust)
		must.Succeed(t, err)
		t.Cleanup(func() { conn.NetConn().Close() })
		request := fmt.Sprintf("GET /v1/events HTTP/1.1\r\nHost: node.example\r\nAuthorization: Bearer %s\r\n\r\n", b.reader)
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil { // it is let in
			t.Fatal(err)
		}
	}
	var said *client.Error
	if err := ask("one reader more", b.reader); !errors.As(err, &said) || said.Status != http.StatusServiceUnavailable {
		t.Errorf("a reader with %d connections opens another: %v", httpapi.RemoteBudget.Caller, err)
	}
	if err := ask("admin beside the readers", b.admin); err != nil {
		t.Errorf("beside slow readers: %v", err)
	}
}

// Handshakes cost the agent most: a host that begins many is told to wait, and other hosts are not held up.
// Time stands still, so that a slow machine begins as many at once as a fast one.
func TestRemoteHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serveRemote(t)
		address := strings.TrimPrefix(b.url, "https://")
		greet := func(from byte) error {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, from)}}
			conn, err := tls.DialWithDialer(dialer, "tcp", address, &tls.Config{InsecureSkipVerify: true})
			if err == nil {
				conn.Close()
			}
			return err
		}
		for i := range httpapi.HandshakeBurst {
			if err := greet(1); err != nil {
				t.Fatalf("greeting %d: %v", i+1, err)
			}
		}
		if greet(1) == nil {
			t.Errorf("%d greetings at once are all answered", httpapi.HandshakeBurst+1)
		}
		if err := greet(2); err != nil {
			t.Errorf("from another address meanwhile: %v", err)
		}
	})
}
