package identity

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/kernel"
)

// overlays finds the namespaces in which the host ends of veths are that are
// not in the agent's. Engines put the bridge and the VXLAN device of an overlay
// network into a namespace of its own, of which a container's veth tells no
// more than an ID, and that in the container's own count. So the namespaces
// there are have to be tried, those that were hits before first: there are far
// fewer overlay networks than containers.
type overlays struct {
	// paths of namespaces with overlay networks, the latest hit first. None is
	// kept open, that would keep the network alive.
	paths []string
	// missed is when a container's other end was not found anywhere.
	missed map[kernel.NetNSID]time.Time
}

// retryMissed bounds how often all namespaces are tried for one container.
const retryMissed = 5 * time.Second

func newOverlays() overlays {
	return overlays{missed: map[kernel.NetNSID]time.Time{}}
}

// errNoNetNSFound is a namespace that has no name anywhere.
var errNoNetNSFound = errors.New("no path leads to the network namespace")

// find returns the path of the namespace of the other end of a container's
// veth, or "" if no packet gets from there to an uplink of the agent's
// namespace: it is one of the container's own inner namespaces, say. Errors:
// errNoNetNSFound, ErrInFlux.
func (o *overlays) find(c container, l kernel.Link) (string, error) {
	for i, path := range o.paths {
		id, err := c.ns.IDOf(path)
		if errors.Is(err, kernel.ErrNoNetNS) {
			continue // the next full search forgets it
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

// inNetNSOf opens the namespace of l's other end, which is at path. Errors:
// ErrInFlux if that is gone; those of fn.
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

// checkOverlayEnd makes sure that the other end of a container's veth is in an
// overlay's namespace. Errors: ErrInFlux.
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

// carriesPriority says whether a namespace has a device that carries packets
// into the agent's with their priority.
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
