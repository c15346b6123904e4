package cli

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/agent/server"
	"github.com/weir-project/weir/internal/front/web"
	"github.com/weir-project/weir/test/must"
)

// The agent shows what its socket has at the dashboard's address, and goes on if
// somebody else has that.
func TestOpenDashboard(t *testing.T) {
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	feed := server.New(busyHost(), log)
	page := openDashboard("127.0.0.1:0", feed, nil, web.PagesBeside(filepath.Join(t.TempDir(), "weir.sock")), log)
	defer page.Close()
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(said.String())
	if url == "" {
		t.Fatalf("said %q", said.String())
	}
	for path, want := range map[string]string{"/": "<title>Weir</title>", "/v1/snapshot": `"containers":[{`} {
		response, err := http.Get(url + path)
		must.Succeed(t, err)
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s, %v, %.200s", path, response.Status, err, body)
		}
	}

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer taken.Close()
	said.Reset()
	openDashboard(taken.Addr().String(), feed, nil, web.PagesBeside(filepath.Join(t.TempDir(), "weir.sock")), log).Close()
	if text := said.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "cannot open the dashboard") || !strings.Contains(text, "another address") {
		t.Errorf("said %q", text)
	}
}
