package identity

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// fragments are the devices from which a fragment's tag is believed. The kernel keeps
// them with the program, so they outlive the agent.
type fragments struct {
	entries *ebpf.Map
	// devices is what entries holds, by index.
	devices map[int]bool
}

// read takes over what is in the kernel.
func (f *fragments) read() error {
	f.devices = map[int]bool{}
	var ifindex, value uint32
	entries := f.entries.Iterate()
	for entries.Next(&ifindex, &value) {
		f.devices[int(ifindex)] = true
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read from which devices fragments are believed: %w", err)
	}
	return nil
}

// SetFragmentDevices says by which devices packets come in of which the tag in tc_index
// is true, by index, and no other: taps, and bridges that Bridges is attached to. Of IPv4
// fragments that the host makes nothing else says whose they are. Where all is so already
// no system call is made. An error is of what was refused; all else is done, and what is
// missing is tried again with the next call.
func (u *Uplink) SetFragmentDevices(devices map[int]bool) error {
	f := &u.fragments
	var errs []error
	for ifindex := range f.devices {
		if devices[ifindex] {
			continue
		}
		if err := f.entries.Delete(uint32(ifindex)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("believe fragments from device %d no more: %w", ifindex, err))
			continue
		}
		delete(f.devices, ifindex)
	}
	for ifindex := range devices {
		if f.devices[ifindex] {
			continue
		}
		if err := f.entries.Update(uint32(ifindex), uint32(1), ebpf.UpdateAny); err != nil {
			errs = append(errs, fmt.Errorf("believe fragments from device %d: %w", ifindex, err))
			continue
		}
		f.devices[ifindex] = true
	}
	return errors.Join(errs...)
}
