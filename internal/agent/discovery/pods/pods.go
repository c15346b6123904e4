// Package pods turns what weir-k8s reports about the pods of a Kubernetes node, and about containers of
// containerd, into events of a source. A pod is one container for Weir: its containers share a network namespace.
package pods

import (
	"os"
	"strings"
	"sync/atomic"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/discovery/static"
	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/internal/share/policy"
)

// Runtimes are those that weir-k8s reports.
func Runtimes() []string { return []string{v1.RuntimeKubernetes, v1.RuntimeContainerd} }

// Reader turns reports into events. It is safe for concurrent use.
type Reader struct {
	// foundMount is the mount through which a cgroup was found last: /proc/self/mountinfo has lines for each pod, and a
	// pod's start waits for a look at it.
	foundMount atomic.Pointer[cgroup.Mount]
}

// Event returns the event of a runtime that a report stands for.
func (r *Reader) Event(runtime string, change v1.PodsChange) discovery.Event {
	return r.eventBelow(runtime, change, HostRoots())
}

// eventBelow is Event with paths to the host's root directory.
func (r *Reader) eventBelow(runtime string, change v1.PodsChange, roots []string) discovery.Event {
	event := discovery.Event{Source: runtime}
	switch {
	case change.Started != nil:
		c := r.container(runtime, *change.Started, roots)
		event.Updated, event.Admit = &c, change.Admit
	case change.Stopped != "":
		event.RemovedID = change.Stopped
	default:
		event.Snapshot = &discovery.Snapshot{}
		for _, pod := range change.All {
			event.Snapshot.Containers = append(event.Snapshot.Containers, r.container(runtime, pod, roots))
		}
	}
	return event
}

func (r *Reader) container(runtime string, pod v1.Pod, roots []string) discovery.Container {
	c := discovery.Container{
		ID: pod.ID, Name: strings.TrimPrefix(pod.Namespace+"/"+pod.Name, "/"), Runtime: runtime, Labels: pod.Labels,
		Image: pod.Image, ImageLabels: pod.ImageLabels, ImageUnknown: pod.ImageUnknown,
		Pod:       discovery.Pod{Name: pod.Name, Members: pod.Containers},
		NetNSPath: pod.NetNSPath, HostNetwork: pod.NetNSPath == "", CgroupPath: r.cgroupPath(pod.CgroupPath),
	}
	if runtime == v1.RuntimeKubernetes && limitedByCNI(pod) {
		c.Pod.LimitedBy = BandwidthPlugin(roots)
	}
	if !c.HostNetwork {
		c.StartedAt, _ = static.Since(pod.NetNSPath)
	}
	return c
}

// limitedByCNI reports whether CNI's bandwidth plugin, if it is there, limits a pod.
func limitedByCNI(pod v1.Pod) bool {
	_, sends := pod.Labels[policy.LabelKubernetesMax]
	_, receives := pod.Labels[policy.LabelKubernetesIn]
	return pod.NetNSPath != "" && (sends || receives)
}

// cgroupPath returns the directory of a cgroup in the cgroup v2 hierarchy, or "".
func (r *Reader) cgroupPath(path string) string {
	if path == "" {
		return ""
	}
	path = strings.TrimPrefix(path, "/")
	if mount := r.foundMount.Load(); mount != nil {
		if directory, _, err := mount.Resolve(path); err == nil {
			return directory
		}
	}
	mount, err := cgroup.FindMount("/proc")
	if err != nil {
		return ""
	}
	directory, _, err := mount.Resolve(path)
	if err != nil {
		return ""
	}
	r.foundMount.Store(&mount)
	return directory
}

// IsGone reports whether the network namespace or the cgroup of a pod does not exist any more.
func IsGone(c discovery.Container) bool {
	path := c.NetNSPath
	if c.HostNetwork {
		path = c.CgroupPath
	}
	_, err := os.Stat(path)
	return path != "" && os.IsNotExist(err)
}
