package kubernetes

import (
	"crypto/tls"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/k8s/claims"
	"github.com/weir-project/weir/test/must"
)

func web() *runtime.Service {
	return &runtime.Service{
		Name: "Web_1", Image: "registry.local/web:2", Made: "abc", MemoryBytes: 64 << 20, CPUs: 0.5,
		Ports: []runtime.Port{{Host: 80, Container: 8083}},
		Labels: map[string]string{
			"weir.min": "5mbit", "weir.in.min": "1mbit", "weir.weight": "300", "weir.latency": "5ms", "weir-edge.health": "/ok", "other": "x",
		},
	}
}

// at returns a value of an object by its path; nil if it is not there.
func at(t *testing.T, made fields, path ...any) any {
	t.Helper()
	text, err := json.Marshal(made)
	must.Succeed(t, err)
	var v any
	must.Succeed(t, json.Unmarshal(text, &v))
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			l, _ := v.([]any)
			if step >= len(l) {
				return nil
			}
			v = l[step]
		}
	}
	return v
}

func TestPlanInstance(t *testing.T) {
	of := owner{"edge-service-web-1", "uid"}
	claimed, annotated := planInstance(web(), "Web_1-1", "gateway", "edge-minimum", of), planInstance(web(), "Web_1-1", "gateway", "", of)
	alone := web()
	alone.Apart = true
	idle := web()
	idle.Ports = nil
	portless := planInstance(idle, "Web_1-1", "gateway", "", of)
	apart := planInstance(alone, "Web_1-1", "gateway", "", of)
	pod := func(path ...any) []any { return append([]any{"spec", "template"}, path...) }
	for _, want := range []struct {
		made  fields
		path  []any
		value any
	}{
		{claimed, []any{"metadata", "name"}, "edge-web-1-1"},
		{claimed, []any{"metadata", "labels", runtime.LabelService}, "Web_1"},
		{claimed, []any{"metadata", "ownerReferences", 0, "uid"}, "uid"},
		{claimed, []any{"metadata", "annotations", annotationMade}, "abc"},
		{claimed, []any{"spec", "replicas"}, 1.0},
		{claimed, []any{"spec", "selector", "matchLabels", runtime.LabelInstance}, "Web_1-1"},
		{claimed, pod("metadata", "labels", runtime.LabelInstance), "Web_1-1"},
		{claimed, pod("metadata", "annotations", "weir.dev/min"), nil},
		{claimed, pod("metadata", "annotations", "weir.dev/in.min"), nil},
		{claimed, pod("metadata", "annotations", "weir.dev/weight"), "300"},
		{claimed, pod("metadata", "annotations", "weir.dev/latency"), "5ms"},
		{claimed, pod("metadata", "annotations", "other"), nil},
		{claimed, pod("spec", "resourceClaims", 0, "resourceClaimTemplateName"), "edge-minimum"},
		{claimed, pod("spec", "containers", 0, "resources", "claims", 0, "name"), "minimum"},
		{claimed, pod("spec", "containers", 0, "resources", "limits", "memory"), "67108864"},
		{claimed, pod("spec", "containers", 0, "resources", "limits", "cpu"), "0.500"},
		{claimed, pod("spec", "containers", 0, "readinessProbe", "httpGet", "path"), "/ok"},
		{claimed, pod("spec", "containers", 0, "ports", 0, "name"), "port-80"},
		{claimed, pod("spec", "containers", 0, "lifecycle", "preStop", "sleep", "seconds"), 5.0},
		{claimed, pod("spec", "terminationGracePeriodSeconds"), 35.0},
		{claimed, pod("spec", "containers", 0, "ports", 0, "containerPort"), 8083.0},
		{claimed, pod("spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution", 0, "preference", "matchFields", 0, "values", 0), "gateway"},
		{annotated, pod("metadata", "annotations", "weir.dev/min"), "5mbit"},
		{annotated, pod("metadata", "annotations", "weir.dev/in.min"), "1mbit"},
		{annotated, pod("spec", "resourceClaims"), nil},
		{portless, pod("spec", "containers", 0, "lifecycle"), nil},
		{portless, pod("spec", "terminationGracePeriodSeconds"), nil},
		{annotated, pod("spec", "topologySpreadConstraints"), nil},
		{apart, pod("spec", "topologySpreadConstraints", 0, "whenUnsatisfiable"), "DoNotSchedule"},
		{apart, pod("spec", "topologySpreadConstraints", 0, "labelSelector", "matchLabels", runtime.LabelService), "Web_1"},
		{apart, pod("spec", "topologySpreadConstraints", 0, "minDomains"), float64(math.MaxInt32)},
	} {
		if got := at(t, want.made, want.path...); got != want.value {
			t.Errorf("%v is %v, want %v", want.path, got, want.value)
		}
	}
}

func TestPlanServiceAndTemplate(t *testing.T) {
	of, s := owner{"o", "uid"}, web()
	made := planService(s, of)
	for path, want := range map[string]any{"trafficDistribution": "PreferSameNode", "type": nil} {
		if got := at(t, made, "spec", path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	if port, target := at(t, made, "spec", "ports", 0, "port"), at(t, made, "spec", "ports", 0, "targetPort"); port != 80.0 || target != "port-80" {
		t.Errorf("port %v to %v", port, target)
	}
	s.Ports = nil
	if made := planService(s, of); made != nil {
		t.Errorf("a service without ports has %v", made)
	}
	m := minimumsOf(s)
	template := planTemplate(s.Name, m, of)
	asked := func(kind string) any {
		return at(t, template, "spec", "spec", "devices", "requests", 0, "exactly", "capacity", "requests", kind)
	}
	if name := at(t, template, "metadata", "name"); name != "edge-minimum-web-1-5000000-1000000" || asked("egressBandwidth") != "5000000" || asked("ingressBandwidth") != "1000000" {
		t.Errorf("%s claims %v out, %v in", name, asked("egressBandwidth"), asked("ingressBandwidth"))
	}
	delete(s.Labels, "weir.in.min")
	if template = planTemplate(s.Name, minimumsOf(s), of); asked("ingressBandwidth") != nil {
		t.Errorf("it claims %v in", asked("ingressBandwidth"))
	}
	if class := "bandwidth." + claims.Driver; deviceClass != class || annotationPrefix != claims.AnnotationPrefix {
		t.Errorf("the class is %s, annotations begin with %s", class, claims.AnnotationPrefix)
	}
	if err := cannotRun(&runtime.Service{Name: "web", Container: &spec.Container{}}); err == nil || !strings.Contains(err.Error(), "Compose") {
		t.Error(err)
	}
}

func read[T any](t *testing.T, text string) (list []T) {
	t.Helper()
	must.Succeed(t, json.Unmarshal([]byte(text), &list))
	return list
}

func TestNodes(t *testing.T) {
	nodes := nodesOf(read[node](t, `[
		{"metadata": {"name": "b"}, "spec": {"taints": [{"key": "control", "effect": "NoSchedule"}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
		{"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "3500m", "memory": "16Gi"}, "nodeInfo": {"architecture": "arm64"},
			"addresses": [{"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": "198.18.0.1"}, {"type": "InternalIP", "address": "fd00::1"}],
			"conditions": [{"type": "Ready", "status": "Unknown", "message": "kubelet is silent"}]}},
		{"metadata": {"name": "c"}, "spec": {"unschedulable": true, "taints": [{"effect": "PreferNoSchedule"}]}},
		{"metadata": {"name": "d"}, "spec": {"taints": [{"effect": "PreferNoSchedule"}]}}
	]`))
	if len(nodes) != 4 {
		t.Fatal(nodes)
	}
	a, b, c, d := nodes[0], nodes[1], nodes[2], nodes[3]
	if a.CPUs != 3 || a.MemoryBytes != 16<<30 || a.Architecture != "arm64" || a.Address.String() != "198.18.0.1" || a.Ready || !strings.HasSuffix(a.Reason, "kubelet is silent") || a.Draining {
		t.Errorf("a is %+v", a)
	}
	if !b.Ready || !b.Draining || !c.Draining || c.Ready || d.Draining {
		t.Errorf("%+v, %+v, %+v", b, c, d)
	}
	for taint, drained := range map[string]bool{
		`"node.kubernetes.io/unreachable", "effect": "NoExecute"`:             false,
		`"node.kubernetes.io/not-ready", "effect": "NoSchedule"`:              false,
		`"node.kubernetes.io/disk-pressure", "effect": "NoSchedule"`:          false,
		`"node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"`: false,
		`"node.kubernetes.io/out-of-service", "effect": "NoExecute"`:          true,
		`"node-role.kubernetes.io/control-plane", "effect": "NoSchedule"`:     true,
	} {
		if n := nodesOf(read[node](t, `[{"spec": {"taints": [{"key": `+taint+`}]}}]`))[0]; n.Draining != drained {
			t.Errorf("drained by %s: %t", taint, n.Draining)
		}
	}
	for text, want := range map[string]float64{"4": 4, "100m": 0.1, "2k": 2000, "1Ki": 1024, "": 0, "x": 0, "-1": 0, "1Xi": 0, "1mm": 0} {
		if got := quantity(text); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

// TestState: what runs, what waits and why; what others have made is left out.
func TestState(t *testing.T) {
	labels := `"labels": {"weir-edge.service": "web", "weir-edge.role": "%s", "weir-edge.instance": "web-1"}`
	instance, record := strings.Replace(labels, "%s", "instance", 1), strings.Replace(labels, "%s", "record", 1)
	records := read[configMap](t, `[{"metadata": {"name": "edge-service-web", "uid": "r", `+record+`}, "data": {"specification": "{}", "image": "i", "update": "{\"left\": \"x\"}"}},
		{"metadata": {"labels": {"weir-edge.service": "other"}}}, {"metadata": {"name": "edge-service-web", `+record+`, "deletionTimestamp": "2026-01-01T00:00:00Z"}}, {"metadata": {"name": "copy", "uid": "c", `+record+`}}]`)
	const of, ofPod = `"name": "edge-web-1", "ownerReferences": [{"uid": "r"}], `, `"ownerReferences": [{"name": "edge-web-1-h", "uid": "s"}], `
	hashed := strings.Replace(instance, "{", `{"pod-template-hash": "h", `, 1)
	made := read[deployment](t, `[{"metadata": {`+of+instance+`, "annotations": {"weir-edge.dev/node": "a", "weir-edge.dev/image": "i", "weir-edge.dev/made-of": "m"}},
		"status": {"conditions": [{"type": "ReplicaFailure", "message": "quota"}]}},
		{"metadata": {`+of+instance+`, "deletionTimestamp": "2026-01-01T00:00:00Z"}}, {"metadata": {"labels": {"weir-edge.instance": "web-2"}}},
		{"metadata": {"name": "copy", "ownerReferences": [{"uid": "r"}], `+instance+`}}, {"metadata": {"name": "edge-web-1", "ownerReferences": [{"uid": "c"}], `+instance+`}}]`)
	readPods := func(text string) []pod { return read[pod](t, text) }
	for name, test := range map[string]struct {
		pod  string
		want runtime.Instance
	}{
		"no pod":   {``, runtime.Instance{Node: "a", Phase: runtime.Starting, Waits: true, Reason: "quota"}},
		"it ends":  {`"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "b"`, runtime.Instance{Node: "a", Phase: runtime.Starting, Waits: true, Reason: "quota"}},
		"no node":  {`"uid": "u"}, "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]`, runtime.Instance{Node: "a", Phase: runtime.Starting, Waits: true, Reason: "the scheduler: 0/1 nodes"}},
		"evicted":  {`"uid": "u"}, "spec": {"nodeName": "b"}, "status": {"phase": "Failed", "message": "no disk"`, runtime.Instance{Node: "b", Phase: runtime.Ended, Reason: "no disk"}},
		"no image": {`"uid": "u"}, "spec": {"nodeName": "b"}, "status": {"containerStatuses": [{"name": "sidecar", "ready": true, "state": {"running": {}}}, {"name": "instance", "state": {"waiting": {"reason": "ErrImagePull"}}}]`, runtime.Instance{Node: "b", Phase: runtime.Starting, Reason: "ErrImagePull"}},
		"pulls": {`"uid": "u"}, "spec": {"nodeName": "b"}, "status": {"conditions": [{"type": "PodReadyToStartContainers", "status": "True"}], "containerStatuses": [{"name": "instance", "state": {"waiting": {"reason": "ContainerCreating"}}}]`,
			runtime.Instance{Node: "b", Phase: runtime.Starting, Waits: true, Reason: "ContainerCreating"}},
		"no network": {`"uid": "u"}, "spec": {"nodeName": "b"}, "status": {"containerStatuses": [{"name": "instance", "state": {"waiting": {"reason": "ContainerCreating"}}}]`,
			runtime.Instance{Node: "b", Phase: runtime.Starting, Reason: "ContainerCreating"}},
		"crashes": {`"uid": "u"}, "spec": {"nodeName": "b"}, "status": {"containerStatuses": [{"name": "sidecar", "ready": true, "state": {"running": {}}}, {"name": "instance", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}}}]`,
			runtime.Instance{Node: "b", Phase: runtime.Ended, Reason: "it ended with exit code 3: Error"}},
		"runs": {`"uid": "u"}, "spec": {"nodeName": "b", "containers": [{"name": "sidecar"}, {"name": "instance", "readinessProbe": {}}]}, "status": {"containerStatuses": [{"name": "sidecar", "ready": true, "state": {"running": {}}}, {"name": "instance", "state": {"running": {}}}]`, runtime.Instance{Node: "b", Phase: runtime.Running, Health: runtime.HealthStarting}},
		"no ports": {`"uid": "u"}, "spec": {"nodeName": "b", "containers": [{"name": "instance"}]}, "status": {"containerStatuses": [{"name": "instance", "ready": true, "state": {"running": {}}}]`,
			runtime.Instance{Node: "b", Phase: runtime.Running}},
		"answers": {`"uid": "u"}, "spec": {"nodeName": "b", "containers": [{"name": "sidecar"}, {"name": "instance", "readinessProbe": {}}]}, "status": {"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [{"name": "sidecar", "state": {"running": {}}}, {"name": "instance", "ready": true, "restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 3}}}]`,
			runtime.Instance{Node: "b", Phase: runtime.Running, Health: runtime.HealthServed}},
	} {
		pods := `[]`
		if test.pod != "" {
			pods = `[{"metadata": {"name": "p", ` + ofPod + hashed + `, ` + test.pod + `}}]`
		}
		state := stateOf(records, made, readPods(pods), "shop")
		if len(state.Services) != 1 || state.Services[0].Name != "web" || state.Services[0].Document != "{}" || state.Services[0].Pinned != "i" || state.Services[0].Update.Left != "x" {
			t.Errorf("%s: services %+v", name, state.Services)
		}
		if len(state.Instances) != 1 {
			t.Errorf("%s: instances %+v", name, state.Instances)
			continue
		}
		i := state.Instances[0]
		if i.ID != "web-1" || i.Image != "i" || i.Made != "m" || i.Node != test.want.Node || i.Phase != test.want.Phase || i.Reason != test.want.Reason || i.Health != test.want.Health || i.Waits != test.want.Waits {
			t.Errorf("%s: %+v", name, i)
		}
	}
	twice := readPods(`[{"metadata": {` + ofPod + hashed + `, "uid": "new", "creationTimestamp": "2026-01-02T00:00:00Z"}}, {"metadata": {` + ofPod + hashed + `, "uid": "old", "creationTimestamp": "2026-01-01T00:00:00Z"}},
		{"metadata": {"ownerReferences": [{"name": "copy-h", "uid": "s"}], ` + hashed + `, "uid": "of a copy", "creationTimestamp": "2026-01-03T00:00:00Z"}}]`)
	if i := stateOf(records, made, twice, "shop").Instances[0]; i.Run != "new" {
		t.Errorf("of two pods it is %s", i.Run)
	}
	for _, phase := range []string{"Failed", "Succeeded"} {
		evicted := readPods(`[{"metadata": {` + ofPod + hashed + `, "uid": "new"}}, {"metadata": {` + ofPod + hashed + `, "uid": "old"}, "status": {"phase": "` + phase + `"}}]`)
		for range 2 {
			if i := stateOf(records, made, evicted, "shop").Instances[0]; i.Run != "new" {
				t.Errorf("beside one that has %s it is %s", phase, i.Run)
			}
			slices.Reverse(evicted)
		}
	}
}

const kubeconfigText = `current-context: edge
contexts: [{name: edge, context: {cluster: c, user: u, namespace: shop}}, {name: bare, context: {cluster: c, user: none}}]
clusters: [{name: c, cluster: {server: "SERVER", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {tokenFile: token}}, {name: p, user: {exec: {command: login}}}]
`

func TestLogIn(t *testing.T) {
	folder, asked := t.TempDir(), ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"message": "nodes is forbidden"}`))
	}))
	path := filepath.Join(folder, "config")
	must.Succeed(t, os.WriteFile(path, []byte(strings.Replace(kubeconfigText, "SERVER", server.URL+"/", 1)), 0o600))
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "token"), []byte("secret\n"), 0o600))
	r, err := New(path)
	must.Succeed(t, err)
	_, err = r.Nodes(t.Context())
	if r.namespace != "shop" || asked != "Bearer secret" || err == nil || err.Error() != "Kubernetes says: nodes is forbidden" {
		t.Errorf("namespace %s, asked as %q: %v", r.namespace, asked, err)
	}
	server.Close()
	_, first := r.Nodes(t.Context())
	_, second := r.Nodes(t.Context())
	if first == nil || first.Error() != second.Error() || !strings.Contains(first.Error(), "connection refused") {
		t.Errorf("away it says %v, %v", first, second)
	}
	if r, err = readNamespace(strings.Replace(kubeconfigText, "current-context: edge", "current-context: bare", 1)); err != nil || r.namespace != "default" {
		t.Errorf("%v, %v", r, err)
	}
	for text, want := range map[string]string{
		"current-context: x": `it has no context "x"`,
		strings.Replace(kubeconfigText, "user: u,", "user: p,", 1):                                             "logs in by a program",
		strings.Replace(kubeconfigText, "tokenFile: token", "auth-provider: {name: oidc}", 1):                  "logs in by an auth-provider",
		strings.Replace(kubeconfigText, "tokenFile: token", "username: a, password: b", 1):                     "logs in by username and password",
		strings.Replace(kubeconfigText, "tokenFile: token", "as: admin", 1):                                    "logs in by the name of another",
		strings.Replace(kubeconfigText, "insecure-skip", "proxy-url: \"http://198.18.0.2\", insecure-skip", 1): "the cluster c has a proxy-url",
		strings.Replace(kubeconfigText, "cluster: c,", "cluster: d,", 1):                                       "is no URL",
		"\t": "",
	} {
		if _, _, err := readKubeconfig([]byte(text), folder); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	a, err := newAPI("https://198.18.0.1", &tls.Config{})
	must.Succeed(t, err)
	if pings := a.http.Transport.(*http.Transport).HTTP2; pings == nil || pings.SendPingTimeout != 10*time.Second {
		t.Errorf("a connection that is silent is asked %+v", pings)
	}
	if _, _, err := logInPod(folder, "198.18.0.1", "443"); err == nil || !strings.Contains(err.Error(), "not in a pod") {
		t.Error(err)
	}
	for name, text := range map[string]string{"namespace": "edge\n", "ca.crt": ""} {
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	if a, namespace, err := logInPod(folder, "fd00::1", "443"); err != nil || namespace != "edge" || a.server != "https://[fd00::1]:443" || a.tokenFile == "" {
		t.Errorf("%+v, %s, %v", a, namespace, err)
	}
}

func readNamespace(text string) (*Runtime, error) {
	a, namespace, err := readKubeconfig([]byte(strings.Replace(text, "SERVER", "https://198.18.0.1", 1)), "")
	return newRuntime(a, namespace), err
}
