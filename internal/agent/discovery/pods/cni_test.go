package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/must"
)

const (
	plain = `{"plugins": [{"type": "bridge"}, {"type": "portmap"}]}`
	twice = `{"plugins": [{"type": "flannel"}, {"type": "bandwidth", "capabilities": {"bandwidth": true}}]}`
)

// TestBandwidthPlugin: of each folder the first file that can be read counts.
func TestBandwidthPlugin(t *testing.T) {
	for _, tc := range []struct {
		files map[string]string
		want  string
	}{
		{nil, ""},
		{map[string]string{"etc/cni/net.d/10-a.conflist": plain, "etc/cni/net.d/20-b.conflist": twice}, ""},
		{map[string]string{"etc/cni/net.d/10-a.conflist": twice, "etc/cni/net.d/20-b.conflist": plain}, "/etc/cni/net.d/10-a.conflist"},
		{map[string]string{"etc/cni/net.d/05-readme.txt": plain, "etc/cni/net.d/10-broken.conflist": "{", "etc/cni/net.d/20-b.conflist": twice}, "/etc/cni/net.d/20-b.conflist"},
		{map[string]string{"etc/cni/net.d/10-a.conf": `{"type": "bridge"}`, "etc/cni/net.d/20-b.conflist": twice}, ""},
		{map[string]string{"var/lib/rancher/k3s/agent/etc/cni/net.d/10-flannel.conflist": twice}, "/var/lib/rancher/k3s/agent/etc/cni/net.d/10-flannel.conflist"},
	} {
		root := t.TempDir()
		write(t, root, tc.files)
		if got := BandwidthPlugin([]string{filepath.Join(root, "none"), root}); got != tc.want {
			t.Errorf("of %v: %q, want %q", tc.files, got, tc.want)
		}
	}
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		must.Succeed(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		must.Succeed(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
}

// TestAdmit: an event saves a minimum first where its report asks for that.
func TestAdmit(t *testing.T) {
	for _, admit := range []bool{true, false} {
		if got := new(Reader).eventBelow(v1.RuntimeKubernetes, v1.PodsChange{Started: &v1.Pod{ID: "a"}, Admit: admit}, nil).Admit; got != admit {
			t.Errorf("of a report with Admit %t: %t", admit, got)
		}
	}
}

// TestLimitedTwice: a pod is limited by CNI's plugin too if it has an annotation of Kubernetes and a network of its own.
func TestLimitedTwice(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"etc/cni/net.d/10-a.conflist": twice})
	roots := []string{root}
	for label, want := range map[string]string{
		"kubernetes.io/egress-bandwidth": "/etc/cni/net.d/10-a.conflist", "kubernetes.io/ingress-bandwidth": "/etc/cni/net.d/10-a.conflist", "weir.max": "",
	} {
		pod := v1.Pod{ID: "a", NetNSPath: "/run/netns/a", Labels: map[string]string{label: "30M"}}
		if got := new(Reader).eventBelow(v1.RuntimeKubernetes, v1.PodsChange{Started: &pod}, roots).Updated.Pod.LimitedBy; got != want {
			t.Errorf("with %s: %q, want %q", label, got, want)
		}
		if got := new(Reader).eventBelow(v1.RuntimeKubernetes, v1.PodsChange{All: []v1.Pod{pod}}, roots).Snapshot.Containers[0].Pod.LimitedBy; got != want {
			t.Errorf("with %s, of all: %q, want %q", label, got, want)
		}
		pod.NetNSPath = ""
		if got := new(Reader).eventBelow(v1.RuntimeKubernetes, v1.PodsChange{Started: &pod}, roots).Updated.Pod.LimitedBy; got != "" {
			t.Errorf("with %s in the host's network: %q", label, got)
		}
	}
}

// TestStartOfPod: a restarted agent tells by the time of its start that a pod is the same as before.
func TestStartOfPod(t *testing.T) {
	started := func(netNSPath string) time.Time {
		return new(Reader).Event(v1.RuntimeKubernetes, v1.PodsChange{Started: &v1.Pod{ID: "a", NetNSPath: netNSPath}}).Updated.StartedAt
	}
	if got := started(""); !got.IsZero() {
		t.Errorf("in the host's network: %v, the start of something else", got)
	}
	if got := started(fmt.Sprintf("/proc/%d/ns/net", os.Getpid())); got.IsZero() || got.After(time.Now()) {
		t.Errorf("in a network of its own: %v", got)
	}
}
