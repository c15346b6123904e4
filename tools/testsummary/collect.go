package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output and build-fail
	FailedBuild string // ImportPath of the build that made a package fail
	Test        string
	Elapsed     float64
	Output      string
	Key, Value  string // of an attribute
}

// testRun is one test of one package.
type testRun struct {
	pkg, name string
	result    string // pass, fail, skip; empty while it runs
	output    strings.Builder
}

// packageRun is one run of a package's tests, in the order they started.
type packageRun struct {
	tests  []*testRun
	byName map[string]*testRun
	output strings.Builder // outside of any test
}

type collector struct {
	out      io.Writer
	rec      record
	packages map[string]*packageRun // those that have not ended
	builds   map[string]*strings.Builder
}

// collect reads `go test -json` from in, shows progress on out and returns
// what happened.
func collect(suite string, in io.Reader, out io.Writer) (record, error) {
	c := &collector{
		out:      out,
		rec:      record{Suite: suite},
		packages: map[string]*packageRun{},
		builds:   map[string]*strings.Builder{},
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			c.line(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return record{}, fmt.Errorf("reading test events: %w", err)
		}
	}
	for name := range c.packages { // the others have ended
		c.finishPackage(name, "fail", "", 0)
	}
	if c.rec.Passed+c.rec.Failed+c.rec.Skipped == 0 {
		c.rec.fail("", "", "no test ran", "")
	}
	return c.rec, nil
}

func (c *collector) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		fmt.Fprintf(c.out, "%s", line) // what the go command says in plain text
		return
	}
	switch {
	case e.Action == "build-output":
		if c.builds[e.ImportPath] == nil {
			c.builds[e.ImportPath] = &strings.Builder{}
		}
		c.builds[e.ImportPath].WriteString(e.Output)
	case e.Package == "":
		// build-fail; the package that needed the build says so too
	case e.Test != "":
		c.testEvent(e)
	case e.Action == "output":
		c.pkg(e.Package).output.WriteString(e.Output)
	case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
		c.finishPackage(e.Package, e.Action, e.FailedBuild, e.Elapsed)
	}
}

func (c *collector) pkg(name string) *packageRun {
	if c.packages[name] == nil {
		c.packages[name] = &packageRun{byName: map[string]*testRun{}}
	}
	return c.packages[name]
}

func (c *collector) testEvent(e event) {
	pkg := c.pkg(e.Package)
	t := pkg.byName[e.Test]
	if t == nil {
		t = &testRun{pkg: e.Package, name: e.Test}
		pkg.byName[e.Test] = t
		pkg.tests = append(pkg.tests, t)
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
		if strings.Contains(e.Output, failedParent) {
			t.output.WriteString(pkg.saidAbove(e.Test))
		}
	case "attr":
		c.rec.judge(e)
	case "pass", "skip", "fail":
		t.result = e.Action
		if e.Elapsed >= longTestSeconds && !strings.Contains(e.Test, "/") {
			c.rec.Long = append(c.rec.Long, timed{e.Package, e.Test, e.Elapsed})
		}
		if e.Action == "fail" {
			fmt.Fprintf(c.out, "FAIL  %s %s\n%s", e.Package, e.Test, indent(t.output.String()))
		}
	}
}

// failedParent is what the testing package prints in a subtest that ended its parent by FailNow.
const failedParent = "may have called FailNow on a parent test"

// saidAbove returns what the nearest test above a subtest said last: its reason for FailNow.
func (p *packageRun) saidAbove(name string) string {
	for at := strings.LastIndex(name, "/"); at > 0; at = strings.LastIndex(name, "/") {
		name = name[:at]
		if above := p.byName[name]; above != nil {
			if said := lastLog(above.output.String()); said != "" {
				return fmt.Sprintf("    %s said: %s\n", name, said)
			}
		}
	}
	return ""
}

func (c *collector) finishPackage(name, result, failedBuild string, seconds float64) {
	pkg := c.pkg(name)
	delete(c.packages, name) // it may run again, for other tests
	before := c.rec
	for _, t := range pkg.tests {
		if t.result == "" {
			t.result = "fail" // a panic or a time limit ended the package
			fmt.Fprintf(c.out, "FAIL  %s %s (did not finish)\n%s", name, t.name, indent(t.output.String()))
		}
	}
	for _, t := range pkg.tests {
		c.count(pkg, t)
	}
	if result == "fail" && c.rec.Failed == before.Failed {
		text := pkg.output.String()
		reason := "failed outside of its tests"
		if build := c.builds[failedBuild]; build != nil {
			text, reason = build.String(), "does not build"
		}
		fmt.Fprintf(c.out, "FAIL  %s %s\n%s", name, reason, indent(text))
		c.rec.fail(name, "", reason, text)
	}
	passed, failed := c.rec.Passed-before.Passed, c.rec.Failed-before.Failed
	skipped := c.rec.Skipped - before.Skipped
	if passed+failed+skipped > 0 {
		fmt.Fprintf(c.out, "%-5s %s: %s (%.1fs)\n", result, name, counts(passed, failed, skipped), seconds)
	}
}

func (c *collector) count(pkg *packageRun, t *testRun) {
	var hasSub bool
	sameBelow := slices.ContainsFunc(pkg.tests, func(sub *testRun) bool {
		below := strings.HasPrefix(sub.name, t.name+"/")
		hasSub = hasSub || below
		return below && sub.result == t.result
	})
	if hasSub && (t.result == "pass" || sameBelow) {
		return
	}
	switch t.result {
	case "pass":
		c.rec.Passed++
	case "skip":
		c.rec.skip(t.pkg, t.name, cmp.Or(lastLog(t.output.String()), "no reason given"))
	case "fail":
		c.rec.fail(t.pkg, t.name, "", t.output.String())
	}
}

// logLine is how the testing package prints t.Log, t.Skip and t.Error.
var logLine = regexp.MustCompile(`^(\s*)[\w.-]+\.go:\d+: (.*)$`)

// lastLog returns the last log line, with the lines of the same log call: of a test that has ended what t.Skip was given.
// These lines are indented deeper than the first one; others are of the tested code, which may print while a test ends.
func lastLog(output string) string {
	var reason []string
	deeper, continues := "", false
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "=== ") || strings.HasPrefix(trimmed, "--- ") || trimmed == "" {
			continue
		}
		if m := logLine.FindStringSubmatch(line); m != nil {
			reason, deeper, continues = []string{m[2]}, m[1]+" ", true
		} else if continues = continues && strings.HasPrefix(line, deeper); continues {
			reason = append(reason, trimmed)
		}
	}
	return strings.Join(reason, " ")
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("      " + strings.TrimRight(line, "\n") + "\n")
	}
	return b.String()
}
