package identity

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// indexTags is the set of devices whose tags in tc_index are trusted. The kernel keeps it with the
// program, so it outlives the agent.
type indexTags struct {
	entries *ebpf.Map
	// devices is a copy of entries.
	devices map[int]bool
}

// read loads the kernel's entries.
func (f *indexTags) read() error {
	f.devices = map[int]bool{}
	var ifindex, value uint32
	entries := f.entries.Iterate()
	for entries.Next(&ifindex, &value) {
		f.devices[int(ifindex)] = true
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read the devices whose tags in tc_index are trusted: %w", err)
	}
	return nil
}

// SetIndexDevices sets the devices, by index, whose tags in tc_index are trusted: taps, and
// bridges with the Bridges program. Only this tag identifies IPv4 fragments that the host makes, and
// IPv4 packets that reach the uplink through a bridge that it is a port of. It
// makes no system call if the set is unchanged. After an error everything else is in force, and the
// next call retries the rest.
func (u *Uplink) SetIndexDevices(devices map[int]bool) error {
	f := &u.indexTags
	var errs []error
	for ifindex := range f.devices {
		if devices[ifindex] {
			continue
		}
		if err := f.entries.Delete(uint32(ifindex)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("stop trusting tags in tc_index of device %d: %w", ifindex, err))
			continue
		}
		delete(f.devices, ifindex)
	}
	for ifindex := range devices {
		if f.devices[ifindex] {
			continue
		}
		if err := f.entries.Update(uint32(ifindex), uint32(1), ebpf.UpdateAny); err != nil {
			errs = append(errs, fmt.Errorf("trust tags in tc_index of device %d: %w", ifindex, err))
			continue
		}
		f.devices[ifindex] = true
	}
	return errors.Join(errs...)
}
