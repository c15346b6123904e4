package identity

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// owners is a table of the kernel: the number of the owner of each key. The kernel keeps it with the
// program, so it outlives the agent.
type owners[K comparable] struct {
	entries *ebpf.Map
	// compare orders the keys of one number.
	compare func(a, b K) int
	// numbers is a copy of entries.
	numbers map[K]uint32
}

// read loads the kernel's entries.
func (o *owners[K]) read() error {
	o.numbers = map[K]uint32{}
	var (
		key    K
		number uint32
	)
	entries := o.entries.Iterate()
	for entries.Next(&key, &number) {
		o.numbers[key] = number
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read the owners: %w", err)
	}
	return nil
}

// set replaces the whole table. If it is full, the smallest numbers win, and refused has the first
// key of each other number for which there was no room. The next call retries them.
func (o *owners[K]) set(want map[K]uint32) (refused map[uint16]K, err error) {
	for key := range o.numbers {
		if _, wanted := want[key]; wanted {
			continue
		}
		if err := o.entries.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("forget the owner of %v: %w", key, err)
		}
		delete(o.numbers, key)
	}
	for _, key := range o.inOrder(want) {
		number := want[key]
		if _, full := refused[uint16(number)]; full || o.numbers[key] == number {
			continue
		}
		switch err := o.entries.Update(key, number, ebpf.UpdateAny); {
		case errors.Is(err, unix.E2BIG):
			if refused == nil {
				refused = map[uint16]K{}
			}
			refused[uint16(number)] = key
		case err != nil:
			return nil, fmt.Errorf("set the owner of %v: %w", key, err)
		default:
			o.numbers[key] = number
		}
	}
	return refused, nil
}

// inOrder returns the keys sorted by the number of their owner.
func (o *owners[K]) inOrder(want map[K]uint32) []K {
	return slices.SortedFunc(maps.Keys(want), func(a, b K) int {
		return cmp.Or(cmp.Compare(want[a], want[b]), o.compare(a, b))
	})
}
