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

// owners is a table of the kernel: the owner of each key. The kernel keeps it with the program, so it
// outlives the agent.
type owners[K, V comparable] struct {
	entries *ebpf.Map
	// compare orders the keys of one number, which number returns of an owner.
	compare func(a, b K) int
	number  func(V) uint32
	// known is a copy of entries.
	known map[K]V
}

// read loads the kernel's entries.
func (o *owners[K, V]) read() error {
	o.known = map[K]V{}
	var (
		key   K
		owner V
	)
	entries := o.entries.Iterate()
	for entries.Next(&key, &owner) {
		o.known[key] = owner
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read the owners: %w", err)
	}
	return nil
}

// set replaces the whole table. If it is full, the smallest numbers win, and refused has the first
// key of each other number for which there was no room. The next call retries them.
func (o *owners[K, V]) set(want map[K]V) (refused map[uint16]K, err error) {
	for key := range o.known {
		if _, wanted := want[key]; wanted {
			continue
		}
		if err := o.entries.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("forget the owner of %v: %w", key, err)
		}
		delete(o.known, key)
	}
	for _, key := range o.inOrder(want) {
		owner := want[key]
		number := uint16(o.number(owner))
		if _, full := refused[number]; full || o.known[key] == owner {
			continue
		}
		switch err := o.entries.Update(key, owner, ebpf.UpdateAny); {
		case errors.Is(err, unix.E2BIG):
			if refused == nil {
				refused = map[uint16]K{}
			}
			refused[number] = key
		case err != nil:
			return nil, fmt.Errorf("set the owner of %v: %w", key, err)
		default:
			o.known[key] = owner
		}
	}
	return refused, nil
}

// inOrder returns the keys sorted by the number of their owner.
func (o *owners[K, V]) inOrder(want map[K]V) []K {
	return slices.SortedFunc(maps.Keys(want), func(a, b K) int {
		return cmp.Or(cmp.Compare(o.number(want[a]), o.number(want[b])), o.compare(a, b))
	})
}
