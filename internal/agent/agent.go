// Package agent is the daemon: it observes containers, plans who gets what and
// applies that to the uplink.
//
// Everything happens in one goroutine (Run), which owns all state. What it
// learns reaches it as events: from container engines (internal/discovery),
// from the kernel (devices that come and go), from users (requests through the
// socket), and from a clock. Each leads to the same two steps:
//
//	reconcile  who runs, with what policy; classes, numbers, veths (seldom)
//	control    who is sending, and so what everybody may send now (often)
//
// What the agent puts into the kernel works without it. Its own memory is the
// kernel's state plus one small file (state.go).
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/classify"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
)

// Config is what an agent needs to know.
type Config struct {
	// Uplink is the name of the device whose egress is shared out.
	Uplink string
	// RateBPS is what it may send, in bits per second; 0 means the speed that
	// the device reports.
	RateBPS uint64
	// Replace allows a qdisc that somebody configured to be put aside.
	Replace bool
	// IgnoreLinkSpeed allows a rate above the speed that the device reports.
	IgnoreLinkSpeed bool
	// ReserveBasisPoints is the part of the rate that minimums may not claim,
	// in hundredths of a percent.
	ReserveBasisPoints uint32
	// Host is the policy of the host class.
	Host v1.Policy
	// StateDir holds the state file.
	StateDir string
	// Sources are where containers are learned of.
	Sources []discovery.Source
	Version string
	Logger  *slog.Logger
}

const (
	// The control loop's period: while who wants how much is changing, while
	// that stands, and while nothing is sent at all. To wake up costs more
	// than what is done then.
	changingInterval = 10 * time.Millisecond
	settledInterval  = 25 * time.Millisecond
	idleInterval     = 40 * time.Millisecond
	// settledAfter is how long nothing has to change for that.
	settledAfter = 200 * time.Millisecond
	// idleAfter is how long nothing has to be sent for that, and for the
	// scheduler's counters to be read only for display.
	idleAfter = time.Second
	// statsInterval is the period of the counters that people look at.
	statsInterval = 200 * time.Millisecond
	// checkInterval is how often the kernel's state is compared as a whole,
	// in case somebody else changed it.
	checkInterval = 5 * time.Second
)

// Agent is the daemon of one uplink.
type Agent struct {
	config Config
	log    *slog.Logger

	store  *store
	uplink *uplink
	taps   *classify.Taps
	// inspector remembers where it found things.
	inspector *classify.Inspector
	registry  *registry
	host      *container
	sources   map[string]v1.Source

	requests chan func()
	// rescan asks for containers without an engine, or without devices, to
	// be looked at; rescanning says that it was asked for.
	rescan     chan struct{}
	rescanning bool

	// controlled are the containers that have a class, in the order of their
	// numbers; participants are they and the host class.
	controlled   []*container
	participants []*container

	allocator alloc.Allocator
	// Scratch space of the control loop.
	competing []alloc.Container
	classes   []sched.Class
	offered   []uint64
	stats     []sched.Stats

	lastTraffic time.Time
	lastChange  time.Time
	lookedAway  bool // the last turn of the control loop took no look
	lastStats   time.Time
	removed     bool
}

// New prepares an agent: it checks that the uplink can be had and reads the
// state that an earlier agent left. Nothing in the kernel is changed yet.
func New(config Config) (*Agent, error) {
	if err := requireCapabilities(); err != nil {
		return nil, err
	}
	store, err := openStore(config.StateDir, config.Uplink)
	if err != nil {
		return nil, err
	}
	taps, err := classify.NewTaps()
	if err != nil {
		return nil, fmt.Errorf("this kernel cannot run Weir (weir doctor tells more): %w", err)
	}
	a := &Agent{
		config:    config,
		log:       config.Logger,
		store:     store,
		taps:      taps,
		inspector: classify.NewInspector(),
		sources:   map[string]v1.Source{},
		requests:  make(chan func()),
		rescan:    make(chan struct{}, 1),
	}
	a.registry = newRegistry()
	a.host = newHost(config.Host)
	for _, s := range config.Sources {
		a.sources[s.Name()] = v1.Source{Name: s.Name(), Reason: "not asked yet"}
	}
	a.uplink, err = openUplink(config, store)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Run works until ctx ends or Down was asked for. What it put into the kernel
// stays, except after Down.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer a.uplink.close()

	links, err := kernel.WatchLinks(ctx)
	if err != nil {
		return err
	}
	a.recall()
	if err := a.install(); err != nil {
		return err
	}

	events := make(chan discovery.Event)
	failed := make(chan error, 1)
	go func() { failed <- discovery.Run(ctx, a.config.Sources, events) }()

	interval := settledInterval
	control := time.NewTicker(interval)
	defer control.Stop()
	check := time.NewTicker(checkInterval)
	defer check.Stop()

	a.log.Info("sharing out the uplink",
		"uplink", a.uplink.name, "rate_bps", a.uplink.rateBPS, "scheduler", a.uplink.backend.Name())
	for !a.removed {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if err != nil {
				return fmt.Errorf("watch containers: %w", err)
			}
			failed = nil
		case event := <-events:
			a.learn(event)
			drain(events, a.learn)
			a.reconcile()
		case event, open := <-links:
			if !open {
				// The kernel dropped events: look at everything.
				if links, err = kernel.WatchLinks(ctx); err != nil {
					return err
				}
				a.inspectAll()
				a.uplinkMayHaveChanged()
				a.reconcile()
				continue
			}
			a.linkChanged(event)
		case <-a.rescan:
			a.rescanning = false
			a.inspectMissing()
			a.inspectStatic()
			a.reconcile()
		case request := <-a.requests:
			request()
		case <-check.C:
			a.check()
		case now := <-control.C:
			if next := a.control(now); next != interval {
				interval = next
				control.Reset(interval)
			}
		}
	}
	return nil
}

// drain handles what else has arrived, so that a thousand containers at once
// lead to one reconciliation.
func drain(events <-chan discovery.Event, handle func(discovery.Event)) {
	for {
		select {
		case event := <-events:
			handle(event)
		default:
			return
		}
	}
}

// Close lets go of the uplink of an agent that never ran.
func (a *Agent) Close() { a.uplink.close() }

// do runs fn in the agent's goroutine and waits for it.
func (a *Agent) do(ctx context.Context, fn func()) error {
	done := make(chan struct{})
	select {
	case a.requests <- func() { fn(); close(done) }:
	case <-ctx.Done():
		return fmt.Errorf("agent is busy or stopping: %w", ctx.Err())
	}
	<-done
	return nil
}

// adoptionLooks is how often a new agent looks at who is sending before it
// changes what an earlier one allocated.
const adoptionLooks = 4

// install puts the tree and the classifier on the uplink, or adopts those
// that are there.
func (a *Agent) install() error {
	adopted, err := a.uplink.adopt()
	if err != nil {
		return err
	}
	if adopted {
		a.plan()
		for range adoptionLooks {
			// Classes that are missing are made below.
			if _, err := a.measure(time.Now()); err != nil {
				break
			}
			time.Sleep(changingInterval)
		}
	} else {
		a.plan()
		if err := a.uplink.install(a.tree()); err != nil {
			return err
		}
	}
	a.reconcile()
	return nil
}

// check compares everything with the kernel and mends what differs.
func (a *Agent) check() {
	if a.uplink.lost() {
		a.uplinkMayHaveChanged()
		return
	}
	if err := a.uplink.verify(); err != nil {
		a.log.Warn("check the uplink", "error", err)
	}
	a.inspectMissing()
	a.reconcile()
}

// linkChanged handles a device that came, changed or went.
func (a *Agent) linkChanged(event kernel.LinkEvent) {
	switch {
	case event.Link.Index == a.uplink.ifindex,
		event.Link.Name == a.uplink.name:
		a.uplinkMayHaveChanged()
	case event.Link.Kind == "veth":
		if event.Deleted {
			a.registry.lostVeth(event.Link.Index)
		}
		// Perhaps the veth of a container that we could not find one of, or
		// another one of a container that no engine tells us about.
		if a.registry.anyUnattached() || !event.Deleted && !a.registry.hasVeth(event.Link.Index) {
			a.rescanSoon()
		}
	}
}

// rescanDelay lets the events of one container's start come together.
const rescanDelay = 20 * time.Millisecond

func (a *Agent) rescanSoon() {
	if a.rescanning {
		return
	}
	a.rescanning = true
	time.AfterFunc(rescanDelay, func() { a.rescan <- struct{}{} })
}

// uplinkMayHaveChanged follows an uplink that was renamed, deleted or made
// again.
func (a *Agent) uplinkMayHaveChanged() {
	wasLost := a.uplink.lost()
	err := a.uplink.follow()
	switch {
	case errors.Is(err, kernel.ErrNoLink):
		if !wasLost {
			a.log.Error("uplink is gone; waiting for it to come back", "uplink", a.uplink.name)
		}
	case err != nil:
		a.log.Error("uplink cannot be used", "uplink", a.uplink.name, "error", err)
	case wasLost:
		a.log.Info("uplink is back", "uplink", a.uplink.name)
		if err := a.install(); err != nil {
			a.uplink.lose(err)
			a.log.Error("uplink cannot be shared out", "uplink", a.uplink.name, "error", err)
		}
		a.reconcile()
	}
}
