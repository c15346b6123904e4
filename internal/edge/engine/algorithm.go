package engine

import (
	"fmt"

	"github.com/weir-project/weir/internal/edge/spec"
)

// Algorithm judges one alternative: it sets Score, higher is better, or Refused,
// which says why that is not done at all. It keeps nothing and asks nobody.
type Algorithm func(*Question, *Alternative)

// Question is what an alternative is to be judged for.
type Question struct {
	Service *spec.Spec
	Policy  *Policy
	Facts   Facts
	Cause   Cause
	// Must: there has to be another instance, whatever it gains.
	Must bool
	// BeforeSeconds is what users are expected to wait if nothing is done, IdleSeconds
	// what one would wait alone.
	BeforeSeconds, IdleSeconds float64
	RequestsPerSecond          float64
	// ContainerExhausted: one of the service's instances uses all the processors
	// that it may.
	ContainerExhausted bool
}

// builtIn are the algorithms that need no configuration.
func builtIn() map[string]Algorithm {
	return map[string]Algorithm{spec.AlgorithmLocal: local, spec.AlgorithmRemote: remote, spec.AlgorithmHybrid: hybrid}
}

// HasAlgorithm says whether a service may ask for an algorithm of that name.
func (e *Engine) HasAlgorithm(name string) bool {
	return name == spec.AlgorithmRule || e.algorithms[name] != nil
}

// algorithm is the one that a service asks for; or another one, and why.
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

// local is PiCasso's local replication: another instance where there is one, as long
// as neither the node nor the container is exhausted (sections IV.C and V: it would
// share what is exhausted).
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

// remote is PiCasso's remote replication: another instance on another node, if that
// costs less time than the service can wait (section V).
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
	a.Score = -a.ResponseSeconds - cost/costWeight
}

// costWeight is how many seconds of transfer and start-up weigh as much as one second
// of every answer.
const costWeight = 10

// hybrid chooses by what users are expected to gain against what it costs (the
// paper's future work). All is in seconds that somebody waits, over the time that
// demand is expected to stay as it is:
//
//	gain     = requests/s * (response before - response after) * (horizon - cost)
//	cost     = (transfer + start-up) * requests/s * response before * the part of
//	           users that gain at least, MinGainPercent
//	standing = requests/s * response before * MinGainPercent * horizon
//
// The last is for an instance more, which has to be worth its memory; one that is
// moved costs none, but has to gain as much.
func hybrid(q *Question, a *Alternative) {
	horizon, part := q.Policy.HorizonSeconds, q.Policy.MinGainPercent/100
	requests := q.RequestsPerSecond
	if requests == 0 && q.BeforeSeconds > 0 {
		requests = q.Facts.Users / q.BeforeSeconds
	}
	if q.Must {
		spread(q, a)
		return
	}
	gain := requests * (q.BeforeSeconds - a.ResponseSeconds) * max(horizon-a.cost(), 0)
	cost := a.cost() * requests * q.BeforeSeconds * part
	standing := requests * q.BeforeSeconds * part * horizon
	a.Score = gain - cost - standing
	if a.Action == Move { // what it must gain it does not pay
		a.Score += standing
	}
	switch less := 100 * (1 - a.ResponseSeconds/max(q.BeforeSeconds, 1e-9)); {
	case less <= 0:
		a.Refused = "users would not wait less"
	case less < q.Policy.MinGainPercent:
		a.Refused = fmt.Sprintf("users would wait only %.0f %% less", less)
	case gain <= cost+standing && a.Action == Start, gain <= cost:
		a.Refused = fmt.Sprintf("users would wait %.0f %% less, which is not worth the %s until it answers", less, duration(a.cost()))
	}
}

// spread is how an instance is placed that has to be somewhere: where users wait
// least, on a node with the most to spare.
func spread(q *Question, a *Alternative) {
	a.Refused = ""
	// What others use of the processors and of the uplink makes users wait as well, and is not
	// in the response time of a service that has no users yet.
	busy := stretch(a.CPUPercent/100) + stretch(a.UplinkPercent/100)
	a.Score = -a.ResponseSeconds - q.IdleSeconds*busy - a.cost()/costWeight
	if a.Exhausted != "" {
		a.Score -= q.Policy.HorizonSeconds // only if there is no other
	}
}

// cost is how long it takes until a new instance answers (section IV.E).
func (a *Alternative) cost() float64 { return a.TransferSeconds + a.StartUpSeconds }
