package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-project/weir/internal/lab/testbed"
)

// TestAgentConfigSaysWhereContainersAre: a container with a network namespace
// and a cgroup is known by both, or the agent would take it for one in the
// host's network; one in the host's network is known by its cgroup alone.
func TestAgentConfigSaysWhereContainersAre(t *testing.T) {
	const netns, cgroup = "/run/netns/c", "/sys/fs/cgroup/c"
	path := filepath.Join(t.TempDir(), "weir.yaml")
	err := writeAgentConfig(path, &bed{}, []placed{
		{Mode: testbed.ModeBridge, NetNSPath: netns},
		{Mode: testbed.ModeMacvlan, NetNSPath: netns, CgroupPath: cgroup},
		{Mode: testbed.ModeHost, NetNSPath: netns, CgroupPath: cgroup},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type place struct {
		NetNS, Cgroup string
	}
	var config struct{ Containers []place }
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	want := []place{{netns, ""}, {netns, cgroup}, {"", cgroup}}
	if len(config.Containers) != len(want) {
		t.Fatalf("%s", text)
	}
	for i, have := range config.Containers {
		if have != want[i] {
			t.Errorf("container %d: %+v, want %+v", i, have, want[i])
		}
	}
}
