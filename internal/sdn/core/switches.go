package core

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/internal/share/policy"
)

// MaxPorts limits the ports of a switch.
const MaxPorts = 1 << 12

// Limits on the switches that a controller remembers.
const (
	maxSwitches      = 1 << 10 // disconnected switches included; connected ones may exceed it
	maxQueuesPerPort = 1 << 6
	// switchAge is how long a disconnected switch is remembered.
	switchAge = time.Hour
	// limitedPart: if a switch sends more than 1/limitedPart of its meter's rate, the meter
	// is assumed to drop packets, possibly LLDP. OpenFlow does not report such drops.
	limitedPart = 2
	// newFlowCommands is the number of messages to one switch for a new flow: an entry per
	// direction and the packet.
	newFlowCommands = 3
	// patientStats is how many statistics intervals a switch may take to reply before the
	// request is repeated.
	patientStats = 4
	// leastRateSeconds is the shortest interval over which a rate is computed.
	leastRateSeconds = 0.1
)

// switches are the known switches with their ports.
type switches struct {
	*event
	cfg       *Config
	byID      map[topology.DPID]*switchState
	lastRound time.Time // time of the last LLDP round
}

// switchState is the state of one switch.
type switchState struct {
	dpid          topology.DPID
	connected     bool
	role          openflow.Role // role that the switch grants this controller
	master        bool          // this controller may change the switch and has set it up
	since         time.Time     // time of the connection, or of its loss
	heard         time.Time     // time of the last message
	away          time.Time     // time of the last message before the connection was lost
	ports         map[uint32]*port
	entries       map[entryKey]stationEntry // entries to stations
	ingress       flowSet                   // flows that enter here
	flooded       map[uint32]flood          // broadcast entries by ingress port; 0 is any other port
	fullUntil     time.Time
	withoutQueues bool // it refuses the action set_queue
	base          baseState
	asked         time.Time       // time of the last flow statistics request
	asking        bool            // that request is unanswered
	found         map[uint64]bool // flow numbers in the first statistics; nil once those are complete
	packetIns     uint64          // packet-ins in this LLDP round
	limited       time.Time       // when its meter last seemed to drop packets
	marks         marking
}

// baseState is what is known of a switch's entries that are not of single flows.
type baseState uint8

const (
	baseSent    baseState = iota // no statistics have counted them yet
	baseCounted                  // statistics have counted some since they were sent
	baseRefused                  // a full table refused some
)

type port struct {
	desc      openflow.PortDesc
	up        bool
	since     time.Time // start of probation
	heard     time.Time // last LLDP that proved a link
	stations  int
	peer      topology.Port // peer of the last lost link
	lost      time.Time     // time of that loss
	opened    int           // flows opened by packets from here, and their reverse flows
	floods    time.Time     // token bucket of floods as a time; see mayFlood
	addresses int           // neighbours learned here
	queues    map[openflow.Queue]*QueueCount
	count     PortCount
	rateBPS   uint64 // shared by its queues; 0 if unknown
	uncapped  bool   // each of its queues may have the whole rate
	dropped   uint64 // by its queues at the last statistics
	slow      int    // statistics in a row in which it seemed slower than its rate
}

// QueueCount are the counters of one queue of a port.
type QueueCount struct {
	TxBytes, TxPackets, Dropped uint64
	// RateBPS is the mean rate in bits per second between the last two statistics.
	RateBPS float64
	at      time.Time
}

// PortCount are the counters of a port.
type PortCount struct {
	TxBytes, RxBytes, TxDropped uint64
	// TxRateBPS and RxRateBPS are mean rates in bits per second between the last two
	// statistics.
	TxRateBPS, RxRateBPS float64
	at                   time.Time
}

func newSwitches(e *event, cfg *Config) *switches {
	return &switches{event: e, cfg: cfg, byID: map[topology.DPID]*switchState{}}
}

func (s *switches) add(d topology.DPID) *switchState {
	sw := &switchState{dpid: d, ports: map[uint32]*port{}}
	s.byID[d] = sw
	return sw
}

func (s *switches) hasRoom() bool { return len(s.byID) < maxSwitches }

// longestAway returns the switch that has been disconnected longest; nil if none is.
func (s *switches) longestAway() *switchState {
	var oldest *switchState
	for _, sw := range s.byID {
		if !sw.connected && (oldest == nil || sw.since.Before(oldest.since)) {
			oldest = sw
		}
	}
	return oldest
}

// port returns a port, or nil if the port or its switch is unknown.
func (s *switches) port(at topology.Port) *port {
	if sw := s.byID[at.Switch]; sw != nil {
		return sw.ports[at.Number]
	}
	return nil
}

// setPort updates a port from its description and reports whether the port went down.
func (s *switches) setPort(sw *switchState, desc openflow.PortDesc) (down bool) {
	up := desc.State&openflow.OFPPS_LINK_DOWN == 0 && desc.Config&openflow.OFPPC_PORT_DOWN == 0
	number := uint32(desc.PortNo)
	p := sw.ports[number]
	if p == nil {
		if len(sw.ports) >= MaxPorts {
			s.counters.Errors++
			return false
		}
		p = &port{since: s.now, queues: map[openflow.Queue]*QueueCount{}}
		sw.ports[number] = p
	}
	p.desc = desc
	if p.up == up {
		return false
	}
	p.up, p.since = up, s.now
	return !up
}

// restartProbations puts every port on probation, so that links are found before stations
// are learned there.
func (s *switches) restartProbations() {
	for _, sw := range s.byID {
		for _, p := range sw.ports {
			p.since = s.now
		}
	}
}

// noteLimited records which switches were limited in the LLDP round that ends.
func (s *switches) noteLimited() {
	seconds := s.now.Sub(s.lastRound).Seconds()
	for _, sw := range s.byID {
		if rate := float64(s.cfg.PacketInsPerSecond); rate > 0 && float64(sw.packetIns) >= rate*seconds/limitedPart {
			sw.limited = s.now
		}
		sw.packetIns = 0
	}
	s.lastRound = s.now
}

// send queues a message for a connected switch that this controller may change, or that is
// harmless.
func (s *switches) send(d topology.DPID, m openflow.Message) {
	if sw := s.byID[d]; sw != nil && sw.connected && (sw.master || isHarmless(m)) {
		if sw.withoutQueues {
			dropQueues(m)
		}
		if s.commands == nil {
			s.commands = make([]Command, 0, newFlowCommands)
		}
		s.commands = append(s.commands, Command{d, m})
	}
}

// dropQueues takes the actions set_queue out of a message.
func dropQueues(m openflow.Message) {
	setsQueue := func(a openflow.Action) bool { _, is := a.(*openflow.ActionSetQueue); return is }
	switch m := m.(type) {
	case *openflow.PacketOut:
		m.Actions = slices.DeleteFunc(slices.Clone(m.Actions), setsQueue)
	case *openflow.FlowMod:
		for i := range m.Instructions {
			if list, ok := m.Instructions[i].(*openflow.InstructionActions); ok {
				m.Instructions[i] = &openflow.InstructionActions{Type: list.Type, Actions: slices.DeleteFunc(slices.Clone(list.Actions), setsQueue)}
			}
		}
	}
}

// isHarmless reports whether a message changes no forwarding. Only such messages may go to
// switches of which this controller is not the master.
func isHarmless(m openflow.Message) bool {
	switch m.(type) {
	case *openflow.MultipartRequest, *openflow.RoleRequest:
		return true
	}
	return false
}

// setUp sends a switch its packet-in meter and the entries that bring LLDP and unmatched
// packets to the controller.
func (s *switches) setUp(sw *switchState) {
	s.send(sw.dpid, &openflow.SetConfig{SwitchConfig: openflow.SwitchConfig{MissSendLen: openflow.OFPCML_NO_BUFFER}})
	if rate := s.cfg.PacketInsPerSecond; rate > 0 {
		s.sendMeter(sw, openflow.OFPM_CONTROLLER, openflow.OFPMF_PKTPS|openflow.OFPMF_BURST, rate, rate)
	}
	lldp := openflow.Match{Fields: []openflow.OXM{openflow.NewOXMNumber(openflow.OFPXMT_OFB_ETH_TYPE, topology.EtherTypeLLDP)}}
	s.send(sw.dpid, flowMod(cookieSetup, openflow.OFPFC_ADD, priorityLLDP, lldp, toController(openflow.OFPCML_NO_BUFFER)))
	miss := flowMod(cookieSetup, openflow.OFPFC_ADD, priorityMiss, openflow.Match{}, toController(openflow.OFPCML_NO_BUFFER))
	miss.TableID = sw.flowTable()
	s.send(sw.dpid, miss)
}

// sendMeter sends a switch a meter that drops what exceeds a rate and a burst, in the units of its
// flags.
func (s *switches) sendMeter(sw *switchState, id openflow.Meter, flags openflow.MeterFlags, rate, burst uint32) {
	// OFPMC_ADD fails if the meter exists from an earlier start, OFPMC_MODIFY if it does not; so
	// exactly one of the two succeeds.
	for _, command := range []openflow.MeterModCommand{openflow.OFPMC_ADD, openflow.OFPMC_MODIFY} {
		s.send(sw.dpid, &openflow.MeterMod{
			Command: command, MeterID: id, Flags: flags, Bands: []openflow.MeterBand{{Type: openflow.OFPMBT_DROP, Rate: rate, BurstSize: burst}},
		})
	}
}

func (s *switches) requestStats(sw *switchState) {
	if sw.asking && s.now.Sub(sw.asked) < patientStats*s.cfg.StatsInterval {
		return
	}
	sw.asked, sw.asking = s.now, sw.connected
	if sw.marks.on {
		s.send(sw.dpid, &openflow.MultipartRequest{Body: &openflow.MeterStatsRequest{MeterID: openflow.OFPM_ALL}})
	}
	s.send(sw.dpid, &openflow.MultipartRequest{Body: &openflow.AggregateStatsRequest{FlowFilter: withCookie(cookieSetup, cookieKindMask)}})
	if sw.marks.on && sw.found != nil { // entries to stations of an earlier controller, too
		s.send(sw.dpid, flowStatsOf(cookieFlow, cookieKept))
	} else {
		s.send(sw.dpid, flowStatsOf(cookieFlow, cookieKindMask))
	}
	s.send(sw.dpid, &openflow.MultipartRequest{Body: &openflow.QueueStatsRequest{PortNo: openflow.OFPP_ANY, QueueID: openflow.OFPQ_ALL}})
	s.send(sw.dpid, &openflow.MultipartRequest{Body: &openflow.PortStatsRequest{PortNo: openflow.OFPP_ANY}})
}

func (s *switches) requestRole(d topology.DPID, role openflow.Role, generation uint64) {
	s.send(d, &openflow.RoleRequest{RoleState: openflow.RoleState{Role: role, GenerationID: generation}})
}

func (s *switches) requestRoles(role openflow.Role, generation uint64) {
	for d := range s.byID {
		s.requestRole(d, role, generation)
	}
}

// obeys reports whether a switch is connected and accepts changes from this controller.
func (sw *switchState) obeys() bool { return sw.connected && sw.master }

// forgetEntries makes all entries that are not of single flows be sent again.
func (sw *switchState) forgetEntries() {
	sw.entries, sw.flooded, sw.fullUntil = map[entryKey]stationEntry{}, map[uint32]flood{}, time.Time{}
	sw.marks.forget()
}

// kept returns a counter's value, or 0 if the switch does not support the counter and
// reports all ones (OpenFlow 1.3.5, section A.3.5.8).
func kept(counter uint64) uint64 {
	if counter == math.MaxUint64 {
		return 0
	}
	return counter
}

func (sw *switchState) countQueues(now time.Time, list []openflow.QueueStats) {
	for _, s := range list {
		p := sw.ports[uint32(s.PortNo)]
		if p == nil {
			continue
		}
		s.TxBytes, s.TxPackets, s.TxErrors = kept(s.TxBytes), kept(s.TxPackets), kept(s.TxErrors)
		q := p.queues[s.QueueID]
		if q == nil {
			if len(p.queues) >= maxQueuesPerPort {
				continue
			}
			q = &QueueCount{at: now}
			p.queues[s.QueueID] = q
		} else if seconds := now.Sub(q.at).Seconds(); seconds > leastRateSeconds && s.TxBytes >= q.TxBytes {
			q.RateBPS = 8 * float64(s.TxBytes-q.TxBytes) / seconds
			q.at = now
		}
		q.TxBytes, q.TxPackets, q.Dropped = s.TxBytes, s.TxPackets, s.TxErrors
	}
}

func (sw *switchState) countPorts(now time.Time, list []openflow.PortStats) {
	for _, s := range list {
		p := sw.ports[uint32(s.PortNo)]
		if p == nil {
			continue
		}
		k := PortCount{TxBytes: kept(s.TxBytes), RxBytes: kept(s.RxBytes), TxDropped: kept(s.TxDropped), at: now}
		if seconds := now.Sub(p.count.at).Seconds(); !p.count.at.IsZero() && seconds > leastRateSeconds {
			k.TxRateBPS, k.RxRateBPS = rateBPS(p.count.TxBytes, k.TxBytes, seconds), rateBPS(p.count.RxBytes, k.RxBytes, seconds)
		} else {
			k.TxRateBPS, k.RxRateBPS = p.count.TxRateBPS, p.count.RxRateBPS
		}
		p.count = k
		p.judge()
	}
}

const (
	// slowPart: queues that drop packets while the port sends less than this part of its rate are slowed
	// down by the link, as when it has another rate than it reports.
	slowPart = 0.8
	// slowTimes is in how many statistics that must be so: a burst also drops packets.
	slowTimes = 3
)

// judge compares what a port has sent with its rate.
func (p *port) judge() {
	dropped := uint64(0)
	for _, q := range p.queues {
		dropped += q.Dropped
	}
	if p.uncapped && dropped > p.dropped && p.count.TxRateBPS < slowPart*float64(p.rateBPS) {
		p.slow++
	} else {
		p.slow = 0
	}
	p.dropped = dropped
}

// slowness says why the link of a port may have less than its rate; empty if nothing says so.
func (p *port) slowness() string {
	if p.slow < slowTimes {
		return ""
	}
	return fmt.Sprintf("its queues drop packets although it sends %s of its %s: if the link has less, say so with --rate %s=RATE",
		policy.FormatRate(uint64(p.count.TxRateBPS)), policy.FormatRate(p.rateBPS), p.desc.Name)
}

// rateBPS returns bits per second between two byte counts, or 0 if the counter restarted.
func rateBPS(before, after uint64, seconds float64) float64 {
	if after < before {
		return 0
	}
	return 8 * float64(after-before) / seconds
}
