// Package discovery defines the stream of container events that every source (a container engine,
// the config file) feeds.
package discovery

import (
	"context"
	"time"
)

// Container describes a running container as its source reports it. Policy is still the text that
// the user wrote: internal/share/policy parses it.
type Container struct {
	// ID is unique per host and stays the same while the container runs.
	ID string
	// Name is what the user calls the container; not necessarily unique.
	Name string
	// Runtime names the source: "docker", "podman", "static", "kubernetes" or "containerd".
	Runtime string
	// Labels are the container's labels, weir.* and all others.
	Labels map[string]string
	// Image is the image name given when the container was created; "" if it has none.
	Image string
	// ImageLabels are the policy-relevant labels that come from the image. ImageUnknown is the
	// reason why they are unknown; "" if they are known.
	ImageLabels  map[string]string
	ImageUnknown string
	// NetNSPath opens the container's network namespace, e.g.
	// /proc/PID/ns/net or /run/netns/NAME.
	NetNSPath string
	// CgroupPath is the directory of the container's cgroup in the cgroup v2 hierarchy, as the
	// agent sees it; "" if there is none or it cannot be determined. It holds no processes of
	// others.
	CgroupPath string
	// Interface restricts control to one interface inside the namespace;
	// empty means all of them.
	Interface string
	// HostNetwork: the container shares the host's network namespace.
	HostNetwork bool
	// NoNetwork: the container has no network of its own ("none").
	NoNetwork bool
	// Lacks are capabilities in its network namespace that none of its processes can have.
	Lacks Capabilities
	// Configured: the source read it from a configuration file. Such a source does not report new
	// devices, and the container's processes may be in another network.
	Configured bool
	// SharesNetworkOf is the ID of the container whose network namespace
	// this one joined, or empty.
	SharesNetworkOf string
	// Pod is its pod, if the source knows one.
	Pod Pod
	// RoutingMesh: it is attached to the network of Swarm's routing mesh.
	RoutingMesh bool
	// Encrypted: one of its networks encrypts what passes between hosts.
	Encrypted bool
	// Ports are its published ports.
	Ports []Port
	// StartedAt distinguishes one run of a container from the next. It is zero for a container that
	// is about to start; a later Updated event sets it.
	StartedAt time.Time
}

// Capabilities are some of those that processes may have. All are false if the source does not know.
type Capabilities struct{ NetAdmin, NetRaw bool }

// Pod is a pod, by its name. Members are the names of its containers, if it is one container for its
// source.
type Pod struct {
	Name    string
	Members []string
	// LimitedBy is the file that configures CNI's bandwidth plugin, if that limits the pod, too; "" for none.
	LimitedBy string
}

// Port is a published port of a container.
type Port struct {
	Container, Host uint16
	Protocol        string // "tcp", "udp", "sctp"
	// AnyIPv4, AnyIPv6: published at all host addresses of that family.
	AnyIPv4, AnyIPv6 bool
}

// Event is one change at a source. Exactly one of Snapshot, Updated, RemovedID and Disconnected is
// set.
type Event struct {
	// Source is the name of the source the event comes from.
	Source string
	// Snapshot, when not nil, lists everything that runs at the source; containers missing from it
	// are gone. A source sends one on every (re)connection.
	Snapshot *Snapshot
	// Updated is a container that started or whose networks changed.
	Updated *Container
	// Admit: Updated starts only if its minimum is in force.
	Admit bool
	// RemovedID is the ID of a container that stopped.
	RemovedID string
	// Disconnected is the reason why the source is unreachable. Its containers stay as they are
	// until the next Snapshot.
	Disconnected error
}

// Snapshot lists all containers that run at a source.
type Snapshot struct {
	Containers []Container
	// Uninspected are the IDs of containers that run, about which the source has no answer yet. One
	// that is known stays as it is; an event follows for each.
	Uninspected []string
}

// Source watches one container engine or file.
type Source interface {
	// Name is the source's name, e.g. "docker".
	Name() string
	// Run sends events until ctx ends. It reconnects by itself, without a time limit. The first
	// event is a Snapshot or a Disconnected. It returns nil when ctx ends, and an error only if
	// retrying cannot help.
	Run(ctx context.Context, events chan<- Event) error
}
