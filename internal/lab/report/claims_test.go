package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// TestWriteClaims: claims stand under their papers, with what was not measured; text stays in its cell; losses say
// what would have to change, or that the cause is not known, and nothing of what is undecided; what is missing and disturbed is named.
func TestWriteClaims(t *testing.T) {
	i := Index{
		Settings:  &Settings{Repeat: 5, DurationSeconds: 10, Host: Host{Kernel: "6.1", TCP: "bbr"}},
		Withheld:  []string{"short", "dirty"},
		Unclaimed: []Unclaimed{{Source: "A", Section: "2", Item: "figure 9", Here: "design: `docs/x.md`"}},
		Sections: []Section{
			{Name: "m", OfModel: true, Host: &Host{Kernel: "6.1", TCP: "bbr"}, Claims: []Claim{{Source: "Model", Where: "port", Says: "as fast", Judgement: Reproduced}, {Source: "A", Where: "figure 0", Says: "as slow"}}},
			{Name: "a", Containers: "docker", Command: "weir bench a", Note: "Goodput | payload.\nNo tool, so none. Frames.", Gaps: []string{"No tool, so none."}, Claims: []Claim{
				{Source: "A", Where: "figure 1", Says: "x | y\n<z>", Judgement: Reproduced, Values: []Value{{Name: "n", Unit: "ms"}, {Name: "m", Unit: "s", Measured: Number(2)}}, Command: "weir a"},
				{Source: "B", Where: "figure 2", Says: "less", Judgement: NotReproduced},
				{Source: "B", Where: "figure 4", About: "tc", Says: "slow", Judgement: NotReproduced},
			}},
			{Name: "b", Rounds: 7, RunSeconds: 2, Builds: []string{"v1", "v2"}, Host: &Host{Kernel: "6.2", TCP: "bbr"}, Claims: []Claim{{Source: "A", Where: "figure 3", Says: "more", Judgement: Exceeded}}, Failure: "broken", Disturbed: []string{"round 2"}},
			{Name: "c", Host: &Host{Machine: "board", Kernel: "6.1", TCP: "bbr"}, Gaps: []string{"No <tool>."}, PausesUnknown: true, Verdicts: []Verdict{{Target: "t", Limit: "1", Measured: "2", Where: "w", Undecided: true}, {Target: "u", Met: true}}},
		},
	}
	var b bytes.Buffer
	must.Succeed(t, i.WriteClaims(&b))
	text := b.String()
	for _, want := range []string{
		"**Not for publishing:** short; dirty.", "[Where Weir loses](#where-weir-loses)", "- host 1: machine , processor , kernel 6.1, congestion control bbr\n- host 2: machine , processor , kernel 6.2, congestion control bbr\n- host 3: machine board,", "| a |  |  | docker |  | 1 | `weir bench a` |\n| b |  | 7 of 2 s |  | v1, v2 | 2 |  |\n| c |  |  |  |  | 3 |  |\n", "| c | t | 1 | 2 | w | **undecided** |\n| c | u |  |  |  | **met** |\n", "## A\n\n- a: Goodput \\| payload. Frames.\n\n| where | the paper says |", "## B\n\n- a: Goodput", "## Model\n\n| where | the model says |", "## What has no claim\n", "| A | 2 | figure 9 | design: `docs/x.md` |\n", `| figure 1 | x \| y; &lt;z> | **reproduced** | n: not measured; m: here 2 s |  | ` + "`weir a` |",
		"| figure 4 (about tc) | slow |", "| B, figure 2: less |  | not known: the cause is to be measured first |", "| c: t, 1 (undecided) | 2, w | nothing as yet: more rounds or longer runs decide it |", "- b: broken\n- b, disturbed: round 2\n- c: No &lt;tool>.\n- c: whether processors stood still meanwhile was not watched\n",
		"## In short\n\n| claims of | what came of them |\n|---|---|\n| [A](#a) | 1 exceeded, 1 reproduced |\n| [B](#b) | 1 not reproduced |\n| [B](#b), not about Weir | 1 not reproduced |\n| [Model](#model) | 1 reproduced |\n| [Weir's own targets](#weirs-own-targets) | 1 met, 1 undecided |\n\n## A\n",
		"## Where Weir loses\n\nWhat would have to change was found on the machines of Weir's own measurements",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	if strings.Count(text, "## A\n") != 1 || strings.Index(text, "figure 3") > strings.Index(text, "## B") || strings.Index(text, "## Model") < strings.Index(text, "## B") || strings.Contains(text, "B, figure 4") || strings.Contains(text, "| c: u") || strings.Contains(text, "- m: ") || strings.Contains(text, "5 rounds") || strings.Contains(text, "rounds: 5") {
		t.Errorf("claims of one paper are apart, or a met target is a loss:\n%s", text)
	}
	b.Reset()
	must.Succeed(t, i.WriteHTML(&b))
	if text := b.String(); !strings.Contains(text, "Not for publishing: short; dirty.</strong>") || strings.Count(text, "(measured ") != 2 || !strings.Contains(text, "(measured with kernel 6.2)") {
		t.Errorf("the index does not name the hosts of sections, or that it is withheld:\n%s", text)
	}
	if got, want := linksTo("Weir's own model (docs/model.md)"), "[Weir's own model (docs/model.md)](#weirs-own-model-docsmodelmd)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.Reset()
	if must.Succeed(t, Index{}.WriteClaims(&b)); !strings.Contains(b.String(), "nothing that was measured") || strings.Contains(b.String(), "## Missing") {
		t.Errorf("the page of nothing: %s", b.String())
	}
}

func TestSettingsDifference(t *testing.T) {
	a := Settings{Weir: "v1", Host: Host{Kernel: "6.1"}, DurationSeconds: 10}
	b := a
	if got := a.Difference(b); got != "" {
		t.Errorf("the same settings differ: %s", got)
	}
	b.Kernel, b.Short = "6.12", true
	if got, want := a.Difference(b), "kernel: kept 6.1, now 6.12"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// Builds of the same sources are the same, by the parts that count.
	b = a
	a.Sources, b.Sources, b.Weir = "bpf=1,agent=2,sdn=3", "bpf=1,agent=2,sdn=4", "v2"
	if got := a.Difference(b, "bpf", "agent"); got != "" {
		t.Errorf("builds of the same sources differ: %s", got)
	}
	if got, want := a.Difference(b, "bpf", "sdn"), "build: kept v1, now v2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if b.Sources = ""; a.Difference(b, "none") == "" {
		t.Error("a build without hashes is another one's")
	}
}
