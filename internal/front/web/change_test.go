package web

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"log/slog"

	"github.com/weir-project/weir/internal/front/access"
)

// Nothing is changed without a token for it, nor from another page, nor unseen.
func TestWhoMayChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	var token = map[access.Role]string{}
	for _, role := range []access.Role{access.Read, access.Admin} {
		var err error
		if token[role], err = access.AddToken(path, role.String(), role); err != nil {
			t.Fatal(err)
		}
	}
	var reached []string
	feed := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached = append(reached, r.Method+" "+r.URL.Path+" "+access.CallerFrom(r.Context()).Role.String())
	})
	h := handler(feed, newGate(access.NewTokens(path, slog.New(slog.DiscardHandler))), Pages{}, 4)
	const policy = "/v1/containers/web/policy"
	admin := http.Header{"Authorization": {"Bearer " + token[access.Admin]}, "If-Match": {`"x"`}, "Content-Type": {"application/json"}}
	with := func(pairs ...string) http.Header {
		header := admin.Clone()
		for i := 0; i < len(pairs); i += 2 {
			header.Set(pairs[i], pairs[i+1])
			if pairs[i+1] == "" {
				header.Del(pairs[i])
			}
		}
		return header
	}
	for _, tc := range []struct {
		name, method, path string
		header             http.Header
		status             int
	}{
		{"a change", "PATCH", policy, admin, 200},
		{"from the page", "PATCH", policy, with("Origin", "http://localhost:7480", "Sec-Fetch-Site", "same-origin"), 200},
		{"a preview", "POST", policy + "/preview", with("If-Match", ""), 200},
		{"taken back", "DELETE", policy, with("Content-Type", ""), 200},
		{"without a token", "PATCH", policy, with("Authorization", ""), 401},
		{"a preview without a token", "POST", policy + "/preview", with("Authorization", ""), 401},
		{"with a wrong token", "PATCH", policy, with("Authorization", "Bearer weir_x"), 401},
		{"with a token as a password", "PATCH", policy, with("Authorization", "Basic "+token[access.Admin]), 401},
		{"with a token for looking", "PATCH", policy, with("Authorization", "Bearer "+token[access.Read]), 403},
		{"from another page", "PATCH", policy, with("Origin", "http://evil.example"), 403},
		{"from a page at another port", "PATCH", policy, with("Origin", "http://localhost:8080"), 403},
		{"from a page without a name", "PATCH", policy, with("Origin", "null"), 403},
		{"from another site", "DELETE", policy, with("Sec-Fetch-Site", "cross-site"), 403},
		{"of a form", "PATCH", policy, with("Content-Type", "text/plain"), 415},
		{"unseen", "PATCH", policy, with("If-Match", ""), 428},
		{"taken back unseen", "DELETE", policy, with("If-Match", ""), 428},
		{"down", "POST", "/v1/down", admin, 405},
		{"reload", "POST", "/v1/reload", admin, 405},
		{"a preflight", "OPTIONS", policy, with("Origin", "http://evil.example"), 405},
		{"the page", "PUT", "/", admin, 405},
		{"looking with a wrong token", "GET", "/v1/access", with("Authorization", "Bearer weir_x"), 401},
		{"looking with a token", "GET", "/v1/access", admin, 200},
	} {
		reached = nil
		r := httptest.NewRequest(tc.method, tc.path, strings.NewReader(""))
		r.Host, r.Header = "localhost:7480", tc.header
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tc.status || (len(reached) == 1) != (tc.status == 200) {
			t.Errorf("%s: %d %s, want %d, reached %q", tc.name, w.Code, w.Body, tc.status, reached)
		}
		if tc.status == 200 && !strings.HasSuffix(reached[0], " admin") {
			t.Errorf("%s reaches the agent as %q", tc.name, reached)
		}
	}
	// Guessing takes time.
	for i := range 10 * failedBurst {
		r := httptest.NewRequest(http.MethodGet, "/v1/access", nil)
		r.Host = "localhost"
		r.Header.Set("Authorization", "Bearer weir_guess")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code == http.StatusTooManyRequests {
			return
		} else if i == 10*failedBurst-1 {
			t.Errorf("the last guess: %d", w.Code)
		}
	}
}
