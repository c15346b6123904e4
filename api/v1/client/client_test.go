package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body string) roundTripper {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Header: http.Header{},
			Body: io.NopCloser(strings.NewReader(body)),
		}, nil
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.sock")
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	for _, socket := range []string{missing, stale} {
		_, err := Unix(socket).Status(t.Context())
		if !errors.Is(err, ErrNoAgent) || !strings.Contains(err.Error(), socket) || !strings.Contains(err.Error(), "weir agent --uplink") {
			t.Errorf("%s: %v", socket, err)
		}
	}
	if _, err := Unix("").Status(t.Context()); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("no path at all: %v", err)
	}
	for _, tc := range []struct {
		name      string
		transport roundTripper
		says      string
	}{
		{"no permission", func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", fs.ErrPermission)}
		}, "not allowed to use /s: run as root"},
		{"breaks off", func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, "ask the agent: "},
		{"another server's error", answer(502, "<html>"), "the agent answered 502 Bad Gateway"},
		{"another program", answer(404, "404 page not found"), "the agent answered 404 Not Found: another program listens there"},
		{"an error without a reason", answer(500, "{}"), "the agent answered 500 Internal Server Error"},
		{"sent elsewhere", answer(302, ""), "the agent answered 302 Found"},
		{"a broken answer", answer(200, `{"uplink": `), "read the agent's answer: "},
		{"another agent's answer", answer(200, `[]`), "read the agent's answer: "},
	} {
		client := Unix("/s")
		client.peer.HTTP.Transport = tc.transport
		if _, err := client.Status(t.Context()); err == nil || !strings.Contains(err.Error(), tc.says) || errors.Is(err, ErrNoAgent) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}

	// What the agent says arrives with its status.
	client := Unix("/s")
	client.peer.HTTP.Transport = answer(409, `{"status": 409, "detail": "refused: no", "error": "refused: no"}`)
	var said *Error
	if _, err := client.Reset(t.Context(), "web"); !errors.As(err, &said) || said.Status != 409 || err.Error() != "refused: no" {
		t.Errorf("refused: %v", err)
	}

	// A request can be given up.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var refused *url.Error
	if _, err := Unix(missing).Status(ctx); !errors.Is(err, context.Canceled) || !errors.As(err, &refused) {
		t.Errorf("given up: %v", err)
	}
}

// An answer without end is not read to it.
func TestAnswerWithoutEnd(t *testing.T) {
	read := 0
	client := Unix("/s")
	client.peer.HTTP.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
		endless := readerFunc(func(p []byte) (int, error) {
			for i := range p {
				p[i] = ' '
			}
			read += len(p)
			return len(p), nil
		})
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(endless)}, nil
	})
	if _, err := client.Status(t.Context()); err == nil || read > 128<<20 {
		t.Errorf("%d bytes read: %v", read, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestAddresses(t *testing.T) {
	for _, tc := range []struct{ address, base, says string }{
		{"/run/weir/weir.sock", "http://weir", ""},
		{"https://gateway:7481", "https://gateway:7481", ""},
		{"https://[2001:db8::1]:7481/", "https://[2001:db8::1]:7481", ""},
		{"", "", "write https://HOST:PORT, or the path"},
		{"gateway:7481", "", "write https://HOST:PORT"},
		{"https://gateway", "", "write https://HOST:PORT"},
		{"https://:7481", "", "write https://HOST:PORT"},
		{"http://gateway:7481", "", "write https://HOST:PORT"},
		{"https://gateway:x", "", "write https://HOST:PORT"},
		{"https://gateway:7481/v1", "", "write https://gateway:7481"},
		{"https://gateway:7481?token=x", "", "write https://gateway:7481"},
		{"https://me:secret@gateway:7481", "", "write https://gateway:7481"},
	} {
		c, err := New(tc.address, Options{})
		switch {
		case tc.says == "" && (err != nil || c.peer.Base != tc.base):
			t.Errorf("%q: %+v, %v", tc.address, c, err)
		case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%q: %v", tc.address, err)
		}
	}
}

func TestNotAToken(t *testing.T) {
	for _, token := range []string{"two words", "line\n", "\x1b[31m", "tökén"} {
		if _, err := New("https://gateway:7481", Options{Token: token}); err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// What nobody listens at says how to start one there.
func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, err := New("https://"+l.Addr().String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := c.Status(ctx); !errors.Is(err, ErrNoAgent) || !strings.Contains(err.Error(), "`listen`") {
		t.Error(err)
	}
}
