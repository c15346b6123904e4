package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A token is for the agent that is trusted, and for nobody else.
func TestTLS(t *testing.T) {
	var got []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization")+" "+r.URL.Path)
		if strings.Contains(r.URL.Path, "elsewhere") {
			http.Redirect(w, r, "https://elsewhere.invalid/", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte(`{"uplink": "up0"}`))
	}))
	defer server.Close()
	server.Config.ErrorLog = nil
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	trusting, err := LoadTLS(ca, "", "")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(trust *tls.Config) (*Client, error) {
		c, err := New(server.URL, Options{Token: "t0ken", TLS: trust})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		_, err = c.Status(t.Context())
		return c, err
	}
	c, err := ask(trusting)
	if err != nil || len(got) != 1 || got[0] != "Bearer t0ken /v1/status" {
		t.Errorf("%q, %v", got, err)
	}
	got = nil
	if _, err := c.Explain(t.Context(), "elsewhere"); err == nil || !strings.Contains(err.Error(), "302") || len(got) != 1 {
		t.Errorf("sent elsewhere: %q, %v", got, err)
	}
	got = nil
	if _, err := ask(nil); !errors.Is(err, ErrTrust) || !strings.Contains(err.Error(), "its certificate is of no authority that is trusted here") || got != nil {
		t.Errorf("of an authority that nobody trusts: %q, %v", got, err)
	}
}

// TestDistrust: what is wrong between two that do not trust each other is said.
func TestDistrust(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	for name, tc := range map[string]struct {
		url, says string
		config    *tls.Config
	}{
		"another name": {server.URL, "its certificate is not for this host", &tls.Config{RootCAs: trusted, ServerName: "other.example"}},
		"too late":     {server.URL, "its certificate is not valid now", &tls.Config{RootCAs: trusted, Time: func() time.Time { return time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) }}},
		"without TLS":  {strings.Replace(plain.URL, "http://", "https://", 1), "what answers there does not speak TLS", &tls.Config{}},
	} {
		c, err := New(tc.url, Options{TLS: tc.config})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Status(t.Context()); !errors.Is(err, ErrTrust) || !strings.Contains(err.Error(), "agent at "+tc.url+" not to be trusted: "+tc.says) {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}

func TestLoadTLS(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ ca, cert, key, says string }{
		{"/nowhere.pem", "", "", "/nowhere.pem"},
		{empty, "", "", empty + " has no certificate in PEM"},
		{"", empty, "", "give both"},
		{"", "", empty, "give both"},
		{"", empty, empty, "read the client's certificate"},
	} {
		if _, err := LoadTLS(tc.ca, tc.cert, tc.key); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
