package meter

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

type attachment io.Closer

// attach puts program on ingress of an interface: with tcx (Linux 6.6), and
// with a clsact filter where the kernel has no tcx.
func attach(ifindex int, program *ebpf.Program) (attachment, error) {
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: ifindex,
		Program:   program,
		Attach:    ebpf.AttachTCXIngress,
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return attachClsact(ifindex, program)
	}
	return l, err
}

// clsactFilter holds the netlink handle of the namespace the filter is in, so
// that it can be removed from any thread.
type clsactFilter struct {
	handle *netlink.Handle
	filter *netlink.BpfFilter
}

func attachClsact(ifindex int, program *ebpf.Program) (attachment, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex,
		Handle:    netlink.MakeHandle(0xffff, 0),
		Parent:    netlink.HANDLE_CLSACT,
	}}
	if err := handle.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		handle.Close()
		return nil, fmt.Errorf("add clsact: %w", err)
	}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex,
			Parent:    netlink.HANDLE_MIN_INGRESS,
			Handle:    1,
			Protocol:  unix.ETH_P_ALL,
			Priority:  1,
		},
		Fd:           program.FD(),
		Name:         "meter",
		DirectAction: true,
	}
	if err := handle.FilterAdd(filter); err != nil {
		handle.Close()
		return nil, fmt.Errorf("add the filter: %w", err)
	}
	return &clsactFilter{handle: handle, filter: filter}, nil
}

// Close removes the filter. The clsact qdisc stays: others may use it.
func (c *clsactFilter) Close() error {
	defer c.handle.Close()
	err := c.handle.FilterDel(c.filter)
	if errors.Is(err, unix.ENODEV) {
		return nil // the interface is gone, and the filter with it
	}
	return err
}
