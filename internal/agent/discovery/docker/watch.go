package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/cgroup"
)

// watch is the state of one connection to the engine.
type watch struct {
	source     *Source
	api        *api
	cgroups    cgroup.Mount
	events     chan<- discovery.Event
	background *sync.WaitGroup
	slots      chan struct{} // held during an inspection

	mu sync.Mutex
	// began is set once the snapshot is sent. Until then changes are only collected.
	began bool
	// pending holds the containers that changed since the snapshot started, or in the last moments.
	pending map[string]*change
	// known holds the containers that the agent believes to run.
	known          map[string]*discovery.Container
	networks       map[string]networkInfo       // by ID
	images         map[string]map[string]string // labels, by image ID
	cgroupPatterns cgroupPatterns
}

// change is the pending work for one container. While it is in watch.pending (and began is set) one
// goroutine does the work, which keeps the reports of a container in order.
type change struct {
	todo task
	// quiet changes are reported only if the inspection finds a difference.
	quiet bool
	// looking is set during the inspection.
	looking bool
	// wake ends the debouncing; its buffer has room for one.
	wake chan struct{}
}

type task int

const (
	nothing    task = iota
	anticipate      // report the container when it is about to start
	look            // inspect the container and report the result
	forget          // report the end of the container
)

// kind is the meaning of an event for a container.
type kind int

const (
	unimportant kind = iota
	started
	stopped
	connected // connected to a network
	announced // connected to a network, not running yet
	altered   // its networks or its name changed
	updated   // something changed that may matter
)

// kindOf returns the container that an event is about, and the kind of the event.
func kindOf(m message) (id string, k kind) {
	switch m.Type {
	case "container":
		switch m.Action {
		case "start":
			k = started
		case "die", "died", "destroy", "remove":
			k = stopped
		case "rename":
			k = altered
		case "update":
			k = updated
		}
		return m.Actor.ID, k
	case "network":
		switch m.Action {
		case "connect":
			k = connected
		case "disconnect":
			k = altered
		}
		if id = m.Actor.Attributes.Container; id == "" {
			id = m.Actor.ID // Podman: the container, not the network
		}
		return id, k
	}
	return "", unimportant
}

// handle records an event. It must not block: Docker drops events for slow readers. It fails if the
// engine names more containers than an engine may have; the next snapshot has those that run.
func (w *watch) handle(ctx context.Context, m message) error {
	if m.Type == "network" && (m.Action == "destroy" || m.Action == "remove") {
		w.mu.Lock()
		delete(w.networks, m.Actor.ID)
		w.mu.Unlock()
		return nil
	}
	id, k := kindOf(m)
	if id == "" || k == unimportant {
		return nil
	}
	if len(id) > maxIDBytes {
		return fmt.Errorf("an event's container has an ID of %d bytes, of up to %d", len(id), maxIDBytes)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(ctx, id, k)
	if len(w.pending) > maxPending {
		return fmt.Errorf("events name more than %d containers at once", maxPending)
	}
	return nil
}

// note records an event of one container. The caller holds w.mu.
func (w *watch) note(ctx context.Context, id string, k kind) {
	c := w.pending[id]
	// Docker connects a container's networks before its start and disconnects them after its end;
	// neither needs an inspection.
	inSight := !w.began || w.known[id] != nil || c != nil && (c.looking || c.todo == look)
	switch {
	case k == connected && !w.began && (c == nil || c.todo == anticipate):
		k = announced // unless the snapshot has it: begin checks that
	case k == started || inSight:
	case k == connected && c == nil:
		k = announced
	case k != connected && c != nil:
		k = stopped // the event is from before the start
	default:
		return
	}
	if c == nil {
		c = &change{wake: make(chan struct{}, 1)}
		w.pending[id] = c
		if w.began {
			w.background.Go(func() { w.settle(ctx, id, c) })
		}
	}
	switch k {
	case started:
		c.todo, c.quiet = look, false
	case stopped:
		c.todo = forget
	case announced:
		c.todo = anticipate
	case connected, altered:
		if c.todo != forget {
			c.todo, c.quiet = look, false
		}
	case updated:
		if c.todo == nothing {
			c.todo, c.quiet = look, true
		}
	}
	if k == started || k == stopped {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// snapshot reports everything that runs.
func (w *watch) snapshot(ctx context.Context) error {
	networks, err := w.api.networks(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	maps.Copy(w.networks, networks)
	w.mu.Unlock()
	ids, err := w.api.running(ctx)
	if err != nil {
		return err
	}

	inspectCtx, cancel := context.WithTimeout(ctx, w.source.snapshotTimeout)
	defer cancel()
	found := make([]*discovery.Container, len(ids))
	errs := make([]error, len(ids))
	next := make(chan int)
	var inspecting sync.WaitGroup
	for range min(inspectors, len(ids)) {
		inspecting.Go(func() {
			for i := range next {
				found[i], errs[i] = w.describe(inspectCtx, ids[i])
			}
		})
	}
	for i := range ids {
		next <- i
	}
	close(next)
	inspecting.Wait()

	snapshot := &discovery.Snapshot{Containers: make([]discovery.Container, 0, len(ids))}
	for i, err := range errs {
		switch {
		case err == nil:
			snapshot.Containers = append(snapshot.Containers, *found[i])
		case errors.Is(err, errGone):
			w.source.log.Debug("container ended before it was inspected", "id", ids[i])
		default:
			// A container that cannot be read must not hide the others.
			snapshot.Uninspected = append(snapshot.Uninspected, ids[i])
		}
	}
	if ctx.Err() != nil || !discovery.Send(ctx, w.source, w.events, discovery.Event{Snapshot: snapshot}) {
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// The snapshot is its receiver's now: nothing of it is read here.
	for i, id := range ids {
		switch {
		case errs[i] == nil:
			w.known[id] = found[i]
		case !errors.Is(errs[i], errGone):
			w.known[id] = &discovery.Container{ID: id} // the agent may know it, so its end is reported
			if w.pending[id] == nil {
				w.note(ctx, id, started)
			}
		}
	}
	return nil
}

// begin starts the work on changes: first those collected during the snapshot, then new ones as
// they come.
func (w *watch) begin(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = true
	for id, c := range w.pending {
		if c.todo == anticipate && w.known[id] != nil {
			c.todo = look // it runs, and joined one more network
		}
		w.background.Go(func() { w.settle(ctx, id, c) })
	}
}

// settle does the pending work of a container until no more changes come for a moment.
func (w *watch) settle(ctx context.Context, id string, c *change) {
	retry := minRetry
	for {
		w.mu.Lock()
		todo, quiet := c.todo, c.quiet
		c.todo = nothing
		select {
		case <-c.wake: // it signalled the work done now
		default:
		}
		if todo == nothing {
			delete(w.pending, id)
			w.mu.Unlock()
			return
		}
		c.looking = todo == look
		var ended *discovery.Container
		if todo == forget {
			ended = w.drop(id)
		}
		w.mu.Unlock()

		pause := w.source.debounce
		switch todo {
		case anticipate:
			if w.reportBeforeStart(ctx, id, c.wake) {
				continue
			}
		case forget:
			w.reportEnd(ctx, id, ended)
		case look:
			if err := w.update(ctx, id, quiet); err == nil {
				retry = minRetry
			} else if ctx.Err() == nil {
				w.source.log.Warn("cannot read a container; trying again", "id", id, "error", err, "retry_in", retry)
				pause = retry
				retry = min(2*retry, maxRetry)
				w.mu.Lock()
				if c.todo == nothing {
					c.todo, c.quiet = look, quiet
				}
				w.mu.Unlock()
			}
		}
		w.mu.Lock()
		c.looking = false
		w.mu.Unlock()

		select {
		case <-time.After(pause):
		case <-c.wake:
		case <-ctx.Done():
			return
		}
	}
}

// update inspects a container and reports the result. A container that is gone is no error.
func (w *watch) update(ctx context.Context, id string, quiet bool) error {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	c, err := w.describe(ctx, id)
	<-w.slots
	if errors.Is(err, errGone) {
		w.source.log.Debug("container ended before it was inspected", "id", id)
		w.mu.Lock()
		ended := w.drop(id)
		w.mu.Unlock()
		w.reportEnd(ctx, id, ended)
		return nil
	} else if err != nil {
		return err
	}
	w.mu.Lock()
	old := w.known[id]
	w.mu.Unlock()
	if quiet && old != nil && reflect.DeepEqual(old, c) {
		return nil
	}
	sent := *c // a copy, as the receiver may change it
	if discovery.Send(ctx, w.source, w.events, discovery.Event{Updated: &sent}) {
		w.mu.Lock()
		w.known[id] = c
		w.mu.Unlock()
	}
	return nil
}

// drop makes a container unknown and returns what was known of it. Its end is reported after that,
// as meanwhile no event of it needs an inspection. The caller holds w.mu.
func (w *watch) drop(id string) *discovery.Container {
	known := w.known[id]
	delete(w.known, id)
	return known
}

// reportEnd reports the end of a container that was known.
func (w *watch) reportEnd(ctx context.Context, id string, known *discovery.Container) {
	if known != nil {
		discovery.Send(ctx, w.source, w.events, discovery.Event{RemovedID: id})
	}
}
