package engine

import (
	"fmt"

	"github.com/weir-project/weir/internal/edge/spec"
)

// Algorithm judges one alternative: it sets its Score (higher is better) or Refused (the reason to
// exclude it). It is a pure function.
type Algorithm func(*Question, *Alternative)

// Question is the situation for which an algorithm judges alternatives.
type Question struct {
	Service *spec.Spec
	Facts   Facts
	// Must: an instance is required at any cost.
	Must bool
	// BeforeSeconds is the expected response time if nothing changes, IdleSeconds that of a single
	// user alone.
	BeforeSeconds, IdleSeconds float64
	// ContainerExhausted: an instance of the service uses all of its CPU limit.
	ContainerExhausted bool
}

// builtIn are the algorithms that need no configuration.
func builtIn() map[string]Algorithm {
	return map[string]Algorithm{spec.AlgorithmLocal: local, spec.AlgorithmRemote: remote, spec.AlgorithmHybrid: hybrid}
}

// HasAlgorithm reports whether the engine has an algorithm of that name.
func (e *Engine) HasAlgorithm(name string) bool {
	return name == spec.AlgorithmRule || e.algorithms[name] != nil
}

// algorithm returns the algorithm that a service asks for; if it is unknown, hybrid and the reason.
func (e *Engine) algorithm(s *spec.Spec) (Algorithm, string) {
	if s.Algorithm == spec.AlgorithmRule {
		algorithm, err := e.rules.get(s.Rule)
		if err == nil {
			return algorithm, ""
		}
		return hybrid, fmt.Sprintf(" (by the algorithm hybrid, as the service's rule cannot be used: %v)", err)
	}
	if algorithm := e.algorithms[s.Algorithm]; algorithm != nil {
		return algorithm, ""
	}
	return hybrid, fmt.Sprintf(" (by the algorithm hybrid, as there is no algorithm %q)", s.Algorithm)
}

func (s *service) algorithmName() string {
	if s.fallback != "" {
		return spec.AlgorithmHybrid
	}
	return s.Spec.Algorithm
}

// local is PiCasso's local replication: add an instance on a node that has one already, unless the
// node or the container is exhausted (sections IV.C and V: both would share the exhausted
// resource).
func local(q *Question, a *Alternative) {
	switch {
	case !a.Local:
		a.Refused = "it has no instance of the service, and replication is local"
	case a.Exhausted != "":
		a.Refused = a.Exhausted + ", and another instance would share them"
	case q.ContainerExhausted:
		a.Refused = "a container of the service is exhausted, and another one would share the node with it"
	}
	a.Score = -a.ResponseSeconds
}

// remote is PiCasso's remote replication: add an instance on another node if transfer and start-up
// take less time than the service can wait (section V).
func remote(q *Question, a *Alternative) {
	cost, wait := a.cost(), q.Service.WaitSeconds()
	switch {
	case a.Local:
		a.Refused = "it has an instance of the service, and replication is remote"
	case a.Exhausted != "":
		a.Refused = a.Exhausted
	case wait > 0 && cost >= wait:
		a.Refused = fmt.Sprintf("transfer (%s) and start-up (%s) are not below the %s that the service can wait", duration(a.TransferSeconds), duration(a.StartUpSeconds), duration(wait))
	}
	a.Score = -a.ResponseSeconds - cost*minGain
}

// hybrid chooses by what users are expected to gain against what it costs (the
// paper's future work). All is in seconds that users wait, over the time that
// demand is expected to stay as it is:
//
//	gain     = users * (1 - response after / response before) * (horizon - cost)
//	cost     = users * (transfer + start-up) * minGain
//	standing = users * minGain * horizon
//
// The last is for an instance more, which has to be worth its memory; one that is
// moved costs none, but has to gain as much. If users are too many for the instances, one that
// shortens their wait at all is worth it: of ten, another one gains less than a tenth.
func hybrid(q *Question, a *Alternative) {
	if q.Must {
		spread(q, a)
		return
	}
	part := 1 - a.ResponseSeconds/max(q.BeforeSeconds, 1e-9)
	gain := part * max(horizon-a.cost(), 0)
	cost := a.cost() * minGain
	if a.Action == Start {
		cost += minGain * horizon
	}
	a.Score = q.Facts.Users * (gain - cost)
	switch {
	case part <= 0:
		a.Refused = "users would not wait less"
	case q.Facts.Capacity > 0 && q.Facts.Users > usersHigh*q.Facts.Capacity: // soon there is no room
	case part < minGain:
		a.Refused = fmt.Sprintf("users would wait only %.0f %% less", 100*part)
	case gain <= cost:
		a.Refused = fmt.Sprintf("users would wait %.0f %% less, which is not worth the %s until it answers", 100*part, duration(a.cost()))
	}
}

// spread scores nodes for a required instance: shortest response time first, then the least busy
// node.
func spread(q *Question, a *Alternative) {
	a.Refused = ""
	// CPU and uplink load of other services also slow users down, but do not show in the response
	// time of a service that has no users yet.
	busy := stretch(a.CPUPercent/100) + stretch(a.UplinkPercent/100)
	a.Score = -a.ResponseSeconds - q.IdleSeconds*busy - a.cost()*minGain
	if a.Exhausted != "" {
		a.Score -= horizon // only if there is no other
	}
}

// cost returns the seconds until a new instance answers: transfer plus start-up (section IV.E).
func (a *Alternative) cost() float64 { return a.TransferSeconds + a.StartUpSeconds }
