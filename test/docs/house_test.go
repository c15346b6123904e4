package docs

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/golden"
)

// TestHouse pins the rooms, floors and arrows of this repository, and of the inside of each
// room: no figure rises without being seen.
// Renew it with: go test ./test/docs -run TestHouse -update
func TestHouse(t *testing.T) {
	out, err := exec.Command("go", "run", "../../tools/house").Output()
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/house.golden", string(out))
	if house, _, _ := strings.Cut(string(out), "\n"); !strings.HasSuffix(house, ", 0 up") {
		t.Errorf("rooms import each other: %s", house)
	}
}

// TestLinked pins the packages of this repository that each program links. A daemon that runs
// as root carries only what it needs.
// Renew it with: go test ./test/docs -run TestLinked -update
func TestLinked(t *testing.T) {
	const module = "github.com/weir-project/weir/"
	var b strings.Builder
	for _, program := range []string{"weir", "weir-edge", "weir-k8s", "weir-lab", "weir-sdn"} {
		out, err := exec.Command("go", "list", "-deps", module+"cmd/"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", program)
		for _, path := range strings.Fields(string(out)) {
			if ours, ok := strings.CutPrefix(path, module); ok {
				fmt.Fprintf(&b, "  %s\n", ours)
			}
			if other := strings.TrimPrefix(path, module+"internal/"); program != "weir-lab" && strings.HasPrefix(other, "lab/") {
				t.Errorf("%s links %s", program, other)
			}
		}
	}
	golden.Compare(t, "testdata/linked.golden", b.String())
}
