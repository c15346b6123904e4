package testbed

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// LinkKind is what the link between a Host and its neighbour is made of.
type LinkKind string

const (
	// LinkVeth: a veth pair, whose ends are the uplink and the neighbour's.
	LinkVeth LinkKind = ""
	// LinkVLAN: the uplink is a tagged VLAN's device on such a link.
	LinkVLAN LinkKind = "vlan"
	// LinkBond: the uplink is a bond of two such links, which share the flows.
	LinkBond LinkKind = "bond"
	// LinkQueues: as LinkVeth, with 16 queues at the uplink.
	LinkQueues LinkKind = "16 queues"
)

// ErrNoLinkKind is returned for links that this kernel has no driver for.
var ErrNoLinkKind = errors.New("this kernel has no driver for the link")

// vlanID is the VLAN's on the link.
const vlanID = 18

// wire is a veth pair below the uplink, which has the same name at both ends.
func wire(number int) string { return fmt.Sprintf("wire%d", number) }

// buildLink makes the uplink and the neighbour's end of the link.
func (h *Host) buildLink(ctx context.Context) error {
	host, peer := h.hostNS(), h.peerNS()
	if h.options.Link == LinkVeth || h.options.Link == LinkQueues {
		uplink := uplinkName
		if h.options.Link == LinkQueues {
			uplink += " numtxqueues 16 numrxqueues 16"
		}
		return runIP(ctx, host, fmt.Sprintf("link add %s type veth peer name %s netns %s", uplink, neighbourName, peer))
	}
	wires := 1
	if h.options.Link == LinkBond {
		wires = 2
	}
	for i := range wires {
		if err := runIP(ctx, host, fmt.Sprintf("link add %s type veth peer name %s netns %s", wire(i), wire(i), peer)); err != nil {
			return err
		}
	}
	for namespace, device := range map[string]string{host: uplinkName, peer: neighbourName} {
		if err := h.buildEnd(ctx, namespace, device, wires); err != nil {
			return err
		}
	}
	return nil
}

// buildEnd puts a device on top of one end's wires.
func (h *Host) buildEnd(ctx context.Context, namespace, device string, wires int) error {
	add := fmt.Sprintf("link add link %s name %s type vlan id %d", wire(0), device, vlanID)
	if h.options.Link == LinkBond {
		add = fmt.Sprintf("link add %s type bond mode balance-xor xmit_hash_policy layer3+4 miimon 100", device)
	}
	if err := runIP(ctx, namespace, add); err != nil {
		if lacksDriver(err) {
			return fmt.Errorf("%w: %s", ErrNoLinkKind, h.options.Link)
		}
		return err
	}
	for i := range wires {
		command := "link set " + wire(i) + " up"
		if h.options.Link == LinkBond {
			command = "link set " + wire(i) + " master " + device // which sets it up
		}
		if err := runIP(ctx, namespace, command); err != nil {
			return err
		}
	}
	return nil
}

// lacksDriver says whether ip failed because the kernel knows no such type of
// device: the kernel's answer, and what iproute2 makes of it.
func lacksDriver(err error) bool {
	return strings.Contains(err.Error(), "Unknown device type") || strings.Contains(err.Error(), "not supported")
}
