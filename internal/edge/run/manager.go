// Package run is the daemon of weir-edge: it observes nodes, services, instances and users,
// has the engine decide, carries out the decisions, and answers readers.
//
// # Problem
//
// weir-edge may die at any moment, and another one may manage the same nodes at the same time.
// So it owns nothing: what should run is in the container engine (runtime), what is promised is
// in a ledger there that changes by compare and swap, and users are with their proxies, which
// work without it. What it remembers beside that is measured (store), and costs time if it is
// lost. Each round observes everything and carries out the difference to what should be; a
// second round changes nothing.
//
// # Goroutines
//
// One goroutine, the loop of [Manager.Run], owns all state. Everything slow runs elsewhere and
// reports to the loop, as functions that the loop calls:
//
//   - turns: rounds and the changes of users, one at a time (takeTurns). A turn asks the engine,
//     the ledger and the proxies itself, and has the loop decide in between;
//   - background work: starts and stops of instances, and the orders to agents;
//   - requests of the API. Readers get the last published view, which never changes.
//
// Files: observe.go, input.go: what a round depends on; act.go: starts, restarts and stops; lives.go,
// state.go: instances; promises.go: the ledger; proxies.go, uplinks.go: where users are sent;
// minimums.go, tell.go: where minimums are in force; deploy.go: requests of users; view.go, events.go,
// counters.go: answers to readers; update.go: how updates end; sleep.go: services without users; manage.go: managed services; agents.go, local.go, unmeasured.go: what nodes report;
// presence.go: how much of the time nodes are there; images.go: how fast they get images.
package run

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/minimums"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/store"
)

const (
	// period is the time between two rounds when nothing happens.
	period = 500 * time.Millisecond
	// lull is for how long changes are gathered.
	lull = 20 * time.Millisecond
	// roundTimeout bounds the questions of one round.
	roundTimeout = 10 * time.Second
)

// Options say what to manage and how.
type Options struct {
	Runtime runtime.Runtime
	Nodes   Nodes
	Store   *store.Store
	Log     *slog.Logger
	Engine  *engine.Engine
	// Control is where proxies take commands, in the syntax of HAProxy's option.
	Control string
	// CheckProxy returns why this host cannot run proxies; nil: it is not checked. On a swarm's
	// other nodes a proxy that is too old shows when it gets its first instances.
	CheckProxy func() error
	// DryRun: decide, and change nothing.
	DryRun bool
	// Schedules: the runtime has a scheduler, which counts minimums in place of the engine, and gives each
	// service an address of its own, so that there are no proxies: agents count users, as connections. Its
	// nodes get images themselves.
	Schedules bool
	// Repository is the address of this weir-edge's repository of images; invalid: it has none.
	Repository netip.Addr
	// Trace records rounds; nil: they are not recorded.
	Trace Recorder
	// Links keeps minimums on links; nil: they are promised on uplinks only.
	Links *Links
}

// Recorder keeps the input of rounds and their decisions.
type Recorder interface {
	Record(engine.Input, engine.Result) error
}

// Nodes measures nodes.
type Nodes interface {
	// Measure returns what is known of all nodes now. It does not wait for those that do
	// not answer. Agents count the connections of the counted instances, which no proxy counts.
	Measure(ctx context.Context, nodes []runtime.Node, counted []runtime.Instance) []Measured
	// Reported returns what agents said last. It may be called at any time.
	Reported() []monitor.Node
	// Lower has a value when a node has begun to keep less of a minimum than before.
	Lower() <-chan struct{}
}

// Manager runs services. Its exported methods may be called concurrently.
type Manager struct {
	opts  Options
	ctx   context.Context // of Run
	began time.Time

	reports   chan func() // for the loop
	changes   chan change // for the turns
	kick      chan struct{}
	work      sync.WaitGroup // what reports to the loop
	stopped   chan struct{}  // closed when Run has returned
	view      atomic.Pointer[view]
	monitored atomic.Pointer[edge.Monitored]
	// sleepers are the proxies of services that sleep.
	sleepers atomic.Pointer[[]proxy.Control]
	journal  journal

	// The loop owns what follows, and the methods of the journal but Events.
	memory   engine.Memory
	down     string // why the engine does not answer
	lives    lives
	presence presence
	proxies  proxies
	images   images
	minimums minimums.Minimums
	told     told
}

// New makes a manager; Run makes it work.
func New(opts Options) (*Manager, error) {
	kept, err := opts.Store.Events()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		opts: opts, ctx: context.Background(), began: time.Now(),
		reports: make(chan func()), changes: make(chan change), kick: make(chan struct{}, 1), stopped: make(chan struct{}),
		journal: newJournal(opts, kept), lives: newLives(), presence: newPresence(opts.Store), proxies: newProxies(),
		images: newImages(opts), told: newTold(),
	}
	m.view.Store(newView(opts))
	m.sleepers.Store(new([]proxy.Control))
	m.monitored.Store(&edge.Monitored{Nodes: []v1.Node{}})
	return m, nil
}

// Run works until ctx ends. What runs goes on.
func (m *Manager) Run(ctx context.Context) error {
	m.ctx, m.proxies.talks.ctx = ctx, ctx
	defer close(m.stopped)
	m.work.Go(func() { m.takeTurns(ctx) })
	m.work.Go(func() {
		watchLower(ctx, m.opts.Nodes, func() {
			m.runInLoop(func() { m.view.Store(m.view.Load().after(m.opts.Nodes.Reported())) })
			m.requestRound()
		})
	})
	m.work.Go(func() { watchSleepers(ctx, &m.sleepers, m.requestRound) })
	m.handleReports()
	return nil
}

// handleReports is the loop: it calls what is reported, until no work is left that could report.
func (m *Manager) handleReports() {
	idle := make(chan struct{})
	go func() {
		m.work.Wait()
		close(idle)
	}()
	for {
		select {
		case report := <-m.reports:
			report()
		case <-idle:
			return
		}
	}
}

// runInLoop has the loop call f, and waits for that. The loop may not call it, and
// others only as part of m.work.
func (m *Manager) runInLoop(f func()) {
	done := make(chan struct{})
	m.reports <- func() { f(); close(done) }
	<-done
}

// runInBackground runs slow in a new goroutine; the loop then calls the function that slow returns.
// Only the loop may call it.
func (m *Manager) runInBackground(slow func() (report func())) {
	m.work.Go(func() { m.reports <- slow() })
}

// post has the loop call f, if it still runs. Any goroutine but the loop may call it.
func (m *Manager) post(f func()) {
	select {
	case m.reports <- f:
	case <-m.stopped:
	}
}

// change is one of a user; done is closed when a round has followed it. The context of apply ends
// with Run.
type change struct {
	apply func(context.Context)
	done  chan struct{}
}

// takeTurns makes rounds and the changes of users, one at a time, until ctx ends.
func (m *Manager) takeTurns(ctx context.Context) {
	watched := m.opts.Runtime.Changes(ctx)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		m.round(ctx)
		select {
		case <-ctx.Done():
			return
		case c := <-m.changes:
			c.apply(ctx)
			m.round(ctx) // so that the next reader sees it
			close(c.done)
			continue
		case <-ticker.C:
			continue
		case <-watched:
		case <-m.kick:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lull):
		}
	}
}

// Events returns the latest events.
func (m *Manager) Events() *Events { return m.journal.events }

// requestRound asks for another round now.
func (m *Manager) requestRound() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// round observes, has the loop decide, and carries out the decisions.
func (m *Manager) round(running context.Context) {
	ctx, cancel := context.WithTimeout(running, roundTimeout)
	defer cancel()
	o, err := m.opts.observe(ctx, m.proxies.talks)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("the container engine has not answered within %v: %w", roundTimeout, err)
		}
		if running.Err() == nil {
			m.runInLoop(func() { m.noteUnreachable(err) })
		}
		return
	}
	var decisions []engine.Decision
	m.runInLoop(func() { decisions = m.decide(o) })
	var steps steps
	if m.opts.DryRun {
		m.runInLoop(func() {
			m.journal.sayDecided(decisions)
			steps.claims = m.planClaims(o)
		})
	} else {
		decisions, full := m.opts.Links.reserveDecisions(ctx, o, decisions)
		admitted, refused, err := m.opts.Engine.Commit(ctx, m.opts.Runtime.Ledger(), o.input.Nodes, o.promises, decisions)
		m.runInLoop(func() {
			m.carryOut(o, admitted, append(refused, full...), err)
			steps = m.planSteps(o, decisions)
		})
		steps.apply(ctx, &m.opts, o, m.proxies.talks)
	}
	m.runInLoop(func() { m.finish(o, &steps, decisions) })
}

// steps are what a round changes beside starts and stops, and how that went.
type steps struct {
	proxies  []proxyStep
	claims   claimStep
	promises promiseStep
	updates  []updateStep
	binds    []bindStep
}

func (m *Manager) planSteps(o *observation, decisions []engine.Decision) steps {
	m.endLeft(o)
	claims := m.planClaims(o)
	return steps{updates: planUpdates(o, decisions), proxies: m.proxies.plan(o, func(id string) bool { return m.lives.stopping[id] != nil }),
		binds: m.lives.planBinds(o, decisions, &claims.division), claims: claims, promises: m.lives.planPromises(o)}
}

func (s *steps) apply(ctx context.Context, opts *Options, o *observation, talks *talks) {
	rt := opts.Runtime
	talks.tell(ctx, s.proxies)
	s.claims.apply(ctx, rt.Ledger(), o, opts.Links)
	s.promises.apply(ctx, rt.Ledger())
	for i := range s.updates {
		s.updates[i].err = rt.Update(ctx, s.updates[i].was, s.updates[i].service)
	}
	for i := range s.binds {
		s.binds[i].apply(ctx, s.claims.promised)
	}
}

// decide returns the decisions of the engine on what was observed.
func (m *Manager) decide(o *observation) []engine.Decision {
	if m.down != "" {
		m.opts.Log.Info("the container engine answers again")
		m.down = ""
	}
	for _, p := range o.problems {
		m.journal.fail(p)
	}
	m.presence.note(o.nodes, m.journal.noteKept)
	if m.opts.DryRun { // what planPromises would take back
		for _, id := range m.lives.orphaned(o) {
			delete(o.promises, id)
		}
	}
	o.input = m.input(o)
	result := m.opts.Engine.Round(o.input)
	m.memory = result.Memory
	if m.opts.Trace != nil {
		// After a gap a trace would be taken for a whole one.
		if err := m.opts.Trace.Record(o.input, result); err != nil {
			m.opts.Trace = nil
			m.journal.fail(problem{err: fmt.Errorf("%w: rounds are not recorded any more", err)})
		}
	}
	return result.Decisions
}

// finish ends a round: agents are told, drained instances end, and readers get a view.
func (m *Manager) finish(o *observation, s *steps, decisions []engine.Decision) {
	for i := range s.proxies {
		p := &s.proxies[i]
		for _, err := range m.proxies.note(p, time.Now()) {
			m.journal.fail(problem{service: p.service, node: p.Node, err: err})
		}
	}
	m.journal.sayReadOnly(o)
	if !m.opts.DryRun {
		m.tellAgents(o, &s.claims)
	}
	m.restartEnded(o)
	m.endDrained(o)
	m.journal.fail(problem{err: s.promises.err})
	for _, u := range s.updates {
		m.journal.sayUpdated(u)
	}
	m.journal.sayMoved(o, s.binds, decisions)
	m.publish(o, &s.claims, decisions)
	if !m.opts.DryRun {
		m.told.tellRooms(m.ctx, &m.work, o, m.view.Load().Nodes)
	}
}

// noteUnreachable keeps the last view and says why it is old.
func (m *Manager) noteUnreachable(err error) {
	if m.down == err.Error() {
		return
	}
	m.down = err.Error()
	m.journal.fail(problem{err: fmt.Errorf("%w: what runs goes on, nothing is changed meanwhile", err)})
	v := *m.view.Load()
	v.Services = slices.Clone(v.Services)
	for i := range v.Services {
		v.Services[i].Reason = err.Error()
	}
	m.view.Store(&v)
}
