package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Hook is a place on a device where BPF programs see its packets.
//
// Programs are attached without a link: they belong to the device, outlive the process that
// attached them, and go when the device goes. Nothing is pinned, so nothing is left over. A program
// is found again by its name.
//
// There are two ways to attach. tcx (kernels from 6.6, commit e420bed02507) takes programs only.
// Filters of the clsact qdisc exist on every kernel, but any program that may configure the device
// can remove them. For egress Hook uses tcx if the kernel has it. For ingress it prefers filters:
// every container has such a hook, and attaching by tcx waits for a grace period of RCU (about 10
// ms) in which no other process may configure any device (RTNL; include/net/tcx.h, tcx_entry_sync).
//
// tcx programs run before all filters. A verdict of an earlier program keeps packets from a later
// one. So if another program uses tcx for ingress, or has a filter before Weir's, Hook also uses
// tcx, at its head. Attach restores that order.
type Hook struct {
	// NetNSPath is the namespace of the device; "" for the current one. Programs are attached from
	// inside, because the kernel looks up a device's index in the caller's namespace.
	NetNSPath string
	Ifindex   int
	// Egress: packets that leave through the device; otherwise packets that come in.
	Egress bool

	// socket, if not nil, is used in place of a socket for each request (HookSocket.At).
	socket *HookSocket
}

func (h Hook) tcx() ebpf.AttachType {
	if h.Egress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

// ErrNotFirst: another program runs before Weir's and may decide about packets that Weir's program
// never sees.
var ErrNotFirst = errors.New("another program comes first there")

// Find opens the attached program of that name; nil if there is none. The caller closes it. Errors:
// ErrNoNetNS, ErrNoLink.
func (h Hook) Find(name string) (program *ebpf.Program, err error) {
	program, _, err = h.FindPlace(name)
	return program, err
}

// Has reports whether a program of that name is attached. Errors: those of Find.
func (h Hook) Has(name string) (bool, error) {
	program, err := h.Find(name)
	if program != nil {
		_ = program.Close()
	}
	return program != nil, err
}

// FindPlace opens a program as Find does, and reports whether it runs before all others. The
// verdict of an earlier program may keep packets from it.
func (h Hook) FindPlace(name string) (program *ebpf.Program, first bool, err error) {
	err = InNetNS(h.NetNSPath, func() (err error) {
		program, first, err = h.find(name)
		return err
	})
	return program, first, err
}

func (h Hook) find(name string) (program *ebpf.Program, first bool, err error) {
	all, err := h.programs()
	if err != nil {
		return nil, false, err
	}
	for i, p := range all {
		if p.id == 0 {
			continue
		}
		program, err := openProgram(p.id)
		if err != nil {
			return nil, false, err
		}
		if program == nil {
			continue // detached meanwhile
		}
		facts, err := factsOf(program)
		if err == nil && facts.name == name {
			return program, i == 0, nil
		}
		_ = program.Close()
		if err != nil {
			return nil, false, err
		}
	}
	return nil, false, nil
}

// HookSocket is one netlink socket for several hooks of its network namespace: opening one takes twice as long as a look
// at a hook. It is not safe for concurrent use.
type HookSocket struct{ socket *routeSocket }

// OpenHookSocket opens a socket in the caller's network namespace.
func OpenHookSocket() (*HookSocket, error) {
	socket, err := openRouteSocket(shortDumpBytes)
	if err != nil {
		return nil, err
	}
	return &HookSocket{socket}, nil
}

// Close closes the socket.
func (s *HookSocket) Close() { _ = s.socket.close() } // nothing is lost

// At returns the hook, which uses the socket if it is in the socket's namespace.
func (s *HookSocket) At(h Hook) Hook {
	h.socket = s
	return h
}

// withSocket calls do, in the hook's namespace, with a socket there.
func (h Hook) withSocket(do func(*routeSocket) error) error {
	if h.socket != nil && h.NetNSPath == "" {
		return do(h.socket.socket)
	}
	socket, err := openRouteSocket(shortDumpBytes)
	if err != nil {
		return err
	}
	return errors.Join(do(socket), socket.close())
}

// SoleProgram returns the ID (ProgramID) of the only program or filter at the hook that Weir looks at; 0 if there is
// none, or more than one, or a filter without a program. Errors: ErrNoNetNS, ErrNoLink.
func (h Hook) SoleProgram() (id uint32, err error) {
	err = InNetNS(h.NetNSPath, func() error {
		all, err := h.programs()
		if len(all) == 1 {
			id = uint32(all[0].id)
		}
		return err
	})
	return id, err
}

// Others are the names of programs and filters of others that see packets after one of Weir's.
type Others struct {
	// Diverting are those that may redirect packets, or change their priority or queue.
	Diverting []string
	// Indexing are those that may overwrite tc_index.
	Indexing []string
}

// After returns the programs, except those in except, and the clsact filters that see packets after
// the program of that name and may change what these carry; with "" all of them. Filters come after
// all tcx programs. The result is empty if there is no such program. Errors: ErrNoNetNS.
func (h Hook) After(name string, except ...string) (others Others, err error) {
	err = InNetNS(h.NetNSPath, func() (err error) {
		others, err = h.after(name, except)
		return err
	})
	return others, err
}

func (h Hook) after(name string, except []string) (others Others, err error) {
	all, err := h.programs()
	if err != nil {
		return others, err
	}
	if h.Egress && (len(all) == 0 || all[0].filter == nil) {
		filters, err := h.filters()
		if err != nil {
			return others, err
		}
		all = append(all, filters...)
	}
	found := name == ""
	var effects map[filterKey]effect
	for _, a := range all {
		called, err := a.name()
		switch {
		case err != nil:
			return others, err
		case called == name:
			found = true
			continue
		case !found || called == "" || slices.Contains(except, called):
			continue
		}
		does := unclear
		if a.filter != nil {
			if effects == nil {
				if effects, err = h.effects(); err != nil {
					return others, err
				}
			}
			if known, is := effects[a.filter.filterKey]; is {
				does = known
			}
		}
		if does&diverts != 0 {
			others.Diverting = append(others.Diverting, called)
		}
		if does&indexes != 0 {
			others.Indexing = append(others.Indexing, called)
		}
	}
	return others, nil
}

// attached is a program or filter attached to a hook.
type attached struct {
	id ebpf.ProgramID // 0 for a filter without a program
	// filter is nil for a program attached by tcx.
	filter *filter
}

// name returns a program's name, or the kind of another filter; "" if it was detached meanwhile.
func (a attached) name() (string, error) {
	if a.id == 0 {
		return a.filter.kind + " filter", nil
	}
	program, err := openProgram(a.id)
	if program == nil {
		return "", err
	}
	defer program.Close()
	facts, err := factsOf(program)
	return cmp.Or(facts.name, fmt.Sprintf("program %d", a.id)), err
}

// openProgram opens a program; nil if it was unloaded meanwhile.
func openProgram(id ebpf.ProgramID) (*ebpf.Program, error) {
	program, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open program %d: %w", id, err)
	}
	return program, nil
}

// programInfo returns what the kernel tells of a program; nil if it was detached meanwhile.
func programInfo(id ebpf.ProgramID) (*ebpf.ProgramInfo, error) {
	program, err := openProgram(id)
	if program == nil {
		return nil, err
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return nil, fmt.Errorf("ask for the name of program %d: %w", id, err)
	}
	return info, nil
}

// programs lists the attached programs and filters in the order in which they see packets. Errors:
// ErrNoLink.
func (h Hook) programs() ([]attached, error) {
	ids, complete, err := h.tcxPrograms()
	if err != nil {
		return nil, err
	}
	var all []attached
	for _, id := range ids {
		all = append(all, attached{id: id})
	}
	if complete {
		return all, nil
	}
	filters, err := h.filters()
	return append(all, filters...), err
}

// tcxPrograms lists the programs attached by tcx; complete: Weir looks at no filters of this hook.
// Errors: ErrNoLink.
func (h Hook) tcxPrograms() (ids []ebpf.ProgramID, complete bool, err error) {
	result, err := link.QueryPrograms(link.QueryOptions{Target: h.Ifindex, Attach: h.tcx()})
	switch {
	case err == nil:
		for _, p := range result.Programs {
			ids = append(ids, p.ID)
		}
		return ids, h.Egress, nil
	case errors.Is(err, unix.ENODEV):
		return nil, false, ErrNoLink
	case !lacksTCX(err):
		return nil, false, fmt.Errorf("list programs of device %d: %w", h.Ifindex, err)
	}
	return nil, false, nil
}

// lacksTCX reports whether err is the error of a kernel without tcx.
func lacksTCX(err error) bool {
	return errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL)
}

// Attach attaches program before all others, in place of old unless that is nil. No packet passes
// without a program during the replacement. Errors: ErrNoNetNS; ErrNotFirst if another program
// insists on being first.
func (h Hook) Attach(program, old *ebpf.Program) error {
	return InNetNS(h.NetNSPath, func() error {
		if err := h.attach(program, old); err != nil {
			return err
		}
		all, err := h.programs()
		if err == nil && (len(all) == 0 || all[0].id != programID(program)) {
			err = fmt.Errorf("attach to device %d: %w", h.Ifindex, ErrNotFirst)
		}
		return err
	})
}

func (h Hook) attach(program, old *ebpf.Program) error {
	all, err := h.programs()
	if err != nil {
		return err
	}
	var oldID ebpf.ProgramID
	if old != nil {
		oldID = programID(old)
	}
	at := slices.IndexFunc(all, func(a attached) bool { return old != nil && a.id == oldID })
	// A filter would not be first if others use tcx, or are before ours.
	byTCX := slices.ContainsFunc(all, func(a attached) bool { return a.filter == nil }) || at > 0
	if !h.Egress && !byTCX {
		// The kernel may have no BPF filters, or another kind of filter has our preference: tcx
		// needs neither.
		if err := h.attachFilter(program, filterHandle); err == nil || errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	var anchor link.Anchor = link.Head()
	replaces := at == 0 && all[0].filter == nil
	if replaces {
		anchor = link.ReplaceProgram(old)
	}
	err = link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: h.Ifindex, Program: program, Attach: h.tcx(), Anchor: anchor,
	})
	switch {
	case err == nil && (replaces || at < 0):
		return nil
	case err == nil:
		return h.remove(old, all[at])
	case !lacksTCX(err):
		return fmt.Errorf("attach to device %d: %w", h.Ifindex, err)
	}
	return h.attachFilterFirst(program, all, at)
}

// attachFilterFirst attaches a filter before all others, in place of the one at index at unless
// that is negative.
func (h Hook) attachFilterFirst(program *ebpf.Program, all []attached, at int) error {
	if at < 0 {
		return h.attachFilter(program, filterHandle)
	}
	old := all[at].filter
	if at == 0 {
		return h.attachFilter(program, old.handle)
	}
	handle := uint32(filterHandle)
	if old.handle == filterHandle {
		handle = filterOtherHandle
	}
	if err := h.attachFilter(program, handle); err != nil {
		return err
	}
	return h.removeFilter(old)
}

// ProgramID returns the ID of an open program, which names it while it is loaded; 0 if the kernel does not tell it.
func ProgramID(program *ebpf.Program) uint32 { return uint32(programID(program)) }

// programID returns the ID of an open program; 0 if the kernel does not tell it.
func programID(program *ebpf.Program) ebpf.ProgramID {
	facts, _ := factsOf(program)
	return facts.id
}

// programFacts are the ID and name of a program.
type programFacts struct {
	id   ebpf.ProgramID
	name string
}

// factsOf asks the kernel for a program's ID and name. The library's Info asks for more, of /proc too.
func factsOf(program *ebpf.Program) (programFacts, error) {
	// The start of struct bpf_prog_info, and where it has ID and name (include/uapi/linux/bpf.h).
	var info [80]byte
	const id, name = 4, 64
	const requestBytes = 16 // the struct below may be longer
	request := struct {
		fd, sizeBytes uint32
		info          unsafe.Pointer
		_             [8 - unsafe.Sizeof(uintptr(0))]byte
	}{fd: uint32(program.FD()), sizeBytes: uint32(len(info)), info: unsafe.Pointer(&info)}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&request)), requestBytes)
	runtime.KeepAlive(program)
	if errno != 0 {
		return programFacts{}, fmt.Errorf("ask for the name of %s: %w", program, os.NewSyscallError("bpf", errno))
	}
	return programFacts{ebpf.ProgramID(binary.NativeEndian.Uint32(info[id:])), unix.ByteSliceToString(info[name:])}, nil
}

// Detach detaches the program of that name. A missing program, device or namespace is no error.
func (h Hook) Detach(name string) error {
	err := InNetNS(h.NetNSPath, func() error { return h.detach(name) })
	if errors.Is(err, ErrNoNetNS) || errors.Is(err, ErrNoLink) {
		return nil
	}
	return err
}

func (h Hook) detach(name string) error {
	program, _, err := h.find(name)
	if err != nil || program == nil {
		return err
	}
	defer program.Close()
	all, err := h.programs()
	if err != nil {
		return err
	}
	id := programID(program)
	at := slices.IndexFunc(all, func(a attached) bool { return a.id == id })
	if at < 0 {
		return nil
	}
	return h.remove(program, all[at])
}

// remove detaches a program or filter.
func (h Hook) remove(program *ebpf.Program, a attached) error {
	if a.filter != nil {
		return h.removeFilter(a.filter)
	}
	err := link.RawDetachProgram(link.RawDetachProgramOptions{
		Target: h.Ifindex, Program: program, Attach: h.tcx(),
	})
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("detach from device %d: %w", h.Ifindex, err)
	}
	return nil
}
