package core

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/appid/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Packets between networks go to a gateway's MAC address. No entry matches the
// first of a flow: it comes to the controller, which finds the next hop
// by the longest prefix, asks for its MAC address by ARP, and gives the flow
// entries as within a network, but that the first switch rewrites both MAC
// addresses and decrements the TTL. The other switches see a flow from the gateway
// to the next hop.

// gatewayMAC is all gateways', at every start and of every controller: stations
// keep it.
var gatewayMAC = openflow.MAC{2, 'W', 'e', 'i', 'r', 0}

const (
	maxPending   = 1 << 8 // next hops that are asked for at a time, half of them for one port's stations
	maxWaiting   = 8      // packets for each
	askAgain     = time.Second
	giveUpAsking = 3 * time.Second
)

// neighbour is who has an address.
type neighbour struct {
	mac     openflow.MAC
	changed time.Time
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

// to is the station where a flow leaves the switches.
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
	switch {
	case f.EtherType == etherARP:
		return c.arp(at, m.Data, f.SrcMAC) || mine
	case mine && f.EtherType == etherIPv4:
		c.routePacket(waiting{at, m.Data, *f, v})
	}
	return mine
}

// arp learns who has an address, and answers for gateways.
func (c *Core) arp(at topology.Port, data []byte, from openflow.MAC) (answered bool) {
	a, ok := readARP(data)
	if !ok {
		return false
	}
	if _, near := c.cfg.Routes.gatewayOf(a.senderIP); near && a.senderMAC == from && c.edge(at) && !c.cfg.Routes.isGateway(a.senderIP) {
		c.learnNeighbour(a.senderIP, a.senderMAC)
	}
	if !a.request || !c.cfg.Routes.isGateway(a.targetIP) {
		return false
	}
	c.reply(at, arpFrame(a.targetIP, from, a.senderIP))
	return true
}

// reply sends a frame back to where another came from.
func (c *Core) reply(at topology.Port, frame []byte) {
	if frame != nil {
		c.send(at.Switch, packetOut(uint32(openflow.OFPP_CONTROLLER), frame, &openflow.ActionOutput{Port: openflow.Port(at.Number)}))
	}
}

func (c *Core) learnNeighbour(ip netip.Addr, mac openflow.MAC) {
	old, known := c.neighbours[ip]
	switch {
	case known && old.mac == mac:
	case !known && len(c.neighbours) >= maxHosts, known && c.now.Sub(old.changed) < hostHold:
		c.counters.HostsRefused++
		return
	default:
		c.neighbours[ip] = neighbour{mac, c.now}
		if s := c.ofMAC[old.mac]; known && s != nil {
			for _, f := range slices.Clone(s.to) {
				if f.routed() {
					c.drop(f)
				}
			}
		}
	}
	if p := c.pending[ip]; p != nil {
		delete(c.pending, ip)
		for _, w := range p.packets {
			c.routePacket(w)
		}
	}
}

// routePacket sends a packet to its next hop, and gives its flow entries.
func (c *Core) routePacket(w waiting) {
	h, ok := readIPv4(w.data)
	gateway, near := c.cfg.Routes.gatewayOf(h.src)
	if !ok || !near && len(c.cfg.Routes.static) == 0 {
		c.counters.Unknown++
		return
	}
	if !near { // it came through a router: any address will do to complain
		gateway = c.cfg.Routes.gateways[0]
	}
	if c.cfg.Routes.isGateway(h.dst) {
		c.reply(w.at, echoReply(w.data, &h))
		return
	}
	if h.ttl <= 1 {
		c.counters.RoutedTTL++
		c.reply(w.at, icmpError(icmpTimeExceeded, 0, gateway.Addr(), w.data, &h))
		return
	}
	hop, ok := c.cfg.Routes.nextHop(h.dst)
	if !ok {
		c.counters.RoutedNowhere++
		c.reply(w.at, icmpError(icmpUnreachable, 0, gateway.Addr(), w.data, &h))
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
func (c *Core) routeTo(w *waiting, h *ipv4, next openflow.MAC, to *host) {
	k, v := w.frame.Key, w.verdict
	if !k.ported() { // its entries have to tell destinations apart
		copy(k.Src.Addr[:], h.src.AsSlice())
		copy(k.Dst.Addr[:], h.dst.AsSlice())
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
	case w.frame.vague || k.Proto == 0 || !c.edge(w.at):
	case fl != nil && c.now.Sub(fl.sent) >= settle:
		c.drop(fl)
		c.add(k, v, path, opener, next)
	case fl == nil && c.room(opener):
		c.add(k, v, path, opener, next)
		c.addBack(back, h.src, v, to.at, opener)
	}
	c.send(w.at.Switch, packetOut(w.at.Number, w.data, append(rewrite(next), through(c.cfg.queue(v), outOf(path[0]))...)...))
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

// mayAsk tells whether there is room for another next hop: a station that looks for
// addresses which nobody has leaves some to those of other ports.
func (c *Core) mayAsk(at topology.Port) bool {
	same := 0
	for _, p := range c.pending {
		if p.packets[0].at == at {
			same++
		}
	}
	return len(c.pending) < maxPending && same < maxPending/portPart
}

func (c *Core) ask(hop netip.Addr, p *pending) {
	if gateway, ok := c.cfg.Routes.gatewayOf(hop); ok && (p.asked.IsZero() || c.now.Sub(p.asked) >= askAgain) {
		p.asked = c.now
		c.flood(topology.Port{}, arpFrame(gateway.Addr(), openflow.MAC{}, hop))
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
			if h, ok := readIPv4(w.data); ok {
				if gateway, near := c.cfg.Routes.gatewayOf(h.src); near {
					c.reply(w.at, icmpError(icmpUnreachable, 1, gateway.Addr(), w.data, &h))
				}
			}
		}
	}
}

// forgetNeighbours forgets addresses of stations that are forgotten.
func (c *Core) forgetNeighbours() {
	for ip, n := range c.neighbours {
		if c.hosts[n.mac] == nil {
			delete(c.neighbours, ip)
		}
	}
}

// addressed tells that a key has IPv4 addresses without ports.
func (k *Key) addressed() bool { return k.EtherType == etherIPv4 && k.Dst != (flow.Endpoint{}) }
