package identity

import (
	"errors"
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Tap is a place that all packets of one container pass, and no others.
type Tap struct {
	// NetNSPath is the namespace of the device; empty for the agent's own.
	NetNSPath string
	Ifindex   int
	// Egress: the tap is the device inside a macvlan or ipvlan container, at egress. Otherwise it
	// is the host end of a veth, at ingress.
	Egress bool
	// Priority: the number is also written into the packet's priority, which reaches the uplink
	// even where bridge mode's tag does not.
	Priority bool
}

// Attachment is one path on which a container's packets reach this host.
type Attachment struct {
	Mode v1.Mode
	// Interface is the device inside the container.
	Interface string
	// BridgeIndex is the host bridge that it is a port of; 0 for none.
	BridgeIndex int
	// Destination is what received frames name it by; zero if they do not. They name a port of a bridge
	// only where the bridge is above the uplink.
	Destination Destination
	// GSOMaxBytes is the largest packet that the container hands over at present.
	GSOMaxBytes uint32
	// Tap is where its packets get their number. If that is impossible, Ifindex is 0 and Obstacle
	// is the reason; Mode is none for a kind of device that cannot be controlled.
	Tap      Tap
	Obstacle string
}

// ErrInFlux: the container's devices are being created or removed, and the observed state is
// inconsistent. Inspect it again a little later.
var ErrInFlux = errors.New("the container's devices are being changed")

// Inspector determines how containers are attached to the host's network. It caches the namespaces
// of overlay networks. It is not safe for concurrent use.
type Inspector struct {
	overlays overlays
}

// NewInspector returns an inspector with an empty cache.
func NewInspector() *Inspector {
	return &Inspector{overlays: newOverlays()}
}

// Inspect returns the attachments of the container in the network namespace at path. A non-empty
// only selects a single device of the container. The result is empty for a container that has only
// loopback, or whose devices lead only to its own inner namespaces. Errors: kernel.ErrNoNetNS,
// ErrInFlux.
func (i *Inspector) Inspect(path, only string) ([]Attachment, error) {
	ns, err := kernel.OpenNetNS(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	links, err := ns.Links()
	if err != nil {
		return nil, err
	}
	hereID, err := ns.IDOf(kernel.CurrentNetNS)
	if err != nil {
		return nil, err
	}
	inside := container{ns: ns, path: path, hereID: hereID}
	var attachments, virtual []Attachment
	for _, l := range links {
		if only != "" && l.Name != only {
			continue
		}
		a, found, err := i.attachment(inside, l)
		if errors.Is(err, ErrInFlux) && gone(ns, l) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch {
		case found:
			attachments = append(attachments, a)
		case l.Up && processMakes[l.Kind]:
			a.Mode, a.Obstacle = v1.ModeNone, outOfReach(l)
			virtual = append(virtual, a)
		}
	}
	if len(attachments) == 0 {
		// Otherwise it is a VPN inside, whose packets leave through another device.
		attachments = virtual
	}
	return attachments, nil
}

// processMakes lists kinds of devices whose packets a process or a socket forwards, perhaps outside
// the container.
var processMakes = map[string]bool{"tuntap": true, "wireguard": true}

// leadsInside lists kinds of devices, beside tunnels, whose packets leave through other devices of their
// namespace, or not at all.
var leadsInside = map[string]bool{
	"bridge": true, "bond": true, "team": true, "vlan": true, "vrf": true, "hsr": true, "macsec": true,
	"dummy": true, "ifb": true, "nlmon": true, "vcan": true, "vxcan": true, "can": true, "ppp": true,
}

// outOfReach returns the reason why packets of a device cannot be identified, and what to do.
func outOfReach(l kernel.Link) string {
	switch {
	case l.Kind == "device":
		return l.Name + " is a network card of its own (a function of one, or one that was moved there), which shares no uplink with others: limit it at the card or switch, or use a macvlan or bridge network"
	case l.Kind == "netkit":
		return l.Name + " is a netkit device, which Weir cannot look into: let the network plugin make veths"
	case l.Kind == "tuntap":
		return l.Name + " belongs to a process that sends its packets as the host's, as slirp4netns and pasta of rootless engines do: run the engine as root, or give the container a bridge, macvlan or host network"
	case l.Kind == "wireguard":
		return l.Name + " is a WireGuard device, whose packets may leave outside of the container as the host's: make it inside of a container that has another network"
	case l.PeerNetNSID != kernel.SameNetNS:
		return fmt.Sprintf("%s (%s) was made in another network namespace, where its packets leave as the host's: use a bridge, macvlan or ipvlan network", l.Name, l.Kind)
	}
	return fmt.Sprintf("%s is a device of kind %s, which Weir does not know: use a bridge, macvlan, ipvlan or host network", l.Name, l.Kind)
}

// container is a container's namespace.
type container struct {
	ns   *kernel.NetNS
	path string
	// hereID is the ID of the agent's namespace inside the container's.
	hereID int
}

// gone reports whether a device is no longer in ns.
func gone(ns *kernel.NetNS, l kernel.Link) bool {
	_, err := ns.LinkByIndex(l.Index)
	return errors.Is(err, kernel.ErrNoLink)
}

// attachment inspects one device of a container. It returns false for a device that does not lead
// outside. Errors: ErrInFlux.
func (i *Inspector) attachment(c container, l kernel.Link) (Attachment, bool, error) {
	a := Attachment{Interface: l.Name, GSOMaxBytes: l.GSOMaxBytes}
	switch l.Kind {
	case "veth":
		return i.veth(c, l, a)
	case "macvlan", "macvtap":
		a.Mode = v1.ModeMacvlan
	case "ipvlan", "ipvtap":
		a.Mode = v1.ModeIPvlan
	default:
		if !l.Up || l.Loopback || (leadsInside[l.Kind] || l.IsTunnel()) && l.PeerNetNSID == kernel.SameNetNS {
			return a, false, nil
		}
		a.Mode, a.Obstacle = v1.ModeNone, outOfReach(l)
		return a, true, nil
	}
	switch l.PeerNetNSID {
	case kernel.SameNetNS:
		// It is on top of another of the container's devices, which is inspected as well.
		return a, false, nil
	case c.hereID:
		a.Tap = Tap{NetNSPath: c.path, Ifindex: l.Index, Egress: true, Priority: true}
		if a.Mode == v1.ModeMacvlan { // the address of ipvlan's devices is the uplink's
			a.Destination.MAC = l.MAC
		}
	default:
		a.Obstacle = fmt.Sprintf("the device below its %s is in another network namespace", l.Name)
	}
	return a, true, nil
}

func (i *Inspector) veth(c container, l kernel.Link, a Attachment) (Attachment, bool, error) {
	switch {
	case l.PeerIndex == 0: // being deleted, its other end first
		return a, false, lostOtherEnd(l)
	case l.PeerNetNSID == kernel.SameNetNS:
		return a, false, nil
	case l.PeerNetNSID == c.hereID:
		outside, err := kernel.LinkByIndex(l.PeerIndex)
		if err == nil {
			var id int
			if id, err = c.ns.IDHere(); err == nil {
				err = checkOtherEnd(l, outside, id)
			}
		}
		if errors.Is(err, kernel.ErrNoLink) {
			err = lostOtherEnd(l)
		}
		if err != nil {
			return a, false, err
		}
		a.Mode = v1.ModeBridge
		a.Tap = Tap{Ifindex: l.PeerIndex}
		a.BridgeIndex = outside.MasterIndex
		if a.BridgeIndex != 0 {
			a.Destination.MAC = l.MAC
		}
		return a, true, nil
	}
	a.Mode = v1.ModeOverlay
	overlay, err := i.overlays.find(c, l)
	switch {
	case errors.Is(err, errNoNetNSFound):
		if again, err := c.ns.LinkByIndex(l.Index); err != nil || again.PeerIndex != l.PeerIndex {
			return a, false, lostOtherEnd(l)
		}
		a.Obstacle = fmt.Sprintf("the other end of its %s is in a network namespace that no file of an engine's and no process leads to", l.Name)
		return a, true, nil
	case err != nil || overlay == "":
		return a, false, err
	}
	a.Tap = Tap{NetNSPath: overlay, Ifindex: l.PeerIndex, Priority: true}
	err = inNetNSOf(overlay, l, func(ns *kernel.NetNS) (err error) {
		a.Destination, err = destinationIn(ns, l)
		return err
	})
	return a, err == nil, err
}

// checkOtherEnd verifies that outside, found by index, is the other end of a container's veth.
// Indexes are unique in one namespace only, so each end must name the other. id is the ID of the
// container's namespace in that of outside. Errors: ErrInFlux.
func checkOtherEnd(inside, outside kernel.Link, id int) error {
	if outside.Kind != "veth" || outside.PeerIndex != inside.Index || outside.PeerNetNSID != id {
		return lostOtherEnd(inside)
	}
	return nil
}

func lostOtherEnd(l kernel.Link) error {
	return fmt.Errorf("%s has lost its other end: %w", l.Name, ErrInFlux)
}
