package run

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/edge/store"
)

// agent is one that gives minimums as far as it has room.
type agent struct {
	roomBPS uint64
	has     map[string]string // by container
	status  int               // of every answer, if it is not 0
	words   string            // of a status; "no" if it is empty
	silent  bool              // it does not answer
}

func (a *agent) Set(_ context.Context, container string, change v1.PolicyChange) (v1.Container, error) {
	return v1.Container{}, a.set(container, change)
}

func (a *agent) set(container string, change v1.PolicyChange) error {
	if a.silent {
		return client.ErrNoAgent
	}
	if a.status != 0 {
		return &client.Error{Status: a.status, Message: cmp.Or(a.words, "no")}
	}
	want := uint64(0)
	if *change.Min != "none" {
		if _, err := fmt.Sscanf(*change.Min, "%dmbit", &want); err != nil {
			return err
		}
	}
	if want*1e6 > a.roomBPS {
		return &client.Error{Status: 409, Message: "too much"}
	}
	a.has[container] = *change.Min + "/" + *change.Latency
	return nil
}

func newManager(t *testing.T) *Manager {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	kept, err := store.Open(filepath.Join(t.TempDir(), "edge.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	m, err := New(Options{Store: kept, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *Manager) said() (text string) {
	events, _ := m.events.Since(0)
	for _, e := range events {
		text += e.Message + "\n"
	}
	return text
}

// shop is a service with a minimum and a bound on delay, whose instance is on a; users
// come to b as well, whose proxy is of the task "pb".
func shop(usersA, usersB int) *seen {
	saw := func(users int) proxy.Seen {
		return proxy.Seen{Servers: []proxy.SeenServer{{Name: serverName("shop-1"), Users: users, Weight: 256}}}
	}
	container := func(id, name string, minBPS uint64) monitor.Container {
		return monitor.Container{ID: id, Name: name + ".x.y", Groups: []string{name}, MinBPS: minBPS, AdmittedBPS: minBPS}
	}
	s := &seen{
		specs: map[string]spec.Spec{
			"shop": {Name: "shop", Labels: map[string]string{"weir.min": "20mbit", "weir.latency": "20ms"}},
			"free": {Name: "free"},
		},
		promises: engine.Promises{"shop-1": {Service: "shop", Node: "a", MinBPS: 20e6}},
		proxies: map[string][]seenProxy{"shop": {
			{Proxy: runtime.Proxy{Node: "a"}, seen: saw(usersA)}, {Proxy: runtime.Proxy{Node: "b"}, seen: saw(usersB)},
		}},
	}
	for _, name := range []string{"a", "b"} {
		n := Measured{Node: runtime.Node{Name: name}, Seen: monitor.Node{
			State: monitor.StateReady, Uplink: &monitor.Uplink{BudgetBPS: 95e6},
			Containers: []monitor.Container{container("p"+name, "edgeproxy-shop", 0), container("f"+name, "edgeproxy-free", 7e6)},
		}}
		s.nodes = append(s.nodes, n)
	}
	s.nodes[0].Seen.Containers = append(s.nodes[0].Seen.Containers, container("i", "edge-shop-1", 0))
	return s
}

// TestWishes: minimums are in force where users come to, what is given back first, and
// at no proxy that nobody comes to.
func TestWishes(t *testing.T) {
	relay := engine.Promise{Service: "shop", Node: "b", MinBPS: 10e6, Relay: true}
	for name, test := range map[string]struct {
		s    *seen
		mend func(*seen)
		want string
	}{
		"nobody":              {s: shop(0, 0), want: "a pa=20 b"},
		"at its node":         {s: shop(9, 0), want: "a pa=20 b"},
		"at both, no promise": {s: shop(5, 5), want: "a i=10 pa=10 b"},
		"at both":             {s: shop(5, 5), mend: func(s *seen) { s.promises["shop@b"] = relay }, want: "a i=10 pa=10 b pb=10"},
		"only half is promised": {
			s: shop(0, 5), mend: func(s *seen) { s.promises["shop@b"] = relay }, want: "a i=20 b pb=10",
		},
		"no more than the maximum": {
			s: shop(0, 5), mend: func(s *seen) {
				s.specs["shop"].Labels["weir.max"] = "20mbit"
				s.promises["shop@b"] = engine.Promise{Service: "shop", Node: "b", MinBPS: 21.25e6, Relay: true}
			}, want: "a i=20 b pb=20",
		},
		"what is given back is first": {
			s: shop(0, 5), mend: func(s *seen) { s.nodes[0].Seen.Containers[0].MinBPS = 20e6 }, want: "a pa=0 i=20 b",
		},
		"nobody comes any more": {
			s: shop(5, 0), mend: func(s *seen) { s.nodes[1].Seen.Containers[0].MinBPS = 10e6 }, want: "a pa=20 b pb=0",
		},
		"a proxy that is being replaced": {
			s: shop(5, 0), mend: func(s *seen) {
				old := s.nodes[0].Seen.Containers[0]
				old.ID, old.MinBPS = "old", 20e6
				s.nodes[0].Seen.Containers = append(s.nodes[0].Seen.Containers, old)
			}, want: "a b",
		},
	} {
		if test.mend != nil {
			test.mend(test.s)
		}
		x := newMinimums()
		division := x.divide(test.s, time.Now())
		got := ""
		for _, n := range test.s.nodes {
			got += " " + n.Node.Name
			for _, w := range x.wanting(x.wishesOf(test.s, n, division, test.s.promises)) {
				got += fmt.Sprintf(" %s=%d", w.container, w.bps/1e6)
				if w.latency != "20ms" || w.service != "shop" {
					t.Errorf("%s: %+v", name, w)
				}
			}
		}
		if got = strings.TrimSpace(got); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestToldSince: an agent that was told something after it showed what there is has done
// that, so that it is told first what is to be given back.
func TestToldSince(t *testing.T) {
	m := newManager(t)
	s, age := shop(0, 5), 0.7
	a := &s.nodes[0]
	a.Seen.AgeSeconds = &age
	told := func() (text string) {
		division := m.minimums.divide(s, time.Now())
		for _, w := range m.minimums.wanting(m.minimums.wishesOf(s, *a, division, s.promises)) {
			text += fmt.Sprintf("%s=%d ", w.container, w.bps/1e6)
		}
		return text
	}
	m.heard("a", wish{container: "pa", service: "shop", bps: 20e6}, 20e6, nil)
	if got := told(); got != "pa=0 i=20 " {
		t.Errorf("told since: %s", got)
	}
	m.heard("a", wish{container: "i", service: "shop", bps: 20e6}, 20e6, nil)
	m.heard("a", wish{container: "pa", service: "shop"}, 0, nil)
	if got := told(); got != "" {
		t.Errorf("all was told: %s", got)
	}
	age = 0
	if got := told(); got != "" {
		t.Errorf("just now: %s", got) // it is not told the same again at once
	}
	last := m.minimums.told["i"]
	last.at = last.at.Add(-tellAgain)
	if m.minimums.told["i"] = last; told() != "i=20 " {
		t.Errorf("it shows that it has not: %s", told())
	}
}

// TestTell: what an agent says to a minimum.
func TestTell(t *testing.T) {
	for name, test := range map[string]struct {
		agent agent
		wish  wish
		has   string
		// refused after a while, and what is said of it.
		refused bool
		says    string
	}{
		"room":                {agent{roomBPS: 30e6}, wish{bps: 20e6, promised: 20e6}, "20mbit/none", false, ""},
		"a bound on delay":    {agent{roomBPS: 30e6}, wish{bps: 20e6, promised: 20e6, latency: "5ms"}, "20mbit/5ms", false, ""},
		"given back":          {agent{}, wish{has: 20e6, latency: "5ms"}, "none/none", false, ""},
		"no room":             {agent{roomBPS: 10e6}, wish{bps: 20e6, promised: 20e6}, "", true, "the agent of a refuses the minimum 20mbit of shop: too much"},
		"no room for a relay": {agent{roomBPS: 20e6}, wish{bps: 30e6, promised: 20e6}, "20mbit/none", false, "does not relay 10mbit"},
		"the relay that it has stays": {
			agent{roomBPS: 20e6}, wish{bps: 30e6, promised: 5e6, has: 10e6}, "", false, "does not relay 25mbit",
		},
		"may only look": {agent{status: 403, words: "token hub may look only"}, wish{bps: 20e6, promised: 20e6}, "", true, "the agent of a refuses the minimum 20mbit of shop: token hub may look only"},
		"of many words": {
			agent{status: 409, words: strings.Repeat("x", 1<<20)}, wish{bps: 20e6, promised: 20e6}, "", true, "refuses the minimum 20mbit of shop: xxx",
		},
		"it has ended":   {agent{status: 404}, wish{bps: 20e6, promised: 20e6}, "", false, ""},
		"something else": {agent{status: 500}, wish{bps: 20e6, promised: 20e6}, "", false, "tell the agent of a the minimum of shop: no"},
	} {
		m := newManager(t)
		test.agent.has = map[string]string{}
		test.wish.container, test.wish.service = "p", "shop"
		n := Measured{Node: runtime.Node{Name: "a"}, Agent: &test.agent}
		m.tell(t.Context(), n, []wish{test.wish})
		if got := test.agent.has["p"]; got != test.has {
			t.Errorf("%s: it has %q, want %q", name, got, test.has)
		}
		if m.minimums.refusal("p") != "" {
			t.Errorf("%s: at once %q", name, m.minimums.refusal("p"))
		}
		if left := m.minimums.wanting([]wish{test.wish}); test.wish.has != test.wish.bps && len(left) != 0 {
			t.Errorf("%s: it is told again at once", name)
		}
		// Refused once is not refused for long.
		last := m.minimums.told["p"]
		last.at, last.since = last.at.Add(-2*refusalPatience), last.since.Add(-2*refusalPatience)
		m.minimums.told["p"] = last
		if m.minimums.refusal("p") != "" {
			t.Errorf("%s: refused after one answer", name)
		}
		m.tell(t.Context(), n, []wish{test.wish})
		if (m.minimums.refusal("p") != "") != test.refused {
			t.Errorf("%s: refused: %q", name, m.minimums.refusal("p"))
		}
		if said := m.said(); test.says == "" && said != "" || !strings.Contains(said, test.says) || len(said) > 2000 {
			t.Errorf("%s: said %.2000q, want %q", name, said, test.says)
		}
		// A refusal is over when the minimum is in force.
		test.wish.has = test.wish.bps
		if m.minimums.wanting([]wish{test.wish}); m.minimums.refusal("p") != "" {
			t.Errorf("%s: still refused", name)
		}
	}
}

// TestSilentAgent: who does not answer is asked in the next round, of all else too, and is no
// reason for one; what an agent was told is.
func TestSilentAgent(t *testing.T) {
	for silent, want := range map[bool]int{true: 0, false: 1} {
		m := newManager(t)
		n := Measured{Node: runtime.Node{Name: "a"}, Agent: &agent{silent: silent, roomBPS: 30e6, has: map[string]string{}}}
		m.tell(t.Context(), n, []wish{{container: "p", service: "shop", bps: 20e6, promised: 20e6}, {container: "q", service: "shop", has: 20e6}})
		if len(m.kick) != want || len(m.minimums.told) != 1+want {
			t.Errorf("silent %t: %d rounds are asked for, want %d, it was told %v", silent, len(m.kick), want, m.minimums.told)
		}
	}
}

// TestReadOnly: an agent that lets weir-edge only look is told nothing, and what it would have
// had to be told counts as refused.
func TestReadOnly(t *testing.T) {
	m := newManager(t)
	told := &agent{roomBPS: 95e6, has: map[string]string{}}
	n := Measured{
		Node: runtime.Node{Name: "a"}, Agent: told,
		Seen: monitor.Node{State: monitor.StateReady, Access: v1.Access{Name: "token hub", Role: "read"}},
	}
	wishes := []wish{{container: "p", service: "shop", bps: 20e6, promised: 20e6}, {container: "q", service: "shop", has: 20e6}}
	m.tell(t.Context(), n, wishes)
	last := m.minimums.told["p"]
	last.at, last.since = last.at.Add(-2*refusalPatience), last.since.Add(-2*refusalPatience)
	m.minimums.told["p"] = last
	m.tell(t.Context(), n, wishes)
	if len(told.has) > 0 || !strings.Contains(m.minimums.refusal("p"), "it lets token hub only look") || m.minimums.refusal("q") != "" || len(m.kick) > 0 {
		t.Errorf("it was told %v, refused %q and %q, %d rounds are asked for", told.has, m.minimums.refusal("p"), m.minimums.refusal("q"), len(m.kick))
	}
	here := &seen{nodes: []Measured{n}, specs: map[string]spec.Spec{"free": {Name: "free"}}}
	before := m.said()
	m.sayReadOnly(here)
	if said := m.said(); said != before {
		t.Errorf("nobody wants a minimum: %q after %q", said, before)
	}
	here.specs["shop"] = spec.Spec{Name: "shop", Labels: map[string]string{"weir.min": "20mbit"}}
	m.sayReadOnly(here)
	if said := m.said(); !strings.Contains(said, "no minimum can be promised on a: its agent lets token hub only look: give weir-edge a token with the role admin") {
		t.Error(said)
	}
}

// bench is an engine with nothing but a ledger.
type bench struct {
	runtime.Runtime
	promises engine.Promises
}

func (b *bench) Ledger() engine.Ledger { return b }

func (b *bench) Read(context.Context) (engine.Promises, engine.Token, error) {
	return maps.Clone(b.promises), "", nil
}

func (b *bench) Swap(_ context.Context, _ engine.Token, p engine.Promises) error {
	b.promises = p
	return nil
}

// TestHoldMinimums: what is relayed is promised before an agent is told, as far as there
// is room, and is given back when nobody comes any more.
func TestHoldMinimums(t *testing.T) {
	m := newManager(t)
	ledger := &bench{promises: engine.Promises{"shop-1": {Service: "shop", Node: "a", MinBPS: 20e6}}}
	m.rt = ledger
	agents := map[string]*agent{"a": {roomBPS: 95e6, has: map[string]string{}}, "b": {roomBPS: 95e6, has: map[string]string{}}}
	round := func(s *seen, otherBPS uint64) string {
		s.promises = maps.Clone(ledger.promises)
		for i := range s.nodes {
			n := &s.nodes[i]
			n.Agent = agents[n.Node.Name]
			for k := range n.Seen.Containers {
				c := &n.Seen.Containers[k]
				if mbit := uint64(0); strings.HasPrefix(agents[n.Node.Name].has[c.ID], "none") {
					c.MinBPS, c.AdmittedBPS = 0, 0
				} else if _, err := fmt.Sscanf(agents[n.Node.Name].has[c.ID], "%dmbit", &mbit); err == nil {
					c.MinBPS, c.AdmittedBPS = mbit*1e6, mbit*1e6
				}
			}
			s.input.Nodes = append(s.input.Nodes, engine.Node{Name: n.Node.Name, State: engine.NodeReady, Weir: true, BudgetBPS: 95e6, OtherMinBPS: otherBPS})
		}
		m.holdMinimums(t.Context(), s)
		m.work.Wait()
		m.minimums.told = map[string]told{} // a while later
		return fmt.Sprintf("%v %v %d", agents["a"].has, agents["b"].has, ledger.promises["shop@b"].MinBPS)
	}
	if got, want := round(shop(0, 4), 85e6), "map[i:20mbit/20ms] map[pb:10mbit/20ms] 10000000"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if said := m.said(); !strings.Contains(said, "users of shop who come to b have less than its minimum: of 21.25mbit that the proxy there should relay, the node can promise 10mbit") {
		t.Error(said)
	}
	m.minimums.fractions = nil // long ago
	if got, want := round(shop(0, 0), 85e6), "map[i:none/none pa:20mbit/20ms] map[pb:none/none] 10000000"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got, want := round(shop(0, 0), 85e6), "map[i:none/none pa:20mbit/20ms] map[pb:none/none] 0"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestEndedOnce: a round that looked before an instance had ended does not end it again.
func TestEndedOnce(t *testing.T) {
	m := newManager(t)
	looked := time.Now()
	m.ended["shop-1"] = looked.Add(time.Millisecond)
	s := shop(0, 0)
	s.at = looked
	s.promises["shop-1"] = engine.Promise{Service: "shop", Node: "a", Stopping: true}
	if m.endDrained(s); len(m.stopping) != 0 {
		t.Error("it is ended again")
	}
	s.at = looked.Add(time.Second) // another one of that name
	if m.endDrained(s); len(m.stopping) != 1 {
		t.Error("it is not ended")
	}
}

// TestAnotherDivides: another weir-edge divides by the same users and not quite the same; both
// do not tell agents in turn.
func TestAnotherDivides(t *testing.T) {
	m := newManager(t)
	s := shop(5, 5)
	wants := func(hasBPS uint64) (bps uint64) {
		s.nodes[1].Seen.Containers[0].MinBPS = hasBPS
		relay := engine.Promises{"shop@b": {Service: "shop", Node: "b", MinBPS: 20e6, Relay: true}}
		for _, w := range m.minimums.wanting(m.minimums.wishesOf(s, s.nodes[1], m.minimums.divide(s, time.Now()), relay)) {
			bps = w.bps
		}
		return bps
	}
	const mine = 10625000
	if bps := wants(mine + 5e5); bps != mine {
		t.Errorf("it was not told yet: %d", bps)
	}
	m.minimums.told["pb"] = told{bps: mine, at: time.Now().Add(-10 * time.Second), done: true, hasBPS: mine}
	if bps := wants(mine + 5e5); bps != 0 {
		t.Errorf("another one told it about the same: %d", bps)
	}
	if bps := wants(mine / 2); bps != mine {
		t.Errorf("it has far less: %d", bps)
	}
}

// TestRefusedForLong: who has refused for long is asked again, and not every second.
func TestRefusedForLong(t *testing.T) {
	m := newManager(t)
	w := wish{container: "p", service: "shop", bps: 20e6, promised: 20e6}
	for _, test := range []struct {
		refusedFor, ago time.Duration
		asked           int
	}{
		{time.Second, 1100 * time.Millisecond, 1}, {time.Minute, 5 * time.Second, 0}, {time.Minute, 16 * time.Second, 1}, {time.Hour, 21 * time.Second, 1},
	} {
		at := time.Now().Add(-test.ago)
		m.minimums.told["p"] = told{bps: w.bps, at: at, since: at.Add(-test.refusedFor), refused: "too much"}
		if asked := len(m.minimums.wanting([]wish{w})); asked != test.asked {
			t.Errorf("refused for %v, the last time %v ago: asked %d times, want %d", test.refusedFor, test.ago, asked, test.asked)
		}
	}
}
