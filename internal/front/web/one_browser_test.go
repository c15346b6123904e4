//go:build web

package web

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	v1 "github.com/weir-project/weir/api/v1"
)

// passing answers as weir sdn run does where the flows of busyAgent pass two switches.
type passing struct{ fakeSDN }

func (f *passing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/v1/links" {
		_ = json.NewEncoder(w).Encode(v1.SDNLinks{Promises: []v1.SDNPromise{
			{SDNPromiseRequest: v1.SDNPromiseRequest{ID: "1", Service: "shop", Node: netip.MustParseAddr("198.18.0.1"), Peer: netip.MustParseAddr("198.18.0.254"), MinBPS: 14e6}, State: "in force", Path: []v1.SDNHop{{DPID: dpid(2), Out: 3}}},
			{SDNPromiseRequest: v1.SDNPromiseRequest{ID: "2", Service: "shop", Node: netip.MustParseAddr("198.18.0.2"), Peer: netip.MustParseAddr("198.18.0.254"), MinBPS: 6e6}, State: "broken", Reason: "no path " + hostile},
			{SDNPromiseRequest: v1.SDNPromiseRequest{ID: "3", Service: "other"}},
		}})
		return
	}
	if r.URL.Path == "/v1/sdn" {
		seen := f.busy()
		seen.Switches[0].Ports[0].Trust = &v1.SDNTrust{EFBoundBPS: 50e6}
		_ = json.NewEncoder(w).Encode(seen)
		return
	}
	if r.URL.Path != "/v1/sdn/flows" {
		f.fakeSDN.ServeHTTP(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode([]v1.SDNFlow{
		// The host's address is there in place of the container's.
		{Flow: "udp 203.0.113.7:40000 > 198.18.9.9:5060", Class: "ef", Path: []v1.SDNHop{{DPID: dpid(1), Out: 1}, {DPID: dpid(2), Out: 9}}},
		{Flow: "udp 198.18.9.9:5060 > 203.0.113.7:40000", Class: "be", Path: []v1.SDNHop{{DPID: dpid(1), Out: 9}}},
		{Flow: "tcp 203.0.113.7:40000 > 198.18.9.9:5060", Class: "af"},
	})
}

// TestOneWayIn: each page leads to the others that are open, a node's row to the node's agent, and a
// flow's row there shows its class and queue at each switch.
func TestOneWayIn(t *testing.T) {
	t.Parallel()
	script := axe(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 420} {
			t.Run(fmt.Sprint(scheme, width), func(t *testing.T) { oneWayIn(t, script, scheme, width) })
		}
	}
}

func oneWayIn(t *testing.T, script, scheme string, width int64) {
	pages, log := Pages{t.TempDir()}, slog.New(slog.DiscardHandler)
	agent := busyAgent()
	agent.seen.Containers[0].Policy.DSCP = v1.DSCPMark
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		agent.ServeHTTP(w, r)
	}))
	defer api.Close()
	agentOf := func(node string) Getter {
		return func(ctx context.Context, path string) (*http.Response, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL+path, nil)
			if err != nil {
				return nil, err
			}
			return http.DefaultClient.Do(request)
		}
	}
	services := announce(t, pages, KindEdge, NewEdge(&fakeEdge{}, agentOf, pages, log))
	containers := announce(t, pages, KindAgent, New(busyAgent(), nil, pages, log))
	ctx := browse(t, services, width, scheme)
	links := func() string {
		return `[...document.querySelectorAll("nav li")].map((l) => l.textContent + (l.querySelector("[aria-current=page]") ? "!" : "")).join()`
	}
	holds(ctx, t, links()+` === "Containers,Services!"`)
	switches := announce(t, pages, KindSDN, NewSDN(&passing{}, pages, log))
	act(ctx, t, chromedp.Reload())
	holds(ctx, t, links()+` === "Containers,Services!,Switches"`)
	// A minimum shows where it holds: at uplinks, and on links.
	act(ctx, t, chromedp.Focus("[aria-label=Services] tbody tr button"), chromedp.KeyEvent(kb.Enter))
	holds(ctx, t, `document.querySelectorAll("[aria-label='Links of shop'] tbody tr").length === 2 && document.querySelectorAll("[aria-label='Minimum of shop'] tbody tr").length === 2`)
	holds(ctx, t, contains("[aria-label='Links of shop'] tbody tr", "14mbit"))
	holds(ctx, t, contains("[aria-label='Links of shop'] tbody tr:nth-child(2)", "no path "+hostile))
	holds(ctx, t, fits)
	checkAxe(ctx, t, script, "services")
	picture(ctx, t, fmt.Sprintf("one-edge-%s-%d", scheme, width))

	// A node's row opens its agent's page, without signing in.
	act(ctx, t, chromedp.Focus("[aria-label=Nodes] tbody a"), chromedp.KeyEvent(kb.Enter))
	holds(ctx, t, `location.pathname === "/nodes/a/" && document.querySelector("h1")?.textContent === "Weir on a"`)
	holds(ctx, t, `document.querySelectorAll(".containers tbody tr").length === 4 && !document.body.textContent.includes("Sign in")`)
	holds(ctx, t, links()+` === "Containers!,Services,Switches"`)
	act(ctx, t, chromedp.Focus(".containers tbody tr button"), chromedp.KeyEvent(kb.Enter))
	holds(ctx, t, contains("[aria-label='Flows of web'] tbody tr", "VOIP"))
	holds(ctx, t, contains("[aria-label='Flows of web'] tbody tr", "→ EF 1:c1 no queue, 2:eth2 queue 2; ← BE 1:eth1 queue 0"))
	holds(ctx, t, contains("[aria-label='Flows of web'] tbody tr:nth-child(2)", "by its mark, if its port is trusted: BE queue 0 at each switch"))
	holds(ctx, t, fits)
	checkOwn(ctx, t, "Weir on a")
	checkAxe(ctx, t, script, "a node")
	picture(ctx, t, fmt.Sprintf("one-node-%s-%d", scheme, width))

	follow := func(name, url, title string) {
		act(ctx, t, chromedp.Click(fmt.Sprintf(`//nav//a[text()=%q]`, name)))
		holds(ctx, t, fmt.Sprintf(`location.href === %q && document.querySelector("h1")?.textContent === %q`, url, title))
		holds(ctx, t, fmt.Sprintf(links()+`.includes(%q)`, name+"!"))
		holds(ctx, t, `document.documentElement.scrollWidth <= innerWidth`)
	}
	follow("Services", services, "Weir edge")
	follow("Switches", switches, "Weir SDN")
	checkAxe(ctx, t, script, "switches")
	picture(ctx, t, fmt.Sprintf("one-sdn-%s-%d", scheme, width))
	follow("Containers", containers, "Weir")
	act(ctx, t, chromedp.Focus(".containers tbody tr button"), chromedp.KeyEvent(kb.Enter))
	holds(ctx, t, contains("[aria-label='Flows of web'] tbody tr:nth-child(2)", "by its mark (DSCP), or not there")) // nobody knows which
	checkAxe(ctx, t, script, "containers")
	picture(ctx, t, fmt.Sprintf("one-agent-%s-%d", scheme, width))
}
