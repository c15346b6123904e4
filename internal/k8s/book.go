package k8s

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// annotationPrefix is what the names of labels begin with as annotations: weir.dev/min is weir.min.
const annotationPrefix = "weir.dev/"

// book holds the pods that run, by the IDs of their sandboxes.
type book map[string]v1.Pod

// replace makes the book what a runtime says runs.
func (b book) replace(sandboxes []*api.PodSandbox, containers []*api.Container) {
	clear(b)
	for _, s := range sandboxes {
		b.start(s)
	}
	for _, c := range containers {
		b.addContainer(c)
	}
}

// start adds a pod and returns it; false for one that has ended: it has no process any more.
func (b book) start(s *api.PodSandbox) (v1.Pod, bool) {
	if s.GetPid() == 0 {
		return v1.Pod{}, false
	}
	b[s.GetId()] = v1.Pod{
		ID: s.GetId(), Namespace: s.GetNamespace(), Name: s.GetName(), Labels: labels(s.GetAnnotations()),
		NetNSPath: netNSPath(s), CgroupPath: cgroupPath(s.GetLinux().GetCgroupParent()),
	}
	return b[s.GetId()], true
}

// addContainer adds the name of a container to its pod, and returns that; false if the pod is not
// known or has it.
func (b book) addContainer(c *api.Container) (v1.Pod, bool) {
	pod, known := b[c.GetPodSandboxId()]
	if !known || slices.Contains(pod.Containers, c.GetName()) {
		return pod, false
	}
	pod.Containers = append(slices.Clone(pod.Containers), c.GetName())
	slices.Sort(pod.Containers)
	b[pod.ID] = pod
	return pod, true
}

// stop removes a pod; false if it is not known.
func (b book) stop(id string) bool {
	_, known := b[id]
	delete(b, id)
	return known
}

// list returns the pods in the order of their IDs.
func (b book) list() []v1.Pod {
	return slices.SortedFunc(maps.Values(b), func(p, q v1.Pod) int { return strings.Compare(p.ID, q.ID) })
}

// labels returns the annotations that are for Weir, by the names of labels. Those of Kubernetes for
// bandwidth keep theirs.
func labels(annotations map[string]string) map[string]string {
	found := map[string]string{}
	for name, value := range annotations {
		if key, ours := strings.CutPrefix(name, annotationPrefix); ours {
			found[policy.Prefix+key] = value
		} else if name == policy.LabelKubernetesMax || name == policy.LabelKubernetesIn {
			found[name] = value
		}
	}
	return found
}

// netNSPath returns the path of a pod's network namespace; "" if that is the host's, of which a sandbox
// lists none among its namespaces. Where the runtime does not say, it is the one of the pod's process.
func netNSPath(s *api.PodSandbox) string {
	ofProcess := fmt.Sprintf("/proc/%d/ns/net", s.GetPid())
	namespaces := s.GetLinux().GetNamespaces()
	for _, ns := range namespaces {
		if ns.GetType() == "network" {
			return cmp.Or(ns.GetPath(), ofProcess)
		}
	}
	if len(namespaces) == 0 {
		return ofProcess
	}
	return ""
}

// cgroupPath returns the path of a pod's cgroup, given the parent of its containers' cgroups. For
// systemd that is the name of a slice, in which each dash stands for a level (systemd.slice(5)).
func cgroupPath(parent string) string {
	name, isSlice := strings.CutSuffix(parent, ".slice")
	if !isSlice || strings.Contains(parent, "/") {
		return parent
	}
	path, upTo := "", ""
	for part := range strings.SplitSeq(name, "-") {
		upTo = strings.TrimPrefix(upTo+"-"+part, "-")
		path += "/" + upTo + ".slice"
	}
	return path
}
