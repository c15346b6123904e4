package minimums

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
)

var start = time.Unix(1e9, 0)

// shop is a service with a minimum and a bound on delay, whose instance is on a. Users connect to
// b as well.
func shop(usersA, usersB float64) *Input {
	in := &Input{
		At:       start,
		Promises: engine.Promises{"shop-1": {Service: "shop", Node: "a"}, "shop@a": claim("a", 20e6)},
		Services: []Service{{Name: "shop", MinBPS: 20e6, Latency: "20ms"}},
	}
	for i, name := range []string{"a", "b"} {
		users := map[string]float64{"shop-1": []float64{usersA, usersB}[i]}
		in.Proxies = append(in.Proxies, Proxy{Service: "shop", Node: name, Answers: true, Users: users})
		in.Nodes = append(in.Nodes, Node{Name: name, Ready: true, Containers: []Container{
			{ID: "p" + name, Service: "shop"}, {ID: "f" + name, Service: "free", MinBPS: 7e6, AdmittedBPS: 7e6},
		}})
	}
	in.Nodes[0].Containers = append(in.Nodes[0].Containers, Container{ID: "i", Service: "shop", Instance: "shop-1"})
	return in
}

func claim(node string, bps uint64) engine.Promise {
	return engine.Promise{Service: "shop", Node: node, MinBPS: bps, Claim: true}
}

// orders returns what a node's agent is to be told, in words.
func orders(x *Minimums, in *Input, n int) (text string) {
	for _, o := range x.Orders(in, &in.Nodes[n], x.Divide(in), in.Promises) {
		text += fmt.Sprintf(" %s=%d", o.Container, o.BPS/1e6)
		if o.StartingBPS > 0 {
			text += fmt.Sprintf("-%d", o.StartingBPS/1e6)
		}
		if o.Latency != "20ms" || o.Service != "shop" {
			text += fmt.Sprintf(" %+v", o)
		}
	}
	return strings.TrimSpace(text)
}

// TestOrders: minimums are in force where users connect, reductions come first, and proxies
// without users have none.
func TestOrders(t *testing.T) {
	relay := func(bps uint64) func(*Input) {
		return func(in *Input) { in.Promises["shop@b"] = claim("b", bps) }
	}
	for name, test := range map[string]struct {
		usersA, usersB float64
		change         func(*Input)
		a, b           string
	}{
		"no users":              {0, 0, nil, "pa=20", ""},
		"at its node":           {9, 0, nil, "pa=20", ""},
		"at both, no promise":   {5, 5, nil, "i=10 pa=10", ""},
		"at both":               {5, 5, relay(10e6), "i=10 pa=10", "pb=10"},
		"only half is promised": {0, 5, relay(10e6), "i=20", "pb=10"},
		"no more than the maximum": {0, 5, func(in *Input) {
			in.Services[0].MaxBPS = 20e6
			relay(21.25e6)(in)
		}, "i=20", "pb=20"},
		"half of its own is promised": {5, 5, func(in *Input) { in.Promises["shop@a"] = claim("a", 15e6) }, "i=5 pa=10", ""},
		"it starts": {0, 5, func(in *Input) {
			relay(21.25e6)(in)
			in.Starting = map[string]bool{"shop-2": true}
			in.Promises["shop-2"], in.Promises["shop@a"] = engine.Promise{Service: "shop", Node: "a"}, claim("a", 30e6)
		}, "i=20", "pb=21"},
		"it replaces another one": {0, 5, func(in *Input) {
			relay(21.25e6)(in)
			in.Starting = map[string]bool{"shop-2": true}
			in.Promises["shop-2"], in.Promises["shop@a"] = engine.Promise{Service: "shop", Node: "a", Replaces: "shop-1"}, claim("a", 30e6)
		}, "i=10 pa=20-20", "pb=21"},
		"it starts where users are": {5, 0, func(in *Input) {
			in.Starting = map[string]bool{"shop-2": true}
			in.Promises["shop-2"], in.Promises["shop@b"] = engine.Promise{Service: "shop", Node: "b"}, claim("b", 10e6)
			in.Proxies[1].Users["shop-1"] = 1
		}, "i=3 pa=16", "pb=10-6"},
		"four on one node": {8, 0, func(in *Input) {
			for _, id := range []string{"shop-2", "shop-3", "shop-4"} {
				in.Promises[id] = engine.Promise{Service: "shop", Node: "a"}
				in.Proxies[0].Users[id] = 3
			}
		}, "pa=20", ""},
		"reductions first":       {0, 5, func(in *Input) { in.Nodes[0].Containers[0].MinBPS = 20e6 }, "pa=0 i=20", ""},
		"no users at b any more": {5, 0, func(in *Input) { in.Nodes[1].Containers[0].MinBPS = 10e6 }, "pa=20", "pb=0"},
		"a proxy that is being replaced": {5, 0, func(in *Input) {
			in.Nodes[0].Containers = append(in.Nodes[0].Containers, Container{ID: "old", Service: "shop", MinBPS: 20e6})
		}, "", ""},
	} {
		in := shop(test.usersA, test.usersB)
		if test.change != nil {
			test.change(in)
		}
		var x Minimums
		if a, b := orders(&x, in, 0), orders(&x, in, 1); a != test.a || b != test.b {
			t.Errorf("%s: %q and %q, want %q and %q", name, a, b, test.a, test.b)
		}
	}
}

// TestToldSinceReport: an agent that was told something after its last report has done that, so
// that it is told first what is to be reduced.
func TestToldSinceReport(t *testing.T) {
	var x Minimums
	in, age := shop(0, 5), 0.7
	in.Nodes[0].AgeSeconds = &age
	note := func(container string, bps uint64) {
		x.Note(start, Order{Container: container, Service: "shop", BPS: bps}, Answer{State: InForce, HasBPS: bps})
	}
	note("pa", 20e6)
	if got := orders(&x, in, 0); got != "pa=0 i=20" {
		t.Errorf("told since: %s", got)
	}
	note("i", 20e6)
	note("pa", 0)
	if got := orders(&x, in, 0); got != "" {
		t.Errorf("all was told: %s", got)
	}
	age, in.At = 0, start.Add(reportDelay+time.Millisecond)
	if got := orders(&x, in, 0); got != "" {
		t.Errorf("the same again at once: %s", got)
	}
	in.At = start.Add(RetryAfter)
	if got := orders(&x, in, 0); got != "i=20" {
		t.Errorf("it reports that it has not: %s", got)
	}
}

// TestOverruled: another weir-edge divides by the same users and not quite the same; the two do not
// tell agents in turn.
func TestOverruled(t *testing.T) {
	var x Minimums
	in := shop(5, 5)
	in.Promises["shop@b"] = claim("b", 20e6)
	wants := func(hasBPS uint64) (bps uint64) {
		in.Nodes[1].Containers[0].MinBPS = hasBPS
		for _, o := range x.Orders(in, &in.Nodes[1], x.Divide(in), in.Promises) {
			bps = o.BPS
		}
		return bps
	}
	const mine = 10625000
	if bps := wants(mine + 5e5); bps != mine {
		t.Errorf("it was not told yet: %d", bps)
	}
	x.Note(start.Add(-10*time.Second), Order{Container: "pb", BPS: mine}, Answer{State: InForce, HasBPS: mine})
	if bps := wants(mine + 5e5); bps != 0 {
		t.Errorf("another one told it about the same: %d", bps)
	}
	if bps := wants(mine / 2); bps != mine {
		t.Errorf("it has far less: %d", bps)
	}
}

// TestRefusals: a refusal counts after RefusalHold and until the minimum is in force, and the agent
// is told again, less often the longer it has refused.
func TestRefusals(t *testing.T) {
	in := shop(5, 0)
	refuse := func(x *Minimums, at time.Time) {
		x.Note(at, Order{Container: "pa", Service: "shop", BPS: 20e6}, Answer{State: Refused, Reason: "too much"})
	}
	for _, test := range []struct {
		refusedFor, ago time.Duration
		told, counts    bool
	}{
		{time.Second, time.Second / 2, false, false}, {time.Second, 1100 * time.Millisecond, true, false},
		{time.Minute, 5 * time.Second, false, true}, {time.Minute, 16 * time.Second, true, true}, {time.Hour, 21 * time.Second, true, true},
	} {
		var x Minimums
		last := start.Add(-test.ago)
		refuse(&x, last.Add(-test.refusedFor))
		refuse(&x, last)
		if got := orders(&x, in, 0); (got != "") != test.told {
			t.Errorf("refused for %v, the last time %v ago: it is told %q", test.refusedFor, test.ago, got)
		}
		if got := x.Refusal("pa"); (got != "") != test.counts {
			t.Errorf("refused for %v: %q", test.refusedFor, got)
		}
	}
	var x Minimums
	refuse(&x, start.Add(-time.Minute/2))
	refuse(&x, start)
	in.Nodes[0].Containers[0].MinBPS = 20e6
	if orders(&x, in, 0); x.Refusal("pa") != "" {
		t.Error("it is in force, and still refused")
	}
}

// TestHeld: of what is in force, services hold what the ledger promises them on the node.
func TestHeld(t *testing.T) {
	promises := engine.Promises{
		"shop-1": {Service: "shop", Node: "a"}, "shop-2": {Service: "shop", Node: "b"}, "shop@a": claim("a", 20e6), "shop@b": claim("b", 20e6),
		"wiki@a": {Service: "wiki", Node: "a", MinBPS: 5e6, Claim: true},
	}
	for name, test := range map[string]struct {
		containers []Container
		want       uint64
	}{
		"the proxy and the instance":  {[]Container{{Service: "shop", AdmittedBPS: 8e6}, {Service: "shop", Instance: "shop-1", AdmittedBPS: 7e6}}, 15e6},
		"more than what is promised":  {[]Container{{Service: "shop", AdmittedBPS: 30e6}}, 20e6},
		"an instance of another node": {[]Container{{Service: "shop", Instance: "shop-2", AdmittedBPS: 7e6}}, 0},
		"a relay":                     {[]Container{{Service: "wiki", AdmittedBPS: 4e6}}, 4e6},
		"without a promise":           {[]Container{{Service: "free", AdmittedBPS: 4e6}}, 0},
	} {
		if got := Held("a", test.containers, promises).Out; got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// TestReceived: the directions of a container are told, refused and held apart.
func TestReceived(t *testing.T) {
	in := shop(0, 5)
	in.Services = append(in.Services, Service{Name: "shop", In: true, MinBPS: 16e6})
	for _, node := range []string{"a", "b"} {
		in.Promises["shop@"+node] = engine.Promise{Service: "shop", Node: node, MinBPS: 40e6, InMinBPS: 17e6, Claim: true}
	}
	for i := range in.Nodes {
		for _, c := range in.Nodes[i].Containers {
			c.In, c.MinBPS, c.AdmittedBPS = true, 0, 0
			in.Nodes[i].Containers = append(in.Nodes[i].Containers, c)
		}
	}
	var x Minimums
	told := func(n int) (text string) {
		for _, o := range x.Orders(in, &in.Nodes[n], x.Divide(in), in.Promises) {
			text += fmt.Sprintf(" %s=%v/%t", o.Container, float64(o.BPS)/1e6, o.In)
			x.Note(in.At, o, Answer{State: Refused, Reason: "too much " + fmt.Sprint(o.In)})
		}
		return text
	}
	if a, b := told(0), told(1); a != " i=20/false i=16/true" || b != " pb=37.25/false pb=17/true" {
		t.Errorf("a is told%s, b%s", a, b)
	}
	// What is sent has its minimum then; what is received is refused for long.
	in.Nodes[1].Containers[0].MinBPS, in.Nodes[1].Containers[0].AdmittedBPS = 37.25e6, 37.25e6
	for range 3 {
		in.At = in.At.Add(RetryAfter)
		told(1)
	}
	if got := x.Refusal("pb"); got != "too much true" {
		t.Error(got)
	}
	in.Nodes[1].Containers[2].AdmittedBPS = 20e6
	if got := Held("b", in.Nodes[1].Containers, in.Promises); got != (engine.Rates{Out: 37.25e6, In: 17e6}) {
		t.Errorf("%+v", got)
	}
	got := x.ClaimsInForce(in)
	if out, received := got[engine.Entry{Service: "shop", Node: "b"}], got[engine.Entry{Service: "shop", Node: "b", In: true}]; out != 37.25e6 || received != 17e6 {
		t.Errorf("%d and %d", out, received)
	}
}

// TestClaimsInForce: a claim of a node that has left is not in force, and one of a node whose agent
// does not answer is.
func TestClaimsInForce(t *testing.T) {
	in := shop(0, 5)
	in.Promises["shop@b"], in.Promises["shop@gone"] = claim("b", 10e6), claim("gone", 10e6)
	in.Nodes[0].Containers[0].AdmittedBPS, in.Nodes[0].Containers[2].AdmittedBPS = 5e6, 3e6 // the proxy and the instance
	in.Nodes[1].Containers[0].AdmittedBPS = 4e6
	for ready, want := range map[bool]string{true: "8 4 0", false: "8 10 0"} {
		in.Nodes[1].Ready = ready
		var x Minimums
		got := x.ClaimsInForce(in)
		at := func(node string) uint64 { return got[engine.Entry{Service: "shop", Node: node}] / 1e6 }
		if got := fmt.Sprint(at("a"), at("b"), at("gone")); got != want {
			t.Errorf("ready %t: %s, want %s", ready, got, want)
		}
	}
}

// TestFractions: users count for as long as they are there, and those of a proxy that does not
// answer stay.
func TestFractions(t *testing.T) {
	var x Minimums
	now := start
	look := func(in *Input, later time.Duration) {
		now = now.Add(later)
		in.At = now
		x.Divide(in)
	}
	at := func(node string) float64 { return x.fractions[engine.Path{Instance: "shop-1", Node: node}] }
	is := func(what string, a, b float64) {
		t.Helper()
		if math.Abs(at("a")-a) > 0.03 || math.Abs(at("b")-b) > 0.03 {
			t.Errorf("%s: %.2v, want %v and %v", what, x.fractions, a, b)
		}
	}
	only := func(in *Input, answers func(node string) bool, there ...string) *Input {
		var list []Proxy
		for _, p := range in.Proxies {
			p.Answers = answers(p.Node)
			if strings.Contains(strings.Join(there, " "), p.Node) {
				list = append(list, p)
			}
		}
		in.Proxies = list
		return in
	}
	none, all := func(string) bool { return false }, func(string) bool { return true }
	look(shop(1, 3), 0)
	is("another weir-edge was there before", 0.25, 0.75)
	x = Minimums{}
	look(shop(0, 0), 0)
	look(shop(0, 1), 200*time.Millisecond)
	is("one that connects for a moment", 0.98, 0.02)
	for range 4 {
		look(shop(0, 16), 500*time.Millisecond)
	}
	is("many for two seconds", 0.02, 0.98)
	x = Minimums{}
	look(shop(0, 0), 0)
	look(shop(0, 1), time.Minute)
	is("one that was seen once, after a minute", 0.88, 0.12)
	for range 4 {
		look(shop(0, 16), 500*time.Millisecond)
	}
	look(only(shop(0, 0), none, "a", "b"), time.Minute)
	is("no proxy answers", 0.02, 0.98)
	silent := func(node string) bool { return node == "a" }
	look(shop(4, 12), time.Second)
	for second := range 2 * int(silentUsers.Seconds()) {
		if look(only(shop(4, 0), silent, "a", "b"), time.Second); second == int(silentUsers.Seconds())-2 {
			is("the proxy on b is silent", 0.25, 0.75)
		}
	}
	is("it is silent for long", 1, 0)
	for range 4 {
		look(shop(0, 16), 500*time.Millisecond)
	}
	// A node that is off has no users, as its proxy is gone; without any proxy that is unknown.
	look(only(shop(4, 4), all), time.Minute)
	is("no proxies", 0.02, 0.98)
	look(only(shop(4, 4), all, "a"), time.Minute)
	is("b is off", 1, 0)

	look(shop(0, 4), time.Second)
	is("b is back", 0.61, 0.39)
	for range 8 {
		look(shop(0, 0), time.Second)
	}
	is("no users for seconds", 0.65, 0.35)
	for range 600 {
		look(shop(0, 0), time.Second)
	}
	is("no users for minutes", 1, 0)
	// However short rounds are.
	for _, every := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond} {
		x = Minimums{}
		look(shop(0, 1), 0)
		for passed := time.Duration(0); passed < 10*time.Minute; passed += every {
			look(shop(0, 0), every)
		}
		is(fmt.Sprintf("no users for minutes, in rounds of %v", every), 1, 0)
		for passed := time.Duration(0); passed < 40*time.Second; passed += every {
			look(shop(0, 1), every)
		}
		is(fmt.Sprintf("one for half a minute, in rounds of %v", every), 0, 1)
	}
	x = Minimums{}
	look(shop(0, 0), 0)
	x.users = nil // those of its own node are unknown
	half := only(shop(0, 4), func(node string) bool { return node == "b" }, "a", "b")
	look(half, time.Second)
	if d := x.Divide(half); d.Needs[engine.Entry{Service: "shop", Node: "a"}].LocalBPS < 10e6 {
		t.Errorf("the node's own proxy has not answered yet: %+v", d)
	}
}

// TestHysteresis: a part that is off a little stays.
func TestHysteresis(t *testing.T) {
	for _, test := range []struct {
		usersA, usersB float64
		want           uint64
	}{{50, 50, 10e6}, {46, 54, 10e6}, {45, 55, 11e6}} {
		var x Minimums
		x.Divide(shop(50, 50))
		x.at, x.fractions = time.Time{}, nil // as if seen for long
		if bps := x.Divide(shop(test.usersA, test.usersB)).Sent["shop-1"].Out; bps != test.want {
			t.Errorf("%v and %v users after half and half: %d, want %d", test.usersA, test.usersB, bps, test.want)
		}
	}
}

// TestSteadyUsers: the users of a node vary by chance from look to look, and agents are seldom told
// another part for that; a crowd that moves takes its part along all the same.
func TestSteadyUsers(t *testing.T) {
	for _, users := range []int{2, 8, 30} {
		var x Minimums
		random, now, last, changes := rand.New(rand.NewPCG(1, uint64(users))), start, uint64(0), 0
		look := func(most float64) uint64 {
			now = now.Add(500 * time.Millisecond)
			there := 0
			for range users {
				if random.Float64() < most {
					there++
				}
			}
			in := shop(float64(users-there), float64(there))
			in.At = now
			bps := x.Divide(in).Sent["shop-1"].Out
			if bps != last {
				changes++
			}
			last = bps
			return bps
		}
		for range 60 {
			look(0.4)
		}
		changes = 0
		for range 600 {
			if bps := look(0.4); bps < 2e6 || bps > 14e6 {
				t.Errorf("%d users, four tenths of them at b: %d", users, bps)
			}
		}
		t.Logf("%d users: %d changes", users, changes)
		if changes > 60 {
			t.Errorf("%d users are steady: in 5 minutes their parts are changed %d times", users, changes)
		}
		for range 60 / users {
			look(1)
		}
		if bps := look(1); bps < 18e6 {
			t.Errorf("%d users have all gone to b: %d", users, bps)
		}
	}
}

// TestCrowdMoves: a crowd that has moved to another node takes the minimum along in the second look, or in
// a later one if looks follow each other closely.
func TestCrowdMoves(t *testing.T) {
	var x Minimums
	now := start
	look := func(usersA, usersB float64, after time.Duration) uint64 {
		now = now.Add(after)
		in := shop(usersA, usersB)
		in.At = now
		return x.Divide(in).Sent["shop-1"].Out
	}
	for range 120 {
		look(8, 0, 500*time.Millisecond)
	}
	look(0, 8, 500*time.Millisecond)
	if bps := look(0, 8, 500*time.Millisecond); bps != 20e6 {
		t.Errorf("a second after all have moved to b: %d", bps)
	}
	for range 120 {
		look(8, 0, 500*time.Millisecond)
	}
	look(0, 8, 500*time.Millisecond)
	for range 3 {
		if bps := look(0, 8, 50*time.Millisecond); bps == 20e6 {
			t.Error("all have moved to b just now")
		}
	}
	if bps := look(0, 8, 150*time.Millisecond); bps != 20e6 {
		t.Errorf("0.3 s after all have moved to b: %d", bps)
	}
}
