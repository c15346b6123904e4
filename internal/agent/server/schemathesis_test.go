//go:build web

package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
)

// schemathesis is a fuzzer for APIs: it reads openapi.json and asks what that allows,
// and what it does not.
const schemathesis = "schemathesis==4.32.5"

// openSchemathesis returns the program, installed once into the user's cache.
func openSchemathesis(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("nowhere to keep %s: %v", schemathesis, err)
	}
	dir := filepath.Join(cache, "weir-"+schemathesis)
	program := filepath.Join(dir, "bin", "schemathesis")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for _, command := range [][]string{
		{"python3", "-m", "venv", dir},
		{filepath.Join(dir, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "--retries", "1", schemathesis},
	} {
		if said, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			os.RemoveAll(dir)
			t.Skipf("%s is not to be had: %v: %.300s", schemathesis, err, said)
		}
	}
	return program
}

// Whatever is asked, the answer is what the document says, and never an error of the
// server's. Streams that do not end are tested elsewhere.
func TestSchemathesis(t *testing.T) {
	t.Parallel()
	program := openSchemathesis(t)
	api := New(&fakeAgent{events: stats.NewEvents(time.Now())}, slog.New(slog.DiscardHandler))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), access.Caller{Name: "test", Role: access.Admin})))
	}))
	defer server.Close()
	said, err := exec.CommandContext(t.Context(), program, "run", server.URL+"/v1/openapi.json",
		"--exclude-path", "/v1/events", "--phases", "examples,coverage,fuzzing", "--max-examples", "40", "--seed", "1", "--no-color",
		"--checks", "not_a_server_error,content_type_conformance,response_schema_conformance,negative_data_rejection").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	if !strings.Contains(string(said), "Operations") {
		t.Errorf("it did not test:\n%s", said)
	}
	t.Logf("%s", said)
}
