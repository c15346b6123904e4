// Package loop is the daemon: it observes containers, plans their shares and applies the plan to
// the uplinks.
//
// Everything happens in one goroutine (Run), which owns all state. Its inputs are events: from
// container engines (internal/agent/discovery), from the kernel (devices that appear and go), from
// users (requests through the socket), and from a clock. Each event leads to the same two steps:
//
//	reconcile  the containers with their policies: claims, taps, classes (seldom)
//	control    the schedulers check which containers send, and adjust the
//	           allocations (often; internal/share/sched describes how)
//
// Both go over all uplinks. A container is known once (containers.go) and has one share of every
// uplink (share.go), where its claim is decided (reconcile.go). internal/agent/attach identifies
// the packets of each container.
//
// The configuration in the kernel works without the agent. The agent's own memory is the kernel's
// state plus one small file (internal/agent/state).
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/flows"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/policy"
)

// Config is the configuration of an agent.
type Config struct {
	// Uplinks are the shared devices, at least one.
	Uplinks []UplinkConfig
	// ReserveBasisPoints is the part of an uplink's rate that minimums may not claim, in hundredths
	// of a percent.
	ReserveBasisPoints uint32
	// Host is the policy of the host class.
	Host v1.Policy
	// HostIn is its policy for received traffic.
	HostIn v1.Policy
	// Rules are the operator's rules for the policies of containers.
	Rules policy.Rules
	// IgnoreDefaultRoute: a default route through no uplink is the operator's wish.
	IgnoreDefaultRoute bool
	// Classifier selects the classifier for flows of containers whose class is auto.
	Classifier flows.Choice
	// Reload reads the settings again; nil if they cannot change.
	Reload func() (Settings, error)
	// StateDir holds the state file.
	StateDir string
	// Sources discover containers.
	Sources []discovery.Source
	Version string
	Logger  *slog.Logger
	// Ready, if not nil, is called once the uplinks are shared as before the start.
	Ready func()
}

// UplinkConfig is one uplink of a Config.
type UplinkConfig = uplink.Config

const (
	// checkInterval is the time between two full comparisons with the kernel's state, which other
	// programs may change.
	checkInterval = 5 * time.Second
	// checkedContainers is the number of containers that each full comparison inspects, in turn:
	// changes to devices inside a container cause no event.
	checkedContainers = 8
	// saveInterval is the least time between two writes of the state file after saveBurst writes in
	// a row. What users change, and a minimum that a pod's start waits for, is written at once.
	saveInterval = 250 * time.Millisecond
	// minRepairPause is the back-off after the repair of an uplink that did not do what it was
	// told. The back-off doubles while repairs do not help.
	minRepairPause = 250 * time.Millisecond
	saveBurst      = 8
)

// Agent is the daemon that shares the uplinks of one host.
type Agent struct {
	config Config
	log    *slog.Logger

	lock       *agentLock
	store      *state.Store
	uplinks    *uplinks
	containers *containers
	attach     *attach.Attacher
	// flowsLately caches flows for readers.
	flowsLately flowsLately

	requests chan func()
	// woken receives nil after the first packet at an uplink whose scheduler rests. The channel is nil once wake-ups
	// cannot be read any more.
	woken <-chan error
	turns stats.Turns
	// board, history and events hold the data for readers, which never enter the loop.
	board   *stats.Board
	history stats.History
	events  *stats.Events
	// publishedAt is the time of the last snapshot.
	publishedAt time.Time
	// unsaved: the state file is out of date. saveFrom is the earliest time of the next write.
	unsaved  bool
	saveFrom time.Time
	removed  bool
	// repairedAt is the time of the last repair of failing uplinks; repairPause is the back-off
	// before the next one.
	repairedAt  time.Time
	repairPause time.Duration
}

// machine is the kernel interface of the uplinks. Implementation: *uplink.Host.
type machine interface {
	uplink.Machine
	Close() error
}

// New returns an agent that has claimed its uplinks and read the state of an earlier agent. It
// changes nothing in the kernel.
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
	indexes, err := indexesOf(config.Uplinks, store.Uplinks)
	if err != nil {
		return nil, err
	}
	opened, watcher, err := attach.OpenKernel(indexes...)
	if err != nil {
		return nil, err
	}
	if err := opened.Flows.Use(config.Classifier); err != nil {
		opened.Close()
		return nil, err
	}
	woken, err := watcher.Wakeups()
	if err != nil {
		opened.Close()
		return nil, err
	}
	machine, err := uplink.OpenHost(watcher)
	if err != nil {
		opened.Close()
		return nil, err
	}
	attacher := attach.New(opened, config.Logger)
	attacher.IgnoreDefaultRoute = config.IgnoreDefaultRoute
	uplinks := &uplinks{machine: machine, store: store, log: config.Logger}
	a := &Agent{
		config:     config,
		log:        config.Logger,
		lock:       lock,
		store:      store,
		uplinks:    uplinks,
		containers: newContainers(config, attacher, uplinks),
		attach:     attacher,
		requests:   make(chan func()),
		woken:      woken,
		board:      stats.NewBoard(),
		events:     stats.NewEvents(time.Now()),
	}
	if err := uplinks.open(config.Uplinks, config.ReserveBasisPoints); err != nil {
		a.closeKernel()
		return nil, err
	}
	a.containers.addShares(a.containers.host)
	return a, nil
}

// Run works until ctx ends or Down is called. The configuration in the kernel stays in force,
// except after Down.
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

	a.attach.CheckUplinks(a.uplinks.attachments(), time.Now())
	if a.config.Ready != nil {
		a.config.Ready()
	}

	go recordHistory(ctx, &a.history, a.board)

	// Return the memory that loading the kernel's types and the programs took; small machines need
	// it.
	debug.FreeOSMemory()

	return a.work(ctx, links)
}

// work handles all inputs until ctx ends, Down is called, or nothing reports containers or devices any more. Unless Down was
// called, it saves the agent's state then.
func (a *Agent) work(ctx context.Context, links <-chan kernel.LinkEvent) (err error) {
	defer func() {
		if !a.removed {
			err = errors.Join(err, a.save())
		}
	}()
	events := newEvents()
	failed := make(chan error, 1)
	go func() { failed <- discovery.Run(ctx, a.config.Sources, events) }()
	learn := func(e discovery.Event) { a.containers.learnNext(e, a.reconcile) }

	pace := newPace(time.Now(), wakeInterval)
	defer pace.Stop()
	check := time.NewTicker(checkInterval)
	defer check.Stop()

	for !a.removed {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if err != nil {
				drain(events, learn)
				a.reconcile()
				return fmt.Errorf("watch containers: %w", err)
			}
			failed = nil
		case event := <-events:
			learn(event)
			drain(events, learn)
			a.reconcile()
		case event, open := <-links:
			if open {
				a.linkChanged(event)
				break
			}
			// The kernel dropped events: watch again and check everything.
			if links, err = kernel.WatchLinks(ctx); err != nil {
				return err
			}
			a.containers.inspectAll()
			for _, u := range a.uplinks.list {
				a.advance(u)
			}
			a.reconcile()
		case <-a.containers.rescan:
			a.containers.rescanning = false
			if inspected := a.containers.inspectMissing() + a.containers.matchVeths(); inspected > 0 {
				a.reconcile()
			}
		case late := <-a.containers.lateEnds:
			a.containers.endLate(late)
			a.reconcile()
		case s := <-a.attach.Found():
			a.attach.AddHolders(s, a.containers.attached())
		case request := <-a.requests:
			request()
		case <-check.C:
			a.check()
		case err, open := <-a.woken:
			if err != nil || !open {
				a.woken, pace.longest = nil, repairInterval
				a.log.Error("packets no longer wake the control loop: it looks more often while nothing is sent, until the agent is restarted", "error", err)
			}
		case now := <-pace.C:
			a.turns.Begin(time.Now()) // not the time of the tick, which may have waited
			pace.turn(now, a.control(now))
			continue
		}
		// Whatever it was, the schedulers look at it soon.
		pace.hasten(time.Now())
	}
	return nil
}

// newEvents returns a channel with room for what sources report during a reconciliation. Without it a source would wait
// with its next event, and each event would cause a reconciliation of its own.
func newEvents() chan discovery.Event { return make(chan discovery.Event, 256) }

// drain handles all other waiting events, so that a thousand containers at once cause one
// reconciliation.
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

// Close closes all handles and changes nothing in the kernel.
func (a *Agent) Close() {
	a.closeKernel()
	a.events.Close()
	a.lock.Close()
}

func (a *Agent) closeKernel() {
	a.uplinks.close()
	a.attach.Close()
}

// do runs fn in the agent's goroutine and waits for it.
func (a *Agent) do(ctx context.Context, fn func()) error {
	done := make(chan struct{})
	select {
	case a.requests <- func() { fn(); close(done) }:
	case <-ctx.Done():
		return fmt.Errorf("agent is busy or stopping: try again, and if that fails, too, see its log (%w)", ctx.Err())
	}
	<-done
	return nil
}

// install puts schedulers and classifiers on the uplinks, or adopts existing ones.
func (a *Agent) install() error {
	if err := a.uplinks.drop(); err != nil {
		return err
	}
	for _, u := range a.uplinks.list {
		a.advance(u)
		if u.of == nil && u.device.State() == uplink.Claimed && u.device.Problem() != nil && !waits(u) {
			return u.device.Problem()
		}
	}
	a.containers.dropLeftovers()
	a.reconcile()
	return nil
}
