package testbed

import (
	"context"
	"fmt"
	"net/netip"
)

// containerInterface is the name of a container's interface, as Docker's.
const containerInterface = "eth0"

// NetContainer is a container that is no more than a network namespace,
// attached to its host's bridge.
type NetContainer struct {
	Name string
	// HostInterface is the host's end of the container's veth pair.
	HostInterface string
	Addr, Addr6   netip.Addr

	namespace string
}

// NetNSPath is the container's network namespace.
func (c *NetContainer) NetNSPath() string { return NetNSDir + "/" + c.namespace }

// Interface is the name of the interface in the container.
func (c *NetContainer) Interface() string { return containerInterface }

// AddContainer attaches a new container to the host. Close removes it.
func (h *Host) AddContainer(ctx context.Context, name string) (*NetContainer, error) {
	h.mu.Lock()
	number := len(h.containers)
	c := &NetContainer{
		Name:          name,
		HostInterface: fmt.Sprintf("veth%d", number+1),
		namespace:     fmt.Sprintf("%s-c%d", h.name, number+1),
	}
	h.containers = append(h.containers, c)
	h.mu.Unlock()

	address4, address6, gateway4, gateway6, err := h.containerAddresses(number)
	if err != nil {
		return nil, fmt.Errorf("add container %s: %w", name, err)
	}
	c.Addr, c.Addr6 = address4.Addr(), address6.Addr()
	if err := h.addNamespace(ctx, c.namespace); err != nil {
		return nil, fmt.Errorf("add container %s: %w", name, err)
	}
	host, inside := h.hostNS(), c.namespace
	for _, args := range [][]string{
		{"-n", host, "link", "add", c.HostInterface, "type", "veth", "peer", "name", containerInterface, "netns", inside},
		{"-n", host, "link", "set", c.HostInterface, "master", bridgeName, "up"},
		{"-n", inside, "link", "set", containerInterface, "up"},
		{"-n", inside, "addr", "add", address4.String(), "dev", containerInterface},
		{"-n", inside, "-6", "addr", "add", address6.String(), "dev", containerInterface, "nodad"},
		{"-n", inside, "route", "add", "default", "via", gateway4.String()},
		{"-n", inside, "-6", "route", "add", "default", "via", gateway6.String()},
	} {
		if err := runTool(ctx, "ip", args...); err != nil {
			return nil, fmt.Errorf("add container %s: %w", name, err)
		}
	}
	return c, nil
}

// containerAddresses gives the addresses and gateways of the container with
// this number, counted from 0.
func (h *Host) containerAddresses(number int) (address4, address6 netip.Prefix, gateway4, gateway6 netip.Addr, err error) {
	network4, network6 := h.addresses.bridge4, h.addresses.bridge6
	gateway4, gateway6 = network4.Addr(), network6.Addr()
	if h.options.Attachment == AttachBridged {
		network4, network6 = h.addresses.host4, h.addresses.host6
		gateway4, gateway6 = h.addresses.peer4.Addr(), h.addresses.peer6.Addr()
	}
	// .0 is the network, .1 the host and .2 the neighbour or nobody.
	index := uint32(number) + firstContainerIndex
	address4, err = nthAddress(network4, index)
	if err != nil {
		return address4, address6, gateway4, gateway6, err
	}
	address6, err = nthAddress(network6, index)
	return address4, address6, gateway4, gateway6, err
}
