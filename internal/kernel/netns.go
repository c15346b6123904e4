package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// NetNS is an open network namespace of somebody else.
type NetNS struct {
	ns     netns.NsHandle
	handle *netlink.Handle
}

// NetNSID tells one network namespace from another for as long as one of its
// processes or mounts lives.
type NetNSID struct{ Dev, Inode uint64 }

// ErrNoNetNS is a network namespace that does not exist (any more).
var ErrNoNetNS = errors.New("no such network namespace")

// OpenNetNS opens the namespace at path, e.g. /proc/PID/ns/net. Errors:
// ErrNoNetNS.
func OpenNetNS(path string) (*NetNS, error) {
	ns, err := netns.GetFromPath(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("open %s: %w", path, ErrNoNetNS)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		ns.Close()
		if errors.Is(err, unix.EINVAL) { // a file that is not (or no longer) a namespace
			return nil, fmt.Errorf("%s is not a network namespace: %w", path, ErrNoNetNS)
		}
		return nil, fmt.Errorf("enter %s: %w", path, err)
	}
	return &NetNS{ns: ns, handle: handle}, nil
}

// Close closes the namespace.
func (n *NetNS) Close() {
	n.handle.Close()
	n.ns.Close()
}

// Links lists the devices in the namespace.
func (n *NetNS) Links() ([]Link, error) {
	list, err := n.handle.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list network devices of a container: %w", err)
	}
	links := make([]Link, len(list))
	for i, l := range list {
		links[i] = newLink(l)
	}
	return links, nil
}

// SetGSOMaxBytes limits what a device in the namespace is handed at once.
// Errors: ErrNoLink.
func (n *NetNS) SetGSOMaxBytes(name string, bytes uint32) error {
	link, err := n.handle.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return ErrNoLink
	}
	if err != nil {
		return fmt.Errorf("look up %s in a container: %w", name, err)
	}
	if err := n.handle.LinkSetGSOMaxSize(link, int(bytes)); err != nil {
		return fmt.Errorf("limit packets of %s in a container to %d bytes: %w", name, bytes, err)
	}
	return nil
}

// IDHere is the namespace's ID in the current namespace, as the devices' own
// PeerNetNSID counts; -1 if it has none.
func (n *NetNS) IDHere() (int, error) {
	id, err := netlink.GetNetNsIdByFd(int(n.ns))
	if err != nil {
		return -1, fmt.Errorf("ask for a namespace's id: %w", err)
	}
	return id, nil
}

// NetNSIdentity tells which namespace path leads to. Errors: ErrNoNetNS.
func NetNSIdentity(path string) (NetNSID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			return NetNSID{}, fmt.Errorf("%s: %w", path, ErrNoNetNS)
		}
		return NetNSID{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return NetNSID{Dev: st.Dev, Inode: st.Ino}, nil
}

// CurrentNetNS is the path of the namespace that the agent itself is in.
const CurrentNetNS = "/proc/self/ns/net"
