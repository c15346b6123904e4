// Package engine decides where instances of services run (PiCasso's orchestration
// engine).
//
// # Problem
//
// A service has a varying number of users, and needs that its specification states: so
// many users at once, an answer within so many seconds, so much of the time. Nodes
// have what is left of processors, memory and uplink, and what their agents can still
// promise. Another instance costs the transfer of an image and a start, and then
// memory and attention. PiCasso (Lertsinsrutavee et al., sections III.B to V) names
// the parts and measures them; which to do when it leaves open. (Its section V: a copy
// on the same node does not shorten the response time when the node is exhausted; one
// on another node does, if the service can bear the cost; to choose by itself is future
// work.) qCon leaves open where a container goes whose minimum a node refuses
// (section 3.3.3).
//
// # Method
//
// A round is a function from an [Input] to decisions, and looks at each service in
// order of priority:
//
//  1. Failures: instances that failed or were replaced are stopped (tidy.go), and
//     wait longer each time (failure.go).
//  2. Requirements: instances of nodes that are gone or drained, or whose minimum is
//     refused, go elsewhere, and so do those that an uplink has become too slow for
//     (relieve.go); there are enough for availability and for the users that
//     have to have room (require.go).
//  3. Updates: instances of an earlier version are replaced one by one, and the service
//     goes back if the new version does not answer (update.go).
//  4. What pays: another instance, or another place, for too many users or
//     too long a wait (grow.go), fewer when users are few (shrink.go). A
//     condition has to last, nothing is undone at once, and what did not help is not
//     done again and again.
//
// Nodes for an instance are first those that can have it (place.go), of which the
// service's algorithm prefers one (algorithm.go, rule.go) by what users would wait
// then (model.go) and what it costs. What a decision puts on a node is not there for
// the next one, so what is promised never exceeds what a node has. Two engines might
// decide at the same time: a decision counts once it is in the ledger ([Commit]).
// Which containers have a promised minimum in force is divide.go's.
//
// # Limits
//
// Nodes fail independently of each other. Users are as many as a minute ago. An
// instance is as good as another one of the same service. A node has one uplink, its
// fastest.
package engine

import (
	"fmt"
	"slices"
	"time"
)

// Engine decides where instances run. It has no state between rounds except its configuration and
// is safe for concurrent use.
type Engine struct {
	algorithms map[string]Algorithm
	rules      rules
}

// New returns an engine, or the error of [Policy.Check].
func New(policy Policy) (*Engine, error) {
	if err := policy.Check(); err != nil {
		return nil, fmt.Errorf("policy of the engine: %w", err)
	}
	e := &Engine{algorithms: builtIn()}
	for name, text := range policy.Rules {
		if _, taken := e.algorithms[name]; taken {
			return nil, fmt.Errorf("policy of the engine: rules.%s: an algorithm has that name; choose another one", name)
		}
		algorithm, err := e.rules.get(text)
		if err != nil { // not after Check
			return nil, err
		}
		e.algorithms[name] = algorithm
	}
	return e, nil
}

// Round returns the decisions for one input. It is a pure function of in.
func (e *Engine) Round(in Input) Result {
	w := newWorld(e, &in)
	result := Result{Memory: Memory{Services: make(map[string]ServiceMemory, len(w.services))}}
	if w.cutOff == "" {
		result.Decisions = w.removeOrphans()
		going := slices.DeleteFunc(slices.Clone(w.services), func(s *service) bool { return s.Bound.Managed || w.goBack(s) })
		w.relieve(going)
		for _, step := range []func(*world, *service){(*world).tidy, (*world).require, (*world).update, (*world).grow, (*world).shrink, (*world).comeCloser} {
			for _, s := range going {
				step(w, s)
			}
		}
		for _, s := range w.services {
			w.manage(s)
		}
	}
	result.Memory.Left = w.left
	for _, s := range w.services {
		if w.cutOff != "" {
			s.keep(w, CauseCutOff, w.cutOff)
		}
		if len(s.decisions) == 0 {
			s.keep(w, CauseNone, s.summary())
		}
		result.Decisions = append(result.Decisions, s.decisions...)
		result.Memory.Services[s.Spec.Name] = s.memory
	}
	return result
}

// since returns how many seconds ago t was, or 0 if it is in the future.
func (w *world) since(t time.Time) float64 { return max(w.at.Sub(t).Seconds(), 0) }
