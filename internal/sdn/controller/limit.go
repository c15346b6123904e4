package controller

import (
	"encoding/binary"
	"time"

	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// lldpPerInterval bounds the LLDP of one port: a link brings two frames of Weir's,
// a bridge one of each port that leads to it.
const lldpPerInterval = 32

// allowed tells whether a packet-in is within bounds. LLDP has one of its own, for
// each port: what hosts send must not cost links.
func (s *conn) allowed(now time.Time, m *openflow.PacketIn) bool {
	in := m.Match.Field(openflow.OFPXMT_OFB_IN_PORT)
	if s.bucket.perSecond == 0 || in == nil || len(m.Data) < 14 || binary.BigEndian.Uint16(m.Data[12:]) != topology.EtherTypeLLDP {
		return s.bucket.take(now)
	}
	b := s.lldp[uint32(in.Number())]
	if b == nil {
		if len(s.lldp) >= core.MaxPorts {
			return false
		}
		b = &bucket{perSecond: max(lldpPerInterval, lldpPerInterval/s.c.options.Core.LLDPInterval.Seconds())}
		s.lldp[uint32(in.Number())] = b
	}
	return b.take(now)
}

// bucket bounds packet-ins where a switch's meter does not.
type bucket struct {
	perSecond, level float64
	at               time.Time
}

// take tells whether one more is allowed; a rate of 0 allows all. The bucket
// holds one second.
func (b *bucket) take(now time.Time) bool {
	if b.perSecond == 0 {
		return true
	}
	if b.at.IsZero() {
		b.level = b.perSecond
	} else {
		b.level = min(b.level+b.perSecond*now.Sub(b.at).Seconds(), b.perSecond)
	}
	b.at = now
	if b.level < 1 {
		return false
	}
	b.level--
	return true
}
