package k8s

import (
	"reflect"
	"testing"

	"github.com/containerd/containerd/api/services/containers/v1"
	"google.golang.org/protobuf/types/known/anypb"

	v1 "github.com/weir-project/weir/api/v1"
)

// TestReport: how a container of containerd is reported to the agent.
func TestReport(t *testing.T) {
	for _, tc := range []struct {
		name, namespace, spec string
		labels                map[string]string
		want                  v1.Pod
	}{
		{"of ctr", "default", `{"linux": {"cgroupsPath": "/default/a", "namespaces": [{"type": "pid"}, {"type": "network"}]}}`, nil,
			v1.Pod{ID: "a", Name: "a", NetNSPath: "/proc/7/ns/net", CgroupPath: "/default/a"}},
		{"of nerdctl", "shop", `{"linux": {"cgroupsPath": "app.slice:nerdctl:a", "namespaces": [{"type": "network"}]}}`, map[string]string{"nerdctl/name": "web"},
			v1.Pod{ID: "shop/a", Namespace: "shop", Name: "web", NetNSPath: "/proc/7/ns/net", CgroupPath: "/app.slice/nerdctl-a.scope"}},
		{"another's network", "default", `{"linux": {"cgroupsPath": ":nerdctl:a", "namespaces": [{"type": "network", "path": "/proc/5/ns/net"}]}}`, nil,
			v1.Pod{ID: "a", Name: "a", NetNSPath: "/proc/7/ns/net", CgroupPath: "/system.slice/nerdctl-a.scope"}},
		{"the host's network", "default", `{"linux": {"cgroupsPath": "/a", "namespaces": [{"type": "pid"}]}}`, nil,
			v1.Pod{ID: "a", Name: "a", CgroupPath: "/a"}},
		{"a relative cgroup", "default", `{"linux": {"cgroupsPath": "a", "namespaces": [{"type": "network"}]}}`, nil,
			v1.Pod{ID: "a", Name: "a", NetNSPath: "/proc/7/ns/net"}},
		{"another specification", "default", "\x08\x01", nil,
			v1.Pod{ID: "a", Name: "a", NetNSPath: "/proc/7/ns/net"}},
	} {
		tc.want.Labels, tc.want.Image, tc.want.ImageLabels = tc.labels, "web:1", map[string]string{"weir.min": "1mbit"}
		c := &containers.Container{ID: "a", Labels: tc.labels, Image: "web:1", Spec: &anypb.Any{Value: []byte(tc.spec)}}
		if got := (running{c, tc.namespace, 7, imageLabels{labels: tc.want.ImageLabels}}).pod(pod{}); got.pid != 7 || !reflect.DeepEqual(got.Pod, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.name, got.Pod, tc.want)
		}
	}
}

// TestName: an image's author does not choose the name, by which policies are selected.
func TestName(t *testing.T) {
	of := func(name string) imageLabels { return imageLabels{labels: map[string]string{"nerdctl/name": name}} }
	for _, tc := range []struct {
		what, label string
		image       imageLabels
		want        string
	}{
		{"no label", "", imageLabels{}, "a"},
		{"by nerdctl", "web", imageLabels{}, "web"},
		{"by nerdctl, of an image that names another", "web", of("shop"), "web"},
		{"by the image", "web", of("web"), "a"},
		{"an empty one by the image", "", of(""), "a"},
		{"an empty label, and a name of the image", "", of("web"), "a"},
		{"perhaps by the image", "web", imageLabels{unknown: "it is gone"}, "a"},
	} {
		c := &containers.Container{ID: "a", Image: "web:1", Labels: map[string]string{"nerdctl/name": tc.label}}
		if got := (running{c, "default", 7, tc.image}).pod(pod{}); got.Name != tc.want {
			t.Errorf("%s: %s, not %s", tc.what, got.Name, tc.want)
		}
	}
	c := &containers.Container{ID: "a", Image: "web:1", Labels: map[string]string{"nerdctl/name": "web"}}
	r := running{c, "default", 7, imageLabels{}}
	was := r.pod(pod{})
	r.image.unknown = "it is gone"
	if got := r.pod(was); got.Name != "web" {
		t.Errorf("when its image is gone it is called %s", got.Name)
	}
}
