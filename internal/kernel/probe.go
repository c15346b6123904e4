package kernel

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Release is the kernel's version as `uname -r` prints it.
func Release() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("ask for the kernel's version: %w", err)
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}

// ProbeQdisc says whether the kernel has a qdisc: it is tried out on the
// loopback device of a namespace made for that. Errors: the kernel's refusal.
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

// ProbeTCX says whether the kernel has tcx hooks.
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

// ProbeBPF says whether the kernel runs the kind of program that classifies
// packets.
func ProbeBPF() error { return features.HaveProgramType(ebpf.SchedCLS) }

// inNewNetNS runs fn in a network namespace that ends with it.
func inNewNetNS(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		// The thread is not given back: it ends with this goroutine, and the
		// namespace with it.
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
