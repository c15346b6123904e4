package model_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/weir-project/weir/internal/lab/model"
)

// An independent check of the model: a simulation with packets that have an
// arrival time and a length of their own, a clock, and a turn with an end. It
// shares nothing with the chain but the words for its decisions; it does not use
// that what is left of an exponential time is exponential again.

// packet is a packet in a queue.
type packet struct {
	arrivedAt float64
	remaining float64 // seconds on the line
}

// simulation is the port at one moment.
type simulation struct {
	port   model.Port
	random *rand.Rand
	now    float64

	queues    [3][]packet
	arrivesAt [3]float64
	turn      int // of the polled queues
	turnEnds  float64
	line      int // the queue whose packet is on the line, or none
	lineFrom  float64

	// Counted since the last reset.
	area, waited        [3]float64
	arrived, lost, sent [3]float64
	since               float64
}

const none = -1

func newSimulation(port model.Port, seed uint64) *simulation {
	s := &simulation{port: port, random: rand.New(rand.NewPCG(seed, 7)), turn: model.AF, line: none}
	for q := range s.arrivesAt {
		s.arrivesAt[q] = s.in(port.ArrivalPPS[q])
	}
	s.turnEnds = s.in(port.PollPerSecond)
	return s
}

// in is a random time from now for something that happens at a rate.
func (s *simulation) in(rate float64) float64 {
	if rate == 0 {
		return math.Inf(1)
	}
	return s.now + s.random.ExpFloat64()/rate
}

// run goes on for a time.
func (s *simulation) run(seconds float64) {
	until := s.now + seconds
	for s.now < until {
		next, event := until, func() {}
		for q, at := range s.arrivesAt {
			if at < next {
				next, event = at, func() { s.arrive(q) }
			}
		}
		if s.turnEnds < next {
			next, event = s.turnEnds, s.endTurn
		}
		if s.line != none {
			if done := s.lineFrom + s.queues[s.line][0].remaining; done < next {
				next, event = done, s.send
			}
		}
		for q := range s.area {
			s.area[q] += float64(len(s.queues[q])) * (next - s.now)
		}
		s.now = next
		event()
	}
}

func (s *simulation) arrive(q int) {
	s.arrivesAt[q] = s.in(s.port.ArrivalPPS[q])
	s.arrived[q]++
	if len(s.queues[q]) == s.port.Places[q] {
		s.lost[q]++
		return
	}
	s.queues[q] = append(s.queues[q], packet{s.now, s.random.ExpFloat64() / s.port.ServicePPS[q]})
	s.reconsider()
}

func (s *simulation) endTurn() {
	s.turn = model.AF + model.BE - s.turn
	s.turnEnds = s.in(s.port.PollPerSecond)
	s.reconsider()
}

func (s *simulation) send() {
	q := s.line
	s.sent[q]++
	s.waited[q] += s.now - s.queues[q][0].arrivedAt
	s.queues[q] = s.queues[q][1:]
	s.line = none
	if q == model.EF && s.port.AfterEF == model.FromAF { // whoever's turn it was, or became meanwhile
		s.turn, s.turnEnds = model.AF, s.in(s.port.PollPerSecond)
	}
	s.reconsider()
}

// reconsider puts the packet on the line that should be there.
func (s *simulation) reconsider() {
	if s.line != none {
		if s.port.Switch == model.AtPacketEnd {
			return
		}
		s.queues[s.line][0].remaining -= s.now - s.lineFrom
	}
	s.line, s.lineFrom = s.pick(), s.now
}

func (s *simulation) pick() int {
	if len(s.queues[model.EF]) > 0 {
		return model.EF
	}
	if len(s.queues[s.turn]) > 0 {
		return s.turn
	}
	other := model.AF + model.BE - s.turn
	if s.port.Empty == model.Wait || len(s.queues[other]) == 0 {
		return none
	}
	if s.port.Empty == model.Skip {
		s.turn, s.turnEnds = other, s.in(s.port.PollPerSecond)
	}
	return other
}

// measured are the quantities that model and simulation have in common, of each
// queue: mean packets, packets sent a second, mean wait, loss.
type measured [3][4]float64

var quantities = [4]string{"mean queue", "throughput", "wait", "loss"}

// take measures since the last time.
func (s *simulation) take() (m measured) {
	for q := range m {
		m[q] = [4]float64{s.area[q] / (s.now - s.since), s.sent[q] / (s.now - s.since), s.waited[q] / s.sent[q], s.lost[q] / s.arrived[q]}
	}
	s.since = s.now
	s.area, s.waited, s.arrived, s.lost, s.sent = [3]float64{}, [3]float64{}, [3]float64{}, [3]float64{}, [3]float64{}
	return m
}

// batches of a simulation, long against everything that happens in the port.
const batches = 40

// batchSpans is how many times the slowest thing happens in a batch.
const batchSpans = 1000

// simulate returns means and standard errors by batch means.
func simulate(port model.Port, seed uint64) (mean, standardError measured) {
	s := newSimulation(port, seed)
	slowest := port.PollPerSecond
	for q := range port.ArrivalPPS {
		slowest = min(slowest, port.ArrivalPPS[q])
	}
	s.run(200 / slowest) // until the empty port is forgotten
	s.take()
	var squares measured
	for range batches {
		s.run(batchSpans / slowest)
		for q, values := range s.take() {
			for n, v := range values {
				mean[q][n] += v / batches
				squares[q][n] += v * v / batches
			}
		}
	}
	for q := range mean {
		for n, m := range mean[q] {
			standardError[q][n] = math.Sqrt(max(0, squares[q][n]-m*m) / (batches - 1))
		}
	}
	return mean, standardError
}

// anyPort is a port with everything by chance, of loads from light to overload.
func anyPort(random *rand.Rand, n int) model.Port {
	p := model.Port{
		PollPerSecond: 50 * math.Exp(random.Float64()*4),
		AfterEF:       []model.AfterEF{model.Resume, model.Resume, model.FromAF}[n%3],
		Switch:        []model.Switch{model.AtPacketEnd, model.AtOnce}[n%2],
		Empty:         []model.Empty{model.Lend, model.Skip, model.Wait, model.Lend}[n%4],
	}
	for q := range p.Places {
		p.ServicePPS[q] = 500 + 1000*random.Float64()
		p.ArrivalPPS[q] = p.ServicePPS[q] * (0.1 + 0.5*random.Float64())
		p.Places[q] = 1 + random.IntN(8)
	}
	return p
}

// Student's t with 39 degrees of freedom: of one interval that holds with 95 %,
// and of 20 x 3 x 4 intervals that all hold together with 95 % (Bonferroni).
const (
	tOne = 2.023
	tAll = 4.06
	// rarely is how many packets the model loses in a simulation too few to
	// compare.
	rarely = 100
)

// model4 is the model's answer in the order of measured.
func model4(t *testing.T, p model.Port) (m measured) {
	t.Helper()
	r, err := model.Solve(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for q, queue := range r.Queues {
		m[q] = [4]float64{queue.MeanPackets, queue.ThroughputPPS, queue.WaitSeconds, queue.Loss}
	}
	return m
}

// TestSimulation: at 20 random points the model is within the confidence interval
// of the simulation in every quantity of every queue, and nine of ten intervals of
// 95 % hold by themselves, so that a small error everywhere shows, too.
func TestSimulation(t *testing.T) {
	const points = 20
	random := rand.New(rand.NewPCG(15, 20))
	hold, all, wide := 0, 0, 0.0
	for n := range points {
		p := anyPort(random, n)
		want := model4(t, p)
		mean, standardError := simulate(p, uint64(n))
		for q := range mean {
			for i, name := range quantities {
				if name == "loss" && want[q][i]*batches*batchSpans < rarely {
					continue // an interval needs losses to be made of
				}
				off := math.Abs(mean[q][i] - want[q][i])
				all++
				if off <= tOne*standardError[q][i] {
					hold++
				}
				if off > tAll*standardError[q][i] {
					t.Errorf("%+v: %s of %s: model %.6g, simulation %.6g +- %.2g", p, name, model.QueueNames[q],
						want[q][i], mean[q][i], tAll*standardError[q][i])
				}
				if i < 3 {
					wide = max(wide, tOne*standardError[q][i]/mean[q][i])
				}
			}
		}
	}
	t.Logf("%d of %d intervals of 95 %% hold; the widest is +- %.1f %% (without losses)", hold, all, 100*wide)
	if all < 200 {
		t.Errorf("only %d quantities compared", all)
	}
	if hold < all*9/10 {
		t.Errorf("only %d of %d intervals of 95 %% hold", hold, all)
	}
	if wide > 0.05 {
		t.Errorf("an interval of +- %.1f %% proves little", 100*wide)
	}
}

// TestSimulationTells: the simulation tells each decision from the others, so
// that agreement with the model means something.
func TestSimulationTells(t *testing.T) {
	base := model.Port{
		ArrivalPPS: [3]float64{300, 300, 300}, ServicePPS: [3]float64{1000, 500, 600}, Places: [3]int{5, 5, 5},
		PollPerSecond: 50, AfterEF: model.Resume, Switch: model.AtPacketEnd, Empty: model.Lend,
	}
	mean, standardError := simulate(base, 99)
	for name, edit := range map[string]func(*model.Port){
		"other switch":        func(p *model.Port) { p.Switch = model.AtOnce },
		"another turn":        func(p *model.Port) { p.AfterEF = model.FromAF },
		"skipping":            func(p *model.Port) { p.Empty = model.Skip },
		"waiting":             func(p *model.Port) { p.Empty = model.Wait },
		"one place more":      func(p *model.Port) { p.Places[model.BE]++ },
		"4 % more of BE":      func(p *model.Port) { p.ArrivalPPS[model.BE] *= 1.04 },
		"polling at one half": func(p *model.Port) { p.PollPerSecond /= 2 },
	} {
		p := base
		edit(&p)
		want := model4(t, p)
		tells := false
		for q := range mean {
			for i := range quantities {
				tells = tells || math.Abs(mean[q][i]-want[q][i]) > tAll*standardError[q][i]
			}
		}
		if !tells {
			t.Errorf("the simulation does not tell %s", name)
		}
	}
}

// TestSimulationAFFollowsEF: with one place each the simulation gives what a port with
// three priorities gives by hand, however short turns are (TestAFFollowsEF derives it).
func TestSimulationAFFollowsEF(t *testing.T) {
	for i, poll := range []float64{0.1, 1, 100} {
		p := model.Port{
			ArrivalPPS: [3]float64{1, 1, 1}, ServicePPS: [3]float64{1, 1, 1}, Places: [3]int{1, 1, 1},
			PollPerSecond: poll, AfterEF: model.FromAF, Switch: model.AtPacketEnd, Empty: model.Lend,
		}
		mean, standardError := simulate(p, uint64(i))
		for q, want := range [3]float64{17. / 48, 125. / 384, 33. / 128} {
			if got, within := mean[q][1], tAll*standardError[q][1]; math.Abs(got-want) > within || within > 0.05*want {
				t.Errorf("%v turns a second: %s sends %.5g packets/s +- %.2g, by hand %.5g", poll, model.QueueNames[q], got, within, want)
			}
		}
	}
}
