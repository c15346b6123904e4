package run

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/test/must"
)

// book is a controller with one link for all.
type book struct {
	freeBPS  uint64
	silent   bool
	failing  bool   // it has no paths now
	hangs    bool   // it answers no change
	gone     bool   // what is released has been released before
	standby  bool   // another controller is master
	slow     string // what the link says of itself
	refused  string // why it can promise nothing
	promises map[string]v1.SDNPromise
	changes  int
	// questions are those that change nothing.
	questions int
}

func (b *book) answer() error {
	if b.silent {
		return client.ErrNoController
	}
	return nil
}

func (b *book) Links(context.Context) (v1.SDNLinks, error) {
	b.questions++
	link := v1.SDNLinkDirection{DPID: "00000000000000a1", Port: 2, Name: "c12", PeerDPID: "00000000000000a2", FreeMinBPS: b.freeBPS, State: "ok", Reason: b.slow}
	if b.refused != "" {
		link.State, link.Reason = "refused", b.refused
	}
	seen := v1.SDNLinks{Links: []v1.SDNLinkDirection{link}, Standby: b.standby}
	for _, p := range b.promises {
		seen.Promises = append(seen.Promises, p)
	}
	return seen, b.answer()
}

func (b *book) Paths(_ context.Context, _ netip.Addr, from []netip.Addr) (list []v1.SDNPath, err error) {
	b.questions++
	if b.failing {
		return nil, &client.Error{Status: http.StatusInternalServerError, Message: "a switch is away"}
	}
	for _, host := range from {
		path := v1.SDNPath{From: host, State: v1.PathOK, FreeMinBPS: b.freeBPS, Hops: []v1.SDNHop{{DPID: "00000000000000a1", In: 1, Out: 2}}}
		if host.String() == "198.18.0.9" {
			path = v1.SDNPath{From: host, State: v1.PathRefused, Reason: "no port is known that leads to 198.18.0.9"}
		}
		list = append(list, path)
	}
	return list, b.answer()
}

func (b *book) promise(r v1.SDNPromiseRequest, state string, expires *time.Time) (v1.SDNPromise, error) {
	b.changes++
	if b.standby {
		return v1.SDNPromise{}, &client.Error{Status: http.StatusServiceUnavailable, Message: "another controller is master"}
	}
	if more := r.MinBPS - min(b.promises[r.ID].MinBPS, r.MinBPS); more > b.freeBPS {
		return v1.SDNPromise{}, &client.Error{Status: http.StatusConflict, Message: fmt.Sprintf("c12 has %d left to promise", b.freeBPS)}
	}
	b.freeBPS -= r.MinBPS - b.promises[r.ID].MinBPS
	b.promises[r.ID] = v1.SDNPromise{SDNPromiseRequest: r, State: state, Expires: expires, Path: []v1.SDNHop{{DPID: "00000000000000a1", In: 1, Out: 2}}}
	return b.promises[r.ID], b.answer()
}

func (b *book) Reserve(ctx context.Context, r v1.SDNPromiseRequest) (v1.SDNPromise, error) {
	if b.hangs {
		b.changes++
		<-ctx.Done()
		return v1.SDNPromise{}, ctx.Err()
	}
	if b.silent {
		return v1.SDNPromise{}, client.ErrNoController
	}
	return b.promise(r, v1.PromiseReserved, new(time.Time))
}

func (b *book) Confirm(_ context.Context, r v1.SDNPromiseRequest) (v1.SDNPromise, error) {
	return b.promise(r, v1.PromiseInForce, nil)
}

func (b *book) Release(_ context.Context, id string) error {
	b.changes++
	b.freeBPS += b.promises[id].MinBPS
	delete(b.promises, id)
	if b.gone {
		return &client.Error{Status: http.StatusNotFound, Message: "there is no promise of this id"}
	}
	return b.answer()
}

// linked is a manager whose nodes a and b have a controller of links.
type linked struct {
	*Manager
	t      *testing.T
	ledger *bench
	links  *Links
	// specs are of the service shop, ports are its.
	ports []spec.Port
	users [2]int
	nodes []runtime.Node
	busy  bool // rounds follow each other at once
	inMin string
}

func newLinked(t *testing.T, controllers ...LinkController) *linked {
	l := &linked{Manager: newManager(t), t: t, ledger: &bench{promises: engine.Promises{"shop-1": {Service: "shop", Node: "a"}}}, users: [2]int{4, 0}, ports: []spec.Port{{Host: 80, Container: 80}}}
	l.links = NewLinks(controllers, netip.MustParseAddr("198.18.0.254"))
	for i, name := range []string{"a", "b"} {
		l.nodes = append(l.nodes, runtime.Node{Name: name, Address: netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})})
	}
	return l
}

// observe returns the observation of the next round, and what it says.
func (l *linked) observe() (o *observation, said []problem) {
	o = shop(l.users[0], l.users[1])
	shopSpec := o.specs["shop"]
	shopSpec.Ports, shopSpec.Labels[policy.LabelIn+"min"] = l.ports, l.inMin
	o.specs["shop"] = shopSpec
	o.promises, o.at = l.ledger.promises, time.Now()
	for i := range o.nodes {
		o.input.Nodes = append(o.input.Nodes, engine.Node{Name: o.nodes[i].Node.Name, State: engine.NodeReady, Weir: true, Out: engine.Room{BudgetBPS: 95e6}, In: engine.Room{BudgetBPS: 95e6}})
	}
	if !l.busy {
		l.links.asked = time.Time{}
	}
	o.links, said = l.links.askController(l.t.Context(), l.nodes, o.wantsMinimum())
	return o, said
}

// round returns where the minimum of shop holds on a's links, after what is wrong, if that is new.
func (l *linked) round() (places string, said []problem) {
	l.t.Helper()
	o, said := l.observe()
	claims := l.planClaims(o)
	claims.apply(l.t.Context(), l.ledger, o, l.links)
	for _, c := range claims.wire(o, "shop") {
		for _, p := range c.Places {
			if c.Node == "a" && !c.In && p.Where != "uplink" {
				places += fmt.Sprintf("%s: %d %s; %s", p.Where, p.PromisedBPS, p.State, p.Reason)
			}
		}
	}
	return places, append(said, claims.problems...)
}

// wants checks that a round says something.
func (l *linked) wants(want string) {
	l.t.Helper()
	if got, _ := l.round(); !strings.Contains(got, want) {
		l.t.Errorf("%q, want %q", got, want)
	}
}

const inForce = "link c12 of switch a1 to switch a2: 20000000 " + v1.PromiseInForce

// TestLinkPromises: what users get of a claim is reserved, in the ledger and confirmed, changes with users,
// and is nowhere any more when the claim is gone.
func TestLinkPromises(t *testing.T) {
	b := &book{freeBPS: 30e6, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	l.wants(inForce)
	want := v1.SDNPromiseRequest{
		ID: "shop@198.18.0.1", Service: "shop", Node: l.nodes[0].Address, Peer: l.links.users, Protocol: "tcp", Port: 80, MinBPS: 20e6, BackBPS: 1.25e6,
	}
	if p := b.promises[want.ID]; p.SDNPromiseRequest != want || p.Expires != nil || b.changes != 2 || l.ledger.promises["shop@a"].LinkBPS != 20e6 {
		t.Errorf("%+v after %d changes, the ledger has %+v", p, b.changes, l.ledger.promises)
	}
	if l.wants(inForce); b.changes != 2 {
		t.Errorf("the next round changes %d", b.changes-2)
	}
	// What users send is promised on uplinks only.
	l.inMin = "9mbit"
	if l.wants(inForce); b.changes != 2 || l.ledger.promises["shop@a"].InMinBPS != 9e6 || l.ledger.promises["shop@a"].LinkBPS != 20e6 {
		t.Errorf("%d changes, the ledger has %+v", b.changes-2, l.ledger.promises)
	}
	l.inMin = ""
	l.ports = append(l.ports, spec.Port{Host: 443, Container: 443})
	l.wants(edge.PlaceUplinksOnly + "; switches cannot tell a service with 2 ports apart")
	if l.round(); len(b.promises) > 0 || l.ledger.promises["shop@a"].LinkBPS != 0 || l.ledger.promises["shop@a"].MinBPS != 20e6 {
		t.Errorf("%+v, %+v", b.promises, l.ledger.promises)
	}
	l.busy = true
	if l.round(); b.changes != 3 {
		t.Errorf("%d changes: what was released is released again", b.changes)
	}
}

// TestViewDuringRound: a view changes with what agents say while a round changes what it knows of the same links,
// and has none of that round.
func TestViewDuringRound(t *testing.T) {
	b := &book{freeBPS: 60e6, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	l.busy = true
	apply := func() (*observation, *claimStep) {
		o, _ := l.observe()
		claims := l.planClaims(o)
		claims.apply(t.Context(), l.ledger, o, l.links)
		return o, &claims
	}
	o, claims := apply()
	o.state.Services = []runtime.Service{{Name: "shop"}}
	l.publish(o, claims, nil)
	l.ledger.promises = engine.Promises{"shop-1": {Service: "shop", Node: "a"}}
	clear(l.links.seen.promises)
	var round sync.WaitGroup
	round.Go(func() { apply() })
	seen := l.view.Load().after(nil).seen.links
	round.Wait()
	if now := l.links.seen; len(now.promises) != 1 || now.nodes["a"].freeBPS != 20e6 || len(seen.promises) != 1 || seen.nodes["a"].freeBPS != 40e6 {
		t.Errorf("rounds know %+v, readers %+v", now, seen)
	}
}

// TestLeavingNode: the promises of a node that has another address now, or has left, are released.
func TestLeavingNode(t *testing.T) {
	b := &book{freeBPS: 60e6, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	l.wants(inForce)
	l.nodes[0].Address = netip.MustParseAddr("198.18.0.7")
	l.wants(inForce)
	if l.wants(inForce); len(b.promises) != 1 || b.promises["shop@198.18.0.7"].MinBPS != 20e6 {
		t.Errorf("at another address: %+v", b.promises)
	}
	l.nodes = l.nodes[1:]
	l.round()
	if l.round(); len(b.promises) > 0 {
		t.Errorf("left: %+v", b.promises)
	}
}

// TestUnknownPath: a node whose path cannot be told now has as much room on links as before.
func TestUnknownPath(t *testing.T) {
	b := &book{freeBPS: 8e6, failing: true, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	l.wants("0 uplinks only; a switch is away")
	b.failing = false
	l.round()
	b.failing = true
	l.wants("8000000 in force; users need 20mbit, and link c12 of switch a1 to switch a2 has 8mbit left")
	if rooms := l.links.seen.rooms(); len(rooms) != 2 || rooms[0].FreeBPS != 0 {
		t.Errorf("%+v", rooms)
	}
}

// TestUnreadableService: the minimum of a service that cannot be read says so.
func TestUnreadableService(t *testing.T) {
	l := newLinked(t, &book{})
	o := shop(0, 0)
	o.links, _ = l.links.askController(t.Context(), l.nodes, true)
	delete(o.specs, "shop")
	if why := o.offLinks(engine.Entry{Service: "shop", Node: "a"}); !strings.Contains(why, "deploy it again") {
		t.Error(why)
	}
}

// TestHangingController: a round waits once for a controller that answers no changes, and its silence is
// said once.
func TestHangingController(t *testing.T) {
	b := &book{freeBPS: 60e6, hangs: true, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	l.users = [2]int{4, 4}
	l.ledger.promises["shop-2"] = engine.Promise{Service: "shop", Node: "b"}
	places, said := l.round()
	if b.changes != 1 || len(said) > 0 || !strings.Contains(places, "the controller of switches does not answer") {
		t.Errorf("%d changes, %s, %v", b.changes, places, said)
	}
	l.busy = true
	for i := range 2 {
		if _, said := l.round(); b.changes != 1 || len(said) != 1-i {
			t.Errorf("%d changes, %v", b.changes, said)
		}
	}
}

// TestFullLinks: a link without room for all promises what it has, and names itself.
func TestFullLinks(t *testing.T) {
	b := &book{freeBPS: 8e6, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	l.wants("link c12 of switch a1 to switch a2: 8000000 in force; users need 20mbit, and link c12 of switch a1 to switch a2 has 8mbit left to promise")
	b.freeBPS = 12e6
	l.round()
	l.wants(inForce)
}

// TestUncountedLinks: a node that no switch leads to, and a path without queues, are promised on uplinks
// only, and say so.
func TestUncountedLinks(t *testing.T) {
	b := &book{freeBPS: 30e6, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	l.nodes[0].Address = netip.MustParseAddr("198.18.0.9")
	l.wants("links to 198.18.0.254: 0 uplinks only; no port is known that leads to 198.18.0.9")
	l.nodes[0].Address = netip.MustParseAddr("198.18.0.1")
	b.refused = "c12 has no queues"
	l.wants("0 uplinks only; c12 has no queues")
	if len(b.promises) > 0 || l.ledger.promises["shop@a"].MinBPS != 20e6 {
		t.Errorf("%+v, %+v", b.promises, l.ledger.promises)
	}
}

// TestSilentController: while the controller is silent, minimums hold on uplinks only, one event says that
// it is silent, and nobody says that the ledger's promises are in force on links.
func TestSilentController(t *testing.T) {
	b := &book{freeBPS: 30e6, silent: true, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	for i := range 3 {
		places, said := l.round()
		if !strings.Contains(places, "0 uplinks only; the controller of switches does not answer: no controller is running") || len(said) != min(1-min(i, 1), 1) {
			t.Errorf("round %d: %s, %v", i, places, said)
		}
	}
	if b.changes > 0 || l.ledger.promises["shop@a"].MinBPS != 20e6 {
		t.Errorf("%d changes, %+v", b.changes, l.ledger.promises)
	}
	b.silent = false
	l.wants(inForce)
	b.silent = true
	l.wants("20000000 unknown; the controller of switches does not answer")
	if l.ledger.promises["shop@a"].LinkBPS != 20e6 {
		t.Errorf("the ledger has %+v", l.ledger.promises)
	}
	if l.wants("unknown"); b.changes != 2 {
		t.Errorf("it was asked for %d changes", b.changes)
	}
}

// TestTakenOver: of several controllers the master is asked, and one that takes over is told what the ledger
// has. While none is master, nothing is said to be in force or broken, and the ledger stays.
func TestTakenOver(t *testing.T) {
	empty := func() *book { return &book{freeBPS: 60e6, standby: true, promises: map[string]v1.SDNPromise{}} }
	one, two, three := empty(), empty(), empty()
	two.standby = false
	l := newLinked(t, one, two, three)
	if l.wants(inForce); one.changes+three.changes > 0 || two.changes != 2 {
		t.Errorf("%d, %d and %d changes", one.changes, two.changes, three.changes)
	}
	if l.wants(inForce); one.questions+three.questions != 2 {
		t.Errorf("standbys are asked %d and %d times", one.questions, three.questions)
	}
	two.silent = true
	places, said := l.round()
	if !strings.Contains(places, "20000000 unknown; no controller that --sdn names is the master") || len(said) != 1 {
		t.Errorf("no master: %s, %v", places, said)
	}
	if l.ledger.promises["shop@a"].LinkBPS != 20e6 || one.changes+three.changes > 0 {
		t.Errorf("no master: %+v after %d and %d changes", l.ledger.promises, one.changes, three.changes)
	}
	three.standby = false
	places, said = l.round()
	if !strings.Contains(places, inForce) || len(said) > 0 || one.changes > 0 || three.promises["shop@198.18.0.1"].MinBPS != 20e6 {
		t.Errorf("taken over: %s, %v, %+v", places, said, three.promises)
	}
	two.silent, two.standby = false, true
	if places, said = l.round(); !strings.Contains(places, inForce) || len(said) > 0 || two.changes != 2 || three.changes != 1 {
		t.Errorf("the old master stands by: %s, %v, %d and %d changes", places, said, two.changes, three.changes)
	}
	// The master is replaced between two questions of a round.
	three.standby = true
	delete(l.links.seen.promises, "shop@198.18.0.1")
	o := shop(4, 0)
	o.specs["shop"], o.links = spec.Spec{Name: "shop", Ports: l.ports}, l.links.seen
	if l.links.matchLedger(t.Context(), o, l.ledger.promises); o.links.silent == nil {
		t.Error("a standby that refuses is still believed to be the master")
	}
}

// TestForgetfulController: one that is started anew, or has other promises, gets those of the ledger; what
// others promise stays.
func TestForgetfulController(t *testing.T) {
	b := &book{freeBPS: 60e6, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	l.wants(inForce)
	b.promises = map[string]v1.SDNPromise{}
	l.wants(inForce)
	request := func(id, service, node string, bps uint64) v1.SDNPromiseRequest {
		return v1.SDNPromiseRequest{ID: id, Service: service, Node: netip.MustParseAddr(node), MinBPS: bps}
	}
	other := &book{freeBPS: 60e6, promises: map[string]v1.SDNPromise{}}
	for _, r := range []v1.SDNPromiseRequest{
		request("shop@198.18.0.1", "shop", "198.18.0.1", 3e6), request("gone@198.18.0.2", "gone", "198.18.0.2", 5e6),
		request("shop@198.18.0.7", "shop", "198.18.0.7", 3e6), request("site/voice", "voice", "198.18.0.1", 1e6),
	} {
		other.promises[r.ID] = v1.SDNPromise{SDNPromiseRequest: r, State: v1.PromiseInForce}
	}
	l.links.controller = other
	l.wants(inForce)
	l.wants(inForce)
	if p := other.promises; len(p) != 3 || p["shop@198.18.0.1"].MinBPS != 20e6 || p["shop@198.18.0.7"].MinBPS != 3e6 || p["site/voice"].MinBPS != 1e6 {
		t.Errorf("%+v", p)
	}
}

// TestAnotherReleases: what another weir-edge withdraws and promises again between two answers of the
// controller stays, and what it has released meanwhile is no failure.
func TestAnotherReleases(t *testing.T) {
	b := &book{freeBPS: 60e6, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	o := shop(4, 0)
	o.specs["shop"] = spec.Spec{Name: "shop", Ports: l.ports}
	match := func(ledger engine.Promises) []problem {
		l.links.asked = time.Time{}
		o.links, _ = l.links.askController(t.Context(), l.nodes, false)
		return l.links.matchLedger(t.Context(), o, ledger)
	}
	entered := engine.Promises{"shop@a": {Service: "shop", Node: "a", MinBPS: 5e6, LinkBPS: 5e6, Claim: true}}
	for range 3 {
		match(entered)
		if match(nil); len(b.promises) != 1 || b.changes != 1 {
			t.Fatalf("%+v after %d changes", b.promises, b.changes)
		}
	}
	b.gone = true
	if said := match(nil); len(b.promises) > 0 || len(said) > 0 {
		t.Errorf("%+v, %v", b.promises, said)
	}
}

// TestTwoDivisions: where two weir-edge divide a minimum a little differently, the ledger and the controller
// have the larger parts and do not change.
func TestTwoDivisions(t *testing.T) {
	for _, first := range []int{54, 58} {
		b := &book{freeBPS: 90e6, promises: map[string]v1.SDNPromise{}}
		one, two := newLinked(t, b), newLinked(t, b)
		two.ledger = one.ledger
		one.users, two.users = [2]int{50, 50}, [2]int{first, 100 - first}
		for round := range 8 {
			before, changes := one.ledger.promises, b.changes
			one.round()
			two.round()
			one.users, two.users = [2]int{54, 46}, [2]int{54, 46}
			if round > 3 && (b.changes > changes || !maps.Equal(before, one.ledger.promises)) {
				t.Errorf("%d: round %d changes %d, and %+v to %+v", first, round, b.changes-changes, before, one.ledger.promises)
			}
		}
		if a, b := one.ledger.promises["shop@a"].LinkBPS, one.ledger.promises["shop@b"].LinkBPS; a != uint64(first)*20e4 || b != 10e6 {
			t.Errorf("%d: a has %d and b %d", first, a, b)
		}
	}
}

// TestUsersMove: what links promise follows users that move further than two divisions differ, whatever they send.
func TestUsersMove(t *testing.T) {
	for _, inMin := range []string{"", "60mbit"} {
		b := &book{freeBPS: 90e6, promises: map[string]v1.SDNPromise{}}
		one, two := newLinked(t, b), newLinked(t, b)
		one.users, two.users, one.inMin, two.inMin, two.ledger = [2]int{50, 50}, [2]int{30, 70}, inMin, inMin, one.ledger
		for _, step := range []struct {
			of   *linked
			want uint64
		}{{one, 10e6}, {two, 6e6}} {
			step.of.round()
			if has := one.ledger.promises["shop@a"].LinkBPS; has != step.want {
				t.Errorf("%q: links promise %d, want %d", inMin, has, step.want)
			}
		}
	}
}

// others is a controller at which another weir-edge promises before each answer.
type others struct {
	*book
	promise func()
}

func (o *others) Links(ctx context.Context) (v1.SDNLinks, error) {
	o.promise()
	return o.book.Links(ctx)
}

// TestLedgerAfterController: a round has in its ledger what another weir-edge has promised by the time that
// the controller answers.
func TestLedgerAfterController(t *testing.T) {
	m, fake := newManager(t), &fakeEngine{ledger: bench{promises: engine.Promises{}}}
	b := &book{promises: map[string]v1.SDNPromise{}}
	m.opts.Runtime, m.opts.Nodes = fake, Unmeasured{}
	m.opts.Links = NewLinks([]LinkController{&others{b, func() {
		must.Succeed(t, fake.Swap(t.Context(), "", engine.Promises{"shop@a": {Service: "shop", Node: "a", MinBPS: 5e6, LinkBPS: 5e6, Claim: true}}))
		b.promises["shop@198.18.0.1"] = v1.SDNPromise{}
	}}}, netip.MustParseAddr("198.18.0.254"))
	o, err := m.opts.observe(t.Context(), m.proxies.talks)
	must.Succeed(t, err)
	if len(o.links.promises) != 1 || len(o.promises) != 1 {
		t.Errorf("the controller has %+v, the ledger %+v", o.links.promises, o.promises)
	}
}

// TestLyingLink: a link that has less than it says is named where the minimum is promised.
func TestLyingLink(t *testing.T) {
	b := &book{freeBPS: 30e6, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	b.slow = "it drops packets below 80 % of its rate"
	l.wants(inForce + "; it drops packets below 80 %")
}

// TestAdmitDecisions: a decision whose minimum links refuse is not carried out.
func TestAdmitDecisions(t *testing.T) {
	b := &book{freeBPS: 8e6, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	o := shop(0, 0)
	s := o.specs["shop"]
	s.Ports = l.ports
	o.specs["shop"] = s
	o.links, _ = l.links.askController(t.Context(), l.nodes, true)
	decisions := []engine.Decision{{Action: engine.Start, Service: "shop", Node: "a", MinBPS: 9e6}, {Action: engine.Stop, Service: "shop"}, {Action: engine.Start, Service: "free", Node: "a"}}
	admitted, refused := l.links.reserveDecisions(t.Context(), o, decisions)
	if len(admitted) != 2 || len(refused) != 1 || !strings.Contains(refused[0].Reason, "c12 has 8000000 left to promise") {
		t.Errorf("%+v, %+v", admitted, refused)
	}
	b.silent = true
	if admitted, refused := l.links.reserveDecisions(t.Context(), o, decisions); len(admitted) != 3 || len(refused) > 0 {
		t.Errorf("a silent controller: %+v, %+v", admitted, refused)
	}
}

// TestLedgerComesFirst: a master that has just taken over gets the promises of the ledger before one that
// would take their room.
func TestLedgerComesFirst(t *testing.T) {
	b := &book{freeBPS: 8e6, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	o := shop(0, 0)
	for _, name := range []string{"shop", "free"} {
		s := o.specs[name]
		s.Name, s.Ports = name, l.ports
		o.specs[name] = s
	}
	o.promises["free@b"] = engine.Promise{Service: "free", Node: "b", MinBPS: 6e6, LinkBPS: 6e6, Claim: true}
	o.links, _ = l.links.askController(t.Context(), l.nodes, true)
	_, refused := l.links.reserveDecisions(t.Context(), o, []engine.Decision{{Action: engine.Start, Service: "shop", Node: "a", MinBPS: 5e6}})
	if len(refused) != 1 || len(b.promises) != 1 || b.freeBPS != 2e6 {
		t.Errorf("refused %+v, promised %+v", refused, b.promises)
	}
	// Without the time to tell it all, nothing new is promised.
	b.promises, b.freeBPS = map[string]v1.SDNPromise{}, 20e6
	o.links.promises, o.links.spent = map[string]v1.SDNPromise{}, linksTimeout
	if _, refused = l.links.reserveDecisions(t.Context(), o, []engine.Decision{{Action: engine.Start, Service: "shop", Node: "a", MinBPS: 5e6}}); len(refused) != 1 || len(b.promises) > 0 {
		t.Errorf("in a hurry: refused %+v, promised %+v", refused, b.promises)
	}
}

// TestManyNodes: a controller is asked two questions for all nodes, for as many paths as an answer has, the
// oldest first, and not in each of many rounds.
func TestManyNodes(t *testing.T) {
	b := &book{freeBPS: 30e6, promises: map[string]v1.SDNPromise{}}
	l := newLinked(t, b)
	for i := range v1.SDNMaxPaths {
		l.nodes = append(l.nodes, runtime.Node{Name: fmt.Sprint("n", i), Address: netip.AddrFrom4([4]byte{198, 18, 1, byte(i + 1)})})
	}
	counted := func() (paths, questions int) {
		before := b.questions
		l.round()
		return len(l.links.seen.rooms()), b.questions - before
	}
	if paths, questions := counted(); paths != v1.SDNMaxPaths || questions != 2 {
		t.Errorf("%d paths are known after %d questions", paths, questions)
	}
	l.busy = true
	if paths, questions := counted(); paths != v1.SDNMaxPaths || questions != 0 {
		t.Errorf("at once: %d paths are known after %d questions", paths, questions)
	}
	l.busy = false
	if paths, questions := counted(); paths != len(l.nodes) || questions != 2 {
		t.Errorf("%d of %d paths are known after %d questions", paths, len(l.nodes), questions)
	}
}

// TestNodeAddress: the node of a single engine has the address that this host has towards users.
func TestNodeAddress(t *testing.T) {
	l := NewLinks([]LinkController{&book{}}, netip.MustParseAddr("127.0.0.1"))
	for want, n := range map[string]runtime.Node{
		"127.0.0.1": {Here: true}, "198.18.0.1": {Here: true, Address: netip.MustParseAddr("198.18.0.1")}, "invalid IP": {},
	} {
		if got := l.addressOf(n); got.String() != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}
