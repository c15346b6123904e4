package testbed

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
)

// ContainerInterface is the name of a container's interface, as Docker's.
const ContainerInterface = "eth0"

// NetContainer is a container that is no more than a network namespace, a
// cgroup in the host's network, or both.
type NetContainer struct {
	Name string
	// HostInterface is the other end of the container's veth pair: in the host
	// for bridges, in its hidden namespace (OverlayNetNSPath) for overlays,
	// empty for other modes.
	HostInterface string
	// Addr and Addr6 are the container's addresses.
	Addr, Addr6 netip.Addr
	// PeerAddr and PeerAddr6 are those of the neighbour that the container
	// reaches through this network.
	PeerAddr, PeerAddr6 netip.Addr
	// MTUBytes is how long an IP packet to the neighbour may be.
	MTUBytes int

	number    int // of all interfaces of the host's containers, from 0
	mode      Mode
	device    string
	netNSPath string
	cgroup    string
	detached  bool
}

// Mode is how the container is attached.
func (c *NetContainer) Mode() Mode { return c.mode }

// NetNSPath is the container's network namespace; the host's in host mode.
func (c *NetContainer) NetNSPath() string { return c.netNSPath }

// Interface is the name of the interface in the container's namespace.
func (c *NetContainer) Interface() string { return c.device }

// namespace is the container's namespace as ip-netns names it.
func (c *NetContainer) namespace() string { return filepath.Base(c.netNSPath) }

// nextNumber numbers the interfaces of containers.
func (h *Host) nextNumber() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interfaces++
	return h.interfaces - 1
}

func (h *Host) containerNS(number int) string { return fmt.Sprintf("%s-c%d", h.name, number+1) }

// attachBridge connects a container to the host's bridge.
func (h *Host) attachBridge(ctx context.Context, c *NetContainer, first bool) error {
	c.HostInterface = fmt.Sprintf("veth%d", c.number+1)
	err := runIP(ctx, h.hostNS(),
		fmt.Sprintf("link add %s type veth peer name %s netns %s", c.HostInterface, c.device, c.namespace()),
		fmt.Sprintf("link set %s master %s up", c.HostInterface, bridgeName))
	if err != nil {
		return err
	}
	plan := h.addresses
	n := segment{
		subnet4: plan.bridge4, gateway4: plan.bridge4.Addr(), peer4: plan.peer4.Addr(),
		subnet6: plan.bridge6, gateway6: plan.bridge6.Addr(), peer6: plan.peer6.Addr(),
		mtuBytes: ethernetMTUBytes,
	}
	if h.options.Attachment == AttachBridged {
		n.subnet4, n.gateway4 = plan.host4, netip.Addr{}
		n.subnet6, n.gateway6 = plan.host6, netip.Addr{}
	}
	return h.address(ctx, c, n, first)
}

// directTypes are the link types of devices that sit directly on the uplink,
// as `ip link add` takes them.
var directTypes = map[Mode]string{
	ModeMacvlan:        "macvlan mode bridge",
	ModeMacvlanPrivate: "macvlan mode private",
	ModeIPvlanL2:       "ipvlan mode l2",
	ModeIPvlanL3:       "ipvlan mode l3",
}

// attachDirect gives a container a device on the uplink, with an address in
// the uplink's subnet; in ipvlan's mode L3, which answers no ARP, in one that
// the neighbour reaches by way of the host.
func (h *Host) attachDirect(ctx context.Context, c *NetContainer, first bool) error {
	err := runIP(ctx, h.hostNS(), fmt.Sprintf("link add link %s name %s netns %s type %s",
		uplinkName, c.device, c.namespace(), directTypes[c.mode]))
	if err != nil {
		if c.mode.IsIPvlan() && lacksDriver(err) {
			return ErrNoIPvlan
		}
		return err
	}
	plan := h.addresses
	n := segment{
		subnet4: plan.host4, peer4: plan.peer4.Addr(),
		subnet6: plan.host6, peer6: plan.peer6.Addr(),
		mtuBytes: ethernetMTUBytes,
	}
	if c.mode == ModeIPvlanL3 {
		n.subnet4, n.subnet6 = plan.routed4, plan.routed6
	}
	return h.address(ctx, c, n, first)
}
