package k8s

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/k8s/claims"
)

// book holds the pods that run, by the IDs of their sandboxes.
type book map[string]pod

// pod is a report of a pod, with the pod's UID and the labels by the annotations of its start, from which the
// labels in the report are computed.
type pod struct {
	v1.Pod
	uid     string
	atStart map[string]string
	// unchecked: it started while weir-k8s was not there, and has no container yet.
	unchecked bool
	// pid is the process of a pod's sandbox, or of a container of containerd; 0 for a sandbox that pinnedNS keeps.
	pid uint32
	// pinnedNS is the path of a namespace that exists while a sandbox without a process runs.
	pinnedNS string
	// seen: that process or namespace of a pod was there.
	seen bool
}

// replace makes the book what a runtime says runs. A runtime lists no containers that have ended, so a pod whose containers
// crash has none; that it was checked is known from before.
func (b book) replace(sandboxes []*api.PodSandbox, containers []*api.Container, n notes) {
	before := maps.Clone(b)
	clear(b)
	for _, s := range sandboxes {
		if _, runs := b.start(s, n); runs {
			p := b[s.GetId()]
			was, known := before[s.GetId()]
			p.unchecked = !known || was.unchecked
			b[s.GetId()] = p
		}
	}
	for _, c := range containers {
		b.addContainer(c)
	}
}

// start adds a pod and returns it; false for one that has ended: it has neither a process nor a pinned namespace.
func (b book) start(s *api.PodSandbox, n notes) (v1.Pod, bool) {
	p := pod{uid: s.GetUid(), pid: s.GetPid(), pinnedNS: pinnedNS(s), atStart: claims.LabelsOf(s.GetAnnotations())}
	if p.pid == 0 && !exists(p.pinnedNS) {
		return v1.Pod{}, false
	}
	p.Pod = v1.Pod{
		ID: s.GetId(), Namespace: s.GetNamespace(), Name: s.GetName(), Labels: n.labels(p.uid, p.atStart),
		NetNSPath: netNSPath(s), CgroupPath: cgroupPath(s.GetLinux().GetCgroupParent()),
	}
	b[p.ID] = p
	return p.Pod, true
}

// addContainer adds the name of a container to its pod, and returns that; false if the pod is not
// known or has it.
func (b book) addContainer(c *api.Container) (v1.Pod, bool) {
	p, known := b[c.GetPodSandboxId()]
	if !known || slices.Contains(p.Containers, c.GetName()) {
		return p.Pod, false
	}
	p.Containers, p.unchecked = append(slices.Clone(p.Containers), c.GetName()), false
	slices.Sort(p.Containers)
	b[p.ID] = p
	return p.Pod, true
}

// stop removes a pod; false if it is not known.
func (b book) stop(id string) bool {
	_, known := b[id]
	delete(b, id)
	return known
}

// list returns what is reported of the pods, in the order of their IDs.
func (b book) list() []v1.Pod {
	list := make([]v1.Pod, 0, len(b))
	for _, id := range slices.Sorted(maps.Keys(b)) {
		list = append(list, b[id].Pod)
	}
	return list
}

// pinnedNS returns the path of a pod's UTS namespace; "" if the runtime does not say. CRI-O starts no process for a sandbox
// by default (drop_infra_ctr; the pid is then 0), and pins a UTS namespace for each one, also in the host's network, until it
// stops (configureGeneratorForSandboxNamespaces in server/sandbox_run_linux.go). containerd pins only the network namespace,
// also while a pod whose process has ended is not stopped.
func pinnedNS(s *api.PodSandbox) string {
	for _, ns := range s.GetLinux().GetNamespaces() {
		if ns.GetType() == "uts" {
			return ns.GetPath()
		}
	}
	return ""
}

// exists reports whether a file is there, or cannot be looked at.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
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
