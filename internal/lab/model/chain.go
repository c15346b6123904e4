package model

// state is one state of the chain. Equation 7 has who is served and the
// packets; without the turn, polling "in turn" would begin again with AF after
// every packet of EF.
type state struct {
	serves  int    // EF, AF or BE; an idle line serves EF, or waits for the turn's queue
	turn    int    // AF or BE
	packets [3]int // the one on the line included
}

// phases are the combinations of serves and turn.
const phases = 6

func (s state) phase() int { return 2*s.serves + s.turn - AF }

// busy: whether a packet is on the line.
func (s state) busy() bool { return s.packets[s.serves] > 0 }

// other returns the polled queue that does not have the turn.
func (s state) other() int { return AF + BE - s.turn }

// choose returns the state after the scheduler has chosen a queue.
func (p *Port) choose(s state) state {
	switch {
	case s.packets[EF] > 0:
		s.serves = EF
		if p.AfterEF == FromAF {
			s.turn = AF
		}
	case s.packets[s.turn] > 0 || p.Empty == Wait:
		s.serves = s.turn
	case s.packets[s.other()] > 0:
		s.serves = s.other()
		if p.Empty == Skip {
			s.turn = s.serves
		}
	default:
		s.serves = EF
	}
	return s
}

// change returns the state after an event other than the end of a packet, which may have to
// wait for that end.
func (p *Port) change(s state) state {
	if s.busy() && p.Switch == AtPacketEnd {
		return s
	}
	return p.choose(s)
}

// start returns the empty port.
func (p *Port) start() state { return p.choose(state{turn: AF}) }

// leave calls visit for every transition out of a state.
func (p *Port) leave(s state, visit func(to state, rate float64)) {
	for queue, rate := range p.ArrivalPPS {
		if rate == 0 || s.packets[queue] == p.Places[queue] {
			continue
		}
		to := s
		to.packets[queue]++
		if s.busy() {
			to = p.change(to)
		} else {
			to = p.choose(to)
		}
		visit(to, rate)
	}
	if s.busy() {
		to := s
		to.packets[s.serves]--
		visit(p.choose(to), p.ServicePPS[s.serves])
	}
	if s.busy() && s.serves == EF && p.AfterEF == FromAF {
		return // the turn that is next begins when EF has been emptied, and is AF's
	}
	to := s
	to.turn = s.other()
	if to = p.change(to); to != s {
		visit(to, p.PollPerSecond)
	}
}

// chain is the states that can be reached from a first one, in the order of
// their index in a space, and the transitions between them, by where they lead:
// the columns of Q without its diagonal.
type chain struct {
	space  space
	states []int32 // indices in space
	first  []int32 // of state s: its transitions in are first[s] to first[s+1]
	from   []int32
	rate   []float64
	out    []float64 // minus the diagonal of Q
}

// space numbers all states that could be, also those that are never reached.
type space [3]int // places

func (m space) size() int { return phases * (m[0] + 1) * (m[1] + 1) * (m[2] + 1) }

func (m space) index(s state) int {
	return ((s.phase()*(m[0]+1)+s.packets[0])*(m[1]+1)+s.packets[1])*(m[2]+1) + s.packets[2]
}

func (m space) state(index int) (s state) {
	for queue := BE; queue >= EF; queue-- {
		s.packets[queue] = index % (m[queue] + 1)
		index /= m[queue] + 1
	}
	s.serves, s.turn = index/2, AF+index%2
	return s
}

// newChain lists what can be reached from a state.
func newChain(m space, start state, leave func(state, func(state, float64))) *chain {
	number := reach(m, start, leave)
	c := &chain{space: m}
	for index, reached := range number {
		if reached >= 0 {
			number[index] = int32(len(c.states))
			c.states = append(c.states, int32(index))
		}
	}
	c.first = make([]int32, len(c.states)+1)
	c.out = make([]float64, len(c.states))
	for s, index := range c.states {
		leave(m.state(int(index)), func(to state, rate float64) {
			c.first[number[m.index(to)]+1]++
			c.out[s] += rate
		})
	}
	for s := range c.states {
		c.first[s+1] += c.first[s]
	}
	c.from = make([]int32, c.first[len(c.states)])
	c.rate = make([]float64, len(c.from))
	next := append([]int32(nil), c.first...)
	for s, index := range c.states {
		leave(m.state(int(index)), func(to state, rate float64) {
			at := &next[number[m.index(to)]]
			c.from[*at], c.rate[*at] = int32(s), rate
			*at++
		})
	}
	return c
}

// state returns the state of a number.
func (c *chain) state(s int) state { return c.space.state(int(c.states[s])) }

// reach marks with 0 what can be reached from a state, the rest with -1.
func reach(m space, start state, leave func(state, func(state, float64))) []int32 {
	number := make([]int32, m.size())
	for index := range number {
		number[index] = -1
	}
	number[m.index(start)] = 0
	todo := []state{start}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		leave(s, func(to state, _ float64) {
			if index := m.index(to); number[index] < 0 {
				number[index] = 0
				todo = append(todo, to)
			}
		})
	}
	return number
}
