package core

import (
	"maps"
	"slices"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

// Priorities of flow entries; the highest matching one wins.
const (
	priorityLLDP      = 50000 // LLDP: always to the controller
	priorityBlocked   = 40000 // a port that would close a loop: dropped
	priorityFlow      = 30000 // one flow: its queue and port
	priorityStation   = 100   // everything to one station: BE, and a copy to the controller
	priorityTransit   = 91    // a broadcast from another switch
	priorityBroadcast = 90    // a broadcast of a station
	priorityMiss      = 0     // all else: to the controller
)

// Cookies mark Weir's entries: 16 bits of magic, 8 bits for the kind of entry, 40 bits of
// the flow number, by which a controller recognizes flows after a restart.
const (
	cookieMagic     = uint64(0x5765) << 48
	cookieMagicMask = uint64(0xffff) << 48
	cookieKindMask  = cookieMagicMask | uint64(0xff)<<40
	cookieIDMask    = uint64(1)<<40 - 1

	cookieSetup   = cookieMagic | 1<<40 // LLDP, broadcasts, the table miss
	cookieStation = cookieMagic | 2<<40
	cookieFlow    = cookieMagic | 3<<40
	cookieBlocked = cookieMagic | 4<<40
	cookieMark    = cookieMagic | 5<<40         // how packets of a port are treated
	cookieSource  = cookieMagic | 6<<40         // a station behind a trusted port
	cookiePromise = cookieMagic | 7<<40         // a promised minimum
	cookieKept    = cookieKindMask &^ (1 << 40) // covers cookieStation and cookieFlow
)

// copyBytes is how many bytes of a packet the controller gets: enough for all headers that
// it parses.
const copyBytes = 160

func inPort(number uint32) openflow.OXM {
	return openflow.NewOXMNumber(openflow.OFPXMT_OFB_IN_PORT, uint64(number))
}

// group returns the match field for all group (multicast and broadcast) MAC addresses.
func group() openflow.OXM {
	return openflow.NewOXM(openflow.OFPXMT_OFB_ETH_DST, []byte{1, 0, 0, 0, 0, 0}, []byte{1, 0, 0, 0, 0, 0})
}

// maxMatchFields and maxMatchBytes are the size of the longest match: an IPv6 TCP or UDP
// flow.
const (
	maxMatchFields = 10
	maxMatchBytes  = 4 + 6 + 6 + 2 + 2 + 1 + 16 + 16 + 2 + 2
)

// match returns the exact match of a flow that enters at a port.
func (k *Key) match(in uint32) openflow.Match {
	return k.matchIn(make([]openflow.OXM, 0, maxMatchFields), make([]byte, 0, maxMatchBytes), in)
}

// matchIn is match with memory provided by the caller.
func (k *Key) matchIn(fields []openflow.OXM, values []byte, in uint32) openflow.Match {
	add := func(f openflow.OXMField, value ...byte) {
		start := len(values)
		values = append(values, value...)
		fields = append(fields, openflow.NewOXM(f, values[start:], nil))
	}
	add16 := func(f openflow.OXMField, v uint16) { add(f, byte(v>>8), byte(v)) }
	add(openflow.OFPXMT_OFB_IN_PORT, byte(in>>24), byte(in>>16), byte(in>>8), byte(in))
	add(openflow.OFPXMT_OFB_ETH_DST, k.DstMAC[:]...)
	add(openflow.OFPXMT_OFB_ETH_SRC, k.SrcMAC[:]...)
	add16(openflow.OFPXMT_OFB_ETH_TYPE, k.EtherType)
	add16(openflow.OFPXMT_OFB_VLAN_VID, k.VLAN)
	if k.Proto == 0 {
		return openflow.Match{Fields: fields}
	}
	add(openflow.OFPXMT_OFB_IP_PROTO, k.Proto)
	if !k.ported() && !k.addressed() {
		return openflow.Match{Fields: fields}
	}
	if k.Src.IPv6 {
		add(openflow.OFPXMT_OFB_IPV6_SRC, k.Src.Addr[:]...)
		add(openflow.OFPXMT_OFB_IPV6_DST, k.Dst.Addr[:]...)
	} else {
		add(openflow.OFPXMT_OFB_IPV4_SRC, k.Src.Addr[:4]...)
		add(openflow.OFPXMT_OFB_IPV4_DST, k.Dst.Addr[:4]...)
	}
	if !k.ported() {
		return openflow.Match{Fields: fields}
	}
	src, dst := openflow.OFPXMT_OFB_TCP_SRC, openflow.OFPXMT_OFB_TCP_DST
	if k.Proto == flow.UDP {
		src, dst = openflow.OFPXMT_OFB_UDP_SRC, openflow.OFPXMT_OFB_UDP_DST
	}
	add16(src, k.Src.Port)
	add16(dst, k.Dst.Port)
	return openflow.Match{Fields: fields}
}

// keyOf returns the key and ingress port of a match made by match; false for other matches.
func keyOf(m *openflow.Match) (k Key, in uint32, ok bool) {
	ports := 0
	for i := range m.Fields {
		x := &m.Fields[i]
		if x.Class != openflow.OFPXMC_OPENFLOW_BASIC || x.Mask != nil {
			return k, 0, false
		}
		switch x.Field {
		case openflow.OFPXMT_OFB_IN_PORT:
			in = uint32(x.Number())
		case openflow.OFPXMT_OFB_ETH_DST:
			copy(k.DstMAC[:], x.Value)
		case openflow.OFPXMT_OFB_ETH_SRC:
			copy(k.SrcMAC[:], x.Value)
		case openflow.OFPXMT_OFB_ETH_TYPE:
			k.EtherType = uint16(x.Number())
		case openflow.OFPXMT_OFB_VLAN_VID:
			k.VLAN = uint16(x.Number())
		case openflow.OFPXMT_OFB_IP_PROTO:
			k.Proto = uint8(x.Number())
		case openflow.OFPXMT_OFB_IPV4_SRC, openflow.OFPXMT_OFB_IPV6_SRC:
			copy(k.Src.Addr[:], x.Value)
			k.Src.IPv6 = len(x.Value) == 16
		case openflow.OFPXMT_OFB_IPV4_DST, openflow.OFPXMT_OFB_IPV6_DST:
			copy(k.Dst.Addr[:], x.Value)
			k.Dst.IPv6 = len(x.Value) == 16
		case openflow.OFPXMT_OFB_TCP_SRC, openflow.OFPXMT_OFB_UDP_SRC:
			k.Src.Port = uint16(x.Number())
			ports++
		case openflow.OFPXMT_OFB_TCP_DST, openflow.OFPXMT_OFB_UDP_DST:
			k.Dst.Port = uint16(x.Number())
			ports++
		default:
			return k, 0, false
		}
	}
	return k, in, in != 0 && k.ported() == (ports == 2)
}

func apply(actions ...openflow.Action) []openflow.Instruction {
	return []openflow.Instruction{&openflow.InstructionActions{Type: openflow.OFPIT_APPLY_ACTIONS, Actions: actions}}
}

// through returns the actions that send a packet to a queue of a port (the paper's "enqueue
// = x : y").
func through(queue openflow.Queue, port uint32) []openflow.Action {
	return []openflow.Action{&openflow.ActionSetQueue{QueueID: queue}, &openflow.ActionOutput{Port: openflow.Port(port)}}
}

func toController(length openflow.PacketLen) openflow.Action {
	return &openflow.ActionOutput{Port: openflow.OFPP_CONTROLLER, MaxLen: length}
}

func flowMod(cookie uint64, command openflow.FlowModCommand, priority uint16, match openflow.Match, actions ...openflow.Action) *openflow.FlowMod {
	m := &openflow.FlowMod{
		Cookie: cookie, Command: command, Priority: priority, Match: match,
		BufferID: openflow.OFP_NO_BUFFER, OutPort: openflow.OFPP_ANY, OutGroup: openflow.OFPG_ANY,
	}
	if actions != nil {
		m.Instructions = apply(actions...)
	}
	return m
}

// deleteFlows returns a message that deletes the entries whose cookie matches under a mask.
func deleteFlows(cookie, mask uint64, fields ...openflow.OXM) *openflow.FlowMod {
	m := flowMod(cookie, openflow.OFPFC_DELETE, 0, openflow.Match{Fields: fields})
	m.CookieMask, m.TableID = mask, openflow.OFPTT_ALL
	return m
}

// flowStatsOf returns a request for the statistics of the entries whose cookie matches
// under a mask.
func flowStatsOf(cookie, mask uint64) openflow.Message {
	return &openflow.MultipartRequest{Body: &openflow.FlowStatsRequest{FlowFilter: withCookie(cookie, mask)}}
}

// withCookie selects the entries whose cookie matches under a mask.
func withCookie(cookie, mask uint64) openflow.FlowFilter {
	filter := openflow.EveryFlow()
	filter.Cookie, filter.CookieMask = cookie, mask
	return filter
}

func packetOut(in uint32, data []byte, actions ...openflow.Action) *openflow.PacketOut {
	return &openflow.PacketOut{BufferID: openflow.OFP_NO_BUFFER, InPort: openflow.Port(in), Actions: actions, Data: data}
}

// QueueMap gives the queue of each traffic class.
type QueueMap [apps.NumLevels]openflow.Queue

// DefaultQueues returns the queues that package ovsdb configures. Queue 0 also carries
// traffic without a queue.
func DefaultQueues() QueueMap { return QueueMap{apps.EF: 2, apps.AF: 1, apps.BE: 0} }

// level returns the class of a queue.
func (q *QueueMap) level(queue openflow.Queue) apps.Level {
	for l, id := range q {
		if id == queue {
			return apps.Level(l)
		}
	}
	return apps.BE
}

// TypeQueue is the dedicated queue of an application type, with the type's class.
type TypeQueue struct {
	Queue openflow.Queue
	Level apps.Level
}

// queue returns the queue of a verdict: the dedicated queue of its application type if
// there is one and the type is certain, otherwise the queue of its class.
func (c *Config) queue(v Verdict) openflow.Queue {
	if v.kept != 0 {
		return v.kept
	}
	if q, ok := c.TypeQueues[v.Type]; ok && q.Level == v.Level {
		return q.Queue
	}
	return c.Queues[v.Level]
}

// found returns the verdict of an adopted flow, derived from its queue.
func (c *Config) found(queue openflow.Queue) Verdict {
	v := Verdict{Level: c.Queues.level(queue), Type: -1}
	if level, ok := c.levelOfTypes(queue); ok && !slices.Contains(c.Queues[:], queue) {
		v.Level, v.kept = level, queue
	}
	return v
}

// levelOfTypes returns the class of the first application type with this dedicated queue.
func (c *Config) levelOfTypes(queue openflow.Queue) (apps.Level, bool) {
	for _, i := range slices.Sorted(maps.Keys(c.TypeQueues)) {
		if c.TypeQueues[i].Queue == queue {
			return c.TypeQueues[i].Level, true
		}
	}
	return apps.BE, false
}

// ClassOf returns the traffic class of a queue; false if no class uses it.
func (c *Config) ClassOf(queue openflow.Queue) (apps.Level, bool) {
	if i := slices.Index(c.Queues[:], queue); i >= 0 {
		return apps.Level(i), true
	}
	return c.levelOfTypes(queue)
}

// queueAndPort returns the queue and output port of an entry, the inverse of through.
func queueAndPort(instructions []openflow.Instruction) (queue openflow.Queue, port uint32) {
	for _, i := range instructions {
		list, ok := i.(*openflow.InstructionActions)
		if !ok {
			continue
		}
		for _, a := range list.Actions {
			switch a := a.(type) {
			case *openflow.ActionSetQueue:
				queue = a.QueueID
			case *openflow.ActionOutput:
				if a.Port != openflow.OFPP_CONTROLLER {
					port = uint32(a.Port)
				}
			}
		}
	}
	return queue, port
}
