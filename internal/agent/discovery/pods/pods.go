// Package pods turns what weir-k8s reports about the pods of a Kubernetes node into events of a
// source. A pod is one container for Weir: its containers share a network namespace.
package pods

import (
	"os"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/internal/share/policy"
)

// Event returns the event that a report stands for.
func Event(change v1.PodsChange) discovery.Event { return eventBelow(change, HostRoots()) }

// eventBelow is Event with paths to the host's root directory.
func eventBelow(change v1.PodsChange, roots []string) discovery.Event {
	event := discovery.Event{Source: v1.RuntimeKubernetes}
	switch {
	case change.Started != nil:
		c := container(*change.Started, roots)
		event.Updated = &c
	case change.Stopped != "":
		event.RemovedID = change.Stopped
	default:
		event.Snapshot = &discovery.Snapshot{}
		for _, pod := range change.All {
			event.Snapshot.Containers = append(event.Snapshot.Containers, container(pod, roots))
		}
	}
	return event
}

func container(pod v1.Pod, roots []string) discovery.Container {
	c := discovery.Container{
		ID: pod.ID, Name: pod.Namespace + "/" + pod.Name, Runtime: v1.RuntimeKubernetes, Labels: pod.Labels,
		Pod:       discovery.Pod{Name: pod.Name, Members: pod.Containers},
		NetNSPath: pod.NetNSPath, HostNetwork: pod.NetNSPath == "", CgroupPath: cgroupPath(pod.CgroupPath),
	}
	if limitedByCNI(pod) {
		c.Pod.LimitedBy = BandwidthPlugin(roots)
	}
	// The namespace's file is made when it is mounted, which happens once.
	if info, err := os.Stat(pod.NetNSPath); err == nil {
		c.StartedAt = info.ModTime()
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
func cgroupPath(path string) string {
	mount, err := cgroup.FindMount("/proc")
	if path == "" || err != nil {
		return ""
	}
	directory, _, err := mount.Resolve(strings.TrimPrefix(path, "/"))
	if err != nil {
		return ""
	}
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
