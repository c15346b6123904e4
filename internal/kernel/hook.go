package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Hook is a place on a device where BPF programs see its packets.
//
// Programs are attached without a link: they belong to the device, outlive
// the process that attached them, and go when the device goes. Nothing is
// pinned, so nothing can be left over. A program is found again by its name.
//
// There are two ways to attach. tcx (kernels from 6.6, commit e420bed02507) is
// for programs alone; filters of the clsact qdisc are on every kernel, and can
// be taken away by whoever may configure the device. Packets that leave are
// looked at by tcx where the kernel has it. Packets that come in are looked at
// by filters where it has those: there is such a hook for every container, and
// to attach by tcx waits for a grace period of RCU (about 10 ms) while nobody
// else may configure any device (RTNL; include/net/tcx.h,
// tcx_entry_sync).
type Hook struct {
	// NetNSPath is the namespace of the device; empty for the current one.
	// Programs are attached from inside: the kernel takes a device's index
	// for one of the caller's namespace.
	NetNSPath string
	Ifindex   int
	// Egress: packets that leave through the device; otherwise those that
	// come in.
	Egress bool
}

func (h Hook) tcx() ebpf.AttachType {
	if h.Egress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

func (h Hook) clsact() uint32 {
	if h.Egress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

// Find opens the attached program of that name, or returns nil if there is
// none. The caller closes it. Errors: ErrNoNetNS.
func (h Hook) Find(name string) (program *ebpf.Program, err error) {
	err = InNetNS(h.NetNSPath, func() (err error) {
		program, err = h.find(name)
		return err
	})
	return program, err
}

func (h Hook) find(name string) (*ebpf.Program, error) {
	ids, err := h.programIDs()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		program, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // detached meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("open program %d: %w", id, err)
		}
		info, err := program.Info()
		if err == nil && info.Name == name {
			return program, nil
		}
		_ = program.Close()
		if err != nil {
			return nil, fmt.Errorf("ask for the name of program %d: %w", id, err)
		}
	}
	return nil, nil
}

// programIDs lists the programs that are attached, either way.
func (h Hook) programIDs() ([]ebpf.ProgramID, error) {
	var ids []ebpf.ProgramID
	result, err := link.QueryPrograms(link.QueryOptions{Target: h.Ifindex, Attach: h.tcx()})
	switch {
	case err == nil:
		for _, p := range result.Programs {
			ids = append(ids, p.ID)
		}
		if h.Egress {
			return ids, nil
		}
	case !lacksTCX(err):
		return nil, fmt.Errorf("list programs of device %d: %w", h.Ifindex, err)
	}
	filters, err := h.filters()
	if err != nil {
		return nil, err
	}
	for _, f := range filters {
		ids = append(ids, ebpf.ProgramID(f.Id))
	}
	return ids, nil
}

// filters lists the BPF filters of the clsact qdisc; none if there is no such
// qdisc.
func (h Hook) filters() ([]*netlink.BpfFilter, error) {
	device := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: h.Ifindex}}
	list, err := netlink.FilterList(device, h.clsact())
	if err != nil {
		return nil, fmt.Errorf("list filters of device %d: %w", h.Ifindex, err)
	}
	var filters []*netlink.BpfFilter
	for _, f := range list {
		if b, ok := f.(*netlink.BpfFilter); ok {
			filters = append(filters, b)
		}
	}
	return filters, nil
}

// lacksTCX says whether err is what a kernel without tcx answers.
func lacksTCX(err error) bool {
	return errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL)
}

// filterPreference puts our filter before those that others add, which the
// kernel numbers from 49152 downwards; tools that name one use 1 and up.
const (
	filterPreference = 1
	filterHandle     = 0x7e11
)

// Attach attaches program before all others, in place of old if that is not
// nil. No packet passes between the two. Errors: ErrNoNetNS.
func (h Hook) Attach(program, old *ebpf.Program) error {
	return InNetNS(h.NetNSPath, func() error { return h.attach(program, old) })
}

func (h Hook) attach(program, old *ebpf.Program) error {
	if !h.Egress {
		if err := h.attachFilter(program); !lacksFilters(err) {
			return err
		}
	}
	var anchor link.Anchor = link.Head()
	if old != nil {
		anchor = link.ReplaceProgram(old)
	}
	err := link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: h.Ifindex, Program: program, Attach: h.tcx(), Anchor: anchor,
	})
	if err == nil {
		return nil
	}
	if !lacksTCX(err) {
		return fmt.Errorf("attach to device %d: %w", h.Ifindex, err)
	}
	return h.attachFilter(program)
}

// lacksFilters says whether err is what a kernel without BPF filters answers
// (CONFIG_NET_CLS_BPF, CONFIG_NET_SCH_INGRESS).
func lacksFilters(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP)
}

func (h Hook) attachFilter(program *ebpf.Program) error {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: h.Ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact to device %d: %w", h.Ifindex, err)
	}
	info, err := program.Info()
	if err != nil {
		return fmt.Errorf("ask for the name of a program: %w", err)
	}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: h.Ifindex,
			Parent:    h.clsact(),
			Handle:    filterHandle,
			Priority:  filterPreference,
			Protocol:  unix.ETH_P_ALL,
		},
		Fd:           program.FD(),
		Name:         info.Name,
		DirectAction: true,
	}
	if err := netlink.FilterReplace(filter); err != nil {
		return fmt.Errorf("attach filter to device %d: %w", h.Ifindex, err)
	}
	return nil
}

// Detach detaches the program of that name. It is not an error if there is
// none, no device or no namespace.
func (h Hook) Detach(name string) error {
	err := InNetNS(h.NetNSPath, func() error { return h.detach(name) })
	if errors.Is(err, ErrNoNetNS) {
		return nil
	}
	return err
}

func (h Hook) detach(name string) error {
	program, err := h.find(name)
	if errors.Is(err, unix.ENODEV) || program == nil && err == nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer program.Close()
	filters, err := h.filters()
	if err != nil {
		return err
	}
	if isFilter(program, filters) {
		return h.detachFilter(name)
	}
	err = link.RawDetachProgram(link.RawDetachProgramOptions{
		Target: h.Ifindex, Program: program, Attach: h.tcx(),
	})
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("detach from device %d: %w", h.Ifindex, err)
	}
	return nil
}

// isFilter says whether a program is attached as one of the filters.
func isFilter(program *ebpf.Program, filters []*netlink.BpfFilter) bool {
	info, err := program.Info()
	if err != nil {
		return false
	}
	id, _ := info.ID()
	return slices.ContainsFunc(filters, func(f *netlink.BpfFilter) bool { return ebpf.ProgramID(f.Id) == id })
}

func (h Hook) detachFilter(name string) error {
	filters, err := h.filters()
	if err != nil {
		return err
	}
	for _, f := range filters {
		if f.Handle == filterHandle && f.Priority == filterPreference {
			if err := netlink.FilterDel(f); err != nil && !errors.Is(err, unix.ENODEV) {
				return fmt.Errorf("remove filter %s from device %d: %w", name, h.Ifindex, err)
			}
		}
	}
	// A clsact without filters does nothing; with filters it is somebody's.
	for _, egress := range []bool{false, true} {
		rest, err := Hook{Ifindex: h.Ifindex, Egress: egress}.filters()
		if err != nil || len(rest) > 0 {
			return err
		}
	}
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: h.Ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscDel(qdisc); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove clsact from device %d: %w", h.Ifindex, err)
	}
	return nil
}
