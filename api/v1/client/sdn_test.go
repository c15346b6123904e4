package client

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
)

// TestSDNUnreachable: a user without access to the socket is not told that nothing listens.
func TestSDNUnreachable(t *testing.T) {
	for cause, says := range map[error]string{
		syscall.ENOENT: "start one with `weir sdn run`", syscall.ECONNREFUSED: "no controller is running", syscall.EACCES: "run as root", io.EOF: "ask the controller: EOF",
	} {
		if err := NewSDN("/run/x.sock").peer.Unreachable(cause); !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", cause, err)
		}
	}
	if _, err := NewSDN("/nowhere").Status(t.Context()); !errors.Is(err, ErrNoController) || !strings.Contains(err.Error(), "on /nowhere") {
		t.Error(err)
	}
}

// TestSDNRequests: each method asks for its path, and a refusal keeps its status.
func TestSDNRequests(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Method + " " + r.URL.RequestURI()
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"error": "eth1 has 1mbit left"}`)
	}))
	defer server.Close()
	c := NewSDN("/nowhere")
	c.peer.Base, c.peer.HTTP = server.URL, server.Client()
	ctx, r := t.Context(), v1.SDNPromiseRequest{ID: "a/b c"}
	for want, ask := range map[string]func() error{
		"GET /v1/links": func() error { _, err := c.Links(ctx); return err },
		"GET /v1/paths?from=198.18.0.1&from=198.18.0.2&to=2001%3Adb8%3A%3A1": func() error {
			_, err := c.Paths(ctx, netip.MustParseAddr("2001:db8::1"), []netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")})
			return err
		},
		"GET /v1/sdn/flows":             func() error { _, err := c.Flows(ctx); return err },
		"POST /v1/promises":             func() error { _, err := c.Reserve(ctx, r); return err },
		"PUT /v1/promises/a%2Fb%20c":    func() error { _, err := c.Confirm(ctx, r); return err },
		"DELETE /v1/promises/a%2Fb%20c": func() error { return c.Release(ctx, "a/b c") },
	} {
		var refused *Error
		if err := ask(); got != want || !errors.As(err, &refused) || refused.Status != http.StatusConflict || refused.Message != "eth1 has 1mbit left" {
			t.Errorf("asked %s, want %s: %v", got, want, err)
		}
	}
}

// TestOpenSDN: a controller is at a socket or behind TLS; what is neither is refused.
func TestOpenSDN(t *testing.T) {
	for address, says := range map[string]string{
		"/run/x.sock": "", "https://sdn:7485": "", "http://sdn:7485": "is not where the controller listens", "https://sdn": "is not where the controller listens",
	} {
		c, err := OpenSDN(address, Options{})
		if (c == nil) != (err != nil) || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", address, err)
		}
	}
	c, err := OpenSDN("https://127.0.0.1:1", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Links(t.Context()); !errors.Is(err, ErrNoController) || !strings.Contains(err.Error(), "start one there with --api of `weir sdn run`") {
		t.Error(err)
	}
}
