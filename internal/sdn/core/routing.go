package core

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/appid/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Packets between networks go to a gateway's MAC address. No entry matches the
// first of a flow: it comes to the controller, which finds the next hop
// by the longest prefix, asks for its MAC address by ARP or neighbour discovery, and
// gives the flow entries as within a network, but that the first switch rewrites both
// MAC addresses and decrements the TTL or hop limit. The other switches see a flow from
// the gateway to the next hop.

// gatewayMAC is all gateways', at every start and of every controller: hosts
// keep it.
var gatewayMAC = openflow.MAC{2, 'W', 'e', 'i', 'r', 0}

const (
	maxPending = 1 << 8 // next hops that are asked for at a time, half of them for one port's hosts
	maxWaiting = 8      // packets for each
	// maxAddressesPerPort bounds how many neighbours are known by what came from one
	// port.
	maxAddressesPerPort = 1 << 12
	askAgain            = time.Second
	giveUpAsking        = 3 * time.Second
)

// neighbour is who has an address.
type neighbour struct {
	mac            openflow.MAC
	changed, asked time.Time
	from           *port // where that was said
}

// pending are packets to a next hop whose MAC address is asked for.
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

// routed tells that a flow goes to another network.
func (f *Flow) routed() bool { return f.next != (openflow.MAC{}) }

// to is the host where a flow leaves the switches.
func (f *Flow) to() openflow.MAC {
	if f.routed() {
		return f.next
	}
	return f.Key.DstMAC
}

// back is the key of the flow that answers.
func (f *Flow) back() Key {
	k := f.Key.Reverse()
	if f.routed() {
		k.SrcMAC, k.DstMAC = f.next, gatewayMAC
	}
	return k
}

// entry is what a switch of the flow's path matches and does.
func (f *Flow) entry(hop topology.Hop, queue openflow.Queue) (openflow.Match, []openflow.Action) {
	k, actions := f.Key, through(queue, outOf(hop))
	switch {
	case !f.routed():
	case hop == f.Path[0]:
		actions = append(rewrite(f.next), actions...)
	default:
		k.SrcMAC, k.DstMAC = gatewayMAC, f.next
	}
	return k.match(hop.In), actions
}

// outOf is a hop's output: back to where a packet came from needs its own name.
func outOf(hop topology.Hop) uint32 {
	if hop.Out == hop.In {
		return uint32(openflow.OFPP_IN_PORT)
	}
	return hop.Out
}

// rewrite is what a router does to a packet.
func rewrite(next openflow.MAC) []openflow.Action {
	return []openflow.Action{
		&openflow.ActionPlain{Type: openflow.OFPAT_DEC_NW_TTL},
		&openflow.ActionSetField{Field: openflow.NewOXM(openflow.OFPXMT_OFB_ETH_SRC, gatewayMAC[:], nil)},
		&openflow.ActionSetField{Field: openflow.NewOXM(openflow.OFPXMT_OFB_ETH_DST, slices.Clone(next[:]), nil)},
	}
}

// nextOf is the next hop in the actions of rewrite, zero without.
func nextOf(instructions []openflow.Instruction) (next openflow.MAC) {
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

// route takes a packet that is a gateway's, and tells whether it was.
func (c *Core) route(at topology.Port, m *openflow.PacketIn, f *Frame, v Verdict) bool {
	if c.cfg.Routes == nil || f.VLAN != 0 {
		return false
	}
	mine := f.DstMAC == gatewayMAC
	if said, ok := readResolution(f.EtherType, m.Data); ok {
		return c.resolve(at, f.SrcMAC, &said) || mine
	}
	if mine && (f.EtherType == etherIPv4 || f.EtherType == etherIPv6) {
		c.routePacket(waiting{at, m.Data, *f, v})
	}
	return mine
}

// resolve learns who has an address, and answers for gateways.
func (c *Core) resolve(at topology.Port, from openflow.MAC, r *resolution) (answered bool) {
	if _, near := c.cfg.Routes.gatewayOf(r.ip); near && r.mac == from && c.edge(at) && !c.cfg.Routes.isGateway(r.ip) {
		c.learnNeighbour(at, r)
	}
	if !r.request || !c.cfg.Routes.isGateway(r.target) {
		return false
	}
	c.reply(at, answer(r, from))
	return true
}

// reply sends a frame back to where another came from.
func (c *Core) reply(at topology.Port, frame []byte) {
	if frame != nil {
		c.send(at.Switch, packetOut(uint32(openflow.OFPP_CONTROLLER), frame, &openflow.ActionOutput{Port: openflow.Port(at.Number)}))
	}
}

func (c *Core) learnNeighbour(at topology.Port, r *resolution) {
	old, known := c.neighbours[r.ip]
	from := c.switches[at.Switch].ports[at.Number]
	switch {
	case known && (old.mac == r.mac || r.weak):
	case !known && (len(c.neighbours) >= maxHosts || from.addresses >= maxAddressesPerPort), known && c.now.Sub(old.changed) < hostHold:
		c.counters.HostsRefused++
		return
	default:
		c.forgetNeighbour(r.ip)
		c.neighbours[r.ip] = neighbour{mac: r.mac, changed: c.now, from: from}
		from.addresses++
		if s := c.ofMAC[old.mac]; known && s != nil {
			for _, f := range slices.Clone(s.to) {
				if f.routed() {
					c.drop(f)
				}
			}
		}
	}
	if p := c.pending[r.ip]; p != nil {
		delete(c.pending, r.ip)
		for _, w := range p.packets {
			c.routePacket(w)
		}
	}
}

// routePacket sends a packet to its next hop, and gives its flow entries.
func (c *Core) routePacket(w waiting) {
	h, ok := readIP(w.data)
	gateway, known := c.cfg.Routes.speaker(h.src)
	if !ok || !known || h.src.IsMulticast() || h.src.IsUnspecified() || h.dst.IsMulticast() {
		c.counters.Unknown++
		return
	}
	if c.cfg.Routes.isGateway(h.dst) {
		c.reply(w.at, echoReply(w.data, &h))
		return
	}
	f := familyOf(h.src)
	if h.hops <= 1 {
		c.counters.RoutedTTL++
		c.reply(w.at, icmpError(f.timeExceeded, 0, gateway, w.data, &h))
		return
	}
	hop, ok := c.cfg.Routes.nextHop(h.dst)
	switch {
	case h.src.IsLinkLocalUnicast(), h.dst.IsLinkLocalUnicast(): // RFC 3927, 2.7, and RFC 4291, 2.5.6
		c.counters.RoutedNowhere++
		c.reply(w.at, icmpError(f.unreachable, f.beyondScope, gateway, w.data, &h))
		return
	case !ok:
		c.counters.RoutedNowhere++
		c.reply(w.at, icmpError(f.unreachable, 0, gateway, w.data, &h))
		return
	}
	next, to := c.neighbours[hop].mac, c.hosts[c.neighbours[hop].mac]
	if to == nil {
		c.waitFor(hop, w)
		return
	}
	c.routeTo(&w, &h, next, to)
}

// routeTo is routePacket for a next hop that is known.
func (c *Core) routeTo(w *waiting, h *ip, next openflow.MAC, to *host) {
	k, v := w.frame.Key, w.verdict
	if !k.ported() { // its entries have to tell destinations apart
		k.Src, k.Dst = endpoint(h.src), endpoint(h.dst)
	}
	path := c.graph.Path(w.at, to.at, k.hash())
	if path == nil {
		c.counters.Unknown++
		return
	}
	back := Key{SrcMAC: next, DstMAC: gatewayMAC, EtherType: k.EtherType, Proto: k.Proto, Src: k.Dst, Dst: k.Src}
	fl := c.flows[k]
	if fl != nil {
		v = fl.Verdict
	} else if other := c.flows[back]; other != nil {
		v = other.Verdict
	}
	opener := c.switches[w.at.Switch].ports[w.at.Number]
	switch {
	case w.frame.vague || k.Proto == 0:
		v = Verdict{Level: appid.BE, Type: -1} // as all fragments of its packet
	case !c.edge(w.at): // the first switch has lost its entry
	case fl != nil && c.now.Sub(fl.sent) >= settle:
		c.drop(fl)
		c.add(k, v, path, opener, next)
	case fl == nil && c.room(opener):
		c.add(k, v, path, opener, next)
		c.addBack(back, h.src, v, to.at, opener)
	}
	c.send(w.at.Switch, packetOut(w.at.Number, w.data, append(rewrite(next), through(c.cfg.queue(v), outOf(path[0]))...)...))
}

// endpoint is an address without a port.
func endpoint(a netip.Addr) flow.Endpoint {
	e := flow.Endpoint{IPv6: a.Is6()}
	copy(e.Addr[:], a.AsSlice())
	return e
}

// address is that of an endpoint.
func address(e flow.Endpoint) netip.Addr {
	if e.IPv6 {
		return netip.AddrFrom16(e.Addr)
	}
	return netip.AddrFrom4([4]byte(e.Addr[:]))
}

// addBack gives the answers of TCP and UDP their entries at once.
func (c *Core) addBack(k Key, to netip.Addr, v Verdict, from topology.Port, opener *port) {
	hop, ok := c.cfg.Routes.nextHop(to)
	next := c.neighbours[hop].mac
	if at := c.hosts[next]; ok && at != nil && k.ported() && c.flows[k] == nil {
		if way := c.graph.Path(from, at.at, k.hash()); way != nil {
			c.add(k, v, way, opener, next)
		}
	}
}

// waitFor keeps a packet and asks who its next hop is.
func (c *Core) waitFor(hop netip.Addr, w waiting) {
	p := c.pending[hop]
	if p == nil && c.mayAsk(w.at) {
		p = &pending{began: c.now}
		c.pending[hop] = p
	}
	if p == nil || len(p.packets) >= maxWaiting {
		c.counters.RoutedUnanswered++
		return
	}
	p.packets = append(p.packets, w)
	c.ask(hop, p)
}

// mayAsk tells whether there is room for another next hop: a host that looks for
// addresses which nobody has (RFC 6583) leaves some to those of other ports.
func (c *Core) mayAsk(at topology.Port) bool {
	same := 0
	for _, p := range c.pending {
		if len(p.packets) > 0 && p.packets[0].at == at {
			same++
		}
	}
	return len(c.pending) < maxPending && same < maxPending/portPart
}

// findNext asks for the next hop of an adopted flow, which may have moved and may say
// nothing by itself: its hosts ask for their gateway only.
func (c *Core) findNext(f *Flow) {
	if c.cfg.Routes == nil {
		return
	}
	hop, ok := c.cfg.Routes.nextHop(address(f.Key.Dst))
	known, there := c.neighbours[hop]
	switch {
	case !ok || there && known.mac == f.next:
	case there:
		c.drop(f)
	case c.pending[hop] == nil && len(c.pending) < maxPending:
		p := &pending{began: c.now}
		c.pending[hop] = p
		c.ask(hop, p)
	}
}

func (c *Core) ask(hop netip.Addr, p *pending) {
	if gateway, ok := c.cfg.Routes.gatewayOf(hop); ok && (p.asked.IsZero() || c.now.Sub(p.asked) >= askAgain) {
		p.asked = c.now
		c.flood(topology.Port{}, question(gateway.Addr(), hop))
	}
}

// expirePending asks again, and gives up.
func (c *Core) expirePending() {
	for hop, p := range c.pending {
		if c.now.Sub(p.began) < giveUpAsking {
			c.ask(hop, p)
			continue
		}
		delete(c.pending, hop)
		for _, w := range p.packets {
			c.counters.RoutedUnanswered++
			if h, ok := readIP(w.data); ok {
				if gateway, known := c.cfg.Routes.speaker(h.src); known {
					f := familyOf(h.src)
					c.reply(w.at, icmpError(f.unreachable, f.noAnswer, gateway, w.data, &h))
				}
			}
		}
	}
}

// forgetNeighbours forgets addresses of hosts that are forgotten. Those that flows
// are routed to are asked for before: they may have nothing to say by themselves.
func (c *Core) forgetNeighbours() {
	for ip, n := range c.neighbours {
		h := c.hosts[n.mac]
		gateway, _ := c.cfg.Routes.gatewayOf(ip)
		switch {
		case h == nil:
			c.forgetNeighbour(ip)
		case c.now.Sub(h.seen) >= hostAge/2 && c.now.Sub(n.asked) >= hostAge/8 && c.ofMAC[n.mac] != nil:
			n.asked = c.now
			c.neighbours[ip] = n
			c.reply(h.at, question(gateway.Addr(), ip))
		}
	}
}

func (c *Core) forgetNeighbour(ip netip.Addr) {
	if n, known := c.neighbours[ip]; known {
		n.from.addresses--
		delete(c.neighbours, ip)
	}
}

// addressed tells that a key has IP addresses without ports.
func (k *Key) addressed() bool {
	return (k.EtherType == etherIPv4 || k.EtherType == etherIPv6) && k.Dst != (flow.Endpoint{})
}
