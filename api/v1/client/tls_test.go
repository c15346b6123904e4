package client

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if _, err := ask(nil); err == nil || !strings.Contains(err.Error(), "certificate") || got != nil {
		t.Errorf("of an authority that nobody trusts: %q, %v", got, err)
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
