package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weir-project/weir/internal/datapath/cgroup"
)

// Mode is how a container is attached to the network.
type Mode string

// The modes. Each is made as Docker makes it. All can be mixed on one uplink,
// but for the kernel's own limits: an interface has either macvlan or ipvlan
// devices, and ipvlan devices all of one mode.
const (
	// ModeBridge: a veth pair to the host's bridge.
	ModeBridge Mode = "bridge"
	// ModeHost: the host's own network; a cgroup of its own tells the
	// container from the host.
	ModeHost Mode = "host"
	// ModeMacvlan and ModeMacvlanPrivate: a device on the uplink with a MAC
	// address of its own. Private ones do not reach each other.
	ModeMacvlan        Mode = "macvlan"
	ModeMacvlanPrivate Mode = "macvlan-private"
	// ModeIPvlanL2 and ModeIPvlanL3: a device on the uplink with the uplink's
	// MAC address, switched or routed.
	ModeIPvlanL2 Mode = "ipvlan-l2"
	ModeIPvlanL3 Mode = "ipvlan-l3"
	// ModeOverlay: a veth pair to a bridge in a hidden namespace, from where a
	// VXLAN device leads through the host's uplink to the neighbour.
	ModeOverlay Mode = "overlay"
)

// Modes are all modes.
var Modes = []Mode{
	ModeBridge, ModeHost, ModeMacvlan, ModeMacvlanPrivate, ModeIPvlanL2, ModeIPvlanL3, ModeOverlay,
}

// IsIPvlan reports whether containers of the mode have ipvlan devices.
func (m Mode) IsIPvlan() bool { return m == ModeIPvlanL2 || m == ModeIPvlanL3 }

// ErrNoIPvlan is returned for ipvlan containers on a kernel without the driver.
var ErrNoIPvlan = errors.New("this kernel has no ipvlan")

// AddContainer attaches a new container to the host's bridge. Close removes it.
func (h *Host) AddContainer(ctx context.Context, name string) (*NetContainer, error) {
	return h.AddContainerMode(ctx, name, ModeBridge)
}

// AddContainerMode attaches a new container to the host. Close removes it.
func (h *Host) AddContainerMode(ctx context.Context, name string, mode Mode) (*NetContainer, error) {
	number := h.nextNumber()
	c := &NetContainer{
		Name: name, number: number, mode: mode, device: ContainerInterface,
		netNSPath: NetNSDir + "/" + h.containerNS(number),
	}
	if err := h.add(ctx, c); err != nil {
		return nil, fmt.Errorf("add %s container %s: %w", mode, name, err)
	}
	return c, nil
}

func (h *Host) add(ctx context.Context, c *NetContainer) error {
	if c.mode == ModeHost {
		c.netNSPath, c.device, c.MTUBytes = h.NetNSPath(), uplinkName, ethernetMTUBytes
		c.Addr, c.Addr6 = h.addresses.host4.Addr(), h.addresses.host6.Addr()
		c.PeerAddr, c.PeerAddr6 = h.PeerAddr, h.PeerAddr6
		return h.addCgroup(c)
	}
	if err := h.addNamespace(ctx, h.containerNS(c.number)); err != nil {
		return err
	}
	if err := h.attach(ctx, c, true); err != nil {
		return err
	}
	if c.mode == ModeBridge || c.mode == ModeOverlay {
		return nil
	}
	if err := h.addCgroup(c); !errors.Is(err, cgroup.ErrNoMount) {
		return err
	}
	return nil
}

// ethernetMTUBytes is the MTU of the uplink.
const ethernetMTUBytes = 1500

// Attach attaches a container to one more network, in another interface. The
// result is the same container as seen through that network. Only what has no
// better route goes through it: the network's own subnet and, from a bridge,
// the neighbour.
func (h *Host) Attach(ctx context.Context, c *NetContainer, mode Mode) (*NetContainer, error) {
	if c.mode == ModeHost || mode == ModeHost {
		return nil, fmt.Errorf("attach %s to a %s network: the host's network excludes all others", c.Name, mode)
	}
	number := h.nextNumber()
	second := &NetContainer{
		Name: c.Name, number: number, mode: mode, device: fmt.Sprintf("eth%d", number),
		netNSPath: c.netNSPath,
	}
	if err := h.attach(ctx, second, false); err != nil {
		return nil, fmt.Errorf("attach %s to a %s network: %w", c.Name, mode, err)
	}
	return second, nil
}

// Detach removes the interface of a container, which keeps its namespace and addresses for Reattach. An uplink has devices of macvlan
// or of ipvlan, and ipvlan devices of one mode.
func (h *Host) Detach(ctx context.Context, c *NetContainer) error {
	if c.detached {
		return nil
	}
	if err := runIP(ctx, c.namespace(), "link del "+c.device); err != nil {
		return fmt.Errorf("detach %s container %s: %w", c.mode, c.Name, err)
	}
	c.detached = true
	return nil
}

// Reattach makes the interface of a detached container again, with the same addresses.
func (h *Host) Reattach(ctx context.Context, c *NetContainer) error {
	if !c.detached {
		return nil
	}
	if err := h.attach(ctx, c, true); err != nil {
		return fmt.Errorf("attach %s container %s again: %w", c.mode, c.Name, err)
	}
	c.detached = false
	return nil
}

// attach makes a container's interface. The first one has the default route.
func (h *Host) attach(ctx context.Context, c *NetContainer, first bool) error {
	switch c.mode {
	case ModeBridge:
		return h.attachBridge(ctx, c, first)
	case ModeMacvlan, ModeMacvlanPrivate, ModeIPvlanL2, ModeIPvlanL3:
		return h.attachDirect(ctx, c, first)
	case ModeOverlay:
		return h.attachOverlay(ctx, c, first)
	default:
		return fmt.Errorf("unknown mode %q", c.mode)
	}
}

// segment is where a container gets its addresses from, and its way out.
type segment struct {
	subnet4, subnet6   netip.Prefix
	gateway4, gateway6 netip.Addr // invalid: everything is on the link
	peer4, peer6       netip.Addr // the neighbour
	mtuBytes           int
}

// address gives a container its addresses and routes.
func (h *Host) address(ctx context.Context, c *NetContainer, n segment, first bool) error {
	// .0 is the network, .1 the host and .2 the neighbour or free.
	index := uint32(c.number) + firstContainerIndex
	address4, err4 := nthAddress(n.subnet4, index)
	address6, err6 := nthAddress(n.subnet6, index)
	if err := errors.Join(err4, err6); err != nil {
		return err
	}
	c.Addr, c.Addr6, c.PeerAddr, c.PeerAddr6 = address4.Addr(), address6.Addr(), n.peer4, n.peer6
	c.MTUBytes = n.mtuBytes
	commands := []string{
		fmt.Sprintf("link set %s mtu %d up", c.device, n.mtuBytes),
		fmt.Sprintf("addr add %s dev %s", address4, c.device),
		fmt.Sprintf("addr add %s dev %s nodad", address6, c.device),
	}
	for _, route := range []struct {
		all, peer, gateway netip.Addr
	}{{netip.IPv4Unspecified(), n.peer4, n.gateway4}, {netip.IPv6Unspecified(), n.peer6, n.gateway6}} {
		target := netip.PrefixFrom(route.all, 0)
		if !first {
			target = netip.PrefixFrom(route.peer, route.peer.BitLen())
		}
		command := fmt.Sprintf("route add %s dev %s", target, c.device)
		if route.gateway.IsValid() {
			command += " via " + route.gateway.String()
		}
		commands = append(commands, command)
	}
	return runIP(ctx, c.namespace(), commands...)
}
