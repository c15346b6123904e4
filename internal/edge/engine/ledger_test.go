package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/test/must"
)

// ledger is one in memory. busy is how many swaps still fail; broken what does.
type ledger struct {
	mu         sync.Mutex
	version    int
	promises   engine.Promises
	busy       int
	broken     error
	swapBroken error
}

func (l *ledger) Read(context.Context) (engine.Promises, engine.Token, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.promises), engine.Token(strconv.Itoa(l.version)), l.broken
}

func (l *ledger) Swap(_ context.Context, token engine.Token, p engine.Promises) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.swapBroken != nil:
		return l.swapBroken
	case l.busy > 0:
		l.busy--
		return fmt.Errorf("somebody else: %w", engine.ErrConflict)
	case string(token) != strconv.Itoa(l.version):
		return engine.ErrConflict
	}
	l.version++
	l.promises = maps.Clone(p)
	return nil
}

// TestTwoEngines: engines that decide at the same time, from the same picture, never
// promise more than there is, and start nothing twice.
func TestTwoEngines(t *testing.T) {
	e := newEngine(t)
	nodes := boards("ab")
	nodes[0].In.BudgetBPS, nodes[1].In.BudgetBPS = 95e6, 34e6
	l := &ledger{}
	var wait sync.WaitGroup
	var mu sync.Mutex
	started := map[string]int{}
	for number := range 8 {
		wait.Go(func() {
			// Half of them look after the same services, half after others.
			var services []engine.Service
			for k := range 10 {
				name := fmt.Sprintf("s%d", k+number%2*10)
				services = append(services, web(func(s *spec.Spec) {
					s.Name, s.Labels = name, map[string]string{"weir.min": "11mbit", "weir.in.min": "5mbit"}
					s.Limits.MemoryBytes = 100e6
				}))
			}
			r := e.Round(engine.Input{At: start, Nodes: nodes, Services: services})
			yes, no, err := e.Commit(t.Context(), l, nodes, nil, r.Decisions)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, d := range yes {
				started[d.Instance]++
			}
			for _, refusal := range no {
				if !strings.Contains(refusal.Reason, "cannot promise") && !strings.Contains(refusal.Reason, "another engine has changed") {
					t.Error(refusal.Reason)
				}
			}
		})
	}
	wait.Wait()
	sums := map[string]engine.Rates{}
	for id, p := range l.promises {
		was := sums[p.Node]
		if sums[p.Node] = (engine.Rates{Out: was.Out + p.MinBPS, In: was.In + p.InMinBPS}); !p.Claim && started[id] != 1 {
			t.Errorf("%s was started %d times", id, started[id])
		}
	}
	for _, n := range nodes {
		if has := sums[n.Name]; has.Out > n.Out.BudgetBPS || has.In > n.In.BudgetBPS {
			t.Errorf("%s: %s is promised", n.Name, has)
		}
	}
	if 2*len(started) != len(l.promises) || len(started) != 14 { // b receives no more than six
		t.Errorf("%d started of the 14 that fit, promised: %v", len(started), sums)
	}
}

// TestLedgerOfAnotherVersion: a weir-edge that promises nothing of what nodes receive shares a ledger with one
// that does. What it does not know is gone when it has changed the ledger, and promised again.
func TestLedgerOfAnotherVersion(t *testing.T) {
	const older = `{"web-1":{"service":"web","node":"a","limit_bytes":5},"web@a":{"service":"web","node":"a","min_bps":20000000,"claim":true,"link_bps":4000000}}`
	var read engine.Promises
	must.Succeed(t, json.Unmarshal([]byte(older), &read))
	nodes := boards("a")
	nodes[0].In.BudgetBPS = 30e6
	out, in := engine.Entry{Service: "web", Node: "a"}, engine.Entry{Service: "web", Node: "a", In: true}
	needs := engine.Division{MinBPS: map[string]engine.Rates{"web": {Out: 20e6, In: 9e6}}, Needs: map[engine.Entry]engine.Need{out: {LocalBPS: 20e6}, in: {LocalBPS: 9e6}}}
	promise := func() engine.Promises { return engine.AdmitClaims(nodes, read, read, needs, nil) }
	after := promise()
	want := engine.Promises{"web-1": read["web-1"], "web@a": {Service: "web", Node: "a", MinBPS: 20e6, InMinBPS: 9e6, LinkBPS: 4e6, Claim: true}}
	if !maps.Equal(after, want) {
		t.Errorf("%+v", after)
	}
	text, err := json.Marshal(after)
	must.Succeed(t, err)
	rewritten := strings.ReplaceAll(string(text), `,"in_min_bps":9000000`, "")
	if rewritten != older {
		t.Errorf("the older one reads %s", text)
	}
	read = nil
	must.Succeed(t, json.Unmarshal([]byte(rewritten), &read))
	if again := promise(); !maps.Equal(again, want) {
		t.Errorf("%+v", again)
	}
}

func TestCommit(t *testing.T) {
	e := newEngine(t)
	nodes := boards("ab")
	nodes[0].In = engine.Room{BudgetBPS: 30e6, OtherMinBPS: 10e6}
	claimed := engine.Promise{Service: "web", Node: "a", MinBPS: 90e6, Claim: true}
	there := engine.Promises{"web-1": {Service: "web", Node: "a", LimitBytes: 850e6}, "web@a": claimed}
	decide := func(d engine.Decision) []engine.Decision { d.Service = "web"; return []engine.Decision{d} }
	for _, tc := range []struct {
		name     string
		seen     engine.Promises
		decision engine.Decision
		refused  string
		after    engine.Promises
	}{
		{"keep", there, engine.Decision{Action: engine.Keep}, "", there},
		{"stop", there, engine.Decision{Action: engine.Stop, Instance: "web-1", Node: "a"}, "", engine.Promises{"web-1": {Service: "web", Node: "a", LimitBytes: 850e6, Stopping: true}, "web@a": claimed}},
		{"stop what nobody promised", there, engine.Decision{Action: engine.Stop, Instance: "web-9", Node: "a"}, "", there},
		{"too much", there, engine.Decision{Action: engine.Start, Instance: "web-2", Node: "a", MinBPS: 95e6 + 1}, "a has promised 90mbit of the 95mbit that it can, and cannot promise 5000001bit more", there},
		{"just enough", there, engine.Decision{Action: engine.Move, Instance: "web-2", Node: "a", MinBPS: 95e6, LimitBytes: 50e6, Replaces: "web-1"}, "", engine.Promises{"web-1": there["web-1"], "web-2": {Service: "web", Node: "a", LimitBytes: 50e6, Replaces: "web-1"}, "web@a": {Service: "web", Node: "a", MinBPS: 95e6, Claim: true}}},
		{"no more than is claimed", there, engine.Decision{Action: engine.Start, Instance: "web-2", Node: "a", MinBPS: 90e6}, "", engine.Promises{"web-1": there["web-1"], "web-2": {Service: "web", Node: "a"}, "web@a": claimed}},
		{"too much memory", there, engine.Decision{Action: engine.Start, Instance: "web-2", Node: "a", LimitBytes: 50e6 + 1}, "a has promised 850.0 of the 900.0 MB of memory", there},
		{"twice", there, engine.Decision{Action: engine.Start, Instance: "web-1", Node: "b"}, "there is an instance web-1 already, on a", there},
		{"nowhere", there, engine.Decision{Action: engine.Start, Instance: "web-2", Node: "x"}, "there is no node x any more", there},
		{"overflow", there, engine.Decision{Action: engine.Start, Instance: "web-2", Node: "a", MinBPS: 1<<64 - 1}, "cannot promise", there},
		{"received", there, engine.Decision{Action: engine.Start, Instance: "web-2", Node: "a", MinBPS: 90e6, InMinBPS: 20e6}, "", engine.Promises{
			"web-1": there["web-1"], "web-2": {Service: "web", Node: "a"}, "web@a": {Service: "web", Node: "a", MinBPS: 90e6, InMinBPS: 20e6, Claim: true},
		}},
		{"too much received", there, engine.Decision{Action: engine.Start, Instance: "web-2", Node: "a", InMinBPS: 21e6}, "a has promised 10mbit of the 30mbit that it can, and cannot promise 21mbit more of what it receives", there},
		{"nothing received", there, engine.Decision{Action: engine.Start, Instance: "web-2", Node: "b", MinBPS: 1e6, InMinBPS: 1e6}, "cannot promise 1mbit more of what it receives", there},
		{"another was faster", nil, engine.Decision{Action: engine.Start, Instance: "web-2", Node: "b"}, "another engine has changed", there},
		{"another has ended something", engine.Promises{"web-1": there["web-1"], "web@a": claimed, "web-3": {Service: "web"}}, engine.Decision{Action: engine.Start, Instance: "web-2", Node: "b"}, "another engine has changed", there},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &ledger{promises: maps.Clone(there), busy: 3}
			yes, no, err := e.Commit(t.Context(), l, nodes, tc.seen, decide(tc.decision))
			if err != nil || !maps.Equal(l.promises, tc.after) {
				t.Errorf("%+v, %v; want %+v", l.promises, err, tc.after)
			}
			switch {
			case tc.refused == "" && len(no) == 0 && len(yes) == 1 == (tc.decision.Action != engine.Keep):
			case tc.refused != "" && len(no) == 1 && strings.Contains(no[0].Reason, tc.refused):
			default:
				t.Errorf("%+v, %+v", yes, no)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	l := &ledger{promises: engine.Promises{"a-1": {Node: "a"}, "b-1": {Node: "b"}}}
	if err := engine.Release(t.Context(), l, "a-1", "x-1"); err != nil || len(l.promises) != 1 || l.promises["b-1"].Node != "b" {
		t.Errorf("%v, %v", l.promises, err)
	}
	l.busy = 1000
	if err := engine.Release(t.Context(), l, "b-1"); !errors.Is(err, engine.ErrConflict) || !strings.Contains(err.Error(), "others have changed it 20 times") {
		t.Error(err)
	}
	l.swapBroken = errors.New("the disk is full")
	if _, _, err := newEngine(t).Commit(t.Context(), l, boards("a"), l.promises, []engine.Decision{{Action: engine.Start, Instance: "c-1", Node: "a"}}); err == nil || !strings.Contains(err.Error(), "write what is promised: the disk is full") {
		t.Error(err)
	}
	l.broken = errors.New("no manager")
	if err := engine.Release(t.Context(), l, "b-1"); err == nil || !strings.Contains(err.Error(), "read what is promised: no manager") {
		t.Error(err)
	}
}

// TestAdmitsWhatCanBeKept: a minimum is not promised where no agent can be told of it, whatever
// was decided.
func TestAdmitsWhatCanBeKept(t *testing.T) {
	e := newEngine(t)
	for name, change := range map[string]func(*engine.Node){
		"no agent":                   func(n *engine.Node) { n.Weir = false },
		"one that lets it look only": func(n *engine.Node) { n.ReadOnly = true },
	} {
		nodes := boards("a")
		change(&nodes[0])
		d := engine.Decision{Action: engine.Start, Service: "web", Instance: "web-1", Node: "a", MinBPS: 1e6}
		after, admitted, refused := e.Admit(nodes, nil, nil, []engine.Decision{d})
		if len(after) != 0 || len(admitted) != 0 || len(refused) != 1 || !strings.Contains(refused[0].Reason, "has no Weir agent that takes minimums from weir-edge") {
			t.Errorf("%s: %+v, %+v", name, after, refused)
		}
		d.MinBPS = 0
		if after, _, _ := e.Admit(nodes, nil, nil, []engine.Decision{d}); len(after) != 1 {
			t.Errorf("%s: without a minimum: %+v", name, after)
		}
	}
}
