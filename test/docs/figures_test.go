package docs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/test/golden"
	"github.com/weir-project/weir/test/must"
)

// A comment at the start of a section says where all of its figures come from: `figures: older build COMMIT`
// (TestBuildsAreCommits knows commits), `definition`, `paper`, or several, with semicolons. Parts from kept results (TestResults)
// need none.
var (
	figure     = regexp.MustCompile(`\d\s?(%|ms|µs|[kMG]bit/s|[kMG]B|s)([^\w/]|$)`)
	partBegins = regexp.MustCompile(`^<!-- figures: from [\w-]+ -->$`) // as madePart has it
	// measured are the pages of which every figure has a source.
	measured     = regexp.MustCompile(`/(README|docs/(netmodes|model|measurements[^.]*))\.md$`)
	figureSource = regexp.MustCompile("^<!-- figures: ((older build `[0-9a-f]{7,40}`[^;]*|definition|paper)(; )?)+ -->$")
)

// unsourced returns the first line with a figure of each section that does not say where its figures come from, a
// comment that says it in another form, and a part that does not end. Commands are no figures.
func unsourced(text string) (lines []string) {
	sourced, fenced, made := false, false, ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		switch {
		case line == "<!-- figures: end -->":
			made = ""
		case partBegins.MatchString(line) && made == "":
			made = line
		case partBegins.MatchString(line):
			lines = append(lines, made)
		case made != "":
		case fenced, strings.HasPrefix(line, "    "):
		case strings.HasPrefix(line, "#"):
			sourced = false
		case strings.HasPrefix(line, "<!-- figures:"):
			if sourced = figureSource.MatchString(line); !sourced {
				lines = append(lines, line)
			}
		case !sourced && figure.MatchString(line):
			lines, sourced = append(lines, line), true
		}
	}
	if made != "" {
		lines = append(lines, made)
	}
	return lines
}

// TestFigures: figures of README and of pages of measurements say where they come from, and the published page
// is what its JSON makes. Renew it with: go test ./test/docs -run TestFigures -update
func TestFigures(t *testing.T) {
	for path, text := range pages(t) {
		if !measured.MatchString(filepath.ToSlash(path)) || strings.HasSuffix(path, "/claims.md") {
			continue
		}
		for _, line := range unsourced(text) {
			t.Errorf("%s: where does this come from? Take it from claims.json, or begin its section with <!-- figures: older build `COMMIT` -->, definition or paper: %s", path, line)
		}
	}
	var b bytes.Buffer
	must.Succeed(t, publishedPage(t).WriteClaims(&b))
	golden.Compare(t, filepath.Join(treeRoot, "docs/measurements/claims.md"), b.String())
}

// publishedPage returns the published page of all claims.
func publishedPage(t *testing.T) (index report.Index) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(treeRoot, "docs/measurements/claims.json"))
	must.Succeed(t, err)
	must.Succeed(t, json.Unmarshal(data, &index))
	return index
}

// TestUnsourced: a figure without a source, with one of another section, or with one in another form is found.
func TestUnsourced(t *testing.T) {
	const source = "<!-- figures: older build `0123abc`, `4567def`; paper -->\n"
	for text, want := range map[string]int{
		"# A\nNo figure, 5 containers, version 1.5.\n":                            0,
		"# A\n| 5 % |\n| 6 % |\n":                                                 1,
		"# A\n" + source + "It takes 3 ms.\n":                                     0,
		"# A\n" + source + "3 ms\n## B\n4 Mbit/s\n":                               1,
		"# A\n<!-- figures: trust me -->\n":                                       1,
		"# A\n<!-- figures: older build -->\n3 ms\n":                              2,
		"# A\n<!-- figures: definition -->\nin 10 s.\n":                           0,
		"# A\n    sleep 5 s\n```\n3 ms\n```\n":                                    0,
		"# A\n<!-- figures: from p -->\n3 ms\n<!-- figures: end -->\nIt is so.\n": 0,
		"# A\n<!-- figures: from p -->\n3 ms\n<!-- figures: end -->\n4 ms\n":      1,
		"# A\n<!-- figures: from p, q -->\n3 ms\n<!-- figures: end -->\n":         2,
		"# A\n<!-- figures: from p -->\n3 ms\n":                                   1,
		"# A\n<!-- figures: from p -->\n<!-- figures: from q -->\n":               2,
	} {
		if got := unsourced(text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}
