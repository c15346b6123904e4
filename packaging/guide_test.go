package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// applied is a command of the guide that edits a manifest and applies it.
var applied = regexp.MustCompile(`(?m)^    (sed '[^']+' packaging/kubernetes/(\S+)) \| kubectl apply -f -$`)

// TestGuide: the guide's commands give each manifest an image that nodes have, and weir-edge elsewhere its rights alone.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../docs/kubernetes.md")
	must.Succeed(t, err)
	with, rights := map[string]bool{}, 0
	for _, found := range applied.FindAllStringSubmatch(string(guide), -1) {
		command, name := found[1], found[2]
		edit := exec.Command("sh", "-c", command)
		edit.Dir = ".."
		text, err := edit.Output()
		must.Succeed(t, err)
		made := string(text)
		if strings.Contains(made, "image: weir-kubernetes:latest") {
			t.Errorf("%s: nodes have no such image", command)
		}
		with[name] = with[name] || strings.Contains(made, "image: weir-kubernetes:")
		if name == "weir-edge.yaml" && !strings.Contains(made, "kind: Deployment") {
			rights++
			for _, kind := range []string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} {
				if !strings.Contains(made, "\nkind: "+kind+"\n") {
					t.Errorf("%s leaves out the %s", command, kind)
				}
			}
		}
	}
	if rights != 1 {
		t.Errorf("%d commands give weir-edge its rights alone", rights)
	}
	manifests, err := filepath.Glob("kubernetes/*.yaml")
	must.Succeed(t, err)
	for _, path := range manifests {
		text, err := os.ReadFile(path)
		must.Succeed(t, err)
		if name := filepath.Base(path); strings.Contains(string(text), "image: weir-kubernetes:latest") && !with[name] {
			t.Errorf("no command applies %s with an image that nodes have", name)
		}
	}
}
