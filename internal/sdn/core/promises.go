package core

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/promise"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Promised minimums. Package promise decides which are admitted, and on which paths. Here hosts are
// found by their addresses (ARP and neighbour discovery, with an unspecified sender), and each switch of a
// path gets an entry above those of flows: the packets of the node's port, from and to the MAC address
// of the other host, through the queue of the promise. So users behind a router are matched by the
// router. Package ovsdb makes the queues.
//
// After a start the entries of an earlier controller stay for a while, until the ledger has told its
// promises again.

const (
	// priorityPromise is that of entries of promises, in the first table.
	priorityPromise = 35000
	// askPromised is how often a host with a promise is asked for its address, so that its station is
	// not silent, askMissing how often at first if it does not answer.
	askPromised = time.Minute
	askMissing  = time.Second
	// maxAddresses limits the hosts that are looked for, maxAsks how many are asked for in a round of
	// LLDP: each question goes out of all ports of hosts.
	maxAddresses = 1 << 13
	maxAsks      = 50
	// tellAgain is how long after a start the ledger has time to tell its promises.
	tellAgain = 30 * time.Second
)

// promises keeps minimums on the ports of the network.
type promises struct {
	*event
	cfg        *Config
	switches   *switches
	stations   *stations
	links      *links
	forwarding *forwarding
	book       *promise.Book
	addresses  map[netip.Addr]*soughtHost
	queues     map[topology.Port]qos.PortState
	sent       map[topology.DPID]*sentPromises
	started    time.Time // when the first switch was taken over
	asks       int       // in this round of LLDP
	cleaned    bool      // entries of an earlier controller are deleted
	news       []promise.Promise
}

// soughtHost is a host that is looked for.
type soughtHost struct {
	mac           openflow.MAC // zero: it has not answered
	tries         int          // questions without an answer, after which it is asked less often
	asked, wanted time.Time
}

// sentPromises are the entries that a switch has, by cookie, and the promises that it refused.
type sentPromises struct {
	entries map[uint64]promiseEntry
	refused map[string]bool
}

// promiseEntry is an entry of a promise at a switch, and what it does.
type promiseEntry struct {
	hop      topology.Hop
	mac      openflow.MAC // of the peer
	queue    int
	clears   bool // the mark
	of       promise.Traffic
	backward bool
}

func newPromises(w *forwarding) *promises {
	return &promises{
		event: w.event, cfg: w.cfg, switches: w.switches, stations: w.stations, links: w.links, forwarding: w,
		book: promise.NewBook(), addresses: map[netip.Addr]*soughtHost{}, sent: map[topology.DPID]*sentPromises{},
	}
}

// at returns what a switch was sent.
func (p *promises) at(d topology.DPID) *sentPromises {
	s := p.sent[d]
	if s == nil {
		s = &sentPromises{map[uint64]promiseEntry{}, map[string]bool{}}
		p.sent[d] = s
	}
	return s
}

// look updates what is known of queues.
func (p *promises) look() {
	if p.cfg.QueueStates != nil {
		p.queues = p.cfg.QueueStates()
	}
	for at, state := range p.queues {
		if port := p.switches.port(at); port != nil {
			port.rateBPS, port.uncapped = state.RateBPS, state.State == "ok"
			for _, q := range state.Queues {
				port.uncapped = port.uncapped && q.MaxBPS == state.RateBPS
			}
		}
	}
}

// locate returns the station with an address, and asks for it if that is due.
func (p *promises) locate(ip netip.Addr) (openflow.MAC, topology.Port, error) {
	a := p.addresses[ip]
	if a == nil {
		if len(p.addresses) >= maxAddresses {
			return openflow.MAC{}, topology.Port{}, promise.Refuse(promise.ErrUnknown, "too many hosts are looked for")
		}
		a = &soughtHost{}
		p.addresses[ip] = a
	}
	a.wanted = p.now
	s := p.stations.byMAC[a.mac]
	if s != nil {
		a.tries = 0
	}
	if wait := p.now.Sub(a.asked); p.asks < maxAsks && (wait >= askPromised || s == nil && wait >= askMissing<<a.tries) {
		a.asked = p.now
		a.tries = min(a.tries+1, 6)
		p.asks++
		asker := netip.IPv4Unspecified() // as RFC 5227 has it
		if ip.Is6() {
			asker = linkLocal.Addr()
		}
		p.forwarding.flood(topology.Port{}, question(asker, ip))
	}
	if s == nil {
		return a.mac, topology.Port{}, promise.Refuse(promise.ErrUnknown, "no port is known that leads to %v: the network was asked, try again in a second", ip)
	}
	return a.mac, s.at, nil
}

// hear learns the address of a host that is looked for, and reports whether the packet was an answer
// to the controller alone.
func (p *promises) hear(f *Frame, frame []byte) (answer bool) {
	if len(p.addresses) == 0 || f.VLAN != 0 {
		return false
	}
	said, ok := readResolution(f.EtherType, frame)
	if !ok {
		return false
	}
	if a := p.addresses[said.ip]; a != nil && said.mac == f.SrcMAC && p.stations.byMAC[a.mac] == nil {
		a.mac = said.mac // a known one stays: others may pretend to have the address
	}
	return f.DstMAC == gatewayMAC && !said.request
}

// forget drops addresses that are not looked for any more. Once a minute entries that were refused are
// tried again.
func (p *promises) forget() {
	p.asks = 0
	if p.links.rounds.number%60 == 0 {
		for _, s := range p.sent {
			clear(s.refused)
		}
	}
	for ip, a := range p.addresses {
		if p.now.Sub(a.wanted) > 2*askPromised {
			delete(p.addresses, ip)
		}
	}
}

// Way implements promise.Network.
func (p *promises) Way(from, to netip.Addr, width func(topology.Port) uint64) ([]topology.Hop, error) {
	_, a, errA := p.locate(from)
	_, b, errB := p.locate(to)
	if err := errors.Join(errA, errB); err != nil {
		if errA != nil {
			err = errA
		}
		return nil, err
	}
	if p.cfg.Routes != nil {
		x, _ := p.cfg.Routes.gatewayOf(from)
		y, _ := p.cfg.Routes.gatewayOf(to)
		if x != y {
			return nil, promise.Refuse(promise.ErrAlike, "%v and %v are in different networks, between which packets are routed: promise it to the router", from, to)
		}
	}
	if a == b {
		return nil, promise.Refuse(promise.ErrAlike, "%v and %v are both behind %v: their packets cross no switch", from, to, a)
	}
	way := p.links.graph.Widest(a, b, 0, width)
	if way == nil {
		return nil, promise.Refuse(promise.ErrNoRoom, "no path leads from %v at %v to %v at %v", from, a, to, b)
	}
	return way, nil
}

// Holds implements promise.Network.
func (p *promises) Holds(id string, way []topology.Hop, from, to netip.Addr) error {
	_, a, err := p.locate(from)
	if err != nil {
		return err
	}
	_, b, err := p.locate(to)
	if err != nil {
		return err
	}
	last := way[len(way)-1]
	if a != (topology.Port{Switch: way[0].Switch, Number: way[0].In}) || b != (topology.Port{Switch: last.Switch, Number: last.Out}) {
		return fmt.Errorf("%v or %v has moved", from, to)
	}
	if at, ok := p.links.broken(way); ok {
		return fmt.Errorf("the link at %v is lost", at)
	}
	for _, hop := range way {
		if p.at(hop.Switch).refused[id] {
			return promise.Refuse(promise.ErrNoRoom, "switch %v refuses the entry", hop.Switch)
		}
	}
	return nil
}

// broken returns the first port of a path whose link does not exist.
func (l *links) broken(path []topology.Hop) (at topology.Port, broken bool) {
	for i := range path[:len(path)-1] {
		at = topology.Port{Switch: path[i].Switch, Number: path[i].Out}
		peer, ok := l.graph.Peer(at)
		if !ok || peer != (topology.Port{Switch: path[i+1].Switch, Number: path[i+1].In}) {
			return at, true
		}
	}
	return at, false
}

// Budget implements promise.Network.
func (p *promises) Budget(at topology.Port) (uint64, error) {
	state, known := p.queues[at]
	sw, port := p.switches.byID[at.Switch], p.switches.port(at)
	name := at.String()
	if port != nil {
		name = fmt.Sprintf("%v (%s)", at, port.desc.Name)
	}
	switch {
	case !known:
		return 0, fmt.Errorf("%s has no queues: weir sdn run makes some with --ovsdb", name)
	case sw != nil && sw.withoutQueues:
		return 0, fmt.Errorf("switch %v refuses the action set_queue", at.Switch)
	case state.State == "": // a patch port has no link
		return 1 << 63, nil
	case state.PromisableBPS > 0:
		return state.PromisableBPS, nil
	case state.Reason != "":
		return 0, fmt.Errorf("%s: %s", name, state.Reason)
	}
	return 0, fmt.Errorf("the minimums of the queues of %s leave nothing to promise: lower --ef-max and --af-min", name)
}

// settle moves promises and sends switches the entries that changed.
func (p *promises) settle() {
	if !p.started.IsZero() && !p.cleaned && p.now.Sub(p.started) > tellAgain {
		p.cleaned = true
		for _, sw := range p.switches.byID {
			p.clean(sw)
		}
	}
	for _, one := range p.book.Settle(p.now, p) {
		p.news = append(p.news, *one)
	}
	p.refresh()
}

// clean deletes all entries of promises of a switch, those of an earlier controller among them.
func (p *promises) clean(sw *switchState) {
	delete(p.sent, sw.dpid)
	p.switches.send(sw.dpid, deleteFlows(cookiePromise, cookieKindMask))
}

// setUp starts with a switch, which may have lost its entries, and may have old ones.
func (p *promises) setUp(sw *switchState) {
	if p.started.IsZero() {
		p.started = p.now
	}
	delete(p.sent, sw.dpid)
	if p.cleaned {
		p.clean(sw)
	}
}

// refresh sends switches the entries that differ from those that they have.
func (p *promises) refresh() {
	want := map[topology.DPID]map[uint64]promiseEntry{}
	for _, one := range p.book.All() {
		for direction, way := range one.Ways {
			peer := p.addresses[one.Peer]
			for _, hop := range way {
				queue, _ := p.book.QueueOf(one.ID, direction, topology.Port{Switch: hop.Switch, Number: hop.Out})
				sw := p.switches.byID[hop.Switch]
				if sw == nil || peer == nil {
					continue
				}
				e := promiseEntry{hop: hop, mac: peer.mac, queue: queue, of: one.Traffic, backward: direction == 1}
				e.clears = sw.marks.on && hop == way[0] && !sw.byMarks(hop.In)
				if want[hop.Switch] == nil {
					want[hop.Switch] = map[uint64]promiseEntry{}
				}
				want[hop.Switch][promiseCookie(one.ID, direction)] = e
			}
		}
	}
	for d, sw := range p.switches.byID {
		if !sw.obeys() {
			continue
		}
		sent := p.at(d).entries
		for cookie, has := range sent {
			if want[d][cookie] != has {
				p.switches.send(d, deleteFlows(cookie, ^uint64(0)))
				delete(sent, cookie)
			}
		}
		for cookie, e := range want[d] {
			if _, has := sent[cookie]; !has {
				sent[cookie] = e
				p.switches.send(d, e.message(cookie))
			}
		}
	}
}

// promiseCookie returns the cookie of one direction of a promise, the same in every controller.
func promiseCookie(id string, direction int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", direction, id)
	return cookiePromise | h.Sum64()&cookieIDMask
}

// message returns the flow-mod of an entry.
func (e promiseEntry) message(cookie uint64) openflow.Message {
	kind, src, dst := uint64(etherIPv4), openflow.OFPXMT_OFB_IPV4_SRC, openflow.OFPXMT_OFB_IPV4_DST
	if e.of.Node.Is6() {
		kind, src, dst = etherIPv6, openflow.OFPXMT_OFB_IPV6_SRC, openflow.OFPXMT_OFB_IPV6_DST
	}
	from, to := openflow.OFPXMT_OFB_TCP_SRC, openflow.OFPXMT_OFB_TCP_DST
	if e.of.Protocol == promise.UDP {
		from, to = openflow.OFPXMT_OFB_UDP_SRC, openflow.OFPXMT_OFB_UDP_DST
	}
	mac, addr, port := openflow.OFPXMT_OFB_ETH_DST, src, from
	if e.backward {
		mac, addr, port = openflow.OFPXMT_OFB_ETH_SRC, dst, to
	}
	actions := through(openflow.Queue(e.queue), outOf(e.hop))
	if e.clears {
		actions = append([]openflow.Action{setMark(0)}, actions...)
	}
	return flowMod(cookie, openflow.OFPFC_ADD, priorityPromise, openflow.Match{Fields: []openflow.OXM{
		inPort(e.hop.In), openflow.NewOXM(mac, e.mac[:], nil), etherType(kind), openflow.NewOXMNumber(openflow.OFPXMT_OFB_IP_PROTO, uint64(e.of.Protocol)),
		openflow.NewOXM(addr, e.of.Node.AsSlice(), nil), openflow.NewOXMNumber(port, uint64(e.of.Port)),
	}}, actions...)
}

// isPromise reports whether a refused message is the entry of a promise.
func isPromise(data []byte) bool {
	cookie, ok := cookieOf(data)
	return ok && cookie&cookieKindMask == cookiePromise
}

// entryRefused handles the refusal of an entry with a cookie.
func (p *promises) entryRefused(d topology.DPID, cookie uint64) {
	for _, one := range p.book.All() {
		for direction := range one.Ways {
			if promiseCookie(one.ID, direction) == cookie {
				p.at(d).refused[one.ID] = true
				p.forwarding.stale = true
			}
		}
	}
}

// PromiseState is the state of a promise.
type PromiseState struct {
	promise.Promise
	// Waits says which queue is not made, or why packets do not go through it, or after a start which host
	// is not known yet; empty if all are in force.
	Waits string
}

// state returns the state of a promise.
func (p *promises) state(one *promise.Promise) PromiseState {
	s := PromiseState{Promise: *one}
	if errors.Is(one.Broken, promise.ErrUnknown) && !p.cleaned {
		s.Broken, s.Waits = nil, one.Broken.Error() // an earlier controller's entries are there until then
	}
	for direction, way := range one.Ways {
		for _, hop := range way {
			at := topology.Port{Switch: hop.Switch, Number: hop.Out}
			number, _ := p.book.QueueOf(one.ID, direction, at)
			made, state := p.queues[at].Queues[openflow.Queue(number)], p.queues[at]
			switch {
			case state.State == "" || s.Waits != "":
			case made.MinBPS < one.MinBPS[direction]:
				s.Waits = fmt.Sprintf("queue %d of %v is not made yet", number, at)
				if state.Reason != "" {
					s.Waits += ": " + state.Reason
				}
			case state.State == "degraded":
				s.Waits = fmt.Sprintf("%v: %s", at, state.Reason)
			}
		}
	}
	return s
}

// errStandby says that another controller is master, errNoPromise that a promise is not known.
var (
	errStandby   = promise.Refuse(promise.ErrStandby, "another controller is master of the switches, and keeps the promises")
	errNoPromise = promise.Refuse(promise.ErrUnknown, "there is no promise of this id")
)

// Desk is where a Core takes requests for promises.
type Desk struct{ core *Core }

// Promises returns the desk of a Core.
func (c *Core) Promises() Desk { return Desk{c} }

// Reserve admits a promise until its lease ends.
func (d Desk) Reserve(now time.Time, r promise.Request) (PromiseState, []Command, error) {
	return d.change(now, func(b *promise.Book) (*promise.Promise, error) { return b.Reserve(d.core.now, r, d.core.promises) })
}

// Confirm makes a promise last.
func (d Desk) Confirm(now time.Time, r promise.Request) (PromiseState, []Command, error) {
	return d.change(now, func(b *promise.Book) (*promise.Promise, error) { return b.Confirm(d.core.now, r, d.core.promises) })
}

func (d Desk) change(now time.Time, do func(*promise.Book) (*promise.Promise, error)) (PromiseState, []Command, error) {
	d.core.advance(now)
	if d.core.IsStandby() {
		return PromiseState{}, nil, errStandby
	}
	d.core.promises.look()
	one, err := do(d.core.promises.book)
	d.core.promises.refresh()
	if err != nil {
		return PromiseState{}, d.core.finish(), err
	}
	return d.core.promises.state(one), d.core.finish(), nil
}

// Release ends a promise.
func (d Desk) Release(now time.Time, id string) ([]Command, error) {
	d.core.advance(now)
	switch {
	case d.core.IsStandby():
		return nil, errStandby
	case !d.core.promises.book.Release(id):
		return nil, errNoPromise
	}
	d.core.promises.refresh()
	return d.core.finish(), nil
}

// PathBetween returns the path on which a promise between two hosts would be, and the largest minimum
// that is admitted on it.
func (d Desk) PathBetween(now time.Time, from, to netip.Addr) ([]topology.Hop, uint64, []Command, error) {
	d.core.advance(now)
	d.core.promises.look()
	way, free, err := d.core.promises.book.Path(from, to, d.core.promises)
	return way, free, d.core.finish(), err
}

// All returns all promises, the oldest first.
func (d Desk) All() (list []PromiseState) {
	for _, one := range d.core.promises.book.All() {
		list = append(list, d.core.promises.state(one))
	}
	return list
}

// At returns the queues of promises at a port.
func (d Desk) At(at topology.Port) (queues []qos.Queue) {
	for _, q := range d.core.promises.book.Queues(at) {
		queues = append(queues, qos.Queue{ID: q.Number, MinBPS: q.MinBPS})
	}
	return queues
}

// FreeMinimum returns what is promised at a port and the largest minimum that is admitted there, and
// an error if none is.
func (d Desk) FreeMinimum(at topology.Port) (promisedBPS, freeBPS uint64, err error) {
	freeBPS, err = d.core.promises.book.FreeBPS(at, d.core.promises)
	return d.core.promises.book.PromisedBPS(at), freeBPS, err
}

// News returns the promises that changed since the last call without a request.
func (d Desk) News() []promise.Promise {
	news := d.core.promises.news
	d.core.promises.news = nil
	return news
}
