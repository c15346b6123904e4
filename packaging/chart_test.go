package packaging

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

var update = flag.Bool("update", false, "write the chart's templates")

// TestTemplates: the chart's templates are the manifests, with values in place of what users change in them. A
// DaemonSet whose configuration changes starts its pods again.
func TestTemplates(t *testing.T) {
	weir := replaceAll(t, manifest(t, "weir.yaml"), []string{
		" `kubectl -n kube-system rollout restart daemonset weir` applies a change.\n", "\n",
		"    uplink: auto\n", "{{ toYaml (.Values.config | default (dict \"uplink\" \"auto\")) | indent 4 }}\n",
		"      labels: { app: weir }\n    spec:", "      labels: { app: weir }\n" +
			"      annotations: { checksum/config: {{ toYaml .Values.config | sha256sum | quote }} }\n    spec:",
	})
	annotations := "{{- if .Values.annotations }}\n" + manifest(t, "weir-annotations.yaml") + "{{- end }}\n"
	for name, text := range map[string]string{"weir.yaml": weir, "weir-annotations.yaml": annotations} {
		text = replaceAll(t, text, []string{"image: weir-kubernetes:latest", "image: {{ .Values.image }}"})
		text = "{{- /* Made from packaging/kubernetes/" + name + " by go test ./packaging -update */ -}}\n" + text
		path := "kubernetes/chart/templates/" + name
		if *update {
			must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
			continue
		}
		made, err := os.ReadFile(path)
		must.Succeed(t, err)
		if string(made) != text {
			t.Errorf("%s is not made from the manifest of today: go test ./packaging -update", path)
		}
	}
}

// manifest returns a manifest from its first document on: what is before that says how to apply it.
func manifest(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("kubernetes/" + name)
	must.Succeed(t, err)
	_, documents, found := strings.Cut(string(text), "\n---\n")
	if !found {
		t.Fatalf("%s has no documents", name)
	}
	return "---\n" + documents
}

// replaceAll replaces texts by the ones after them. Each must be there.
func replaceAll(t *testing.T, text string, pairs []string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("the manifest has no %q", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}
