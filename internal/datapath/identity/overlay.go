package identity

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// overlays finds the network namespace of a veth's host end if that is not the agent's. Engines put
// the bridge and the VXLAN device of an overlay network into a namespace of their own. A
// container's veth tells only an ID of it, valid in the container's namespace. So the search tries
// the existing namespaces, earlier hits first: there are far fewer overlay networks than
// containers.
type overlays struct {
	// paths of namespaces with overlay networks, the latest hit first. None is kept open, as that
	// would keep the network alive.
	paths []string
	// missed is the time when the search for a container's other end failed.
	missed map[kernel.NetNSID]time.Time
}

// retryMissed is the least time between two full searches for one container.
const retryMissed = 5 * time.Second

func newOverlays() overlays {
	return overlays{missed: map[kernel.NetNSID]time.Time{}}
}

// errNoNetNSFound: no file or process leads to the namespace.
var errNoNetNSFound = errors.New("no path leads to the network namespace")

// find returns the path of the namespace of the other end of a container's veth, or "" if packets
// from there cannot reach an uplink, as from the container's own inner namespaces. Errors:
// errNoNetNSFound, ErrInFlux.
func (o *overlays) find(c container, l kernel.Link) (string, error) {
	for i, path := range o.paths {
		id, err := c.ns.IDOf(path)
		if errors.Is(err, kernel.ErrNoNetNS) {
			continue // the next full search drops it
		}
		if err != nil {
			return "", err
		}
		if id == l.PeerNetNSID {
			o.paths = slices.Insert(slices.Delete(o.paths, i, i+1), 0, path)
			return path, inNetNSOf(path, l, func(overlay *kernel.NetNS) error {
				return checkOverlayEnd(c, l, overlay)
			})
		}
	}
	self, err := kernel.NetNSIdentity(c.path)
	if err != nil {
		return "", err
	}
	if time.Since(o.missed[self]) < retryMissed {
		return "", errNoNetNSFound
	}
	o.paths = slices.DeleteFunc(o.paths, func(path string) bool {
		_, err := kernel.NetNSIdentity(path)
		return err != nil
	})
	for path := range kernel.NetNSPaths() {
		id, err := c.ns.IDOf(path)
		if err != nil || id != l.PeerNetNSID {
			continue
		}
		delete(o.missed, self)
		carries := false
		err = inNetNSOf(path, l, func(overlay *kernel.NetNS) (err error) {
			if err := checkOverlayEnd(c, l, overlay); err != nil {
				return err
			}
			carries, err = carriesPriority(overlay)
			return err
		})
		if err != nil || !carries {
			return "", err
		}
		o.paths = slices.Insert(o.paths, 0, path)
		return path, nil
	}
	for id, when := range o.missed {
		if time.Since(when) > retryMissed {
			delete(o.missed, id)
		}
	}
	o.missed[self] = time.Now()
	return "", errNoNetNSFound
}

// inNetNSOf calls fn with the namespace at path, which holds l's other end. Errors: ErrInFlux if
// the namespace is gone; those of fn.
func inNetNSOf(path string, l kernel.Link, fn func(*kernel.NetNS) error) error {
	ns, err := kernel.OpenNetNS(path)
	if errors.Is(err, kernel.ErrNoNetNS) {
		return lostOtherEnd(l)
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	return fn(ns)
}

// checkOverlayEnd verifies that the other end of a container's veth is in an overlay's namespace.
// Errors: ErrInFlux.
func checkOverlayEnd(c container, l kernel.Link, overlay *kernel.NetNS) error {
	outside, err := overlay.LinkByIndex(l.PeerIndex)
	if errors.Is(err, kernel.ErrNoLink) {
		return lostOtherEnd(l)
	}
	if err != nil {
		return err
	}
	id, err := overlay.IDOf(c.path)
	if err != nil {
		return err
	}
	return checkOtherEnd(l, outside, id)
}

// carriesPriority reports whether a namespace has a device that passes packets to the agent's
// namespace with their priority.
func carriesPriority(ns *kernel.NetNS) (bool, error) {
	hereID, err := ns.IDOf(kernel.CurrentNetNS)
	if err != nil {
		return false, err
	}
	links, err := ns.Links()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(links, func(l kernel.Link) bool {
		return (l.Kind == "vxlan" || l.Kind == "geneve") && l.PeerNetNSID == hereID && hereID != kernel.SameNetNS
	}), nil
}

// destinationIn returns what received packets of an overlay network say of a container's device whose
// other end is in ns: its address, in frames within packets of the VXLAN at the same bridge. It is zero
// if there is no such VXLAN.
func destinationIn(ns *kernel.NetNS, l kernel.Link) (Destination, error) {
	links, err := ns.Links()
	if err != nil {
		return Destination{}, err
	}
	bridge := 0
	for _, outside := range links {
		if outside.Index == l.PeerIndex {
			bridge = outside.MasterIndex
		}
	}
	for _, vxlan := range links {
		if bridge != 0 && vxlan.MasterIndex == bridge && vxlan.VXLANPort != 0 {
			return Destination{MAC: l.MAC, VXLANPort: vxlan.VXLANPort, VNI: vxlan.VNI}, nil
		}
	}
	return Destination{}, nil
}
