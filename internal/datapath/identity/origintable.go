package identity

import (
	"errors"

	"github.com/weir-project/weir/internal/kernel"
)

// Origin says whose packets from a network namespace are.
type Origin struct {
	// Number is its container's; NumberHost, or NumberNone for one whose packets are
	// judged by their tags.
	Number uint16
	// ShownBy is a file that shows that the namespace is still there and held by the
	// same; empty for what is known without.
	ShownBy string
}

// OriginWatcher is what watches in the kernel; *Origins is it.
type OriginWatcher interface {
	Watch() error
	Unwatch() error
	Set(netns uint32, number uint16) error
	Forget(netns uint32) error
	UnknownOrigins() ([]uint32, error)
	Close() error
}

// OriginTable is what the kernel was told of network namespaces, by inode. The kernel
// gives an inode away again as soon as a namespace is gone, so what the table holds is
// forgotten with its container, or when nothing shows it any more. It is not safe for
// concurrent use.
type OriginTable struct {
	watcher  OriginWatcher
	watching bool
	// refused: this kernel cannot watch.
	refused bool
	known   map[uint32]Origin
}

// NewOriginTable returns one that knows nothing and does not watch.
func NewOriginTable(watcher OriginWatcher) *OriginTable {
	return &OriginTable{watcher: watcher, known: map[uint32]Origin{}}
}

// Watching says whether the kernel watches.
func (t *OriginTable) Watching() bool { return t.watching }

// Refused says whether this kernel cannot watch. It is asked once.
func (t *OriginTable) Refused() bool { return t.refused }

// Watch has the kernel watch, and tells it the namespaces that are own: those of
// containers by their numbers. Of others that were added, those stay whose number is
// still somebody's, as held says. An error is of what was refused; all else is done.
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

// Unwatch ends watching, and forgets all.
func (t *OriginTable) Unwatch() error {
	errs := []error{t.watcher.Unwatch()}
	t.watching = false
	for netns := range t.known {
		errs = append(errs, t.forget(netns))
	}
	return errors.Join(errs...)
}

// Add tells the kernel whose the packets from a namespace are.
func (t *OriginTable) Add(netns uint32, origin Origin) error {
	if err := t.watcher.Set(netns, origin.Number); err != nil {
		return err
	}
	t.known[netns] = origin
	return nil
}

// Knows says whether the kernel was told of a namespace.
func (t *OriginTable) Knows(netns uint32) bool {
	_, known := t.known[netns]
	return known
}

// Unknown are the namespaces that packets came from since it was last called, while
// nothing was said of them.
func (t *OriginTable) Unknown() ([]uint32, error) { return t.watcher.UnknownOrigins() }

// Lapse forgets the namespaces that are not shown any more by what they were found by,
// and returns them.
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

// Close ends watching for good.
func (t *OriginTable) Close() error { return t.watcher.Close() }

func (t *OriginTable) forget(netns uint32) error {
	if err := t.watcher.Forget(netns); err != nil {
		return err
	}
	delete(t.known, netns)
	return nil
}
