package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/lab/bench/all"
)

// TestUnclaimed: each item of a paper without a claim names an existing heading of a page, or existing tests.
func TestUnclaimed(t *testing.T) {
	heading, test, tests := regexp.MustCompile(`(docs/\S+\.md), "([^"]+)"`), regexp.MustCompile(`\w+\.Test\w+`), testNames(t)
	for _, one := range all.Unclaimed() {
		named := 0
		for _, match := range heading.FindAllStringSubmatch(one.Here, -1) {
			if named++; !regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(match[2]) + `$`).MatchString(oneLine(t, match[1], false)) {
				t.Errorf("%s, %s: %s has no heading %q", one.Source, one.Item, match[1], match[2])
			}
		}
		for _, name := range test.FindAllString(one.Here, -1) {
			if named++; !tests[name] {
				t.Errorf("%s, %s: there is no test %s", one.Source, one.Item, name)
			}
		}
		if named == 0 || strings.Count(one.Here, "docs/") != len(heading.FindAllString(one.Here, -1)) {
			t.Errorf("%s, %s: %q names no heading and no test", one.Source, one.Item, one.Here)
		}
	}
}
