package model

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/lab/report"
)

// paperPort is the paper's port in packets per second.
func paperPort(t *testing.T, edit func(*LLQ)) Port {
	t.Helper()
	l := Paper()
	if edit != nil {
		edit(&l)
	}
	p, err := l.Port()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func solve(t *testing.T, p Port) *Result {
	t.Helper()
	r, err := Solve(t.Context(), p)
	if err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	return r
}

// near holds got to want, relative.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*math.Abs(want)) {
		t.Errorf("%s is %.10g, want %.10g", what, got, want)
	}
}

// decisions calls f for every combination of what the paper leaves open.
func decisions(f func(AfterEF, Switch, Empty)) {
	for _, after := range []AfterEF{Resume, FromAF} {
		for _, change := range []Switch{AtPacketEnd, AtOnce} {
			for _, empty := range []Empty{Lend, Skip, Wait} {
				f(after, change, empty)
			}
		}
	}
}

// randomPort is a small port with everything by chance, overload included.
func randomPort(random *rand.Rand) Port {
	p := Port{PollPerSecond: math.Exp(random.Float64()*12 - 4)}
	for q := range p.Places {
		p.ArrivalPPS[q] = 10 + 1000*random.Float64()
		p.ServicePPS[q] = 100 + 2000*random.Float64()
		p.Places[q] = 1 + random.IntN(5)
	}
	p.AfterEF = []AfterEF{Resume, FromAF}[random.IntN(2)]
	p.Switch = []Switch{AtPacketEnd, AtOnce}[random.IntN(2)]
	p.Empty = []Empty{Lend, Skip, Wait}[random.IntN(3)]
	return p
}

// TestBalance recomputes from the transitions that what flows into every state
// flows out of it, that the shares are a distribution, and that what arrives is
// sent or lost.
func TestBalance(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		p := randomPort(random)
		r := solve(t, p)
		net := map[state]float64{}
		var sum, flow float64
		for s, share := range r.distribution {
			if !(share >= 0) {
				t.Fatalf("%+v: state %+v has share %v", p, r.chain.state(s), share)
			}
			sum += share
			p.leave(r.chain.state(s), func(to state, rate float64) {
				net[r.chain.state(s)] -= share * rate
				net[to] += share * rate
				flow += share * rate
			})
		}
		near(t, "the sum of all shares", sum, 1, 1e-12)
		for s, v := range net {
			if math.Abs(v) > 1e-10*flow {
				t.Errorf("%+v: state %+v gains %.3g of %.3g", p, s, v, flow)
			}
		}
		for q, queue := range r.Queues {
			near(t, QueueNames[q]+"'s throughput", queue.ThroughputPPS, p.ArrivalPPS[q]*(1-queue.Loss), 1e-7)
			if queue.WaitSeconds < (1-1e-9)/p.ServicePPS[q] {
				t.Errorf("%+v: %s waits %v, less than its service takes", p, QueueNames[q], queue.WaitSeconds)
			}
		}
	}
}

// dense solves a chain by the same elimination without bands and iteration.
func dense(c *chain) []float64 {
	rates := newBand(len(c.states), len(c.states))
	for s := range c.states {
		for at := c.first[s]; at < c.first[s+1]; at++ {
			*rates.at(int(c.from[at]), s) += c.rate[at]
		}
	}
	return rates.eliminate()
}

// TestSolver holds the iteration to direct elimination, state by state, also
// where polling is so slow that the chain almost falls apart.
func TestSolver(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for _, poll := range []float64{1e-6, 0.01, 100, 1e6} {
		for range 3 {
			p := randomPort(random)
			p.PollPerSecond = poll
			p.Places = [3]int{3, 3, 3}
			r := solve(t, p)
			if r.Residual > tolerance {
				t.Errorf("residual %v of %+v", r.Residual, p)
			}
			for s, want := range dense(r.chain) {
				if math.Abs(r.distribution[s]-want) > 1e-7*want+1e-12 {
					t.Errorf("%+v: state %+v has %.12g, want %.12g", p, r.chain.state(s), r.distribution[s], want)
				}
			}
		}
	}
}

// mm1k is the distribution of M/M/1/K.
func mm1k(arrival, service float64, places int) []float64 {
	x, sum := make([]float64, places+1), 0.0
	for n := range x {
		x[n] = math.Pow(arrival/service, float64(n))
		sum += x[n]
	}
	for n := range x {
		x[n] /= sum
	}
	return x
}

// TestRareStates: states that are too rare for a number, in a long queue that is nearly
// always empty or nearly always full, keep no port from being solved.
func TestRareStates(t *testing.T) {
	const places = 200
	p := paperPort(t, func(l *LLQ) { l.Places = [3]int{places, 1, 1} })
	p.Switch = AtOnce // EF is M/M/1/K
	few := 0.0
	for packets, share := range mm1k(1, 100, places) {
		few += float64(packets) * share
	}
	p.ArrivalPPS = [3]float64{p.ServicePPS[EF] / 100, 1, 1}
	near(t, "mean queue of a port that is nearly always empty", solve(t, p).Queues[EF].MeanPackets, few, 1e-9)
	p.ArrivalPPS[EF] = p.ServicePPS[EF] * 100
	near(t, "mean queue of a port that is nearly always full", solve(t, p).Queues[EF].MeanPackets, places-few, 1e-9)
}

// TestAlone: a queue without company is M/M/1/K, unless the line waits for the
// other polled queue. EF is, whatever the others do, when it interrupts them.
func TestAlone(t *testing.T) {
	check := func(p Port, queue int) {
		t.Helper()
		r := solve(t, p)
		for n, want := range mm1k(p.ArrivalPPS[queue], p.ServicePPS[queue], p.Places[queue]) {
			near(t, QueueNames[queue]+" alone: share of a length", r.Queues[queue].Distribution[n], want, 1e-9)
		}
	}
	decisions(func(after AfterEF, change Switch, empty Empty) {
		p := paperPort(t, func(l *LLQ) { l.AfterEF, l.Switch, l.Empty = after, change, empty })
		if change == AtOnce {
			check(p, EF)
		}
		for q := range p.ArrivalPPS {
			alone := p
			alone.ArrivalPPS = [3]float64{}
			alone.ArrivalPPS[q] = p.ArrivalPPS[q]
			if empty != Wait || q == EF {
				check(alone, q)
			}
			r := solve(t, alone)
			for other, queue := range r.Queues {
				if other != q && (queue.MeanPackets != 0 || queue.ThroughputPPS != 0 || queue.WaitSeconds != 0 || queue.Loss != 0) {
					t.Errorf("%s carries nothing, but has %+v", QueueNames[other], queue)
				}
			}
		}
	})
}

// TestPriority: with long queues, AF's turn for good and BE lent what AF leaves,
// the port is an M/M/1 queue with priorities EF, AF, BE, whose waiting times are
// known: Cobham 1954 without, White and Christie 1958 with interruption.
func TestPriority(t *testing.T) {
	p := Port{
		ArrivalPPS: [3]float64{150, 120, 90}, ServicePPS: [3]float64{1000, 700, 900}, Places: [3]int{14, 16, 20},
		PollPerSecond: 1e-7, AfterEF: FromAF, Empty: Lend,
	}
	var residual, before, residualBefore float64
	for q, arrival := range p.ArrivalPPS {
		load := arrival / p.ServicePPS[q]
		residual += load / p.ServicePPS[q]
	}
	p.Switch = AtPacketEnd
	end := solve(t, p)
	p.Switch = AtOnce
	once := solve(t, p)
	for q, arrival := range p.ArrivalPPS {
		load := arrival / p.ServicePPS[q]
		residualBefore += load / p.ServicePPS[q]
		until := before + load
		near(t, QueueNames[q]+"'s wait behind the packet on the line", end.Queues[q].WaitSeconds,
			residual/((1-before)*(1-until))+1/p.ServicePPS[q], 1e-4)
		near(t, QueueNames[q]+"'s wait with interruption", once.Queues[q].WaitSeconds,
			1/(p.ServicePPS[q]*(1-before))+residualBefore/((1-before)*(1-until)), 1e-4)
		before = until
	}
}

// TestAFFollowsEF: with one place each AF and BE both wait only while EF is on the line,
// so when AF follows EF whatever becomes of the turn meanwhile, the port has priorities
// EF, AF, BE without interruption, for turns of any length. By hand, for arrivals and
// services at rate 1 and an empty port of weight 1: the port has no, one, two and three
// packets with weights 1, 3, 6, 6, as each packet that is there keeps one away. With x, y
// and z for EF, AF and BE alone on the line, x + y + z = 3 and
//
//	EF, AF waits:    (x+z)/2        AF, EF waits: y/2            BE, one waits: z/2, z/2
//	EF, BE waits:    (x+y+e/2)/2    AF, BE waits: (y+e)/2        BE, both wait: z
//	EF, both wait:   e = 2(x+3)/3   AF, both:     y+e/2
//	3x = 1 + (y+z)/2, 3y = 1 + (x+z)/2 + z/2
//
// gives x = 5/7, y = 51/56, z = 11/8, so that of a weight of 16 EF is on the line for 17/3,
// AF for 125/24 and BE for 33/8.
func TestAFFollowsEF(t *testing.T) {
	for _, poll := range []float64{1e-3, 1, 1e3} {
		for _, empty := range []Empty{Lend, Skip} {
			r := solve(t, Port{
				ArrivalPPS: [3]float64{1, 1, 1}, ServicePPS: [3]float64{1, 1, 1}, Places: [3]int{1, 1, 1},
				PollPerSecond: poll, AfterEF: FromAF, Switch: AtPacketEnd, Empty: empty,
			})
			for q, want := range [3]float64{17. / 48, 125. / 384, 33. / 128} {
				near(t, fmt.Sprintf("%v turns a second, %s: throughput of %s", poll, empty, QueueNames[q]), r.Queues[q].ThroughputPPS, want, 1e-9)
			}
		}
	}
}

// TestFastPolling: turns much shorter than a packet share the line equally among
// the packets of AF and BE (processor sharing), served at the same rate: of all
// packets each queue has its share of the arrivals.
func TestFastPolling(t *testing.T) {
	p := Port{
		ArrivalPPS: [3]float64{0, 200, 200}, ServicePPS: [3]float64{1000, 1000, 1000}, Places: [3]int{1, 25, 25},
		PollPerSecond: 1e5, AfterEF: Resume, Switch: AtOnce, Empty: Lend,
	}
	r := solve(t, p)
	load := 400.0 / 1000
	near(t, "packets of AF", r.Queues[AF].MeanPackets, load/(1-load)/2, 1e-4)
	near(t, "packets of BE", r.Queues[BE].MeanPackets, load/(1-load)/2, 1e-4)
}

// TestTurns: two full queues have the line for the same time, whatever the rate
// of each, and one that waits for nobody is served half of the time.
func TestTurns(t *testing.T) {
	p := Port{
		ArrivalPPS: [3]float64{0, 1e6, 1e6}, ServicePPS: [3]float64{1000, 400, 600}, Places: [3]int{1, 4, 4},
		PollPerSecond: 1, AfterEF: Resume, Switch: AtOnce, Empty: Lend,
	}
	r := solve(t, p)
	near(t, "AF's throughput", r.Queues[AF].ThroughputPPS, 200, 1e-3)
	near(t, "BE's throughput", r.Queues[BE].ThroughputPPS, 300, 1e-3)
	p.Empty = Wait
	p.ArrivalPPS[BE] = 0
	near(t, "AF's throughput next to an empty queue", solve(t, p).Queues[AF].ThroughputPPS, 200, 1e-3)
}

// TestSymmetry: AF and BE change places when their rates do, unless AF is always
// first after EF.
func TestSymmetry(t *testing.T) {
	decisions(func(after AfterEF, change Switch, empty Empty) {
		if after == FromAF {
			return
		}
		p := paperPort(t, func(l *LLQ) { l.AfterEF, l.Switch, l.Empty = after, change, empty })
		mirror := p
		mirror.ServicePPS[AF], mirror.ServicePPS[BE] = p.ServicePPS[BE], p.ServicePPS[AF]
		a, b := solve(t, p), solve(t, mirror)
		near(t, "packets of AF and BE", a.Queues[AF].MeanPackets, b.Queues[BE].MeanPackets, 1e-9)
		near(t, "waits of AF and BE", a.Queues[AF].WaitSeconds, b.Queues[BE].WaitSeconds, 1e-9)
	})
}

// TestStateShares: the shares of equation 7's states sum up to the rest of the
// result.
func TestStateShares(t *testing.T) {
	r := solve(t, paperPort(t, nil))
	var sum, packets float64
	for n, s := range r.StateShares() {
		sum += s.Share
		packets += float64(s.J) * s.Share
		if n > 0 && s == r.StateShares()[n-1] {
			t.Errorf("%+v is there twice", s)
		}
	}
	near(t, "the sum", sum, 1, 1e-12)
	near(t, "AF's packets", packets, r.Queues[AF].MeanPackets, 1e-12)
}

// TestSize: a large port is solved. Its states are known: a queue that is served
// is not empty, and an empty port has two turns.
func TestSize(t *testing.T) {
	p := paperPort(t, func(l *LLQ) { l.Places = [3]int{15, 15, 15} })
	if r, want := solve(t, p), 3*2*15*16*16+2; r.States != want {
		t.Errorf("%d states, want %d", r.States, want)
	}
	p.Places = [3]int{1, 1, 3000}
	r := solve(t, p)
	near(t, "BE's flow through a very long queue", r.Queues[BE].ThroughputPPS, p.ArrivalPPS[BE]*(1-r.Queues[BE].Loss), 1e-6)
}

// TestPrinted: the equations as printed never serve EF, or give each queue a
// third of the time, which they count as throughput also when it is empty.
func TestPrinted(t *testing.T) {
	p := paperPort(t, nil)
	r, err := SolvePrinted(t.Context(), p, ToAF)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "packets of EF", r.Queues[EF].MeanPackets, 5, 1e-12)
	near(t, "throughput of AF, 2 -> 1", r.Queues[AF].ThroughputPPS, p.ServicePPS[AF]/2, 1e-9)
	if r.Queues[EF].ThroughputPPS != 0 {
		t.Errorf("EF has %+v", r.Queues[EF])
	}
	if r, err = SolvePrinted(t.Context(), p, ToEF); err != nil {
		t.Fatal(err)
	}
	for q, queue := range r.Queues {
		near(t, QueueNames[q]+"'s throughput as printed", queue.ThroughputPPS, p.ServicePPS[q]/3, 1e-9)
		if real := p.ArrivalPPS[q] * (1 - queue.Loss); queue.ThroughputPPS < 1.01*real {
			t.Errorf("%s as printed has %v, but %v are really sent", QueueNames[q], queue.ThroughputPPS, real)
		}
	}
	p.ArrivalPPS[EF] = 0
	if r, err = SolvePrinted(t.Context(), p, ToAF); err != nil || r.Queues[EF].MeanPackets != 0 {
		t.Errorf("without arrivals EF has %+v, %v", r, err)
	}
	p.Places[AF] = 0
	if _, err = SolvePrinted(t.Context(), p, ToEF); err == nil {
		t.Error("a queue without places is accepted")
	}
}

func TestBadPorts(t *testing.T) {
	for _, test := range []struct {
		edit func(*Port)
		want string
	}{
		{func(p *Port) { p.ArrivalPPS[AF] = -1 }, "arrivals of af are -1 packets/s; give 0 or more"},
		{func(p *Port) { p.ArrivalPPS[AF] = math.NaN() }, "arrivals of af are NaN packets/s; give 0 or more"},
		{func(p *Port) { p.ArrivalPPS[AF] = math.Inf(1) }, "arrivals of af are +Inf packets/s; give 0 or more"},
		{func(p *Port) { p.ArrivalPPS = [3]float64{} }, "nothing arrives at any queue; give at least one"},
		{func(p *Port) { p.ServicePPS[BE] = 0 }, "be is served at 0 packets/s; give a rate above 0"},
		{func(p *Port) { p.ServicePPS[BE] = -5 }, "be is served at -5 packets/s; give a rate above 0"},
		{func(p *Port) { p.Places[EF] = 0 }, "ef has 0 places; give at least 1"},
		{func(p *Port) { p.Places[EF] = -3 }, "ef has -3 places; give at least 1"},
		{func(p *Port) { p.PollPerSecond = 0 }, "polling rate is 0 per second; give one above 0"},
		{func(p *Port) { p.PollPerSecond = -1 }, "polling rate is -1 per second; give one above 0"},
		{func(p *Port) { p.AfterEF = "x" }, `polling after EF "x" is neither resume nor af`},
		{func(p *Port) { p.Switch = "x" }, `switch "x" is neither packet-end nor at-once`},
		{func(p *Port) { p.Empty = "x" }, `empty queue "x" is neither lend, skip nor wait`},
		{func(p *Port) { p.Places = [3]int{500, 500, 500} }, "500, 500 and 500 places are 7.55e+08 states, which take 162 GB of memory (at most 1.07 GB is used); give fewer places"},
		{func(p *Port) { p.Places[2] = math.MaxInt }, "give fewer places"},
		{func(p *Port) { p.PollPerSecond = 1e12 }, "of the flow does not balance"},
	} {
		p := paperPort(t, nil)
		test.edit(&p)
		if _, err := Solve(t.Context(), p); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", p, err, test.want)
		}
	}
	for _, test := range []struct {
		edit func(*LLQ)
		want string
	}{
		{func(l *LLQ) { l.PacketBytes = 0 }, "packets have 0 bytes"},
		{func(l *LLQ) { l.RateBPS = 0 }, "the port sends 0 bit/s"},
		{func(l *LLQ) { l.AFRateBPS = l.RateBPS }, "give a rate above 0 and below the port's"},
		{func(l *LLQ) { l.AFRateBPS = -1 }, "give a rate above 0 and below the port's"},
		{func(l *LLQ) { l.PollPerSecond = 0 }, "polling rate is 0"},
	} {
		l := Paper()
		test.edit(&l)
		if _, err := l.Solve(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", l, err, test.want)
		}
	}
}

// TestCancel: whoever asked may stop waiting.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Solve(ctx, paperPort(t, nil)); err != context.Canceled { //nolint:errorlint // returned as it is
		t.Errorf("Solve: %v", err)
	}
	if _, err := Figures(ctx); err == nil {
		t.Error("Figures goes on")
	}
}

// TestFigures: the claims that hold in each reading. Which do is what docs/model.md
// says.
func TestFigures(t *testing.T) {
	found, err := Figures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]string{}
	for _, row := range found.Tables[0].Rows {
		counts[row[0]] = row[1]
	}
	for n, theta := range thetas {
		for reading, want := range map[string][2]int{
			"as decided": {4, 4}, "--switch at-once": {8, 7}, "--empty skip": {1, 1}, "--empty wait": {10, 10},
			"--after-ef af": {4, 4}, "equations as printed, 2 -> 1": {8, 8}, "equations as printed, 2 -> 0": {10, 10},
		} {
			if got, want := counts[reading+"; "+theta.name], fmt.Sprintf("%d of 10", want[n]); got != want {
				t.Errorf("%s; %s: %s claims hold, want %s", reading, theta.name, got, want)
			}
		}
	}
	if rows := len(found.Tables[1].Rows); rows != 2*7*10 {
		t.Errorf("%d rows of claims", rows)
	}
	for _, row := range found.Tables[1].Rows {
		if row[3] == "" {
			t.Errorf("%v has no reason", row)
		}
	}
	if len(found.Plots) != 3 {
		t.Errorf("%d plots", len(found.Plots))
	}
	for _, plot := range found.Plots {
		if len(plot.Panels) != 2*3 {
			t.Errorf("%s has %d panels", plot.Title, len(plot.Panels))
		}
		for _, panel := range plot.Panels {
			if len(panel.Values) != 3 || len(panel.X) != 14 || len(panel.Values[2]) != 14 || panel.X[0] != 40 || panel.X[13] != 66 {
				t.Errorf("%s, %s has %+v", plot.Title, panel.Title, panel)
			}
		}
	}
}

// TestFigureClaims: each claim is judged once, with its reason. Those that the port as
// decided does not give are another on purpose: with the paper's waiting at empty
// queues all ten hold.
func TestFigureClaims(t *testing.T) {
	found, err := Figures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Claims) != 10 || found.Count(report.Reproduced) != 4 || found.Count(report.DifferentByDesign) != 6 {
		t.Errorf("%d claims, %d reproduced, %d different by design", len(found.Claims), found.Count(report.Reproduced), found.Count(report.DifferentByDesign))
	}
	for _, claim := range found.Claims {
		if claim.Where == "" || !strings.HasPrefix(claim.Section, "IV.C.") || claim.Says == "" || !strings.Contains(claim.Reason, " to ") && !strings.Contains(claim.Reason, " against ") {
			t.Errorf("%+v", claim)
		}
	}
	never := claim{"0", "figure 0", "never", func(curves) (bool, string) { return false, "1 to 2" }}
	if got := never.report(curves{}, curves{}); got.Judgement != report.NotReproduced {
		t.Errorf("what no reading gives is %s", got.Judgement)
	}
}

// BenchmarkSolve is what docs/model.md says of time and memory.
func BenchmarkSolve(b *testing.B) {
	for _, bench := range []struct {
		name string
		edit func(*LLQ)
	}{
		{"5", func(*LLQ) {}},
		{"50", func(l *LLQ) { l.Places = [3]int{50, 50, 50} }},
		{"50-at-once", func(l *LLQ) { l.Places, l.Switch = [3]int{50, 50, 50}, AtOnce }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l := Paper()
			bench.edit(&l)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Solve(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
