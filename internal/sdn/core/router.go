package core

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Routing. A packet to another network arrives with a gateway's MAC address. Its flow has
// no entry yet, so it comes to the controller, which finds the next hop by the longest
// prefix, resolves its MAC address by ARP or neighbour discovery, and installs entries as
// within a network. The first switch also rewrites both MAC addresses and decrements the
// TTL; the other switches see a flow from the gateway to the next hop.

// gatewayMAC is the MAC address of all gateways. It is constant over restarts and
// controllers, because stations cache it.
var gatewayMAC = openflow.MAC{2, 'W', 'e', 'i', 'r', 0}

// Limits and timers of the router.
const (
	maxPending = 1 << 8 // next hops being resolved; one port's stations may cause half of them
	maxWaiting = 8      // packets waiting per next hop
	// maxAddressesPerPort limits the neighbours learned from one port.
	maxAddressesPerPort = 1 << 12
	askAgain            = time.Second     // retry interval, RetransTimer of RFC 4861, section 10
	giveUpAsking        = 3 * time.Second // MAX_MULTICAST_SOLICIT retries
	// refreshAge is the silence after which a neighbour of flows is resolved again, before
	// its station expires. refreshPause is the time between two such requests.
	refreshAge   = stationAge / 2
	refreshPause = stationAge / 8
)

// router forwards packets between networks.
type router struct {
	*event
	cfg        *Config
	routes     *Routes
	switches   *switches
	stations   *stations
	links      *links
	forwarding *forwarding
	flows      *flows
	neighbours map[netip.Addr]neighbour
	pending    map[netip.Addr]*pending
}

func newRouter(l *flows) *router {
	return &router{
		event: l.event, cfg: l.cfg, routes: l.cfg.Routes, switches: l.switches, stations: l.stations, links: l.links, forwarding: l.forwarding,
		flows: l, neighbours: map[netip.Addr]neighbour{}, pending: map[netip.Addr]*pending{},
	}
}

// neighbour is the MAC address of an IP address.
type neighbour struct {
	mac            openflow.MAC
	changed, asked time.Time
	from           *port // port where the address was learned
}

// pending are the packets that wait for the MAC address of a next hop.
type pending struct {
	packets      []waiting
	began, asked time.Time
}

type waiting struct {
	at      topology.Port
	data    []byte
	frame   Frame
	verdict Verdict
}

// rewrite returns a router's actions on a packet: new MAC addresses, lower TTL.
func rewrite(next openflow.MAC) []openflow.Action {
	return []openflow.Action{
		&openflow.ActionPlain{Type: openflow.OFPAT_DEC_NW_TTL},
		&openflow.ActionSetField{Field: openflow.NewOXM(openflow.OFPXMT_OFB_ETH_SRC, gatewayMAC[:], nil)},
		&openflow.ActionSetField{Field: openflow.NewOXM(openflow.OFPXMT_OFB_ETH_DST, slices.Clone(next[:]), nil)},
	}
}

// nextHopOf returns the next hop's MAC address from the actions of an entry, or zero if the
// entry does not route.
func nextHopOf(instructions []openflow.Instruction) (next openflow.MAC) {
	for _, i := range instructions {
		if list, ok := i.(*openflow.InstructionActions); ok {
			for _, a := range list.Actions {
				if set, ok := a.(*openflow.ActionSetField); ok && set.Field.Field == openflow.OFPXMT_OFB_ETH_DST {
					copy(next[:], set.Field.Value)
				}
			}
		}
	}
	return next
}

// route handles a packet addressed to a gateway's MAC address and reports whether it was
// one.
func (r *router) route(at topology.Port, m *openflow.PacketIn, f *Frame, v Verdict) bool {
	if r.routes == nil || f.VLAN != 0 {
		return false
	}
	mine := f.DstMAC == gatewayMAC
	if said, ok := readResolution(f.EtherType, m.Data); ok {
		return r.resolve(at, f.SrcMAC, &said) || mine
	}
	if mine && (f.EtherType == etherIPv4 || f.EtherType == etherIPv6) {
		r.routePacket(waiting{at, m.Data, *f, v})
	}
	return mine
}

// resolve learns a neighbour's address and answers requests for gateway addresses.
func (r *router) resolve(at topology.Port, from openflow.MAC, said *resolution) (answered bool) {
	if _, near := r.routes.gatewayOf(said.ip); near && said.mac == from && r.links.isEdge(at) && !r.routes.isGateway(said.ip) {
		r.learnNeighbour(at, said)
	}
	if !said.request || !r.routes.isGateway(said.target) {
		return false
	}
	r.forwarding.sendFrame(at, answer(said, from))
	return true
}

func (r *router) learnNeighbour(at topology.Port, said *resolution) {
	old, known := r.neighbours[said.ip]
	from := r.switches.port(at)
	switch {
	case known && (old.mac == said.mac || said.weak):
	case !known && (len(r.neighbours) >= maxStations || from.addresses >= maxAddressesPerPort), known && r.now.Sub(old.changed) < stationHold:
		r.counters.StationsRefused++
		return
	default:
		r.forgetNeighbour(said.ip)
		r.neighbours[said.ip] = neighbour{mac: said.mac, changed: r.now, from: from}
		from.addresses++
		if known {
			r.flows.dropRouted(old.mac)
		}
	}
	if p := r.pending[said.ip]; p != nil {
		delete(r.pending, said.ip)
		for _, w := range p.packets {
			r.routePacket(w)
		}
	}
}

// routePacket sends a packet to its next hop and installs its flow.
func (r *router) routePacket(w waiting) {
	h, ok := readIP(w.data)
	gateway, known := r.routes.speaker(h.src)
	if !ok || !known || h.src.IsMulticast() || h.src.IsUnspecified() || h.dst.IsMulticast() {
		r.counters.Unknown++
		return
	}
	if r.routes.isGateway(h.dst) {
		r.forwarding.sendFrame(w.at, echoReply(w.data, &h))
		return
	}
	f := familyOf(h.src)
	if h.hops <= 1 {
		r.counters.Routed.TTL++
		r.forwarding.sendFrame(w.at, icmpError(f.timeExceeded, 0, gateway, w.data, &h))
		return
	}
	hop, ok := r.routes.nextHop(h.dst)
	switch {
	case h.src.IsLinkLocalUnicast(), h.dst.IsLinkLocalUnicast(): // RFC 3927, 2.7, and RFC 4291, 2.5.6
		r.counters.Routed.Nowhere++
		r.forwarding.sendFrame(w.at, icmpError(f.unreachable, f.beyondScope, gateway, w.data, &h))
		return
	case !ok:
		r.counters.Routed.Nowhere++
		r.forwarding.sendFrame(w.at, icmpError(f.unreachable, 0, gateway, w.data, &h))
		return
	}
	next, to := r.neighbours[hop].mac, r.stations.byMAC[r.neighbours[hop].mac]
	if to == nil {
		r.waitFor(hop, w)
		return
	}
	r.routeTo(&w, &h, next, to)
}

// routeTo is routePacket for a next hop whose MAC address is known.
func (r *router) routeTo(w *waiting, h *ip, next openflow.MAC, to *station) {
	k, v := w.frame.Key, w.verdict
	if !k.ported() { // the entries must tell destinations apart
		k.Src, k.Dst = endpoint(h.src), endpoint(h.dst)
	}
	path := r.links.way(w.at, to.at, k.hash(), v.Level)
	if path == nil {
		r.counters.Unknown++
		return
	}
	back := Key{SrcMAC: next, DstMAC: gatewayMAC, EtherType: k.EtherType, Proto: k.Proto, Src: k.Dst, Dst: k.Src}
	fl := r.flows.byKey[k]
	if fl != nil {
		v = fl.judged
	} else if other := r.flows.byKey[back]; other != nil {
		v = other.judged
	}
	opener := r.switches.port(w.at)
	switch {
	case w.frame.vague || k.Proto == 0:
		v = Verdict{Level: apps.BE, Type: -1} // all fragments of a packet get the same class
	case !r.links.isEdge(w.at): // the first switch lost its entry
	case fl != nil && r.now.Sub(fl.sent) >= settle:
		r.flows.drop(fl)
		r.flows.add(k, v, path, opener, next)
	case fl == nil && r.flows.hasRoom(opener):
		r.flows.add(k, v, path, opener, next)
		r.addBack(back, h.src, v, to.at, opener)
	}
	r.switches.send(w.at.Switch, packetOut(w.at.Number, w.data, append(rewrite(next), through(r.cfg.queue(v), outOf(path[0]))...)...))
}

// endpoint returns an address as an endpoint without port.
func endpoint(a netip.Addr) flow.Endpoint {
	e := flow.Endpoint{IPv6: a.Is6()}
	copy(e.Addr[:], a.AsSlice())
	return e
}

// address returns the IP address of an endpoint.
func address(e flow.Endpoint) netip.Addr {
	if e.IPv6 {
		return netip.AddrFrom16(e.Addr)
	}
	return netip.AddrFrom4([4]byte(e.Addr[:]))
}

// addBack installs the reverse flow of a TCP or UDP flow at once.
func (r *router) addBack(k Key, to netip.Addr, v Verdict, from topology.Port, opener *port) {
	hop, ok := r.routes.nextHop(to)
	next := r.neighbours[hop].mac
	if at := r.stations.byMAC[next]; ok && at != nil && k.ported() && r.flows.byKey[k] == nil {
		if way := r.links.way(from, at.at, k.hash(), v.Level); way != nil {
			r.flows.add(k, v, way, opener, next)
		}
	}
}

// waitFor queues a packet until its next hop is resolved, and starts the resolution.
func (r *router) waitFor(hop netip.Addr, w waiting) {
	p := r.pending[hop]
	if p == nil && r.mayAsk(w.at) {
		p = &pending{began: r.now}
		r.pending[hop] = p
	}
	if p == nil || len(p.packets) >= maxWaiting {
		r.counters.Routed.Unanswered++
		return
	}
	p.packets = append(p.packets, w)
	r.ask(hop, p)
}

// mayAsk reports whether another next hop may be resolved. A station that scans unused
// addresses (RFC 6583) leaves room for other ports.
func (r *router) mayAsk(at topology.Port) bool {
	same := 0
	for _, p := range r.pending {
		if len(p.packets) > 0 && p.packets[0].at == at {
			same++
		}
	}
	return len(r.pending) < maxPending && same < maxPending/portPart
}

// findNextHop resolves the next hop of an adopted flow. The next hop may have moved and may
// stay silent, since stations resolve only their gateway.
func (r *router) findNextHop(f *Flow) {
	if r.routes == nil {
		return
	}
	hop, ok := r.routes.nextHop(address(f.Key.Dst))
	known, there := r.neighbours[hop]
	switch {
	case !ok || there && known.mac == f.next:
	case there:
		r.flows.drop(f)
	case r.pending[hop] == nil && len(r.pending) < maxPending:
		p := &pending{began: r.now}
		r.pending[hop] = p
		r.ask(hop, p)
	}
}

func (r *router) ask(hop netip.Addr, p *pending) {
	if gateway, ok := r.routes.gatewayOf(hop); ok && (p.asked.IsZero() || r.now.Sub(p.asked) >= askAgain) {
		p.asked = r.now
		r.forwarding.flood(topology.Port{}, question(gateway.Addr(), hop))
	}
}

// expirePending repeats requests and sends ICMP errors for packets whose next hop did not
// answer.
func (r *router) expirePending() {
	for hop, p := range r.pending {
		if r.now.Sub(p.began) < giveUpAsking {
			r.ask(hop, p)
			continue
		}
		delete(r.pending, hop)
		for _, w := range p.packets {
			r.counters.Routed.Unanswered++
			if h, ok := readIP(w.data); ok {
				if gateway, known := r.routes.speaker(h.src); known {
					f := familyOf(h.src)
					r.forwarding.sendFrame(w.at, icmpError(f.unreachable, f.noAnswer, gateway, w.data, &h))
				}
			}
		}
	}
}

// refreshNeighbours removes neighbours whose stations expired. Silent neighbours of routed
// flows are resolved again before that.
func (r *router) refreshNeighbours() {
	for ip, n := range r.neighbours {
		s := r.stations.byMAC[n.mac]
		gateway, _ := r.routes.gatewayOf(ip)
		switch {
		case s == nil:
			r.forgetNeighbour(ip)
		case r.now.Sub(s.seen) >= refreshAge && r.now.Sub(n.asked) >= refreshPause && r.flows.byStation[n.mac] != nil:
			n.asked = r.now
			r.neighbours[ip] = n
			r.forwarding.sendFrame(s.at, question(gateway.Addr(), ip))
		}
	}
}

func (r *router) forgetNeighbour(ip netip.Addr) {
	if n, known := r.neighbours[ip]; known {
		n.from.addresses--
		delete(r.neighbours, ip)
	}
}
