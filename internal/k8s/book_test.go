package k8s

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/containerd/nri/pkg/api"

	v1 "github.com/weir-project/weir/api/v1"
)

func sandbox(id string) *api.PodSandbox {
	return &api.PodSandbox{
		Id: id, Uid: id, Name: "web-" + id, Namespace: "shop", Pid: 7,
		Annotations: map[string]string{"weir.dev/min": "20mbit", "kubernetes.io/egress-bandwidth": "30M", "kubernetes.io/config.source": "api", "weir.min": "1mbit"},
		Linux: &api.LinuxPodSandbox{
			CgroupParent: "kubepods-burstable-pod" + id + ".slice",
			Namespaces:   []*api.LinuxNamespace{{Type: "ipc"}, {Type: "network", Path: "/run/netns/" + id}},
		},
	}
}

func TestBook(t *testing.T) {
	b := book{}
	want := v1.Pod{
		ID: "a", Namespace: "shop", Name: "web-a", NetNSPath: "/run/netns/a",
		Labels:     map[string]string{"weir.min": "20mbit", "kubernetes.io/egress-bandwidth": "30M"},
		CgroupPath: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda.slice",
	}
	if got, runs := b.start(sandbox("a"), notes{}); !runs || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	host, ended := sandbox("h"), sandbox("e")
	host.Linux = &api.LinuxPodSandbox{CgroupParent: "/kubepods/podh", Namespaces: []*api.LinuxNamespace{{Type: "ipc"}}}
	ended.Pid = 0
	b.replace([]*api.PodSandbox{host, ended}, []*api.Container{{PodSandboxId: "h", Name: "x"}, {PodSandboxId: "h", Name: "app"}, {PodSandboxId: "gone", Name: "y"}}, notes{})
	if got := b.list(); len(got) != 1 || got[0].NetNSPath != "" || got[0].CgroupPath != "/kubepods/podh" || !reflect.DeepEqual(got[0].Containers, []string{"app", "x"}) {
		t.Errorf("got %+v", got)
	}
	// CRI-O says the pid 0 of a sandbox that runs; containerd keeps the network of one whose process has ended.
	pinned := filepath.Join(t.TempDir(), "pinned")
	must(t, os.WriteFile(pinned, nil, 0o600))
	for path, want := range map[string]bool{pinned: true, pinned + ".gone": false, "": false} {
		s := sandbox("d")
		s.Pid, s.Linux.Namespaces = 0, []*api.LinuxNamespace{{Type: "network", Path: pinned}, {Type: "uts", Path: path}}
		if got, runs := (book{}).start(s, notes{}); runs != want || runs && got.NetNSPath != pinned {
			t.Errorf("without a process, with the UTS namespace %q: %t, %+v", path, runs, got)
		}
	}
	// A runtime that says nothing of the network says not that it is the host's.
	for _, namespaces := range [][]*api.LinuxNamespace{nil, {{Type: "network"}}} {
		unsaid := sandbox("u")
		unsaid.Linux.Namespaces = namespaces
		if got, _ := (book{}).start(unsaid, notes{}); got.NetNSPath != "/proc/7/ns/net" {
			t.Errorf("of %v: %+v", namespaces, got)
		}
	}
	if _, changed := b.addContainer(&api.Container{PodSandboxId: "h", Name: "app"}); changed {
		t.Error("a container that is started again changes its pod")
	}
	// A runtime that has restarted lists a pod without its containers while they have ended.
	_, _ = b.start(sandbox("a"), notes{})
	b.replace([]*api.PodSandbox{host, sandbox("a"), sandbox("new")}, nil, notes{})
	b.replace([]*api.PodSandbox{host, sandbox("a"), sandbox("new")}, nil, notes{})
	if b["h"].unchecked || b["a"].unchecked || !b["new"].unchecked {
		t.Errorf("to be checked: h %t, a %t, new %t", b["h"].unchecked, b["a"].unchecked, b["new"].unchecked)
	}
	_, _ = b.stop("a"), b.stop("new")
	if !b.stop("h") || b.stop("h") || len(b) != 0 {
		t.Errorf("after its end: %v", maps.Collect(maps.All(b)))
	}
}
