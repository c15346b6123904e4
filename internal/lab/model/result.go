package model

import "context"

// Queue is what happens to one queue.
type Queue struct {
	// MeanPackets is the mean number of packets in the queue, the one in service
	// included.
	MeanPackets float64
	// ThroughputPPS counts packets that have been sent.
	ThroughputPPS float64
	// WaitSeconds is the mean time from a packet's arrival until it is sent; 0
	// for a queue that carries nothing.
	WaitSeconds float64
	// Loss is the share of arriving packets that find the queue full; 0 for a
	// queue at which nothing arrives.
	Loss float64
	// Distribution is the share of time with 0, 1, ... packets in the queue.
	Distribution []float64
}

// StateShare is one state of equation 7 and the share of time spent in it.
type StateShare struct {
	F, I, J, K int
	Share      float64
}

// Result is what a port does in the long run.
type Result struct {
	Queues [3]Queue
	// Serves is the share of time in which a packet of each queue is sent.
	Serves [3]float64
	// Transitions and States are the chain's size, Residual the share of the
	// probability flow that does not balance.
	States, Transitions int
	Residual            float64

	chain        *chain
	distribution []float64
}

// Solve computes what a port does in the long run.
func Solve(ctx context.Context, p Port) (*Result, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	c := newChain(p.Places, p.start(), p.leave)
	x, residual, err := c.solve(ctx)
	if err != nil {
		return nil, err
	}
	r := &Result{States: len(x), Transitions: len(c.from), Residual: residual, chain: c, distribution: x}
	r.sum(p)
	return r, nil
}

// sum computes everything that is a sum over the distribution: equations 25 to
// 33, with throughput counted only while there is a packet to send.
func (r *Result) sum(p Port) {
	for q := range r.Queues {
		r.Queues[q].Distribution = make([]float64, p.Places[q]+1)
	}
	for s, share := range r.distribution {
		state := r.chain.state(s)
		for q, packets := range state.packets {
			r.Queues[q].Distribution[packets] += share
		}
		if state.busy() {
			r.Serves[state.serves] += share
		}
	}
	for q := range r.Queues {
		queue := &r.Queues[q]
		for packets, share := range queue.Distribution {
			queue.MeanPackets += float64(packets) * share
		}
		if p.ArrivalPPS[q] == 0 {
			continue
		}
		queue.ThroughputPPS = r.Serves[q] * p.ServicePPS[q]
		queue.WaitSeconds = queue.MeanPackets / queue.ThroughputPPS
		queue.Loss = queue.Distribution[p.Places[q]] // arrivals see time averages
	}
}

// StateShares returns all reachable states of equation 7, in its order.
func (r *Result) StateShares() []StateShare {
	var list []StateShare
	at := map[[4]int]int{}
	for s, share := range r.distribution {
		state := r.chain.state(s)
		f := state.serves
		key := [4]int{f, state.packets[EF], state.packets[AF], state.packets[BE]}
		if n, ok := at[key]; ok {
			list[n].Share += share
			continue
		}
		at[key] = len(list)
		list = append(list, StateShare{f, key[1], key[2], key[3], share})
	}
	return list
}
