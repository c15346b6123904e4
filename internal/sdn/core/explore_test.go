package core

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

const (
	exploredSwitches = 4
	exploredPorts    = 5
)

// TestExplore drives random networks through random events and checks, after each,
// that the parts of the core agree and keep their bounds. WEIR_EXPLORE is the number of
// networks, WEIR_SEED the first seed.
func TestExplore(t *testing.T) {
	networks, seed := 20, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("WEIR_EXPLORE")); err == nil {
		networks = n
	}
	if n, err := strconv.ParseUint(os.Getenv("WEIR_SEED"), 10, 64); err == nil {
		seed = n
	}
	for i := range networks {
		s := seed + uint64(i)
		e := newExplorer(t, s)
		for event := range 300 {
			e.step()
			if err := e.w.core.check(); err != nil {
				t.Fatalf("WEIR_SEED=%d, event %d: %v", s, event, err)
			}
		}
	}
}

// check tells where the parts of a core do not agree.
func (c *Core) check() error {
	behind, opened, addresses, ingress := map[*port]int{}, map[*port]int{}, map[*port]int{}, map[*Flow]bool{}
	for mac, s := range c.stations.byMAC {
		p := c.switches.port(s.at)
		if p == nil {
			return fmt.Errorf("station %v is at %v, which is unknown", mac, s.at)
		}
		behind[p]++
	}
	for k, f := range c.flows.byKey {
		if f.Key != k || c.flows.byID[f.ID] != f || len(f.Path) == 0 || c.flows.leaving[f.ID] == f || slices.Contains(c.flows.spare, f) {
			return fmt.Errorf("flow %+v is not where it should be", *f)
		}
		if s := c.flows.byStation[f.Key.SrcMAC]; s == nil || !slices.Contains(s.from, f) {
			return fmt.Errorf("flow %v is not from its station", k)
		}
		if s := c.flows.byStation[f.to()]; s == nil || !slices.Contains(s.to, f) {
			return fmt.Errorf("flow %v is not to its station", k)
		}
		if f.opener != nil {
			opened[f.opener]++
		}
		if sw := c.switches.byID[f.Path[0].Switch]; sw != nil && !slices.Contains(sw.ingress, f) {
			return fmt.Errorf("flow %v is not at its ingress", k)
		}
	}
	watched := map[uint64]bool{}
	for _, one := range c.flows.watched.bySwitch {
		for _, id := range slices.Concat(append(one.later[:], one.due)...) {
			watched[id] = true
		}
	}
	for _, f := range c.flows.byKey {
		if c.cfg.SecondLook && f.judged.Level == apps.EF && !watched[f.ID] {
			return fmt.Errorf("flow %v is EF and not watched", f.Key)
		}
	}
	for _, n := range c.router.neighbours {
		addresses[n.from]++
	}
	for d, sw := range c.switches.byID {
		for _, f := range sw.ingress {
			if ingress[f] || c.flows.byID[f.ID] != f || f.Path[0].Switch != d {
				return fmt.Errorf("flow %v should not begin at %v", f.Key, d)
			}
			ingress[f] = true
		}
		for number, p := range sw.ports {
			if p.stations != behind[p] || p.opened != opened[p] || p.addresses != addresses[p] {
				return fmt.Errorf("port %d of %v counts %d stations, %d flows, %d addresses: there are %d, %d, %d",
					number, d, p.stations, p.opened, p.addresses, behind[p], opened[p], addresses[p])
			}
		}
	}
	for mac, s := range c.flows.byStation {
		if len(s.from)+len(s.to) == 0 {
			return fmt.Errorf("station %v has no flows", mac)
		}
	}
	switch {
	case len(c.flows.byKey) != len(c.flows.byID):
		return fmt.Errorf("%d flows by key, %d by number", len(c.flows.byKey), len(c.flows.byID))
	case len(c.flows.byKey) > c.cfg.MaxFlows+1: // both directions at once
		return fmt.Errorf("%d flows", len(c.flows.byKey))
	case len(c.router.pending) > maxPending || len(c.links.segments.heard) > maxHeard || c.commands != nil || c.forwarding.stale:
		return fmt.Errorf("%d pending, %d heard, %d commands left", len(c.router.pending), len(c.links.segments.heard), len(c.commands))
	}
	return nil
}

// explorer is a random network with what happens to it.
type explorer struct {
	*rand.Rand
	w        *world
	stations []routedHost
}

func newExplorer(t testing.TB, seed uint64) *explorer {
	e := &explorer{Rand: rand.New(rand.NewPCG(seed, 1))}
	e.w = newWorld(t, func(c *Config) {
		c.FailSafe, c.SecondLook = e.IntN(4) > 0, e.IntN(2) == 0
		c.MaxFlows, c.StatsInterval = []int{6, 20, 1000}[e.IntN(3)], time.Duration(1+e.IntN(6))*time.Second
		if e.IntN(3) == 0 {
			c.PacketInsPerSecond = uint32(5 + e.IntN(100))
		}
		if e.IntN(3) > 0 {
			c.Routes = mustRoutes(t)
		}
		if e.IntN(3) == 0 {
			c.TakeoverAfter, c.Claim = takeoverAfter, e.Uint32()
		}
		if e.IntN(2) == 0 {
			trusting(everywhere("p1", "p2", "p5")...)(c)
		}
	})
	e.w.mayLoop = true
	for d := range topology.DPID(exploredSwitches) {
		s := e.w.add(d+1, exploredPorts)
		s.room, s.tables, s.noMeters = []int{0, 0, 3, 10}[e.IntN(4)], []uint8{254, 254, 254, 1}[e.IntN(4)], e.IntN(8) == 0
		if e.w.core.cfg.TakeoverAfter > 0 {
			s.control = &control{roles: map[*world]openflow.Role{}}
		}
	}
	for range e.IntN(7) {
		e.plug()
	}
	for i := range byte(6) {
		v, network := versions[e.IntN(2)], byte(1+e.IntN(2))
		e.stations = append(e.stations, routedHost{simHostAt(e.edgePort(), i+1), v.address(network, i+11), v.gateway(network)})
	}
	e.w.connectAll()
	e.w.pass(4 * time.Second)
	return e
}

// plug puts a cable between two ports.
func (e *explorer) plug() {
	if a, b := e.port(), e.port(); a.Switch != b.Switch {
		e.w.unplug(a)
		e.w.unplug(b)
		e.w.cable(a, b)
	}
}

func (e *explorer) port() topology.Port {
	return at(topology.DPID(1+e.IntN(exploredSwitches)), uint32(1+e.IntN(exploredPorts)))
}

// edgePort is most often a port without a cable.
func (e *explorer) edgePort() topology.Port {
	p := e.port()
	for range 10 {
		if _, cabled := e.w.cables[p]; !cabled {
			break
		}
		p = e.port()
	}
	return p
}

func (e *explorer) station() routedHost { return e.stations[e.IntN(len(e.stations))] }

func (e *explorer) simSwitch() *simSwitch {
	return e.w.switches[topology.DPID(1+e.IntN(exploredSwitches))]
}

// frame is any packet of a station.
func (e *explorer) frame(from, to routedHost) (b []byte) {
	to4 := to.addr
	if to.addr.Is4() != from.addr.Is4() {
		to4 = from.gateway
	}
	switch e.IntN(9) {
	case 0:
		b = from.broadcast()
	case 1:
		b = from.simHost.frame(to.simHost, flow.TCP, uint16(40000+e.IntN(4)), []uint16{22, 25, 80}[e.IntN(3)], e.IntN(1400), 2)
	case 2:
		b = from.says(true, from.gateway)
	case 3:
		b = from.says(false, from.gateway)
	case 4:
		b = from.ping([]netip.Addr{from.gateway, to4}[e.IntN(2)])
	case 5:
		b = from.packet(to4, []uint16{53, 5060, 7777}[e.IntN(3)], []byte{1, 64}[e.IntN(2)])
	default:
		b = from.simHost.frame(to.simHost, flow.UDP, uint16(40000+e.IntN(4)), []uint16{53, 5060, 7777}[e.IntN(3)], []int{20, 1400}[e.IntN(2)], 0)
	}
	if b[12] == 8 && b[13] == 0 {
		setDSCP(b, []uint8{0, ef, af41, cs1}[e.IntN(4)])
	}
	switch e.IntN(12) {
	case 0: // anything
		b[e.IntN(len(b))] = byte(e.Uint32())
	case 1: // with a tag
		b = slices.Concat(b[:12], []byte{0x81, 0, 0, byte(e.IntN(3))}, b[12:])
	}
	return b
}

// step lets one event happen.
func (e *explorer) step() {
	w := e.w
	w.packets = 0
	w.now = w.now.Add(time.Duration(e.IntN(50_000_000)))
	switch n := e.IntN(1000); {
	case n < 600:
		from, to := e.station(), e.station()
		b := e.frame(from, to)
		for range []int{1, 1, 2, 3, 100}[e.IntN(5)] { // 100 earn a second look
			w.packets = 0
			w.send(from.at, b)
		}
	case n < 850:
		w.now = w.now.Add(time.Duration(e.IntN(1_500_000_000)))
		for _, s := range w.switches {
			w.expire(s)
		}
		w.tick()
	case n < 880:
		w.pass([]time.Duration{time.Second, 5 * time.Second, 30 * time.Second}[e.IntN(3)])
	case n < 884:
		w.now = w.now.Add([]time.Duration{3 * time.Second, time.Minute, 11 * time.Minute, 2 * time.Hour}[e.IntN(4)])
	case n < 892:
		w.unplug(e.port())
	case n < 902:
		e.plug()
	case n < 904:
		if clear(w.hubs); e.IntN(2) == 0 {
			w.bridge(e.port(), e.port(), e.port())
		}
	case n < 908:
		e.stations[e.IntN(len(e.stations))].at = e.edgePort()
	case n < 918:
		e.reconnect()
	case n < 928:
		e.portStatus()
	case n < 968:
		e.loseEntry()
	case n < 978:
		s := e.simSwitch()
		w.core.PortStats(w.now, s.dpid, []openflow.PortStats{{PortNo: 1, TxBytes: e.Uint64N(1e9), RxBytes: e.Uint64()}})
		w.core.QueueStats(w.now, s.dpid, []openflow.QueueStats{{PortNo: 1, QueueID: openflow.Queue(e.IntN(9)), TxBytes: e.Uint64N(1e9)}})
	case n < 983:
		e.strayStats()
	case n < 990:
		e.strayLLDP()
	default:
		e.role()
	}
}

func (e *explorer) reconnect() {
	s := e.simSwitch()
	if !e.w.away[s.dpid] {
		if e.w.away[s.dpid] = true; e.IntN(3) == 0 { // it starts anew
			s.entries = nil
		}
		if s.control != nil {
			delete(s.control.roles, e.w)
		}
		e.w.core.Disconnected(e.w.now, s.dpid)
		return
	}
	e.w.connect(s.dpid)
}

func (e *explorer) portStatus() {
	s := e.simSwitch()
	m := &openflow.PortStatus{Reason: openflow.PortReason(e.IntN(3)), Desc: s.ports[e.IntN(len(s.ports))]}
	if e.IntN(2) == 0 {
		m.Desc.State = openflow.OFPPS_LINK_DOWN
	}
	if !e.w.away[s.dpid] {
		e.w.do(e.w.core.PortStatus(e.w.now, s.dpid, m))
	}
}

// loseEntry has a switch end one of its entries.
func (e *explorer) loseEntry() {
	s := e.simSwitch()
	if len(s.entries) == 0 {
		return
	}
	i := e.IntN(len(s.entries))
	one := s.entries[i]
	s.entries = slices.Delete(slices.Clone(s.entries), i, i+1)
	if one.Flags&openflow.OFPFF_SEND_FLOW_REM != 0 && e.IntN(2) > 0 {
		e.w.removed(s, one, openflow.FlowRemovedReason(e.IntN(3)))
	}
}

// strayStats are statistics of a flow that the core may not know.
func (e *explorer) strayStats() {
	s, from, to := e.simSwitch(), e.station(), e.station()
	k := Key{SrcMAC: from.mac, DstMAC: to.mac, EtherType: etherIPv4, Proto: flow.UDP}
	k.Src.Port, k.Dst.Port = uint16(40000+e.IntN(4)), 53
	e.w.do(e.w.core.FlowStats(e.w.now, s.dpid, []openflow.FlowStats{{
		TableID: []openflow.Table{0, tableFlows}[e.IntN(2)], Cookie: cookieFlow | e.Uint64N(1<<20), Flags: openflow.FlowModFlags(e.IntN(2)), PacketCount: e.Uint64N(1e6), ByteCount: e.Uint64N(1e9),
		Match: k.match(uint32(1 + e.IntN(exploredPorts))), Instructions: apply(through(openflow.Queue(e.IntN(3)), uint32(1+e.IntN(exploredPorts)))...),
	}}, e.IntN(4) == 0))
}

// strayLLDP is a frame of LLDP, this controller's or not, that a station sends.
func (e *explorer) strayLLDP() {
	signer := topology.Signer{Key: e.w.core.cfg.LLDPKey}
	if e.IntN(4) == 0 {
		signer.Key[9]++
	}
	b := signer.Frame(e.port(), [6]byte{2}, uint64(e.IntN(300)))
	if len(e.w.lldp) > 0 && e.IntN(2) == 0 {
		b = e.w.lldp[len(e.w.lldp)-1-e.IntN(min(len(e.w.lldp), 60))]
	}
	e.w.send(e.station().at, b)
}

// role is what another controller does to the roles of a switch.
func (e *explorer) role() {
	s := e.simSwitch()
	switch {
	case s.control == nil:
	case e.IntN(2) == 0:
		e.w.do(e.w.core.RoleReply(e.w.now, s.dpid, &openflow.RoleReply{RoleState: openflow.RoleState{
			Role: openflow.Role(e.IntN(4)), GenerationID: s.control.generation + uint64(e.IntN(5)) - 2,
		}}))
	default:
		s.control.known = true
		s.control.generation += e.Uint64N(1 << 42)
		s.control.roles[e.w] = openflow.OFPCR_ROLE_SLAVE
	}
}
