package promise

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/test/must"
)

// net is a network of switches with hosts.
type net struct {
	graph  *topology.Graph
	hosts  map[netip.Addr]topology.Port
	budget map[topology.Port]uint64 // 0: nothing can be promised there
	usual  uint64                   // of ports that are not in budget
	refuse string                   // the id of a promise that a switch refuses
}

func (n *net) Way(from, to netip.Addr, width func(topology.Port) uint64) ([]topology.Hop, error) {
	a, known := n.hosts[from]
	b, too := n.hosts[to]
	if !known || !too {
		return nil, Refuse(ErrUnknown, "%v or %v is not known", from, to)
	}
	if way := n.graph.Widest(a, b, 0, width); way != nil {
		return way, nil
	}
	return nil, Refuse(ErrNoRoom, "no path from %v to %v", from, to)
}

func (n *net) Holds(id string, way []topology.Hop, from, to netip.Addr) error {
	last := way[len(way)-1]
	if id == n.refuse || n.hosts[from] != (topology.Port{Switch: way[0].Switch, Number: way[0].In}) || n.hosts[to] != (topology.Port{Switch: last.Switch, Number: last.Out}) {
		return errors.New("refused, or a host has moved")
	}
	for i := range way[:len(way)-1] {
		peer, ok := n.graph.Peer(topology.Port{Switch: way[i].Switch, Number: way[i].Out})
		if !ok || peer.Switch != way[i+1].Switch {
			return fmt.Errorf("%v port %d leads nowhere", way[i].Switch, way[i].Out)
		}
	}
	return nil
}

func (n *net) Budget(p topology.Port) (uint64, error) {
	b, own := n.budget[p]
	if !own {
		b = n.usual
	}
	if b == 0 {
		return 0, fmt.Errorf("%v has no queues", p)
	}
	return b, nil
}

func (n *net) cable(a, b topology.Port) {
	n.graph.Heard(a, b)
	n.graph.Heard(b, a)
}

func port(d topology.DPID, n uint32) topology.Port { return topology.Port{Switch: d, Number: n} }
func host(i int) netip.Addr                        { return netip.AddrFrom4([4]byte{198, 18, 0, byte(i)}) }

// diamond has hosts 1 and 2 at switches 1 and 4, and two ways between them, over 2 and over 3.
func diamond() *net {
	n := &net{graph: topology.New(), hosts: map[netip.Addr]topology.Port{host(1): port(1, 9), host(2): port(4, 9)}, budget: map[topology.Port]uint64{}, usual: 20e6}
	n.cable(port(1, 2), port(2, 1))
	n.cable(port(1, 3), port(3, 1))
	n.cable(port(2, 4), port(4, 2))
	n.cable(port(3, 4), port(4, 3))
	n.budget[port(4, 9)], n.budget[port(1, 9)] = 100e6, 100e6
	return n
}

func request(id string, port uint16, there, back float64) Request {
	return Request{ID: id, Traffic: Traffic{Node: host(1), Peer: host(2), Protocol: TCP, Port: port}, MinBPS: [2]uint64{uint64(there), uint64(back)}}
}

var start = time.Unix(1e9, 0)

// ok returns a promise that must be there.
func ok(t *testing.T) func(*Promise, error) *Promise {
	return func(p *Promise, err error) *Promise {
		t.Helper()
		must.Succeed(t, err)
		return p
	}
}

// TestAdmission: minimums take what links have, over the wider path; the first that does not fit is
// refused with where, and takes nothing.
func TestAdmission(t *testing.T) {
	n, b := diamond(), NewBook()
	for i, want := range []topology.DPID{2, 3} { // 15 of 20 Mbit/s each
		p, err := b.Reserve(start, request(fmt.Sprint(i), uint16(80+i), 15e6, 1e6), n)
		must.Succeed(t, err)
		if len(p.Ways[0]) != 3 || len(p.Ways[1]) != 3 || p.Ways[0][1].Switch != want {
			t.Errorf("promise %d goes %v and back %v", i, p.Ways[0], p.Ways[1])
		}
	}
	before := b.clonePorts()
	_, err := b.Reserve(start, request("2", 82, 6e6, 1e6), n)
	if !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "has 5mbit left to promise") {
		t.Errorf("beyond the links: %v", err)
	}
	if fmt.Sprint(b.ports) != fmt.Sprint(before) || b.Get("2") != nil {
		t.Error("the refused promise took something")
	}
	if way, free, err := b.Path(host(1), host(2), n); err != nil || len(way) != 3 || free != 5e6 {
		t.Errorf("path %v, free %d, %v", way, free, err)
	}
	if _, _, err := b.Path(host(1), host(7), n); !errors.Is(err, ErrUnknown) {
		t.Errorf("path to nowhere: %v", err)
	}
	at := port(4, 9)
	if q := b.Queues(at); len(q) != 2 || q[0].Number != FirstQueue || q[1].Number != FirstQueue+1 || b.PromisedBPS(at) != 30e6 {
		t.Errorf("queues %v", q)
	}
	if q, ok := b.QueueOf("1", 0, at); !ok || q != FirstQueue+1 {
		t.Errorf("queue %d, %v", q, ok)
	}
	if _, ok := b.QueueOf("1", 1, at); ok {
		t.Error("the way back has a queue at the port of the way there")
	}
	if !b.Release("0") || b.Release("0") {
		t.Error("released not once")
	}
	if _, err := b.Reserve(start, request("2", 82, 6e6, 0), n); err != nil {
		t.Errorf("after a release: %v", err)
	}
	if q, _ := b.QueueOf("2", 0, at); q != FirstQueue {
		t.Errorf("the free queue is %d", q)
	}
}

// TestLeases: what is not confirmed ends; a change that is not confirmed goes back.
func TestLeases(t *testing.T) {
	n, b := diamond(), NewBook()
	r := request("a", 80, 5e6, 0)
	ok(t)(b.Reserve(start, r, n))
	if b.Settle(start.Add(Lease-1), n); b.Get("a") == nil {
		t.Fatal("the lease ended early")
	}
	if changed := b.Settle(start.Add(Lease), n); b.Get("a") != nil || len(changed) != 1 || len(b.ports) > 0 {
		t.Fatal("the lease did not end")
	}
	ok(t)(b.Reserve(start, r, n))
	ok(t)(b.Confirm(start, r, n))
	more := r
	more.MinBPS[0] = 9e6
	ok(t)(b.Reserve(start, more, n))
	ok(t)(b.Reserve(start.Add(time.Second), more, n)) // again
	b.Settle(start.Add(Lease+time.Second), n)
	if p := b.Get("a"); p == nil || p.MinBPS[0] != 5e6 || !p.Expires.IsZero() || b.PromisedBPS(port(4, 9)) != 5e6 {
		t.Errorf("after a change without confirmation: %+v", p)
	}
	other := r
	other.Port, other.MinBPS[0] = 443, 2e6
	ok(t)(b.Reserve(start, other, n))
	b.Settle(start.Add(Lease), n)
	if p := b.Get("a"); p.Request != r {
		t.Errorf("after other traffic without confirmation: %+v", p)
	}
	ok(t)(b.Reserve(start, more, n))
	ok(t)(b.Confirm(start, more, n))
	b.Settle(start.Add(time.Hour), n)
	if p := b.Get("a"); p == nil || p.MinBPS[0] != 9e6 {
		t.Errorf("after a confirmed change: %+v", p)
	}
}

// TestLedgerWins: what the ledger confirms is kept, also if it does not fit, and comes into force when
// it does.
func TestLedgerWins(t *testing.T) {
	n, b := diamond(), NewBook()
	p := ok(t)(b.Confirm(start, request("a", 80, 50e6, 0), n))
	if p.Broken == nil || len(b.ports) > 0 {
		t.Fatalf("%+v", p)
	}
	if changed := b.Settle(start, n); len(changed) > 0 {
		t.Errorf("without change: %v", changed)
	}
	n.usual = 60e6
	if changed := b.Settle(start, n); len(changed) != 1 || p.Broken != nil {
		t.Errorf("with room: %v", p.Broken)
	}
}

// TestMoves: a promise whose link fails takes another path or says why it is broken; of too many at a
// port the newest breaks.
func TestMoves(t *testing.T) {
	n, b := diamond(), NewBook()
	older := ok(t)(b.Confirm(start, request("z", 80, 12e6, 0), n))
	newer := ok(t)(b.Confirm(start.Add(1), request("a", 81, 11e6, 0), n))
	n.graph.Forget(port(1, older.Ways[0][0].Out))
	if changed := b.Settle(start, n); len(changed) != 1 || older.Broken == nil || newer.Broken != nil {
		t.Errorf("a link is cut: %v; %v, %v", changed, older.Broken, newer.Broken)
	}
	b.Release("a")
	if b.Settle(start, n); older.Broken != nil {
		t.Errorf("with room on the other path: %v", older.Broken)
	}
	newer = ok(t)(b.Confirm(start.Add(1), request("a", 81, 8e6, 0), n))
	n.usual = 15e6
	if b.Settle(start, n); older.Broken != nil || !errors.Is(newer.Broken, ErrNoRoom) {
		t.Errorf("a slower link: %v, %v", older.Broken, newer.Broken)
	}
	n.usual = 0
	if b.Settle(start, n); older.Broken == nil || !strings.Contains(older.Broken.Error(), "has no queues") {
		t.Errorf("without queues: %v", older.Broken)
	}
	n.usual, n.refuse = 20e6, "z"
	if b.Settle(start, n); newer.Broken != nil {
		t.Errorf("with queues again: %v", newer.Broken)
	}
	n.refuse = "a"
	if changed := b.Settle(start, n); !slices.Contains(changed, newer) {
		t.Errorf("a switch refuses it: %v", changed)
	}
}

// TestInvalid: requests that nothing can be promised for say why.
func TestInvalid(t *testing.T) {
	good := request("a", 80, 1e6, 0)
	for says, c := range map[string]struct {
		change func(*Request)
		kind   error
	}{
		"id has 0 bytes":          {func(r *Request) { r.ID = "" }, ErrInvalid},
		"two different addresses": {func(r *Request) { r.Peer = r.Node }, ErrInvalid},
		"and a port switches":     {func(r *Request) { r.Port = 0 }, ErrAlike},
		"without tcp or udp":      {func(r *Request) { r.Protocol = 50 }, ErrAlike},
		"is VXLAN":                {func(r *Request) { r.Protocol, r.Port = UDP, 4789 }, ErrAlike},
		"both minimums are 0":     {func(r *Request) { r.MinBPS = [2]uint64{} }, ErrInvalid},
		"is less than 12000":      {func(r *Request) { r.MinBPS = [2]uint64{1e6, 1} }, ErrInvalid},
		"promise other is for":    {func(r *Request) { r.Port = 443 }, ErrAlike},
		"198.18.0.9 is not known": {func(r *Request) { r.Peer = host(9) }, ErrUnknown},
	} {
		n, b := diamond(), NewBook()
		ok(t)(b.Confirm(start, request("other", 443, 1e6, 0), n))
		r := good
		c.change(&r)
		if _, err := b.Reserve(start, r, n); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		if _, err := b.Confirm(start, r, n); !errors.Is(c.kind, ErrUnknown) && !errors.Is(err, c.kind) {
			t.Errorf("confirmed: %v, want %q", err, says)
		}
	}
}

// TestFull: queues and promises are bounded.
func TestFull(t *testing.T) {
	n, b := diamond(), NewBook()
	n.usual = 1e12
	n.budget[port(4, 9)] = 1e12
	for i := range LastQueue - FirstQueue + 1 {
		ok(t)(b.Reserve(start, request(fmt.Sprint(i), uint16(1+i), MinBPS, 0), n))
	}
	if _, err := b.Reserve(start, request("more", 999, MinBPS, 0), n); !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "has 56 queues") {
		t.Errorf("%v", err)
	}
	for i := len(b.byID); i < maxPromises; i++ {
		ok(t)(b.Confirm(start, request(fmt.Sprint(i), uint16(1+i), MinBPS, 0), n))
	}
	if _, err := b.Confirm(start, request("more", 9999, MinBPS, 0), n); !errors.Is(err, ErrNoRoom) {
		t.Errorf("%v", err)
	}
}

// TestBook: whatever happens, what is promised at a port fits its budget, every promise in force has
// one queue of its own at each port of its ways, and no promise that still holds moves.
func TestBook(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, b, now := &net{graph: topology.New(), hosts: map[netip.Addr]topology.Port{}, budget: map[topology.Port]uint64{}, usual: 20e6}, NewBook(), start
		switches := rapid.IntRange(1, 5).Draw(rt, "switches")
		var cables [][2]topology.Port
		for i := range rapid.IntRange(0, 8).Draw(rt, "cables") {
			draw := func(what string, number uint32) topology.Port {
				return port(topology.DPID(rapid.IntRange(1, switches).Draw(rt, what)), number)
			}
			c := [2]topology.Port{draw("a", uint32(2*i+1)), draw("b", uint32(2*i+2))}
			cables = append(cables, c)
			n.cable(c[0], c[1])
		}
		for i := range 4 {
			n.hosts[host(i)] = port(topology.DPID(rapid.IntRange(1, switches).Draw(rt, "host")), uint32(100+i))
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(rt, "seconds")) * time.Second)
			before := map[string]Promise{}
			for _, p := range b.All() {
				before[p.ID] = *p
			}
			id := fmt.Sprint(rapid.IntRange(0, 5).Draw(rt, "id"))
			r := Request{ID: id, MinBPS: [2]uint64{uint64(rapid.IntRange(0, 12).Draw(rt, "there")) * 1e6, uint64(rapid.IntRange(0, 12).Draw(rt, "back")) * 1e6}}
			r.Traffic = Traffic{host(rapid.IntRange(0, 3).Draw(rt, "node")), host(rapid.IntRange(0, 3).Draw(rt, "peer")), TCP, uint16(1 + rapid.IntRange(0, 5).Draw(rt, "port"))}
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				if _, err := b.Reserve(now, r, n); err != nil {
					for _, p := range b.All() {
						if was := before[p.ID]; !sameWays(was.Ways, p.Ways) || p.Request != was.Request {
							rt.Fatalf("a refusal changed %+v to %+v", was, *p)
						}
					}
				}
			case 1:
				_, _ = b.Confirm(now, r, n)
			case 2:
				b.Release(id)
			case 3:
				if len(cables) > 0 {
					c := cables[rapid.IntRange(0, len(cables)-1).Draw(rt, "cable")]
					if !n.graph.Forget(c[0]) {
						n.cable(c[0], c[1])
					}
				}
			case 4:
				n.usual = uint64(rapid.IntRange(0, 30).Draw(rt, "budget")) * 1e6
			}
			if rapid.Bool().Draw(rt, "settle") {
				b.Settle(now, n)
				fits(rt, b, n, now)
			}
		}
	})
}

func sameWays(a, b [2][]topology.Hop) bool {
	return slices.Equal(a[0], b[0]) && slices.Equal(a[1], b[1])
}

func fits(rt *rapid.T, b *Book, n *net, now time.Time) {
	count := 0
	for p, queues := range b.ports {
		if budget, err := n.Budget(p); err != nil || b.PromisedBPS(p) > budget {
			rt.Fatalf("%v has promised %d of %d, %v", p, b.PromisedBPS(p), budget, err)
		}
		for i, q := range queues {
			if q.Number < FirstQueue || i > 0 && q.Number <= queues[i-1].Number {
				rt.Fatalf("queues %v", queues)
			}
		}
		count += len(queues)
	}
	for _, p := range b.All() {
		if !p.Expires.IsZero() && !now.Before(p.Expires) {
			rt.Fatalf("%+v has outlived its lease", p)
		}
		for direction, way := range p.Ways {
			if (way == nil) != (p.Broken != nil || p.MinBPS[direction] == 0) {
				rt.Fatalf("%+v", p)
			}
			from, to := p.ends(direction)
			if way != nil {
				if err := n.Holds(p.ID, way, from, to); err != nil {
					rt.Fatalf("%+v: %v", p, err)
				}
			}
			for _, port := range outputs(way) {
				if _, ok := b.QueueOf(p.ID, direction, port); !ok {
					rt.Fatalf("%+v has no queue at %v", p, port)
				}
				count--
			}
		}
	}
	if count != 0 {
		rt.Fatalf("%d queues are of no promise", count)
	}
}
