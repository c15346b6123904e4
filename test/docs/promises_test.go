package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// guides are the pages whose promises are tested, by their name in test/docs/testdata/promises.md.
var guides = map[string]string{
	"README": "README.md", "user guide": "docs/user-guide.md", "weir-edge": "docs/edge.md",
	"OpenFlow": "docs/sdn.md", "troubleshooting": "docs/troubleshooting.md",
}

// TestPromises: each promise of a guide is in test/docs/testdata/promises.md, and the tests named there exist.
func TestPromises(t *testing.T) {
	promise := regexp.MustCompile(`(?i)\b(always|never|nobody|no container|nothing that|at least|at most|guarantee\w*)\b`)
	row := regexp.MustCompile(`(?m)^\| ([a-zA-Z -]+) \| (.+?) \|(?: (.+) \|)?$`)
	table, tests := oneLine(t, "test/docs/testdata/promises.md", false), testNames(t)
	texts := map[string]string{}
	for page, path := range guides {
		texts[page] = oneLine(t, path, true)
	}
	for _, match := range row.FindAllStringSubmatch(table, -1) {
		page, quotation, names := match[1], match[2], match[3]
		if page == "page" {
			continue
		}
		if !strings.Contains(texts[page], quotation) || !promise.MatchString(quotation) {
			t.Errorf("test/docs/testdata/promises.md: %q has no promise %q", page, quotation)
		}
		texts[page] = strings.Replace(texts[page], quotation, "", 1)
		for name := range strings.SplitSeq(names, ", ") {
			if name != "" && !tests[name] {
				t.Errorf("test/docs/testdata/promises.md: there is no test %s", name)
			}
		}
	}
	for page, text := range texts {
		for _, at := range promise.FindAllStringIndex(text, -1) {
			t.Errorf("%s: a promise without a test in test/docs/testdata/promises.md: ...%s...", guides[page], text[max(0, at[0]-40):min(len(text), at[1]+40)])
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
	link := regexp.MustCompile(`\[([^\]]*)\]\([^)\s]+\)`)
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

// TestSetupsAreTried: the user guide's table of set-ups has those of test/docs/testdata/setups.md, where each has tests, which exist, or
// is reasoned, as the guide says. Kernels other than this machine's are those of virtual machines.
func TestSetupsAreTried(t *testing.T) {
	const columns, kernel, tested = 5, 2, 4
	testsOf := map[string][]string{}
	for _, cells := range tableRows(oneLine(t, "test/docs/testdata/setups.md", false), "set-up") {
		testsOf[cells[0]] = strings.Split(cells[1], ", ")
	}
	_, table, _ := strings.Cut(oneLine(t, "docs/user-guide.md", false), "\n## Ordinary set-ups\n")
	table, _, _ = strings.Cut(table, "\n## ")
	machines, rows := oneLine(t, "test/vm/matrix.go", false), tableRows(table, "set-up")
	for _, cells := range rows {
		if len(cells) != columns {
			t.Errorf("%q has %d cells", cells, len(cells))
			continue
		}
		tests := testsOf[cells[0]]
		delete(testsOf, cells[0])
		const reasoned = "reasoned"
		if len(tests) == 0 || (tests[0] == reasoned) != strings.HasPrefix(cells[tested], reasoned) {
			t.Errorf("%s is %q, and has the tests %q", cells[0], cells[tested], tests)
		}
		for _, test := range tests {
			if test == reasoned {
				continue
			}
			name, part, _ := strings.Cut(test, "/")
			if !sourceHas(t, name, part) {
				t.Errorf("%s: there is no test %s", cells[0], test)
			}
			run := regexp.MustCompile(`\b`+name+`(?:/(\([^)]*\)))?`).FindAllStringSubmatch(machines, -1)
			runs := func(one []string) bool { return regexp.MustCompile(one[1]).MatchString(part) }
			if strings.Contains(cells[kernel], " to ") && !slices.ContainsFunc(run, runs) {
				t.Errorf("%s: no virtual machine runs %s", cells[0], test)
			}
		}
	}
	if len(rows) == 0 || len(testsOf) > 0 {
		t.Errorf("%d set-ups; there are none for the tests %q", len(rows), testsOf)
	}
}

// tableRows returns the cells of a Markdown table's rows, without its head, whose first cell is given.
func tableRows(text, head string) (rows [][]string) {
	for line := range strings.SplitSeq(text, "\n") {
		if cells := strings.Split(strings.Trim(line, "| "), " | "); strings.HasPrefix(line, "| ") && cells[0] != head {
			rows = append(rows, cells)
		}
	}
	return rows
}

// sourceHas reports whether a package of tests has a test, with a part whose name begins as given.
func sourceHas(t *testing.T, name, part string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(treeRoot, "test", "*", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]string{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		folders[filepath.Dir(path)] += string(text)
	}
	for _, text := range folders {
		if strings.Contains(text, "\nfunc "+name+"(") {
			return strings.Contains(text, `"`+strings.ReplaceAll(part, "_", " "))
		}
	}
	return false
}
