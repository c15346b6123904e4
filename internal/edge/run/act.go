package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// carryOut starts the admitted decisions in the background; err is the reason why none could be
// admitted.
func (m *Manager) carryOut(o *observation, admitted []engine.Decision, refused []engine.Refusal, err error) {
	m.journal.fail(problem{err: err})
	for _, r := range refused {
		d := r.Decision
		m.journal.fail(problem{
			service: d.Service, instance: d.Instance, node: d.Node, same: string(d.Action),
			err: fmt.Errorf("%s on %s: %s", d.Action, d.Node, r.Reason),
		})
	}
	for _, d := range admitted {
		if d.Action == engine.Stop {
			m.drain(d)
		} else {
			m.begin(o, d)
		}
	}
}

// sayDecided reports decisions once, in a dry run.
func (j *journal) sayDecided(decisions []engine.Decision) {
	for _, d := range decisions {
		if d.Action != engine.Keep && j.isNews("dry-run "+string(d.Action)+d.Service+d.Instance+d.Node) {
			j.recordDecision(d)
		}
	}
}

func (j *journal) recordDecision(d engine.Decision) {
	w := wireDecision(d)
	j.record(edge.Event{
		Kind: edge.EventDecision, Service: d.Service, Instance: d.Instance, Node: d.Node,
		Message: d.Reason, Decision: &w, DryRun: j.dryRun,
	})
}

// begin starts an instance whose promise is in the ledger. Later rounds check whether it answers.
func (m *Manager) begin(o *observation, d engine.Decision) {
	i := slices.IndexFunc(o.services, func(t runtime.Service) bool { return t.Name == d.Service })
	if i < 0 {
		return
	}
	service, started := o.services[i], &start{decision: d, image: o.services[i].Image, at: time.Now()}
	service.Apart = d.Apart
	m.journal.recordDecision(d)
	m.lives.starting[d.Instance] = started
	ctx, rt, fetches := m.ctx, m.opts.Runtime, !m.opts.Schedules
	m.runInBackground(func() func() {
		err := startInstance(ctx, rt, service, d, fetches, func(image runtime.Image) {
			m.runInLoop(func() {
				started.transfer = image.Took
				m.images.learn(d.Node, service.Image, image, m.journal.noteKept)
			})
		})
		return func() { m.noteStart(started, err) }
	})
}

// startInstance fetches the image, unless the node does, calls fetched, and creates the instance. An
// existing one is no error.
func startInstance(ctx context.Context, rt runtime.Runtime, service runtime.Service, d engine.Decision, fetches bool, fetched func(runtime.Image)) error {
	var image runtime.Image
	if fetches {
		var err error
		if image, err = rt.Fetch(ctx, service.Name, service.ImageToRun()); err != nil {
			return err
		}
	}
	fetched(image)
	// Fetching the image may have taken so long that the promise was withdrawn.
	promises, _, err := rt.Ledger().Read(ctx)
	if err != nil {
		return err
	}
	if _, promised := promises[d.Instance]; !promised {
		return fmt.Errorf("start %s on %s: what it needs is not promised any more", d.Instance, d.Node)
	}
	if err = rt.Start(ctx, service, d.Instance, d.Node); errors.Is(err, runtime.ErrExists) {
		return nil
	}
	return err
}

func (m *Manager) noteStart(s *start, err error) {
	m.lives.noteStart(s, err)
	if d := s.decision; err != nil && m.ctx.Err() == nil {
		m.journal.fail(problem{service: d.Service, instance: d.Instance, node: d.Node, err: err})
	}
	m.requestRound()
}

// noteArrivals reports instances that answer for the first time, and stores their start-up time.
func (m *Manager) noteArrivals(o *observation) {
	for _, i := range o.input.Instances {
		if i.State != engine.InstanceRunning {
			continue
		}
		started := m.lives.arrived(i.ID)
		if started == nil {
			continue
		}
		took := time.Since(started.at)
		known := m.opts.Store.StartUp(started.image)
		known.Seconds = (took - started.transfer).Seconds()
		m.opts.Store.SetStartUp(started.image, known, m.journal.noteKept)
		m.journal.record(edge.Event{
			Kind: edge.EventStarted, Service: i.Service, Instance: i.ID, Node: i.Node, TookSeconds: took.Seconds(),
			Message: fmt.Sprintf("answers on %s, %.2f s after that was decided%s", i.Node, took.Seconds(), m.lives.endGap(i.Service)),
		})
	}
}

// restartEnded restarts instances in their places that have ended, and reports all that have.
func (m *Manager) restartEnded(o *observation) {
	for _, c := range o.state.Instances {
		if c.Phase == runtime.Ended && !m.lives.isStopping(o, c.ID) {
			m.journal.fail(problem{service: c.Service, instance: c.ID, node: c.Node, err: fmt.Errorf("on %s: %s", c.Node, c.Reason)})
		}
	}
	if m.opts.DryRun {
		return
	}
	for _, c := range m.lives.toRestart(o) {
		ctx, rt := m.ctx, m.opts.Runtime
		m.runInBackground(func() func() {
			err := rt.Restart(ctx, c.ID)
			return func() {
				m.lives.noteRestart(c.ID, err)
				m.journal.fail(problem{service: c.Service, instance: c.ID, node: c.Node, err: err})
				m.requestRound()
			}
		})
	}
}

// drain stops new users of an instance; endDrained ends it.
func (m *Manager) drain(d engine.Decision) {
	if m.lives.drain(d) {
		m.journal.recordDecision(d)
	}
}

// endLeft removes instances whose node has left the swarm, which would otherwise keep their
// promises for ever.
func (m *Manager) endLeft(o *observation) {
	for _, c := range o.state.Instances {
		if o.measured(c.Node) == nil && !m.lives.hasEnded(o, c.ID) {
			m.drain(engine.Decision{
				Action: engine.Stop, Service: c.Service, Instance: c.ID, Node: c.Node, Cause: engine.CauseNodeGone,
				Reason: "it was on a node that has left",
			})
		}
	}
}

// endDrained stops the instances whose users have left.
func (m *Manager) endDrained(o *observation) {
	if m.opts.DryRun {
		return
	}
	for _, d := range m.lives.drained(o) {
		ctx, rt := m.ctx, m.opts.Runtime
		m.runInBackground(func() func() {
			err := rt.Stop(ctx, d.Instance)
			if err == nil {
				err = engine.Release(ctx, rt.Ledger(), d.Instance)
			}
			at := time.Now()
			return func() { m.noteEnd(d, at, err) }
		})
	}
}

func (m *Manager) noteEnd(d engine.Decision, at time.Time, err error) {
	m.lives.noteEnd(d.Instance, at, err)
	if err != nil {
		m.journal.fail(problem{service: d.Service, instance: d.Instance, node: d.Node, err: err})
	} else {
		m.journal.record(edge.Event{
			Kind: edge.EventStopped, Service: d.Service, Instance: d.Instance, Node: d.Node, Message: "has ended on " + d.Node,
		})
	}
	m.requestRound()
}
