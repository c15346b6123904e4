package identity

import (
	"errors"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Origin is the owner of packets from a network namespace.
type Origin struct {
	// Number is its container's number; NumberHost for the host, NumberNone if packets are
	// identified by their tags.
	Number uint16
	// ShownBy is a file that proves the namespace's existence and its holder; "" if no proof is
	// needed.
	ShownBy string
}

// OriginWatcher is the kernel's side of watching. Implementation: *Origins.
type OriginWatcher interface {
	Watch() error
	Unwatch() error
	Set(netns uint32, number uint16) error
	Forget(netns uint32) error
	UnknownOrigins() ([]uint32, error)
	Close() error
}

// OriginTable is a copy of the kernel's table of network namespaces, by inode. The kernel reuses an
// inode as soon as its namespace is gone, so an entry is dropped with its container, or when its
// proof is gone. It is not safe for concurrent use.
type OriginTable struct {
	watcher  OriginWatcher
	watching bool
	// refused: this kernel cannot watch.
	refused bool
	known   map[uint32]Origin
}

// NewOriginTable returns an empty table that does not watch.
func NewOriginTable(watcher OriginWatcher) *OriginTable {
	return &OriginTable{watcher: watcher, known: map[uint32]Origin{}}
}

// Watching reports whether the kernel watches.
func (t *OriginTable) Watching() bool { return t.watching }

// Refused reports whether this kernel cannot watch. The kernel is asked only once.
func (t *OriginTable) Refused() bool { return t.refused }

// Watch makes the kernel record the namespaces that packets come from, and assigns the namespaces in own, by inode, to their containers' numbers.
// Entries made by Add stay while held reports that their number has a holder. After an error
// everything that was not refused is in force.
func (t *OriginTable) Watch(own map[uint32]uint16, held func(number uint16) bool) error {
	var errs []error
	for netns, known := range t.known {
		_, isOwn := own[netns]
		stale := known.Number >= NumberFirst && !held(known.Number)
		if !isOwn && (stale || known.ShownBy == "") {
			errs = append(errs, t.forget(netns))
		}
	}
	for netns, number := range own {
		if known, isKnown := t.known[netns]; !isKnown || known != (Origin{Number: number}) {
			errs = append(errs, t.Add(netns, Origin{Number: number}))
		}
	}
	if !t.watching {
		err := t.watcher.Watch()
		t.watching, t.refused = err == nil, err != nil
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Unwatch stops watching, and empties the table.
func (t *OriginTable) Unwatch() error {
	errs := []error{t.watcher.Unwatch()}
	t.watching = false
	for netns := range t.known {
		errs = append(errs, t.forget(netns))
	}
	return errors.Join(errs...)
}

// Add assigns packets from a namespace to their owner.
func (t *OriginTable) Add(netns uint32, origin Origin) error {
	if err := t.watcher.Set(netns, origin.Number); err != nil {
		return err
	}
	t.known[netns] = origin
	return nil
}

// Knows reports whether a namespace is in the table.
func (t *OriginTable) Knows(netns uint32) bool {
	_, known := t.known[netns]
	return known
}

// Unknown returns the unassigned namespaces that packets came from since the last call.
func (t *OriginTable) Unknown() ([]uint32, error) { return t.watcher.UnknownOrigins() }

// Lapse drops the namespaces that their path (ShownBy) shows no longer, and returns them.
func (t *OriginTable) Lapse() (lapsed []uint32, err error) {
	var errs []error
	for netns, known := range t.known {
		if known.ShownBy != "" && !kernel.ShowsNetNS(known.ShownBy, netns) {
			errs = append(errs, t.forget(netns))
			lapsed = append(lapsed, netns)
		}
	}
	return lapsed, errors.Join(errs...)
}

// Close stops watching for good.
func (t *OriginTable) Close() error { return t.watcher.Close() }

func (t *OriginTable) forget(netns uint32) error {
	if err := t.watcher.Forget(netns); err != nil {
		return err
	}
	delete(t.known, netns)
	return nil
}
