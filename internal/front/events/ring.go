// Package events keeps the last events of a daemon and streams them over HTTP.
package events

import (
	"sort"
	"sync"
	"time"
)

const (
	// Kept is how many events a ring keeps for late or slow readers.
	Kept = 1024
	// batchEvents is how many events a reader copies per lock, so that it does not delay
	// Add.
	batchEvents = 64
)

// Ring keeps the last events of type E and numbers them. Add never waits for a reader.
type Ring[E any] struct {
	number func(*E) *uint64

	mu     sync.Mutex
	ring   []E
	oldest int           // the index of the oldest event, once the ring is full
	next   uint64        // the number of the next event
	first  uint64        // the number of the first event of this ring
	more   chan struct{} // closed by the next Add
	closed bool
}

// NewRing returns a ring that continues after kept events, which already have numbers.
// number returns a pointer to an event's number. New numbers start at the time in
// milliseconds, so that they increase across restarts of a daemon.
func NewRing[E any](number func(*E) *uint64, kept []E, now time.Time) *Ring[E] {
	r := &Ring[E]{number: number, more: make(chan struct{}), next: uint64(now.UnixMilli())}
	r.ring = append(r.ring, kept[max(len(kept)-Kept, 0):]...)
	r.first = r.next
	if n := len(r.ring); n > 0 {
		r.first = *number(&r.ring[0])
		r.next = max(r.next, *number(&r.ring[n-1])+1)
	}
	return r
}

// Add numbers and stores events, and returns them with their numbers.
func (r *Ring[E]) Add(events ...E) []E {
	if len(events) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range events {
		*r.number(&events[i]) = r.next
		r.next++
		if len(r.ring) < Kept {
			r.ring = append(r.ring, events[i])
			continue
		}
		r.ring[r.oldest] = events[i]
		r.oldest = (r.oldest + 1) % Kept
	}
	if !r.closed {
		close(r.more)
		r.more = make(chan struct{})
	}
	return events
}

// Last returns the number of the last event; without one, the number before the first.
func (r *Ring[E]) Last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next - 1
}

// at returns the i-th event, from the oldest.
func (r *Ring[E]) at(i int) *E { return &r.ring[(r.oldest+i)%len(r.ring)] }

// oldestNumber returns the number of the oldest event, or of the next one if there is none.
func (r *Ring[E]) oldestNumber() uint64 {
	if len(r.ring) == 0 {
		return r.next
	}
	return *r.number(r.at(0))
}

// Batch is a part of the events after a number.
type Batch[E any] struct {
	Events []E
	// Missed is how many of those events were already dropped.
	Missed uint64
	// More is closed when new events arrive; Closed says that none will.
	More   <-chan struct{}
	Closed bool
}

// Since returns the events after number seq, oldest first. A future number, from a daemon
// with another clock, counts as 0.
func (r *Ring[E]) Since(seq uint64) Batch[E] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq >= r.next {
		seq = 0
	}
	batch := Batch[E]{More: r.more, Closed: r.closed}
	from := max(seq+1, r.first)
	if oldest := r.oldestNumber(); from < oldest {
		batch.Missed = oldest - from
	}
	begin := sort.Search(len(r.ring), func(i int) bool { return *r.number(r.at(i)) >= from })
	for i := begin; i < min(begin+batchEvents, len(r.ring)); i++ {
		batch.Events = append(batch.Events, *r.at(i))
	}
	return batch
}

// Keeps reports whether all events after number seq are still stored.
func (r *Ring[E]) Keeps(seq uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return seq < r.next && seq+1 >= r.oldestNumber()
}

// Newest returns up to most events that match, newest first.
func (r *Ring[E]) Newest(most int, match func(E) bool) []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := []E{}
	for i := len(r.ring) - 1; i >= 0 && len(found) < most; i-- {
		if event := *r.at(i); match(event) {
			found = append(found, event)
		}
	}
	return found
}

// Close tells readers that no more events will come.
func (r *Ring[E]) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		close(r.more)
	}
}
