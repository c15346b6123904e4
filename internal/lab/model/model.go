// Package model answers what a port with three queues will do before it is
// built: mean queue, throughput, waiting time, loss and distributions.
//
// # Problem
//
// A port has three finite queues. Packets of the EF queue are served first, at
// the rate of the whole port; only when there are none, the AF and the BE queue
// are polled in turn, AF served at its guaranteed rate, BE at the rest. Arrivals
// are Poisson, service and polling times exponential.
//
// # Method
//
// The port is a continuous-time Markov chain. A state says whose packet is on
// the line (f = 0, 1, 2 for EF, AF, BE), how many packets are in each queue
// (i, j, k; the one on the line counts) and whose turn it is. Transitions are
// listed from a state by [Port.leave]; only states that can be reached from the
// empty port are kept. The distribution at balance is found by sweeps of
// Gauss-Seidel with aggregation (solve.go) and everything else is a sum over it.
//
// # Source
//
// F. Li and others, "A QoS Guaranteed Technique for Cloud Applications Based on
// Software Defined Networking" (IEEE Access 2017, "SDN-LLQ"), section IV,
// equations 6 to 33. They contradict each other and leave cases open;
// docs/model.md lists every one and what was decided here. printed.go has the
// equations as they are printed.
//
// # Limits
//
// Packets arrive as Poisson processes and their lengths are exponential; real
// ones come in bursts and sizes. A result holds for the long run.
package model

import (
	"errors"
	"fmt"
	"math"
)

// The queues, in the order of all arrays of three.
const (
	EF = iota
	AF
	BE
)

// QueueNames are the queues' names, in that order.
var QueueNames = [3]string{"ef", "af", "be"}

// AfterEF says whose turn it is when the EF queue has been emptied.
type AfterEF string

// Whose turn it is after EF.
const (
	// Resume: the turn goes on, and its time too.
	Resume AfterEF = "resume"
	// FromAF: AF's, always (equation 8: the only way out of f = 0), also when BE's turn
	// was to begin while EF was served. It begins when EF has been emptied.
	FromAF AfterEF = "af"
)

// Switch says when the scheduler turns to another queue that goes first now: EF
// because of an arrival, AF or BE because of an arrival or the end of a turn.
type Switch string

// When the scheduler turns to another queue.
const (
	// AtPacketEnd: when the packet on the line has been sent.
	AtPacketEnd Switch = "packet-end"
	// AtOnce: the packet on the line is interrupted and sent on later.
	AtOnce Switch = "at-once"
)

// Empty says what happens while the queue whose turn it is has no packet.
type Empty string

// What happens at an empty queue.
const (
	// Lend: the other queue is served and the turn is kept.
	Lend Empty = "lend"
	// Skip: the other queue is served and gets the turn.
	Skip Empty = "skip"
	// Wait: the line is idle.
	Wait Empty = "wait"
)

// Port is a port with three queues, in packets per second.
type Port struct {
	ArrivalPPS [3]float64
	ServicePPS [3]float64
	// Places of a queue, the one of the packet in service included.
	Places [3]int
	// PollPerSecond is the rate theta at which a turn ends: one over the mean
	// polling time.
	PollPerSecond float64

	AfterEF AfterEF
	Switch  Switch
	Empty   Empty
}

// Check returns an error for an invalid port.
func (p Port) Check() error {
	for q, name := range QueueNames {
		switch {
		case !(p.ArrivalPPS[q] >= 0) || math.IsInf(p.ArrivalPPS[q], 0):
			return fmt.Errorf("arrivals of %s are %v packets/s; give 0 or more", name, p.ArrivalPPS[q])
		case !(p.ServicePPS[q] > 0) || math.IsInf(p.ServicePPS[q], 0):
			return fmt.Errorf("%s is served at %v packets/s; give a rate above 0", name, p.ServicePPS[q])
		case p.Places[q] < 1:
			return fmt.Errorf("%s has %d places; give at least 1, for the packet in service", name, p.Places[q])
		}
	}
	if p.ArrivalPPS == [3]float64{} {
		return errors.New("nothing arrives at any queue; give at least one an arrival rate above 0")
	}
	if !(p.PollPerSecond > 0) || math.IsInf(p.PollPerSecond, 0) {
		return fmt.Errorf("polling rate is %v per second; give one above 0", p.PollPerSecond)
	}
	if p.AfterEF != Resume && p.AfterEF != FromAF {
		return fmt.Errorf("polling after EF %q is neither %s nor %s", p.AfterEF, Resume, FromAF)
	}
	if p.Switch != AtPacketEnd && p.Switch != AtOnce {
		return fmt.Errorf("switch %q is neither %s nor %s", p.Switch, AtPacketEnd, AtOnce)
	}
	if p.Empty != Lend && p.Empty != Skip && p.Empty != Wait {
		return fmt.Errorf("empty queue %q is neither %s, %s nor %s", p.Empty, Lend, Skip, Wait)
	}
	return p.checkSize()
}

// What a solution needs.
const (
	// Measured: half of it is held, the rest is garbage not yet collected.
	bytesPerState = 215
	// MaxMemoryBytes is the most that a solution may take.
	MaxMemoryBytes = 1 << 30
)

// checkSize refuses what would not fit into memory, or not end.
func (p Port) checkSize() error {
	states := float64(phases)
	for _, places := range p.Places {
		states *= float64(places) + 1
	}
	if bytes := states * bytesPerState; bytes > MaxMemoryBytes {
		return fmt.Errorf("%d, %d and %d places are %.3g states, which take %.3g GB of memory (at most %.3g GB is used); give fewer places",
			p.Places[EF], p.Places[AF], p.Places[BE], states, bytes/1e9, MaxMemoryBytes/1e9)
	}
	return nil
}
