package identity

import (
	"errors"
	"fmt"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// QueueTags clears the tags in queue_mapping of packets that leave through devices beside the
// uplinks (bpf/clear.bpf.c). The zero value is ready for use.
type QueueTags struct {
	// cleared are the devices that have the program, by index.
	cleared map[int]bool
}

func clearHook(ifindex int) kernel.Hook { return kernel.Hook{Ifindex: ifindex, Egress: true} }

// Clear attaches the program to all devices with several transmit queues, and removes it from those
// that it was attached to and that have one queue now. The uplinks, by index, and the devices below
// them have programs that clear tags, and get none. It continues after an error.
func (q *QueueTags) Clear(uplinks []int) error {
	links, err := kernel.Links()
	if err != nil {
		return err
	}
	others := map[int]bool{}
	for _, uplink := range uplinks {
		others[uplink] = true
		below, err := kernel.Below(uplink)
		if err != nil && !errors.Is(err, kernel.ErrNoLink) {
			return err
		}
		for _, l := range below {
			others[l.Index] = true
		}
	}
	var errs []error
	before := q.cleared
	q.cleared = map[int]bool{}
	for _, l := range links {
		if others[l.Index] {
			if l.MayChooseQueue() { // it may have been none before
				errs = append(errs, clearHook(l.Index).Detach(clearProgWeirClear))
			}
			continue
		}
		switch chooses, err := l.ChoosesQueue(); {
		case errors.Is(err, kernel.ErrNoLink):
		case err != nil:
			errs = append(errs, err)
		case chooses:
			q.cleared[l.Index] = true
			if err := attachClear(l.Index); err != nil {
				errs = append(errs, fmt.Errorf("clear tags at %s: %w", l.Name, err))
			}
		}
	}
	for ifindex := range before {
		if !q.cleared[ifindex] {
			errs = append(errs, clearHook(ifindex).Detach(clearProgWeirClear))
		}
	}
	return errors.Join(errs...)
}

// attachClear attaches the program unless it is attached.
func attachClear(ifindex int) error {
	old, err := clearHook(ifindex).Find(clearProgWeirClear)
	if err != nil {
		return err
	}
	if old != nil {
		return old.Close()
	}
	var objects clearObjects
	if err := loadClearObjects(&objects, nil); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer objects.Close()
	err = clearHook(ifindex).Attach(objects.WeirClear, nil)
	if errors.Is(err, kernel.ErrNotFirst) {
		return nil // it sees what the others leave
	}
	return err
}

// Detach removes the program from all devices.
func (q *QueueTags) Detach() error {
	q.cleared = nil
	links, err := kernel.Links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		if l.MayChooseQueue() {
			errs = append(errs, clearHook(l.Index).Detach(clearProgWeirClear))
		}
	}
	return errors.Join(errs...)
}
