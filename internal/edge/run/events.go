package run

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
)

// keptEvents is how many events are at hand; the file keeps as many.
const keptEvents = 1000

// Events are what happened lately, for any number of readers.
type Events struct {
	mu   sync.Mutex
	list []edge.Event
	next uint64
	more chan struct{} // closed when there is one more
	// counts are how many there were since this weir-edge started, by kind.
	counts map[edge.EventKind]uint64
}

// newEvents goes on after the events that were kept.
func newEvents(kept []edge.Event, now time.Time) *Events {
	e := &Events{list: kept, next: uint64(now.UnixMilli()), more: make(chan struct{}), counts: map[edge.EventKind]uint64{}}
	if len(kept) > 0 {
		e.next = max(e.next, kept[len(kept)-1].Seq+1)
	}
	return e
}

// add numbers an event and keeps it.
func (e *Events) add(event edge.Event) edge.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	event.Seq = e.next
	e.next++
	e.counts[event.Kind]++
	e.list = append(e.list, event)
	if len(e.list) > keptEvents {
		e.list = append([]edge.Event(nil), e.list[len(e.list)-keptEvents:]...)
	}
	close(e.more)
	e.more = make(chan struct{})
	return event
}

// Since are the events after the one with number seq, and a channel that is closed
// when there is another one.
func (e *Events) Since(seq uint64) ([]edge.Event, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, event := range e.list {
		if event.Seq > seq {
			return append([]edge.Event(nil), e.list[i:]...), e.more
		}
	}
	return nil, e.more
}

// Counts are how many events there were since this weir-edge started, by kind.
func (e *Events) Counts() map[edge.EventKind]uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.counts)
}

// of are the events of a service that match, the newest first.
func (e *Events) of(service string, limit int, match func(edge.Event) bool) []edge.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := []edge.Event{}
	for i := len(e.list) - 1; i >= 0 && len(found) < limit; i-- {
		if e.list[i].Service == service && match(e.list[i]) {
			found = append(found, e.list[i])
		}
	}
	return found
}

// record is an event for readers, for the log and for the file. What the file does
// not take is said once, until it takes something again.
func (m *Manager) record(event edge.Event) {
	event.At = time.Now()
	event = m.events.add(event)
	level := slog.LevelInfo
	if event.Kind == edge.EventFailed {
		level = slog.LevelWarn
	}
	m.log.Log(m.ctx, level, event.Message, "kind", event.Kind, "service", event.Service, "instance", event.Instance, "node", event.Node)
	m.store.AddEvent(event, m.kept)
}

// kept takes note of whether the file took something.
func (m *Manager) kept(err error) {
	broken := err != nil
	if m.storeBroken.Swap(broken) == broken {
		return
	}
	if broken {
		m.log.Warn("measurements and events are not kept: is the disk full? Services are not affected", "error", err)
	} else {
		m.log.Info("measurements and events are kept again")
	}
}

// failed says what did not work; the same of the same service again only after a while.
func (m *Manager) failed(service, instance, node string, err error) {
	m.failedAt(err.Error(), service, instance, node, err)
}

// failedAt says what did not work, where its words have figures that change all the time: what
// is the same of the same service is said in other words.
func (m *Manager) failedAt(what, service, instance, node string, err error) {
	if m.toReport(service + "\x00" + instance + "\x00" + node + "\x00" + what) {
		m.record(edge.Event{Kind: edge.EventFailed, Service: service, Instance: instance, Node: node, Message: err.Error()})
	}
}

// reportAgain is after how long what lasts is reported again.
const reportAgain = time.Minute

// toReport says whether something is to be reported now, and was not lately.
func (m *Manager) toReport(what string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, at := range m.reportedAt {
		if time.Since(at) >= reportAgain {
			delete(m.reportedAt, k)
		}
	}
	if !m.reportedAt[what].IsZero() {
		return false
	}
	m.reportedAt[what] = time.Now()
	return true
}
