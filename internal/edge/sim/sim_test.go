package sim_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/sim"
	"github.com/weir-project/weir/internal/edge/spec"
)

var start = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// board is PiCasso's node: four processors, 1 GB.
func board(name string) sim.Node {
	return sim.Node{Node: engine.Node{
		Name: name, CPUs: 4, MemoryBytes: 1e9, MemoryUsedBytes: 2e8, DiskFreeBytes: 9e9,
		Weir: true, UplinkBPS: 100e6, Out: engine.Room{BudgetBPS: 95e6}, Availability: 0.99, PullBPS: 80e6,
	}}
}

// busybox is a service of which a request takes 10 ms of a processor.
func busybox(change ...func(*spec.Spec)) engine.Service {
	s := spec.Spec{
		Name: "busybox", Image: "busybox", ImageBytes: 2.16e6, MaxUsers: 100, StartUpSeconds: 1.46,
		ResponseSeconds: 1, Labels: map[string]string{"weir.min": "5mbit"}, Algorithm: "hybrid",
	}
	for _, c := range change {
		c(&s)
	}
	return engine.Service{Spec: s}
}

func world(boards string, users func(float64) float64, s engine.Service) *sim.World {
	w := &sim.World{
		Start: start, Services: []engine.Service{s},
		Loads:  map[string]sim.Load{s.Spec.Name: {CPUSeconds: 0.01, AnswerBytes: 80e3, ThinkSeconds: 0.5}},
		Crowds: []sim.Crowd{{Service: s.Spec.Name, Node: boards[:1], Users: users}},
	}
	for _, name := range strings.Split(boards, "") {
		w.Nodes = append(w.Nodes, board(name))
	}
	w.Seed(1)
	return w
}

func newEngine(t interface{ Fatal(...any) }) *engine.Engine {
	e, err := engine.New(engine.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestCrowd: a crowd comes and goes, and instances with it.
func TestCrowd(t *testing.T) {
	w := world("abcd", func(at float64) float64 {
		if at >= 20 && at < 200 {
			return 300
		}
		return 10
	}, busybox())
	var most, last int
	served := 0.0
	w.Run(newEngine(t), 600, func(engine.Input, engine.Result) {
		last = 0
		for _, count := range w.Running("busybox") {
			last += count
		}
		if w.Seconds() > 20 && w.Seconds() < 200 && served == 0 && last >= 3 {
			served = w.Seconds() - 20
		}
		most = max(most, last)
		if wait := w.ResponseSeconds("busybox"); w.Seconds() > 30 && w.Seconds() < 200 && wait > 1 {
			t.Fatalf("after %v s users wait %v s, of 1", w.Seconds(), wait)
		}
	})
	if most != 4 || last != 1 {
		t.Errorf("at most %d instances and at the end %d; want 4 for 300 users of 100 each, to 80 %%, and 1", most, last)
	}
	if served == 0 || served > 5 {
		t.Errorf("there was room for all after %v s", served)
	}
}

// TestLargeCrowd: however many times the room a crowd takes that comes at once, as many instances
// start as give it room, and nodes have memory for.
func TestLargeCrowd(t *testing.T) {
	for _, times := range []float64{2, 5, 9, 11, 15, 20, 21, 50, 200, 1000} {
		w := world("abcd", func(at float64) float64 {
			if at < 10 {
				return 1
			}
			return times * 5
		}, busybox(func(s *spec.Spec) { s.MaxUsers, s.Limits.Instances = 5, 1000 }))
		w.Loads["busybox"] = sim.Load{CPUSeconds: 1e-5, AnswerBytes: 10, ThinkSeconds: 1}
		w.Run(newEngine(t), 60, func(engine.Input, engine.Result) {})
		running := 0
		for _, n := range w.Running("busybox") {
			running += n
		}
		if want := min(int(times/0.8), 60); running < want {
			t.Errorf("users of %v instances: %d run", times, running)
		}
	}
}

// TestCrowdWithoutMaximum: of a service nobody knows how many users an instance has room for,
// and a crowd of 800 needs six nodes. That it grows while instances start is not taken for
// their failure, and more than one is started at once.
func TestCrowdWithoutMaximum(t *testing.T) {
	for _, over := range []float64{20, 60, 120} {
		w := world("abcdef", func(at float64) float64 { return 5 + 800*min(at/over, 1) }, busybox(func(s *spec.Spec) {
			s.MaxUsers, s.ResponseSeconds = 0, 0.2
		}))
		w.Loads["busybox"] = sim.Load{CPUSeconds: 0.01, AnswerBytes: 1e3, ThinkSeconds: 0.2}
		late := 0
		w.Run(newEngine(t), 600, func(engine.Input, engine.Result) {
			if w.ResponseSeconds("busybox") > 0.2 {
				late++
			}
		})
		if n := len(w.Running("busybox")); n != 6 || late > 45 {
			t.Errorf("a crowd that comes over %v s: on %d nodes, and users waited too long for %d s", over, n, late)
		}
	}
}

// TestCrowdGrowsSlowly: of a crowd that grows over minutes every instance is soon outgrown, while
// users do not wait for each other yet: that does not make it one in vain.
func TestCrowdGrowsSlowly(t *testing.T) {
	for _, over := range []float64{300, 600, 1200} {
		w := world("abcdef", func(at float64) float64 { return 5 + 800*min(at/over, 1) }, busybox(func(s *spec.Spec) {
			s.MaxUsers, s.ResponseSeconds = 0, 0.02
		}))
		w.Loads["busybox"] = sim.Load{CPUSeconds: 0.01, AnswerBytes: 1e3, ThinkSeconds: 0.5}
		w.Noise = 0.05
		late := 0
		w.Run(newEngine(t), 1800, func(engine.Input, engine.Result) {
			if w.ResponseSeconds("busybox") > 0.02 {
				late++
			}
		})
		if late > 30 {
			t.Errorf("a crowd that comes over %v s: users waited too long for %d s", over, late)
		}
	}
}

// TestDeath: the services of a node that dies answer elsewhere; when it is back, what is
// too many is stopped.
func TestDeath(t *testing.T) {
	w := world("abc", func(float64) float64 { return 40 }, busybox(func(s *spec.Spec) { s.AvailabilityPercent = 99.9 }))
	e := newEngine(t)
	died := ""
	w.Run(e, 400, func(engine.Input, engine.Result) {
		switch w.Seconds() {
		case 50:
			for i := range w.Nodes {
				if w.Running("busybox")[w.Nodes[i].Name] > 0 && died == "" {
					w.Nodes[i].Dead, died = true, w.Nodes[i].Name
				}
			}
		case 60:
			if n := w.Running("busybox"); len(n) != 2 || n[died] != 0 {
				t.Errorf("ten seconds after %s died: %v", died, n)
			}
		case 100:
			for i := range w.Nodes {
				w.Nodes[i].Dead = false
			}
		}
	})
	if n := w.Running("busybox"); len(n) != 2 || died == "" {
		t.Errorf("at the end: %v", n)
	}
}

// TestRareFailures: an instance on the only node that fails every nine minutes is away for as long
// the last time as the first time.
func TestRareFailures(t *testing.T) {
	const every = 540
	w := world("a", func(float64) float64 { return 1 }, busybox(func(s *spec.Spec) { s.NumUsers, s.AvailabilityPercent = 0, 0 }))
	away := map[int]int{} // seconds by failure
	w.Run(newEngine(t), 8*every, func(engine.Input, engine.Result) {
		at := int(w.Seconds())
		if w.Running("busybox")["a"] == 0 {
			away[at/every]++
		}
		if at%every == every-1 {
			w.Crash("busybox")
		}
	})
	for failure := 1; failure < 8; failure++ {
		if away[failure] != away[1] || away[1] == 0 || away[1] > 20 {
			t.Errorf("failure %d: away for %d s, after the first one for %d s", failure, away[failure], away[1])
		}
	}
}

// TestRefusedMinimum: a minimum that a node refuses is kept elsewhere.
func TestRefusedMinimum(t *testing.T) {
	w := world("ab", func(float64) float64 { return 10 }, busybox())
	w.Put(engine.Instance{ID: "busybox-1", Service: "busybox", Node: "a"})
	w.Nodes[0].Refuses = true
	w.Run(newEngine(t), 20, func(engine.Input, engine.Result) {})
	if n := w.Running("busybox"); n["b"] != 1 || n["a"] != 0 {
		t.Errorf("%v", n)
	}
}

// TestRefusedAgain: a minimum that no node keeps, or not the one that users come to, does not
// make an instance wander among them: it is tried again, but less and less often.
func TestRefusedAgain(t *testing.T) {
	for refusing, most := range map[string]int{"abcdef": 12, "a": 6} {
		w := world("abcdef", func(float64) float64 { return 10 }, busybox(func(s *spec.Spec) { s.AvailabilityPercent = 99.9 }))
		for i := range w.Nodes {
			w.Nodes[i].Refuses = strings.Contains(refusing, w.Nodes[i].Name)
		}
		moves := 0
		w.Run(newEngine(t), 3600, func(_ engine.Input, r engine.Result) {
			for _, d := range r.Decisions {
				if d.Action == engine.Move && w.Seconds() > 600 {
					moves++
				}
			}
		})
		if moves > most {
			t.Errorf("refused on %s: %d moves in fifty minutes", refusing, moves)
		}
		if n := len(w.Running("busybox")); n != 2 {
			t.Errorf("refused on %s: it runs on %d nodes", refusing, n)
		}
	}
}

// changes counts what is started and stopped from a moment on. What was started last and
// found to be of no use may be stopped once: that is not counted.
func changes(w *sim.World, e *engine.Engine, seconds int, from float64) (starts, stops int) {
	useless := false
	w.Run(e, seconds, func(in engine.Input, r engine.Result) {
		for _, d := range r.Decisions {
			before, after := in.Memory.Services[d.Service], r.Memory.Services[d.Service]
			useless = useless || after.Grow.Level > before.Grow.Level
			switch {
			case d.Action == engine.Stop && d.Cause == engine.CauseIdle && useless:
				useless = false
			case w.Seconds() < from || d.Action == engine.Keep || d.Cause == engine.CauseReplaced:
			case d.Action == engine.Stop:
				stops++
			default:
				starts++
			}
		}
	})
	return starts, stops
}

// TestNoFlapping: however many users there are, whatever the algorithm and however noisy
// the measurements: once there are enough instances nothing is undone that helped.
func TestNoFlapping(t *testing.T) {
	e := newEngine(t)
	rapid.Check(t, func(t *rapid.T) {
		users := rapid.Float64Range(0, 500).Draw(t, "users")
		s := busybox(func(s *spec.Spec) {
			s.Algorithm = rapid.SampledFrom([]string{"local", "remote", "hybrid"}).Draw(t, "algorithm")
			s.MaxUsers = rapid.SampledFrom([]int{0, 20, 50, 100, 1000}).Draw(t, "max users")
			s.ResponseSeconds = rapid.SampledFrom([]float64{0, 0.02, 0.1, 1}).Draw(t, "response")
		})
		w := world("abcdef", func(float64) float64 { return users }, s)
		w.Loads[s.Spec.Name] = sim.Load{CPUSeconds: rapid.SampledFrom([]float64{0.001, 0.01, 0.05}).Draw(t, "cost"), AnswerBytes: 80e3, ThinkSeconds: 0.2}
		w.Nodes[0].OtherCPUs = rapid.Float64Range(0, 4).Draw(t, "others")
		w.Noise = rapid.SampledFrom([]float64{0, 0.02, 0.1, 0.2}).Draw(t, "noise")
		w.Seed(rapid.Uint64().Draw(t, "seed"))
		// Forty minutes, of which the first ten are for finding what is enough.
		starts, stops := changes(w, e, 2400, 600)
		// What does not help enough is tried again after 5, 10, 20 and 40 minutes, and
		// noise may make it look as if it had.
		if starts > 6 || stops > 1 {
			t.Fatalf("after ten minutes %d starts and %d stops in thirty", starts, stops)
		}
	})
}

// TestNoFlappingWhenExhausted: users whose only node is exhausted, by measurements that are
// off by up to a fifth. One second in eight looks as if there were room again, which must
// not count as the success of an instance that changed nothing.
func TestNoFlappingWhenExhausted(t *testing.T) {
	e := newEngine(t)
	for seed := range uint64(20) {
		s := busybox(func(s *spec.Spec) { s.Algorithm, s.MaxUsers, s.ResponseSeconds = "local", 50, 1 })
		w := world("abcdef", func(float64) float64 { return 62 }, s)
		w.Loads[s.Spec.Name] = sim.Load{CPUSeconds: 0.05, AnswerBytes: 80e3, ThinkSeconds: 0.2}
		w.Noise = 0.2
		w.Seed(seed)
		if starts, stops := changes(w, e, 2400, 600); starts > 4 || stops > 0 {
			t.Errorf("seed %d: after ten minutes %d starts and %d stops in thirty", seed, starts, stops)
		}
	}
}

// TestFastRamp: a crowd of 800 that comes within half a minute is served soon: one measurement that is
// off does not make an instance look useless that was added while users became more and more.
func TestFastRamp(t *testing.T) {
	for seed := range uint64(40) {
		s := busybox(func(s *spec.Spec) { s.MaxUsers, s.ResponseSeconds = 0, 0.2 })
		w := world("abcdef", func(at float64) float64 { return 5 + 800*min(at/25, 1) }, s)
		w.Loads["busybox"] = sim.Load{CPUSeconds: 0.01, AnswerBytes: 1e3, ThinkSeconds: 0.2}
		w.Noise = 0.1
		w.Seed(seed)
		late := 0
		w.Run(newEngine(t), 300, func(engine.Input, engine.Result) {
			if w.Seconds() > 90 && w.ResponseSeconds("busybox") > 0.2 {
				late++
			}
		})
		if late > 0 {
			t.Errorf("seed %d: from 90 s on users wait too long for %d s", seed, late)
		}
	}
}

// TestNoFlappingSporadic: a user who is there every few seconds only, and waits longer than
// the service may let him: no instance changes that, and the seconds in which nobody waits
// are no success of one. Only while he is away for more than a minute one may be stopped.
func TestNoFlappingSporadic(t *testing.T) {
	for _, every := range []float64{3, 7, 20, 90} {
		w := world("abcdef", func(at float64) float64 {
			if math.Mod(at, every) < 2 {
				return 1
			}
			return 0
		}, busybox(func(s *spec.Spec) { s.Algorithm, s.ResponseSeconds = "local", 0.02 }))
		w.Loads["busybox"] = sim.Load{CPUSeconds: 0.05, AnswerBytes: 80e3, ThinkSeconds: 0.2}
		w.Noise = 0.2
		if starts, stops := changes(w, newEngine(t), 3600, 0); starts < 2 || starts > 6 || every < 60 && stops > 0 {
			t.Errorf("every %v s: %d starts and %d stops in an hour; want the first one, and tries after 5, 10, 20 and 40 minutes", every, starts, stops)
		}
	}
}

// TestCloserSporadic: an instance comes closer to a user as well who is there for a second of
// every few.
func TestCloserSporadic(t *testing.T) {
	for _, every := range []float64{1, 3, 10} {
		w := world("ab", func(at float64) float64 {
			if math.Mod(at, every) < 1 {
				return 1
			}
			return 0
		}, busybox())
		w.Links = []engine.Link{{From: "a", To: "b", RoundTripSeconds: 0.1}}
		w.Put(engine.Instance{ID: "busybox-1", Service: "busybox", Node: "b"})
		w.Run(newEngine(t), 120, func(engine.Input, engine.Result) {})
		if n := w.Running("busybox"); n["a"] != 1 || n["b"] != 0 {
			t.Errorf("every %v s: it runs on %v", every, n)
		}
	}
}

// TestNoFlappingBetweenNodes: users who come to one node all the time, and to another one for
// a third of it: an instance follows where they come to on average, not where they are now; and
// it follows those who change sides every few minutes less and less often.
func TestNoFlappingBetweenNodes(t *testing.T) {
	for _, tc := range []struct {
		period float64
		most   int
	}{{10, 1}, {40, 1}, {90, 3}, {400, 8}} {
		w := world("abc", func(float64) float64 { return 50 }, busybox())
		w.Crowds = append(w.Crowds, sim.Crowd{Service: "busybox", Node: "b", Users: func(at float64) float64 {
			if math.Mod(at, tc.period) < tc.period/3 {
				return 260
			}
			return 0
		}})
		w.Services[0].Spec.MaxUsers = 0
		// So far away that it is always worth a thought whether elsewhere were better.
		w.Crowds = append(w.Crowds, sim.Crowd{Service: "busybox", Node: "c", Users: func(float64) float64 { return 6 }})
		w.Links = []engine.Link{{From: "a", To: "b", RoundTripSeconds: 0.05}, {From: "a", To: "c", RoundTripSeconds: 0.1}, {From: "b", To: "c", RoundTripSeconds: 0.1}}
		w.Loads["busybox"] = sim.Load{CPUSeconds: 0.001, AnswerBytes: 1e3, ThinkSeconds: 5}
		w.Noise = 0.1
		moves := 0
		w.Run(newEngine(t), 3600, func(_ engine.Input, r engine.Result) {
			for _, d := range r.Decisions {
				if d.Action == engine.Move {
					moves++
				}
			}
		})

		if moves > tc.most {
			t.Errorf("users on the other side every %v s: %d moves in an hour", tc.period, moves)
		}
	}
}

// TestNoFlappingWave: a demand that goes up and down is followed, not chased.
func TestNoFlappingWave(t *testing.T) {
	w := world("abcdef", func(at float64) float64 { return 150 + 100*math.Sin(at/20) }, busybox())
	w.Noise = 0.1
	starts, stops := changes(w, newEngine(t), 3600, 1200)
	if starts > 1 || stops > 1 {
		t.Errorf("%d starts and %d stops in forty minutes of waves of two", starts, stops)
	}
}

// TestTrace: what was recorded is decided again, and what is not is found.
func TestTrace(t *testing.T) {
	w := world("abc", func(at float64) float64 { return at * 3 }, busybox(func(s *spec.Spec) {
		s.Ports, s.Limits.MemoryBytes = []spec.Port{{Host: 80, Container: 8083}}, 64<<20
	}))
	w.Noise = 0.1
	w.Links = []engine.Link{{From: "a", To: "b", RoundTripSeconds: 0.02}}
	var trace bytes.Buffer
	recorder, err := sim.NewRecorder(&trace, engine.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[engine.Action]int{}
	w.Run(newEngine(t), 200, func(in engine.Input, r engine.Result) {
		if w.Seconds() == 100 {
			w.Nodes[1].Dead = true
		}
		if err := recorder.Record(in, r); err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Decisions {
			kinds[d.Action]++
		}
	})
	if kinds[engine.Start] == 0 || kinds[engine.Move] == 0 || kinds[engine.Keep] == 0 {
		t.Fatalf("nothing much happens: %v", kinds)
	}
	text := trace.String()
	if n, err := sim.Replay(strings.NewReader(text)); n != 200 || err != nil {
		t.Errorf("%d rounds are the same, %v", n, err)
	}
	lines := strings.SplitAfter(text, "\n")
	lines[50] = strings.Replace(lines[50], `"decisions":[{"action":"`, `"decisions":[{"action":"x`, 1)
	n, err := sim.Replay(strings.NewReader(strings.Join(lines, "")))
	var difference *sim.DifferenceError
	if n != 49 || !errors.As(err, &difference) || difference.Round != 50 || !strings.Contains(err.Error(), `round 50: decided was {"action":"x`) {
		t.Errorf("%d, %v", n, err)
	}
	lines[50] = `{"input":{}}` + "\n"
	if _, err := sim.Replay(strings.NewReader(strings.Join(lines[:51], ""))); err != nil {
		t.Errorf("nothing from nothing: %v", err)
	}
	for text, want := range map[string]string{
		"":   "its first line: EOF",
		"{}": "no trace of weir-edge",
		`{"trace":"weir-edge","version":2,"policy":{"rules":{"x":"("}}}`: "policy of the engine",
		lines[0] + "{": "round 1: unexpected end",
		lines[0] + strings.Replace(lines[1], `"imageName":"busybox"`, `"imageName":""`, 1): "par.imageName",
	} {
		if _, err := sim.Replay(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
	if _, err := sim.NewRecorder(&full{}, engine.Policy{}); err == nil {
		t.Error("a full disk goes unnoticed")
	}
	later, err := sim.NewRecorder(&full{lines: 1}, engine.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if err := later.Record(engine.Input{}, engine.Result{}); err == nil {
		t.Error("a disk that is full in the middle goes unnoticed")
	}
	if n, err := sim.Replay(io.MultiReader(strings.NewReader(lines[0]+lines[1]), iotest.ErrReader(errors.New("bad sector")))); n != 1 || err == nil || !strings.Contains(err.Error(), "round 2: bad sector") {
		t.Errorf("%d rounds of a disk that fails, %v", n, err)
	}
}

// full is a disk with room for so many lines.
type full struct{ lines int }

func (f *full) Write(b []byte) (int, error) {
	if f.lines == 0 {
		return 0, errors.New("no space left on device")
	}
	f.lines--
	return len(b), nil
}

// large is a cluster of a thousand nodes and ten thousand instances of a thousand
// services, to which users come at ten places each.
func large() *sim.World {
	const nodes, services, each = 1000, 1000, 10
	w := &sim.World{Start: start, Loads: map[string]sim.Load{}, Noise: 0.1}
	w.Seed(7)
	for i := range nodes {
		w.Nodes = append(w.Nodes, board(fmt.Sprintf("node-%04d", i)))
	}
	for k := range services {
		name := fmt.Sprintf("service-%04d", k)
		w.Services = append(w.Services, busybox(func(s *spec.Spec) {
			s.Name, s.Image, s.AvailabilityPercent, s.MaxUsers = name, name, 99.9, 20
			s.Labels = map[string]string{"weir.min": "1mbit"}
		}))
		w.Loads[name] = sim.Load{CPUSeconds: 0.002, AnswerBytes: 10e3, ThinkSeconds: 1}
		for i := range each {
			at := (k*each + i*97) % nodes
			w.Put(engine.Instance{ID: engine.InstanceID(name, i+1), Service: name, Node: w.Nodes[at].Name})
			users := float64(8 + k%12) // of a quarter of the services too many
			w.Crowds = append(w.Crowds, sim.Crowd{Service: name, Node: w.Nodes[(at+1)%nodes].Name, Users: func(float64) float64 { return users }})
			w.Links = append(w.Links, engine.Link{From: w.Nodes[at].Name, To: w.Nodes[(at+1)%nodes].Name, RoundTripSeconds: 0.001})
		}
	}
	return w
}

// TestLarge: one round of a thousand nodes allocates less than 200 MB, and
// promises nothing that is not there.
func TestLarge(t *testing.T) {
	e := newEngine(t)
	w := large()
	w.Nodes[5].Dead = true // what was there goes elsewhere
	in := w.Input()
	in.Memory = e.Round(in).Memory
	in.At = in.At.Add(2 * time.Second)
	var r engine.Result
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const rounds = 5
	for range rounds {
		r = e.Round(in)
	}
	runtime.ReadMemStats(&after)
	bytes := (after.TotalAlloc - before.TotalAlloc) / rounds
	kinds := map[engine.Action]int{}
	promised, claimed := map[string]uint64{}, map[engine.Entry]uint64{}
	for _, d := range r.Decisions {
		kinds[d.Action]++
		if at := (engine.Entry{Service: d.Service, Node: d.Node}); d.MinBPS > claimed[at] {
			promised[d.Node] += d.MinBPS - claimed[at]
			claimed[at] = d.MinBPS
		}
	}
	for node, bps := range promised {
		if bps > 95e6 {
			t.Errorf("%s has promised %d", node, bps)
		}
	}
	if kinds[engine.Start] < 100 || kinds[engine.Move] < 5 {
		t.Errorf("too little happens to be a test: %v", kinds)
	}
	t.Logf("%d nodes, %d instances, %v; a round allocates %d MB", len(in.Nodes), len(in.Instances), kinds, bytes>>20)
	if bytes > 200e6 {
		t.Errorf("a round allocates %d bytes", bytes)
	}
}

func BenchmarkRound(b *testing.B) {
	e := newEngine(b)
	in := large().Input()
	in.Memory = e.Round(in).Memory
	in.At = in.At.Add(2 * time.Second)
	b.ReportAllocs()
	for b.Loop() {
		e.Round(in)
	}
}
