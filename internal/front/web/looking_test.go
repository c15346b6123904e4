package web

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// TestEdge: the page and what it asks for are there, and nothing that changes anything,
// whatever the request carries.
func TestEdge(t *testing.T) {
	feed := &fakeFeed{}
	h := edgeHandler(feed, nil, newGate(nil), Pages{}, 4)
	for path, want := range map[string]string{
		"/": `src="edge.js"`, "/edge.js": "v1/snapshot", "/app.css": "prefers-color-scheme", "/uplot.js": "uPlot", "/uplot.css": ".uplot", "/icon.svg": "<svg",
		"/v1/snapshot": `"version":"1"`, "/v1/events?since=0&follow=false": `"seq":1`,
	} {
		r := ask(h, "GET", "127.0.0.1:7483", path, nil)
		if body := bodyOf(t, r); r.StatusCode != http.StatusOK || !strings.Contains(body, want) || r.Header.Get("Content-Security-Policy") != contentPolicy {
			t.Errorf("%s: %s, lacks %q", path, r.Status, want)
		}
	}
	ask(h, "GET", "127.0.0.1:7483", "/metrics", nil).Body.Close()
	others := feed.others.Load()
	if others != 1 {
		t.Error("Prometheus is not answered")
	}
	for _, request := range []string{
		"POST /v1/services", "DELETE /v1/services/shop", "POST /v1/repository", "DELETE /v1/repository/shop", "POST /v1/repository/shop/deploy", "POST /v1/stop",
		"GET /v1/repository", "GET /index.html", "PUT /", "POST /v1/snapshot",
	} {
		method, path, _ := strings.Cut(request, " ")
		r := ask(h, method, "127.0.0.1:7483", path, nil)
		r.Body.Close()
		if r.StatusCode < 400 || feed.others.Load() != others {
			t.Errorf("%s: %s", request, r.Status)
		}
	}
	r := ask(h, "GET", "edge.example:7483", "/v1/snapshot", nil)
	r.Body.Close()
	if r.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("a name that leads here: %s", r.Status)
	}
}

// TestSDN: the same of the page of weir sdn run.
func TestSDN(t *testing.T) {
	asked := map[string]int{}
	feed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path]++
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = w.Write([]byte("<svg/>"))
	})
	h := sdnHandler(feed, newGate(nil), Pages{}, 4)
	synctest.Test(t, func(t *testing.T) { // all at once
		for path, want := range map[string]string{
			"/": `src="sdn.js"`, "/sdn.js": "v1/sdn", "/app.css": ".topology", "/v1/sdn/topology.svg": "<svg", "/v1/sdn": "<svg", "/metrics": "<svg",
		} {
			for range 3 {
				r := ask(h, "GET", "127.0.0.1:7484", path, nil)
				if body := bodyOf(t, r); r.StatusCode != http.StatusOK || !strings.Contains(body, want) || r.Header.Get("Content-Security-Policy") != contentPolicy {
					t.Errorf("%s: %s, lacks %q", path, r.Status, want)
				}
			}
		}
		if asked["/v1/sdn"] != 1 || asked["/metrics"] != 3 {
			t.Errorf("the controller was asked %v", asked)
		}
	})
	for request, want := range map[string]int{
		"GET /v1/sdn/flows": http.StatusForbidden, "POST /v1/sdn": http.StatusMethodNotAllowed, "DELETE /v1/sdn/flows": http.StatusMethodNotAllowed, "GET /sdn.html": http.StatusNotFound,
	} {
		method, path, _ := strings.Cut(request, " ")
		r := ask(h, method, "localhost:7484", path, nil)
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s: %s, want %d", request, r.Status, want)
		}
	}
	r := ask(h, "GET", "switches.example:7484", "/v1/sdn", nil)
	r.Body.Close()
	if r.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("a name that leads here: %s", r.Status)
	}
}
