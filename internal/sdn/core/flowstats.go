package core

import (
	"math"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// count updates a flow's counters from its first entry and reports whether packets arrived.
// It handles counters that restart and ignores all-ones values, which mean that the switch
// does not count.
func (l *flows) count(f *Flow, packets, bytes uint64) (grew bool) {
	if packets == math.MaxUint64 || bytes == math.MaxUint64 {
		return false
	}
	if packets+f.earlier.packets < f.Packets || bytes+f.earlier.bytes < f.Bytes {
		f.earlier.packets, f.earlier.bytes = f.Packets, f.Bytes
	}
	packets, bytes = packets+f.earlier.packets, bytes+f.earlier.bytes
	t := &l.totals[f.Verdict.Level]
	t.Packets += packets - f.Packets
	t.Bytes += bytes - f.Bytes
	least := leastRateSeconds
	if f.judged.Level == apps.EF { // counted more often than rates are of use
		least = max(least, l.cfg.StatsInterval.Seconds()/2)
	}
	if seconds := l.now.Sub(f.rated.at).Seconds(); seconds > least {
		f.RateBPS = 8 * float64(bytes-f.rated.bytes) / seconds
		f.PacketRate = float64(packets-f.rated.packets) / seconds
		f.rated = reading{l.now, packets, bytes}
	}
	grew = packets > f.Packets
	if since := l.now.Sub(f.loan.at); f.judged.Level == apps.EF && (grew || since >= counterLag) {
		f.loan.bulk = f.loan.policer.Sent(since, packets-f.Packets, bytes-f.Bytes)
		f.loan.at = l.now
	}
	if grew {
		f.active = l.now
		if s := l.stations.byMAC[f.Key.SrcMAC]; s != nil {
			s.seen = l.now
		}
	}
	f.Packets, f.Bytes = packets, bytes
	return grew
}

// takeStats handles the statistics of one entry. For the first entry of a flow's path it
// returns the flow and whether packets arrived.
func (l *flows) takeStats(sw *switchState, s *openflow.FlowStats) (f *Flow, grew bool) {
	if s.Cookie&cookieKindMask != cookieFlow {
		return nil, false
	}
	if f = l.byID[s.Cookie&cookieIDMask]; f == nil {
		f = l.adopt(sw, s)
	}
	field := s.Match.Field(openflow.OFPXMT_OFB_IN_PORT)
	if f == nil || field == nil {
		return nil, false
	}
	at := topology.Port{Switch: sw.dpid, Number: uint32(field.Number())}
	if sw.found != nil && sw.master {
		l.compare(sw, f, at.Number, s)
	}
	if f.ingress() != at {
		return nil, false
	}
	grew = l.count(f, s.PacketCount, s.ByteCount)
	f.sent = later(f.sent, sw.asked) // the switch has the entry
	return f, grew
}

// compare corrects an entry that a switch kept while disconnected, if the flow has since
// got another path or class.
func (l *flows) compare(sw *switchState, f *Flow, in uint32, s *openflow.FlowStats) {
	i := slices.IndexFunc(f.Path, func(h topology.Hop) bool { return h.Switch == sw.dpid && h.In == in })
	if i < 0 {
		if !f.adopted { // its path is known
			l.deleteEntries(f, sw.dpid, inPort(in))
		}
		return
	}
	sw.found[f.ID] = true
	if queue, out := queueAndPort(s.Instructions); queue != l.cfg.queue(f.Verdict) || out != outOf(f.Path[i]) && out != f.Path[i].Out {
		l.installAt(f, f.Path[i])
	}
}

// endStats handles the end of a switch's statistics. It drops flows whose first entry is
// missing there, and resends entries that a transit switch lost before it connected. For
// routed flows nothing else would resend them, since transit packets do not name the flow.
func (l *flows) endStats(sw *switchState) {
	for _, f := range slices.Clone(sw.ingress) {
		if f.sent.Before(sw.asked) {
			l.drop(f)
		}
	}
	if sw.found == nil || !sw.obeys() {
		return
	}
	for _, f := range l.byKey {
		for i, hop := range f.Path {
			if i > 0 && hop.Switch == sw.dpid && !sw.found[f.ID] {
				l.installAt(f, hop)
			}
		}
	}
	sw.found = nil
}

// adopt takes over a flow of an earlier start or another controller. The entry's cookie and
// queue give its number and class; the entry stays unchanged.
func (l *flows) adopt(sw *switchState, s *openflow.FlowStats) *Flow {
	k, in, ok := keyOf(&s.Match)
	queue, out := queueAndPort(s.Instructions)
	id := s.Cookie & cookieIDMask
	switch {
	case !ok || out == 0 || l.leaving[id] != nil || s.TableID != sw.flowTable():
		return nil
	case l.byKey[k] != nil || len(l.byKey) >= l.cfg.MaxFlows:
		l.disown(s.Cookie)
		return nil
	case s.Flags&openflow.OFPFF_SEND_FLOW_REM == 0: // not the first switch of the path
		return nil
	}
	v := l.cfg.found(queue)
	f := &Flow{
		ID: id, Key: k, Verdict: v, judged: v,
		Began: l.now.Add(-time.Duration(s.DurationSec) * time.Second), active: l.now, loan: loan{at: l.now}, sent: l.now,
		// Earlier packets were counted by another controller.
		Packets: s.PacketCount, Bytes: s.ByteCount, rated: reading{l.now, s.PacketCount, s.ByteCount}, adopted: true, next: nextHopOf(s.Instructions),
	}
	l.remember(f)
	l.setPath(f, []topology.Hop{{Switch: sw.dpid, In: in, Out: out}})
	return f
}

// disown deletes the entries of a flow that is not adopted, because there is no room or the
// flow is known elsewhere. Otherwise they would stay while packets arrive, and might lead
// to a station's old port.
func (l *flows) disown(cookie uint64) {
	for d := range l.switches.byID {
		l.switches.send(d, deleteFlows(cookie, ^uint64(0)))
	}
}

// lookAgain applies the second look to a flow and its reverse, and changes their entries
// without resetting counters.
func (l *flows) lookAgain(f *Flow) {
	back := l.byKey[f.back()]
	judged := f.secondLook(back)
	l.judge(f, judged)
	v := f.inForce(back)
	if v == f.Verdict {
		return
	}
	l.counters.Reclassified++
	for _, one := range []*Flow{f, back} {
		if one == nil {
			continue
		}
		one.Verdict = v
		l.judge(one, judged)
		for _, hop := range one.Path {
			if sw := l.switches.byID[hop.Switch]; sw != nil {
				match, actions := one.entry(hop, l.cfg.queue(v))
				l.switches.send(hop.Switch, l.marks.entryOf(sw, one, flowMod(cookieFlow|one.ID, openflow.OFPFC_MODIFY_STRICT, priorityFlow, match, actions...)))
			}
		}
	}
}

// judge sets what a flow is judged.
func (l *flows) judge(f *Flow, v Verdict) {
	was := f.judged
	if f.judged = v; was.Level != apps.EF {
		l.watched.begin(f)
	}
}

// Thresholds of the second look.
const (
	lookPackets       = 64    // packets before means are judged
	voiceFrameBytes   = 320   // G.711 in 20 ms packets has 214 bytes on the wire
	voicePacketsLow   = 10.0  // packets per second: one in 100 ms
	voicePacketsHigh  = 110.0 // one in 10 ms, with some more
	voiceSymmetryMost = 2.0   // packets of one direction per packet of the other, at most
)

// The second look judges a flow by its statistics. Following the paper (section III.B.1: packet
// size, number and interval), two rules need no training:
//
//   - a flow of class EF that sends as a transfer does (apps.EFPolicer) is BE for as long as
//     it does, and so is its reverse (inForce);
//   - unknown UDP (BE) of small packets, 10 to 110 a second in both
//     directions, is a conversation: EF (secondLook). A flow becomes that once.
var (
	bulkTransfer = Verdict{Level: apps.BE, Type: typeBulk, Confidence: 1, Second: true}
	conversation = Verdict{Level: apps.EF, Type: typeVoIP, Confidence: 1, Second: true}
)

// inForce returns the verdict in force of a flow, given its reverse or nil.
func (f *Flow) inForce(back *Flow) Verdict {
	if f.judged.Level == apps.EF && (f.loan.bulk || back != nil && back.loan.bulk) {
		return bulkTransfer
	}
	return f.judged
}

// secondLook returns what a flow is judged by its statistics and those of its reverse, which may
// be nil.
func (f *Flow) secondLook(back *Flow) Verdict {
	if f.judged.Second || f.judged.Level != apps.BE || f.Key.Proto != flow.UDP || back == nil || min(f.Packets, back.Packets) < lookPackets {
		return f.judged
	}
	if isSteady(f) && isSteady(back) && f.PacketRate <= voiceSymmetryMost*back.PacketRate && back.PacketRate <= voiceSymmetryMost*f.PacketRate {
		return conversation
	}
	return f.judged
}

func isSteady(f *Flow) bool {
	return float64(f.Bytes)/float64(f.Packets) <= voiceFrameBytes && f.PacketRate >= voicePacketsLow && f.PacketRate <= voicePacketsHigh
}

// Indexes into apps.Types.
const (
	typeVoIP = 0
	typeBulk = 8
)
