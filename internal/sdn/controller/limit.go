package controller

import (
	"encoding/binary"
	"time"

	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// lldpPerInterval limits the LLDP frames of one port per LLDP interval. A link delivers two
// frames of Weir; a bridge one per port connected to it.
const lldpPerInterval = 32

// limits are rate limits for the packet-ins of a switch without a meter. LLDP is limited
// per port, so that packets of stations cannot crowd out link discovery.
type limits struct {
	all           bucket
	lldp          map[uint32]*bucket // by port
	lldpPerSecond float64
}

func newLimits(cfg *core.Config) limits {
	return limits{
		all: bucket{perSecond: 2 * float64(cfg.PacketInsPerSecond)}, lldp: map[uint32]*bucket{},
		lldpPerSecond: max(lldpPerInterval, lldpPerInterval/cfg.LLDPInterval.Seconds()),
	}
}

// allow counts a packet-in and reports whether it is within the limits.
func (l *limits) allow(now time.Time, m *openflow.PacketIn) bool {
	in := m.Match.Field(openflow.OFPXMT_OFB_IN_PORT)
	if l.all.perSecond == 0 || in == nil || len(m.Data) < 14 || binary.BigEndian.Uint16(m.Data[12:]) != topology.EtherTypeLLDP {
		return l.all.take(now)
	}
	b := l.lldp[uint32(in.Number())]
	if b == nil {
		if len(l.lldp) >= core.MaxPorts {
			return false
		}
		b = &bucket{perSecond: l.lldpPerSecond}
		l.lldp[uint32(in.Number())] = b
	}
	return b.take(now)
}

// bucket is a token bucket that holds the tokens of one second.
type bucket struct {
	perSecond, level float64
	at               time.Time
}

// take takes a token and reports whether there was one. A rate of 0 means no limit.
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
