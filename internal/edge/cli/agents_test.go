package cli

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/run"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/test/must"
	"github.com/weir-project/weir/test/pki"
)

const agentsToken = "weir_t0ken"

// agentsBehindTLS answers as an agent of a version does, to those with a certificate of the authority or
// with the token, and returns its port.
func agentsBehindTLS(t *testing.T, authority *pki.Authority, version string) uint16 {
	t.Helper()
	pair := authority.Server(t, "node.example")
	certificate, err := tls.LoadX509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := os.ReadFile(authority.Path)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(trusted)
	answers := map[string]any{
		"/v1/node":     v1.Node{Measured: v1.Measured{At: time.Now(), Hostname: "near", CPUs: 4, MemoryBytes: 1 << 30}},
		"/v1/snapshot": v1.Snapshot{Status: v1.Status{Version: version, Uplinks: []v1.Uplink{{Name: "eth0", RateBPS: 100e6, Present: true}}}},
		"/v1/access":   v1.Access{},
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, known := answers[r.URL.Path]
		switch {
		case len(r.TLS.VerifiedChains) == 0 && r.Header.Get("Authorization") != "Bearer "+agentsToken:
			w.WriteHeader(http.StatusUnauthorized)
			answer = map[string]any{"status": http.StatusUnauthorized, "detail": "who asks?", "error": "who asks?"}
		case !known:
			w.WriteHeader(http.StatusNotFound)
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: clients, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // who is refused
	server.StartTLS()
	t.Cleanup(server.Close)
	return netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
}

// TestAgentsOverTLS: weir-edge measures nodes by agents that are reached over TLS, with a
// certificate of its own or a token, and says why where they do not let it in.
func TestAgentsOverTLS(t *testing.T) {
	authority, other := pki.New(t), pki.New(t)
	port, endless := agentsBehindTLS(t, authority, "v1"), agentsBehindTLS(t, authority, strings.Repeat("1", maxAgentBytes))
	later := time.Now().Add(time.Hour)
	ours, foreign := authority.Client(t, "weir-edge", later), other.Client(t, "weir-edge", later)
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(agentsToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("https://{address}:%d", port)
	node := runtime.Node{Name: "near", Address: netip.MustParseAddr("127.0.0.1"), Ready: true}
	for _, test := range []struct {
		name   string
		option agentOptions
		says   string // "" if it is let in
	}{
		{"a certificate", agentOptions{ca: authority.Path, cert: ours.Certificate, key: ours.Key}, ""},
		{"a token", agentOptions{ca: authority.Path, tokenFile: tokenFile}, ""},
		{"neither", agentOptions{ca: authority.Path}, "who asks?"},
		{"a certificate of another authority", agentOptions{ca: authority.Path, cert: foreign.Certificate, key: foreign.Key}, "tls: "},
		{"agents that say too much", agentOptions{url: fmt.Sprintf("https://{address}:%d", endless), ca: authority.Path, tokenFile: tokenFile}, "it has more than 8 MiB"},
		{"agents that nobody vouches for", agentOptions{ca: other.Path, cert: ours.Certificate, key: ours.Key}, "certificate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.option.url = cmp.Or(test.option.url, url)
			nodes, _, err := test.option.nodes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var seen monitor.Node
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				seen = nodes.Measure(t.Context(), []runtime.Node{node}, nil)[0].Reported
				if seen.State == monitor.StateReady || test.says != "" && strings.Contains(seen.Reason, test.says) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("it is %s: %q", seen.State, seen.Reason)
				}
			}
			if in := seen.State == monitor.StateReady; in != (test.says == "") {
				t.Errorf("it is %s: %q", seen.State, seen.Reason)
			}
		})
	}
	for name, option := range map[string]agentOptions{
		"no such file":     {url: url, ca: "/nowhere/ca.pem"},
		"no such token":    {url: url, ca: authority.Path, tokenFile: "/nowhere/token"},
		"half of a pair":   {url: url, ca: authority.Path, cert: ours.Certificate},
		"a key as another": {url: url, ca: authority.Path, cert: ours.Certificate, key: foreign.Key},
	} {
		if _, _, err := option.nodes(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestAgentOptions: with what no node could be reached is said at once.
func TestAgentOptions(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const url = "https://{address}:7481"
	for name, tc := range map[string]struct {
		options agentOptions
		says    string
	}{
		"a token":                 {agentOptions{url: url, tokenFile: file("weir_token\n")}, ""},
		"a socket":                {agentOptions{url: "unix:///run/{address}.sock"}, ""},
		"nobody":                  {agentOptions{}, ""},
		"no port":                 {agentOptions{url: "https://{address}"}, "write https://HOST:PORT"},
		"an empty token":          {agentOptions{url: url, tokenFile: file(" \n")}, "is empty: `weir token weir-edge --role admin`"},
		"words":                   {agentOptions{url: url, tokenFile: file("two words")}, "this is not a token"},
		"no token file":           {agentOptions{url: url, tokenFile: "/nonexistent/token"}, "read the token of the agents: open /nonexistent/token"},
		"an authority that is no": {agentOptions{url: url, ca: file("nothing")}, "has no certificate in PEM"},
		"half a certificate":      {agentOptions{url: url, cert: "cert.pem"}, "give both"},
	} {
		nodes, _, err := tc.options.nodes(t.Context())
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		if _, none := nodes.(run.Unmeasured); none != (tc.options == agentOptions{}) {
			t.Errorf("%s: nodes are measured: %t", name, !none)
		}
	}
}

// TestAgentOf: the page asks the agent of a node that has one, at the node's address, and none that is not
// known.
func TestAgentOf(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "198.18.0.1.sock"))
	must.Succeed(t, err)
	agent := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/snapshot" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "it is "+r.URL.RequestURI())
	})}
	go func() { _ = agent.Serve(listener) }() // until it is closed
	defer agent.Close()
	dial, err := agentOptions{url: "unix://" + dir + "/{address}.sock"}.dialer()
	must.Succeed(t, err)
	agentOf := dial.agentOf(func() edge.Snapshot {
		return edge.Snapshot{Nodes: []edge.Node{{Name: "a", Address: "198.18.0.1", Weir: true}, {Name: "b", Address: "198.18.0.2"}}}
	})
	answer, err := agentOf("a")(t.Context(), "/v1/snapshot?x=1")
	must.Succeed(t, err)
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "it is /v1/snapshot?x=1" {
		t.Errorf("%q, %v", body, err)
	}
	if answer, err := agentOf("a")(t.Context(), "/v1/nothing"); err == nil {
		answer.Body.Close()
		t.Error("what the agent refuses is an answer")
	}
	if agentOf("b") != nil || agentOf("c") != nil || dialer(nil).agentOf(func() edge.Snapshot { return edge.Snapshot{Nodes: []edge.Node{{Name: "a", Weir: true}}} })("a") != nil {
		t.Error("a node without an agent has one")
	}
	one, _ := dial(netip.MustParseAddr("198.18.0.1"))
	if again, _ := dial(netip.MustParseAddr("198.18.0.1")); one == nil || one != again {
		t.Error("an agent has two clients")
	}
}
