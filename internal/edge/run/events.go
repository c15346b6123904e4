package run

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/store"
)

// keptEvents is the number of events in memory, and in the file.
const keptEvents = 1000

// Events are the latest events, for one writer and any number of readers. The zero value is empty.
type Events struct{ now atomic.Pointer[history] }

// history is an immutable list of events.
type history struct {
	list []edge.Event
	next uint64
	more chan struct{} // closed when there is another event
	// counts are the events since this weir-edge started, by kind.
	counts map[edge.EventKind]uint64
}

// newEvents continues after the events that were kept.
func newEvents(kept []edge.Event, now time.Time) *Events {
	h := &history{list: kept, next: uint64(now.UnixMilli()), more: make(chan struct{}), counts: map[edge.EventKind]uint64{}}
	if len(kept) > 0 {
		h.next = max(h.next, kept[len(kept)-1].Seq+1)
	}
	e := &Events{}
	e.now.Store(h)
	return e
}

func (e *Events) load() *history {
	if h := e.now.Load(); h != nil {
		return h
	}
	return &history{}
}

// add numbers an event and keeps it.
func (e *Events) add(event edge.Event) edge.Event {
	h := e.load()
	event.Seq = h.next
	// Readers only see the part of the array before the new event.
	list := append(h.list, event) //nolint:gocritic // there is one writer
	if len(list) > keptEvents {
		list = list[len(list)-keptEvents:]
	}
	counts := maps.Clone(h.counts)
	counts[event.Kind]++
	e.now.Store(&history{list: list, next: h.next + 1, more: make(chan struct{}), counts: counts})
	close(h.more)
	return event
}

// Since returns the events after the one with number seq, and a channel that is closed
// when there is another one.
func (e *Events) Since(seq uint64) ([]edge.Event, <-chan struct{}) {
	h := e.load()
	for i, event := range h.list {
		if event.Seq > seq {
			return slices.Clone(h.list[i:]), h.more
		}
	}
	return nil, h.more
}

// Counts returns the number of events since this weir-edge started, by kind.
func (e *Events) Counts() map[edge.EventKind]uint64 { return maps.Clone(e.load().counts) }

// latest returns the events of a service that match, the newest first.
func (e *Events) latest(service string, limit int, match func(edge.Event) bool) []edge.Event {
	list, found := e.load().list, []edge.Event{}
	for i := len(list) - 1; i >= 0 && len(found) < limit; i-- {
		if list[i].Service == service && match(list[i]) {
			found = append(found, list[i])
		}
	}
	return found
}

// journal records events for readers, the log and the file.
type journal struct {
	events *Events
	log    *slog.Logger
	store  *store.Store
	broken *atomic.Bool // the file takes nothing
	dryRun bool
	// reportedAt is the time of the last report of each lasting problem.
	reportedAt map[string]time.Time
}

func newJournal(opts Options, kept []edge.Event) journal {
	return journal{
		events: newEvents(kept, time.Now()), log: opts.Log, store: opts.Store, dryRun: opts.DryRun, broken: new(atomic.Bool), reportedAt: map[string]time.Time{},
	}
}

// record adds an event.
func (j *journal) record(event edge.Event) {
	event.At = time.Now()
	event = j.events.add(event)
	level := slog.LevelInfo
	if event.Kind == edge.EventFailed {
		level = slog.LevelWarn
	}
	j.log.Log(context.Background(), level, event.Message, "kind", event.Kind, "service", event.Service, "instance", event.Instance, "node", event.Node)
	j.store.AddEvent(event, j.noteKept)
}

// noteKept records whether writing the file succeeded, and reports a change. It is safe for
// concurrent use.
func (j *journal) noteKept(err error) {
	broken := err != nil
	if j.broken.Swap(broken) == broken {
		return
	}
	if broken {
		j.log.Warn("measurements and events are not kept: is the disk full? Services are not affected", "error", err)
	} else {
		j.log.Info("measurements and events are kept again")
	}
}

// problem is an error and the object that it concerns.
type problem struct {
	service, instance, node string
	err                     error
	// same replaces the error's text as the key of a lasting problem, if the text contains changing
	// numbers.
	same string
}

// fail reports a problem; a lasting one again after reportAgain. Without an error it does nothing.
func (j *journal) fail(p problem) {
	if p.err == nil {
		return
	}
	what := p.same
	if what == "" {
		what = p.err.Error()
	}
	if j.isNews(p.service + "\x00" + p.instance + "\x00" + p.node + "\x00" + what) {
		j.record(edge.Event{Kind: edge.EventFailed, Service: p.service, Instance: p.instance, Node: p.node, Message: p.err.Error()})
	}
}

// reportAgain is the interval at which a lasting problem is reported.
const reportAgain = time.Minute

// isNews reports whether what was not reported within reportAgain, and marks it as reported.
func (j *journal) isNews(what string) bool {
	maps.DeleteFunc(j.reportedAt, func(_ string, at time.Time) bool { return time.Since(at) >= reportAgain })
	if !j.reportedAt[what].IsZero() {
		return false
	}
	j.reportedAt[what] = time.Now()
	return true
}
