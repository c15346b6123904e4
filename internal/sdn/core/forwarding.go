package core

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// floodsPerSecond limits the packets with unknown destination per ingress port. Each flood
// sends one packet-out to every switch.
const floodsPerSecond = 100

// forwarding holds the entries that are not of single flows: to stations and for
// broadcasts.
type forwarding struct {
	*event
	cfg      *Config
	switches *switches
	stations *stations
	links    *links
	stale    bool // broadcast entries must be recomputed
}

// entryKey names a switch's entry for a station: packets of flows and those that are queued by marks
// have one each.
type entryKey struct {
	mac     openflow.MAC
	byMarks bool
}

// stationEntry is a switch's entry for a station.
type stationEntry struct {
	out   uint32
	quiet bool // sends no copies to the controller
}

// flood is a broadcast entry of a switch.
type flood struct {
	ports string // output ports as text, for comparison
	copy  bool   // also sends a copy to the controller
}

// alongPath installs station entries on all switches of a path.
func (w *forwarding) alongPath(to openflow.MAC, path []topology.Hop) {
	for _, hop := range path {
		if sw := w.switches.byID[hop.Switch]; sw != nil {
			w.toStation(sw, entryKey{to, sw.byMarks(hop.In)}, hop.Out, false)
		}
	}
}

// toStation sets a switch's entry for a station.
func (w *forwarding) toStation(sw *switchState, to entryKey, out uint32, quiet bool) {
	old, there := sw.entries[to]
	if s := w.stations.byMAC[to.mac]; there && s != nil && old.out != out && w.links.leadsTo(sw.dpid, old.out, s.at) {
		out = old.out // among several shortest paths the old one stays; flows use all of them
	}
	want := stationEntry{out, !to.byMarks && (quiet || w.now.Before(sw.fullUntil))}
	if old == want {
		return
	}
	sw.entries[to] = want
	match := openflow.Match{Fields: []openflow.OXM{openflow.NewOXM(openflow.OFPXMT_OFB_ETH_DST, to.mac[:], nil)}}
	actions := through(w.cfg.Queues[apps.BE], out)
	switch {
	case to.byMarks:
		actions = actions[1:] // the queue is chosen
	case !want.quiet:
		actions = append(actions, toController(copyBytes))
	}
	m := flowMod(cookieStation, openflow.OFPFC_ADD, priorityStation, match, actions...)
	m.Flags, m.TableID = openflow.OFPFF_SEND_FLOW_REM, to.table(sw)
	if want.quiet {
		m.HardTimeout = uint16(fullPause / time.Second)
	} else {
		m.IdleTimeout = uint16(stationAge / time.Second)
	}
	w.switches.send(sw.dpid, m)
}

// table returns the table of an entry for a station.
func (k entryKey) table(sw *switchState) openflow.Table {
	if k.byMarks {
		return tableForward
	}
	return sw.flowTable()
}

// dropStation deletes the entries for a station on all switches.
func (w *forwarding) dropStation(mac openflow.MAC) {
	for _, sw := range w.switches.byID {
		before := len(sw.entries)
		delete(sw.entries, entryKey{mac, false})
		delete(sw.entries, entryKey{mac, true})
		if len(sw.entries) < before {
			w.switches.send(sw.dpid, deleteFlows(cookieStation, cookieKindMask, openflow.NewOXM(openflow.OFPXMT_OFB_ETH_DST, mac[:], nil)))
		}
	}
}

// entryRemoved handles the removal of a station's entry.
func (w *forwarding) entryRemoved(d topology.DPID, m *openflow.FlowRemoved) {
	sw, dst := w.switches.byID[d], m.Match.Field(openflow.OFPXMT_OFB_ETH_DST)
	if sw == nil || dst == nil || m.Reason == openflow.OFPRR_DELETE {
		return
	}
	key := entryKey{openflow.MAC(dst.Value), sw.marks.on && m.TableID == tableForward}
	was := sw.entries[key]
	delete(sw.entries, key)
	if was.quiet && w.cfg.FailSafe && w.stations.byMAC[key.mac] != nil {
		w.toStation(sw, key, was.out, false)
	}
}

// adopt takes over an entry of an earlier controller by which packets are forwarded that are queued by
// marks.
func (w *forwarding) adopt(sw *switchState, s *openflow.FlowStats) {
	dst := s.Match.Field(openflow.OFPXMT_OFB_ETH_DST)
	if s.Cookie&cookieKindMask != cookieStation || s.TableID != tableForward || !sw.marks.on || dst == nil {
		return
	}
	key := entryKey{openflow.MAC(dst.Value), true}
	if _, known := sw.entries[key]; !known {
		_, out := queueAndPort(s.Instructions)
		sw.entries[key] = stationEntry{out: out}
		w.correct(sw, key)
	}
}

// reroute replaces station entries that no longer lead to the station.
func (w *forwarding) reroute() {
	for _, sw := range w.switches.byID {
		for key := range sw.entries {
			w.correct(sw, key)
		}
	}
}

// correctAll replaces the entries to a station that do not lead to it.
func (w *forwarding) correctAll(mac openflow.MAC) {
	for _, sw := range w.switches.byID {
		if key := (entryKey{mac, true}); sw.entries[key].out != 0 {
			w.correct(sw, key)
		}
	}
}

// correct replaces an entry that does not lead to its station, by one towards the idlest path.
func (w *forwarding) correct(sw *switchState, key entryKey) {
	e, to := sw.entries[key], w.stations.byMAC[key.mac]
	if to == nil || w.links.leadsTo(sw.dpid, e.out, to.at) {
		return
	}
	if path := w.links.graph.Widest(topology.Port{Switch: sw.dpid}, to.at, 0, w.links.idle); path != nil {
		w.toStation(sw, key, path[0].Out, e.quiet)
	}
}

// mayFlood takes one of the floodsPerSecond packets that a port may flood, and reports false if
// none is left; unused ones add up to one second's.
func (w *forwarding) mayFlood(p *port) bool {
	const each = time.Second / floodsPerSecond
	due := later(p.floods, w.now.Add(-time.Second)).Add(each)
	if due.After(w.now) {
		w.counters.FloodsLimited++
		return false
	}
	p.floods = due
	return true
}

// flood sends a packet out of all ports where stations may be.
func (w *forwarding) flood(from topology.Port, data []byte) {
	for d, sw := range w.switches.byID {
		actions := []openflow.Action{&openflow.ActionSetQueue{QueueID: w.cfg.Queues[apps.BE]}}
		for number := range sw.ports {
			if at := (topology.Port{Switch: d, Number: number}); at != from && w.links.isEdge(at) {
				actions = append(actions, &openflow.ActionOutput{Port: openflow.Port(number)})
			}
		}
		if len(actions) > 1 {
			w.switches.send(d, packetOut(uint32(openflow.OFPP_CONTROLLER), data, actions...))
		}
	}
}

// sendFrame sends a frame out of a port.
func (w *forwarding) sendFrame(at topology.Port, frame []byte) {
	if frame != nil {
		w.switches.send(at.Switch, packetOut(uint32(openflow.OFPP_CONTROLLER), frame, &openflow.ActionOutput{Port: openflow.Port(at.Number)}))
	}
}

// sendBroadcasts updates the broadcast entries: packets go to all station ports and along
// the spanning tree. Broadcasts that arrive over links outside the tree are dropped.
func (w *forwarding) sendBroadcasts() {
	tree := w.links.graph.Tree()
	for _, sw := range w.switches.byID {
		if !sw.obeys() {
			continue
		}
		var out []uint32
		want := map[uint32]flood{}
		for _, number := range slices.Sorted(maps.Keys(sw.ports)) {
			at := topology.Port{Switch: sw.dpid, Number: number}
			_, link := w.links.graph.Peer(at)
			if tree[at] || w.links.isEdge(at) {
				out = append(out, number)
			}
			if link {
				want[number] = flood{}
			}
		}
		actions := []openflow.Action{&openflow.ActionSetQueue{QueueID: w.cfg.Queues[apps.BE]}}
		for _, number := range out {
			actions = append(actions, &openflow.ActionOutput{Port: openflow.Port(number)})
		}
		text := portsText(out)
		want[0] = flood{text, true}
		for number := range want {
			if number != 0 && tree[topology.Port{Switch: sw.dpid, Number: number}] {
				want[number] = flood{text, false}
			}
		}
		w.sendFloods(sw, want, actions)
	}
}

func portsText(ports []uint32) string {
	b := make([]byte, 0, 4*len(ports))
	for _, p := range ports {
		b = append(b, byte(p>>24), byte(p>>16), byte(p>>8), byte(p))
	}
	return string(b)
}

// sendFloods sends a switch the broadcast entries that changed.
func (w *forwarding) sendFloods(sw *switchState, want map[uint32]flood, actions []openflow.Action) {
	for number := range sw.flooded {
		if _, ok := want[number]; !ok {
			delete(sw.flooded, number)
			w.switches.send(sw.dpid, deleteFlows(cookieSetup, cookieKindMask, inPort(number), group()))
		}
	}
	for number, f := range want {
		if old, ok := sw.flooded[number]; ok && old == f {
			continue
		}
		sw.flooded[number] = f
		fields, priority := []openflow.OXM{group()}, uint16(priorityBroadcast)
		if number != 0 {
			fields, priority = []openflow.OXM{inPort(number), group()}, priorityTransit
		}
		var do []openflow.Action
		if f.ports != "" {
			do = slices.Clone(actions)
		}
		if sw.marks.on {
			w.sendFlood(sw, tableForward, priority, fields, do[min(len(do), 1):])
		}
		if f.copy {
			do = append(do, toController(copyBytes))
		}
		w.sendFlood(sw, sw.flowTable(), priority, fields, do)
	}
}

func (w *forwarding) sendFlood(sw *switchState, table openflow.Table, priority uint16, fields []openflow.OXM, do []openflow.Action) {
	m := flowMod(cookieSetup, openflow.OFPFC_ADD, priority, openflow.Match{Fields: fields}, do...)
	m.TableID = table
	w.switches.send(sw.dpid, m)
}

// deleteBroadcasts deletes broadcast entries left by an earlier controller. Some may use
// links that are gone.
func (w *forwarding) deleteBroadcasts(sw *switchState) {
	w.switches.send(sw.dpid, deleteFlows(cookieSetup, cookieKindMask, group()))
	w.stale = true
}
