package identity

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// savePriority configures the classifier of an uplink to save the packets' priority, and attaches
// programs that restore it to the devices below the uplink (bpf/below.bpf.c). Without such devices
// it changes nothing.
func savePriority(spec *ebpf.CollectionSpec, ifindex int) error {
	below, err := kernel.Below(ifindex)
	if err != nil {
		return err
	}
	for _, l := range below {
		if err := attachBelow(l.Index); err != nil {
			return fmt.Errorf("restore the priority of packets at %s: %w", l.Name, err)
		}
	}
	if len(below) == 0 {
		return nil
	}
	byPriority, err := kernel.VLANPriorities(ifindex)
	if err != nil {
		return err
	}
	if err := spec.Variables[uplinkVarSavePriority].Set(uint32(1)); err != nil {
		return fmt.Errorf("save priorities: %w", err)
	}
	if err := spec.Variables[uplinkVarVlanPcps].Set(vlanCodePoints(byPriority)); err != nil {
		return fmt.Errorf("save priorities: %w", err)
	}
	return nil
}

// priorities is the number of priority values that can be restored.
const priorities = int(uplinkWeirSavedWEIR_SAVED_PRIORITY_MASK) + 1

// vlanCodePoints returns the VLAN code points of the restorable priorities.
func vlanCodePoints(byPriority map[uint32]uint32) [priorities]uint8 {
	var codePoints [priorities]uint8
	for priority, codePoint := range byPriority {
		if priority < uint32(priorities) {
			codePoints[priority] = uint8(codePoint)
		}
	}
	return codePoints
}

func attachBelow(ifindex int) error {
	hook := kernel.Hook{Ifindex: ifindex, Egress: true}
	old, err := hook.Find(belowProgWeirBelow)
	if err != nil {
		return err
	}
	if old != nil {
		defer old.Close()
	}
	var objects belowObjects
	if err := loadBelowObjects(&objects, nil); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer objects.Close()
	return hook.Attach(objects.WeirBelow, old)
}

// belowAttached reports whether all devices below an uplink have the program.
func belowAttached(ifindex int) (bool, error) {
	below, err := kernel.Below(ifindex)
	if err != nil {
		return false, err
	}
	for _, l := range below {
		has, err := kernel.Hook{Ifindex: l.Index, Egress: true}.Has(belowProgWeirBelow)
		if err != nil || !has {
			return false, err
		}
	}
	return true, nil
}

// detachBelow removes the program from the devices below an uplink, except devices that are also
// below another uplink.
func detachBelow(ifindex int) error {
	below, err := kernel.Below(ifindex)
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		return err
	}
	var errs []error
	for _, l := range below {
		needed, err := belowAnother(l.Index, ifindex)
		if err == nil && !needed {
			err = kernel.Hook{Ifindex: l.Index, Egress: true}.Detach(belowProgWeirBelow)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// belowAnother reports whether a device is below an uplink other than the one with index ifindex.
func belowAnother(lower, ifindex int) (bool, error) {
	above, err := kernel.Above(lower)
	if err != nil {
		return false, err
	}
	for _, l := range above {
		if l.Index == ifindex {
			continue
		}
		if has, err := HasUplink(l.Index); has || err != nil && !errors.Is(err, kernel.ErrNoLink) {
			return has, err
		}
	}
	return false, nil
}
