package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// TestSources: a change of bpf/, of the agent, weir-edge, weir-sdn, the bench, one of its suites and what judges claims each changes its
// own hash only, and a page of claims with another hash, one that is cut off, a withheld one, and none at all are refused, as make
// release does.
func TestSources(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "tree")
	must.Succeed(t, os.Mkdir(copied, 0o755))
	pack := exec.CommandContext(t.Context(), "sh", "-c", "tar -c --exclude=./bin --exclude=./.git --exclude=node_modules . | tar -x -C "+copied)
	pack.Dir = treeRoot
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("copy the tree: %v: %s", err, out)
	}
	script := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(copied, "scripts/sources.sh"), args...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	before, err := script()
	must.Succeed(t, err)
	page := filepath.Join(t.TempDir(), "claims.json")
	write := func(text string) { must.Succeed(t, os.WriteFile(page, []byte(text), 0o644)) }
	refused := func(want string) {
		t.Helper()
		if out, err := script("--check", page); err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %q, want a refusal with %q", err, out, want)
		}
	}
	refused("there is no published page")
	claims := "{\n  \"settings\": {\n    \"sources\": \"" + before + "\",\n    \"weir\": \"v1\"\n  },\n  \"sections\": [\n  ]\n}\n"
	write(strings.Replace(claims, "  ]\n}\n", "    {\n    }\n", 1)) // cut in a section
	refused("not all of a page")
	write(claims)
	if out, err := script("--check", page); err != nil {
		t.Errorf("a page of these sources is refused: %s", out)
	}
	write(strings.Replace(claims, "{\n", "{\n  \"withheld\": [\n  ],\n", 1))
	refused("must not be published")
	for part, file := range map[string]string{
		"bpf": "bpf/LICENSE.md", "agent": "internal/share/alloc/alloc.go", "edge": "internal/edge/engine/engine.go", "sdn": "internal/sdn/controller/limit.go", "bench": "internal/lab/report/aim.go",
		"llq": "internal/lab/traffic/dscp.go", "netmodes": "internal/lab/bench/netmodes/netmodes.go", "picasso": "internal/lab/cli/bench_picasso.go",
		"judge": "internal/lab/bench/claim/claim.go",
	} {
		write(claims)
		path := filepath.Join(copied, file)
		text, err := os.ReadFile(path)
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(path, append(text, '\n'), 0o644))
		out, err := script("--check", page)
		if err == nil || strings.Count(out, "is not that of the page") != 1 || !strings.Contains(out, ": "+part+" is not") {
			t.Errorf("after a change of %s: %v: %q", file, err, out)
		}
		must.Succeed(t, os.WriteFile(path, text, 0o644))
	}
}
