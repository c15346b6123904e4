//go:build web

package web

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/weir-project/weir/api/v1/edge"
)

// hostileJSON is hostile inside of a string of JSON.
var hostileJSON = strings.ReplaceAll(hostile, `"`, `\"`)

// fakeEdge answers as weir-edge does.
type fakeEdge struct {
	silent, empty, few atomic.Bool
	asked              atomic.Int64
}

func (f *fakeEdge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	encoder := json.NewEncoder(w)
	switch {
	case f.silent.Load():
		refuse(w, http.StatusBadGateway, "weir-edge does not answer: "+hostile)
	case r.URL.Path == "/v1/events" && f.empty.Load():
	case r.URL.Path == "/v1/events":
		if r.URL.Query().Get("since") != "0" {
			return
		}
		_ = encoder.Encode(edge.Event{Seq: 7, At: time.Now(), Kind: edge.EventNode, Node: "c", Message: "is gone"})
		_ = encoder.Encode(edge.Event{
			Seq: 8, At: time.Now(), Kind: edge.EventDecision, Service: "shop", Instance: "shop.3", Node: "b", Message: "18 users of 20 " + hostile,
			Decision: &edge.Decision{Action: "start", Service: "shop"},
		})
	case strings.HasSuffix(r.URL.Path, "/explain"):
		_ = encoder.Encode(edge.Explanation{
			Service: f.busy().Services[0],
			Now: []edge.Decision{{
				Action: "start", Service: "shop", Node: "b", Reason: "more users than room",
				Alternatives: []byte(`[{"node": "a", "transfer_seconds": 1, "start_up_seconds": 0.5, "response_seconds": 0.04, "refused": "no room"}]`),
				Excluded:     []byte(`[{"reason": "it is gone ` + hostileJSON + `", "nodes": 1, "example": "c"}]`),
			}},
			Earlier: []edge.Event{{Seq: 3, At: time.Now(), Kind: edge.EventFailed, Instance: "shop.0", Message: "on a: exit code 1"}},
		})
	case f.empty.Load():
		_ = encoder.Encode(edge.Snapshot{Version: "v-test", Engine: "docker", DryRun: true})
	default:
		_ = encoder.Encode(f.busy())
	}
}

func (f *fakeEdge) busy() edge.Snapshot {
	users := 12 + int(f.asked.Add(1)%6) // something moves
	if f.few.Load() {
		users -= 8
	}
	return edge.Snapshot{
		Version: "v-test", Engine: "swarm", At: time.Now(),
		Services: []edge.Service{
			{
				Name: "shop", Users: users, Waiting: 2, Instances: 3, Running: 2, ResponseMS: 41.5, Requests: 12_345, FailedRequests: 3, Specification: []byte("{}"), MinBPS: 20e6,
				Claims: []edge.Claim{{Node: "a", UsersBPS: 14e6, PromisedBPS: 15e6, InForceBPS: 15e6}, {Node: "b", UsersBPS: 6e6, PromisedBPS: 6e6, Reason: "no answer " + hostile}},
			},
			{Name: hostile, Reason: "no room " + hostile, Specification: []byte("{}")},
		},
		Instances: []edge.Instance{
			{Service: "shop", Node: "a", Instance: "shop.1", State: "running", Users: users - 6, Waiting: 2, ResponseMS: 40, MinBPS: 14e6, ServiceMinBPS: 20e6},
			{Service: "shop", Node: "b", Instance: "shop.2", State: "running", Users: 4, ResponseMS: 43, MinBPS: 6e6, ServiceMinBPS: 20e6},
			{Service: "shop", Node: "b", Instance: "shop.3", State: "starting", MinBPS: 5e6, ServiceMinBPS: 20e6},
			{Service: hostile, State: "pending", Reason: "0 of 1: " + hostile},
		},
		Nodes: []edge.Node{
			{Name: "a", State: "ready", Weir: true, CPUs: 4, CPUUsedPercent: 61, MemoryBytes: 1 << 30, MemoryUsedBytes: 1 << 29, UplinkBPS: 100e6, UplinkSentBPS: uint64(users) * 3e6, PromisedBPS: 20e6, FreeBPS: 75e6, Instances: 1},
			{Name: "b", State: "ready", CPUUsedPercent: 12, UplinkSentBPS: 8e6, Instances: 2},
			{Name: "c", State: "gone", Reason: "no answer for 9 s " + hostile},
		},
		Decisions: []edge.Decision{{Action: "start", Service: "shop", Reason: "more users than room"}, {Action: "keep", Service: hostile, Reason: "no node"}},
	}
}

// servePage serves a page on loopback until the test ends, and returns its address.
func servePage(t *testing.T, server *http.Server) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

// serveEdge serves weir-edge's page.
func serveEdge(t *testing.T, feed http.Handler) string {
	t.Helper()
	return servePage(t, NewEdge(feed, nil, Pages{}, slog.New(slog.DiscardHandler)))
}

func TestEdgePage(t *testing.T) {
	t.Parallel()
	checkPage(t, "edge", "Weir edge", func(t *testing.T) string { return serveEdge(t, &fakeEdge{}) }, func(ctx context.Context, t *testing.T) {
		holds(ctx, t, `document.querySelectorAll("[aria-label=Nodes] tbody tr").length === 3`)
		holds(ctx, t, `document.querySelectorAll("[aria-label=Instances] tbody tr").length === 4`)
		holds(ctx, t, contains("[aria-label=Services] tbody tr", "starts one: more users than room"))
		holds(ctx, t, `/\d+ \(2 wait\)/.test(document.querySelector("[aria-label=Services] tbody tr").textContent) && document.body.textContent.includes("Users who wait have no place")`)
		holds(ctx, t, `/\d+ \(2 wait\)/.test(document.querySelector("[aria-label=Instances] tbody tr").textContent)`)
		holds(ctx, t, `[...document.querySelectorAll("[aria-label=Services] tbody tr")][1].textContent.includes("no room") && document.querySelector(".events").textContent.includes("c is gone")`)
		// A service opens, with its reasons and where its minimum holds.
		act(ctx, t, chromedp.Focus("[aria-label=Services] tbody tr button"), chromedp.KeyEvent(kb.Enter))
		holds(ctx, t, contains(".detail", "on a: ready in 1.5 s, users would wait 40 ms; not taken: no room"))
		holds(ctx, t, contains(".detail", "not on c: it is gone "+hostile+" (1 node)"))
		holds(ctx, t, `document.querySelectorAll("[aria-label='Minimum of shop'] tbody tr").length === 2 && document.querySelector(".detail").textContent.includes("holds")`)
		holds(ctx, t, contains(".detail .events", "on a: exit code 1"))
		holds(ctx, t, `document.activeElement?.tagName === "H3"`)
		holds(ctx, t, `document.querySelector(".detail a").getAttribute("href") === "nodes/a/"`)
		holds(ctx, t, contains("[aria-label=Nodes] tbody tr", "75mbit"))
		holds(ctx, t, contains("[aria-label=Nodes] tbody tr:nth-child(2)", "no Weir agent"))
		holds(ctx, t, contains("[aria-label='Decisions and events'] li", "start"))
		holds(ctx, t, `document.querySelectorAll("canvas").length === 2`)
	})
}

// TestEdgeAxis: an axis of users has whole numbers, and no number twice or rounded to another.
func TestEdgeAxis(t *testing.T) {
	t.Parallel()
	feed := &fakeEdge{}
	feed.few.Store(true)
	ctx := browse(t, "http://"+serveEdge(t, feed)+"/", 900, "light")
	holds(ctx, t, `document.querySelectorAll("canvas").length === 2`)
	act(ctx, t, chromedp.Evaluate(`(() => {
		const draw = CanvasRenderingContext2D.prototype.fillText
		window.labels = new Set()
		CanvasRenderingContext2D.prototype.fillText = function (text, ...where) { labels.add(text); draw.call(this, text, ...where) }
	})()`, nil))
	holds(ctx, t, `labels.has("10")`)
	holds(ctx, t, `[...labels].filter((label) => /^\d+$/.test(label)).join() === "0,5,10"`)
}

// What is empty says why.
func TestEdgeEmptyStates(t *testing.T) {
	t.Parallel()
	feed := &fakeEdge{}
	feed.silent.Store(true)
	ctx := browse(t, "http://"+serveEdge(t, feed)+"/", 900, "light")
	holds(ctx, t, contains(".trouble", "No answer from weir-edge yet: weir-edge does not answer: "+hostile))
	feed.empty.Store(true)
	feed.silent.Store(false)
	holds(ctx, t, contains("main", "No service is deployed"))
	holds(ctx, t, contains("main", "No node is known yet"))
	holds(ctx, t, contains("main", "Nothing has happened yet"))
	holds(ctx, t, contains("[role=status]", "A dry run"))
	feed.silent.Store(true)
	holds(ctx, t, contains(".trouble", "No answer from weir-edge for "))
	holds(ctx, t, `document.images.length === 0`)
}
