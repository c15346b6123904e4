package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// guides are the pages whose promises are tested, by their name in docs/promises.md.
var guides = map[string]string{
	"README": "README.md", "user guide": "docs/user-guide.md", "weir-edge": "docs/edge.md",
	"OpenFlow": "docs/sdn.md", "troubleshooting": "docs/troubleshooting.md",
}

// TestPromises: each promise of a guide is in docs/promises.md, and the tests named there exist.
func TestPromises(t *testing.T) {
	promise := regexp.MustCompile(`(?i)\b(always|never|nobody|no container|nothing that|at least|at most|guarantee\w*)\b`)
	row := regexp.MustCompile(`(?m)^\| (?:\[([^\]]+)\]\(\S+\)|([a-zA-Z -]+)) \| (.+?) \|(?: (.+) \|)?$`)
	table, tests := oneLine(t, "docs/promises.md", false), testNames(t)
	texts := map[string]string{}
	for page, path := range guides {
		texts[page] = oneLine(t, path, true)
	}
	for _, match := range row.FindAllStringSubmatch(table, -1) {
		page, quotation, names := match[1]+match[2], match[3], match[4]
		if page == "page" {
			continue
		}
		if !strings.Contains(texts[page], quotation) || !promise.MatchString(quotation) {
			t.Errorf("docs/promises.md: %q has no promise %q", page, quotation)
		}
		texts[page] = strings.Replace(texts[page], quotation, "", 1)
		for name := range strings.SplitSeq(names, ", ") {
			if name != "" && !tests[name] {
				t.Errorf("docs/promises.md: there is no test %s", name)
			}
		}
	}
	for page, text := range texts {
		for _, at := range promise.FindAllStringIndex(text, -1) {
			t.Errorf("%s: a promise without a test in docs/promises.md: ...%s...", guides[page], text[max(0, at[0]-40):min(len(text), at[1]+40)])
		}
	}
}

// oneLine returns a page of the tree, its white space and links' targets folded if fold is set.
func oneLine(t *testing.T, path string, fold bool) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(treeRoot, path))
	if err != nil {
		t.Fatal(err)
	}
	if !fold {
		return string(text)
	}
	link := regexp.MustCompile(`\[([^\]]+)\]\([^)\s]+\)`)
	return strings.Join(strings.Fields(link.ReplaceAllString(string(text), "$1")), " ")
}

// testNames returns the tests of the tree by folder and name, such as "docs.TestPromises".
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names, function := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, folder := range []string{"internal", "test"} {
		err := filepath.WalkDir(filepath.Join(treeRoot, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range function.FindAllSubmatch(text, -1) {
				names[filepath.Base(filepath.Dir(path))+"."+string(match[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}
