package driver

import (
	"os"
	"reflect"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// TestPolicyOfNodes: the policy beside the right to write a node's status compares each field of that.
func TestPolicyOfNodes(t *testing.T) {
	text, err := os.ReadFile("../../../../packaging/kubernetes/weir-before-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[core.NodeStatus]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if strings.Contains(string(text), "variables.before."+name+".all(") {
			continue
		}
		if !strings.Contains(string(text), "variables.after.?"+name+" == variables.before.?"+name) {
			t.Errorf("weir-dra may write the node's %s", name)
		}
	}
}
