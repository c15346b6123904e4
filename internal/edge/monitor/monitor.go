// Package monitor is PiCasso's Monitoring Manager (section III.B): it asks the agents
// of all nodes what they have and what is used of it.
//
// # Problem
//
// Nodes are small, far and sometimes off. One that does not answer must not hold up
// what is known of the others; what it said last is worth less every second; and
// whether it is the node or its agent that is gone makes a difference, as what runs on
// a node without an agent runs on. What an agent says comes from another machine and
// may be anything.
//
// # Method
//
// All nodes are asked side by side, every period, each for as long as the timeout. A node whose
// agent has an event about minimums is asked at once, but for a pause after the question before:
// agents limit how often they are asked. A node that is asked and has not answered for
// StaleSeconds is stale; after GoneSeconds, and two questions, it is gone. Times are those of
// this machine; the nodes' clocks are compared with it and otherwise not used. What cannot be
// is left out, and said (check.go). What nodes say as numbers is taken; the paper's words of
// the same serve where an agent is too old to have them.
//
// # Limits
//
// The round trip is that of a whole question, so it includes what the agent computes:
// a fraction of a millisecond.
package monitor

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
)

// Agent is the interface to a node's agent; *client.Client implements it.
type Agent interface {
	// Node also counts the connections of the containers with these names.
	Node(ctx context.Context, counted ...string) (v1.Node, error)
	Snapshot(context.Context) (v1.Snapshot, error)
	// Access returns weir-edge's role and permissions at the agent.
	Access(context.Context) (v1.Access, error)
}

// Follower is an agent that sends its events; *client.Client is one.
type Follower interface {
	Follow(ctx context.Context, since uint64, f client.Follower) error
}

// Target is a node to poll.
type Target struct {
	Name string
	// Agent is nil for a node without one.
	Agent Agent
	// Counted are the names of containers whose connections are counted.
	Counted []string
}

// These limits detect a dead node within five seconds, so that its services answer from another
// node within eight.
const (
	period  = time.Second // between two questions
	timeout = time.Second // of a question
	// pause is the least time between an answer and a question for an event.
	pause = 100 * time.Millisecond
	// staleSeconds and goneSeconds are the ages of the last answer from which a node is stale and
	// gone.
	staleSeconds, goneSeconds = 2.5, 4.0
)

// Monitor polls nodes. It is safe for concurrent use.
type Monitor struct {
	timeout time.Duration
	now     func() time.Time
	// due has a value if a node is to be polled before the period ends, lower if an agent keeps less
	// than before.
	due, lower chan struct{}

	mu        sync.Mutex
	readings  map[string]*reading
	following map[string]*following // by the node's name
}

// reading is the state of one polled node.
type reading struct {
	Target
	asking bool
	asked  int // how often in all
	missed int // questions in a row without an answer
	// since is the time of the first poll, ended that of the end of the last, answered that of the last
	// valid answer, and spoke that of the last response of any kind, errors included.
	since, ended, answered, spoke time.Time
	err                           error
	answer
	problems []string
	used     usage
	trips    []float64
	offset   float64
}

// answer is an agent's complete report; a partial one is discarded.
type answer struct {
	node     v1.Node
	snapshot v1.Snapshot
	access   v1.Access
}

// usage is the containers' CPU time at a time of the node's clock, and how many processors they have kept
// busy until then.
type usage struct {
	at            time.Time
	seconds, cpus map[string]float64
}

// New returns a monitor; Run starts polling.
func New(now func() time.Time) *Monitor {
	return &Monitor{timeout: timeout, now: now, due: make(chan struct{}, 1), lower: make(chan struct{}, 1), readings: map[string]*reading{}, following: map[string]*following{}}
}

// SetTargets sets the nodes to poll. Readings of nodes that stay are kept, others dropped. Of two
// targets with the same name the last one counts.
func (m *Monitor) SetTargets(targets []Target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	named := map[string]bool{}
	for _, t := range targets {
		named[t.Name] = true
		if r := m.readings[t.Name]; r != nil {
			r.Target = t
			continue
		}
		m.readings[t.Name] = &reading{Target: t}
	}
	maps.DeleteFunc(m.readings, func(name string, _ *reading) bool { return !named[name] })
}

// Lower has a value when an agent has begun to keep less of a minimum than before.
func (m *Monitor) Lower() <-chan struct{} { return m.lower }

// Run polls all nodes every period until ctx ends, and those with an event at once.
func (m *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	pull := m.Pull
	for {
		m.follow(ctx, &asking)
		next := pull
		asking.Go(func() { next(ctx) })
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			pull = m.Pull
		case <-m.due:
			pull = m.pullDue
		}
	}
}

// following is the state of following an agent's events.
type following struct {
	agent Agent
	end   context.CancelFunc
	// due: there was an event since the agent was asked last.
	due bool
}

// follow follows the events of agents that are not followed yet, and no longer those of others.
func (m *Monitor) follow(ctx context.Context, running *sync.WaitGroup) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, f := range m.following {
		if r := m.readings[name]; r == nil || r.Agent != f.agent {
			f.end()
			delete(m.following, name)
		}
	}
	for name, r := range m.readings {
		agent, sends := r.Agent.(Follower)
		if !sends || m.following[name] != nil {
			continue
		}
		followed, end := context.WithCancel(ctx)
		f := &following{agent: r.Agent, end: end}
		m.following[name] = f
		running.Go(func() {
			due := func() error { m.noteDue(name, f); return nil }
			_ = agent.Follow(followed, 0, client.Follower{Reset: due, Event: func(e v1.Event) error { // it ends with its context
				if concernsMinimums(e.Kind) {
					return due()
				}
				return nil
			}})
		})
	}
}

// concernsMinimums reports whether an agent may keep less of a minimum since an event.
func concernsMinimums(kind v1.EventKind) bool {
	switch kind {
	case v1.EventDegraded, v1.EventRefused, v1.EventReloaded, v1.EventUplinkLost:
		return true
	}
	return false
}

// noteDue has a node polled before the period ends.
func (m *Monitor) noteDue(name string, f *following) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.readings[name]; r != nil && !r.asking && !f.due {
		m.signalDue(r)
	}
	f.due = true
}

// signalDue has a node that is due polled when its pause is over. m.mu is held.
func (m *Monitor) signalDue(r *reading) {
	if rest := pause - m.now().Sub(r.ended); rest > 0 {
		time.AfterFunc(rest, func() { signal(m.due) })
	} else {
		signal(m.due)
	}
}

// isDue reports whether a node had an event since it was asked last. m.mu is held.
func (m *Monitor) isDue(r *reading) bool {
	f := m.following[r.Name]
	return f != nil && f.due
}

// signal puts a value into a channel that has none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// atOnce is the number of nodes polled concurrently.
const atOnce = 128

// Pull polls all nodes concurrently, except those whose last poll is still running, and waits for
// the answers.
func (m *Monitor) Pull(ctx context.Context) { m.pull(ctx, func(*reading) bool { return true }) }

// pullDue is Pull of the nodes with an event whose pause is over.
func (m *Monitor) pullDue(ctx context.Context) {
	m.pull(ctx, func(r *reading) bool { return m.isDue(r) && m.now().Sub(r.ended) >= pause })
}

// pull is Pull of the nodes for which one returns true; m.mu is held then.
func (m *Monitor) pull(ctx context.Context, one func(*reading) bool) {
	m.mu.Lock()
	var list []*reading
	for _, r := range m.readings {
		if r.Agent != nil && !r.asking && one(r) {
			r.asking = true
			if f := m.following[r.Name]; f != nil {
				f.due = false
			}
			if r.since.IsZero() {
				r.since = m.now()
			}
			list = append(list, r)
		}
	}
	m.mu.Unlock()
	var asking sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, r := range list {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			m.ask(ctx, r)
		})
	}
	asking.Wait()
}

// ask polls one node and records its answer.
func (m *Monitor) ask(ctx context.Context, r *reading) {
	m.mu.Lock()
	agent, counted := r.Agent, r.Counted
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	var said answer
	var err error
	began := m.now()
	said.snapshot, err = agent.Snapshot(ctx)
	trip := m.now().Sub(began).Seconds()
	if err == nil {
		err = m.askTheRest(ctx, agent, counted, &said)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r.asking, r.ended = false, m.now()
	if m.isDue(r) {
		m.signalDue(r)
	}
	if errors.Is(context.Cause(ctx), context.Canceled) && err != nil {
		return // it is we who end
	}
	if before := r.snapshot; r.note(m.now(), said, trip, err) && isLower(&before, &r.snapshot) {
		signal(m.lower)
	}
}

// askTheRest sends the other requests concurrently, because each takes a round trip.
func (m *Monitor) askTheRest(ctx context.Context, agent Agent, counted []string, said *answer) (err error) {
	var accessErr error
	var asking sync.WaitGroup
	asking.Go(func() { said.access, accessErr = agent.Access(ctx) })
	said.node, err = m.askNode(ctx, agent, counted)
	asking.Wait()
	if isNotFound(accessErr) {
		accessErr = nil // it is too old to say, and says so when it is told something
	}
	return cmp.Or(err, accessErr)
}

// askNode asks again without counting if counting is late, so that a node with very many connections is not silent.
func (m *Monitor) askNode(ctx context.Context, agent Agent, counted []string) (v1.Node, error) {
	if len(counted) > 0 {
		counting, cancel := context.WithTimeout(ctx, m.timeout/2)
		defer cancel()
		if said, err := agent.Node(counting, counted...); counting.Err() == nil || ctx.Err() != nil || err == nil {
			return said, err
		}
	}
	return agent.Node(ctx)
}

// note records an answer and returns true, or its failure.
func (r *reading) note(now time.Time, said answer, trip float64, err error) bool {
	r.asked++
	r.err = err
	spoke := err == nil || r.lacksAgent() || speaks(err)
	if spoke {
		r.spoke = now
	}
	if err != nil {
		r.missed++
		return false
	}
	r.answered, r.missed = now, 0
	r.answer, r.problems = check(said)
	r.offset = r.node.Measured.At.Sub(now).Seconds()
	if r.node.Measured.At.IsZero() {
		r.offset = 0
	}
	r.measureCPUs(now)
	r.trips = append(r.trips, max(trip, 0))
	r.trips = r.trips[max(len(r.trips)-tripsKept, 0):]
	return true
}

// lacksAgent reports whether nothing listened where the agent was asked last.
func (r *reading) lacksAgent() bool { return errors.Is(r.err, client.ErrNoAgent) }

// tripsKept is the number of polls of which the shortest counts as the round trip.
const tripsKept = 10

// speaks reports whether an agent responded at all, also with an invalid answer or a TLS error.
func speaks(err error) bool {
	var refusal *client.Error
	return errors.As(err, &refusal) || errors.Is(err, client.ErrTrust) || strings.Contains(err.Error(), "read the agent's answer")
}

// isNotFound reports whether an agent does not have the requested endpoint.
func isNotFound(err error) bool {
	var refusal *client.Error
	return errors.As(err, &refusal) && refusal.Status == http.StatusNotFound
}

// measureCPUs computes how many processors containers keep busy, between two answers
// by the node's own clock, or ours if that stands still.
func (r *reading) measureCPUs(now time.Time) {
	at := r.node.Measured.At
	if at.IsZero() {
		at = now
	}
	passed := at.Sub(r.used.at).Seconds()
	if passed >= 0 && passed < 0.1 && !r.used.at.IsZero() {
		return
	}
	next := usage{at: at, seconds: map[string]float64{}, cpus: map[string]float64{}}
	most := float64(max(r.node.Measured.CPUs, 1))
	for _, c := range r.node.Measured.Containers {
		if c.CPUSeconds == nil {
			continue
		}
		next.seconds[c.ID] = *c.CPUSeconds
		if before, known := r.used.seconds[c.ID]; known && passed > 0 {
			next.cpus[c.ID] = min(max(*c.CPUSeconds-before, 0)/passed, most)
		}
	}
	r.used = next
}

// why returns the last error as text.
func (r *reading) why() string {
	switch {
	case r.err == nil:
		return ""
	case isNotFound(r.err):
		return "its agent is too old to say what the node has: update Weir there"
	case errors.Is(r.err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return Cut(r.err.Error())
}

// sorted returns the readings by name. m.mu is held.
func (m *Monitor) sorted() []*reading {
	return slices.SortedFunc(maps.Values(m.readings), func(a, b *reading) int { return strings.Compare(a.Name, b.Name) })
}
