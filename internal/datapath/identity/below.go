package identity

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/kernel"
)

// savePriority has the classifier of an uplink leave the priority of packets for
// the devices below it, and those give it back (bpf/below.bpf.c). It changes nothing
// where there are none.
func savePriority(spec *ebpf.CollectionSpec, ifindex int) error {
	below, err := kernel.Below(ifindex)
	if err != nil {
		return err
	}
	for _, l := range below {
		if err := attachBelow(l.Index); err != nil {
			return fmt.Errorf("give packets their priority back at %s: %w", l.Name, err)
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

// priorities is how many of them are given back.
const priorities = int(uplinkWeirSavedWEIR_SAVED_PRIORITY_MASK) + 1

// vlanCodePoints are those of an egress map for the priorities that are given back.
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

// belowAttached says whether all devices below an uplink have the program.
func belowAttached(ifindex int) (bool, error) {
	below, err := kernel.Below(ifindex)
	if err != nil {
		return false, err
	}
	for _, l := range below {
		program, err := kernel.Hook{Ifindex: l.Index, Egress: true}.Find(belowProgWeirBelow)
		if err != nil || program == nil {
			return false, err
		}
		program.Close()
	}
	return true, nil
}

// detachBelow removes the program from the devices below an uplink, but for those
// that are below another one as well.
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

// belowAnother says whether a device is below an uplink other than the one with
// index ifindex.
func belowAnother(lower, ifindex int) (bool, error) {
	above, err := kernel.Above(lower)
	if err != nil {
		return false, err
	}
	for _, l := range above {
		if l.Index == ifindex {
			continue
		}
		program, err := kernel.Hook{Ifindex: l.Index, Egress: true}.Find(uplinkProgWeirUplink)
		if err != nil || program != nil {
			if program != nil {
				program.Close()
			}
			return err == nil, err
		}
	}
	return false, nil
}
