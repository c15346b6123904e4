package classify

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
			_, err := o.check(c, l, path)
			return path, err
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
		carries, err := o.check(c, l, path)
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

// check makes sure that the other end is in the namespace at path, and says
// whether the namespace has a device that carries packets into the agent's
// namespace with their priority. Errors: ErrInFlux.
func (o *overlays) check(c container, l kernel.Link, path string) (bool, error) {
	overlay, err := kernel.OpenNetNS(path)
	if errors.Is(err, kernel.ErrNoNetNS) {
		return false, lostOtherEnd(l)
	}
	if err != nil {
		return false, err
	}
	defer overlay.Close()
	outside, err := overlay.LinkByIndex(l.PeerIndex)
	if errors.Is(err, kernel.ErrNoLink) {
		return false, lostOtherEnd(l)
	}
	if err != nil {
		return false, err
	}
	containerID, err := overlay.IDOf(c.path)
	if err != nil {
		return false, err
	}
	if err := checkOtherEnd(l, outside, containerID); err != nil {
		return false, err
	}
	hereID, err := overlay.IDOf(kernel.CurrentNetNS)
	if err != nil {
		return false, err
	}
	links, err := overlay.Links()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(links, func(l kernel.Link) bool {
		return (l.Kind == "vxlan" || l.Kind == "geneve") && l.PeerNetNSID == hereID && hereID != sameNetNS
	}), nil
}
