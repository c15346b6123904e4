package core

import (
	"math"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

var boundsNow = time.Unix(1e9, 0)

// bounded is a core with one switch of three ports, behind the first two of which
// a host has spoken.
func bounded(maxFlows int) *Core {
	c := New(Config{Queues: DefaultQueues(), IdleTimeoutSeconds: 30, FailSafe: true, MaxFlows: maxFlows, LLDPInterval: time.Second, StatsInterval: 5 * time.Second})
	c.Connected(boundsNow, Description{Features: &openflow.FeaturesReply{DatapathID: 1}, Ports: []openflow.PortDesc{{PortNo: 1}, {PortNo: 2}, {PortNo: 3}}})
	c.advance(boundsNow.Add(3 * time.Second))
	opened(c, 1, mac(1), mac(2), 0)
	opened(c, 2, mac(2), mac(1), 0)
	return c
}

// opened has a host send the first packet of flow n.
func opened(c *Core, in uint32, src, dst openflow.MAC, n int) {
	f := Frame{}
	f.SrcMAC, f.DstMAC, f.EtherType, f.Proto = src, dst, 0x0800, flow.UDP
	f.Src.Port, f.Dst.Port, f.Src.Addr[0] = uint16(n), uint16(n>>16), byte(in)
	c.PacketIn(c.now, 1, &openflow.PacketIn{Reason: openflow.OFPR_ACTION, Match: openflow.Match{Fields: []openflow.OXM{inPort(in)}}, Data: make([]byte, 60)}, &f, Verdict{})
}

// full has both hosts open flows until no more are kept.
func full(maxFlows int) (c *Core, next int) {
	c = bounded(maxFlows)
	for n := 1; n <= maxFlows; n++ {
		opened(c, 1, mac(1), mac(2), n)
		opened(c, 2, mac(2), mac(1), n)
	}
	return c, maxFlows + 1
}

// fastest is the least time that something took in five goes.
func fastest(do func()) time.Duration {
	best := time.Hour
	for range 5 {
		began := time.Now()
		do()
		best = min(best, time.Since(began))
	}
	return best
}

// TestFullTableIsNotScanned: what a packet costs that finds no room does not grow
// with the flows that are kept.
func TestFullTableIsNotScanned(t *testing.T) {
	cost := func(maxFlows int) time.Duration {
		c, n := full(maxFlows)
		if len(c.flows.byKey) < maxFlows-1 {
			t.Fatalf("%d flows of %d", len(c.flows.byKey), maxFlows)
		}
		return fastest(func() {
			for range 50 {
				opened(c, 1, mac(1), mac(2), n)
				n++
			}
		})
	}
	if few, many := cost(200), cost(40000); many > 20*few+time.Millisecond {
		t.Errorf("50 packets take %v with 200 flows and %v with 40000", few, many)
	}
}

// TestLostHostsAreNotSearched: what it costs to forget hosts does not grow
// with the flows of others.
func TestLostHostsAreNotSearched(t *testing.T) {
	cost := func(maxFlows int) time.Duration {
		c, _ := full(maxFlows)
		return fastest(func() {
			for i := range 100 {
				opened(c, 3, openflow.MAC{2, 9, 0, 0, 0, byte(i)}, mac(9), 0)
			}
			if c.switches.byID[1].ports[3].stations != 100 {
				t.Fatal("hosts not learned")
			}
			for i := range 100 {
				c.forgetStation(openflow.MAC{2, 9, 0, 0, 0, byte(i)})
			}
		})
	}
	if few, many := cost(200), cost(40000); many > 20*few+time.Millisecond {
		t.Errorf("100 hosts take %v with 200 flows and %v with 40000", few, many)
	}
}

// TestPortLeavesRoom: one port's host cannot take all the room for flows, and
// what has ended counts no more.
func TestPortLeavesRoom(t *testing.T) {
	c := bounded(100)
	for n := 1; n <= 200; n++ {
		opened(c, 1, mac(1), mac(2), n)
	}
	if n := len(c.flows.byKey); n < 40 || n > 52 {
		t.Errorf("one port has %d of 100 flows", n)
	}
	before := len(c.flows.byKey)
	opened(c, 2, mac(2), mac(1), 5000)
	if len(c.flows.byKey) <= before {
		t.Error("no room for another port")
	}
	c.forgetStation(mac(1))
	if p := c.switches.byID[1].ports[1]; len(c.flows.byKey) != 0 || len(c.flows.byStation) != 0 || p.opened != 0 {
		t.Errorf("left: %d flows, %d addresses, %d of port 1", len(c.flows.byKey), len(c.flows.byStation), p.opened)
	}
}

// TestLimitedSwitchKeepsLinks: a switch whose meter drops packets may have
// dropped LLDP too. Its links end when it is silent without being limited.
func TestLimitedSwitchKeepsLinks(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.PacketInsPerSecond = 100 })
	w.add(1, 2)
	w.add(2, 2)
	w.cable(at(1, 2), at(2, 1))
	w.connectAll()
	w.pass(3 * time.Second)
	if n := len(w.core.links.graph.Links()); n != 1 {
		t.Fatalf("%d links", n)
	}
	clear(w.cables) // no LLDP comes over it any more
	s := simHostAt(at(1, 1), 1)
	for range 10 {
		for range 100 {
			w.send(s.at, s.broadcast())
		}
		w.pass(time.Second)
	}
	if n := len(w.core.links.graph.Links()); n != 1 {
		t.Error("the link of a switch that is limited has ended")
	}
	w.pass(6 * time.Second)
	if n := len(w.core.links.graph.Links()); n != 0 {
		t.Error("the link of a silent switch stays")
	}
}

// TestSwitchThatInvents: what a switch makes up does not fill the controller.
func TestSwitchThatInvents(t *testing.T) {
	c := bounded(100)
	for i := 1; i <= 2*maxSwitches; i++ {
		k := Key{EtherType: 0x0800, Proto: flow.UDP, SrcMAC: mac(1), DstMAC: mac(2)}
		k.Src.Port = uint16(i)
		c.FlowStats(c.now, 1, []openflow.FlowStats{{
			Cookie: cookieFlow | uint64(i), Flags: openflow.OFPFF_SEND_FLOW_REM, Match: k.match(1), Instructions: apply(through(0, 2)...),
		}}, false)
		c.QueueStats(c.now, 1, []openflow.QueueStats{{PortNo: 1, QueueID: openflow.Queue(i)}})
		for j := range 4 {
			c.PortStatus(c.now, 1, &openflow.PortStatus{Reason: openflow.OFPPR_ADD, Desc: openflow.PortDesc{PortNo: openflow.Port(4*i + j)}})
		}
		c.Connected(c.now, Description{Features: &openflow.FeaturesReply{DatapathID: uint64(1000 + i)}, Ports: nil})
		c.Disconnected(c.now, topology.DPID(1000+i))
	}
	n := c.switches.byID[1]
	if len(c.flows.byKey) > 101 || len(n.ports[1].queues) > maxQueuesPerPort || len(n.ports) > MaxPorts || len(c.switches.byID) > maxSwitches {
		t.Errorf("%d flows of 100, %d queues, %d ports, %d switches", len(c.flows.byKey), len(n.ports[1].queues), len(n.ports), len(c.switches.byID))
	}
}

// TestCountersNotKept: a switch that does not count what a queue sends says so by
// all ones, which is neither a count nor a rate.
func TestCountersNotKept(t *testing.T) {
	c := bounded(100)
	none := openflow.QueueStats{PortNo: 1, TxBytes: math.MaxUint64, TxPackets: math.MaxUint64, TxErrors: math.MaxUint64}
	for range 2 {
		c.QueueStats(c.now.Add(time.Second), 1, []openflow.QueueStats{none})
		if q := c.switches.byID[1].ports[1].queues[0]; q.TxBytes != 0 || q.TxPackets != 0 || q.Dropped != 0 || q.RateBPS != 0 {
			t.Errorf("%+v", *q)
		}
	}
}

// TestSwitchForgotten: a switch that stays away goes, with all that was behind it.
func TestSwitchForgotten(t *testing.T) {
	c := bounded(100)
	opened(c, 1, mac(1), mac(2), 1)
	if len(c.flows.byKey) == 0 {
		t.Fatal("no flow")
	}
	c.Disconnected(c.now, 1)
	c.Tick(c.now.Add(switchAge - time.Second))
	if len(c.switches.byID) != 1 {
		t.Error("forgotten too early")
	}
	c.Tick(c.now.Add(5 * time.Second))
	if len(c.switches.byID)+len(c.stations.byMAC)+len(c.flows.byKey)+len(c.flows.byID)+len(c.flows.byStation) != 0 {
		t.Errorf("left: %d switches, %d hosts, %d flows", len(c.switches.byID), len(c.stations.byMAC), len(c.flows.byKey))
	}
}

// TestPauseOfTheController: what a controller does not ask for while it stands
// still, on a machine that is suspended, costs no link.
func TestPauseOfTheController(t *testing.T) {
	w, _ := ring(t)
	before := w.core.Snapshot(false).Links
	w.now = w.now.Add(time.Minute)
	w.core.Tick(w.now) // and what it asks for now is lost
	if now := w.core.Snapshot(false).Links; len(before) == 0 || len(now) != len(before) {
		t.Errorf("%d links of %d after a pause", len(now), len(before))
	}
	clear(w.cables)
	w.pass(8 * time.Second)
	if now := w.core.Snapshot(false).Links; len(now) != 0 {
		t.Errorf("%d links without cables", len(now))
	}
}

// TestFloodsLimited: packets of one port to unknown hosts go to all at floodsPerSecond, and
// others' as before.
func TestFloodsLimited(t *testing.T) {
	w, s := oneSwitch(t, nil)
	w.pass(2 * time.Second) // floods at the start are forgotten
	nowhere := s[1]
	nowhere.mac[5] = 0xee
	from := func(sender simHost, n int) (came int) {
		w.quiet()
		for range n {
			w.packets = 0
			w.send(sender.at, sender.frame(nowhere, flow.UDP, 40000, 53, 20, 0))
		}
		return len(w.delivered(s[2].at))
	}
	if n := from(s[0], floodsPerSecond+50); n != floodsPerSecond || w.core.counters.FloodsLimited != 50 {
		t.Errorf("%d went to all at once, %d did not", n, w.core.counters.FloodsLimited)
	}
	if n := from(s[1], 10); n != 10 {
		t.Errorf("%d of another port's 10 went to all", n)
	}
	w.pass(time.Second / 2)
	if n := from(s[0], floodsPerSecond); n != floodsPerSecond/2 {
		t.Errorf("%d went to all half a second later", n)
	}
}
