package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// # Managed services
//
// A managed service is a Swarm service that weir-edge did not make, and moves. The engine decides where its
// task goes. The node promises the minimum as a claim first, then weir-edge adds a placement constraint; once
// the agent there knows the task, or Swarm cannot run it there, weir-edge takes both back.

// bindTimeout is how long a task may take to its node, an image to fetch included. The old one runs meanwhile.
const bindTimeout = 5 * time.Minute

// bindStep binds a managed service to a node for its minimum or, where node is empty, takes that back.
type bindStep struct {
	service  *runtime.Managed
	node     string
	decision engine.Decision
	// said is how a move has ended, failed that it was in vain.
	said   string
	failed bool
	err    error
}

// boundSince is since when a task has run in its place, or a service was bound to a node.
type boundSince struct {
	container, node string
	at              time.Time
}

// noteTask returns since when a managed service has the task and the constraint that it has.
func (l *lives) noteTask(t *runtime.Managed) time.Time {
	now := boundSince{t.ContainerID, t.Bound, time.Now()}
	if was := l.tasks[t.Spec.Name]; was.container == now.container && was.node == now.node {
		return was.at
	}
	l.tasks[t.Spec.Name] = now
	return now.at
}

// dropNamesakes leaves alone managed services that have the name of a service of weir-edge's own, but for what
// binds them.
func (o *observation) dropNamesakes() {
	o.state.Managed = slices.DeleteFunc(o.state.Managed, func(t runtime.Managed) bool {
		taken := slices.ContainsFunc(o.state.Services, func(s runtime.Service) bool { return s.Name == t.Spec.Name })
		if taken {
			if t.Bound != "" || t.Returns {
				o.namesakes = append(o.namesakes, t)
			}
			o.problems = append(o.problems, problem{service: t.Spec.Name, err: errors.New("weir-edge has a service of the same name, so it does not move the swarm's: give one of them another name")})
		}
		return taken
	})
}

// addManaged adds managed services to the engine's input: each with its task and, if that cannot run where it
// is to go, one that has failed there.
func (l *lives) addManaged(o *observation, in *engine.Input) {
	maps.DeleteFunc(l.tasks, func(name string, _ boundSince) bool { return o.managed(name) == nil })
	for i := range o.state.Managed {
		t := &o.state.Managed[i]
		in.Services = append(in.Services, engine.Service{Spec: t.Spec.Masked(), Bound: engine.Bound{Managed: true, Stays: t.Stays}})
		task := engine.Instance{ID: t.Spec.Name + ".1", Service: t.Spec.Name, Node: t.Node, State: engine.InstanceRunning, Since: l.noteTask(t)}
		if t.Bound != "" && t.Waits != "" {
			failed := task
			failed.Node, failed.State, failed.Reason = t.Bound, engine.InstanceFailed, t.Waits
			in.Instances = append(in.Instances, failed)
		}
		if t.Node == "" {
			continue
		}
		if why := o.refusal(t); why != "" {
			task.MinRefused, task.Reason = t.Wanted && t.Bound == "", why
		}
		in.Instances = append(in.Instances, task)
	}
}

// refusal returns why the agent refuses a task its minimum; empty if it does not, or refuses another value.
func (o *observation) refusal(t *runtime.Managed) string {
	switch c := o.taskOf(t); {
	case c == nil || keeps(c, t):
		return ""
	case t.Spec.InMinBPS() > 0 && o.measured(t.Node).sharesOnlySent():
		return onlySent
	case c.State == v1.StateRejected:
		return cmp.Or(c.Reason, "no reason is known")
	}
	return ""
}

// keeps reports whether a task has its minimums.
func keeps(c *monitor.Container, t *runtime.Managed) bool {
	return c.AdmittedBPS >= t.Spec.MinBPS() && c.In.AdmittedBPS >= t.Spec.InMinBPS()
}

// taskOf returns the task of a managed service as the agent of its node knows it; nil if it does not.
func (o *observation) taskOf(t *runtime.Managed) *monitor.Container {
	n := o.measured(t.Node)
	if n == nil || t.ContainerID == "" {
		return nil
	}
	i := slices.IndexFunc(n.Reported.Containers, func(c monitor.Container) bool { return c.ID == t.ContainerID })
	if i < 0 {
		return nil
	}
	return &n.Reported.Containers[i]
}

// managed returns the managed service of that name; nil if there is none.
func (o *observation) managed(name string) *runtime.Managed {
	i := slices.IndexFunc(o.state.Managed, func(t runtime.Managed) bool { return t.Spec.Name == name })
	if i < 0 {
		return nil
	}
	return &o.state.Managed[i]
}

// planBinds returns the moves that begin and end, and adds to the division what services that are on their
// way need.
func (l *lives) planBinds(o *observation, decisions []engine.Decision, division *engine.Division) (list []bindStep) {
	for i := range o.state.Managed {
		t := &o.state.Managed[i]
		if t.Returns {
			list = append(list, bindStep{service: t})
		}
		if t.Bound == "" {
			continue
		}
		division.AddLocal(t.Spec.Name, t.Bound, engine.MinimumOf(&t.Spec))
		if said, failed := o.arrival(t, l.noteTask(t)); said != "" {
			list = append(list, bindStep{service: t, said: said, failed: failed})
		}
	}
	for i := range o.namesakes {
		list = append(list, bindStep{service: &o.namesakes[i]})
	}
	for _, d := range decisions {
		t := o.managed(d.Service)
		if t != nil && d.Action == engine.Move {
			division.AddLocal(d.Service, d.Node, d.Minimum())
			list = append(list, bindStep{service: t, node: d.Node, decision: d})
		}
	}
	return list
}

// arrival returns how the move of a bound service has ended, in words, and whether it was in vain; empty while
// it goes on.
func (o *observation) arrival(t *runtime.Managed, since time.Time) (said string, failed bool) {
	c, n := o.taskOf(t), o.measured(t.Bound)
	switch {
	case t.Node == t.Bound && o.refusal(t) != "":
		return fmt.Sprintf("it runs on %s, which does not keep its minimum: %s", t.Bound, o.refusal(t)), true
	case t.Node == t.Bound && c != nil && keeps(c, t):
		return fmt.Sprintf("it runs on %s, which keeps its minimum %s", t.Bound, engine.MinimumOf(&t.Spec)), false
	case !t.Wanted:
		return "it is not to be moved any more", false
	case n == nil || !n.Node.Ready:
		return t.Bound + ", where it was to go, has gone", true
	case t.Waits != "":
		return fmt.Sprintf("the swarm cannot run it on %s: %s", t.Bound, t.Waits), true
	case time.Since(since) > bindTimeout:
		return fmt.Sprintf("it does not run on %s after %v", t.Bound, bindTimeout), true
	}
	return "", false
}

// apply changes the constraint, for a move only once the node has promised the minimum.
func (s *bindStep) apply(ctx context.Context, promised engine.Promises) {
	promises := func(in bool) bool {
		return promised.ClaimBPS(engine.Entry{Service: s.service.Spec.Name, Node: s.node, In: in}) >= s.decision.Minimum().Of(in)
	}
	if s.node != "" && !(promises(false) && promises(true)) {
		s.err = fmt.Errorf("%s does not promise what %s needs any more", s.node, s.service.Spec.Name)
		return
	}
	s.err = s.service.Bind(ctx, s.node)
}

// sayMoved reports moves that begin or have ended, but of services that were changed meanwhile, which another
// round sees, and services that stay where they are refused.
func (j *journal) sayMoved(o *observation, binds []bindStep, decisions []engine.Decision) {
	for i := range binds {
		s := &binds[i]
		about := problem{service: s.service.Spec.Name, node: cmp.Or(s.node, s.service.Bound)}
		switch {
		case errors.Is(s.err, runtime.ErrChanged):
		case s.err != nil:
			about.err = s.err
			j.fail(about)
		case s.node != "":
			j.recordDecision(s.decision)
		case s.failed:
			about.err = errors.New(s.said)
			j.fail(about)
		case s.said == "" || !s.service.Wanted: // it is said already, or its owner took the label away
		default:
			j.record(edge.Event{Kind: edge.EventStarted, Service: about.service, Node: about.node, Message: s.said})
		}
	}
	for _, d := range decisions {
		if d.Action == engine.Keep && d.Cause == engine.CauseRefused && o.managed(d.Service) != nil {
			j.fail(problem{service: d.Service, same: "stays", err: errors.New(d.Reason)})
		}
	}
}

// describeManaged adds to a row what is known of a managed service.
func describeManaged(o *observation, w *edge.Instance, decisions []engine.Decision) {
	t := o.managed(w.Service)
	if t == nil {
		return
	}
	w.Image, w.ContainerID, w.ServiceMinBPS, w.ServiceInMinBPS = t.Spec.Image, t.ContainerID, t.Spec.MinBPS(), t.Spec.InMinBPS()
	if c := o.taskOf(t); c != nil && w.Node == t.Node {
		w.MinBPS, w.InMinBPS = c.AdmittedBPS, c.In.AdmittedBPS
	}
	for _, d := range decisions {
		if d.Service == w.Service && d.Cause != engine.CauseNone {
			w.Reason = d.Reason
		}
	}
	switch {
	case t.Bound != "":
		w.Reason = "it goes to " + t.Bound
	case w.ServiceMinBPS == 0 && w.ServiceInMinBPS == 0:
		w.Reason = "its containers have no weir.min: docker service update --container-label-add weir.min=RATE " + w.Service
	}
}
