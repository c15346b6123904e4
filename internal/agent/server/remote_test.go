package server

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/test/must"
	"github.com/weir-project/weir/test/pki"
)

// remoteBed is an agent that listens for other hosts.
type remoteBed struct {
	agent     *fakeAgent
	authority *pki.Authority
	url       string
	// The tokens of who may look, and of who may change policies.
	reader, admin string
}

func serveRemote(t *testing.T) *remoteBed {
	t.Helper()
	b := &remoteBed{agent: &fakeAgent{events: stats.NewEvents(time.Now())}, authority: pki.New(t)}
	tokens := filepath.Join(t.TempDir(), "tokens")
	for role, token := range map[access.Role]*string{access.Read: &b.reader, access.Admin: &b.admin} {
		var err error
		if *token, err = access.AddToken(tokens, role.String(), role); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	pair := b.authority.Server(t, "node.example")
	certificates, err := access.NewCertificates(access.TLSFiles{Certificate: pair.Certificate, Key: pair.Key, ClientCA: b.authority.Path}, []string{"hub"}, log)
	must.Succeed(t, err)
	listener, err := httpapi.ListenTLS("127.0.0.1:0", certificates)
	must.Succeed(t, err)
	s := New(b.agent, log).Remote(access.NewTokens(tokens, log), certificates)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	b.url = "https://" + listener.Addr().String()
	return b
}

// as is a client with a token, a certificate, or neither.
func (b *remoteBed) as(t *testing.T, token string, pair pki.Pair) *client.Client {
	t.Helper()
	trust, err := client.LoadTLS(b.authority.Path, pair.Certificate, pair.Key)
	must.Succeed(t, err)
	c, err := client.New(b.url, client.Options{Token: token, TLS: trust})
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestRemoteRoles(t *testing.T) {
	b := serveRemote(t)
	other := pki.New(t)
	hour := time.Now().Add(time.Hour)
	for _, tc := range []struct {
		name, token    string
		pair           pki.Pair
		looks, changes bool
		refused        string // what is said to who may not even look
	}{
		{"a caller without proof", "", pki.Pair{}, false, false, "the caller is unknown: send a token"},
		{"a wrong token", "weir_wrong", pki.Pair{}, false, false, "this token is not valid"},
		{"half a token", b.admin[:20], pki.Pair{}, false, false, "this token is not valid"},
		{"a token that may look", b.reader, pki.Pair{}, true, false, ""},
		{"a token that may change", b.admin, pki.Pair{}, true, true, ""},
		{"a certificate", "", b.authority.Client(t, "somebody", hour), true, false, ""},
		{"the certificate of an admin", "", b.authority.Client(t, "hub", hour), true, true, ""},
		{"an expired certificate", "", b.authority.Client(t, "hub", time.Now().Add(-time.Minute)), false, false, "client_ca (remote error: tls: expired certificate)"},
		{"a certificate of somebody else's authority", "", other.Client(t, "hub", hour), false, false, "not to be trusted: it does not take the certificate that it is shown"},
		{"a server's certificate", "", b.authority.Server(t, "hub"), false, false, "not to be trusted: it does not take the certificate that it is shown"},
		{"a wrong token with a certificate", "weir_wrong", b.authority.Client(t, "hub", hour), false, false, "this token is not valid"},
		{"a token before a certificate", b.reader, b.authority.Client(t, "hub", hour), true, false, ""},
	} {
		c := b.as(t, tc.token, tc.pair)
		b.agent.called = ""
		_, err := c.Status(t.Context())
		if (err == nil) != tc.looks || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s looks: %v", tc.name, err)
		}
		b.agent.called = ""
		_, err = c.Set(t.Context(), "web", v1.PolicyChange{Weight: ptr("1")})
		if (err == nil) != tc.changes || (b.agent.called != "") != tc.changes {
			t.Errorf("%s changes: %v, %q", tc.name, err, b.agent.called)
		}
		if tc.looks && !tc.changes && (err == nil || !strings.Contains(err.Error(), "has no role for changes, which need the role admin")) {
			t.Errorf("%s changes: %v", tc.name, err)
		}
		b.agent.called = ""
		var said *client.Error
		if err := c.Down(t.Context()); err == nil || b.agent.called != "" || tc.changes && (!errors.As(err, &said) || said.Status != http.StatusForbidden) {
			t.Errorf("%s takes Weir down: %v", tc.name, err)
		}
	}
}

// A browser proves who its user is for any web site: what comes from one is refused,
// and so is a name that leads here.
func TestRemoteWebPages(t *testing.T) {
	b := serveRemote(t)
	pair := b.authority.Client(t, "hub", time.Now().Add(time.Hour))
	trust, err := client.LoadTLS(b.authority.Path, pair.Certificate, pair.Key)
	must.Succeed(t, err)
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
	defer browser.CloseIdleConnections()
	for _, tc := range []struct {
		name, method, path, host string
		header                   [2]string
		status                   int
	}{
		{"by hand", "GET", "/v1/status", "", [2]string{"Sec-Fetch-Site", "none"}, 200},
		{"by its name", "GET", "/v1/status", "node.example", [2]string{}, 200},
		{"by another name", "GET", "/v1/status", "evil.example", [2]string{}, 421},
		{"by another address", "GET", "/v1/status", "127.0.0.2", [2]string{}, 421},
		{"a form", "POST", "/v1/reload", "", [2]string{"Origin", "https://evil.example"}, 403},
		{"a form of a file", "POST", "/v1/reload", "", [2]string{"Origin", "null"}, 403},
		{"a page of the same host", "PATCH", "/v1/containers/web/policy", "", [2]string{"Sec-Fetch-Site", "same-site"}, 403},
		{"a picture", "GET", "/v1/snapshot", "", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"a preflight", "OPTIONS", "/v1/containers/web/policy", "", [2]string{"Origin", "https://evil.example"}, 403},
	} {
		b.agent.called = ""
		r, err := http.NewRequestWithContext(t.Context(), tc.method, b.url+tc.path, strings.NewReader(""))
		must.Succeed(t, err)
		r.Host = tc.host
		if tc.header[0] != "" {
			r.Header.Set(tc.header[0], tc.header[1])
		}
		response, err := browser.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != tc.status || (b.agent.called != "") != (tc.status == 200) {
			t.Errorf("%s: %s %s, the agent was asked for %q", tc.name, response.Status, body, b.agent.called)
		}
		if response.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: another origin may read the answer", tc.name)
		}
	}
}

// A caller that guesses tokens, or asks all the time, is told to wait, and other callers are not held up.
// Time stands still, so that a slow machine asks as much at once as a fast one.
func TestRemoteLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serveRemote(t)
		guesser, reader := b.as(t, "weir_guess", pki.Pair{}), b.as(t, b.reader, pki.Pair{})
		last := func(c *client.Client, times int) (status int) {
			for range times {
				_, err := c.Status(t.Context())
				var said *client.Error
				if status = 200; errors.As(err, &said) {
					status = said.Status
				} else if err != nil {
					t.Fatal(err)
				}
			}
			return status
		}
		if guess, more := last(guesser, httpapi.FailedBurst), last(guesser, 1); guess != 401 || more != 429 {
			t.Errorf("who guesses gets %d, and then %d", guess, more)
		}
		if asked, more := last(reader, httpapi.CallerBurst), last(reader, 1); asked != 200 || more != 429 {
			t.Errorf("who asks all the time gets %d, and then %d", asked, more)
		}
		if status := last(b.as(t, b.admin, pki.Pair{}), 1); status != 200 {
			t.Errorf("another caller gets %d meanwhile", status)
		}
	})
}

// Only TLS 1.3 is spoken, and nothing without it.
func TestRemoteWithoutTLS(t *testing.T) {
	b := serveRemote(t)
	address := strings.TrimPrefix(b.url, "https://")
	if _, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("an old TLS will do")
	}
	conn, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: node.example\r\nAuthorization: Bearer "+b.admin+"\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	answer, _ := io.ReadAll(conn)
	if b.agent.called != "" || strings.Contains(string(answer), "up0") {
		t.Errorf("without TLS: %q, %q", answer, b.agent.called)
	}
}
