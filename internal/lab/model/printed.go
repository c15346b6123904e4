package model

import "context"

// Closing says where the last row of equation 8 leads, which the paper does not
// print.
type Closing int

// Where f = 2 leads.
const (
	ToAF Closing = AF // as the text says: "state 2 -> 1"
	ToEF Closing = EF // a circle
)

// SolvePrinted solves the chain as equations 7 to 22 have it: the scheduler stays
// with each queue for a polling time, also when it is empty, also when a packet
// of EF waits, and goes 0 -> 1 -> 2 and on to closing. Only the misprints on the
// diagonal, which is minus the sum of its row in every chain, and mu_EF on k
// instead of i are put right. Throughput is counted as equations 26, 29 and 32
// do, also from an empty queue, and waiting as equations 27, 30 and 33 from that.
func SolvePrinted(ctx context.Context, p Port, closing Closing) (*Result, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	next := [3]int{EF: AF, AF: BE, BE: int(closing)}
	// When f = 2 leads to f = 1, EF is never served: its queue fills up, and
	// states with fewer packets, or f = 0, are left for good. Begin after that.
	start := state{serves: AF, turn: AF}
	if p.ArrivalPPS[EF] > 0 {
		start.packets[EF] = p.Places[EF]
	}
	c := newChain(p.Places, start, func(s state, visit func(state, float64)) {
		for queue, rate := range p.ArrivalPPS {
			if rate > 0 && s.packets[queue] < p.Places[queue] {
				to := s
				to.packets[queue]++
				visit(to, rate)
			}
		}
		if s.busy() {
			to := s
			to.packets[s.serves]--
			visit(to, p.ServicePPS[s.serves])
		}
		s.serves = next[s.serves]
		visit(s, p.PollPerSecond)
	})
	x, residual, err := c.solve(ctx)
	if err != nil {
		return nil, err
	}
	r := &Result{States: len(x), Transitions: len(c.from), Residual: residual, chain: c, distribution: x}
	r.sum(p)
	var stays [3]float64
	for s, share := range x {
		stays[c.state(s).serves] += share
	}
	for q := range r.Queues {
		queue := &r.Queues[q]
		queue.ThroughputPPS = stays[q] * p.ServicePPS[q]
		queue.WaitSeconds = queue.MeanPackets / queue.ThroughputPPS
	}
	return r, nil
}
