package state

import (
	"errors"
	"fmt"
	"time"
)

// Version is the file version that this package writes, and the only one that it reads. A new field
// that an older Weir may ignore does not change it: after a downgrade the older one drops the field,
// as it cannot keep true what it does not know. All other changes of the file do.
const Version = 2

// File is the content of the state file.
type File struct {
	Version    int         `json:"version"`
	Uplinks    []*Uplink   `json:"uplinks"`
	Containers []Container `json:"containers"`
}

// Uplink is the saved state of a device that Weir manages.
type Uplink struct {
	Name string `json:"name"`
	// Ifindex is the index of the device; 0 if unknown. It distinguishes devices that had the same
	// name.
	Ifindex int `json:"ifindex,omitempty"`
	// Replaced is the queueing of another program that Weir replaced.
	Replaced []Queueing `json:"replaced,omitempty"`
	// GSOMaxBytes is the packet limit of the device before Weir.
	GSOMaxBytes uint32 `json:"gso_max_bytes,omitempty"`
	// Host is the traffic counted for the host class at this uplink.
	Host *Counted `json:"host,omitempty"`
	// HostAdmittedBPS is the minimum admitted for the host class at this uplink.
	HostAdmittedBPS uint64 `json:"host_admitted_bps,omitempty"`
}

// Counted holds the totals sent at an uplink, and the kernel's counters at the same moment.
type Counted struct {
	SentBytes      uint64 `json:"sent_bytes"`
	SentPackets    uint64 `json:"sent_packets"`
	DroppedPackets uint64 `json:"dropped_packets"`
	MarkedPackets  uint64 `json:"marked_packets,omitempty"`

	ClassBytes    uint64 `json:"class_bytes"`
	ClassPackets  uint32 `json:"class_packets"`
	ClassDrops    uint32 `json:"class_drops"`
	ClassMarks    uint32 `json:"class_marks,omitempty"`
	DirectBytes   uint64 `json:"direct_bytes"`
	DirectPackets uint32 `json:"direct_packets"`
}

// Queueing is a qdisc or a class, with its options as the kernel reported them.
type Queueing struct {
	IsClass bool   `json:"is_class,omitempty"`
	Handle  uint32 `json:"handle"`
	Parent  uint32 `json:"parent"`
	Kind    string `json:"kind"`
	Options []byte `json:"options,omitempty"`
	Nested  bool   `json:"nested,omitempty"`
}

// Container is the saved state of a container.
type Container struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Runtime string            `json:"runtime"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Image, ImageLabels and ImageUnknown may affect the policy.
	Image        string            `json:"image,omitempty"`
	ImageLabels  map[string]string `json:"image_labels,omitempty"`
	ImageUnknown string            `json:"image_unknown,omitempty"`

	NetNSPath string    `json:"netns_path"`
	Interface string    `json:"interface,omitempty"`
	StartedAt time.Time `json:"started_at"`
	Number    uint16    `json:"number"`
	// AdmittedBPS is keyed by uplink.
	AdmittedBPS map[string]uint64 `json:"admitted_bps,omitempty"`
	// Counted is keyed by uplink.
	Counted       map[string]Counted `json:"counted,omitempty"`
	Set           *Set               `json:"set,omitempty"`
	Attached      []Attachment       `json:"attached,omitempty"`
	CgroupPath    string             `json:"cgroup_path,omitempty"`
	HostNetwork   bool               `json:"host_network,omitempty"`
	SharesNetwork string             `json:"shares_network_of,omitempty"`

	Pod     string  `json:"pod,omitempty"`
	Network Network `json:"network,omitzero"`
}

// Network is the rest of what a source reports about a container's network.
type Network struct {
	None            bool   `json:"none,omitempty"`
	Configured      bool   `json:"configured,omitempty"`
	WithoutNetAdmin bool   `json:"without_net_admin,omitempty"`
	WithoutNetRaw   bool   `json:"without_net_raw,omitempty"`
	RoutingMesh     bool   `json:"routing_mesh,omitempty"`
	Encrypted       bool   `json:"encrypted,omitempty"`
	Ports           []Port `json:"ports,omitempty"`
	// Members are the containers of a pod, which share it.
	Members []string `json:"members,omitempty"`
}

// Port is a published port of a container: a discovery.Port.
type Port struct {
	Container uint16 `json:"container"`
	Host      uint16 `json:"host"`
	Protocol  string `json:"protocol"`
	AnyIPv4   bool   `json:"any_ipv4,omitempty"`
	AnyIPv6   bool   `json:"any_ipv6,omitempty"`
}

// Set is the part of a container's policy that `weir set` changed; unchanged fields are nil.
type Set struct {
	Weight    *uint32  `json:"weight,omitempty"`
	MinBPS    *uint64  `json:"min_bps,omitempty"`
	MaxBPS    *uint64  `json:"max_bps,omitempty"`
	Priority  *uint32  `json:"priority,omitempty"`
	LatencyMS *float64 `json:"latency_ms,omitempty"`
	Class     *string  `json:"class,omitempty"`
	EFMax     *Part    `json:"ef_max,omitempty"`
	AFMin     *Part    `json:"af_min,omitempty"`
	DSCP      *string  `json:"dscp,omitempty"`

	InWeight    *uint32  `json:"in_weight,omitempty"`
	InMinBPS    *uint64  `json:"in_min_bps,omitempty"`
	InMaxBPS    *uint64  `json:"in_max_bps,omitempty"`
	InPriority  *uint32  `json:"in_priority,omitempty"`
	InLatencyMS *float64 `json:"in_latency_ms,omitempty"`
}

// Part is a part of a container's share: a rate or, if that is 0, a percentage.
type Part struct {
	BPS     uint64  `json:"bps,omitempty"`
	Percent float64 `json:"percent,omitempty"`
}

// Attachment is a device of a container, with the data to undo Weir's changes: the tap, and the
// packet limit before.
type Attachment struct {
	Interface   string `json:"interface"`
	Tap         Tap    `json:"tap"`
	GSOMaxBytes uint32 `json:"gso_max_bytes"`
}

// Tap is the device where a container's packets get its number, and the method.
type Tap struct {
	NetNSPath string `json:"netns_path,omitempty"`
	Ifindex   int    `json:"ifindex"`
	Egress    bool   `json:"egress,omitempty"`
	Priority  bool   `json:"priority,omitempty"`
}

func (f File) validate() error {
	names := map[string]bool{}
	for _, u := range f.Uplinks {
		if u == nil || u.Name == "" {
			return errors.New("an uplink has no name")
		}
		if names[u.Name] {
			return fmt.Errorf("uplink %q is given twice", u.Name)
		}
		names[u.Name] = true
	}
	numbers := map[uint16]string{}
	for _, c := range f.Containers {
		if c.ID == "" {
			return fmt.Errorf("container %q has no id", c.Name)
		}
		if other, taken := numbers[c.Number]; taken && c.Number != 0 {
			return fmt.Errorf("containers %q and %q have the same number %d", other, c.ID, c.Number)
		}
		numbers[c.Number] = c.ID
	}
	return nil
}
