package classify

import (
	"errors"
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/kernel"
)

// Attachment is one way in which a container's packets reach this host.
type Attachment struct {
	Mode v1.Mode
	// Interface is the device inside the container.
	Interface string
	// HostIfindex is the host end of its veth; 0 in modes that have none.
	HostIfindex int
	// GSOMaxBytes is the largest packet the container hands over at present.
	GSOMaxBytes uint32
}

// Inspect finds out how the container in the network namespace at path is
// attached to the network of this host. With only not empty, other devices of
// the container are left out. The result is empty for a container that has
// nothing but loopback. Errors: kernel.ErrNoNetNS.
func Inspect(path, only string) ([]Attachment, error) {
	ns, err := kernel.OpenNetNS(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	links, err := ns.Links()
	if err != nil {
		return nil, err
	}
	var attachments []Attachment
	for _, l := range links {
		if only != "" && l.Name != only {
			continue
		}
		a := Attachment{Interface: l.Name, GSOMaxBytes: l.GSOMaxBytes}
		switch l.Kind {
		case "veth":
			a.HostIfindex, err = hostEnd(ns, l)
			if err != nil {
				return nil, err
			}
			a.Mode = v1.ModeBridge
			if a.HostIfindex == 0 {
				// Its other end is in a third namespace.
				a.Mode = v1.ModeOverlay
			}
		case "macvlan", "macvtap":
			a.Mode = v1.ModeMacvlan
		case "ipvlan", "ipvtap":
			a.Mode = v1.ModeIPvlan
		default:
			continue
		}
		attachments = append(attachments, a)
	}
	return attachments, nil
}

// hostEnd finds the end of a container's veth that is in this namespace, or 0
// if none is. Indexes are unique in one namespace only, so each end must name
// the other.
func hostEnd(ns *kernel.NetNS, inside kernel.Link) (int, error) {
	outside, err := kernel.LinkByIndex(inside.PeerIndex)
	if errors.Is(err, kernel.ErrNoLink) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find the host end of %s: %w", inside.Name, err)
	}
	if outside.Kind != "veth" || outside.PeerIndex != inside.Index {
		return 0, nil
	}
	id, err := ns.IDHere()
	if err != nil {
		return 0, err
	}
	if outside.PeerNetNSID != id {
		return 0, nil
	}
	return outside.Index, nil
}
