package run

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// lives is the state of instances that the container engine does not know.
type lives struct {
	// starting and stopping are the operations in progress.
	starting map[string]*start
	stopping map[string]*stop
	// cannotStart is the error of each instance that could not be created.
	cannotStart map[string]string
	since       map[string]stateSince
	runs        map[string]*programRun
	// ended is when instances ended, for rounds that observed them before.
	ended map[string]time.Time
	// orphans are promises without an instance, with the time of their discovery.
	orphans map[string]time.Time
	// missingSince is since when a service has no instance because of an update.
	missingSince map[string]time.Time
	// tasks are those of managed services.
	tasks map[string]boundSince
}

// start is an instance that is being started.
type start struct {
	decision engine.Decision
	image    string
	at       time.Time
	transfer time.Duration // of the image, with the time before it
}

// stop is an instance that is being stopped.
type stop struct {
	decision engine.Decision
	at       time.Time
	ending   bool // the engine has been told
	// isDirect: users come past the proxy until it has ended.
	isDirect bool
}

type stateSince struct {
	state engine.InstanceState
	at    time.Time
	// first is when this weir-edge first saw the instance.
	first time.Time
}

// programRun is the present run of an instance's program.
type programRun struct {
	name string
	// began is when this weir-edge first saw it run; zero if it does not run yet.
	began time.Time
	// restarts are the starts after the first one, within restartPeriod; why is why the program has
	// ended. By this weir-edge's clock, as those of nodes may be wrong.
	restarts []time.Time
	why      string
	// restarting: this weir-edge is starting it again.
	restarting bool
}

const (
	// mostRestarts is the number of restarts within restartPeriod from which an instance that ends
	// once more has failed. Below it, it stays where it is and starts again at once.
	mostRestarts  = 3
	restartPeriod = time.Minute
)

func newLives() lives {
	return lives{
		starting: map[string]*start{}, stopping: map[string]*stop{}, cannotStart: map[string]string{},
		since: map[string]stateSince{}, runs: map[string]*programRun{}, ended: map[string]time.Time{}, orphans: map[string]time.Time{},
		missingSince: map[string]time.Time{}, tasks: map[string]boundSince{},
	}
}

// hasEnded reports whether an instance has ended since the observation.
func (l *lives) hasEnded(o *observation, id string) bool { return l.ended[id].After(o.at) }

// isStopping reports whether an instance is being stopped, or has ended since the observation.
func (l *lives) isStopping(o *observation, id string) bool {
	return l.stopping[id] != nil || o.promises[id].Stopping || l.hasEnded(o, id)
}

// instances returns the instances that run, start, end or are promised.
func (l *lives) instances(o *observation) (list []engine.Instance) {
	there := map[string]bool{}
	for _, c := range o.state.Instances {
		there[c.ID] = true
		i := newInstance(c.ID, o.promises[c.ID])
		i.Service, i.Node, i.Version = c.Service, c.Node, o.madeOf(c.Service, cmp.Or(c.Made, i.Version))
		l.noteRun(c)
		i.State, i.Reason = l.stateOf(o, c)
		if c.Waits {
			l.noteWait(c.ID)
		}
		list = append(list, i)
	}
	for id, p := range o.promises {
		if there[id] || p.Claim {
			continue
		}
		i := newInstance(id, p)
		switch i.State = engine.InstanceStarting; {
		case l.isStopping(o, id):
			i.State = engine.InstanceStopping
		case l.cannotStart[id] != "":
			i.State, i.Reason = engine.InstanceFailed, l.cannotStart[id]
		}
		list = append(list, i)
	}
	for id, ending := range l.stopping {
		// The name stays reserved: a start under it would end with the old instance.
		if _, promised := o.promises[id]; !promised && !there[id] {
			d := ending.decision
			list = append(list, engine.Instance{ID: id, Service: d.Service, Node: d.Node, State: engine.InstanceStopping})
		}
	}
	l.date(o, list)
	return list
}

// noteRun records whether the program of an instance runs, has ended, or was restarted.
func (l *lives) noteRun(c runtime.Instance) {
	now, r := time.Now(), l.runs[c.ID]
	if r == nil {
		r = &programRun{name: c.Run}
		l.runs[c.ID] = r
	}
	if c.Run != r.name {
		if r.name != "" {
			r.restarts = append(r.restarts, now)
		}
		r.name, r.began = c.Run, time.Time{}
	}
	r.restarts = slices.DeleteFunc(r.restarts, func(at time.Time) bool { return now.Sub(at) > restartPeriod })
	switch {
	case c.Phase == runtime.Ended:
		r.why = c.Reason
	case c.Phase == runtime.Running && r.began.IsZero():
		r.began = now
	}
}

// noteWait records that an instance does not start yet: what it waits for is no part of its start-up, and the time
// that it may take to start begins later.
func (l *lives) noteWait(id string) {
	now := time.Now()
	if known, is := l.since[id]; is {
		known.at = now
		l.since[id] = known
	}
	if s := l.starting[id]; s != nil {
		s.transfer = now.Sub(s.at)
	}
}

// toRestart returns the instances that have ended, and that their engine does not start again.
func (l *lives) toRestart(o *observation) (list []runtime.Instance) {
	for _, c := range o.state.Instances {
		_, deployed := o.specs[c.Service]
		if r := l.runs[c.ID]; c.Stays && deployed && !r.restarting && l.since[c.ID].state == engine.InstanceStarting && !l.isStopping(o, c.ID) {
			r.restarting = true
			list = append(list, c)
		}
	}
	return list
}

// noteRestart records the result of a restart; one that failed counts, too.
func (l *lives) noteRestart(id string, err error) {
	if r := l.runs[id]; r != nil {
		if r.restarting = false; err != nil {
			r.restarts = append(r.restarts, time.Now())
		}
	}
}

func newInstance(id string, p engine.Promise) engine.Instance {
	return engine.Instance{ID: id, Service: p.Service, Node: p.Node, LimitBytes: p.LimitBytes, Replaces: p.Replaces, Version: p.Version}
}

// date sets the time of each instance's present state, and drops instances that are gone.
func (l *lives) date(o *observation, list []engine.Instance) {
	ids, now := map[string]bool{}, time.Now()
	for i := range list {
		id := list[i].ID
		ids[id] = true
		if known, ok := l.since[id]; !ok {
			l.since[id] = stateSince{list[i].State, now, now}
		} else if known.state != list[i].State {
			l.since[id] = stateSince{list[i].State, now, known.first}
		}
		list[i].Since = l.since[id].at
	}
	maps.DeleteFunc(l.since, func(id string, _ stateSince) bool { return !ids[id] })
	maps.DeleteFunc(l.runs, func(id string, _ *programRun) bool { return !ids[id] })
	maps.DeleteFunc(l.cannotStart, func(id string, _ string) bool { return !ids[id] })
	maps.DeleteFunc(l.starting, func(id string, on *start) bool { return !ids[id] && on.at.Before(o.at) })
}

// noteStart records the result of a start. An error is ignored if the instance has ended since,
// because another of that name may be starting.
func (l *lives) noteStart(s *start, err error) {
	if id := s.decision.Instance; err != nil && l.starting[id] == s {
		delete(l.starting, id)
		l.cannotStart[id] = err.Error()
	}
}

// arrived returns the start of an instance that answers for the first time; nil if this weir-edge
// did not start it.
func (l *lives) arrived(id string) *start {
	started := l.starting[id]
	delete(l.starting, id)
	return started
}

// endGap returns for how long users missed a service because of an update, in words; empty if they did
// not.
func (l *lives) endGap(service string) string {
	since, missing := l.missingSince[service]
	if delete(l.missingSince, service); !missing {
		return ""
	}
	return fmt.Sprintf("; users were without it for %.2f s", time.Since(since).Seconds())
}

// drain marks an instance to get no new users. It reports whether it was marked before.
func (l *lives) drain(d engine.Decision) bool {
	if l.stopping[d.Instance] != nil {
		return false
	}
	l.stopping[d.Instance] = &stop{decision: d, at: time.Now()}
	if d.Cause == engine.CauseUpdate {
		l.missingSince[d.Service] = time.Now()
	}
	delete(l.starting, d.Instance)
	return true
}

// drained returns the instances to stop now: without users, or past drainTimeout. It includes
// instances that an earlier weir-edge was stopping.
func (l *lives) drained(o *observation) (list []engine.Decision) {
	maps.DeleteFunc(l.ended, func(_ string, at time.Time) bool { return o.at.Sub(at) > roundTimeout })
	for id, p := range o.promises {
		if p.Stopping && !l.hasEnded(o, id) {
			l.drain(engine.Decision{Action: engine.Stop, Service: p.Service, Instance: id, Node: p.Node})
		}
	}
	for id, ending := range l.stopping {
		// A proxy that does not answer may have any number of users.
		unknown := slices.ContainsFunc(o.proxies[ending.decision.Service], func(p observedProxy) bool { return p.err != nil })
		users := 0
		for _, t := range serversOf(o, id) {
			users += t.Users + t.Waiting
			unknown = unknown || t.Up && !t.Leaving // the report is older than what the proxy was told
		}
		// Its proxies were told in this round; their reports are older.
		waited := time.Since(ending.at)
		if ending.ending || waited < period || (users > 0 || unknown) && waited < drainTimeout {
			continue
		}
		ending.ending, ending.isDirect = true, len(o.specs[ending.decision.Service].Ports) == 0
		list = append(list, ending.decision)
	}
	return list
}

// drainTimeout is the longest time that a stopping instance keeps its users.
const drainTimeout = 10 * time.Second

// noteEnd records the result of a stop. After an error the next round decides again.
func (l *lives) noteEnd(id string, at time.Time, err error) {
	stopped := l.stopping[id]
	delete(l.stopping, id)
	if err == nil {
		if stopped != nil && stopped.isDirect && !l.missingSince[stopped.decision.Service].IsZero() {
			l.missingSince[stopped.decision.Service] = at
		}
		delete(l.cannotStart, id)
		l.ended[id] = at
	}
}

const (
	// orphanTimeout is the time after which a promise without an instance is withdrawn. A longer
	// start, for example of a large image, finds its promise gone.
	orphanTimeout = 15 * time.Second
	// vanishedTimeout is orphanTimeout for an instance that this weir-edge has seen: another program has
	// removed it. Meanwhile another weir-edge that starts one of its name has done so.
	vanishedTimeout = 2 * time.Second
	// lateStart is the time that a start may continue after its service was removed.
	lateStart = 5 * time.Second
)

// orphaned returns the promises that have been without an instance for too long.
func (l *lives) orphaned(o *observation) (gone []string) {
	maps.DeleteFunc(l.orphans, func(id string, _ time.Time) bool { _, promised := o.promises[id]; return !promised })
	for id, p := range o.promises {
		if p.Claim {
			continue
		}
		_, deployed := o.specs[p.Service]
		_, broken := o.broken[p.Service]
		removed := !deployed && !broken
		here := slices.ContainsFunc(o.state.Instances, func(c runtime.Instance) bool { return c.ID == id })
		patience := orphanTimeout
		if l.runs[id] != nil {
			patience = vanishedTimeout
		}
		switch since := l.orphans[id]; {
		case here || l.starting[id] != nil && !removed || l.stopping[id] != nil:
			delete(l.orphans, id)
		case since.IsZero():
			l.orphans[id] = time.Now()
		case time.Since(since) > patience, removed && time.Since(since) > lateStart:
			gone = append(gone, id)
		}
	}
	return gone
}

// planPromises returns the promises to withdraw, and those to make for instances that have none or
// run on another node.
func (l *lives) planPromises(o *observation) promiseStep {
	step := promiseStep{gone: l.orphaned(o), adopted: engine.Promises{}}
	for _, c := range o.state.Instances {
		p, promised := o.promises[c.ID]
		if promised && p.Node == c.Node || l.stopping[c.ID] != nil || l.hasEnded(o, c.ID) {
			continue
		}
		if !promised {
			p = engine.Promise{Service: c.Service, LimitBytes: o.specs[c.Service].Limits.MemoryBytes, Version: c.Made}
		}
		p.Node = c.Node // nodes are renamed when another one of their name joins
		step.adopted[c.ID] = p
	}
	return step
}
