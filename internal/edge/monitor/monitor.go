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
// All nodes are asked side by side, every period, each for as long as the timeout. A
// node that is asked and has not answered for StaleSeconds is stale; after GoneSeconds,
// and two questions, it is gone. Times are those of this machine; the nodes' clocks are
// compared with it and otherwise not used. What cannot be is left out, and said
// (check.go). What nodes say as numbers is taken; the paper's words of the same serve
// where an agent is too old to have them.
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
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
)

// Agent is asked about its node; *client.Client is one.
type Agent interface {
	Node(context.Context) (v1.Node, error)
	Snapshot(context.Context) (v1.Snapshot, error)
	// Access is who asks, for it, and what they may do.
	Access(context.Context) (v1.Access, error)
}

// Target is a node to ask.
type Target struct {
	Name string
	// Agent is nil for a node without one.
	Agent Agent
}

// Options say how nodes are asked, in seconds.
type Options struct {
	PeriodSeconds, TimeoutSeconds float64
	// StaleSeconds and GoneSeconds are how old an answer may be.
	StaleSeconds, GoneSeconds float64
}

// DefaultOptions notice within five seconds that a node is gone, so that its services
// answer elsewhere within eight.
func DefaultOptions() Options {
	return Options{PeriodSeconds: 1, TimeoutSeconds: 1, StaleSeconds: 2.5, GoneSeconds: 4}
}

// Check says what of the options cannot be.
func (o Options) Check() error {
	switch {
	case !(o.PeriodSeconds >= 0.05 && o.PeriodSeconds <= 3600):
		return fmt.Errorf("period: %v s is not from 0.05 to 3600", o.PeriodSeconds)
	case !(o.TimeoutSeconds >= 0.05 && o.TimeoutSeconds <= 3600):
		return fmt.Errorf("timeout: %v s is not from 0.05 to 3600", o.TimeoutSeconds)
	case !(o.StaleSeconds > o.PeriodSeconds):
		return fmt.Errorf("stale after %v s: write more than the period, %v s", o.StaleSeconds, o.PeriodSeconds)
	case !(o.GoneSeconds > o.StaleSeconds):
		return fmt.Errorf("gone after %v s: write more than stale, %v s", o.GoneSeconds, o.StaleSeconds)
	}
	return nil
}

// Monitor asks nodes. Its methods may be called by many goroutines at once.
type Monitor struct {
	options Options
	now     func() time.Time

	mu       sync.Mutex
	readings map[string]*reading
}

// reading is what is known of one node.
type reading struct {
	Target
	asking bool
	asked  int // how often in all
	missed int // questions in a row without an answer
	// since is when the node was first asked; answered and spoke are when its agent
	// last answered, and when it last said anything, if only nonsense or an error.
	since, answered, spoke time.Time
	err                    error
	noAgent                bool
	answer
	problems []string
	used     usage
	cpus     map[string]float64
	trips    []float64
	offset   float64
}

// answer is what an agent says, all of it of one question: nothing is known of a node
// whose agent has not said all.
type answer struct {
	node     v1.Node
	snapshot v1.Snapshot
	access   v1.Access
}

// usage is what containers have used by a moment of their node's clock.
type usage struct {
	at      time.Time
	seconds map[string]float64
}

// New makes a monitor; Run makes it ask.
func New(options Options, now func() time.Time) (*Monitor, error) {
	if err := options.Check(); err != nil {
		return nil, fmt.Errorf("monitor nodes: %w", err)
	}
	return &Monitor{options: options, now: now, readings: map[string]*reading{}}, nil
}

// SetTargets says whom to ask from now on. What is known of those that stay is kept;
// others are forgotten. Of two with the same name the last one counts.
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

// Run asks every period until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(time.Duration(m.options.PeriodSeconds * float64(time.Second)))
	defer ticker.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		asking.Go(func() { m.Pull(ctx) })
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// atOnce is how many nodes are asked at the same time.
const atOnce = 128

// Pull asks all nodes once, side by side, but for those that have not yet answered the
// last question, and waits for the answers.
func (m *Monitor) Pull(ctx context.Context) {
	m.mu.Lock()
	var list []*reading
	for _, r := range m.readings {
		if r.Agent != nil && !r.asking {
			r.asking = true
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

// ask asks one node, and notes the answer.
func (m *Monitor) ask(ctx context.Context, r *reading) {
	m.mu.Lock()
	agent := r.Agent
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(m.options.TimeoutSeconds*float64(time.Second)))
	defer cancel()
	var said answer
	var err error
	began := m.now()
	said.snapshot, err = agent.Snapshot(ctx)
	trip := m.now().Sub(began).Seconds()
	if err == nil {
		err = askTheRest(ctx, agent, &said)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r.asking = false
	if errors.Is(context.Cause(ctx), context.Canceled) && err != nil {
		return // it is we who end
	}
	r.note(m.now(), m.options, said, trip, err)
}

// askTheRest asks all else at once: each question takes a round trip, and nodes may be far.
func askTheRest(ctx context.Context, agent Agent, said *answer) (err error) {
	var accessErr error
	var asking sync.WaitGroup
	asking.Go(func() { said.access, accessErr = agent.Access(ctx) })
	said.node, err = agent.Node(ctx)
	asking.Wait()
	if isNotFound(accessErr) {
		accessErr = nil // it is too old to say, and says so when it is told something
	}
	return cmp.Or(err, accessErr)
}

// note takes over an answer, or that there was none.
func (r *reading) note(now time.Time, o Options, said answer, trip float64, err error) {
	r.asked++
	r.noAgent = errors.Is(err, client.ErrNoAgent)
	spoke := err == nil || r.noAgent || speaks(err)
	r.err = err
	if spoke {
		r.spoke = now
	}
	if err != nil {
		r.missed++
		return
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
}

// tripsKept is of how many questions the fastest is the round trip.
const tripsKept = 10

// speaks: an agent is there, whatever it says, also if it does not trust weir-edge or is not
// to be trusted.
func speaks(err error) bool {
	var refusal *client.Error
	return errors.As(err, &refusal) || errors.Is(err, client.ErrTrust) || strings.Contains(err.Error(), "read the agent's answer")
}

// isNotFound: an agent does not know what it is asked for.
func isNotFound(err error) bool {
	var refusal *client.Error
	return errors.As(err, &refusal) && refusal.Status == http.StatusNotFound
}

// measureCPUs finds out how many processors containers keep busy, between two answers
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
	next := usage{at: at, seconds: map[string]float64{}}
	cpus := map[string]float64{}
	most := float64(max(r.node.Measured.CPUs, 1))
	for _, c := range r.node.Measured.Containers {
		if c.CPUSeconds == nil {
			continue
		}
		next.seconds[c.ID] = *c.CPUSeconds
		if before, known := r.used.seconds[c.ID]; known && passed > 0 {
			cpus[c.ID] = min(max(*c.CPUSeconds-before, 0)/passed, most)
		}
	}
	r.used, r.cpus = next, cpus
}

// why is the last error in words.
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

// sorted are the readings by name. m.mu is held.
func (m *Monitor) sorted() []*reading {
	return slices.SortedFunc(maps.Values(m.readings), func(a, b *reading) int { return strings.Compare(a.Name, b.Name) })
}
