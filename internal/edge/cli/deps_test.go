package cli

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDependencies: weir-edge does not link what an agent is made of, by whatever detour.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/weir-project/weir/cmd/weir-edge").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	for _, name := range []string{"agent", "server", "uplink", "identity", "sched/htb", "kernel", "lab/testbed"} {
		if slices.Contains(linked, "github.com/weir-project/weir/internal/"+name) {
			t.Errorf("weir-edge links internal/%s", name)
		}
	}
	if !slices.Contains(linked, "github.com/weir-project/weir/internal/unixsock") {
		t.Errorf("the list is not that of weir-edge: %d packages", len(linked))
	}
}
