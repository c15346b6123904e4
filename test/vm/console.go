package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// Console is what a machine printed, taken apart.
type Console struct {
	// Release is the kernel's.
	Release string
	// Results are the tests', in the order they ended.
	Results []Result
	// Problems are what went wrong outside of tests.
	Problems []string
	// Log is what the kernel logged.
	Log string
}

// Result is how a test ended.
type Result struct {
	// Suite is the package with the test.
	Suite, Test string
	// Action is pass, fail or skip.
	Action string
	Output string
	// Seconds are the machine's.
	Seconds float64
}

const marker = "weir-vm: "

// ParseConsole takes apart what a machine printed. A suite that was begun and not
// ended is a problem.
func ParseConsole(ctx context.Context, text string) (Console, error) {
	var c Console
	suite, done := "", false
	var body, log strings.Builder
	inLog := false
	for line := range strings.Lines(strings.ReplaceAll(text, "\r\n", "\n")) {
		// A program may have ended without ending its line.
		before, said, found := strings.Cut(line, marker)
		if !found {
			if inLog {
				log.WriteString(line)
			} else if suite != "" {
				body.WriteString(line)
			}
			continue
		}
		body.WriteString(before)
		word, rest, _ := strings.Cut(strings.TrimSpace(said), " ")
		switch word {
		case "kernel":
			c.Release = rest
		case "problem":
			c.Problems = append(c.Problems, rest)
		case "begin":
			suite = rest
			body.Reset()
		case "end":
			name, status, _ := strings.Cut(rest, " ")
			results, err := parseTests(ctx, name, body.String())
			if err != nil {
				return c, err
			}
			c.add(name, status, results)
			suite = ""
		case "log":
			inLog = true
		case "done":
			inLog, done = false, true
		}
	}
	if suite != "" {
		results, err := parseTests(ctx, suite, body.String())
		if err != nil {
			return c, err
		}
		c.add(suite, "", results)
	}
	if !done {
		c.Problems = append(c.Problems, "the machine ended before its time")
	}
	c.Log = log.String()
	c.Problems = append(c.Problems, kernelProblems(c.Log)...)
	return c, nil
}

// add adds the results of a suite that ended with this status, or not at all
// if it is empty.
func (c *Console) add(suite, status string, results []Result) {
	failed := false
	for _, r := range results {
		failed = failed || r.Action == "fail"
	}
	c.Results = append(c.Results, results...)
	switch {
	case status == "":
		c.Problems = append(c.Problems, suite+" did not end")
	case len(results) == 0:
		c.Problems = append(c.Problems, fmt.Sprintf("%s ran no test, and ended with status %s", suite, status))
	case status != "0" && !failed:
		c.Problems = append(c.Problems, fmt.Sprintf("%s ended with status %s outside of its tests", suite, status))
	}
}

// trouble is how the kernel reports what must not happen.
var trouble = regexp.MustCompile(`(?m)^\[[ 0-9.]+\] ((?:BUG|WARNING|Oops|INFO: task|general protection|KASAN|UBSAN|unregister_netdevice: waiting).*)$`)

func kernelProblems(log string) []string {
	var problems []string
	for _, m := range trouble.FindAllStringSubmatch(log, -1) {
		problems = append(problems, "the kernel logged: "+m[1])
	}
	return problems
}

// parseTests reads what a test program printed with -test.v=test2json. Tests
// that have not ended have failed.
func parseTests(ctx context.Context, suite, text string) ([]Result, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t") // -t: with durations
	cmd.Stdin = strings.NewReader(text)
	out, err := run(cmd)
	if err != nil {
		return nil, err
	}
	var results []Result
	tests := map[string]*Result{}
	var order []string
	for line := range strings.Lines(out) {
		var event struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			return nil, fmt.Errorf("read %s: %w", strconv.Quote(line), err)
		}
		if event.Test == "" {
			continue
		}
		r := tests[event.Test]
		if r == nil {
			r = &Result{Suite: suite, Test: event.Test}
			tests[event.Test] = r
			order = append(order, event.Test)
		}
		switch event.Action {
		case "output":
			r.Output += event.Output
		case "pass", "fail", "skip":
			r.Action, r.Seconds = event.Action, event.Elapsed
		}
	}
	for _, name := range order {
		r := tests[name]
		if r.Action == "" {
			r.Action = "fail"
			r.Output += "(did not end)\n"
		}
		results = append(results, *r)
	}
	return results, nil
}

// leaves are the results without those whose subtests say as much: a test with
// subtests passes with them, and its failure is theirs unless none has failed.
func (c Console) leaves() []Result {
	var leaves []Result
	for _, r := range c.Results {
		covered := false
		for _, sub := range c.Results {
			if sub.Suite == r.Suite && strings.HasPrefix(sub.Test, r.Test+"/") &&
				(r.Action == "pass" || sub.Action == r.Action) {
				covered = true
				break
			}
		}
		if !covered {
			leaves = append(leaves, r)
		}
	}
	return leaves
}

// logged is how the testing package prints what t.Skip was given.
var logged = regexp.MustCompile(`(?m)^\s*[\w.-]+\.go:\d+: (.*)$`)

// skipReason is the last thing that a test logged.
func (r Result) skipReason() string {
	all := logged.FindAllStringSubmatch(r.Output, -1)
	if len(all) == 0 {
		return "no reason given"
	}
	return all[len(all)-1][1]
}
