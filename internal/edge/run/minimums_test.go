package run

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/minimums"
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
	rooms   []v1.Room         // that it was told
}

func (a *agent) SetRoom(_ context.Context, room v1.Room) error {
	a.rooms = append(a.rooms, room)
	return nil
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
	minimum, latency, want := change.Min, change.Latency, uint64(0)
	if change.InMin != nil {
		minimum, latency, container = change.InMin, change.InLatency, container+"<"
	}
	if *minimum != "none" {
		if _, err := fmt.Sscanf(*minimum, "%dmbit", &want); err != nil {
			return err
		}
	}
	if want*1e6 > a.roomBPS {
		return &client.Error{Status: 409, Message: "too much"}
	}
	a.has[container] = *minimum + "/" + *latency
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
	for _, e := range m.Events().Since(0).Events {
		text += e.Message + "\n"
	}
	return text
}

// shop is a service with a minimum and a bound on delay, whose instance is on a; users
// come to b as well, whose proxy is of the task "pb".
func shop(usersA, usersB int) *observation {
	saw := func(users int) proxy.Status {
		return proxy.Status{Servers: []proxy.ServerStatus{{Name: proxy.InstanceName("shop-1"), Users: users, Weight: 256}}}
	}
	container := func(id, name string, minBPS uint64) monitor.Container {
		return monitor.Container{ID: id, Name: name + ".x.y", Groups: []string{name}, MinBPS: minBPS, AdmittedBPS: minBPS}
	}
	s := &observation{
		specs: map[string]spec.Spec{
			"shop": {Name: "shop", Labels: map[string]string{"weir.min": "20mbit", "weir.latency": "20ms"}},
			"free": {Name: "free"},
		},
		promises: engine.Promises{"shop-1": {Service: "shop", Node: "a"}},
		proxies: map[string][]observedProxy{"shop": {
			{Proxy: runtime.Proxy{Node: "a"}, status: saw(usersA)}, {Proxy: runtime.Proxy{Node: "b"}, status: saw(usersB)},
		}},
	}
	for _, name := range []string{"a", "b"} {
		n := Measured{Node: runtime.Node{Name: name}, Reported: monitor.Node{
			State: monitor.StateReady, Engine: engine.Node{State: engine.NodeReady, Weir: true, UplinkBPS: 100e6, Out: engine.Room{BudgetBPS: 95e6}},
			Containers: []monitor.Container{container("p"+name, "edgeproxy-shop", 0), container("f"+name, "edgeproxy-free", 7e6)},
		}}
		s.nodes = append(s.nodes, n)
	}
	s.nodes[0].Reported.Containers = append(s.nodes[0].Reported.Containers, container("i", "edge-shop-1", 0))
	return s
}

// TestTell: what an agent answers to a minimum.
func TestTell(t *testing.T) {
	for name, test := range map[string]struct {
		agent agent
		order minimums.Order
		has   string
		// refused: that counts if it lasts. says is what is reported.
		refused bool
		says    string
	}{
		"room":                {agent{roomBPS: 30e6}, minimums.Order{BPS: 20e6, PromisedBPS: 20e6}, "20mbit/none", false, ""},
		"a bound on delay":    {agent{roomBPS: 30e6}, minimums.Order{BPS: 20e6, PromisedBPS: 20e6, Latency: "5ms"}, "20mbit/5ms", false, ""},
		"given back":          {agent{}, minimums.Order{HasBPS: 20e6, Latency: "5ms"}, "none/none", false, ""},
		"no room":             {agent{roomBPS: 10e6}, minimums.Order{BPS: 20e6, PromisedBPS: 20e6}, "", true, "the agent of a refuses the minimum 20mbit of shop: too much"},
		"no room for a relay": {agent{roomBPS: 20e6}, minimums.Order{BPS: 30e6, PromisedBPS: 20e6}, "20mbit/none", false, "does not relay 10mbit"},
		"the relay that it has stays": {
			agent{roomBPS: 20e6}, minimums.Order{BPS: 30e6, PromisedBPS: 5e6, HasBPS: 10e6}, "", false, "does not relay 25mbit",
		},
		"no room for an instance that starts": {
			agent{roomBPS: 10e6}, minimums.Order{BPS: 20e6, PromisedBPS: 20e6, StartingBPS: 10e6}, "10mbit/none", false, "keeps nothing of the minimum of shop for the instance that starts there: too much",
		},
		"no room for it beside a relay": {
			agent{roomBPS: 10e6}, minimums.Order{BPS: 20e6, PromisedBPS: 15e6, StartingBPS: 12e6}, "8mbit/none", false, "for the instance that starts there: too much",
		},
		"no room for both": {
			agent{roomBPS: 5e6}, minimums.Order{BPS: 20e6, PromisedBPS: 15e6, StartingBPS: 12e6}, "3mbit/none", false, "does not relay 5mbit",
		},
		"no users yet":  {agent{roomBPS: 10e6}, minimums.Order{BPS: 20e6, PromisedBPS: 20e6, StartingBPS: 20e6}, "", true, "the agent of a refuses the minimum 20mbit of shop: too much"},
		"may only look": {agent{status: 403, words: "token hub may look only"}, minimums.Order{BPS: 20e6, PromisedBPS: 20e6}, "", true, "the agent of a refuses the minimum 20mbit of shop: token hub may look only"},
		"of many words": {
			agent{status: 409, words: strings.Repeat("x", 1<<20)}, minimums.Order{BPS: 20e6, PromisedBPS: 20e6}, "", true, "refuses the minimum 20mbit of shop: xxx",
		},
		"it has ended":   {agent{status: 404}, minimums.Order{BPS: 20e6, PromisedBPS: 20e6}, "", false, ""},
		"something else": {agent{status: 500}, minimums.Order{BPS: 20e6, PromisedBPS: 20e6}, "", false, "set the minimum of shop at node a: no"},
	} {
		m := newManager(t)
		test.agent.has = map[string]string{}
		test.order.Container, test.order.Service = "p", "shop"
		n := Measured{Node: runtime.Node{Name: "a"}, Agent: &test.agent}
		for _, ago := range []time.Duration{2 * minimums.RefusalHold, 0} {
			if m.minimums.Refusal("p") != "" {
				t.Errorf("%s: refused at once: %q", name, m.minimums.Refusal("p"))
			}
			answers := tell(t.Context(), &n, []minimums.Order{test.order})
			if got := test.agent.has["p"]; got != test.has {
				t.Errorf("%s: it has %q, want %q", name, got, test.has)
			}
			answers[0].at = answers[0].at.Add(-ago)
			m.noteAnswers("a", answers)
		}
		if (m.minimums.Refusal("p") != "") != test.refused {
			t.Errorf("%s: refused: %q", name, m.minimums.Refusal("p"))
		}
		if said := m.said(); test.says == "" && said != "" || !strings.Contains(said, test.says) || len(said) > 2000 {
			t.Errorf("%s: reported %.2000q, want %q", name, said, test.says)
		}
	}
}

// TestSilentAgent: an agent that does not answer gets the rest of its orders in a later round,
// and is no reason for one.
func TestSilentAgent(t *testing.T) {
	for silent, want := range map[bool]int{true: 0, false: 1} {
		m := newManager(t)
		n := Measured{Node: runtime.Node{Name: "a"}, Agent: &agent{silent: silent, roomBPS: 30e6, has: map[string]string{}}}
		answers := tell(t.Context(), &n, []minimums.Order{
			{Container: "p", Service: "shop", BPS: 20e6, PromisedBPS: 20e6}, {Container: "q", Service: "shop", HasBPS: 20e6},
		})
		if m.noteAnswers("a", answers); len(m.kick) != want || len(answers) != 1+want {
			t.Errorf("silent %t: %d rounds are asked for, want %d, it was told %v", silent, len(m.kick), want, answers)
		}
	}
}

// TestReadOnly: an agent that lets weir-edge only read is told nothing, and what it would have had to
// be told counts as refused.
func TestReadOnly(t *testing.T) {
	m := newManager(t)
	told := &agent{roomBPS: 95e6, has: map[string]string{}}
	n := Measured{
		Node: runtime.Node{Name: "a"}, Agent: told,
		Reported: monitor.Node{State: monitor.StateReady, Access: v1.Access{Name: "token hub", Role: "read"}},
	}
	orders := []minimums.Order{{Container: "p", Service: "shop", BPS: 20e6, PromisedBPS: 20e6}, {Container: "q", Service: "shop", HasBPS: 20e6}}
	for _, ago := range []time.Duration{2 * minimums.RefusalHold, 0} {
		answers := tell(t.Context(), &n, orders)
		answers[0].at = answers[0].at.Add(-ago)
		m.noteAnswers("a", answers)
	}
	if len(told.has) > 0 || !strings.Contains(m.minimums.Refusal("p"), "it gives token hub only the role read") || m.minimums.Refusal("q") != "" || len(m.kick) > 0 {
		t.Errorf("it was told %v, refused %q and %q, %d rounds are asked for", told.has, m.minimums.Refusal("p"), m.minimums.Refusal("q"), len(m.kick))
	}
	here := &observation{nodes: []Measured{n}, specs: map[string]spec.Spec{"free": {Name: "free"}}}
	before := m.said()
	m.journal.sayReadOnly(here)
	if said := m.said(); said != before {
		t.Errorf("nobody wants a minimum: %q after %q", said, before)
	}
	here.specs["shop"] = spec.Spec{Name: "shop", Labels: map[string]string{"weir.min": "20mbit"}}
	m.journal.sayReadOnly(here)
	if said := m.said(); !strings.Contains(said, "no minimum can be promised on a: its agent gives token hub only the role read: give weir-edge a token with the role admin") {
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

// TestTellAgents: claims are promised before agents are told, as far as there is room, and are
// returned when no users are left.
func TestTellAgents(t *testing.T) {
	m := newManager(t)
	ledger := &bench{promises: engine.Promises{"shop-1": {Service: "shop", Node: "a"}}}
	agents := map[string]*agent{"a": {roomBPS: 95e6, has: map[string]string{}}, "b": {roomBPS: 95e6, has: map[string]string{}}}
	round := func(o *observation, otherBPS uint64) string {
		o.promises = maps.Clone(ledger.promises)
		for i := range o.nodes {
			n := &o.nodes[i]
			n.Agent = agents[n.Node.Name]
			for k := range n.Reported.Containers {
				c := &n.Reported.Containers[k]
				if mbit := uint64(0); strings.HasPrefix(agents[n.Node.Name].has[c.ID], "none") {
					c.MinBPS, c.AdmittedBPS = 0, 0
				} else if _, err := fmt.Sscanf(agents[n.Node.Name].has[c.ID], "%dmbit", &mbit); err == nil {
					c.MinBPS, c.AdmittedBPS = mbit*1e6, mbit*1e6
				}
			}
			o.input.Nodes = append(o.input.Nodes, engine.Node{Name: n.Node.Name, State: engine.NodeReady, Weir: true, Out: engine.Room{BudgetBPS: 95e6, OtherMinBPS: map[string]uint64{"b": otherBPS}[n.Node.Name]}})
		}
		claims := m.planClaims(o)
		claims.apply(t.Context(), ledger, o, m.opts.Links)
		m.tellAgents(o, &claims)
		m.handleReports()
		return fmt.Sprintf("%v %v %d %d", agents["a"].has, agents["b"].has, ledger.promises["shop@a"].MinBPS, ledger.promises["shop@b"].MinBPS)
	}
	if got, want := round(shop(0, 4), 85e6), "map[i:20mbit/20ms] map[pb:10mbit/20ms] 20000000 10000000"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if said := m.said(); !strings.Contains(said, "the minimum 20mbit of shop on b: it takes 21.25mbit, and the node promises 10mbit: it has no room for more") {
		t.Error(said)
	}
	m.minimums = minimums.Minimums{} // long ago
	if got, want := round(shop(0, 0), 85e6), "map[i:none/none pa:20mbit/20ms] map[pb:none/none] 20000000 10000000"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got, want := round(shop(0, 0), 85e6), "map[i:none/none pa:20mbit/20ms] map[pb:none/none] 20000000 0"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestReceived: what users send is promised where they connect, and told agents beside what they get; a node
// that does not share what it receives promises none, and says what to do.
func TestReceived(t *testing.T) {
	m, o := newManager(t), shop(0, 4)
	o.specs["shop"] = spec.Spec{Name: "shop", Labels: map[string]string{"weir.in.min": "16mbit", "weir.in.latency": "20ms"}}
	ledger := &bench{promises: maps.Clone(o.promises)}
	agents := map[string]*agent{"a": {roomBPS: 95e6, has: map[string]string{}}, "b": {roomBPS: 95e6, has: map[string]string{}}}
	round := func(inBPS uint64) claimStep {
		o.promises, o.input.Nodes = maps.Clone(ledger.promises), nil
		for i := range o.nodes {
			n := &o.nodes[i]
			n.Agent, n.Node.Ready = agents[n.Node.Name], true
			n.Reported.Engine.In.BudgetBPS = inBPS
			o.input.Nodes = append(o.input.Nodes, m.node(o, n))
		}
		claims := m.planClaims(o)
		claims.apply(t.Context(), ledger, o, m.opts.Links)
		m.tellAgents(o, &claims)
		m.handleReports()
		return claims
	}
	for _, c := range new(round(0)).wire(o, "shop") {
		if want := map[bool]string{false: v1.PromiseWaiting, true: edge.PlaceShort}[c.In]; c.Places[0].State != want {
			t.Errorf("%+v, want %s", c, want)
		}
	}
	if has, said := fmt.Sprint(agents["a"].has, agents["b"].has), m.said(); has != "map[] map[pb:16mbit/none]" ||
		!strings.Contains(said, "the minimum in 16mbit of shop on b: it shares nothing of what it receives: start its Weir agent with --in-rate") {
		t.Errorf("%s, said %s", has, said)
	}
	claims := round(40e6)
	if has := fmt.Sprint(agents["a"].has, agents["b"].has); has != "map[i<:16mbit/20ms] map[pb:16mbit/none pb<:17mbit/20ms]" {
		t.Error(has)
	}
	shown := ""
	for _, c := range claims.wire(o, "shop") {
		shown += fmt.Sprintf(" %s %t %d+%d+%d+%d %d %s;", c.Node, c.In, c.UsersBPS/1e6, c.AckBPS/1e6, c.SentBPS/1e6, c.ForwardedBPS/1e6, c.PromisedBPS/1e6, c.Places[0].Where)
	}
	if shown != " a true 0+0+16+0 16 uplink in; b false 0+0+0+16 16 uplink; b true 16+1+0+0 17 uplink in;" {
		t.Error(shown)
	}
	b := wireNode(o, claims.promised, o.input.Nodes[1], o.nodes[1])
	one := wireInstance(o, engine.Instance{ID: "shop-1", Service: "shop", Node: "a"}, &claims)
	if b.InPromisedBPS != 17e6 || b.InFreeBPS != 23e6 || b.PromisedBPS != 16e6 || one.InMinBPS != 16e6 || one.ServiceInMinBPS != 16e6 || one.MinBPS != 0 {
		t.Errorf("%+v, %+v", b, one)
	}
	// What agents report then belongs to the claims, and a cut is no refusal.
	proxy := &o.nodes[1].Reported.Containers[0]
	proxy.In = monitor.Minimum{MinBPS: 17e6, AdmittedBPS: 17e6}
	o.promises, o.nodes[1].Reported.Engine.In.OtherMinBPS = maps.Clone(ledger.promises), 20e6
	if n := m.node(o, &o.nodes[1]); n.In.OtherMinBPS != 3e6 {
		t.Errorf("%+v", n)
	}
	claimed := map[engine.Claim]bool{{Service: "shop", Node: "a", InMinBPS: 16e6}: true, {Service: "shop", Node: "b", MinBPS: 16e6, InMinBPS: 17e6}: true}
	for _, c := range m.input(o).Claims {
		delete(claimed, c)
	}
	if len(claimed) > 0 {
		t.Errorf("the engine does not have the claims %v", claimed)
	}
	again := m.planClaims(o)
	if c := again.wire(o, "shop")[2]; c.InForceBPS != 17e6 || c.Places[0].State != v1.PromiseInForce {
		t.Errorf("%+v", c)
	}
	proxy.In.CutBPS = 2e6
	if c := again.wire(o, "shop")[2]; c.InForceBPS != 15e6 || !strings.Contains(c.Reason, "too slow: 2mbit") {
		t.Errorf("%+v", c)
	}
}

// TestOneEngine: on one engine, whose proxy has the minimum as a label, four instances have it once:
// what is promised, shown and in force adds up to it.
func TestOneEngine(t *testing.T) {
	m, o := newManager(t), shop(0, 0)
	o.nodes, o.proxies["shop"] = o.nodes[:1], o.proxies["shop"][:1]
	o.nodes[0].Reported.Containers[0].MinBPS, o.nodes[0].Reported.Containers[0].AdmittedBPS = 20e6, 20e6
	o.input.Nodes = []engine.Node{{Name: "a", State: engine.NodeReady, Weir: true, Out: engine.Room{BudgetBPS: 95e6}}}
	status := &o.proxies["shop"][0].status
	status.Servers = nil
	for i := range 4 {
		id := engine.InstanceID("shop", i+1)
		o.promises[id] = engine.Promise{Service: "shop", Node: "a"}
		status.Servers = append(status.Servers, proxy.ServerStatus{Name: proxy.InstanceName(id), Users: i, Weight: 256})
	}
	ledger := &bench{promises: maps.Clone(o.promises)}
	claims := m.planClaims(o)
	claims.apply(t.Context(), ledger, o, m.opts.Links)
	shown, parts := claims.wire(o, "shop"), uint64(0)
	for id := range o.promises {
		parts += wireInstance(o, engine.Instance{ID: id, Service: "shop"}, &claims).MinBPS
	}
	place := edge.Place{Where: "uplink", PromisedBPS: 20e6, State: v1.PromiseWaiting}
	want := edge.Claim{Node: "a", UsersBPS: 20e6, PromisedBPS: 20e6, Places: []edge.Place{place}}
	if len(shown) != 1 || !reflect.DeepEqual(shown[0], want) || parts != 20e6 || wireNode(o, claims.promised, o.input.Nodes[0], o.nodes[0]).PromisedBPS != 20e6 {
		t.Errorf("%+v, instances have %d", shown, parts)
	}
	// The next round sees it in force, and changes nothing.
	o.promises = maps.Clone(ledger.promises)
	again := m.planClaims(o)
	again.apply(t.Context(), ledger, o, m.opts.Links)
	want.InForceBPS, want.Places[0].State = 20e6, v1.PromiseInForce
	if shown := again.wire(o, "shop"); len(shown) != 1 || !reflect.DeepEqual(shown[0], want) || !maps.Equal(o.promises, ledger.promises) {
		t.Errorf("%+v", shown)
	}
	// While the uplink is not shared nothing is shown as in force, and it stays promised.
	o.nodes[0].Reported.Containers[0].AdmittedBPS = 0
	want.InForceBPS, want.Places[0].State = 0, v1.PromiseWaiting
	if shown := again.wire(o, "shop"); len(shown) != 1 || !reflect.DeepEqual(shown[0], want) {
		t.Errorf("not shared: %+v", shown)
	}
}

// TestShortfall: why users may have less than the minimum is said at the claim, at the instance, at
// the service and in an event. What an agent that does not answer may have in force stays promised,
// and is not shown as in force.
func TestShortfall(t *testing.T) {
	short := "it takes 20mbit, and the node promises 8mbit"
	for want, change := range map[string]func(*observation){
		"": func(o *observation) {
			o.promises["shop@a"] = engine.Promise{Service: "shop", Node: "a", MinBPS: 20e6, Claim: true}
		},
		short + ": it has no room for more": func(o *observation) { o.input.Nodes[0].Out.BudgetBPS = 8e6 },
		short + ": it is draining":          func(o *observation) { o.input.Nodes[0].State = engine.NodeDraining },
		"what is in force is not known: it is silent": func(o *observation) {
			o.nodes[0].Reported.State, o.nodes[0].Reported.Reason = monitor.StateStale, "it is silent"
		},
		"the node has left": func(o *observation) { o.nodes = nil },
	} {
		m, o := newManager(t), shop(4, 0)
		o.nodes, o.proxies["shop"] = o.nodes[:1], o.proxies["shop"][:1]
		o.nodes[0].Reported.Containers[0].AdmittedBPS, o.nodes[0].Reported.Containers[0].MinBPS = 8e6, 8e6
		o.promises["shop@a"] = engine.Promise{Service: "shop", Node: "a", MinBPS: 8e6, Claim: true}
		o.input.Nodes = []engine.Node{{Name: "a", State: engine.NodeReady, Weir: true, Out: engine.Room{BudgetBPS: 95e6}}}
		change(o)
		step := m.planClaims(o)
		m.journal.sayShortfalls(o, &step)
		claim, said := step.wire(o, "shop")[0], m.said()
		instance := wireInstance(o, engine.Instance{ID: "shop-1", Service: "shop", Node: "a"}, &step).Reason
		service := wireService(o, &step, runtime.Service{Name: "shop"}, nil, counts{}).Reason
		inForce := uint64(8e6)
		if strings.Contains(want, "not known") || strings.Contains(want, "left") {
			inForce = 0
		}
		if claim.Reason != want || claim.InForceBPS != inForce || claim.PromisedBPS < 8e6 {
			t.Errorf("%q: the claim is %+v", want, claim)
		}
		for where, text := range map[string]string{"instance": instance, "service": service, "event": said} {
			if (text == "") != (want == "") || !strings.Contains(text, want) {
				t.Errorf("%q: at the %s %q", want, where, text)
			}
		}
	}
}

// TestMinimumRemoved: when the minimum of a service is removed, agents get an order of 0, and then the claim ends.
func TestMinimumRemoved(t *testing.T) {
	m, o, a := newManager(t), shop(4, 0), &agent{has: map[string]string{}}
	o.specs["shop"] = spec.Spec{Name: "shop"}
	o.promises["shop@a"] = engine.Promise{Service: "shop", Node: "a", MinBPS: 20e6, InMinBPS: 9e6, Claim: true}
	n, ledger := &o.nodes[0], &bench{promises: maps.Clone(o.promises)}
	n.Agent, n.Reported.Engine.In.BudgetBPS = a, 40e6
	c := &n.Reported.Containers[0]
	c.MinBPS, c.AdmittedBPS, c.In = 20e6, 20e6, monitor.Minimum{MinBPS: 9e6, AdmittedBPS: 9e6}
	for _, want := range []int{2, 1} { // promises
		claims := m.planClaims(o)
		claims.apply(t.Context(), ledger, o, nil)
		m.tellAgents(o, &claims)
		m.handleReports()
		if has := fmt.Sprint(a.has); has != "map[pa:none/none pa<:none/none]" || len(ledger.promises) != want {
			t.Errorf("the agent was told %s, the ledger has %+v", has, ledger.promises)
		}
		c.MinBPS, c.AdmittedBPS, c.In, o.promises = 0, 0, monitor.Minimum{}, maps.Clone(ledger.promises)
	}
}

// reported are nodes whose agents have said something since the last round.
type reported struct {
	Unmeasured
	nodes  []monitor.Node
	lower  chan struct{}
	rounds atomic.Int64
}

// Measure returns nodes whose agents answer.
func (r *reported) Measure(_ context.Context, nodes []runtime.Node, _ []runtime.Instance) (list []Measured) {
	r.rounds.Add(1)
	for _, n := range nodes {
		list = append(list, Measured{Node: n, Reported: monitor.Node{Name: n.Name, State: monitor.StateReady}})
	}
	return list
}

func (r *reported) Reported() []monitor.Node { return r.nodes }
func (r *reported) Lower() <-chan struct{}   { return r.lower }

// TestLower: readers know that an uplink has become too slow before the round ends that this begins.
func TestLower(t *testing.T) {
	m, o := newManager(t), shop(4, 0)
	o.nodes, o.proxies["shop"] = o.nodes[:1], o.proxies["shop"][:1]
	c := &o.nodes[0].Reported.Containers[0]
	c.AdmittedBPS, c.MinBPS = 20e6, 20e6
	o.promises["shop@a"] = engine.Promise{Service: "shop", Node: "a", MinBPS: 20e6, Claim: true}
	o.input.Nodes, o.state.Services = []engine.Node{{Name: "a", State: engine.NodeReady}}, []runtime.Service{{Name: "shop"}}
	slow := monitor.Node{Name: "a", State: monitor.StateReady, Containers: slices.Clone(o.nodes[0].Reported.Containers)}
	slow.Containers[0].CutBPS = 5e6
	said := &reported{nodes: []monitor.Node{slow, {Name: "another"}}, lower: make(chan struct{}, 1)}
	show := func(v *view, want uint64, state string) (since time.Time) {
		t.Helper()
		claims := v.Services[0].Claims
		if len(claims) != 1 || claims[0].InForceBPS != want || claims[0].Places[0].State != state {
			t.Errorf("readers see %+v", claims)
		}
		return claims[0].Places[0].Since
	}
	if first := m.view.Load(); first.after(said.nodes) != first {
		t.Error("before the first round claims are seen")
	}
	claims := m.planClaims(o)
	m.publish(o, &claims, nil)
	before := m.view.Load()
	since := show(before, 20e6, v1.PromiseInForce)
	ctx, cancel := context.WithCancel(t.Context())
	said.lower <- struct{}{}
	watchLower(ctx, said, func() {
		if broken := show(before.after(said.Reported()), 15e6, v1.PromiseBroken); !broken.After(since) {
			t.Errorf("it is broken since %v, and was in force since %v", broken, since)
		}
		cancel()
	})
	show(before, 20e6, v1.PromiseInForce)
	// The division of a round without the agent's answer takes all that is promised for in force.
	o.nodes[0].Reported.State = monitor.StateStale
	claims = m.planClaims(o)
	m.publish(o, &claims, nil)
	show(m.view.Load().after(said.nodes), 0, edge.PlaceUnknown)
}

// TestRunLower: an agent that keeps less is seen before the next round, which begins then.
func TestRunLower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t)
		said := &reported{nodes: []monitor.Node{{Name: "a", State: monitor.StateReady, Reason: "lower"}}, lower: make(chan struct{}, 1)}
		m.opts.Runtime, m.opts.Nodes, m.opts.Engine = &fakeEngine{ledger: bench{promises: engine.Promises{}}}, said, newDecider(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = m.Run(ctx) }()
		time.Sleep(period / 2)
		said.lower <- struct{}{}
		synctest.Wait()
		if seen := m.view.Load().seen.nodes[0].Reported.Reason; seen != "lower" || said.rounds.Load() != 1 {
			t.Errorf("before the next round readers see %q after %d rounds", seen, said.rounds.Load())
		}
		time.Sleep(lull)
		synctest.Wait()
		if seen := m.view.Load().seen.nodes[0].Reported.Reason; seen != "" || said.rounds.Load() != 2 {
			t.Errorf("%v later readers see %q after %d rounds", lull, seen, said.rounds.Load())
		}
	})
}

// TestLacking: what a node does not give is cut only if its uplink has become too slow for it.
func TestLacking(t *testing.T) {
	for name, test := range map[string]struct{ admittedBPS, cutBPS, lackingBPS, tooSlowBPS uint64 }{
		"kept":     {8e6, 0, 0, 0},
		"cut":      {8e6, 3e6, 3e6, 3e6},
		"unshared": {0, 8e6, 8e6, 0},
		"refused":  {0, 0, 8e6, 0},
	} {
		o := shop(4, 0)
		c := &o.nodes[0].Reported.Containers[0]
		c.MinBPS, c.AdmittedBPS, c.CutBPS = 8e6, test.admittedBPS, test.cutBPS
		o.nodes[0].Reported.Containers = o.nodes[0].Reported.Containers[:1]
		if lacking, tooSlow := o.lackingBPS(&o.nodes[0], engine.Entry{Service: "shop"}); lacking != test.lackingBPS || tooSlow != test.tooSlowBPS {
			t.Errorf("%s: %d bit/s are lacking, %d of them cut", name, lacking, tooSlow)
		}
	}
}

// TestStandby: users that only probe a standby do not count for the division.
func TestStandby(t *testing.T) {
	for _, test := range []struct{ users, want float64 }{{1, 0}, {10, 9}} {
		o := shop(2, int(test.users))
		b := &o.proxies["shop"][1].status
		b.Users, b.Servers[0].Weight = int(test.users), 1
		in := o.minimums()
		if got := in.Proxies[1].Users["shop-1"]; got != test.want {
			t.Errorf("of %v users at a standby %v count, want %v", test.users, got, test.want)
		}
	}
}

// TestUsersBetweenRequests: users whose answers wait in the kernel are there, too: where others are at the
// moment or, if there are none, where the proxy would send them.
func TestUsersBetweenRequests(t *testing.T) {
	s := shop(0, 0)
	s.promises["shop-2"] = engine.Promise{Service: "shop", Node: "b"}
	at := &s.proxies["shop"][0]
	two := func(users, others int) {
		at.status.Servers = []proxy.ServerStatus{
			{Name: proxy.InstanceName("shop-1"), Users: users, Weight: 192, Up: true}, {Name: proxy.InstanceName("shop-2"), Users: others, Weight: 64, Up: true},
		}
	}
	for _, test := range []struct {
		users, others, asked int
		want                 string
	}{
		{0, 0, 0, "map[shop-1:0 shop-2:0]"},
		{0, 0, 8, "map[shop-1:6 shop-2:2]"},
		{1, 1, 8, "map[shop-1:4 shop-2:4]"},
		{6, 4, 8, "map[shop-1:6 shop-2:4]"},
	} {
		two(test.users, test.others)
		if at.asked = test.asked; fmt.Sprint(s.usersOf("shop", at)) != test.want {
			t.Errorf("%+v: %v", test, s.usersOf("shop", at))
		}
	}
	two(0, 0)
	at.status.Servers[0].Leaving = true
	if users := s.usersOf("shop", at); users["shop-1"] != 0 || users["shop-2"] != 8 {
		t.Errorf("one that is drained gets none: %v", users)
	}
}

// TestAsked: how many of a proxy's users have asked since the last round.
func TestAsked(t *testing.T) {
	p := newProxies()
	look := func(requests uint64) (uint64, bool) {
		at := observedProxy{Proxy: runtime.Proxy{Node: "a"}, status: proxy.Status{Requests: requests}}
		times, counted := p.asked("shop", &at)
		p.count(&observation{state: runtime.State{Services: []runtime.Service{{Name: "shop"}}}, proxies: map[string][]observedProxy{"shop": {at}}})
		return times, counted
	}
	for i, test := range []struct {
		requests, times uint64
		counted         bool
	}{{5, 0, false}, {12, 7, true}, {12, 0, true}, {3, 3, true}} {
		if times, counted := look(test.requests); times != test.times || counted != test.counted {
			t.Errorf("look %d: %d, %t", i, times, counted)
		}
	}
}
