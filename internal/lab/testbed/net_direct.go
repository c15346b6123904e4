package testbed

import (
	"context"
	"fmt"
)

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
		ipvlan := c.mode == ModeIPvlanL2 || c.mode == ModeIPvlanL3
		if ipvlan && lacksDriver(err) {
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
