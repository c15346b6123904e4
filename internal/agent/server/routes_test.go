package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/test/must"
)

// Metrics and explanations are of the same snapshot as everything else.
func TestMetricsAndExplain(t *testing.T) {
	a, client := serveAgent(t)
	get := func(path string) (int, string, string) {
		t.Helper()
		response, err := client.http.Get("http://weir" + path)
		must.Succeed(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		must.Succeed(t, err)
		return response.StatusCode, response.Header.Get("Content-Type"), string(body)
	}
	status, kind, body := get("/metrics")
	if status != 200 || kind != "text/plain; version=0.0.4; charset=utf-8" || !strings.Contains(body, `weir_container_info{container="web",`) {
		t.Errorf("%d, %q, %s", status, kind, body)
	}
	explanation, err := client.Explain(t.Context(), "web")
	if err != nil || explanation.Container.Name != "web" || len(explanation.Policy) != 6 {
		t.Errorf("%+v, %v", explanation, err)
	}
	history, err := client.History(t.Context(), "web")
	if err != nil || history.Name != "web" {
		t.Errorf("%+v, %v", history, err)
	}
	if status, _ := request(t, client, "GET", "/v1/containers/nobody/history", ""); status != 404 {
		t.Errorf("the history of nobody: %d", status)
	}
	for _, name := range []string{"nobody", "<script>alert(1)</script>", "\x1b[31m", "../status", strings.Repeat("x", 10_000)} {
		if _, err := client.Explain(t.Context(), name); err == nil || !strings.Contains(err.Error(), "no such container") {
			t.Errorf("%.30q: %v", name, err)
		}
	}
	if status, _, body = get("/v1/node"); status != 200 || !strings.Contains(body, `"PiID":`) || !strings.Contains(body, `"name":"/web"`) {
		t.Errorf("%d, %s", status, body)
	}
	a.err = errors.New("no")
	if status, _, body = get("/v1/node"); status != 500 || !strings.Contains(body, `"no"`) {
		t.Errorf("%d, %s", status, body)
	}
	if status, _, body = get("/metrics"); status != 500 || !strings.Contains(body, `"no"`) {
		t.Errorf("%d, %s", status, body)
	}
}

// Uplinks are listed, and found by their name.
func TestUplinks(t *testing.T) {
	a, agent := serveAgent(t)
	if status, body := rawRequest(t, agent, "GET", "/v1/uplinks", ""); status != 200 || strings.TrimSpace(body) != "[]" {
		t.Errorf("without an uplink: %d, %s", status, body)
	}
	a.uplinks = []v1.Uplink{{Name: "eth0", RateBPS: 100e6}, {Name: "wwan0.7", RateBPS: 10e6, Present: true}}
	if list, err := agent.Uplinks(t.Context()); err != nil || !slices.Equal(list, a.uplinks) {
		t.Errorf("%+v, %v", list, err)
	}
	if uplink, err := agent.Uplink(t.Context(), "wwan0.7"); err != nil || uplink != a.uplinks[1] {
		t.Errorf("%+v, %v", uplink, err)
	}
	for _, name := range []string{"eth1", "ETH0", "../status", "<script>alert(1)</script>", "\x1b[31m"} {
		_, err := agent.Uplink(t.Context(), name)
		if refused := new(client.Error); !errors.As(err, &refused) || refused.Status != 404 || !strings.Contains(err.Error(), "/v1/uplinks lists") {
			t.Errorf("%q: %v", name, err)
		}
	}
	a.err = errors.New("no")
	for _, path := range []string{"/v1/uplinks", "/v1/uplinks/eth0"} {
		if status, body := rawRequest(t, agent, "GET", path, ""); status != 500 || !strings.Contains(body, `"no"`) {
			t.Errorf("%s: %d, %s", path, status, body)
		}
	}
}

// Somebody who announces a body and does not send it holds a connection for a
// while, not for ever.
func TestSlowSender(t *testing.T) {
	const timeout = 100 * time.Millisecond
	a := newAPI(&fakeAgent{}, slog.New(slog.DiscardHandler), timeout)
	conn, err := net.Dial("unix", serve(t, a.Socket(access.Admin)))
	must.Succeed(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "PATCH /v1/containers/web/policy HTTP/1.1\r\nHost: weir\r\nContent-Length: 100\r\n\r\n{")
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	began := time.Now()
	if _, err := io.ReadAll(conn); err != nil || time.Since(began) < timeout {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

// A preview changes nothing, and a refusal is part of it.
func TestPreview(t *testing.T) {
	a, client := serveAgent(t)
	const path = "/v1/containers/web/policy/preview"
	status, body := rawRequest(t, client, "POST", path, `{"weight": "300"}`)
	if status != 200 || a.called != "try web" || !strings.Contains(body, `"after":{"weight":300,`) || !strings.Contains(body, `"before":{"weight":0,`) {
		t.Errorf("%d, %q, %s", status, a.called, body)
	}
	if status, _ = rawRequest(t, client, "POST", path, `{"wieght": "300"}`); status != 400 {
		t.Errorf("a field that is not known: %d", status)
	}
	if status, _ = rawRequest(t, client, "POST", "/v1/containers/nobody/policy/preview", `{}`); status != 404 {
		t.Errorf("of nobody: %d", status)
	}
}
