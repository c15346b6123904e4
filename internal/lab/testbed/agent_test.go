package testbed

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestAgentConfigSaysWhereContainersAre: a container with a network namespace
// and a cgroup is known by both, one in the host's network by its cgroup alone.
func TestAgentConfigSaysWhereContainersAre(t *testing.T) {
	const netns, cgroup = "/run/netns/c", "/sys/fs/cgroup/c"
	dir := AgentDir(t.TempDir())
	err := dir.WriteConfig([]AgentContainer{
		ListContainer("a", ModeBridge, netns, "", nil),
		ListContainer("b", ModeMacvlan, netns, cgroup, nil),
		ListContainer("c", ModeHost, netns, cgroup, nil),
	}, map[string]any{"host": map[string]string{"min": "1mbit"}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(dir.ConfigPath())
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Containers []struct{ Name, NetNS, Cgroup string }
		Host       struct{ Min string }
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	want := [][3]string{{"a", netns, ""}, {"b", netns, cgroup}, {"c", "", cgroup}}
	if len(config.Containers) != len(want) || config.Host.Min != "1mbit" {
		t.Fatalf("%s", text)
	}
	for i, have := range config.Containers {
		if [3]string{have.Name, have.NetNS, have.Cgroup} != want[i] {
			t.Errorf("container %d: %+v, want %v", i, have, want[i])
		}
	}
}

func TestLastWords(t *testing.T) {
	long := strings.Repeat("a line\n", 1000)
	for name, test := range map[string]struct{ said, begins string }{
		"the end":             {long + "the end\n", ""},
		"how a crash began":   {long + "panic: no\ngoroutine 1\n" + long, "panic: no"},
		"how a signal showed": {"SIGSEGV: segmentation violation\n" + long, "SIGSEGV"},
	} {
		var a Process
		if _, err := a.said.Write([]byte(test.said)); err != nil {
			t.Fatal(err)
		}
		got := a.LastWords()
		if !strings.HasPrefix(got, test.begins) || len(got) > 2000 || test.begins == "" && !strings.HasSuffix(got, "the end") {
			t.Errorf("%s: %.50q of %d", name, got, len(got))
		}
	}
}
