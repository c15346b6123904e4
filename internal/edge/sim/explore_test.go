package sim_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/minimums"
	"github.com/weir-project/weir/internal/edge/sim"
	"github.com/weir-project/weir/internal/edge/spec"
)

// exploreSeconds is how long each world runs, in simulated time.
const exploreSeconds = 900

// exploreWorld is a kind of cluster. prepare makes one of them by chance and returns what happens in
// each second of it.
type exploreWorld struct {
	name    string
	prepare func(r *rand.Rand) (*sim.World, func(second float64))
}

func uniform(r *rand.Rand, low, high float64) float64 { return low + (high-low)*r.Float64() }

// withoutMaximum is a service whose specification does not say how many users an instance has room for.
func withoutMaximum(seconds float64) engine.Service {
	return busybox(func(s *spec.Spec) { s.MaxUsers, s.ResponseSeconds = 0, seconds })
}

// updated is a crowd in whose middle the service is deployed again; bad is how probable it is that the
// new version does not answer, dies how probable it is that a node dies meanwhile.
func updated(bad, dies float64) func(r *rand.Rand) (*sim.World, func(float64)) {
	return func(r *rand.Rand) (*sim.World, func(float64)) {
		from, long, most := uniform(r, 20, 100), uniform(r, 200, 400), uniform(r, 150, 450)
		w := world("abcdef", func(at float64) float64 {
			if at >= from && at < from+long {
				return most
			}
			return 10
		}, busybox(func(s *spec.Spec) { s.AvailabilityPercent = 99.9 }))
		w.Services[0].Versions.Wanted, w.Services[0].Spec.StartUpSeconds = "1", uniform(r, 0.5, 10)
		if r.Float64() < bad {
			w.Bad = "2"
		}
		when := math.Floor(from + uniform(r, 0, long))
		fails, down, lost := when+uniform(r, -5, 20), uniform(r, 10, 120), r.IntN(6)
		if r.Float64() >= dies {
			fails = math.Inf(1)
		}
		return w, func(at float64) {
			if at == when {
				w.Deploy("busybox", "2")
			}
			w.Nodes[lost].Dead = at >= fails && at < fails+down
		}
	}
}

// contended are five services with minimums that fill most of four uplinks.
func contended(r *rand.Rand) *sim.World {
	w := world("abcd", func(float64) float64 { return 10 }, busybox())
	w.Services, w.Crowds, w.Loads = nil, nil, map[string]sim.Load{}
	for k := range 5 {
		name := fmt.Sprintf("service-%d", k)
		w.Services = append(w.Services, busybox(func(s *spec.Spec) {
			s.Name, s.MaxUsers, s.Labels = name, 50, map[string]string{"weir.min": "20mbit"}
		}))
		w.Loads[name] = sim.Load{CPUSeconds: 0.01, AnswerBytes: 10e3, ThinkSeconds: 1}
		mean, period, phase := uniform(r, 20, 80), uniform(r, 60, 400), uniform(r, 0, 6)
		w.Crowds = append(w.Crowds, sim.Crowd{Service: name, Node: w.Nodes[r.IntN(4)].Name, Users: func(at float64) float64 {
			return mean * (1 + 0.6*math.Sin(phase+at/period))
		}})
	}
	return w
}

func exploreWorlds() []exploreWorld {
	nothing := func(float64) {}
	between := func(at, from, to float64) bool { return at >= from && at < to }
	few := func(float64) float64 { return 40 }
	failing := func(r *rand.Rand, change func(w *sim.World, at, when, long float64)) (*sim.World, func(float64)) {
		w := world("abcdef", few, busybox(func(s *spec.Spec) { s.AvailabilityPercent = 99.9 }))
		when, long := uniform(r, 60, 120), uniform(r, 10, 120)
		return w, func(at float64) { change(w, at, when, long) }
	}
	return []exploreWorld{
		{"ramp", func(r *rand.Rand) (*sim.World, func(float64)) {
			over, most := uniform(r, 20, 600), uniform(r, 300, 800)
			w := world("abcdef", func(at float64) float64 { return 5 + most*min(at/over, 1) }, withoutMaximum(0.2))
			w.Loads["busybox"] = sim.Load{CPUSeconds: 0.01, AnswerBytes: 1e3, ThinkSeconds: 0.2}
			return w, nothing
		}},
		{"crowd", func(r *rand.Rand) (*sim.World, func(float64)) {
			from, long, most := uniform(r, 20, 100), uniform(r, 60, 400), uniform(r, 150, 450)
			return world("abcdef", func(at float64) float64 {
				if between(at, from, from+long) {
					return most
				}
				return 10
			}, busybox()), nothing
		}},
		{"wave", func(r *rand.Rand) (*sim.World, func(float64)) {
			mean, part, period := uniform(r, 100, 300), uniform(r, 0.2, 0.9), uniform(r, 30, 400)
			return world("abcdef", func(at float64) float64 { return mean * (1 + part*math.Sin(2*math.Pi*at/period)) }, busybox()), nothing
		}},
		{"bursts", func(r *rand.Rand) (*sim.World, func(float64)) {
			every, long, most := uniform(r, 20, 200), uniform(r, 2, 15), uniform(r, 80, 300)
			return world("abcdef", func(at float64) float64 {
				if math.Mod(at, every) < long {
					return most
				}
				return 20
			}, busybox()), nothing
		}},
		{"two-nodes", func(r *rand.Rand) (*sim.World, func(float64)) {
			period, part := uniform(r, 20, 500), uniform(r, 0.2, 0.8)
			there := func(at float64) bool { return math.Mod(at, period) < part*period }
			s := withoutMaximum(0.2)
			w := world("abc", func(at float64) float64 {
				if there(at) {
					return 10
				}
				return 60
			}, s)
			w.Crowds = append(w.Crowds, sim.Crowd{Service: "busybox", Node: "b", Users: func(at float64) float64 {
				if there(at) {
					return 60
				}
				return 5
			}})
			w.Links = []engine.Link{{From: "a", To: "b", RoundTripSeconds: 0.05}, {From: "a", To: "c", RoundTripSeconds: 0.1}, {From: "b", To: "c", RoundTripSeconds: 0.1}}
			w.Loads["busybox"] = sim.Load{CPUSeconds: 0.001, AnswerBytes: 1e3, ThinkSeconds: 2}
			return w, nothing
		}},
		{"moves-away", func(r *rand.Rand) (*sim.World, func(float64)) {
			when, n := uniform(r, 60, 300), uniform(r, 10, 80)
			w := world("abcd", func(at float64) float64 {
				if at < when {
					return n
				}
				return 0
			}, busybox())
			w.Crowds = append(w.Crowds, sim.Crowd{Service: "busybox", Node: "b", Users: func(at float64) float64 { return n - w.Crowds[0].Users(at) }})
			w.Links = []engine.Link{{From: "a", To: "b", RoundTripSeconds: 0.05}}
			return w, nothing
		}},
		{"slow-start", func(r *rand.Rand) (*sim.World, func(float64)) {
			slow, from, most := uniform(r, 15, 60), uniform(r, 60, 200), uniform(r, 150, 600)
			w := world("abcdef", func(at float64) float64 {
				if at >= from {
					return most
				}
				return 10
			}, withoutMaximum(0.2))
			w.Services[0].Spec.StartUpSeconds, w.Services[0].Spec.ImageBytes = slow, uint64(uniform(r, 1e6, 200e6))
			w.Loads["busybox"] = sim.Load{CPUSeconds: 0.01, AnswerBytes: 1e3, ThinkSeconds: 0.2}
			return w, nothing
		}},
		{"crash-loop", func(r *rand.Rand) (*sim.World, func(float64)) {
			until, after := uniform(r, 60, 400), uniform(r, 1, 10)
			w := world("abcdef", few, busybox())
			return w, func(at float64) {
				if w.CrashSeconds = 0; at < until {
					w.CrashSeconds = after
				}
			}
		}},
		{"crash-once", func(r *rand.Rand) (*sim.World, func(float64)) {
			w, when := world("abcdef", few, busybox()), math.Floor(uniform(r, 30, 300))
			return w, func(at float64) {
				if at == when {
					w.Crash("busybox")
				}
			}
		}},
		{"node-lost", func(r *rand.Rand) (*sim.World, func(float64)) {
			lost := r.IntN(2)
			return failing(r, func(w *sim.World, at, when, long float64) { w.Nodes[lost].Dead = between(at, when, when+long) })
		}},
		{"cut-off", func(r *rand.Rand) (*sim.World, func(float64)) {
			cut := 2 + r.IntN(4) // four and more are most of the nodes
			return failing(r, func(w *sim.World, at, when, long float64) {
				for i := range cut {
					w.Nodes[i].Unreachable = between(at, when, when+long)
				}
			})
		}},
		{"min-refused", func(r *rand.Rand) (*sim.World, func(float64)) {
			refusing := 1 + r.IntN(6)
			return failing(r, func(w *sim.World, at, when, long float64) {
				for i := range refusing {
					w.Nodes[i].Refuses = between(at, when, when+3*long)
				}
			})
		}},
		{"exhausted", func(r *rand.Rand) (*sim.World, func(float64)) {
			when, others, spared := uniform(r, 60, 200), uniform(r, 3.6, 4), r.IntN(5)
			w := world("abcdef", few, withoutMaximum(0.2))
			w.Loads["busybox"] = sim.Load{CPUSeconds: 0.02, AnswerBytes: 1e3, ThinkSeconds: 0.3}
			return w, func(at float64) {
				for i := range w.Nodes[spared:] {
					if at >= when {
						w.Nodes[i].OtherCPUs = others
					}
				}
			}
		}},
		{"update", updated(0, 0)},
		{"bad-version", updated(1, 0)},
		{"update-lost", updated(0, 1)},
		{"bad-lost", updated(1, 1)},
		{"relays", func(r *rand.Rand) (*sim.World, func(float64)) {
			w := world("abc", func(float64) float64 { return 20 }, busybox(func(s *spec.Spec) { s.Labels = map[string]string{"weir.min": "40mbit"} }))
			for _, node := range []string{"b", "c"} {
				n, when := uniform(r, 5, 40), uniform(r, 20, 400)
				w.Crowds = append(w.Crowds, sim.Crowd{Service: "busybox", Node: node, Users: func(at float64) float64 {
					if at < when {
						return n
					}
					return 45 - n
				}})
			}
			return w, nothing
		}},
		{"contended", func(r *rand.Rand) (*sim.World, func(float64)) { return contended(r), nothing }},
		{"degrades", func(r *rand.Rand) (*sim.World, func(float64)) {
			w := contended(r) // one uplink after the other becomes slow for a while
			every, long, part, whole := uniform(r, 20, 90), uniform(r, 0.2, 0.9), uniform(r, 0.1, 0.7), w.Nodes[0].Node
			return w, func(at float64) {
				turn, passed := math.Modf(at / every)
				for i := range w.Nodes {
					n := &w.Nodes[i].Node
					if n.UplinkBPS, n.Out.BudgetBPS = whole.UplinkBPS, whole.Out.BudgetBPS; i == int(turn)%len(w.Nodes) && passed < long {
						n.UplinkBPS, n.Out.BudgetBPS = uint64(part*float64(n.UplinkBPS)), uint64(part*float64(n.Out.BudgetBPS))
					}
				}
			}
		}},
		{"uploads", func(r *rand.Rand) (*sim.World, func(float64)) {
			w := contended(r) // one node shares nothing of what it receives
			for i := range w.Nodes[:3] {
				w.Nodes[i].In.BudgetBPS = uint64(uniform(r, 40e6, 95e6))
			}
			for i := range w.Services {
				w.Services[i].Spec.Labels = map[string]string{"weir.min": "10mbit", "weir.in.min": "20mbit"}
			}
			return w, nothing
		}},
		{"links", func(r *rand.Rand) (*sim.World, func(float64)) {
			w := contended(r)
			w.LinkBPS = map[string]uint64{}
			for i := range w.Nodes { // two nodes behind each
				w.Nodes[i].Link = fmt.Sprint("link-", i/2)
				w.LinkBPS[w.Nodes[i].Link] = uint64(uniform(r, 15e6, 60e6))
			}
			for i := range w.Services {
				w.Services[i].Spec.Ports = []spec.Port{{Host: 80, Container: 80}}
			}
			return w, nothing
		}},
	}
}

// measures are the columns of the table. waited is the longest time without a minimum in
// force or users served in time, interrupted by less than ten seconds; unserved are all such
// seconds, of all services; told is how many minimums agents are told.
var measures = []string{"waited", "unserved", "starts", "moves", "stops", "told"}

// explore runs one world with one seed.
func explore(t *testing.T, kind exploreWorld, seed uint64) []float64 {
	w, happen := kind.prepare(rand.New(rand.NewPCG(seed, 22)))
	w.Noise = 0.1
	w.Seed(seed)
	var waited, unserved, starts, moves, stops, told float64
	var division engine.Division
	promises, since, last := engine.Promises{}, map[string]float64{}, map[string]float64{}
	var divided minimums.Minimums
	w.Run(newEngine(t), exploreSeconds, func(in engine.Input, result engine.Result) {
		at := w.Seconds()
		for _, d := range result.Decisions {
			if room, told := roomFor(in, d); told && d.MinBPS > room {
				t.Errorf("%s starts on %s with %d, for which its links have %d", d.Service, d.Node, d.MinBPS, room)
			}
			if i := slices.IndexFunc(in.Nodes, func(n engine.Node) bool { return n.Name == d.Node }); i >= 0 && d.InMinBPS > in.Nodes[i].In.BudgetBPS {
				t.Errorf("%s starts on %s with %d, of %d that it receives", d.Service, d.Node, d.InMinBPS, in.Nodes[i].In.BudgetBPS)
			}
			switch d.Action {
			case engine.Start:
				starts++
			case engine.Move:
				moves++
			case engine.Stop:
				if d.Cause != engine.CauseReplaced {
					stops++
				}
			}
		}
		before := division
		maps.DeleteFunc(promises, func(_ string, p engine.Promise) bool { return !p.Claim })
		maps.Copy(promises, w.Promises())
		input := minimums.Input{At: in.At, Promises: promises, Starting: w.Starting(), Proxies: proxies(w)}
		for _, s := range w.Services {
			if minimum := engine.MinimumOf(&s.Spec); minimum != (engine.Rates{}) {
				input.Services = append(input.Services, minimums.Service{Name: s.Spec.Name, MinBPS: minimum.Out}, minimums.Service{Name: s.Spec.Name, In: true, MinBPS: minimum.In})
			}
		}
		division = divided.Divide(&input)
		nodes, inForce := w.Input().Nodes, map[engine.Entry]uint64{}
		for _, p := range promises {
			if p.Claim {
				for _, in := range []bool{false, true} {
					at := engine.Entry{Service: p.Service, Node: p.Node, In: in}
					inForce[at] = before.Needs[at].BPS()
				}
			}
		}
		taken := takenOf(promises)
		promises = engine.AdmitClaims(nodes, promises, promises, division, inForce)
		for at, bps := range takenOf(promises) {
			i := slices.IndexFunc(nodes, func(n engine.Node) bool { return n.Name == at.Node })
			if room := nodes[i].Room(at.In); bps > max(room.BudgetBPS-min(room.OtherMinBPS, room.BudgetBPS), taken[at]) {
				t.Errorf("%+v has promised %d of %d", at, bps, room.BudgetBPS)
			}
		}
		reserveOnLinks(w, promises, division)
		w.Claims = nil
		for _, id := range slices.Sorted(maps.Keys(promises)) {
			if p := promises[id]; p.Claim {
				w.Claims = append(w.Claims, engine.Claim{Service: p.Service, Node: p.Node, MinBPS: p.MinBPS, InMinBPS: p.InMinBPS, LinkBPS: p.LinkBPS})
			}
		}
		told += differences(before.Sent, division.Sent)
		for _, one := range []func(engine.Need) uint64{func(n engine.Need) uint64 { return n.LocalBPS + n.StartingBPS }, func(n engine.Need) uint64 { return n.RelayedBPS }} {
			told += differences(rates(before, one), rates(division, one))
		}
		for i := range w.Services {
			s := &w.Services[i].Spec
			if isServed(w, s, division) {
				continue
			}
			unserved++
			if previous, was := last[s.Name]; !was || at-previous >= 10 {
				since[s.Name] = at
			}
			last[s.Name] = at
			waited = max(waited, at-since[s.Name]+1)
		}
		happen(at)
	})
	return []float64{waited, unserved, starts, moves, stops, told}
}

// takenOf returns the sums of claims by node and direction.
func takenOf(promises engine.Promises) map[engine.Entry]uint64 {
	taken := map[engine.Entry]uint64{}
	for _, p := range promises {
		for _, in := range []bool{false, true} {
			taken[engine.Entry{Node: p.Node, In: in}] += p.Minimum().Of(in)
		}
	}
	return taken
}

// roomFor returns what the links of a decision's node can promise for its service, with what they have.
func roomFor(in engine.Input, d engine.Decision) (bps uint64, told bool) {
	i := slices.IndexFunc(in.LinkRooms, func(r engine.LinkRoom) bool { return r.Node == d.Node })
	if i < 0 {
		return 0, false
	}
	bps = in.LinkRooms[i].FreeBPS
	for _, c := range in.Claims {
		if c.Service == d.Service && c.Node == d.Node {
			bps += c.LinkBPS
		}
	}
	return bps, true
}

// reserveOnLinks promises what users get of claims on links as far as they have room, as a controller does.
func reserveOnLinks(w *sim.World, promises engine.Promises, division engine.Division) {
	if w.LinkBPS == nil {
		return
	}
	links, left, reserved := map[string]string{}, maps.Clone(w.LinkBPS), map[engine.Entry]uint64{}
	for _, n := range w.Nodes {
		links[n.Name] = n.Link
	}
	for _, at := range slices.SortedFunc(maps.Keys(division.Needs), engine.Entry.Compare) {
		link := links[at.Node]
		if at.In {
			continue
		}
		reserved[at] = min(promises[engine.ClaimID(at)].MinBPS, division.Needs[at].UsersBPS(), left[link])
		left[link] -= reserved[at]
	}
	engine.AdmitLinks(promises, reserved)
}

// proxies returns what the proxies of all nodes report: users as they happen to be at the moment.
func proxies(w *sim.World) (list []minimums.Proxy) {
	promises, paths := w.Promises(), w.Paths(true)
	for _, s := range w.Services {
		for _, n := range w.Nodes {
			p := minimums.Proxy{Service: s.Spec.Name, Node: n.Name, Answers: true, Users: map[string]float64{}}
			for path, users := range paths {
				if path.Node == n.Name && promises[path.Instance].Service == s.Spec.Name {
					p.Users[path.Instance] = users
				}
			}
			list = append(list, p)
		}
	}
	return list
}

// rates returns one of the rates that a division needs, where it is not 0.
func rates(d engine.Division, of func(engine.Need) uint64) map[engine.Entry]uint64 {
	list := map[engine.Entry]uint64{}
	for at, need := range d.Needs {
		if bps := of(need); bps > 0 {
			list[at] = bps
		}
	}
	return list
}

// differences counts what is not the same in two divisions.
func differences[K, V comparable](a, b map[K]V) (n float64) {
	for key, bps := range b {
		if a[key] != bps {
			n++
		}
	}
	for key := range a {
		if _, still := b[key]; !still {
			n++
		}
	}
	return n
}

// isServed tells whether all users of a service have room and are answered in time, and have the
// minimum where they come to, but for an eighth of it.
func isServed(w *sim.World, s *spec.Spec, division engine.Division) bool {
	instances, users := 0, 0.0
	for node, count := range w.Running(s.Name) {
		instances += count
		if slices.ContainsFunc(w.Nodes, func(n sim.Node) bool { return n.Name == node && n.Refuses }) || w.IsTooSlow(node) && engine.MinimumOf(s) != (engine.Rates{}) {
			return false
		}
	}
	paths, promises := w.Paths(false), w.Promises()
	wanted := map[string]float64{}
	for path, n := range paths {
		if promises[path.Instance].Service == s.Name {
			wanted[path.Node] += n
			users += n
		}
	}
	for node, n := range wanted {
		for _, in := range []bool{false, true} {
			has := division.Needs[engine.Entry{Service: s.Name, Node: node, In: in}]
			if float64(has.LocalBPS+has.RelayedBPS+has.AckBPS) < (n/users-0.125)*float64(engine.MinimumOf(s).Of(in)) {
				return false
			}
		}
	}
	return instances > 0 && (s.MaxUsers == 0 || users <= float64(instances*s.MaxUsers)) && w.ResponseSeconds(s.Name) <= s.ResponseSeconds
}

// figure is what a measure is over all seeds: its mean with the standard error, and the worst.
type figure struct{ mean, off, worst float64 }

func newFigure(list []float64) (f figure) {
	for _, x := range list {
		f.mean += x / float64(len(list))
		f.worst = max(f.worst, x)
	}
	for _, x := range list {
		f.off += (x - f.mean) * (x - f.mean)
	}
	f.off = math.Sqrt(f.off) / float64(len(list))
	return f
}

// mostWaited is how long users may wait for a minimum, in seconds, in worlds where all can be served.
// In the others a node or an instance fails for as long as it likes.
var mostWaited = map[string]float64{
	"ramp": 60, "crowd": 10, "wave": 10, "bursts": 10, "two-nodes": 20, "moves-away": 10, "slow-start": 180,
	"crash-once": 10, "node-lost": 10, "update": 10, "bad-version": 10, "update-lost": 10, "bad-lost": 10, "cut-off": 10, "relays": 60, "contended": 10, "uploads": 10,
}

// TestExplore runs the engine in many simulated clusters: what a change of a constant does, its table
// shows beside that of before. Waiting for longer than mostWaited is a failure.
//
//	WEIR_EXPLORE=100                 how many seeds; without it one, and no table
//	WEIR_EXPLORE_BEFORE=before.txt   a table to compare with
func TestExplore(t *testing.T) {
	seeds, err := strconv.ParseUint(os.Getenv("WEIR_EXPLORE"), 10, 32)
	show := err == nil
	if !show {
		seeds = 1
	}
	before := readTable(t, os.Getenv("WEIR_EXPLORE_BEFORE"))
	var table, changes strings.Builder
	fmt.Fprintf(&table, "seeds 1 to %d, %d s each: mean ± its standard error / the worst\n%-12s", seeds, exploreSeconds, "world")
	for _, measure := range measures {
		fmt.Fprintf(&table, "%20s", measure)
	}
	table.WriteByte('\n')
	for _, kind := range exploreWorlds() {
		columns := make([][]float64, len(measures))
		for seed := uint64(1); seed <= seeds; seed++ {
			for i, x := range explore(t, kind, seed) {
				columns[i] = append(columns[i], x)
			}
			if most, bounded := mostWaited[kind.name]; bounded && columns[0][seed-1] > most {
				t.Errorf("%s, seed %d: users waited %.0f s, at most %.0f are right", kind.name, seed, columns[0][seed-1], most)
			}
		}
		fmt.Fprintf(&table, "%-12s", kind.name)
		for i, measure := range measures {
			now := newFigure(columns[i])
			fmt.Fprintf(&table, "%20s", fmt.Sprintf("%.2f±%.2f/%.0f", now.mean, now.off, now.worst))
			was, known := before[kind.name+" "+measure]
			if difference := now.mean - was.mean; known && math.Abs(difference) > max(2*math.Hypot(now.off, was.off), 0.02) {
				word := "worse"
				if difference < 0 {
					word = "better"
				}
				fmt.Fprintf(&changes, "%s: %s %s: %.2f -> %.2f (worst %.0f -> %.0f)\n", word, kind.name, measure, was.mean, now.mean, was.worst, now.worst)
			}
		}
		table.WriteByte('\n')
	}
	if show {
		fmt.Print(table.String())
	}
	if before != nil {
		fmt.Printf("beyond twice the standard error:\n%s", changes.String())
	}
}

// readTable reads a table of before; nil if there is none.
func readTable(t *testing.T, path string) map[string]figure {
	t.Helper()
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]figure{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 1+len(measures) {
			continue
		}
		for i, measure := range measures {
			var f figure
			if n, err := fmt.Sscanf(fields[1+i], "%f±%f/%f", &f.mean, &f.off, &f.worst); n == 3 && err == nil {
				figures[fields[0]+" "+measure] = f
			}
		}
	}
	return figures
}
