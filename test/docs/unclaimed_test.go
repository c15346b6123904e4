package docs

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/lab/bench/all"
	"github.com/weir-project/weir/internal/lab/bench/claim"
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

// TestUnclaimedIsComplete: each figure, table, formula and algorithm of a paper has claims on the published page or is in the list of
// items without, not in both, and has a section.
func TestUnclaimedIsComplete(t *testing.T) {
	page := publishedPage(t)
	if !slices.Equal(page.Unclaimed, all.Unclaimed()) {
		t.Error("the published page has another list of items without a claim: make it again")
	}
	for source, counts := range map[string]map[string]int{
		claim.PaperQCon:     {"figure": 12, "table": 1, "formula": 9, "algorithm": 1},
		claim.PaperCNTC:     {"figure": 11, "table": 1, "formula": 2, "algorithm": 1},
		claim.PaperLLQ:      {"figure": 13, "table": 2, "formula": 33, "algorithm": 3},
		claim.PaperNetmodes: {"figure": 5, "table": 2},
		claim.PaperPicasso:  {"figure": 9, "table": 1},
	} {
		claimed, unclaimed := map[string]bool{}, map[string]bool{}
		for _, s := range page.Sections {
			for _, c := range s.Claims {
				if c.Source == source {
					maps.Copy(claimed, itemsOf(c.Where))
				}
			}
		}
		for _, one := range all.Unclaimed() {
			if one.Source != source {
				continue
			}
			items := itemsOf(one.Item)
			for item := range items {
				if unclaimed[item] {
					t.Errorf("%s: %s stands twice among what has no claim", source, item)
				}
			}
			maps.Copy(unclaimed, items)
			if one.Section == "" {
				t.Errorf("%s, %s has no section", source, one.Item)
			}
		}
		for kind, count := range counts {
			for n := 1; n <= count; n++ {
				item := kind + " " + strconv.Itoa(n)
				if claimed[item] == unclaimed[item] {
					t.Errorf("%s: %s has a claim: %t, and is in the list without: %t; want one", source, item, claimed[item], unclaimed[item])
				}
				delete(claimed, item)
				delete(unclaimed, item)
			}
		}
		if others := slices.Concat(slices.Collect(maps.Keys(claimed)), slices.Collect(maps.Keys(unclaimed))); len(others) > 0 {
			t.Errorf("%s has no %q", source, others)
		}
	}
	if !maps.Equal(itemsOf("figures 7 to 9 and 11b, table I, 20 Mbit/s"), map[string]bool{"figure 7": true, "figure 8": true, "figure 9": true, "figure 11": true, "table 1": true}) {
		t.Errorf("itemsOf: %v", itemsOf("figures 7 to 9 and 11b, table I, 20 Mbit/s"))
	}
}

var (
	itemList   = regexp.MustCompile(`(figure|table|formula|algorithm)s? ([\dI]+[a-d]?(?:(?: to | and )\d+[a-d]?)*)`)
	itemNumber = regexp.MustCompile(`( to )?([\dI]+)`)
)

// itemsOf returns the items that a text names: "figures 5 and 8, table I" are "figure 5", "figure 8" and "table 1".
func itemsOf(text string) map[string]bool {
	items := map[string]bool{}
	for _, list := range itemList.FindAllStringSubmatch(text, -1) {
		first := 0
		for _, match := range itemNumber.FindAllStringSubmatch(strings.ReplaceAll(list[2], "I", "1"), -1) {
			last, _ := strconv.Atoi(match[2])
			if match[1] == "" {
				first = last
			}
			for n := first; n <= last; n++ {
				items[list[1]+" "+strconv.Itoa(n)] = true
			}
			first = last
		}
	}
	return items
}
