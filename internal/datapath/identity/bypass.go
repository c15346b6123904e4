package identity

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// ErrOlderSockets: processes of the cgroup had packet or XDP sockets before the program was attached
// to it. It does not bind these.
var ErrOlderSockets = errors.New("it had packet sockets before Weir saw it")

// Bypass is the program that keeps sockets of cgroups from sending past the uplinks' queues.
type Bypass struct{}

// Forbid attaches the program to the cgroup at path that keeps its sockets, and those of
// cgroups below it, from sending past the uplinks' queues (bpf/bypass.bpf.c). The program ends with
// the cgroup. It does nothing if the program is attached already. Errors: kernel.ErrNoCgroup;
// ErrOlderSockets as long as the cgroup lasts, and the program is attached all the same; a kernel that
// cannot load the program; a program above the cgroup that allows no other.
func (Bypass) Forbid(path string) error {
	return withCgroup(path, func(fd int) error {
		older, err := programAt(fd, ebpf.AttachCGroupSetsockopt, olderSockets)
		if err != nil {
			return err
		}
		if older != nil {
			return errors.Join(ErrOlderSockets, older.Close())
		}
		old, err := programAt(fd, ebpf.AttachCGroupSetsockopt, bypassProgWeirBypass)
		if err != nil {
			return err
		}
		if old != nil {
			return old.Close()
		}
		if err := attachBypass(fd, bypassProgWeirBypass); err != nil {
			return fmt.Errorf("forbid PACKET_QDISC_BYPASS in cgroup %s: %w", path, err)
		}
		if kernel.HasPacketSockets("/proc", path) {
			return errors.Join(ErrOlderSockets, attachBypass(fd, olderSockets))
		}
		return nil
	})
}

// olderSockets is the name under which the program is attached once more where ErrOlderSockets
// holds, so that the next agent knows it.
const olderSockets = "weir_older"

func attachBypass(cgroup int, name string) error {
	spec, err := loadBypass()
	if err != nil {
		return err
	}
	spec.Programs[bypassProgWeirBypass].Name = name
	var objects bypassObjects
	if err := load(spec, &objects, nil); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer objects.Close()
	return link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: cgroup, Program: objects.WeirBypass, Attach: ebpf.AttachCGroupSetsockopt, Flags: unix.BPF_F_ALLOW_MULTI})
}

// Allow detaches the program, if it is attached. Errors: kernel.ErrNoCgroup.
func (Bypass) Allow(path string) error {
	return errors.Join(
		detachCgroup(path, ebpf.AttachCGroupSetsockopt, bypassProgWeirBypass),
		detachCgroup(path, ebpf.AttachCGroupSetsockopt, olderSockets))
}
