package policy

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/must"
)

// The kernel's programs read and write the same marks.
func TestMarksAreTheKernels(t *testing.T) {
	b, err := os.ReadFile("../../../bpf/dscp.h")
	must.Succeed(t, err)
	numbers := func(pattern string) (list []int) {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(string(b))
		if found == nil {
			t.Fatalf("bpf/dscp.h has no %s", pattern)
		}
		for _, digits := range regexp.MustCompile(`\d+`).FindAllString(found[1], -1) {
			n, err := strconv.Atoi(digits)
			must.Succeed(t, err)
			list = append(list, n)
		}
		slices.Sort(list)
		return list
	}
	all := map[uint8]bool{}
	for _, class := range []v1.Class{v1.ClassEF, v1.ClassAF, v1.ClassBE} {
		var here []int
		for _, m := range Marks() {
			if m.Class == class {
				here = append(here, int(m.DSCP))
				if all[m.DSCP] {
					t.Errorf("%d is there twice", m.DSCP)
				}
				all[m.DSCP] = true
			}
		}
		slices.Sort(here)
		if there := numbers(`(?s)const __u64 ` + string(class) + ` = (.*?);`); !slices.Equal(here, there) {
			t.Errorf("%s: %v here, %v in bpf/dscp.h", class, here, there)
		}
	}
	want := []int{int(MarkOf(v1.ClassBE)), int(MarkOf(v1.ClassAF)), int(MarkOf(v1.ClassEF))}
	if written := numbers(`dscp = (class == .*?);`); !slices.Equal(written, want) {
		t.Errorf("marks that are written: %v here, %v in bpf/dscp.h", want, written)
	}
	if text := FormatMarks(v1.ClassBE); text != "CS1 (8), LE (1)" || !strings.HasPrefix(FormatMarks(v1.ClassEF), "EF (46), VOICE-ADMIT (44), ") {
		t.Errorf("in words: %s", text)
	}
}
