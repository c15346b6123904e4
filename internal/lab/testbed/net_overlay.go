package testbed

import (
	"context"
	"fmt"
)

const (
	overlayBridge = "br0"
	overlayDevice = "vxlan0"
	// overlayID is the VXLAN network identifier. 4096 and up, as Docker's.
	overlayID = 4097
	// overlayPort is the port IANA gave to VXLAN, which Docker uses too.
	overlayPort = 4789
	// overlayMTUBytes is what VXLAN over IPv4 leaves of an Ethernet frame.
	overlayMTUBytes = ethernetMTUBytes - 50
)

func (h *Host) overlayNS() string { return h.name + "-overlay" }

// OverlayNetNSPath is the hidden namespace of the host's overlay network. It
// is there from the first overlay container on.
func (h *Host) OverlayNetNSPath() string { return NetNSDir + "/" + h.overlayNS() }

// attachOverlay connects a container to the overlay network.
func (h *Host) attachOverlay(ctx context.Context, c *NetContainer, first bool) error {
	if err := h.buildOverlay(ctx); err != nil {
		return err
	}
	c.HostInterface = fmt.Sprintf("veth%d", c.number+1)
	err := runIP(ctx, h.overlayNS(),
		fmt.Sprintf("link add %s mtu %d type veth peer name %s netns %s",
			c.HostInterface, overlayMTUBytes, c.device, c.namespace()),
		fmt.Sprintf("link set %s master %s up", c.HostInterface, overlayBridge))
	if err != nil {
		return err
	}
	plan := h.addresses
	return h.address(ctx, c, segment{
		subnet4: plan.overlay4, peer4: plan.overlayPeer4.Addr(),
		subnet6: plan.overlay6, peer6: plan.overlayPeer6.Addr(),
		mtuBytes: overlayMTUBytes,
	}, first)
}

// buildOverlay makes the overlay network once: the hidden namespace and the
// neighbour's end of the tunnel.
//
// The VXLAN device is made in the host's namespace and moved: it goes on
// sending its outer packets by the host's routes, through the uplink.
func (h *Host) buildOverlay(ctx context.Context) error {
	h.overlayMu.Lock()
	defer h.overlayMu.Unlock()
	if h.overlayBuilt {
		return nil
	}
	plan := h.addresses
	tunnel := fmt.Sprintf("link add %s mtu %d type vxlan id %d dstport %d", overlayDevice, overlayMTUBytes, overlayID, overlayPort)
	ends := fmt.Sprintf("local %s remote %s", plan.host4.Addr(), plan.peer4.Addr())
	peerEnds := fmt.Sprintf("local %s remote %s", plan.peer4.Addr(), plan.host4.Addr())
	if err := h.addNamespace(ctx, h.overlayNS()); err != nil {
		return err
	}
	for _, step := range []struct {
		namespace string
		commands  []string
	}{
		{h.overlayNS(), []string{
			fmt.Sprintf("link add %s mtu %d type bridge", overlayBridge, overlayMTUBytes),
			fmt.Sprintf("link set %s up", overlayBridge),
		}},
		{h.hostNS(), []string{
			tunnel + " " + ends,
			fmt.Sprintf("link set %s netns %s", overlayDevice, h.overlayNS()),
		}},
		{h.overlayNS(), []string{fmt.Sprintf("link set %s master %s up", overlayDevice, overlayBridge)}},
		{h.peerNS(), []string{
			tunnel + " " + peerEnds,
			fmt.Sprintf("link set %s up", overlayDevice),
			fmt.Sprintf("addr add %s dev %s", plan.overlayPeer4, overlayDevice),
			fmt.Sprintf("addr add %s dev %s nodad", plan.overlayPeer6, overlayDevice),
		}},
	} {
		if err := runIP(ctx, step.namespace, step.commands...); err != nil {
			return err
		}
	}
	h.overlayBuilt = true
	return nil
}
