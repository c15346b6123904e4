// Package agent is the daemon: it observes containers, plans who gets what and
// applies that to the uplink.
//
// Everything happens in one goroutine (Run), which owns all state. What it
// learns reaches it as events: from container engines (internal/discovery),
// from the kernel (devices that come and go), from users (requests through the
// socket), and from a clock. Each leads to the same two steps:
//
//	reconcile  who runs, with what policy; numbers, taps, classes (seldom)
//	control    the schedulers look who is sending, and adjust what everybody may
//	           send now (often; what they do is theirs: internal/sched)
//
// Both go over all uplinks. A container is known once (container.go), with one
// share for every uplink (share.go), whose claims are decided on there (reconcile.go).
//
// What the agent puts into the kernel works without it. Its own memory is the
// kernel's state plus one small file (internal/state).
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/flows"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/state"
	"github.com/weir-project/weir/internal/stats"
	"github.com/weir-project/weir/internal/uplink"
)

// Config is what an agent needs to know.
type Config struct {
	// Uplinks are the devices that are shared out, at least one.
	Uplinks []UplinkConfig
	// ReserveBasisPoints is the part of an uplink's rate that minimums may not
	// claim, in hundredths of a percent.
	ReserveBasisPoints uint32
	// Host is the policy of the host class.
	Host v1.Policy
	// Rules are what the operator lays down for the containers' policies.
	Rules policy.Rules
	// Classifier judges the flows of containers whose class is auto.
	Classifier flows.Choice
	// Reload reads the settings again; nil if they cannot change.
	Reload func() (Settings, error)
	// StateDir holds the state file.
	StateDir string
	// Sources are where containers are learned of.
	Sources []discovery.Source
	Version string
	Logger  *slog.Logger
	// Ready, if not nil, is called once uplinks are shared out as before the start.
	Ready func()
}

// UplinkConfig is one uplink of a Config.
type UplinkConfig = uplink.Config

const (
	// checkInterval is how often the kernel's state is compared as a whole,
	// in case somebody else changed it.
	checkInterval = 5 * time.Second
	// checkedContainers is how many containers are looked at again then, in
	// turn: what happens to the devices inside them nobody tells.
	checkedContainers = 8
	// saveInterval is how often the state file is written at most, after
	// saveBurst times in a row, other than for what only it holds.
	saveInterval = 250 * time.Millisecond
	// minRepairPause is how long an uplink that did not do what was asked of it is
	// left alone after it was repaired. The pause doubles while that does not help.
	minRepairPause = 250 * time.Millisecond
	saveBurst      = 8
)

// Agent is the daemon of one host's uplinks.
type Agent struct {
	config Config
	log    *slog.Logger

	lock      *agentLock
	machine   machine
	store     *state.Store
	uplinks   []*link
	inspector *identity.Inspector
	taps      tapper
	bridges   *bridges
	// flows are those of containers whose class is auto; flowsRefused says why some
	// have no table; flowsLately are what readers were told of them. nil in tests.
	flows        flowKeeper
	flowsRefused error
	flowsLately  flowsLately
	origins      *origins
	registry     *registry
	host         *container
	sources      map[string]v1.Source

	requests chan func()
	turns    stats.Turns
	// board and events are what readers see, who never enter the loop.
	board   *stats.Board
	history stats.History
	events  *stats.Events
	// publishedAt is when a snapshot was published last.
	publishedAt time.Time
	// rescan asks for containers without an engine, or without devices, to
	// be looked at; rescanning says that it was asked for.
	rescan     chan struct{}
	rescanning bool
	// unknownVeths are the indexes of veths that came and were no container's.
	unknownVeths []int
	// checked is the number of the container that was checked last.
	checked uint16
	// verified is the number of the container whose taps were verified last,
	// verifiedAt when that was due.
	verified   uint16
	verifiedAt time.Time

	// tunnelsFrom is when tunnels through the uplinks are looked for again.
	tunnelsFrom time.Time

	// unsaved says that the state file is behind, saveFrom from when on it may
	// be written.
	unsaved  bool
	saveFrom time.Time
	removed  bool
	// repairedAt is when uplinks were looked at last that did not do what was
	// asked of them, repairPause for how long they are left alone then.
	repairedAt  time.Time
	repairPause time.Duration
}

// machine is the kernel of the uplinks; *uplink.Host is it.
type machine interface {
	uplink.Machine
	Close() error
}

// New prepares an agent: it checks that the uplinks can be had and reads the
// state that an earlier agent left. Nothing in the kernel is changed yet.
func New(config Config) (*Agent, error) {
	if err := requireCapabilities(); err != nil {
		return nil, err
	}
	lock, err := lockAgent(lockDir, config.StateDir)
	if err != nil {
		return nil, err
	}
	a, err := prepare(config, lock)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return a, nil
}

func prepare(config Config, lock *agentLock) (*Agent, error) {
	store, err := state.Open(config.StateDir)
	if err != nil {
		return nil, err
	}
	if len(store.Unknown) > 0 {
		config.Logger.Warn("the state file is of a later Weir; what this one does not know of it is lost",
			"names", strings.Join(store.Unknown, ", "))
	}
	taps, err := identity.NewTaps()
	if err != nil {
		return nil, fmt.Errorf("this kernel cannot run Weir (weir doctor tells more): %w", err)
	}
	watcher, err := identity.NewOrigins()
	if err != nil {
		return nil, err
	}
	flows, err := openFlows(config, watcher)
	if err != nil {
		watcher.Close()
		return nil, err
	}
	keeper, err := identity.NewBridges()
	if err != nil {
		flows.Close()
		watcher.Close()
		return nil, err
	}
	machine, err := uplink.OpenHost(watcher)
	if err != nil {
		keeper.Close()
		flows.Close()
		watcher.Close()
		return nil, err
	}
	a := &Agent{
		config:    config,
		machine:   machine,
		log:       config.Logger,
		lock:      lock,
		store:     store,
		inspector: identity.NewInspector(),
		taps:      taps,
		bridges:   newBridges(keeper),
		flows:     flows,
		origins:   newOrigins(watcher),
		registry:  newRegistry(),
		host:      newHost(config.Host),
		sources:   map[string]v1.Source{},
		requests:  make(chan func()),
		board:     stats.NewBoard(),
		events:    stats.NewEvents(time.Now()),
		rescan:    make(chan struct{}, 1),
	}
	for _, s := range config.Sources {
		if _, optional := s.(discovery.Optional); !optional {
			a.sources[s.Name()] = v1.Source{Name: s.Name(), Reason: "not asked yet"}
		}
	}
	if err := a.openUplinks(); err != nil {
		a.closeUplinks()
		return nil, err
	}
	a.addShares(a.host)
	return a, nil
}

// Run works until ctx ends or Down was asked for. What it put into the kernel
// stays, except after Down.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer a.Close()

	links, err := kernel.WatchLinks(ctx)
	if err != nil {
		return err
	}
	a.recall()
	if err := a.install(); err != nil {
		return err
	}

	a.lookAround()
	if a.config.Ready != nil {
		a.config.Ready()
	}

	events := make(chan discovery.Event)
	failed := make(chan error, 1)
	go func() { failed <- discovery.Run(ctx, a.config.Sources, events) }()
	go a.record(ctx)

	// What the kernel's types and the programs took while they were loaded is
	// not needed any more, and small devices have better use for it.
	debug.FreeOSMemory()

	interval := restInterval
	control := time.NewTicker(interval)
	defer control.Stop()
	check := time.NewTicker(checkInterval)
	defer check.Stop()

	for !a.removed {
		select {
		case <-ctx.Done():
			return a.save()
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
				for _, u := range a.uplinks {
					a.advance(u)
				}
				a.reconcile()
				continue
			}
			a.linkChanged(event)
		case <-a.rescan:
			a.rescanning = false
			if inspected := a.inspectMissing() + a.matchVeths(); inspected > 0 {
				a.reconcile()
			}
		case s := <-a.origins.found:
			a.takeHolders(s)
		case request := <-a.requests:
			request()
		case <-check.C:
			a.check()
		case now := <-control.C:
			a.turns.Begin(time.Now()) // the tick may have waited
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

// Close lets go of everything without changing it.
func (a *Agent) Close() {
	a.closeUplinks()
	a.events.Close()
	a.lock.Close()
}

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

// install puts trees and classifiers on the uplinks, or adopts those that are
// there.
func (a *Agent) install() error {
	if err := a.dropUplinks(); err != nil {
		return err
	}
	for _, u := range a.uplinks {
		a.advance(u)
		if u.device.State() == uplink.Claimed && u.reason != nil {
			return u.reason
		}
	}
	a.dropLeftovers()
	a.reconcile()
	return nil
}
