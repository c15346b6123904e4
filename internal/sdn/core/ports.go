package core

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// PortStatus takes what a switch says of a port.
func (c *Core) PortStatus(now time.Time, d topology.DPID, m *openflow.PortStatus) []Command {
	c.at(now)
	n := c.switches[d]
	if n == nil {
		return nil
	}
	if m.Reason == openflow.OFPPR_DELETE {
		c.removePort(n, uint32(m.Desc.PortNo))
	} else {
		c.setPort(n, m.Desc)
	}
	c.broadcasts = true
	return c.finish()
}

func (c *Core) setPort(n *node, desc openflow.PortDesc) {
	up := desc.State&openflow.OFPPS_LINK_DOWN == 0 && desc.Config&openflow.OFPPC_PORT_DOWN == 0
	number := uint32(desc.PortNo)
	p := n.ports[number]
	if p == nil {
		if len(n.ports) >= MaxPorts {
			c.counters.Errors++
			return
		}
		p = &port{since: c.now, queues: map[openflow.Queue]*QueueCount{}}
		n.ports[number] = p
	}
	p.desc = desc
	if p.up != up {
		p.up, p.since = up, c.now
		if !up {
			c.portLost(topology.Port{Switch: n.dpid, Number: number})
		}
	}
}

func (c *Core) removePort(n *node, number uint32) {
	if n.ports[number] == nil {
		return
	}
	c.portLost(topology.Port{Switch: n.dpid, Number: number})
	delete(n.ports, number)
}

// portLost forgets who was behind a port, and finds flows other ways.
func (c *Core) portLost(at topology.Port) {
	c.forgetHostsAt(at)
	peer, _ := c.graph.Peer(at)
	if c.graph.Forget(at) {
		c.lostLink(at, peer)
		c.lostLink(peer, at)
		c.mapChanged()
	}
}

func (c *Core) forgetHostsAt(at topology.Port) {
	if n := c.switches[at.Switch]; n == nil || n.ports[at.Number] == nil || n.ports[at.Number].hosts == 0 {
		return
	}
	for mac, h := range c.hosts {
		if h.at == at {
			c.forgetHost(mac)
		}
	}
}

// edge tells whether hosts may be at a port: it is no link and has had the
// time to prove to be one.
func (c *Core) edge(at topology.Port) bool {
	n := c.switches[at.Switch]
	if n == nil {
		return false
	}
	p := n.ports[at.Number]
	if p == nil || !p.up || c.blocked[at] || c.now.Sub(p.since) < probationRounds*c.cfg.LLDPInterval {
		return false
	}
	_, link := c.graph.Peer(at)
	return !link
}

// sendLLDP sends a frame out of every port of a switch.
func (c *Core) sendLLDP(n *node) {
	for number, p := range n.ports {
		if !p.up || number == uint32(openflow.OFPP_LOCAL) {
			continue
		}
		frame := c.signer.Frame(topology.Port{Switch: n.dpid, Number: number}, p.desc.HWAddr, c.round)
		for _, b := range [][]byte{frame, topology.Probe(frame)} {
			c.send(n.dpid, packetOut(uint32(openflow.OFPP_CONTROLLER), b, &openflow.ActionOutput{Port: openflow.Port(number)}))
		}
	}
}

// lldp takes an LLDP frame that came in at a port.
func (c *Core) lldp(at topology.Port, p *port, frame []byte) {
	from, err := c.signer.Open(frame, c.round)
	switch {
	case errors.Is(err, topology.ErrForged):
		c.counters.LLDPForged++
		return
	case errors.Is(err, topology.ErrStale):
		c.counters.LLDPStale++
		return
	case err != nil:
		c.counters.LLDPForeign++
		return
	}
	sender := c.switches[from.Switch]
	if sender == nil || sender.ports[from.Number] == nil || from == at {
		return
	}
	if topology.IsProbe(frame) || from.Switch == at.Switch {
		c.heardProbe(from, at)
		return
	}
	// A host that relays a frame to another must not become a link.
	if !c.mayBeLink(at, from) || !c.mayBeLink(from, at) {
		c.counters.LLDPOnHostPort++
		return
	}
	c.unlearn(at)
	c.unlearn(from)
	p.heard = c.now
	if old, ok := c.graph.Peer(at); ok && old != from {
		c.graph.Forget(at)
		c.lostLink(old, at)
	}
	if c.graph.Heard(from, at) {
		c.mapChanged()
	}
}

// limitedPart of the packets that a switch's meter lets through in a second, and
// more, are taken for a sign that it drops others, LLDP among them: no message
// says so.
const limitedPart = 2

// noteLimited notes which switches were limited in the round that ends.
func (c *Core) noteLimited() {
	seconds := c.now.Sub(c.lastRound).Seconds()
	for _, n := range c.switches {
		if rate := float64(c.cfg.PacketInsPerSecond); rate > 0 && float64(n.packetIns) >= rate*seconds/limitedPart {
			n.limited = c.now
		}
		n.packetIns = 0
	}
	c.lastRound = c.now
}

// expireLinks ends links that no LLDP came over, of switches that could have
// said so.
func (c *Core) expireLinks() {
	changed := false
	for _, l := range c.graph.Links() {
		if c.silent(l.A, l.B) || c.silent(l.B, l.A) {
			changed = c.graph.Forget(l.A) || changed
			c.lostLink(l.A, l.B)
			c.lostLink(l.B, l.A)
		}
	}
	if changed {
		c.mapChanged()
	}
}

func (c *Core) silent(from, at topology.Port) bool {
	a, b := c.switches[from.Switch], c.switches[at.Switch]
	p := b.ports[at.Number]
	if !a.obeys() || !b.obeys() || p == nil {
		return p == nil
	}
	return c.now.Sub(c.lastHeard(p.heard, a, b)) > linkRounds*c.cfg.LLDPInterval
}

// learn notes where a host is. It returns false if it must not be believed.
func (c *Core) learn(mac openflow.MAC, at topology.Port, p *port) bool {
	if mac[0]&1 != 0 || mac == (openflow.MAC{}) || mac == gatewayMAC && c.cfg.Routes != nil {
		return false // no host's address
	}
	h := c.hosts[mac]
	if h != nil && h.at == at {
		h.seen = c.now
		return true
	}
	if h == nil && len(c.hosts) >= maxHosts || p.hosts >= maxHostsPerPort {
		c.counters.HostsRefused++
		return false
	}
	if h != nil {
		if c.now.Sub(h.arrived) < hostHold { // two hosts with one address, or one that plays another
			c.counters.HostsRefused++
			return false
		}
		c.forgetHost(mac) // it has moved
	}
	c.hosts[mac] = &host{at: at, seen: c.now, arrived: c.now}
	p.hosts++
	return true
}

// forgetHost takes away a host and all entries to it.
func (c *Core) forgetHost(mac openflow.MAC) {
	h := c.hosts[mac]
	delete(c.hosts, mac)
	if n := c.switches[h.at.Switch]; n != nil && n.ports[h.at.Number] != nil {
		n.ports[h.at.Number].hosts--
	}
	if s := c.ofMAC[mac]; s != nil {
		for _, f := range slices.Concat(s.from, s.to) {
			if c.byID[f.ID] == f { // it may be in both
				c.drop(f)
			}
		}
	}
	for _, n := range c.switches {
		if _, ok := n.entries[mac]; ok {
			delete(n.entries, mac)
			c.send(n.dpid, deleteFlows(cookieHost, cookieKindMask, openflow.NewOXM(openflow.OFPXMT_OFB_ETH_DST, mac[:], nil)))
		}
	}
}

// forgetSwitches makes room for a new switch: those go that have been away for
// longest.
func (c *Core) forgetSwitches() {
	for len(c.switches) >= maxSwitches {
		var oldest *node
		for _, n := range c.switches {
			if !n.connected && (oldest == nil || n.since.Before(oldest.since)) {
				oldest = n
			}
		}
		if oldest == nil {
			return
		}
		c.forgetSwitch(oldest)
	}
}

func (c *Core) expireSwitches() {
	for _, n := range c.switches {
		if !n.connected && c.now.Sub(n.since) > switchAge {
			c.forgetSwitch(n)
		}
	}
}

// forgetSwitch takes away a switch and what was behind it.
func (c *Core) forgetSwitch(n *node) {
	for number := range n.ports {
		c.removePort(n, number)
	}
	for _, f := range slices.Clone(n.ingress) {
		c.drop(f)
	}
	delete(c.switches, n.dpid)
}

func (c *Core) expireHosts() {
	for mac, h := range c.hosts {
		if c.now.Sub(h.seen) > hostAge {
			c.forgetHost(mac)
		}
	}
}

// flood is a broadcast entry: the ports that it sends to.
type flood struct {
	ports string // as text, to compare
	copy  bool
}

// sendBroadcasts brings the entries of broadcasts up to date: to all hosts'
// ports and to the links of the tree. What comes in over a link outside the tree
// is dropped.
func (c *Core) sendBroadcasts() {
	tree := c.graph.Tree()
	for _, n := range c.switches {
		if !n.obeys() {
			continue
		}
		var out []uint32
		want := map[uint32]flood{}
		for _, number := range slices.Sorted(maps.Keys(n.ports)) {
			at := topology.Port{Switch: n.dpid, Number: number}
			_, link := c.graph.Peer(at)
			if tree[at] || c.edge(at) {
				out = append(out, number)
			}
			if link {
				want[number] = flood{}
			}
		}
		actions := []openflow.Action{&openflow.ActionSetQueue{QueueID: c.cfg.Queues[appid.BE]}}
		for _, number := range out {
			actions = append(actions, &openflow.ActionOutput{Port: openflow.Port(number)})
		}
		text := portsText(out)
		want[0] = flood{text, true}
		for number := range want {
			if number != 0 && tree[topology.Port{Switch: n.dpid, Number: number}] {
				want[number] = flood{text, false}
			}
		}
		c.sendFloods(n, want, actions)
	}
}

func portsText(ports []uint32) string {
	b := make([]byte, 0, 4*len(ports))
	for _, p := range ports {
		b = append(b, byte(p>>24), byte(p>>16), byte(p>>8), byte(p))
	}
	return string(b)
}

// group matches all that is for several hosts.
func group() openflow.OXM {
	return openflow.NewOXM(openflow.OFPXMT_OFB_ETH_DST, []byte{1, 0, 0, 0, 0, 0}, []byte{1, 0, 0, 0, 0, 0})
}

// forgetBroadcasts deletes the entries of broadcasts that a switch brings along: some
// may be of links that are none any more, and who made them is gone.
func (c *Core) forgetBroadcasts(n *node) {
	c.send(n.dpid, deleteFlows(cookieSetup, cookieKindMask, group()))
	c.broadcasts = true
}

func (c *Core) sendFloods(n *node, want map[uint32]flood, actions []openflow.Action) {
	for number := range n.flooded {
		if _, ok := want[number]; !ok {
			delete(n.flooded, number)
			c.send(n.dpid, deleteFlows(cookieSetup, cookieKindMask, inPort(number), group()))
		}
	}
	for number, f := range want {
		if old, ok := n.flooded[number]; ok && old == f {
			continue
		}
		n.flooded[number] = f
		fields, priority := []openflow.OXM{group()}, uint16(priorityBroadcast)
		if number != 0 {
			fields, priority = []openflow.OXM{inPort(number), group()}, priorityTransit
		}
		var do []openflow.Action
		if f.ports != "" {
			do = slices.Clone(actions)
		}
		if f.copy {
			do = append(do, toController(copyBytes))
		}
		c.send(n.dpid, flowMod(cookieSetup, openflow.OFPFC_ADD, priority, openflow.Match{Fields: fields}, do...))
	}
}

func inPort(number uint32) openflow.OXM {
	return openflow.NewOXMNumber(openflow.OFPXMT_OFB_IN_PORT, uint64(number))
}
