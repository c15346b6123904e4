//go:build web

package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/test/browser"
	"github.com/weir-project/weir/test/must"
)

// The page in a real browser. WEIR_WEB_SCREENSHOTS is a folder for pictures of what
// it saw.

// hostile is a name that does something where it is taken for HTML.
const hostile = `<img src=x onerror="document.title='owned'">`

// fakeAgent answers with what a test puts there.
type fakeAgent struct {
	mu     sync.Mutex
	seen   v1.Snapshot
	looks  int // how often it was asked for that
	events []v1.Event
	flows  []v1.Flow
	silent bool
	behind uint64          // by how many events the snapshot is older
	tag    int             // of the policy of web
	wanted v1.PolicyChange // the last of classes that was previewed
}

// policy answers what the page asks of the policy of web.
func (a *fakeAgent) policy(w http.ResponseWriter, r *http.Request) {
	web := &a.seen.Containers[0]
	tag := fmt.Sprintf("%q", fmt.Sprint(a.tag))
	var change v1.PolicyChange
	_ = json.NewDecoder(r.Body).Decode(&change)
	switch {
	case r.Method == http.MethodPost && change.EFMax != nil:
		before, after := web.Policy, web.Policy
		after.Class, after.EFMax, after.AFMin = v1.Class(*change.Class), v1.Part{BPS: 2e6}, v1.Part{Percent: 40}
		if change.DSCP != nil {
			after.DSCP = v1.DSCP(*change.DSCP)
		}
		_ = json.NewEncoder(w).Encode(v1.Preview{Before: before, After: after, Uplinks: []v1.UplinkPreview{{Uplink: "eth0", Shares: []v1.SharePreview{
			{ID: "web", Name: "web", EntitledBeforeBPS: 42e6, EntitledAfterBPS: 42e6, AllocatedBeforeBPS: 50e6, AllocatedAfterBPS: 50e6},
		}}}})
		a.wanted = change
		return
	case r.Method == http.MethodPost && *change.Weight == "0":
		_ = json.NewEncoder(w).Encode(v1.Preview{Refused: "refused: " + hostile})
		return
	case r.Method == http.MethodPost:
		_ = json.NewEncoder(w).Encode(v1.Preview{Uplinks: []v1.UplinkPreview{{Uplink: "eth0", Shares: []v1.SharePreview{
			{ID: "web", Name: "web", EntitledBeforeBPS: 42e6, EntitledAfterBPS: 21e6}, {ID: "x", Name: hostile, EntitledBeforeBPS: 14e6, EntitledAfterBPS: 35e6},
			{ID: "camera", Name: "camera", EntitledBeforeBPS: 30e6, EntitledAfterBPS: 30e6},
		}}}})
		return
	case r.Method == http.MethodPatch && r.Header.Get("If-Match") != tag:
		refuse(w, http.StatusPreconditionFailed, "somebody else has changed this policy")
		return
	case r.Method == http.MethodPatch:
		a.tag++
		weight, _ := strconv.ParseUint(*change.Weight, 10, 32)
		web.Policy.Weight = uint32(weight)
	}
	w.Header().Set("ETag", tag)
	_ = json.NewEncoder(w).Encode(web)
}

func (a *fakeAgent) change(fn func(*fakeAgent)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn(a)
}

// awaitLooks waits until the agent was asked for count more snapshots.
func (a *fakeAgent) awaitLooks(t *testing.T, count int) {
	t.Helper()
	looks := func() (n int) {
		a.change(func(a *fakeAgent) { n = a.looks })
		return n
	}
	for began, end := looks(), time.Now().Add(15*time.Second); looks() < began+count; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the page asks for no more snapshots")
		}
	}
}

func (a *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	encoder := json.NewEncoder(w)
	switch {
	case a.silent:
		refuse(w, http.StatusBadGateway, "the agent does not answer: "+hostile)
	case strings.Contains(r.URL.Path, "/policy"):
		a.policy(w, r)
	case strings.HasSuffix(r.URL.Path, "/explain"):
		_ = encoder.Encode(v1.Explanation{
			Policy: []v1.ExplainedValue{{Name: "minimum", Value: "10mbit", Notes: []string{"in force"}}},
			Shares: []v1.ExplainedShare{{
				Uplink: "eth0", EntitledBPS: 42e6, Entitled: []string{"300 of 500 by weight"},
				AllocatedBPS: 50e6, Allocated: []string{"what " + hostile + " leaves"}, ForMore: []string{"a larger weight"},
			}},
			InShares: []v1.ExplainedShare{{Uplink: "eth0", EntitledBPS: 8e6, Entitled: []string{"its maximum holds it there"}}},
		})
	case strings.HasSuffix(r.URL.Path, "/history"):
		// On a clock that is an hour behind.
		history := v1.HistoryShare{Uplink: "eth0"}
		for ago := 120; ago >= 0; ago-- {
			at := time.Now().Add(-time.Hour - time.Duration(ago)*time.Second)
			history.Samples = append(history.Samples, v1.HistorySample{At: at, EntitledBPS: 42e6, RateBPS: uint64(40e6 + 1e5*ago), WantsMore: ago < 60, WantedBPS: 39e6, DelayP99MS: 3, DelayP50MS: 1, DroppedPackets: 2, MarkedPackets: 17})
		}
		_ = encoder.Encode(v1.History{Shares: []v1.HistoryShare{history}})
	case r.URL.Path == "/v1/flows":
		_ = encoder.Encode(a.flows)
	case r.URL.Path == "/v1/access":
		caller := access.CallerFrom(r.Context())
		_ = encoder.Encode(v1.Access{Name: caller.Name, Role: caller.Role.String()})
	case r.URL.Path == "/v1/events":
		for _, event := range a.events {
			if fmt.Sprint(event.Seq) > r.URL.Query().Get("since") {
				_ = encoder.Encode(event)
			}
		}
	default:
		a.looks++
		// Something moves.
		for i := range a.seen.Containers {
			for j := range a.seen.Containers[i].Shares {
				share := &a.seen.Containers[i].Shares[j]
				if share.RateBPS == 0 {
					continue
				}
				share.RateBPS = share.RateBPS*9/10 + share.RateBPS/5*uint64(time.Now().UnixMilli()%1000)/1000
				share.DroppedPackets += uint64(i)
			}
		}
		seen := a.seen
		if n := len(a.events); n > 0 {
			seen.Status.LastEvent = a.events[n-1].Seq - a.behind
		}
		_ = encoder.Encode(seen)
	}
}

func container(name string, entitledBPS, rateBPS uint64, policy v1.Policy) v1.Container {
	share := v1.Share{Uplink: "eth0", EntitledBPS: entitledBPS, AllocatedBPS: entitledBPS, RateBPS: rateBPS, WantedBPS: rateBPS}
	if rateBPS > 0 {
		share.DelayP50MS, share.DelayP99MS = 1.5, 12
	}
	return v1.Container{
		ID: name, Name: name, Runtime: "docker", Mode: v1.ModeBridge, Direction: v1.Direction{Policy: policy, PolicyFrom: v1.PolicyFrom{Weight: v1.LayerLabels, Min: v1.LayerSet, Max: v1.LayerBuiltIn, Priority: v1.LayerBuiltIn, Latency: v1.LayerBuiltIn}, Shares: []v1.Share{share}}, State: v1.StateOK,
	}
}

func busyAgent() *fakeAgent {
	host := container("host", 1e6, 0, v1.Policy{Weight: 100})
	host.Runtime, host.Mode = "host", v1.ModeHost
	rejected := container(hostile, 14e6, 0, v1.Policy{Weight: 100})
	rejected.State, rejected.Reason = v1.StateRejected, "minimum 98mbit cannot be guaranteed "+hostile
	web := container("web", 42e6, 43e6, v1.Policy{
		Weight: 300, MinBPS: 10e6, MaxBPS: 80e6, Priority: 5, LatencyMS: 20,
		Class: v1.ClassAuto, EFMax: v1.Part{Percent: 50}, AFMin: v1.Part{BPS: 3e6},
	})
	web.Shares[0].BacklogBytes, web.Shares[0].WantsMore = 30_000, true
	web.Shares[0].Classes = []v1.ClassShare{
		{Class: v1.ClassEF, MaxBPS: 21e6, RateBPS: 64_000, Held: true, ExcessBPS: 12e6, DelayP50MS: 0.2, DelayP99MS: 0.9},
		{Class: v1.ClassAF, MinBPS: 3e6, RateBPS: 7e6},
		{Class: v1.ClassBE, RateBPS: 36e6, BacklogBytes: 30_000, DroppedPackets: 7, MarkedPackets: 1234},
	}
	camera := container("camera", 30e6, 28e6, v1.Policy{Weight: 100, MinBPS: 30e6})
	camera.State, camera.Reason = v1.StateDegraded, `label weir.max: "many" is no rate`
	return &fakeAgent{
		flows: []v1.Flow{
			{Container: "web", ID: "web", Protocol: "udp", Initiator: "198.18.0.2:40000", Responder: "198.18.9.9:5060", Application: "VOIP", Class: v1.ClassEF, Stage: 2, Confidence: 0.97, SentBytes: 81_000, ReceivedBytes: 79_000},
			{Container: "web", ID: "web", Protocol: "tcp", Initiator: "[2001:db8::2]:51000", Responder: "[2001:db8::9]:443", SentBytes: 900},
		},
		seen: v1.Snapshot{
			Status: v1.Status{
				Version: "v-test", State: v1.StateOK, Sources: []v1.Source{{Name: "docker", Connected: true}},
				Uplinks: []v1.Uplink{{Name: "eth0", RateBPS: 100e6, ReserveBPS: 5e6, SentBPS: 85e6, Scheduler: "htb+fq_codel", Present: true, State: v1.StateOK}},
			},
			Containers: []v1.Container{web, camera, rejected, host},
		},
		events: []v1.Event{
			{Seq: 1, At: time.Now(), Kind: v1.EventStarted, Container: "web", Policy: &web.Policy},
			{Seq: 2, At: time.Now(), Kind: v1.EventRefused, Container: hostile, Message: "minimum " + hostile},
		},
	}
}

// open opens the page of a feed in a browser of its own, at a width, light or dark.
// Whatever the page says to the console is a failure.
func open(t *testing.T, feed http.Handler, width int64, scheme string) context.Context {
	t.Helper()
	return openWith(t, feed, nil, width, scheme)
}

// openWith is open where some have tokens.
func openWith(t *testing.T, feed http.Handler, tokens *access.Tokens, width int64, scheme string) context.Context {
	t.Helper()
	return browse(t, "http://"+serveWith(t, feed, tokens)+"/", width, scheme)
}

// browse opens a page in a browser of its own.
func browse(t *testing.T, url string, width int64, scheme string) context.Context {
	t.Helper()
	ctx := browser.Start(t, time.Minute)
	chromedp.ListenTarget(ctx, func(event any) {
		switch event := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page: %s", event.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			t.Errorf("the page says %v", event.Args)
		}
	})
	act(ctx, t,
		emulation.SetDeviceMetricsOverride(width, 1100, 1, width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.Navigate(url))
	return ctx
}

func act(ctx context.Context, t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	must.Succeed(t, chromedp.Run(ctx, actions...))
}

// holds waits until an expression is true on the page.
func holds(ctx context.Context, t *testing.T, expression string) {
	t.Helper()
	var err error
	for end := time.Now().Add(15 * time.Second); ; {
		// It does not ask at each frame, as windows behind others draw none.
		err = chromedp.Run(ctx, chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(time.Until(end)), chromedp.WithPollingInterval(50*time.Millisecond)))
		// A page that loads itself again ends what was asked of it.
		if gone := new(cdproto.Error); !errors.As(err, &gone) || time.Now().After(end) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		var text string
		_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.innerText`, &text))
		t.Errorf("does not hold: %s: %v; the page is\n%s", expression, err, text)
	}
}

// picture keeps how a page looks after some samples, if asked to.
func picture(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("WEIR_WEB_SCREENSHOTS")
	if dir == "" {
		return
	}
	time.Sleep(3 * time.Second)
	var png []byte
	act(ctx, t, chromedp.FullScreenshot(&png, 100))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

// contains is an expression: the text of the first of selector has a part.
func contains(selector, part string) string {
	return fmt.Sprintf("document.querySelector(%q)?.textContent.includes(%q)", selector, part)
}

// fits is an expression: no part of the page is beyond its edge, nor of a table beyond its own.
const fits = `document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll(".wide")].every((e) => e.scrollWidth <= e.clientWidth)`

// checkOwn checks that a page has a title, nothing from elsewhere, and all that it asked for.
func checkOwn(ctx context.Context, t *testing.T, title string) {
	t.Helper()
	holds(ctx, t, fmt.Sprintf(`document.images.length === 0 && document.title === %q`, title))
	holds(ctx, t, `performance.getEntriesByType("resource").every((e) => e.name.startsWith(location.origin) && e.responseStatus === 200)`)
}

// checkHidesNames presses the button that makes names unreadable.
func checkHidesNames(ctx context.Context, t *testing.T) {
	t.Helper()
	act(ctx, t, chromedp.Click("button[aria-pressed]"))
	holds(ctx, t, `[...document.querySelectorAll(".name")].every((n) => getComputedStyle(n).filter.startsWith("blur"))`)
}

// checkPage opens a page in both schemes, wide and narrow, and checks what it shows and what holds
// of every page.
func checkPage(t *testing.T, name, title string, serve func(*testing.T) string, check func(context.Context, *testing.T)) {
	t.Helper()
	script := axe(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 380} {
			t.Run(fmt.Sprint(scheme, width), func(t *testing.T) {
				ctx := browse(t, "http://"+serve(t)+"/", width, scheme)
				check(ctx, t)
				checkOwn(ctx, t, title)
				holds(ctx, t, `document.documentElement.scrollWidth <= innerWidth`)
				picture(ctx, t, fmt.Sprintf("%s-%s-%d", name, scheme, width))
				checkAxe(ctx, t, script, fmt.Sprint(scheme, width))
				checkHidesNames(ctx, t)
			})
		}
	}
}

func TestPageShowsContainers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, scheme, background string
		width                    int64
	}{
		{"wide and light", "light", "rgb(255, 255, 255)", 1280},
		{"phone and dark", "dark", "rgb(20, 24, 29)", 400},
		{"wide and dark", "dark", "rgb(20, 24, 29)", 1280},
		{"phone and light", "light", "rgb(255, 255, 255)", 400},
		{"half a screen", "light", "rgb(255, 255, 255)", 960},
	} {
		t.Run(tc.name, func(t *testing.T) {
			agent := busyAgent()
			ctx := open(t, agent, tc.width, tc.scheme)
			holds(ctx, t, `document.querySelectorAll(".containers tbody tr").length === 4`)
			holds(ctx, t, contains(".containers tbody tr", "300"))
			holds(ctx, t, contains(".containers tbody tr", "wants more"))
			holds(ctx, t, contains(".containers tbody tr", "42mbit"))
			holds(ctx, t, contains(".containers tbody tr", "12mbit of its EF is above 21mbit and served as BE"))
			holds(ctx, t, contains(".containers tbody tr:nth-child(2)", `is no rate; gets all it wants`))
			// The colours of the plot are those of the rows, and it begins before the page was opened.
			holds(ctx, t, `["web", "camera"].every((name) => {
				const of = (all, kind) => [...document.querySelectorAll(all)].find((e) => e.textContent.includes(name))?.querySelector(kind)?.className.match(/of-c\d/)?.[0];
				return of(".legend li", "i") && of(".legend li", "i") === of(".containers tbody tr", ".swatch");
			})`)
			holds(ctx, t, answered("/history")+` === 4`)
			agent.awaitLooks(t, 2) // so it is drawn
			holds(ctx, t, answered("/v1/events?since=0&follow=false")+` === 1`)
			holds(ctx, t, answered("/v1/events?since=2&follow=false")+` === 0`) // there are no newer ones
			act(ctx, t, chromedp.Focus(".canvas"), chromedp.KeyEvent(strings.Repeat(kb.ArrowLeft, 89)))
			holds(ctx, t, `/\b([89]\d|1 min \d+) s ago/.test(document.querySelector("figcaption").textContent)`)
			holds(ctx, t, `/web (4\d|5[0-2])(\.\d+)?mbit/.test(document.querySelector(".legend").textContent)`)
			holds(ctx, t, `document.querySelector(".events li")?.textContent.includes("refused")`)
			holds(ctx, t, `document.querySelectorAll("canvas").length === 1`)
			// Names are text, wherever they stand.
			holds(ctx, t, fmt.Sprintf(`[...document.querySelectorAll(".containers tbody tr button")].some((b) => b.textContent === %q)`, hostile))
			// It is of the scheme and fits the width.
			holds(ctx, t, fmt.Sprintf(`getComputedStyle(document.body).backgroundColor === %q`, tc.background))
			holds(ctx, t, fits)
			checkOwn(ctx, t, "Weir")

			// With the keyboard: one container's samples, and back.
			act(ctx, t, chromedp.Focus(".containers tbody tr button"), chromedp.KeyEvent(kb.Enter))
			holds(ctx, t, `document.querySelectorAll(".detail canvas").length === 4`)
			holds(ctx, t, `document.activeElement?.textContent === "web" && document.activeElement.tagName === "H3"`)
			holds(ctx, t, `document.querySelector(".detail dl").textContent.includes("10mbit set")`)
			holds(ctx, t, contains(".detail dl", "DSCPnone"))
			checkInside(ctx, t)
			picture(ctx, t, strings.ReplaceAll(tc.name, " ", "-"))

			// The pointer is at one moment in all plots.
			act(ctx, t, chromedp.Focus(".detail .canvas"), chromedp.KeyEvent(kb.ArrowLeft))
			holds(ctx, t, `[...document.querySelectorAll("figcaption")].every((f) => f.textContent.includes("s ago"))`)
			// Also before the page was opened: what the agent remembers.
			act(ctx, t, chromedp.KeyEvent(strings.Repeat(kb.ArrowLeft, 89)))
			holds(ctx, t, `/\b1 min (2[5-9]|3\d) s ago|\b(8[5-9]|9\d) s ago/.test(document.querySelector(".detail figcaption").textContent)`)
			holds(ctx, t, contains(".detail .legend", "wants 39mbit"))
			holds(ctx, t, `[...document.querySelectorAll(".detail .legend")].some((l) => /dropped 2\/s.*marked 17\/s/s.test(l.textContent))`)
			act(ctx, t, chromedp.KeyEvent(kb.Escape))
			holds(ctx, t, `!document.querySelector(".detail")`)

			checkHidesNames(ctx, t)
		})
	}
}

// answered is an expression: how many requests for a path had an answer.
func answered(path string) string {
	return fmt.Sprintf(`performance.getEntriesByType("resource").filter((e) => e.name.endsWith(%q)).length`, path)
}

// TestHiddenPage: a page that is hidden gives the connection back on which it follows, and asks at the start of each
// second of the clock, whenever it was hidden. When it is seen again it follows again.
func TestHiddenPage(t *testing.T) {
	agent := busyAgent()
	ctx := open(t, agent, 900, "light")
	hide := func(hidden bool) chromedp.Action {
		return chromedp.Evaluate(fmt.Sprintf(`Object.defineProperty(document, "hidden", {value: %t, configurable: true}); document.dispatchEvent(new Event("visibilitychange"))`, hidden), nil)
	}
	agent.awaitLooks(t, 3)
	holds(ctx, t, answered("/snapshot")+` === 1`) // before it follows
	const opened = 300 * time.Millisecond         // in its second; asking takes less than the rest of that
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + opened)))
	act(ctx, t, hide(true))
	holds(ctx, t, answered("/snapshot?follow=true")+` === 1`)
	holds(ctx, t, answered("/snapshot")+` >= 4 && performance.getEntriesByType("resource").filter((e) => e.name.endsWith("/snapshot")).slice(-3)
		.every((e) => (performance.timeOrigin + e.startTime) % 1000 < 200)`)
	act(ctx, t, hide(false))
	agent.awaitLooks(t, 3)
	act(ctx, t, chromedp.Evaluate(`window.before = `+answered("/snapshot"), nil))
	agent.awaitLooks(t, 3)
	holds(ctx, t, answered("/snapshot")+` === window.before && !document.querySelector(".trouble")`)
}

// TestPageThatCannotFollow: a page that is refused to follow, or whose snapshots come late, asks each second, without a
// word.
func TestPageThatCannotFollow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		follow http.HandlerFunc
	}{
		{"refused", func(w http.ResponseWriter, _ *http.Request) { tooMany(w) }},
		{"late", func(w http.ResponseWriter, r *http.Request) {
			for http.NewResponseController(w).Flush() == nil && r.Context().Err() == nil {
				time.Sleep(4200 * time.Millisecond)
				_ = json.NewEncoder(w).Encode(busyAgent().seen)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			routes := handler(busyAgent(), newGate(nil), Pages{}, maxRequests)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if follows(r) {
					c.follow(w, r)
					return
				}
				routes.ServeHTTP(w, r)
			}))
			t.Cleanup(s.Close) // after the browser: it waits for requests
			ctx := browse(t, s.URL, 900, "light")
			holds(ctx, t, `document.querySelectorAll(".containers tbody tr").length === 4`)
			act(ctx, t, chromedp.Evaluate(`window.troubles = 0; new MutationObserver(() => window.troubles += document.querySelector(".trouble") ? 1 : 0).observe(document.body, {childList: true, subtree: true})`, nil))
			holds(ctx, t, answered("/snapshot")+` >= 5`)
			holds(ctx, t, answered("/snapshot?follow=true")+` === 1 && window.troubles === 0`)
		})
	}
}

// TestManyWindows: a browser has six connections to an address; windows that follow leave some of them to others.
func TestManyWindows(t *testing.T) {
	t.Parallel()
	agent := busyAgent()
	url := "http://" + serveWith(t, agent, nil) + "/"
	first := browse(t, url, 900, "light")
	act(first, t, emulation.SetFocusEmulationEnabled(true)) // as if all could be seen
	windows := []context.Context{first}
	for range 7 {
		window, cancel := chromedp.NewContext(first)
		defer cancel()
		windows = append(windows, window)
		act(window, t, emulation.SetFocusEmulationEnabled(true), chromedp.Navigate(url))
	}
	for _, window := range windows {
		holds(window, t, `!document.hidden && document.querySelectorAll(".containers tbody tr").length === 4`)
	}
	agent.change(func(a *fakeAgent) { // each window asks for it
		a.events = append(a.events, v1.Event{Seq: 3, At: time.Now(), Kind: v1.EventStopped, Container: "web"})
	})
	for _, window := range windows {
		holds(window, t, `document.querySelectorAll(".events li").length === 3 && !document.querySelector(".trouble")`)
		holds(window, t, `performance.getEntriesByType("resource").every((request) => request.responseStatus === 200)`) // none waited in vain
	}
}

// TestEventsAreShownOnce: a snapshot from the cache may be older than the events that the page has got.
func TestEventsAreShownOnce(t *testing.T) {
	t.Parallel()
	agent := busyAgent()
	ctx := open(t, agent, 900, "light")
	shown := func(events int) string {
		return fmt.Sprintf(`document.querySelectorAll(".events li").length === %d`, events)
	}
	holds(ctx, t, shown(2))
	agent.change(func(a *fakeAgent) {
		a.events = append(a.events, v1.Event{Seq: 3, At: time.Now(), Kind: v1.EventStopped, Container: "web"})
	})
	holds(ctx, t, shown(3))
	agent.change(func(a *fakeAgent) { a.behind = 1 })
	agent.awaitLooks(t, 3)
	agent.change(func(a *fakeAgent) { a.behind = 0 })
	agent.awaitLooks(t, 3)
	holds(ctx, t, shown(3))
}

// TestBothDirections: what containers receive is beside what they send, in plots and rows of its own.
func TestBothDirections(t *testing.T) {
	t.Parallel()
	script := axe(t)
	for _, width := range []int64{1280, 400} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			agent := busyAgent()
			agent.change(func(a *fakeAgent) {
				a.seen.Status.Uplinks[0].In = &v1.UplinkIn{RateBPS: 50e6, ReserveBPS: 2.5e6, ReceivedBPS: 29e6, Scheduler: "htb+fq_codel"}
				for i := range a.seen.Containers {
					c := &a.seen.Containers[i]
					rate := []uint64{8e6, 21e6, 0, 0}[i]
					c.In = &v1.Direction{Policy: v1.Policy{Weight: 100, MaxBPS: []uint64{8e6, 0, 0, 0}[i]}, Shares: []v1.Share{{Uplink: "eth0", EntitledBPS: rate, RateBPS: rate, WantedBPS: rate}}}
				}
			})
			ctx := open(t, agent, width, "light")
			holds(ctx, t, `[...document.querySelectorAll(".uplink figcaption")].map((f) => f.textContent.trim().split(",")[0]).join() === "What each container sends,What each container receives"`)
			holds(ctx, t, contains(".uplink .plots > :nth-child(2) .facts", "receives 29mbit of 50mbit (58 %)"))
			holds(ctx, t, `[...document.querySelectorAll(".containers tbody tr button")].map((b) => b.textContent).filter((name) => name.startsWith("web") || name.startsWith("host")).join() === "web,web in,host,host in"`)
			holds(ctx, t, contains(".containers tbody tr:nth-child(2)", "8mbit"))
			holds(ctx, t, contains(".containers tbody tr:nth-child(6)", "receives nothing"))
			// A container has one colour.
			holds(ctx, t, `new Set([...document.querySelectorAll(".uplink .plots .legend li")].filter((l) => l.textContent.includes("web")).map((l) => l.querySelector("i").className)).size === 1`)
			holds(ctx, t, fits)
			picture(ctx, t, fmt.Sprintf("both-%d", width))
			act(ctx, t, chromedp.Focus(".containers tbody tr:nth-child(2) button"), chromedp.KeyEvent(kb.Enter))
			holds(ctx, t, contains(".detail h3", "web in"))
			holds(ctx, t, contains(".explain", "its maximum holds it there"))
			holds(ctx, t, contains(".detail dl", "maximum8mbit"))
			holds(ctx, t, contains(".detail .legend", "receives 8mbit"))
			holds(ctx, t, fits)
			checkAxe(ctx, t, script, "both directions")
			picture(ctx, t, fmt.Sprintf("both-detail-%d", width))
		})
	}
}

// checkInside looks at the reasons, classes and flows of a container.
func checkInside(ctx context.Context, t *testing.T) {
	t.Helper()
	holds(ctx, t, contains(".explain", "300 of 500 by weight"))
	holds(ctx, t, contains(".explain", "what "+hostile+" leaves"))
	holds(ctx, t, contains("[aria-label='Classes at eth0'] tbody", "up to 21mbit"))
	holds(ctx, t, contains("[aria-label='Classes at eth0'] tbody", "36mbit"))
	holds(ctx, t, `document.querySelector("[aria-label='Classes at eth0'] tbody tr:last-child td[data-label=marks]").textContent === "1234"`)
	holds(ctx, t, `[...document.querySelectorAll("[aria-label='Flows of web'] tbody tr")].map((r) => r.innerText.replace(/\s+/g, " ")).some((r) => ["udp 198.18.0.2:40000 → 198.18.9.9:5060", "VOIP", "EF", "97%", "81 kB", "79 kB"].every((part) => r.includes(part)))`)
	holds(ctx, t, contains("[aria-label='Flows of web'] tbody tr:nth-child(2)", "BE, no verdict"))
	holds(ctx, t, fits+` && document.images.length === 0`)
}

// What is empty says why.
func TestEmptyStates(t *testing.T) {
	t.Parallel()
	agent := busyAgent()
	agent.change(func(a *fakeAgent) { a.silent = true })
	ctx := open(t, agent, 900, "light")
	holds(ctx, t, contains(".trouble", "No answer from the agent yet: the agent does not answer: "+hostile))
	agent.change(func(a *fakeAgent) {
		a.silent, a.events = false, nil
		a.seen.Containers = a.seen.Containers[3:] // the host
		a.seen.Status.Sources = append(a.seen.Status.Sources, v1.Source{Name: "podman", Reason: "connection refused"})
	})
	holds(ctx, t, contains(".over", "Nothing was sent through eth0 (100mbit)"))
	holds(ctx, t, contains(".uplink .nothing", "No container runs, says docker."))
	holds(ctx, t, contains(".uplink .nothing", "podman cannot be asked for its containers: connection refused"))
	holds(ctx, t, contains("section:last-of-type .nothing, [aria-label=Events] .nothing", "Nothing has happened"))
	picture(ctx, t, "empty")
	agent.change(func(a *fakeAgent) { a.seen.Status.Sources = nil })
	holds(ctx, t, contains(".uplink .nothing", "watches no container engine"))
	agent.change(func(a *fakeAgent) { a.seen.Status.Uplinks[0].Present = false })
	holds(ctx, t, contains(".uplink .nothing", "The device is not there"))
	agent.change(func(a *fakeAgent) { a.silent = true })
	holds(ctx, t, contains(".trouble", "No answer from the agent for "))
	holds(ctx, t, `document.images.length === 0 && document.title === "Weir"`)
	agent.change(func(a *fakeAgent) { a.silent, a.seen.Status.Uplinks = false, nil })
	holds(ctx, t, contains("main .nothing", "shares out no uplink"))
}

// manyContainers are two hundred more, of which one in so many sends.
func manyContainers(oneIn int) *fakeAgent {
	agent := busyAgent()
	for i := range 200 {
		rateBPS := uint64(0)
		if i%oneIn == 0 {
			rateBPS = uint64(1+i) * 4e3
		}
		agent.seen.Containers = append(agent.seen.Containers, container(fmt.Sprintf("c%03d", i), 5e5, rateBPS, v1.Policy{Weight: 100}))
	}
	return agent
}

// Two hundred containers are drawn in much less than the second between two updates,
// and rows that stay as they are in next to nothing.
func TestManyContainers(t *testing.T) {
	t.Run("all send", func(t *testing.T) { watchMany(t, 1, 0.4) })
	t.Run("a tenth sends", func(t *testing.T) { watchMany(t, 10, 0.2) })
}

// watchMany holds the processor time of the page, in seconds a second, to a bound.
func watchMany(t *testing.T, oneIn int, bound float64) {
	ctx := open(t, manyContainers(oneIn), 1280, "light")
	holds(ctx, t, `document.querySelectorAll(".containers tbody tr").length === 204`)
	act(ctx, t, performance.Enable().WithTimeDomain(performance.EnableTimeDomainThreadTicks),
		chromedp.Evaluate(`window.long = []; new PerformanceObserver((list) => long.push(...list.getEntries().map((e) => e.duration))).observe({type: "longtask"})`, nil))
	before := durations(ctx, t)
	const watched = 6
	time.Sleep(watched * time.Second)
	// Processor time: how long that took is the machine's affair, which does other things.
	after := durations(ctx, t)
	spent := func(name string) float64 { return (after[name] - before[name]) / watched }
	busy := spent("TaskDuration")
	var long []float64
	act(ctx, t, chromedp.Evaluate(`long`, &long))
	t.Logf("%.0f ms of a processor a second (script %.0f, style %.0f, layout %.0f); tasks above 50 ms: %.0f", 1000*busy,
		1000*spent("ScriptDuration"), 1000*spent("RecalcStyleDuration"), 1000*spent("LayoutDuration"), long)
	if busy <= 0 || busy > bound {
		t.Errorf("the page takes %.0f ms of a processor a second", 1000*busy)
	}
	if oneIn == 1 {
		picture(ctx, t, "many")
	}
}

// durations are what the page has taken of a processor so far, in seconds: TaskDuration
// is all.
func durations(ctx context.Context, t *testing.T) (seconds map[string]float64) {
	t.Helper()
	act(ctx, t, chromedp.ActionFunc(func(ctx context.Context) error {
		metrics, err := performance.GetMetrics().Do(ctx)
		seconds = map[string]float64{}
		for _, m := range metrics {
			seconds[m.Name] = m.Value
		}
		return err
	}))
	return seconds
}
