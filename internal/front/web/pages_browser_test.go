//go:build web

package web

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/test/must"
)

// choose opens the first container of a page and waits for the form of an administrator.
func choose(ctx context.Context, t *testing.T) {
	t.Helper()
	act(ctx, t, chromedp.Focus(".containers tbody tr button"), chromedp.KeyEvent(kb.Enter))
	holds(ctx, t, `document.querySelector("[name=weight]:not([readonly])")`)
}

func signIn(ctx context.Context, t *testing.T, token string) {
	t.Helper()
	holds(ctx, t, `document.querySelector(".top > button")`)
	act(ctx, t, chromedp.Click(".top > button"), chromedp.SendKeys(".signin input", token+kb.Enter))
	holds(ctx, t, contains(".top", "Sign out"))
}

func weigh(ctx context.Context, t *testing.T, weight string) {
	t.Helper()
	act(ctx, t, chromedp.Focus("[name=weight]"), chromedp.Evaluate(`document.activeElement.select()`, nil), chromedp.KeyEvent(weight+kb.Enter))
	holds(ctx, t, `document.querySelector(".preview")`)
}

// Of two pages with the same form open, the one that applies first wins; the other learns
// of it and has changed nothing, and both show what is.
func TestTwoPages(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	admin, err := access.AddToken(path, "me", access.Admin)
	must.Succeed(t, err)
	agent := busyAgent()
	front := page.BringToFront() // in the background nothing is drawn
	first := openWith(t, agent, access.NewTokens(path, slog.New(slog.DiscardHandler)), 1280, "light")
	var address string
	act(first, t, chromedp.Location(&address))
	second, closeSecond := chromedp.NewContext(first)
	defer closeSecond()
	act(second, t, chromedp.Navigate(address))
	for _, tab := range []context.Context{first, second} {
		act(tab, t, front)
		holds(tab, t, `document.querySelectorAll(".containers tbody tr").length === 4`)
		holds(tab, t, contains(".top", "Sign in")) // a token is one page's
		signIn(tab, t, admin)
		choose(tab, t)
	}
	act(first, t, front)
	weigh(first, t, "100")
	act(second, t, front)
	weigh(second, t, "200")
	apply := chromedp.Click(".change button[type=button]")
	act(second, t, apply)
	holds(second, t, contains(".change .actions", "Changed."))
	act(first, t, front, apply)
	holds(first, t, contains(".change .actions", "somebody else has changed this policy"))
	for _, tab := range []context.Context{first, second} {
		act(tab, t, front)
		holds(tab, t, contains(".containers tbody tr td", "200"))
	}
	agent.change(func(a *fakeAgent) {
		if weight := a.seen.Containers[0].Policy.Weight; weight != 200 {
			t.Errorf("the weight is %d", weight)
		}
	})
}

// serveAt runs the dashboard at an address, until it is closed.
func serveAt(t *testing.T, address string, feed http.Handler, tokens *access.Tokens) *http.Server {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	must.Succeed(t, err)
	s := New(feed, tokens, Pages{}, slog.New(slog.DiscardHandler))
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { s.Close() })
	return s
}

// A page that is left open goes on when the agent has started again, and is that of the
// new one when it is another version; unless somebody writes on it, who is told.
func TestPageOverRestartAndUpgrade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	admin, err := access.AddToken(path, "me", access.Admin)
	must.Succeed(t, err)
	tokens := access.NewTokens(path, slog.New(slog.DiscardHandler))
	address := fmt.Sprint("127.0.0.1:", must.FreePort(t))
	version := func(text string) *fakeAgent {
		agent := busyAgent()
		agent.seen.Status.Version = text
		return agent
	}
	running := serveAt(t, address, version("v1"), tokens)
	ctx := browse(t, "http://"+address+"/", 1280, "light")
	restart := func(to *fakeAgent) {
		running.Close()
		holds(ctx, t, contains(".trouble", "No answer from the agent for "))
		running = serveAt(t, address, to, tokens)
	}
	holds(ctx, t, contains(".top", "v1"))
	act(ctx, t, chromedp.Evaluate(`window.opened = 1`, nil))
	restart(version("v1"))
	holds(ctx, t, `!document.querySelector(".trouble")`)
	holds(ctx, t, `window.opened === 1`) // the same page

	restart(version("v2"))
	holds(ctx, t, contains(".top", "v2"))
	holds(ctx, t, `window.opened === undefined && !document.querySelector(".trouble")`)

	signIn(ctx, t, admin)
	choose(ctx, t)
	act(ctx, t, chromedp.Evaluate(`window.opened = 1`, nil), chromedp.Focus("[name=min]"), chromedp.KeyEvent("7"))
	restart(version("v3"))
	holds(ctx, t, contains(".trouble", "The agent is version v3 now"))
	holds(ctx, t, `window.opened === 1 && document.querySelector("[name=min]").value.includes("7")`)
	act(ctx, t, chromedp.Click(".trouble button"))
	holds(ctx, t, contains(".top", "v3"))
	holds(ctx, t, `window.opened === undefined && !document.querySelector(".trouble")`)
}

// The page is there soon, also with many containers. How soon is logged: machines differ.
func TestFirstPaint(t *testing.T) {
	ctx := open(t, manyContainers(1), 1280, "light")
	holds(ctx, t, `performance.getEntriesByName("first-contentful-paint").length === 1`)
	holds(ctx, t, `document.querySelectorAll(".containers tbody tr").length === 204`)
	var paint, loaded float64
	act(ctx, t,
		chromedp.Evaluate(`performance.getEntriesByName("first-contentful-paint")[0].startTime`, &paint),
		chromedp.Evaluate(`performance.getEntriesByType("resource").reduce((sum, e) => sum + e.encodedBodySize, 0)`, &loaded))
	t.Logf("first paint after %.0f ms, %.0f bytes were loaded", paint, loaded)
	if paint > 5000 {
		t.Errorf("the first paint took %.0f ms", paint)
	}
}

// Every view is passed by axe-core, not only the one that everybody sees.
func TestAccessibilityOfEmptyViews(t *testing.T) {
	t.Parallel()
	script := axe(t)
	agent := busyAgent()
	agent.change(func(a *fakeAgent) { a.silent = true })
	ctx := open(t, agent, 900, "light")
	for _, view := range []struct {
		name  string
		set   func(*fakeAgent)
		shows string
	}{
		{"no answer", func(*fakeAgent) {}, contains(".trouble", "No answer from the agent yet")},
		{"no containers", func(a *fakeAgent) { a.silent, a.events, a.seen.Containers = false, nil, a.seen.Containers[3:] }, contains(".uplink .nothing", "No container runs")},
		{"no device", func(a *fakeAgent) { a.seen.Status.Uplinks[0].Present = false }, contains(".uplink .nothing", "The device is not there")},
		{"no uplink", func(a *fakeAgent) { a.seen.Status.Uplinks = nil }, contains("main .nothing", "shares out no uplink")},
	} {
		agent.change(view.set)
		holds(ctx, t, view.shows)
		checkAxe(ctx, t, script, fmt.Sprintf("the view %q", view.name))
	}
	act(ctx, t, chromedp.Click(".top > button"))
	holds(ctx, t, `document.querySelector(".signin input")`)
	checkAxe(ctx, t, script, "signing in")
	act(ctx, t, chromedp.KeyEvent(kb.Escape), chromedp.Click("button[aria-pressed]"))
	checkAxe(ctx, t, script, "blurred names")
}
