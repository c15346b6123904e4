package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/meter"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// costing is a round in which a gigabit cost seconds of a processor.
func costing(round int, seconds float64) observation {
	cpu := time.Duration(seconds * float64(time.Second))
	return observation{
		Round: round, Window: time.Second, Arrived: []meter.Counter{{Bytes: 1e9 / 8}},
		CPU: traffic.CPUTimes{Busy: cpu, Idle: 2*time.Second - cpu},
	}
}

func rounds(seconds ...float64) (o Observed[observation]) {
	for round, one := range seconds {
		o.Seen = append(o.Seen, costing(round, one))
	}
	return o
}

// ranCases is a runner that has observed peers in figure 12 with one container.
func ranCases(observed map[string]Observed[observation]) (*runner, []Case) {
	c := costSuite(Options{RateBPS: 100e6})[0]
	r := &runner{Recorder: &Recorder[runKey, observation]{}}
	for _, name := range PeerNames() {
		if seen, ran := observed[name]; ran {
			r.peers = append(r.peers, namedPeer{name: name})
			*r.Of(runKey{c.ID(), name}) = seen
		}
	}
	return r, []Case{c}
}

func verdictOn(t *testing.T, list []report.Verdict, target string) report.Verdict {
	t.Helper()
	one := measure.Find(list, func(v report.Verdict) bool { return strings.HasSuffix(v.Target, target) })
	if one == nil {
		t.Fatalf("no verdict on %q in %+v", target, list)
	}
	return *one
}

// TestRatiosAreOfTheSameRound: each round doubles the costs of all. So every ratio is 0.5, and that of
// medians, of rounds of which one peer lacks one, is not.
func TestRatiosAreOfTheSameRound(t *testing.T) {
	low, none := rounds(1, 2, 4, 8, 16, 32, 64, 128), rounds(2, 4, 8, 16, 32, 64, 128, 256)
	for i := range low.Seen {
		low.Seen[i] = costing(i, 1e-3*math.Pow(2, float64(i)))
		none.Seen[i] = costing(i, 2e-3*math.Pow(2, float64(i)))
	}
	none.Seen = slices.Delete(none.Seen, 0, 1)
	r, cases := ranCases(map[string]Observed[observation]{PeerWeirLow: low, PeerNone: none})
	ratios := r.ratios(cases[0], PeerWeirLow)
	if len(ratios) != 1 {
		t.Fatalf("%d ratios, want that to none, as nothing else took part: %+v", len(ratios), ratios)
	}
	got := ratios[0]
	if got.Count != 7 || math.Abs(*got.Low-0.5) > 1e-6 || math.Abs(*got.High-0.5) > 1e-6 || got.Decision != report.Met {
		t.Errorf("%+v, want 0.5 in seven rounds", got)
	}
	verdict := verdictOn(t, verdicts(r.results(cases)), "low, of no control")
	if !verdict.Met || verdict.Measured != "50.0 % (50.0 % to 50.0 %)" || verdict.Where != "figure 12: 1 containers, 7 rounds" {
		t.Errorf("%+v", verdict)
	}
}

// TestFailedPeerDecidesNothing: ratios that would be met are undecided if one of the peers failed, with
// the reason, whatever else was measured; and no number spoils the report.
func TestFailedPeerDecidesNothing(t *testing.T) {
	good, cheap := rounds(1, 1, 1, 1, 1, 1, 1), rounds(.1, .1, .1, .1, .1, .1, .1)
	failed := func(o Observed[observation]) Observed[observation] {
		o.Failure = errors.New("no such tool")
		return o
	}
	for name, test := range map[string]struct {
		low, none Observed[observation]
		decision  report.Decision
		why       string
	}{
		"none failed":            {cheap, good, report.Met, ""},
		"the peer failed once":   {cheap, failed(rounds(1, 1, 1, 1, 1, 1)), report.Undecided, "none failed"},
		"the peer always failed": {cheap, failed(rounds()), report.Undecided, "none failed"},
		"weir failed once":       {failed(cheap), good, report.Undecided, "weir-low failed"},
		"weir always failed":     {failed(rounds()), good, report.Undecided, "weir-low failed"},
		"no round in common":     {rounds(), good, report.Undecided, "no round with both"},
		"the peer cost nothing":  {cheap, rounds(0, 0, 0, 0, 0, 0, 0), report.Missed, ""},
		"cost nothing once":      {cheap, rounds(0, 1, 1, 1, 1, 1, 1), report.Undecided, ""},
		"less than nothing":      {cheap, rounds(-1, -1, -1, -1, -1, -1, -1), report.Missed, ""},
		"no number":              {cheap, rounds(math.NaN(), 1, 1, 1, 1, 1, 1), report.Undecided, ""},
	} {
		if name == "no number" {
			test.none.Seen[0].Arrived = nil
		}
		r, cases := ranCases(map[string]Observed[observation]{PeerWeirLow: test.low, PeerNone: test.none})
		results := r.results(cases)
		if got := r.ratios(cases[0], PeerWeirLow)[0]; got.Decision != test.decision || got.Why != test.why {
			t.Errorf("%s: %s, %q, want %s, %q", name, got.Decision, got.Why, test.decision, test.why)
		}
		if name == "no round in common" {
			continue // nor a result to judge
		}
		verdict := verdictOn(t, verdicts(results), "low, of no control")
		if verdict.Met != (test.decision == report.Met) || verdict.Undecided != (test.decision == report.Undecided) || !strings.HasSuffix(verdict.Where, test.why) {
			t.Errorf("%s: %+v", name, verdict)
		}
		for _, result := range results {
			if _, err := json.Marshal(result.Ratios); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestOnlyUndecidedCasesGoOn: after seven rounds those peers run again whose ratio is undecided. That of
// balanced is only reported, and a peer that failed tells nothing more.
func TestOnlyUndecidedCasesGoOn(t *testing.T) {
	one, cheap, dear, between := rounds(1, 1, 1, 1, 1, 1, 1), rounds(.1, .1, .1, .1, .1, .1, .1), rounds(9, 9, 9, 9, 9, 9, 9), rounds(.1, .1, .1, 9, 9, 9, 9)
	failed := rounds(1, 1, 1, 1, 1, 1, 1)
	failed.Failure = errors.New("no such tool")
	for name, test := range map[string]struct {
		observed map[string]Observed[observation]
		want     []string
	}{
		"all decided":       {map[string]Observed[observation]{PeerNone: one, PeerWeirLow: cheap, PeerWeir: dear, PeerHTBExact: one}, nil},
		"low is undecided":  {map[string]Observed[observation]{PeerNone: one, PeerWeirLow: between, PeerWeir: dear, PeerHTBExact: one}, []string{PeerNone, PeerWeirLow}},
		"exact is, of HTB":  {map[string]Observed[observation]{PeerNone: between, PeerWeir: between, PeerHTBExact: one}, []string{PeerWeir, PeerHTBExact}},
		"balanced would be": {map[string]Observed[observation]{PeerNone: one, PeerWeirBalanced: between}, nil},
		"what failed":       {map[string]Observed[observation]{PeerNone: failed, PeerWeirLow: between}, nil},
	} {
		r, cases := ranCases(test.observed)
		var all, got []string
		for _, peer := range r.wanted(cases, 0)[0] {
			all = append(all, peer.name)
		}
		for _, peer := range r.wanted(cases, 7)[0] {
			got = append(got, peer.name)
		}
		if len(all) != len(test.observed) || !slices.Equal(got, test.want) {
			t.Errorf("%s: of %q go on %q, want %q", name, all, got, test.want)
		}
	}
}

// TestPeersTakeTurns: of any two peers each is before the other in half of the rounds, and every peer is
// at the begin of one.
func TestPeersTakeTurns(t *testing.T) {
	for count := 1; count <= 7; count++ {
		var peers []namedPeer
		for i := range count {
			peers = append(peers, namedPeer{name: fmt.Sprint(i)})
		}
		const rounds = 2 * 7
		before, first := map[[2]string]int{}, map[string]int{}
		for round := range rounds {
			turn := inTurn(peers, round)
			if len(turn) != count {
				t.Fatalf("%d of %d peers in round %d", len(turn), count, round)
			}
			first[turn[0].name]++
			for i, one := range turn {
				for _, other := range turn[i+1:] {
					before[[2]string{one.name, other.name}]++
				}
			}
		}
		if len(first) != count {
			t.Errorf("of %d peers %d are first once", count, len(first))
		}
		for pair, times := range before {
			if times != rounds/2 {
				t.Errorf("of %d peers %s is before %s in %d of %d rounds", count, pair[0], pair[1], times, rounds)
			}
		}
	}
}

// TestVerdictIsOnTheWorstCase in random worlds: one missed case is enough, and then one undecided case.
func TestVerdictIsOnTheWorstCase(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	decisions := []report.Decision{report.Met, report.Undecided, report.Missed}
	for range 500 {
		var results []CaseResult
		worst := 0
		for i := range 1 + random.IntN(5) {
			d := random.IntN(len(decisions))
			worst = max(worst, d)
			results = append(results, CaseResult{Group: "g", Case: fmt.Sprint(i), Peer: PeerWeir, Runs: 7, Ratios: []Ratio{{
				Of: aimTCP.name, Aim: aimTCP.Aim, Median: report.Median{Count: 7, Median: random.Float64()}, Decision: decisions[d],
			}}})
		}
		verdict := verdictOn(t, verdicts(results), aimTCP.name)
		if verdict.Word() != string(decisions[worst]) {
			t.Fatalf("%+v of %+v", verdict, results)
		}
	}
}

// TestRatiosHaveTheirPeers: a ratio of peers of which one does not run the case would never be judged.
func TestRatiosHaveTheirPeers(t *testing.T) {
	aims := map[*ratioAim]int{}
	options := Options{RateBPS: 100e6}
	for _, c := range slices.Concat(costSuite(options), inSuite(options)) {
		for _, aim := range c.Ratios {
			aims[aim]++
			if !c.takesPart(aim.peer) || !c.takesPart(aim.over) {
				t.Errorf("%s compares %s with %s, of which one does not take part", c.ID(), aim.peer, aim.over)
			}
		}
	}
	for _, aim := range ratioAims {
		least := len(unlimitedContainers)
		if aim == aimInTCP || aim == aimOutTCP || aim == aimOutUDP {
			least = 1
		}
		if aims[aim] < least {
			t.Errorf("%s is judged in %d cases", aim.name, aims[aim])
		}
	}
}

// TestExpectedTime: what is undecided is announced before it is known, and then what is left of it.
func TestExpectedTime(t *testing.T) {
	var out strings.Builder
	options := Options{RateBPS: 100e6, RunOptions: measure.RunOptions{Duration: time.Second, Repeat: 7, Progress: &out}}
	p := progress{options: options}
	cases := costSuite(options)[:1]
	p.expect(cases, [][]namedPeer{make([]namedPeer, 7)}, 0)
	p.expect(cases, [][]namedPeer{make([]namedPeer, 2)}, 7)
	p.expect(cases, [][]namedPeer{nil}, 14)
	want := "1 cases, 49 runs, about 2m13s, and up to 4m25s more for what stays undecided\n1 cases are undecided: 14 more runs, about 38s\n"
	if out.String() != want || p.total != 63 {
		t.Errorf("%d runs: %q, want %q", p.total, out.String(), want)
	}
	// Eights are judged once: by sevens, chance misjudges fewer.
	for repeat, want := range map[int][]bool{1: {false}, 7: {true, true, false}, 8: {false, false}, 14: {false}} {
		options.Repeat = repeat
		for i, again := range want {
			if done := (i + 1) * repeat; options.goesOn(done) != again {
				t.Errorf("--repeat %d goes on after %d: %v", repeat, done, !again)
			}
		}
	}
}
