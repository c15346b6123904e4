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
	const end = "{{- end }}\n"
	resources := func(container string) string {
		return "          {{- with .Values.resources." + container + " }}\n          resources: {{ toJson . }}\n          {{- end }}\n"
	}
	placement := "      {{- with .Values.nodeSelector }}\n      nodeSelector: {{ toJson . }}\n      {{- end }}\n" +
		"      tolerations: {{ toJson .Values.tolerations }}\n"
	for name, edit := range map[string]struct {
		condition string
		pairs     []string
	}{
		"weir.yaml": {"", []string{
			" `kubectl -n kube-system rollout restart daemonset weir` applies a change.\n", "\n",
			"apiVersion: v1\nkind: ConfigMap\n", "{{- if and .Values.listenSecret .Values.config.listen }}\n" +
				"{{- fail \"listenSecret writes the agents' listen itself: leave out listenSecret, or config.listen\" }}\n{{- end }}\napiVersion: v1\nkind: ConfigMap\n",
			"    uplink: auto\n", "{{ toYaml (.Values.config | default (dict \"uplink\" \"auto\")) | indent 4 }}\n" +
				"    {{- if .Values.listenSecret }}\n    listen: { address: \"0.0.0.0:7481\", certificate: /etc/weir-tls/tls.crt, key: /etc/weir-tls/tls.key, client_ca: /etc/weir-tls/ca.crt }\n    {{- end }}\n",
			"secretName: weir-agents, optional: true", "secretName: {{ .Values.listenSecret | default \"weir-agents\" }}, optional: {{ empty .Values.listenSecret }}",
			"      annotations: { ", "      annotations: { checksum/config: {{ print (toYaml .Values.config) .Values.listenSecret | sha256sum | quote }}, ",
			// What weir-dra alone needs, of which an older API server does not know a part.
			"---\n# kubelet hands", "{{- if .Values.claims }}\n{{- if semverCompare \">=1.34.0-0\" .Capabilities.KubeVersion.Version }}\n---\n# kubelet hands",
			"---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n", end + "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n",
			"---\napiVersion: apps/v1\n", end + "---\napiVersion: apps/v1\n",
			"      tolerations: [{ operator: Exists }]\n", placement,
			"--kubelet=/var/lib/kubelet]\n          securityContext: &none", "--kubelet=/var/lib/kubelet{{ with .Values.containerd }}, --containerd={{ . }}{{ end }}{{ if .Values.hardAdmission }}, --hard-admission{{ end }}]\n          securityContext: &none",
			"          startupProbe:\n", resources("agent") + "          startupProbe:\n",
			"          securityContext: &none\n", resources("pods") + "          securityContext: &none\n",
			"          env:\n", resources("claims") + "          env:\n",
			"        - name: claims\n", "        {{- if .Values.claims }}\n        - name: claims\n",
			"      volumes:\n", "        {{- end }}\n      volumes:\n",
			"          # For containerd's socket elsewhere (k3s) add --containerd=/run/k3s/containerd/containerd.sock\n", "",
			"/var/lib/kubelet", "{{ .Values.kubelet }}",
		}},
		"weir-annotations.yaml": {".Values.annotations", nil},
		"weir-before-1.36.yaml": {"and .Values.claims (semverCompare \">=1.30.0-0 <1.36.0-0\" .Capabilities.KubeVersion.Version)", nil},
		"weir-metrics.yaml":     {".Values.metrics", []string{"      tolerations: [{ operator: Exists }]\n", placement}},
	} {
		text := replaceAll(t, manifest(t, name), edit.pairs)
		if strings.Contains(text, "      containers:\n") {
			text = replaceAll(t, text, []string{
				"image: weir-kubernetes:latest", "image: {{ .Values.image }}",
				"      containers:\n", "      {{- with .Values.imagePullSecrets }}\n      imagePullSecrets: {{ toJson . }}\n      {{- end }}\n      containers:\n",
			})
		}
		if edit.condition != "" {
			text = "{{- if " + edit.condition + " }}\n" + text + end
		}
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
