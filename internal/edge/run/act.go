package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// carryOut does what was decided and can still be promised. Starts and stops go on
// beside the rounds.
func (m *Manager) carryOut(ctx context.Context, s *seen, decisions []engine.Decision) {
	if m.opts.DryRun {
		for _, d := range decisions {
			if d.Action != engine.Keep {
				m.sayDecided(d)
			}
		}
		return
	}
	admitted, refused, err := m.opts.Engine.Commit(ctx, m.rt.Ledger(), s.input.Nodes, s.promises, decisions)
	if err != nil {
		m.failed("", "", "", err)
		return
	}
	for _, r := range refused {
		d := r.Decision
		m.failedAt(string(d.Action), d.Service, d.Instance, d.Node, fmt.Errorf("%s %s on %s: %s", d.Action, d.Instance, d.Node, r.Reason))
	}
	for _, d := range admitted {
		if d.Action == engine.Stop {
			m.drain(d)
		} else {
			m.begin(s, d)
		}
	}
}

// sayDecided says once what would be done.
func (m *Manager) sayDecided(d engine.Decision) {
	if m.toReport("dry-run " + string(d.Action) + d.Service + d.Instance + d.Node) {
		m.recordDecision(d)
	}
}

func (m *Manager) recordDecision(d engine.Decision) {
	w := wireDecision(d)
	m.record(edge.Event{
		Kind: edge.EventDecision, Service: d.Service, Instance: d.Instance, Node: d.Node,
		Message: d.Reason, Decision: &w, DryRun: m.opts.DryRun,
	})
}

// begin lets an instance start to which everything is promised.
func (m *Manager) begin(s *seen, d engine.Decision) {
	i := slices.IndexFunc(s.services, func(t runtime.Service) bool { return t.Name == d.Service })
	if i < 0 {
		return
	}
	service := s.services[i]
	m.recordDecision(d)
	started := &start{decision: d, image: service.Image, at: time.Now()}
	m.mu.Lock()
	m.starting[d.Instance] = started
	m.mu.Unlock()
	m.work.Go(func() { m.start(m.ctx, service, started) })
}

// start gets the image and makes the instance. That it answers, a later round sees.
func (m *Manager) start(ctx context.Context, service runtime.Service, s *start) {
	defer m.again()
	d := s.decision
	image, err := m.rt.Fetch(ctx, service.Image)
	if err == nil {
		s.transfer = image.Took
		m.learnImage(d.Node, service.Image, image)
		err = m.stillPromised(ctx, d)
	}
	if err == nil {
		err = m.rt.Start(ctx, service, d.Instance, d.Node)
	}
	if err == nil || errors.Is(err, runtime.ErrExists) {
		return
	}
	if ctx.Err() == nil {
		m.failed(d.Service, d.Instance, d.Node, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.starting[d.Instance] == s { // else it is ended already, and one of that name may start anew
		delete(m.starting, d.Instance)
		m.cannotStart[d.Instance] = err.Error()
	}
}

// stillPromised: the image may have taken long, and the promise may have been taken
// back meanwhile.
func (m *Manager) stillPromised(ctx context.Context, d engine.Decision) error {
	promises, _, err := m.rt.Ledger().Read(ctx)
	if err != nil {
		return err
	}
	if _, there := promises[d.Instance]; !there {
		return fmt.Errorf("start %s on %s: what it needs is not promised any more", d.Instance, d.Node)
	}
	return nil
}

// learnImage keeps what a transfer was measured to take.
func (m *Manager) learnImage(node, name string, image runtime.Image) {
	m.mu.Lock()
	m.images[node+" "+name] = image
	m.mu.Unlock()
	if image.Took == 0 {
		return
	}
	known := m.store.StartUp(name)
	known.TransferSeconds, known.ImageBytes = image.Took.Seconds(), image.SizeBytes
	m.kept(m.store.SetStartUp(name, known))
}

// arrived takes note of instances that have begun to answer.
func (m *Manager) arrived(s *seen) {
	for _, i := range s.input.Instances {
		if i.State != engine.InstanceRunning {
			continue
		}
		m.mu.Lock()
		started := m.starting[i.ID]
		delete(m.starting, i.ID)
		m.mu.Unlock()
		if started == nil {
			continue
		}
		took := time.Since(started.at)
		known := m.store.StartUp(started.image)
		known.Seconds = (took - started.transfer).Seconds()
		m.kept(m.store.SetStartUp(started.image, known))
		m.record(edge.Event{
			Kind: edge.EventStarted, Service: i.Service, Instance: i.ID, Node: i.Node, TookSeconds: took.Seconds(),
			Message: fmt.Sprintf("%s answers on %s, %.2f s after that was decided", i.ID, i.Node, took.Seconds()),
		})
	}
}

// drainTimeout is how long an instance that is to stop keeps its users.
const drainTimeout = 10 * time.Second

// drain lets an instance have no new users; endDrained ends it.
func (m *Manager) drain(d engine.Decision) {
	m.mu.Lock()
	if m.stopping[d.Instance] != nil {
		m.mu.Unlock()
		return
	}
	m.stopping[d.Instance] = &stop{decision: d, at: time.Now()}
	delete(m.starting, d.Instance)
	m.mu.Unlock()
	m.recordDecision(d)
}

// endLeft lets instances end whose node has left: they would be waited for, and have what they
// are promised, for ever.
func (m *Manager) endLeft(s *seen) {
	if m.opts.DryRun {
		return
	}
	for _, c := range s.state.Instances {
		if s.measured(c.Node) == nil && !m.ended[c.ID].After(s.at) {
			m.drain(engine.Decision{
				Action: engine.Stop, Service: c.Service, Instance: c.ID, Node: c.Node, Cause: engine.CauseNodeGone,
				Reason: c.ID + " was on a node that has left",
			})
		}
	}
}

// endDrained ends those that have no users any more, or have had time enough; also
// those that a weir-edge before this one was about to end.
func (m *Manager) endDrained(s *seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.ended, func(_ string, at time.Time) bool { return s.at.Sub(at) > roundTimeout })
	for id, p := range s.promises {
		if p.Stopping && m.stopping[id] == nil && !m.opts.DryRun && !m.ended[id].After(s.at) {
			m.stopping[id] = &stop{decision: engine.Decision{Action: engine.Stop, Service: p.Service, Instance: id, Node: p.Node}, at: time.Now()}
		}
	}
	for id, ending := range m.stopping {
		// A proxy that does not answer may have any number of them.
		unknown := slices.ContainsFunc(s.proxies[ending.decision.Service], func(p seenProxy) bool { return p.err != nil })
		users := 0
		for _, t := range serversOf(s, id) {
			users += t.Users + t.Waiting
		}
		// Its proxies have been told in this round; what they said is from before.
		waited := time.Since(ending.at)
		if ending.ending || waited < period || (users > 0 || unknown) && waited < drainTimeout {
			continue
		}
		ending.ending = true
		m.work.Go(func() { m.end(m.ctx, id, ending.decision) })
	}
}

func (m *Manager) end(ctx context.Context, id string, d engine.Decision) {
	defer m.again()
	err := m.rt.Stop(ctx, id)
	if err == nil {
		err = engine.Release(ctx, m.rt.Ledger(), id)
	}
	m.mu.Lock()
	delete(m.stopping, id)
	if err == nil {
		delete(m.cannotStart, id)
		m.ended[id] = time.Now()
	}
	m.mu.Unlock()
	if err != nil {
		m.failed(d.Service, id, d.Node, err) // the next round decides again
		return
	}
	m.record(edge.Event{Kind: edge.EventStopped, Service: d.Service, Instance: id, Node: d.Node, Message: fmt.Sprintf("%s on %s has ended", id, d.Node)})
}
