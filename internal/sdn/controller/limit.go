package controller

import (
	"encoding/binary"
	"time"

	"golang.org/x/time/rate"

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
	all           *rate.Limiter            // nil: no limit
	lldp          map[uint32]*rate.Limiter // by port
	lldpPerSecond float64
}

func newLimits(cfg *core.Config) limits {
	l := limits{lldp: map[uint32]*rate.Limiter{}, lldpPerSecond: max(lldpPerInterval, lldpPerInterval/cfg.LLDPInterval.Seconds())}
	if cfg.PacketInsPerSecond > 0 {
		l.all = perSecond(2 * float64(cfg.PacketInsPerSecond))
	}
	return l
}

// allow counts a packet-in and reports whether it is within the limits.
func (l *limits) allow(now time.Time, m *openflow.PacketIn) bool {
	in := m.Match.Field(openflow.OFPXMT_OFB_IN_PORT)
	if l.all == nil {
		return true
	}
	if in == nil || len(m.Data) < 14 || binary.BigEndian.Uint16(m.Data[12:]) != topology.EtherTypeLLDP {
		return l.all.AllowN(now, 1)
	}
	b := l.lldp[uint32(in.Number())]
	if b == nil {
		if len(l.lldp) >= core.MaxPorts {
			return false
		}
		b = perSecond(l.lldpPerSecond)
		l.lldp[uint32(in.Number())] = b
	}
	return b.AllowN(now, 1)
}

// perSecond returns a limiter that holds the tokens of one second.
func perSecond(n float64) *rate.Limiter { return rate.NewLimiter(rate.Limit(n), int(n)) }
