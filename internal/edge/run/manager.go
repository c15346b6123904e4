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
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/edge/store"
)

const (
	// period is the time between two rounds when nothing happens.
	period = 500 * time.Millisecond
	// lull is how long changes are gathered.
	lull = 20 * time.Millisecond
	// roundTimeout bounds the questions of one round.
	roundTimeout = 10 * time.Second
	// drainTimeout is how long an instance that is to stop keeps its users.
	drainTimeout = 10 * time.Second
	// orphanTimeout is after how long a promise without an instance is taken back. Who
	// takes longer to start it, because the image is large, finds that it is gone.
	orphanTimeout = 15 * time.Second
	// presencePeriod is the time between two notes on which nodes are there.
	presencePeriod = time.Minute
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
		opts: opts, rt: opts.Runtime, store: opts.Store, log: opts.Log, ctx: context.Background(),
		events: newEvents(kept, time.Now()), kick: make(chan struct{}, 1),
		counters: map[string]*counters{}, orphans: map[string]time.Time{}, images: map[string]runtime.Image{}, presence: newPresence(opts.Store),
		starting: map[string]*start{}, stopping: map[string]*stop{}, cannotStart: map[string]string{},
		view:  view{services: []edge.Service{}, instances: []edge.Instance{}, nodes: []edge.Node{}, decisions: []edge.Decision{}},
		ended: map[string]time.Time{}, minimums: newMinimums(),
		since: map[string]stateSince{}, reportedAt: map[string]time.Time{}, proxyFailedAt: map[string]time.Time{},
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

// SpecificationError is a specification that cannot be deployed.
type SpecificationError struct{ Err error }

func (e *SpecificationError) Error() string { return e.Err.Error() }

// Unwrap is what errors.Is goes by.
func (e *SpecificationError) Unwrap() error { return e.Err }

// Deploy makes a service from its specification. The same one again changes nothing.
func (m *Manager) Deploy(ctx context.Context, document []byte) (edge.Deployed, error) {
	deployed, err := m.deploy(ctx, document)
	if deployed.Changed {
		m.round(m.ctx) // so that whoever asks next sees it
		for _, i := range m.Instances() {
			if i.Service == deployed.Service && i.State == statePending {
				deployed.Notes = append(deployed.Notes, fmt.Sprintf("%s does not run: %s", i.Service, i.Reason))
			}
		}
	}
	return deployed, err
}

// Check reads a specification, and says what of it no node could run. Errors:
// *SpecificationError.
func Check(document []byte) (spec.Spec, error) {
	s, err := spec.Parse(document)
	if err == nil && s.Rule != "" {
		if err = engine.CheckRule(s.Rule); err != nil {
			err = fmt.Errorf("read the specification: rule: %w", err)
		}
	}
	if err == nil {
		_, err = proxyConfig(s, "")
	}
	if err != nil {
		return spec.Spec{}, &SpecificationError{err}
	}
	return s, nil
}

func (m *Manager) deploy(ctx context.Context, document []byte) (edge.Deployed, error) {
	s, err := Check(document)
	if err != nil {
		return edge.Deployed{}, err
	}
	service, err := m.service(s)
	if err != nil {
		return edge.Deployed{}, err
	}
	if m.opts.DryRun {
		return edge.Deployed{}, errors.New("deploy: this weir-edge runs with --dry-run and changes nothing")
	}
	if err := m.fetch(ctx, s.Name, s.Image); err != nil {
		return edge.Deployed{}, err
	}
	m.rounds.Lock()
	defer m.rounds.Unlock()
	state, err := m.rt.Look(ctx)
	if err != nil {
		return edge.Deployed{}, err
	}
	if err := portsFree(service, state.Services); err != nil {
		return edge.Deployed{}, err
	}
	for _, there := range state.Services {
		if there.Name != s.Name {
			continue
		}
		if there.Document == service.Document {
			return edge.Deployed{Service: s.Name}, nil
		}
		return edge.Deployed{}, fmt.Errorf("service %s %w, with another specification: remove it first (weir-edge rm %[1]s)", s.Name, runtime.ErrExists)
	}
	if err := m.rt.Deploy(ctx, service); err != nil {
		return edge.Deployed{}, err
	}
	m.record(edge.Event{Kind: edge.EventDeployed, Service: s.Name, Message: fmt.Sprintf("service %s was deployed", s.Name)})
	return edge.Deployed{Service: s.Name, Changed: true}, nil
}

// fetch gets an image to where it can be got without starting anything, so that an
// error is the answer to who deploys.
func (m *Manager) fetch(ctx context.Context, service, image string) error {
	late := time.AfterFunc(pullingAfter, func() {
		m.record(edge.Event{Kind: edge.EventPulling, Service: service, Message: "pulling the image " + image})
	})
	found, err := m.rt.Fetch(ctx, image)
	late.Stop()
	if err != nil {
		return err
	}
	nodes, err := m.rt.Nodes(ctx)
	if err != nil {
		return err
	}
	if len(nodes) == 1 {
		m.learnImage(nodes[0].Name, image, found)
	}
	return nil
}

// pullingAfter is how long getting an image may take without a word: one that is there
// is found at once.
const pullingAfter = 200 * time.Millisecond

// portsFree says which other service has a port of a new one.
func portsFree(s runtime.Service, others []runtime.Service) error {
	for _, other := range others {
		parsed, err := spec.Parse([]byte(other.Document))
		if err != nil || other.Name == s.Name {
			continue
		}
		for _, p := range parsed.Ports {
			if slices.ContainsFunc(s.Ports, func(q runtime.Port) bool { return q.Host == p.Host }) {
				return fmt.Errorf("deploy %s: port %d is the service %s's: choose another", s.Name, p.Host, other.Name)
			}
		}
	}
	return nil
}

// service is what a runtime makes of a specification.
func (m *Manager) service(s spec.Spec) (runtime.Service, error) {
	document, err := s.MarshalJSON()
	if err != nil {
		return runtime.Service{}, fmt.Errorf("write the specification of %s: %w", s.Name, err)
	}
	config, err := proxyConfig(s, m.opts.Control)
	if err != nil {
		return runtime.Service{}, &SpecificationError{err}
	}
	made := runtime.Service{
		Name: s.Name, Document: string(document), Image: s.Image, Labels: maps.Clone(s.Labels),
		MemoryBytes: s.Limits.MemoryBytes, CPUs: s.Limits.CPUs, Proxy: config,
	}
	for _, p := range s.Ports {
		made.Ports = append(made.Ports, runtime.Port{Host: p.Host, Container: p.Container})
	}
	return made, nil
}

func proxyConfig(s spec.Spec, control string) (proxy.Config, error) {
	c := proxy.Config{
		Service: s.Name, Mode: proxy.ModeHTTP, Control: control, QueueTimeout: 30 * time.Second,
		ResponseTime: time.Duration(s.ResponseSeconds * float64(time.Second)),
	}
	switch mode := proxy.Mode(s.Labels[spec.LabelMode]); mode {
	case "":
	case proxy.ModeHTTP, proxy.ModeTCP:
		c.Mode = mode
	default:
		return c, fmt.Errorf("read the specification: the label %s is %q: write http or tcp", spec.LabelMode, mode)
	}
	c.Health = s.Labels[spec.LabelHealth]
	if err := proxy.CheckHealthPath(c.Health); err != nil {
		return c, fmt.Errorf("read the specification: the label %s: %w", spec.LabelHealth, err)
	}
	for _, p := range s.Ports {
		c.Ports = append(c.Ports, proxy.Port{Host: p.Host})
	}
	return c, nil
}

// Remove ends a service.
func (m *Manager) Remove(ctx context.Context, service string) error {
	err := m.remove(ctx, service)
	m.round(m.ctx)
	return err
}

func (m *Manager) remove(ctx context.Context, service string) error {
	if m.opts.DryRun {
		return errors.New("remove: this weir-edge runs with --dry-run and changes nothing")
	}
	m.rounds.Lock()
	defer m.rounds.Unlock()
	if err := m.rt.Remove(ctx, service); err != nil {
		return err
	}
	m.record(edge.Event{Kind: edge.EventRemoved, Service: service, Message: fmt.Sprintf("service %s was removed", service)})
	return nil
}
