package traffic

import (
	"math/rand/v2"
)

// The queues of a Port.
const (
	portEF = iota
	portAF
	portBE
	// PortQueues is how many there are.
	PortQueues
)

// portPacket is a packet in a queue.
type portPacket struct {
	arrivedNS int64
	sequence  uint64
	bytes     int // on the wire
}

// departure is a packet that has been sent, by the port's own clock.
type departure struct {
	portPacket
	queue int
	atNS  int64
}

// portQueues are three bounded queues and one line, as package model has them unless it
// is told otherwise: EF is served first; while it is empty AF and BE have the line in
// turns of exponential length, and while the queue whose turn it is has no packet the
// other is served. A packet that is on the line is sent to its end. A packet's service
// takes its bits at its queue's rate.
//
// Time is told by the caller and only grows, so that the order of events is the same
// however late the caller is.
type portQueues struct {
	serviceBPS [PortQueues]float64
	places     [PortQueues]int
	pollNS     float64 // mean length of a turn
	random     *rand.Rand

	queues     [PortQueues][]portPacket // the one on the line is the first of its queue
	serves     int                      // the queue on the line, or none
	endsNS     int64                    // when it is free again
	turn       int
	turnEndsNS int64

	// Counted since the last take.
	lost, sent [PortQueues]uint64
	waitNS     [PortQueues]int64 // of those sent, from arrival to the end of service
}

const portIdle = -1

func newPortQueues(o PortOptions, startNS int64) *portQueues {
	p := &portQueues{
		serviceBPS: o.ServiceBPS, places: o.Places, pollNS: 1e9 / o.PollPerSecond,
		random: rand.New(rand.NewPCG(o.Seed, 2)), serves: portIdle, turn: portAF,
	}
	p.turnEndsNS = startNS + p.turnLength()
	return p
}

func (p *portQueues) turnLength() int64 { return int64(p.random.ExpFloat64() * p.pollNS) }

// arrive takes a packet in. What has happened before must have been done (advance).
func (p *portQueues) arrive(queue int, one portPacket) {
	if len(p.queues[queue]) == p.places[queue] {
		p.lost[queue]++
		return
	}
	p.queues[queue] = append(p.queues[queue], one)
	if p.serves == portIdle {
		p.serve(one.arrivedNS)
	}
}

// advance does everything that happens up to a time and tells what was sent.
func (p *portQueues) advance(untilNS int64, sent func(departure)) {
	for p.serves != portIdle && p.endsNS <= untilNS {
		at, queue := p.endsNS, p.serves
		one := p.queues[queue][0]
		p.queues[queue] = p.queues[queue][1:]
		p.sent[queue]++
		p.waitNS[queue] += at - one.arrivedNS
		p.serve(at)
		sent(departure{one, queue, at})
	}
}

// serve puts a packet on the line, if there is one.
func (p *portQueues) serve(nowNS int64) {
	for p.turnEndsNS <= nowNS {
		p.turn = portAF + portBE - p.turn
		p.turnEndsNS += p.turnLength()
	}
	p.serves = portIdle
	for _, queue := range []int{portEF, p.turn, portAF + portBE - p.turn} {
		if len(p.queues[queue]) > 0 {
			p.serves = queue
			bits := float64(8 * p.queues[queue][0].bytes)
			p.endsNS = nowNS + int64(bits*1e9/p.serviceBPS[queue])
			return
		}
	}
}
