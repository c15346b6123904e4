package stats

import (
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

const (
	// keptEvents is how many events are kept for readers that come later or
	// are slow.
	keptEvents = 1024
	// batchEvents is how many a reader gets at once, so that it does not hold
	// up whoever adds some.
	batchEvents = 64
)

// Events is a ring of the last events, numbered without gaps. It never makes
// whoever adds to it wait for a reader.
type Events struct {
	mu     sync.Mutex
	ring   []v1.Event
	next   uint64 // the number of the next event
	first  uint64 // the number of the first event of this agent
	more   chan struct{}
	closed bool
}

// NewEvents returns a ring whose numbers begin with the time in milliseconds:
// so they go on growing from one agent to the next, for a reader that
// outlives one.
func NewEvents(now time.Time) *Events {
	first := uint64(now.UnixMilli())
	return &Events{next: first, first: first, more: make(chan struct{})}
}

// Add numbers events and adds them.
func (e *Events) Add(events ...v1.Event) {
	if len(events) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range events {
		event.Seq = e.next
		if len(e.ring) < keptEvents {
			e.ring = append(e.ring, event)
		} else {
			e.ring[(e.next-e.first)%keptEvents] = event
		}
		e.next++
	}
	if !e.closed {
		close(e.more)
		e.more = make(chan struct{})
	}
}

// Batch is what a reader gets at once.
type Batch struct {
	Events []v1.Event
	// Missed is how many it asked for that are not kept any more.
	Missed uint64
	// More is closed when there are more; Closed says that there will not be.
	More   <-chan struct{}
	Closed bool
}

// Since returns events after the one with number seq, the oldest first. A
// number from the future, which an agent with another clock gave, is like 0.
func (e *Events) Since(seq uint64) Batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	if seq >= e.next {
		seq = 0
	}
	oldest := e.next - uint64(len(e.ring))
	from := max(seq+1, e.first)
	batch := Batch{More: e.more, Closed: e.closed}
	if from < oldest {
		batch.Missed = oldest - from
		from = oldest
	}
	for ; from < e.next && len(batch.Events) < batchEvents; from++ {
		batch.Events = append(batch.Events, e.ring[(from-e.first)%keptEvents])
	}
	return batch
}

// Keeps says whether everything is kept that came after the event with number seq.
func (e *Events) Keeps(seq uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return seq < e.next && seq+1 >= max(e.next-uint64(len(e.ring)), e.first)
}

// Close tells readers that no more will come.
func (e *Events) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.closed = true
		close(e.more)
	}
}
