package run

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/store"
	"github.com/weir-project/weir/internal/front/events"
)

// Events are the latest events, for any number of readers.
type Events struct {
	*events.Ring[edge.Event]
	mu sync.Mutex
	// counts are the events since this weir-edge started, by kind.
	counts map[edge.EventKind]uint64
}

// NewEvents continues after the events that were kept.
func NewEvents(kept []edge.Event, now time.Time) *Events {
	return &Events{Ring: events.NewRing(func(e *edge.Event) *uint64 { return &e.Seq }, kept, now), counts: map[edge.EventKind]uint64{}}
}

// add numbers an event and keeps it.
func (e *Events) add(event edge.Event) edge.Event {
	e.mu.Lock()
	e.counts[event.Kind]++
	e.mu.Unlock()
	return e.Add(event)[0]
}

// Counts returns the number of events since this weir-edge started, by kind.
func (e *Events) Counts() map[edge.EventKind]uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.counts)
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
		events: NewEvents(kept, time.Now()), log: opts.Log, store: opts.Store, dryRun: opts.DryRun, broken: new(atomic.Bool), reportedAt: map[string]time.Time{},
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
