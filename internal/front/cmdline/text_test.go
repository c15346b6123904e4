package cmdline

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"web-1":                 "web-1",
		"ünïcode 日本":            "ünïcode 日本",
		"\x1b[2Jgone":           `\x1b[2Jgone`,
		"two\nlines\r":          `two\nlines\r`,
		"\x9b31mC1":             `\x9b31mC1`,
		"\u009b31m":             `\u009b31m`,
		"right\u202eleft":       `right\u202eleft`,
		"zero\u200bwidth":       `zero\u200bwidth`,
		"bell\a del\x7f tab\t":  `bell\a del\x7f tab\t`,
		"replaced \ufffd stays": "replaced \ufffd stays",
		"no-break\u00a0space":   `no-break\u00a0space`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("Printable(%q) = %q, want %q", text, got, want)
		}
	}
	if got := PrintableLines("a\x1b\nb\n"); got != "a\\x1b\nb\n" {
		t.Errorf("got %q", got)
	}
}

func TestWrap(t *testing.T) {
	for _, test := range []struct {
		text  string
		width int
		want  string
	}{
		{"", 10, ""},
		{"one two three", 7, "one two/three"},
		{"äöü äöü", 7, "äöü äöü"},
		{"a verylongword b", 5, "a/verylongword/b"},
	} {
		if got := strings.Join(Wrap(test.text, test.width), "/"); got != test.want {
			t.Errorf("Wrap(%q, %d) = %q, want %q", test.text, test.width, got, test.want)
		}
	}
}

// TestCut: what is cut takes as many columns as there are, also where a letter takes two.
func TestCut(t *testing.T) {
	for _, text := range []string{"short", "longer than that", "日本語日本語日本語", ""} {
		for width := range 12 {
			if got := Cut(text, width); TextWidth(got) > width {
				t.Errorf("%q cut to %d columns is %q", text, width, got)
			}
		}
	}
}

func TestBar(t *testing.T) {
	for _, tc := range []struct {
		part, mark float64
		want       string
	}{
		{0, 0, "··········"},
		{1, 0, "██████████"},
		{0.5, 0, "█████·····"},
		{0.5, 0.7, "█████··|··"},
		{0.55, 0, "█████▌····"},
		{0.01, 0, "▏·········"},
		{0.001, 0, "··········"},
		{0, 1, "·········|"},
		{0.2, 1, "██·······|"},
		{1, 0.5, "██████████"}, // above what it is entitled to
		{0, 0.001, "|·········"},
	} {
		if got := Bar(tc.part, tc.mark, 10); got != tc.want {
			t.Errorf("Bar(%g, %g): %s, want %s", tc.part, tc.mark, got, tc.want)
		}
	}
}

// TestOutputIsSafe: whatever a cell or a string of JSON holds, the terminal obeys none of it, and JSON keeps its meaning.
func TestOutputIsSafe(t *testing.T) {
	const hostile = "web\x1b[2J\u009b31m\u202e\x7f\U000e0041é"
	var table, printed strings.Builder
	rows := TextTable{Header: []string{"NAME"}}
	rows.Add([]string{hostile}, hostile)
	if err := rows.Print(&table, 0); err != nil {
		t.Fatal(err)
	}
	if err := PrintJSON(&printed, []string{hostile}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{table.String(), printed.String()} {
		if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 || !strings.Contains(text, "é") {
			t.Errorf("at %d of %q", at, text)
		}
	}
	var back []string
	if err := json.Unmarshal([]byte(printed.String()), &back); err != nil || back[0] != hostile {
		t.Errorf("%q, %v", back, err)
	}
}
