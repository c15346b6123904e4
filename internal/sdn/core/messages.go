package core

import (
	"maps"
	"slices"

	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/appid/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

// Priorities of entries, the first that matches wins.
const (
	priorityLLDP      = 50000 // LLDP: always to the controller
	priorityBlocked   = 40000 // a port that would close a circle: dropped
	priorityFlow      = 30000 // one flow: its queue and port
	priorityHost      = 100   // everything to one host: BE, and a copy to the controller
	priorityTransit   = 91    // a broadcast from another switch
	priorityBroadcast = 90    // a broadcast of a host
	priorityMiss      = 0     // all else: to the controller
)

// Cookies mark what is Weir's: 16 bits of magic, 8 of the kind of entry, 40 of a
// flow's number. They are how a controller knows its flows again after a restart.
const (
	cookieMagic     = uint64(0x5765) << 48
	cookieMagicMask = uint64(0xffff) << 48
	cookieKindMask  = cookieMagicMask | uint64(0xff)<<40
	cookieIDMask    = uint64(1)<<40 - 1

	cookieSetup = cookieMagic | 1<<40 // LLDP, broadcasts, the table miss
	cookieHost  = cookieMagic | 2<<40
	cookieFlow  = cookieMagic | 3<<40

	cookieBlocked = cookieMagic | 4<<40
)

// copyBytes is how much of a packet a copy for the controller has: all headers
// that are looked at.
const copyBytes = 160

func number(f openflow.OXMField, v uint64) openflow.OXM { return openflow.NewOXMNumber(f, v) }

// maxMatchFields and maxMatchBytes are what the longest match takes: of a TCP or UDP flow
// of IPv6.
const (
	maxMatchFields = 10
	maxMatchBytes  = 4 + 6 + 6 + 2 + 2 + 1 + 16 + 16 + 2 + 2
)

// match is the exact match of a flow that comes in at a port.
func (k *Key) match(in uint32) openflow.Match {
	return k.matchIn(make([]openflow.OXM, 0, maxMatchFields), make([]byte, 0, maxMatchBytes), in)
}

// matchIn is match in memory that is given.
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

// keyOf is the opposite of match; false if the match is none of these.
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

// through is the queue and the port of a packet: the paper's "enqueue = x : y".
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

// deleteFlows takes away entries of a cookie under a mask.
func deleteFlows(cookie, mask uint64, fields ...openflow.OXM) *openflow.FlowMod {
	m := flowMod(cookie, openflow.OFPFC_DELETE, 0, openflow.Match{Fields: fields})
	m.CookieMask, m.TableID = mask, openflow.OFPTT_ALL
	return m
}

// flowStatsOf asks for the statistics of the entries whose cookie is this one
// under a mask.
func flowStatsOf(cookie, mask uint64) openflow.Message {
	filter := openflow.EveryFlow()
	filter.Cookie, filter.CookieMask = cookie, mask
	return &openflow.MultipartRequest{Body: &openflow.FlowStatsRequest{FlowFilter: filter}}
}

func packetOut(in uint32, data []byte, actions ...openflow.Action) *openflow.PacketOut {
	return &openflow.PacketOut{BufferID: openflow.OFP_NO_BUFFER, InPort: openflow.Port(in), Actions: actions, Data: data}
}

// QueueMap is which queue of a port each level has.
type QueueMap [appid.NumLevels]openflow.Queue

// DefaultQueues are the queues that package ovsdb makes: 0 is what everything
// else goes to.
func DefaultQueues() QueueMap { return QueueMap{appid.EF: 2, appid.AF: 1, appid.BE: 0} }

// level is the level of a queue.
func (q *QueueMap) level(queue openflow.Queue) appid.Level {
	for l, id := range q {
		if id == queue {
			return appid.Level(l)
		}
	}
	return appid.BE
}

// TypeQueue is the queue that an application type has for itself, and the level
// of the type.
type TypeQueue struct {
	Queue openflow.Queue
	Level appid.Level
}

// queue is the queue of a verdict: that of its application type if that has one of
// its own and the verdict is sure of it, otherwise that of its level.
func (c *Config) queue(v Verdict) openflow.Queue {
	if v.kept != 0 {
		return v.kept
	}
	if q, ok := c.TypeQueues[v.Type]; ok && q.Level == v.Level {
		return q.Queue
	}
	return c.Queues[v.Level]
}

// found is the verdict on a flow that is found in a queue.
func (c *Config) found(queue openflow.Queue) Verdict {
	v := Verdict{Level: c.Queues.level(queue), Type: -1}
	if level, ok := c.levelOfTypes(queue); ok && !slices.Contains(c.Queues[:], queue) {
		v.Level, v.kept = level, queue
	}
	return v
}

// levelOfTypes is the level of the first application type that has a queue.
func (c *Config) levelOfTypes(queue openflow.Queue) (appid.Level, bool) {
	for _, i := range slices.Sorted(maps.Keys(c.TypeQueues)) {
		if c.TypeQueues[i].Queue == queue {
			return c.TypeQueues[i].Level, true
		}
	}
	return appid.BE, false
}

// ClassOf is the level that a queue is for; false if it is nobody's.
func (c *Config) ClassOf(queue openflow.Queue) (appid.Level, bool) {
	if i := slices.Index(c.Queues[:], queue); i >= 0 {
		return appid.Level(i), true
	}
	return c.levelOfTypes(queue)
}

// queueAndPort are what entries made with through say.
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
