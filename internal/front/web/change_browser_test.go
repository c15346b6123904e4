//go:build web

package web

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/test/must"
)

// An administrator signs in, looks at what a change would do, and makes it, with the
// keyboard, on a phone.
func TestChangeAPolicy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	reader, err := access.AddToken(path, "reader", access.Read)
	must.Succeed(t, err)
	admin, err := access.AddToken(path, "me", access.Admin)
	must.Succeed(t, err)
	agent := busyAgent()
	ctx := openWith(t, agent, access.NewTokens(path, slog.New(slog.DiscardHandler)), 360, "dark")
	holds(ctx, t, `document.querySelectorAll(".containers tbody tr").length === 4`)
	act(ctx, t, chromedp.Focus(".containers tbody tr button"), chromedp.KeyEvent(kb.Enter))
	holds(ctx, t, `document.querySelector(".detail") && !document.querySelector(".change")`)

	signIn := func(token string) {
		act(ctx, t, chromedp.SendKeys(".signin input", token+kb.Enter))
	}
	act(ctx, t, chromedp.Click(".top > button"))
	holds(ctx, t, `document.activeElement?.type === "password"`)
	signIn("weir_wrong")
	holds(ctx, t, contains(".signin", "this token is not valid"))
	signIn(reader)
	holds(ctx, t, contains(".signin", "token reader is for looking only"))
	signIn(admin)
	holds(ctx, t, `document.querySelector("[name=weight]:not([readonly])")?.value === "300"`)
	holds(ctx, t, `document.querySelector("[name=min]").value === "10mbit" && document.querySelector("[name=latency]").value === "20ms"`)
	holds(ctx, t, `[...document.querySelectorAll(".change button")].slice(0, 2).every((b) => b.disabled)`)

	weigh := func(weight string) {
		act(ctx, t, chromedp.Focus("[name=weight]"), chromedp.Evaluate(`document.activeElement.select()`, nil), chromedp.KeyEvent(weight+kb.Enter))
	}
	weigh("0")
	holds(ctx, t, contains(".change .trouble", hostile))
	holds(ctx, t, `document.querySelector(".change button[type=button]").disabled`)
	weigh("100")
	holds(ctx, t, contains(".preview", "42mbit → 21mbit"))
	holds(ctx, t, `document.querySelectorAll(".preview tbody tr").length === 2`) // camera keeps what it has
	holds(ctx, t, `document.documentElement.scrollWidth <= innerWidth && document.images.length === 0`)
	picture(ctx, t, "change-phone-dark")

	// Somebody else was faster.
	agent.change(func(a *fakeAgent) { a.tag++ })
	apply := chromedp.Click(".change button[type=button]")
	act(ctx, t, apply)
	holds(ctx, t, contains(".change .actions", "somebody else has changed this policy"))
	act(ctx, t, chromedp.Click(".detail header button"), chromedp.Focus(".containers tbody tr button"), chromedp.KeyEvent(kb.Enter))
	holds(ctx, t, `document.querySelector("[name=weight]:not([readonly])")?.value === "300"`)
	weigh("100")
	holds(ctx, t, `document.querySelector(".preview")`)
	act(ctx, t, apply)
	holds(ctx, t, contains(".change .actions", "Changed."))
	agent.change(func(a *fakeAgent) {
		if weight := a.seen.Containers[0].Policy.Weight; weight != 100 {
			t.Errorf("the weight is %d", weight)
		}
	})
	write := func(field, value string) {
		act(ctx, t, chromedp.Evaluate(fmt.Sprintf(`(() => { const e = document.querySelector("[name=%s]"); e.value = %q; e.dispatchEvent(new Event(e.tagName === "SELECT" ? "change" : "input", {bubbles: true})); })()`, field, value), nil))
	}
	holds(ctx, t, `document.querySelector("[name=ef_max]:not([readonly])")?.value === "50%" && document.querySelector("[name=af_min]").value === "3mbit" && document.querySelector("[name=class]").value === "auto"`)
	write("class", "ef")
	write("ef_max", "2mbit")
	write("af_min", "40%")
	holds(ctx, t, `[...document.querySelector("[name=dscp]").options].map((o) => o.value).join(" ") === "none trust mark both" && document.querySelector("[name=dscp]").value === "none"`)
	write("dscp", "mark")
	holds(ctx, t, `document.querySelector("[name=af_min]").value === "40%"`)
	act(ctx, t, chromedp.Click(".change button[type=submit]"))
	holds(ctx, t, contains(".change", "up to 50% → 2mbit (2mbit), AF has 3mbit → 40% (20mbit)"))
	holds(ctx, t, contains(".change", "DSCP none → mark: what the field says when a packet comes counts for nothing, and it is set to the class"))
	agent.change(func(a *fakeAgent) {
		if got := a.wanted; *got.Class != "ef" || *got.DSCP != "mark" || *got.EFMax != "2mbit" || *got.AFMin != "40%" || got.Weight != nil || got.Min != nil {
			t.Errorf("previewed: %+v", got)
		}
	})
	act(ctx, t, chromedp.Click(".top > button")) // sign out
	holds(ctx, t, `!document.querySelector(".change") && !sessionStorage.getItem("token")`)
}

// axe is the script of axe-core.
func axe(t *testing.T) string {
	t.Helper()
	program := exec.Command(filepath.Join("..", "..", "..", "scripts", "web.sh"), "axe")
	said, err := program.Output()
	if err != nil {
		t.Skipf("axe-core is not to be had: %s", said)
	}
	script, err := os.ReadFile(strings.TrimSpace(string(said)))
	must.Succeed(t, err)
	return string(script)
}

// checkAxe has axe-core look at a page.
func checkAxe(ctx context.Context, t *testing.T, script, view string) {
	t.Helper()
	var found string
	act(ctx, t, chromedp.Evaluate(script+"; undefined", nil), chromedp.Evaluate(
		`axe.run(document).then((r) => JSON.stringify({passes: r.passes.length, violations: r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html.slice(0, 120) + " " + n.any.map((a) => a.message)).join(" | "))}))`,
		&found, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	var result struct {
		Passes     int
		Violations []string
	}
	if err := json.Unmarshal([]byte(found), &result); err != nil || result.Passes < 10 {
		t.Fatalf("axe-core says %q (%v)", found, err)
	}
	for _, violation := range result.Violations {
		t.Errorf("%s: %s", view, violation)
	}
}

// axe-core finds nothing against the page, however it looks.
func TestAccessibility(t *testing.T) {
	t.Parallel()
	script := axe(t)
	path := filepath.Join(t.TempDir(), "tokens")
	admin, err := access.AddToken(path, "me", access.Admin)
	must.Succeed(t, err)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 360} {
			ctx := openWith(t, busyAgent(), access.NewTokens(path, slog.New(slog.DiscardHandler)), width, scheme)
			holds(ctx, t, `document.querySelectorAll(".containers tbody tr").length === 4`)
			signIn(ctx, t, admin)
			choose(ctx, t)
			weigh(ctx, t, "1")
			checkAxe(ctx, t, script, fmt.Sprintf("%s, %d wide", scheme, width))
		}
	}
}
