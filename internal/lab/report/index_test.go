package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

func TestIndex(t *testing.T) {
	one := sample()
	i := Index{
		Title: "All <reports>", Note: "A note.", Provenance: one.Provenance,
		Sections: []Section{
			{Name: "shares", About: "who gets what", Page: "shares.html", Result: "shares.json", Runs: 12, TookSeconds: 90, Verdicts: one.Verdicts, Claims: one.Claims},
			{Name: "<broken>", About: "nothing", Failure: "no <root>"},
		},
	}
	var out bytes.Buffer
	if err := i.WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		`<a href="shares.html">shares</a>`, `<a href="shares.json">JSON</a>`, "1 met", "1 missed", "1 exceeded", "link use", "1.5",
		"no &lt;root&gt;", "All &lt;reports&gt;", "Because.", `shares.html#targets`, "Kernel",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	for _, outside := range []string{" src=", "@import", "url(", "<link", "<script", "http"} {
		if strings.Contains(text, outside) {
			t.Errorf("the page may load something: %s", outside)
		}
	}
	out.Reset()
	if err := i.WriteText(&out, "folder/index.html"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"shares    12    90 s  1 met, 1 missed", "1 not reproduced", "no <root>", "All of it: folder/index.html"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not printed:\n%s", want, out.String())
		}
	}
	out.Reset()
	i.Left = []string{"cost: the rest takes about 9m", "agent: the rest takes about 2m"}
	must.Succeed(t, i.WriteText(&out, "folder/index.html"))
	for _, want := range []string{"1 met, 1 missed", "no <root>", "\nThe time is up. Left for the next run:\n  cost: the rest takes about 9m\n  agent: "} {
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "index.html") {
			t.Errorf("when the time is up: %q is not printed, or a page is:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := (Index{}).WriteHTML(&out); err != nil || strings.Contains(out.String(), "id=\"missed\"") || strings.Contains(out.String(), "id=\"claims\"") {
		t.Errorf("%v: an index of nothing has missed targets or claims", err)
	}
}
