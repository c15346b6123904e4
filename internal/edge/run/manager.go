// Package run is what weir-edge does all day: it looks at nodes, services, instances
// and users, lets the engine decide, does what was decided, and tells everybody who
// asks.
//
// The problem is that it may die at any moment, and that others may do the same job at
// the same time. So it owns nothing: what should run is in the container engine
// (runtime), what is promised is in a ledger there that changes only by comparing, and
// users are with their proxies, which go on by themselves. What is remembered beside
// that is measured (store), and costs time if it is lost. A round begins with looking
// at everything and ends with the difference to what should be; doing it again changes
// nothing.
//
// Where to look: what a round goes by: observe.go; what it does: act.go for instances,
// promises.go for the ledger, proxies.go and uplinks.go for who gets users, minimums.go;
// what users ask for: deploy.go; what they see: view.go, events.go, counters.go; who
// measures nodes: agents.go, local.go, unmeasured.go; how much of the time nodes are there:
// presence.go; how fast they get images: pulls.go.
package run

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/store"
)

const (
	// period is the time between two rounds when nothing happens.
	period = 500 * time.Millisecond
	// lull is how long changes are gathered.
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
	// Control is where proxies take commands, as HAProxy's option says it.
	Control string
	// DryRun: decide, and change nothing.
	DryRun bool
	// Repository is where nodes get images from that this weir-edge serves; invalid: it serves
	// none.
	Repository netip.Addr
	// Trace is where rounds are recorded; nil: nowhere.
	Trace Recorder
}

// Recorder keeps what rounds went by and what they decided.
type Recorder interface {
	Record(engine.Input, engine.Result) error
}

// Nodes measures nodes.
type Nodes interface {
	// Measure is what is known of all nodes now; it does not wait for those that do
	// not answer.
	Measure(context.Context, []runtime.Node) []Measured
}

// Manager runs services. Its exported methods may be called concurrently.
type Manager struct {
	opts   Options
	rt     runtime.Runtime
	store  *store.Store
	log    *slog.Logger
	ctx    context.Context // of Run
	began  time.Time
	events *Events
	kick   chan struct{}
	work   sync.WaitGroup

	storeBroken atomic.Bool

	// rounds excludes a round and a change by a user from each other.
	rounds sync.Mutex
	memory engine.Memory
	// orphans are promises without an instance, since when.
	orphans  map[string]time.Time
	presence presence
	down     string               // why the engine does not answer
	counters map[string]*counters // by service
	free     freeUplinks
	pulls    pulls

	mu sync.Mutex
	// starting and stopping are what this weir-edge is doing.
	starting map[string]*start
	stopping map[string]*stop
	// cannotStart says why instances could not be made at all.
	cannotStart map[string]string
	since       map[string]stateSince // of instances
	// reportedAt is when something that lasts was reported last, by what was said of it.
	reportedAt map[string]time.Time
	// proxyFailedAt is when a proxy that fails did so first, by service and node.
	proxyFailedAt map[string]time.Time
	peaks         map[string]peak          // by service and node
	images        map[string]runtime.Image // by node and name
	// ended is when instances were ended, for rounds that have looked before.
	ended map[string]time.Time
	view  view

	minimums minimums
}

// start is an instance on its way.
type start struct {
	decision engine.Decision
	image    string
	at       time.Time
	transfer time.Duration
}

// stop is an instance on its way out.
type stop struct {
	decision engine.Decision
	at       time.Time
	ending   bool // the engine has been told
}

type stateSince struct {
	state engine.InstanceState
	at    time.Time
	// first is when this weir-edge saw the instance for the first time.
	first time.Time
}

// New makes a manager; Run makes it work.
func New(opts Options) (*Manager, error) {
	kept, err := opts.Store.Events()
	if err != nil {
		return nil, err
	}
	return &Manager{
		opts: opts, rt: opts.Runtime, store: opts.Store, log: opts.Log, ctx: context.Background(), began: time.Now(),
		events: newEvents(kept, time.Now()), kick: make(chan struct{}, 1),
		counters: map[string]*counters{}, orphans: map[string]time.Time{}, images: map[string]runtime.Image{}, presence: newPresence(opts.Store),
		starting: map[string]*start{}, stopping: map[string]*stop{}, cannotStart: map[string]string{},
		view:  view{services: []edge.Service{}, instances: []edge.Instance{}, nodes: []edge.Node{}, decisions: []edge.Decision{}},
		ended: map[string]time.Time{}, minimums: newMinimums(), pulls: pulls{repository: opts.Repository},
		since: map[string]stateSince{}, reportedAt: map[string]time.Time{}, proxyFailedAt: map[string]time.Time{}, peaks: map[string]peak{},
	}, nil
}

// Run works until ctx ends. What runs goes on.
func (m *Manager) Run(ctx context.Context) error {
	m.ctx = ctx
	changes := m.rt.Changes(ctx)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	defer m.work.Wait()
	for {
		m.round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			continue
		case <-changes:
		case <-m.kick:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lull):
		}
	}
}

// Events are what happened lately.
func (m *Manager) Events() *Events { return m.events }

// again asks for another round now.
func (m *Manager) again() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

func (m *Manager) round(ctx context.Context) {
	m.rounds.Lock()
	defer m.rounds.Unlock()
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	seen, err := m.look(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.unreachable(err)
		}
		return
	}
	if m.down != "" {
		m.log.Info("the container engine answers again")
		m.down = ""
	}
	result := m.opts.Engine.Round(seen.input)
	m.memory = result.Memory
	m.trace(seen.input, result)
	m.carryOut(ctx, seen, result.Decisions)
	m.syncProxies(ctx, seen)
	m.holdMinimums(ctx, seen)
	m.endLeft(seen)
	m.endDrained(seen)
	m.mendPromises(ctx, seen)
	m.publish(seen, result.Decisions)
}

// trace records a round. What cannot be recorded is said, and nothing more is: a trace
// with a gap would be taken for one without.
func (m *Manager) trace(in engine.Input, result engine.Result) {
	if m.opts.Trace == nil {
		return
	}
	if err := m.opts.Trace.Record(in, result); err != nil {
		m.opts.Trace = nil
		m.failed("", "", "", fmt.Errorf("%w: rounds are not recorded any more", err))
	}
}

// unreachable keeps the last view and says why it is old.
func (m *Manager) unreachable(err error) {
	if m.down == err.Error() {
		return
	}
	m.down = err.Error()
	m.failed("", "", "", fmt.Errorf("%w: what runs goes on, nothing is changed until it answers", err))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.view.services {
		m.view.services[i].Reason = err.Error()
	}
}
