//go:build netns

package netns

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/browser"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestBrowser: an administrator changes a maximum on the page of a real agent, and that is
// what the kernel does; the page, left open, goes on when the agent has started again.
func TestBrowser(t *testing.T) {
	b := newBed(t)
	tokens := filepath.Join(t.TempDir(), "tokens")
	admin := addToken(t, tokens, "me", access.Admin)
	flooding := b.Add("flooding", nil)
	options := harness.AgentOptions{Settings: map[string]any{"tokens": tokens, "dashboard": dashboardAddress}}
	agent := b.StartAgent(options)
	b.Send(flooding, harness.Flood)
	b.AwaitTraffic(flooding.Slot, 5*time.Second)
	page := openPage(t, "http://"+forward(t, b, dashboardAddress)+"/")

	page.holds(`document.querySelector(".containers tbody tr")?.textContent.includes("flooding")`)
	page.act(chromedp.Click(".top > button"), chromedp.SendKeys(".signin input", admin+kb.Enter))
	page.holds(`document.querySelector(".top").textContent.includes("Sign out")`)
	page.act(chromedp.Focus(".containers tbody tr button"), chromedp.KeyEvent(kb.Enter))
	page.holds(`document.querySelector("[name=max]:not([readonly])")`)
	page.act(chromedp.Focus("[name=max]"), chromedp.Evaluate(`document.activeElement.select()`, nil), chromedp.KeyEvent("20mbit"+kb.Enter))
	page.holds(`document.querySelector(".preview")?.textContent.includes("→ 20mbit")`)
	if got := agent.Container("flooding").Policy.MaxBPS; got != 0 {
		t.Errorf("a preview made a maximum of %d", got)
	}
	page.act(chromedp.Click(".change button[type=button]"))
	page.holds(`document.querySelector(".change .actions").textContent.includes("Changed.")`)
	if got := agent.Container("flooding").Policy.MaxBPS; got != 20*mbit {
		t.Errorf("the maximum is %d", got)
	}
	b.CheckMaximum(flooding.Slot, 20*mbit, time.Second)
	page.holds(`document.querySelector(".containers tbody tr")?.textContent.includes("wants more, and is at its maximum")`)
	page.holds(`document.querySelector(".events li")?.textContent.includes("max 20mbit")`)
	page.holds(`document.querySelector("[aria-label=Why]").textContent.includes("maximum")`)

	page.act(chromedp.Evaluate(`window.opened = 1`, nil))
	agent.Stop()
	page.holds(`document.querySelector(".trouble")?.textContent.includes("No answer from the agent for ")`)
	agent = b.StartAgent(options)
	page.holds(`!document.querySelector(".trouble") && window.opened === 1`)
	page.holds(`[...document.querySelectorAll(".events li")].some((e) => e.textContent.includes("agent started"))`)
	page.holds(`document.querySelector(".containers tbody tr")?.textContent.includes("20mbit")`)
	agent.Stop()
}

// forward listens here for what is in the host's network namespace, where no browser is.
func forward(t *testing.T, b *harness.Bed, to string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer here.Close()
				var there net.Conn
				if err := testbed.InNetNS(b.Host.NetNSPath(), func() (err error) {
					there, err = net.Dial("tcp", to)
					return err
				}); err != nil {
					return // no server listens there at the moment
				}
				defer there.Close()
				go func() {
					_, _ = io.Copy(there, here)
					there.Close()
				}()
				_, _ = io.Copy(here, there)
			})
		}
	})
	return listener.Addr().String()
}

// browserPage is a page in a browser of its own.
type browserPage struct {
	t   *testing.T
	ctx context.Context
}

func openPage(t *testing.T, url string) *browserPage {
	t.Helper()
	ctx := browser.Start(t, 2*time.Minute)
	page := &browserPage{t, ctx}
	page.act(chromedp.Navigate(url))
	return page
}

func (p *browserPage) act(actions ...chromedp.Action) {
	p.t.Helper()
	must.Succeed(p.t, chromedp.Run(p.ctx, actions...))
}

// holds waits until an expression is true on the page.
func (p *browserPage) holds(expression string) {
	p.t.Helper()
	if err := chromedp.Run(p.ctx, chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(20*time.Second))); err != nil {
		var text string
		_ = chromedp.Run(p.ctx, chromedp.Evaluate(`document.body.innerText`, &text))
		p.t.Fatal(fmt.Errorf("does not hold: %s: %w; the page is\n%s", expression, err, text))
	}
}
