package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// NetNS is an open network namespace other than the agent's.
type NetNS struct {
	ns     netns.NsHandle
	handle *netlink.Handle
}

// NetNSID identifies a network namespace while one of its processes or mounts exists.
type NetNSID struct{ Dev, Inode uint64 }

// ErrNoNetNS: the network namespace does not exist (any more).
var ErrNoNetNS = errors.New("no such network namespace")

// OpenNetNS opens the namespace at path, e.g. /proc/PID/ns/net. Errors:
// ErrNoNetNS.
func OpenNetNS(path string) (*NetNS, error) {
	ns, err := openNetNSFile(path)
	if err != nil {
		return nil, err
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
func (n *NetNS) Links() ([]Link, error) { return listLinks(n.handle.LinkList) }

// SetGSOMaxBytes limits the packets that a device in the namespace takes at once. Errors:
// ErrNoLink.
func (n *NetNS) SetGSOMaxBytes(name string, bytes uint32) error {
	l, err := lookUp(n.handle.LinkByName, name)
	if err != nil {
		return err
	}
	return setGSOMaxBytes(n.handle.LinkSetGSOMaxSize, l, bytes)
}

// LinkByIndex returns the device with that index in the namespace. Errors: ErrNoLink.
func (n *NetNS) LinkByIndex(index int) (Link, error) { return linkOf(n.handle.LinkByIndex, index) }

// IDOf returns the ID of the namespace at path in this one, as in PeerNetNSID of its devices;
// SameNetNS if it has none. Errors: ErrNoNetNS.
func (n *NetNS) IDOf(path string) (int, error) {
	other, err := openNetNSFile(path)
	if err != nil {
		return -1, err
	}
	defer other.Close()
	return netNSID(n.handle.GetNetNsIdByFd, other, path)
}

// IDHere returns the namespace's ID in the current one; SameNetNS if it has none.
func (n *NetNS) IDHere() (int, error) {
	return netNSID(netlink.GetNetNsIdByFd, n.ns, "a namespace")
}

// NetNSIDHere returns the ID of the namespace at path in the current one, as in PeerNetNSID of its
// devices; SameNetNS if it has none. Errors: ErrNoNetNS.
func NetNSIDHere(path string) (int, error) {
	ns, err := openNetNSFile(path)
	if err != nil {
		return SameNetNS, err
	}
	defer ns.Close()
	return netNSID(netlink.GetNetNsIdByFd, ns, path)
}

// netNSID asks for the ID of the namespace ns; name is for errors. Errors: ErrNoNetNS.
func netNSID(ask func(fd int) (int, error), ns netns.NsHandle, name string) (int, error) {
	id, err := ask(int(ns))
	if errors.Is(err, unix.EINVAL) { // a file that is not (or no longer) a namespace
		return SameNetNS, fmt.Errorf("%s is not a network namespace: %w", name, ErrNoNetNS)
	}
	if err != nil {
		return SameNetNS, fmt.Errorf("ask for the id of %s: %w", name, err)
	}
	return id, nil
}

func openNetNSFile(path string) (netns.NsHandle, error) {
	// Do not wait for the writer of a FIFO at that path.
	ns, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return -1, fmt.Errorf("open %s: %w", path, ErrNoNetNS)
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return netns.NsHandle(ns), nil
}

// InNetNS calls fn with the calling thread in the network namespace at path; goroutines that fn
// starts are not in it. An empty path means the current namespace. Errors: ErrNoNetNS; those of fn,
// unchanged.
func InNetNS(path string, fn func() error) error {
	if path == "" {
		return fn()
	}
	inside, err := openNetNSFile(path)
	if err != nil {
		return err
	}
	defer inside.Close()
	runtime.LockOSThread()
	outside, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the current network namespace: %w", err)
	}
	defer outside.Close()
	if err := netns.Set(inside); err != nil {
		runtime.UnlockOSThread()
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("%s is not a network namespace: %w", path, ErrNoNetNS)
		}
		return fmt.Errorf("enter %s: %w", path, err)
	}
	err = fn()
	if back := netns.Set(outside); back != nil {
		// The thread stays locked and ends with its goroutine, so that nothing else runs in the
		// wrong namespace.
		return errors.Join(err, fmt.Errorf("return from %s: %w", path, back))
	}
	runtime.UnlockOSThread()
	return err
}

// NetNSIdentity returns the identity of the namespace at path. Errors: ErrNoNetNS.
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

// CurrentNetNS is the path of the calling thread's namespace: the agent's, except within InNetNS.
const CurrentNetNS = "/proc/thread-self/ns/net"
