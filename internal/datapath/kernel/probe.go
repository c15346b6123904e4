package kernel

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Release returns the kernel's version, as `uname -r` prints it.
func Release() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("ask for the kernel's version: %w", err)
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}

// MemoryBytes returns the memory of the machine; 0 if the kernel does not tell.
func MemoryBytes() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit) //nolint:unconvert // 32 bits on arm
}

// ProbeQdisc returns an error if the kernel lacks a kind of qdisc. It tries the qdisc on the
// loopback device of a temporary namespace.
func ProbeQdisc(options Options) error {
	return inNewNetNS(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		tc, err := OpenTC()
		if err != nil {
			return err
		}
		defer tc.Close()
		err = tc.Apply(lo.Attrs().Index, []Op{{Verb: Add, Qdisc: &Qdisc{
			Handle: NewHandle(1, 0), Parent: HandleRoot, Options: options}}})
		var refused *OpError
		if errors.As(err, &refused) {
			return refused.Err
		}
		return err
	})
}

// ProbeTCX returns an error if the kernel lacks tcx hooks.
func ProbeTCX() error {
	return inNewNetNS(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		_, err = link.QueryPrograms(link.QueryOptions{Target: lo.Attrs().Index, Attach: ebpf.AttachTCXEgress})
		return err
	})
}

// ProbeLink returns an error if the kernel lacks a kind of network device, by its ip-link name, or
// if this function does not know the kind. It makes a device in a temporary namespace.
func ProbeLink(kind string) error {
	const below, above = "weir0", "weir1"
	return inNewNetNS(func() error {
		attrs := netlink.LinkAttrs{Name: above}
		var device netlink.Link
		switch kind {
		case "veth":
			device = &netlink.Veth{LinkAttrs: attrs, PeerName: below}
		case "vxlan":
			device = &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, Port: 4789}
		case "macvlan", "ipvlan", "vlan":
			lower := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: below}, PeerName: "weir2"}
			if err := netlink.LinkAdd(lower); err != nil {
				return fmt.Errorf("make a device to put it on: %w", err)
			}
			// Creating it did not return its index.
			made, err := netlink.LinkByName(below)
			if err != nil {
				return fmt.Errorf("make a device to put it on: %w", err)
			}
			attrs.ParentIndex = made.Attrs().Index
			switch kind {
			case "macvlan":
				device = &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}
			case "ipvlan":
				device = &netlink.IPVlan{LinkAttrs: attrs, Mode: netlink.IPVLAN_MODE_L2}
			default:
				device = &netlink.Vlan{LinkAttrs: attrs, VlanId: 1}
			}
		default:
			return fmt.Errorf("unknown kind of network device %q", kind)
		}
		return netlink.LinkAdd(device)
	})
}

// ProbeRedirect returns an error if the kernel cannot redirect what a device receives to an IFB. It tries
// that in a temporary namespace.
func ProbeRedirect() error {
	return inNewNetNS(func() error {
		if err := AddIFB("weir0"); err != nil {
			return err
		}
		ifb, err := netlink.LinkByName("weir0")
		if err != nil {
			return fmt.Errorf("look up the IFB: %w", err)
		}
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "weir_probe", Type: ebpf.SchedCLS, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		})
		if err != nil {
			return fmt.Errorf("load a program: %w", err)
		}
		defer program.Close()
		const loopback = 1 // in every namespace
		return Redirect{From: loopback, To: ifb.Attrs().Index}.Attach(program)
	})
}

// ProbeSocketCgroup returns an error if the kernel cannot tell the cgroup of a packet's socket.
func ProbeSocketCgroup() error {
	return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnSkbAncestorCgroupId)
}

// ProbeBPF returns an error if the kernel lacks BPF programs that classify packets.
func ProbeBPF() error { return features.HaveProgramType(ebpf.SchedCLS) }

// inNewNetNS runs fn in a new, temporary network namespace.
func inNewNetNS(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		// The thread stays locked: it ends with this goroutine, and the namespace with it.
		runtime.LockOSThread()
		ns, err := netns.New()
		if err != nil {
			result <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		defer ns.Close()
		result <- fn()
	}()
	return <-result
}
