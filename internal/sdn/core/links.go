package core

import (
	"cmp"
	"errors"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// A port counts as a station's (an edge port) when no LLDP of another switch has come
// in for a while. That is wrong for as long as the other switch is not connected, and
// switches connect one after the other: after a restart of the controller Open
// vSwitch waits for up to eight seconds. Its stations, which talk by old entries,
// are then taken for stations of the port that leads there. Likewise where a link was
// lost: what comes over it before LLDP does is taken for a station's. So such a port
// may become a link, where a port that has a station by all that is known may not: a
// station that relays LLDP to another would make it one.

// LLDPParts is the number of steps in which a round of LLDP is sent, each for some of the
// switches. Packet-ins wait during a step, so steps are short.
const LLDPParts = 16

const (
	// probationRounds is how many LLDP rounds a new port is watched before stations are
	// learned there, because it may be a link.
	probationRounds = 2
	// linkRounds: a link ends after this many rounds without LLDP, so three frames may be
	// lost.
	linkRounds = 4
)

// links are the links between switches, and the segments of bridges that do not forward
// LLDP.
type links struct {
	*event
	cfg      *Config
	switches *switches
	stations *stations
	graph    *topology.Graph
	signer   topology.Signer
	segments segments
	rounds   rounds
	due      []topology.DPID // switches whose LLDP of this round is pending
	dueAll   int             // length of due at the start of the round
}

// rounds is the schedule of LLDP rounds.
type rounds struct {
	number uint64
	next   time.Time
	late   time.Time // when a round last started late
}

func newLinks(s *switches, stations *stations) *links {
	return &links{
		event: s.event, cfg: s.cfg, switches: s, stations: stations, graph: topology.New(), signer: topology.Signer{Key: s.cfg.LLDPKey},
		segments: segments{heard: map[heardPair]time.Time{}, blocked: map[topology.Port]bool{}},
	}
}

// beginRound starts a round of LLDP if it is due, and reports whether it did.
func (l *links) beginRound() bool {
	if l.now.Before(l.rounds.next) {
		return false
	}
	if l.now.Sub(l.rounds.next) > l.cfg.LLDPInterval {
		l.rounds.late = l.now
	}
	l.sendDueLLDP(1)
	l.rounds.next = l.now.Add(l.cfg.LLDPInterval)
	l.rounds.number++
	l.due, l.dueAll = slices.Sorted(maps.Keys(l.switches.byID)), len(l.switches.byID)
	return true
}

// roundPart returns the fraction of the round's LLDP that should be sent by now.
func (l *links) roundPart() float64 {
	return 1 - float64(l.rounds.next.Sub(l.now))/float64(l.cfg.LLDPInterval) + 1./LLDPParts
}

// sendDueLLDP sends the LLDP of this round up to the fraction part.
func (l *links) sendDueLLDP(part float64) {
	early := int(float64(l.dueAll) * (1 - part)) // switches that may wait
	for len(l.due) > max(early, 0) {
		if sw := l.switches.byID[l.due[0]]; sw != nil {
			l.sendLLDP(sw)
		}
		l.due = l.due[1:]
	}
}

// sendLLDP sends an LLDP frame and a segment probe out of every port of a switch.
func (l *links) sendLLDP(sw *switchState) {
	for number, p := range sw.ports {
		if !p.up || number == uint32(openflow.OFPP_LOCAL) {
			continue
		}
		frame := l.signer.Frame(topology.Port{Switch: sw.dpid, Number: number}, p.desc.HWAddr, l.rounds.number)
		for _, b := range [][]byte{frame, topology.Probe(frame)} {
			l.switches.send(sw.dpid, packetOut(uint32(openflow.OFPP_CONTROLLER), b, &openflow.ActionOutput{Port: openflow.Port(number)}))
		}
	}
}

// open returns the port that sent an LLDP frame. It returns false if the frame does not
// prove a link.
func (l *links) open(at topology.Port, frame []byte) (from topology.Port, ok bool) {
	from, err := l.signer.Open(frame, l.rounds.number)
	switch {
	case errors.Is(err, topology.ErrForged):
		l.counters.LLDP.Forged++
		return from, false
	case errors.Is(err, topology.ErrStale):
		l.counters.LLDP.Stale++
		return from, false
	case err != nil:
		l.counters.LLDP.Foreign++
		return from, false
	}
	if l.switches.port(from) == nil || from == at {
		return from, false
	}
	if topology.IsProbe(frame) || from.Switch == at.Switch {
		l.segments.hear(heardPair{from, at}, l.now)
		return from, false
	}
	// A station that relays a frame to another must not become a link.
	if !l.mayBeLink(at, from) || !l.mayBeLink(from, at) {
		l.counters.LLDP.OnStationPort++
		return from, false
	}
	return from, true
}

// mayBeLink reports whether LLDP from another port is trusted at this port: no station is
// known here, or all arrived while LLDP could not cross the link.
func (l *links) mayBeLink(at, other topology.Port) bool {
	p, sender := l.switches.port(at), l.switches.byID[other.Switch]
	return l.stations.allArrived(at, sender.away, sender.since.Add(linkRounds*l.cfg.LLDPInterval)) ||
		p.peer == other && l.stations.allArrived(at, p.lost, l.now)
}

// confirm records a link that trusted LLDP proved, and reports whether links changed.
func (l *links) confirm(from, at topology.Port) bool {
	l.switches.port(at).heard = l.now
	if old, ok := l.graph.Peer(at); ok && old != from {
		l.graph.Forget(at)
		l.noteLost(old, at)
	}
	return l.graph.Heard(from, at)
}

// forget removes the link at a port and reports whether there was one.
func (l *links) forget(at topology.Port) bool {
	peer, _ := l.graph.Peer(at)
	if !l.graph.Forget(at) {
		return false
	}
	l.noteLost(at, peer)
	l.noteLost(peer, at)
	return true
}

// noteLost records that the link at a port is lost. Until LLDP of the same peer returns,
// senders behind the port may be remote stations.
func (l *links) noteLost(at, peer topology.Port) {
	if p := l.switches.port(at); p != nil {
		p.peer, p.lost = peer, l.now
	}
	l.restartProbation(at)
}

// restartProbation puts a port without a link back on probation, since it may be a link.
func (l *links) restartProbation(at topology.Port) {
	p := l.switches.port(at)
	if p == nil {
		return
	}
	if _, link := l.graph.Peer(at); !link {
		p.since = l.now
	}
}

// expire removes links whose LLDP stopped although the sending switch is connected, and
// reports whether any were removed.
func (l *links) expire() (changed bool) {
	for _, link := range l.graph.Links() {
		if l.isSilent(link.A, link.B) || l.isSilent(link.B, link.A) {
			changed = l.graph.Forget(link.A) || changed
			l.noteLost(link.A, link.B)
			l.noteLost(link.B, link.A)
		}
	}
	return changed
}

func (l *links) isSilent(from, at topology.Port) bool {
	a, b := l.switches.byID[from.Switch], l.switches.byID[at.Switch]
	p := b.ports[at.Number]
	if !a.obeys() || !b.obeys() || p == nil {
		return p == nil
	}
	return l.now.Sub(l.lastHeard(p.heard, a, b)) > linkRounds*l.cfg.LLDPInterval
}

// lastHeard returns the later of the last frame over a link and the time since which both
// switches could send one.
func (l *links) lastHeard(at time.Time, ends ...*switchState) time.Time {
	last := later(at, l.rounds.late) // late rounds are this controller's fault
	for _, sw := range ends {
		last = later(later(last, sw.since), sw.limited)
	}
	return last
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// isEdge reports whether a port is for stations: it is no link, and its probation is over.
func (l *links) isEdge(at topology.Port) bool {
	p := l.switches.port(at)
	if p == nil || !p.up || l.segments.blocked[at] || l.now.Sub(p.since) < probationRounds*l.cfg.LLDPInterval {
		return false
	}
	_, link := l.graph.Peer(at)
	return !link
}

// way returns a shortest path for a flow of a class. Of several, EF and AF take the one whose links are
// idle most.
func (l *links) way(from, to topology.Port, hash uint32, level apps.Level) []topology.Hop {
	if level == apps.BE || from.Switch == to.Switch {
		return l.graph.Path(from, to, hash)
	}
	return l.graph.Widest(from, to, hash, l.idle)
}

// idle returns the magnitude of what a port could send beside what it sends, as a power of two: ports
// that are about equally idle share flows by their hash, so that not all new ones take one path until
// the next statistics.
func (l *links) idle(at topology.Port) uint64 {
	const bitsPerKbit = 1000
	p := l.switches.port(at)
	if p == nil {
		return 0
	}
	rateBPS := cmp.Or(p.rateBPS, uint64(p.desc.CurrSpeed)*bitsPerKbit)
	return uint64(bits.Len64(uint64(max(float64(rateBPS)-p.count.TxRateBPS, 0))))
}

// hasPath reports whether all links of a path exist.
func (l *links) hasPath(path []topology.Hop) bool {
	for i := range path[:len(path)-1] {
		peer, ok := l.graph.Peer(topology.Port{Switch: path[i].Switch, Number: path[i].Out})
		if !ok || peer != (topology.Port{Switch: path[i+1].Switch, Number: path[i+1].In}) {
			return false
		}
	}
	return true
}

// leadsTo reports whether a port of a switch lies on a shortest path to a station's port.
func (l *links) leadsTo(d topology.DPID, out uint32, to topology.Port) bool {
	if d == to.Switch {
		return out == to.Number
	}
	peer, ok := l.graph.Peer(topology.Port{Switch: d, Number: out})
	if !ok {
		return false
	}
	here := l.graph.Path(topology.Port{Switch: d}, to, 0)
	there := l.graph.Path(peer, to, 0)
	return there != nil && len(there) == len(here)-1
}

// expireProbes removes pairs of ports whose probes no longer arrive.
func (l *links) expireProbes() {
	for pair, at := range l.segments.heard {
		a, b := l.switches.byID[pair.from.Switch], l.switches.byID[pair.at.Switch]
		switch {
		case a == nil || b == nil || a.ports[pair.from.Number] == nil || b.ports[pair.at.Number] == nil:
			delete(l.segments.heard, pair)
		case !a.obeys() || !b.obeys(): // switches on their own send no probes
		case l.now.Sub(l.lastHeard(at, a, b)) > linkRounds*l.cfg.LLDPInterval:
			delete(l.segments.heard, pair)
		}
	}
}

// updateBlocked blocks ports that close a loop and unblocks others. It returns the blocked
// ports and whether any port changed.
func (l *links) updateBlocked() (blocked []topology.Port, changed bool) {
	l.segments.changed = false
	want := l.segments.loops(l.graph)
	for p := range l.segments.blocked {
		if !want[p] {
			changed = true
			delete(l.segments.blocked, p)
			l.switches.send(p.Switch, deleteFlows(cookieBlocked, cookieKindMask, inPort(p.Number)))
			if p := l.switches.port(p); p != nil {
				p.since = l.now // probation restarts
			}
		}
	}
	for p := range want {
		if !l.segments.blocked[p] {
			l.segments.blocked[p] = true
			l.counters.Blocked++
			l.block(p)
			blocked = append(blocked, p)
		}
	}
	return blocked, changed || len(blocked) > 0
}

// block drops everything that arrives at a port, except LLDP and probes.
func (l *links) block(p topology.Port) {
	l.switches.send(p.Switch, flowMod(cookieBlocked, openflow.OFPFC_ADD, priorityBlocked, openflow.Match{Fields: []openflow.OXM{inPort(p.Number)}}))
}

// blockAgain restores the drop entries of a switch that connects, whose entries may be from
// an earlier start.
func (l *links) blockAgain(sw *switchState) {
	l.switches.send(sw.dpid, deleteFlows(cookieBlocked, cookieKindMask))
	for p := range l.segments.blocked {
		if p.Switch == sw.dpid {
			l.block(p)
		}
	}
}
