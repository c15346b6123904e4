package core

import (
	"slices"
	"time"

	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Flow is one direction of a flow.
type Flow struct {
	ID      uint64
	Key     Key
	Verdict Verdict
	// Second tells that the level comes from a second look.
	Second bool
	Path   []topology.Hop
	Began  time.Time
	// Packets and Bytes are what the first switch of the path has counted, by
	// the last statistics; RateBPS is bits per second between the last two.
	Packets, Bytes uint64
	RateBPS        float64
	PacketRate     float64

	sent       time.Time // when its entries were sent last
	counted    time.Time // when Packets and Bytes were
	active     time.Time // when they last grew
	basePacket uint64    // of entries that are gone
	baseBytes  uint64
	adopted    bool         // only its first switch is known yet
	next       openflow.MAC // of a flow to another network: who gets it
	place      [setKinds]int
	opener     *port
}

// Total is what flows of a level have carried.
type Total struct {
	Flows, Packets, Bytes uint64
}

// PacketIn takes a packet that a switch has sent, which ReadFrame has read and
// the classifier has seen.
func (c *Core) PacketIn(now time.Time, d topology.DPID, m *openflow.PacketIn, f *Frame, v Verdict) []Command {
	c.at(now)
	c.counters.PacketIns++
	n := c.switches[d]
	if n != nil {
		n.packetIns++
		n.heard = c.now
		if !n.master { // it was sent before the switch knew
			return nil
		}
	}
	field := m.Match.Field(openflow.OFPXMT_OFB_IN_PORT)
	if n == nil || field == nil {
		c.counters.Unknown++
		return nil
	}
	at := topology.Port{Switch: d, Number: uint32(field.Number())}
	p := n.ports[at.Number]
	if p == nil { // it has vanished meanwhile
		c.counters.Unknown++
		return nil
	}
	if f.EtherType == topology.EtherTypeLLDP {
		c.lldp(at, p, m.Data)
		return c.finish()
	}
	if c.edge(at) {
		if !c.learn(f.SrcMAC, at, p) {
			return c.finish()
		}
	} else if _, link := c.graph.Peer(at); !link {
		c.counters.Probation++
		return c.finish()
	}
	if c.route(at, m, f, v) {
		return c.finish()
	}
	asked := m.Reason == openflow.OFPR_NO_MATCH
	to := c.hosts[f.DstMAC]
	switch {
	case to != nil && to.at != at:
		c.forward(at, m, f, v, asked)
	case to == nil && asked && c.mayFlood(p):
		c.flood(at, m.Data)
	}
	return c.finish()
}

func (c *Core) forward(at topology.Port, m *openflow.PacketIn, f *Frame, v Verdict, asked bool) {
	fl, reverse, answered := c.flows[f.Key], f.Key.Reverse(), false
	if fl != nil {
		v = fl.Verdict
	} else if back := c.flows[reverse]; back != nil {
		v, answered = back.Verdict, true
	}
	path := c.graph.Path(at, c.hosts[f.DstMAC].at, f.Key.hash())
	if path == nil {
		c.counters.Unknown++
		return
	}
	edge := c.edge(at)
	switch {
	case f.vague:
		v.Level = appid.BE
	case fl == nil && !edge: // the copy from the first switch of its path is on the way
	case fl == nil:
		opener := c.switches[at.Switch].ports[at.Number]
		if !c.room(opener) {
			break
		}
		c.add(f.Key, v, path, opener, openflow.MAC{})
		if !answered && f.ported() {
			if from := c.hosts[f.SrcMAC]; from != nil {
				if way := c.graph.Path(c.hosts[f.DstMAC].at, from.at, f.Key.hash()); way != nil {
					c.add(reverse, v, way, opener, openflow.MAC{})
					if c.cfg.FailSafe {
						c.hostEntries(f.SrcMAC, way, false)
					}
				}
			}
		}
	case c.now.Sub(fl.sent) >= settle:
		// A switch of the path has lost its entry, or the flow comes in elsewhere.
		if edge {
			c.counters.Reinstalled++
			c.move(fl, path, false)
		} else {
			c.install(fl, fl.rest(at, path))
		}
		fl.sent = c.now
	}
	if c.cfg.FailSafe {
		c.hostEntries(f.DstMAC, path, false)
	}
	if asked {
		c.send(at.Switch, packetOut(at.Number, m.Data, through(c.cfg.queue(v), path[0].Out)...))
	}
}

// remember keeps a flow where it can be found.
func (c *Core) remember(f *Flow) {
	c.flows[f.Key], c.byID[f.ID] = f, f
	c.ofHost(f.Key.SrcMAC).from.add(fromHost, f)
	c.ofHost(f.to()).to.add(toHost, f)
	if f.opener != nil {
		f.opener.opened++
	}
}

// add makes a new flow and sends its entries. next is whom a flow to another
// network goes to.
func (c *Core) add(k Key, v Verdict, path []topology.Hop, opener *port, next openflow.MAC) {
	c.nextID = (c.nextID + 1) & cookieIDMask
	f := c.newFlow()
	*f = Flow{ID: c.nextID, Key: k, Verdict: v, Began: c.now, active: c.now, counted: c.now, opener: opener, next: next}
	c.remember(f)
	c.totals[v.Level].Flows++
	c.counters.Installed++
	c.setPath(f, path)
	c.install(f, path)
	f.sent = c.now
}

func (c *Core) setPath(f *Flow, path []topology.Hop) {
	if len(f.Path) > 0 {
		if n := c.switches[f.Path[0].Switch]; n != nil {
			n.ingress.remove(atIngress, f)
		}
	}
	f.Path = path
	if n := c.switches[path[0].Switch]; n != nil {
		n.ingress.add(atIngress, f)
	}
}

// install sends the entries of a flow, the last switch's first, so that the
// packets behind the first one find them. A switch whose table is full gets one
// for the destination instead.
func (c *Core) install(f *Flow, path []topology.Hop) {
	for _, hop := range slices.Backward(path) {
		c.installAt(f, hop)
	}
}

func (c *Core) installAt(f *Flow, hop topology.Hop) {
	n := c.switches[hop.Switch]
	if n == nil {
		return
	}
	if c.now.Before(n.fullUntil) {
		c.fallBack(n, f, hop)
		return
	}
	c.sendEntry(f, hop)
}

// sendEntry sends a flow's entry for one switch.
func (c *Core) sendEntry(f *Flow, hop topology.Hop) {
	m := f.add(hop, c.cfg.queue(f.Verdict))
	m.IdleTimeout = c.cfg.IdleTimeoutSeconds
	if hop == f.Path[0] {
		m.Flags = openflow.OFPFF_SEND_FLOW_REM
	}
	c.send(hop.Switch, m)
}

// rest is what of a flow's path is to be sent again where its packets come in at a port
// that is not its first: from there on, or all where it does not lead there. Of one
// whose path is not known it is a way from there.
func (f *Flow) rest(at topology.Port, way []topology.Hop) []topology.Hop {
	if f.adopted {
		return way
	}
	i := slices.IndexFunc(f.Path, func(h topology.Hop) bool { return h.Switch == at.Switch && h.In == at.Number })
	return f.Path[max(i, 0):]
}

// fallBack has a switch without room forward to a flow's host. Where it would
// have to rewrite packets they go on coming to the controller.
func (c *Core) fallBack(n *node, f *Flow, hop topology.Hop) {
	if !f.routed() || hop != f.Path[0] {
		c.hostEntry(n, f.to(), hop.Out, true)
	}
}

// move gives a flow another path: the new entries first. there tells that the switches
// have those of the old one by all that is known: in their place there is room for others.
func (c *Core) move(f *Flow, path []topology.Hop, there bool) {
	old := f.Path
	if old[0].Switch != path[0].Switch || old[0].In != path[0].In { // its counters begin anew
		f.basePacket, f.baseBytes = f.Packets, f.Bytes
	}
	c.setPath(f, path)
	for _, hop := range slices.Backward(path) {
		if there && slices.ContainsFunc(old, func(h topology.Hop) bool { return h.Switch == hop.Switch && h.In == hop.In }) {
			c.sendEntry(f, hop)
		} else {
			c.installAt(f, hop)
		}
	}
	for _, hop := range old {
		if !slices.ContainsFunc(path, func(h topology.Hop) bool { return h.Switch == hop.Switch && h.In == hop.In }) {
			c.send(hop.Switch, deleteFlows(cookieFlow|f.ID, ^uint64(0), inPort(hop.In)))
		}
	}
}

// drop takes a flow and its entries away.
func (c *Core) drop(f *Flow) {
	for _, hop := range f.Path {
		c.send(hop.Switch, deleteFlows(cookieFlow|f.ID, ^uint64(0)))
	}
	c.forgetFlow(f)
	c.leaving[f.ID] = f
}

func (c *Core) forgetFlow(f *Flow) {
	delete(c.flows, f.Key)
	delete(c.byID, f.ID)
	c.leaveHosts(f)
	if f.opener != nil {
		f.opener.opened--
	}
	if n := c.switches[f.Path[0].Switch]; n != nil {
		n.ingress.remove(atIngress, f)
	}
}

// hostEntries lets the switches of a path forward to a host by themselves.
func (c *Core) hostEntries(to openflow.MAC, path []topology.Hop, quiet bool) {
	for _, hop := range path {
		if n := c.switches[hop.Switch]; n != nil {
			c.hostEntry(n, to, hop.Out, quiet)
		}
	}
}

func (c *Core) hostEntry(n *node, to openflow.MAC, out uint32, quiet bool) {
	old, there := n.entries[to]
	if h := c.hosts[to]; there && h != nil && old.out != out && c.leads(n.dpid, old.out, h.at) {
		out = old.out // of several shortest ways any will do, and flows take all
	}
	want := hostEntry{out, quiet || c.now.Before(n.fullUntil)}
	if old == want {
		return
	}
	n.entries[to] = want
	match := openflow.Match{Fields: []openflow.OXM{openflow.NewOXM(openflow.OFPXMT_OFB_ETH_DST, to[:], nil)}}
	actions := through(c.cfg.Queues[appid.BE], out)
	if !want.quiet {
		actions = append(actions, toController(copyBytes))
	}
	m := flowMod(cookieHost, openflow.OFPFC_ADD, priorityHost, match, actions...)
	m.Flags = openflow.OFPFF_SEND_FLOW_REM
	if want.quiet {
		m.HardTimeout = uint16(fullPause / time.Second)
	} else {
		m.IdleTimeout = uint16(hostAge / time.Second)
	}
	c.send(n.dpid, m)
}

// mapChanged finds new paths for what went over links that are gone.
func (c *Core) mapChanged() {
	c.broadcasts = true
	for _, f := range c.flows {
		if c.whole(f.Path) {
			continue
		}
		to := c.hosts[f.to()]
		if to == nil {
			c.drop(f)
			continue
		}
		from := topology.Port{Switch: f.Path[0].Switch, Number: f.Path[0].In}
		if path := c.graph.Path(from, to.at, f.Key.hash()); path != nil {
			c.counters.Rerouted++
			c.move(f, path, true)
			f.sent = c.now
		} else {
			c.drop(f)
		}
	}
	for _, n := range c.switches {
		for mac, e := range n.entries {
			to := c.hosts[mac]
			if to == nil {
				continue
			}
			path := c.graph.Path(topology.Port{Switch: n.dpid}, to.at, 0)
			if len(path) > 0 && !c.leads(n.dpid, e.out, to.at) {
				c.hostEntry(n, mac, path[0].Out, e.quiet)
			}
		}
	}
}

// whole tells whether all links of a path are there.
func (c *Core) whole(path []topology.Hop) bool {
	for i := range path[:len(path)-1] {
		peer, ok := c.graph.Peer(topology.Port{Switch: path[i].Switch, Number: path[i].Out})
		if !ok || peer != (topology.Port{Switch: path[i+1].Switch, Number: path[i+1].In}) {
			return false
		}
	}
	return true
}

// leads tells whether a port of a switch is on a shortest way to a host.
func (c *Core) leads(d topology.DPID, out uint32, to topology.Port) bool {
	if d == to.Switch {
		return out == to.Number
	}
	peer, ok := c.graph.Peer(topology.Port{Switch: d, Number: out})
	if !ok {
		return false
	}
	here := c.graph.Path(topology.Port{Switch: d}, to, 0)
	there := c.graph.Path(peer, to, 0)
	return there != nil && len(there) == len(here)-1
}
