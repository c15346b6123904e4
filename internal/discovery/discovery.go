// Package discovery defines the one stream of container events that every
// source (a container engine, the config file) feeds.
package discovery

import (
	"context"
	"time"
)

// Container is what a source knows of a running container. It carries no
// policy values, only the text the user wrote: internal/policy reads it.
type Container struct {
	// ID is unique per host and stays the same while the container runs.
	ID string
	// Name is what the user calls the container; not necessarily unique.
	Name string
	// Runtime names the source: "docker", "podman" or "static".
	Runtime string
	// Labels are the container's labels, weir.* and all others.
	Labels map[string]string
	// Image is what the container was made from, as it was named then; empty
	// where there is none.
	Image string
	// ImageLabels are the image's own among Labels, as far as they may matter;
	// ImageUnknown says why they are not known, empty if they are.
	ImageLabels  map[string]string
	ImageUnknown string
	// NetNSPath opens the container's network namespace, e.g.
	// /proc/PID/ns/net or /run/netns/NAME.
	NetNSPath string
	// CgroupPath is the directory of the container's cgroup in the cgroup v2
	// hierarchy, as the agent sees it; empty where there is none or it cannot
	// be told. No one else's processes are in it or below.
	CgroupPath string
	// Interface restricts control to one interface inside the namespace;
	// empty means all of them.
	Interface string
	// HostNetwork: the container shares the host's network namespace.
	HostNetwork bool
	// NoNetwork: the container has no network of its own ("none").
	NoNetwork bool
	// WithoutNetAdmin: its processes cannot have CAP_NET_ADMIN in its network
	// namespace. False where the source cannot tell.
	WithoutNetAdmin bool
	// Configured: the source knows of it what its configuration says. Nobody tells when
	// it gets another device, and its processes may not be in its network.
	Configured bool
	// SharesNetworkOf is the ID of the container whose network namespace
	// this one joined, or empty.
	SharesNetworkOf string
	// Pod is the name of the pod that it is of, where the source knows one.
	Pod string
	// NetworkDrivers are the drivers of the networks it is attached to, as
	// the source names them; empty where the source does not know.
	NetworkDrivers []string
	// Ports are those of its ports that the host publishes.
	Ports []Port
	// StartedAt tells one run of a container from the next. It is zero for one
	// that is about to start, until an Updated gives it.
	StartedAt time.Time
}

// Port is a published port of a container.
type Port struct {
	Container, Host uint16
	Protocol        string // "tcp", "udp", "sctp"
	// AnyIPv4, AnyIPv6: at all of the host's addresses of that family.
	AnyIPv4, AnyIPv6 bool
}

// Event is one change at a source. Exactly one of Snapshot, Updated,
// RemovedID and Disconnected is set.
type Event struct {
	// Source is the name of the source the event comes from.
	Source string
	// Snapshot, when not nil, is everything that is running at the source;
	// whatever is not in it is gone. Sent on every (re)connection.
	Snapshot *Snapshot
	// Updated is a container that started or whose networks changed.
	Updated *Container
	// RemovedID is a container that stopped.
	RemovedID string
	// Disconnected is why the source cannot be reached. Containers known
	// from it stay as they are until the next Snapshot.
	Disconnected error
}

// Snapshot is everything that runs at a source.
type Snapshot struct{ Containers []Container }

// Source watches one container engine or file.
type Source interface {
	// Name is the source's name, e.g. "docker".
	Name() string
	// Run sends events until ctx ends, reconnecting by itself for as long as
	// that takes. The first event is a Snapshot or a Disconnected. It returns
	// nil when ctx ends, and an error only for what retrying cannot mend.
	Run(ctx context.Context, events chan<- Event) error
}
