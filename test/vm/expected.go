package vm

import (
	"fmt"
	"regexp"
	"strings"
)

// The matrix is a list of tests that must run: a test that is skipped on a machine
// that was made for it, or that its pattern does not find any more, is a failure.
// What a kernel cannot do is written down with the machine, in MaySkip.

// unmet lists what a machine should have run and did not.
func (m Machine) unmet(leaves []Result) []string {
	var problems []string
	for _, r := range leaves {
		if r.Action == "skip" && !m.maySkip(r) {
			problems = append(problems, fmt.Sprintf("%s/%s must run on kernel %s and was skipped: %s", r.Suite, r.Test, m.Series, r.skipReason()))
		}
	}
	for _, s := range m.Suites {
		for _, pattern := range alternatives(s.Run) {
			if !anyMatches(pattern, s.name(), leaves) {
				problems = append(problems, fmt.Sprintf("no test of %s is called %s", s.Package, pattern))
			}
		}
	}
	return problems
}

func (m Machine) maySkip(r Result) bool {
	return m.MaySkip != "" && regexp.MustCompile(m.MaySkip).MatchString(r.Suite+"/"+r.Test)
}

// alternatives returns the patterns that one of go test's -run means: it is split where it means either of two, also in brackets,
// and what is optional there is one more.
func alternatives(pattern string) (all []string) {
	for _, part := range splitOutside(pattern, '|') {
		before, rest, found := strings.Cut(part, "(")
		if !found {
			all = append(all, part)
			continue
		}
		inside := splitOutside(rest, ')')[0]
		after, optional := strings.CutPrefix(strings.TrimPrefix(rest[len(inside):], ")"), "?")
		if optional {
			all = append(all, alternatives(before+after)...)
		}
		for _, one := range splitOutside(inside, '|') {
			all = append(all, alternatives(before+one+after)...)
		}
	}
	return all
}

// splitOutside splits where a separator is in no brackets.
func splitOutside(text string, separator rune) []string {
	var parts []string
	depth, begin := 0, 0
	for at, r := range text {
		switch {
		case r == separator && depth == 0:
			parts = append(parts, text[begin:at])
			begin = at + 1
		case r == '(' || r == '[':
			depth++
		case r == ')' || r == ']':
			depth--
		}
	}
	return append(parts, text[begin:])
}

// anyMatches says whether a pattern without alternatives selects any result, or
// the test of one: its elements are looked for in those of the test's name.
func anyMatches(pattern, suite string, leaves []Result) bool {
	elements := splitOutside(pattern, '/')
	for _, r := range leaves {
		names := strings.Split(r.Test, "/")
		if r.Suite != suite || len(names) < len(elements) {
			continue
		}
		all := true
		for i, element := range elements {
			all = all && regexp.MustCompile(element).MatchString(names[i])
		}
		if all {
			return true
		}
	}
	return false
}
