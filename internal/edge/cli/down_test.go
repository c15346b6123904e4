package cli

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/test/must"
)

// TestDownInPod: the weir-edge of this pod is not stopped, as down would end with it and kubelet would start it again.
func TestDownInPod(t *testing.T) {
	dir := t.TempDir()
	socket := serveSnapshot(t, dir, func() edge.Snapshot {
		return edge.Snapshot{Engine: "kubernetes", Cluster: "https://10.96.0.1:443 shop"}
	})
	var out, errs bytes.Buffer
	code := Run([]string{"down", "--all", "--kubernetes", "pod", "--socket", socket, "--state-dir", filepath.Join(dir, "state")}, &out, &errs)
	for _, want := range []string{"kubectl -n shop delete --cascade=foreground deployment weir-edge,", "kubectl -n shop delete configmaps,leases -l weir-edge.role;"} {
		if code != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("exit code %d, without %q: %s", code, want, errs.String())
		}
	}
}

// serveSnapshot runs a weir-edge at a socket in a folder, which answers what is seen and may only be read.
func serveSnapshot(t *testing.T, dir string, seen func() edge.Snapshot) (socket string) {
	t.Helper()
	socket = filepath.Join(dir, "edge.sock")
	listener, err := net.Listen("unix", socket)
	must.Succeed(t, err)
	daemon := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("it was asked to %s %s", r.Method, r.URL)
		}
		_ = json.NewEncoder(w).Encode(seen())
	})}
	t.Cleanup(func() { _ = daemon.Close() })
	go func() { _ = daemon.Serve(listener) }()
	return socket
}

// TestDownOtherCluster: down neither stops the weir-edge of another cluster or namespace nor removes anything
// in the one that it is given.
func TestDownOtherCluster(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config")
	must.Succeed(t, os.WriteFile(config, []byte(`current-context: a
contexts: [{name: a, context: {cluster: c, user: u, namespace: shop}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
`), 0o600))
	var seen edge.Snapshot
	socket := serveSnapshot(t, dir, func() edge.Snapshot { return seen })
	for cluster, want := range map[string]struct {
		code int
		says string
	}{
		"https://127.0.0.1:2 shop": {2, "manages the services of https://127.0.0.1:2 shop: give the kubeconfig"},
		"https://127.0.0.1:1 test": {2, "manages the services of https://127.0.0.1:1 test: give the kubeconfig"},
		"https://127.0.0.1:1 shop": {1, "ask the API server at https://127.0.0.1:1"}, // it is the same one
	} {
		seen = edge.Snapshot{Engine: "kubernetes", Cluster: cluster}
		var out, errs bytes.Buffer
		code := Run([]string{"down", "--all", "--kubernetes", config, "--socket", socket, "--state-dir", filepath.Join(dir, "state")}, &out, &errs)
		if code != want.code || !strings.Contains(errs.String(), want.says) {
			t.Errorf("%s: exit code %d, %q", cluster, code, errs.String())
		}
	}
}
