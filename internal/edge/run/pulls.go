package run

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
)

// pulls is at which rate nodes get images from this weir-edge's repository: what the uplink
// of the node that it is on has free, smoothed, as others send now more and now less.
type pulls struct {
	// repository is where nodes reach it; invalid if there is none.
	repository netip.Addr
	// freeBPS is in bits per second, as of at; 0: nobody knows.
	freeBPS float64
	at      time.Time
}

// measure tells nodes, which are those of measured, at which rate they get images. To its own
// node the repository sends nothing over an uplink.
func (p *pulls) measure(nodes []engine.Node, measured []Measured, now time.Time) {
	home := slices.IndexFunc(measured, func(n Measured) bool { return p.repository.IsValid() && n.Node.Address == p.repository })
	if home < 0 || nodes[home].UplinkBPS == 0 {
		*p = pulls{repository: p.repository}
		return
	}
	rate := float64(nodes[home].UplinkBPS)
	free := max(rate-float64(nodes[home].UplinkSentBPS), rate/100) // somebody gives way to who comes
	p.freeBPS += (free - p.freeBPS) * engine.SmoothingWeight(now.Sub(p.at).Seconds(), freeSmoothing.Seconds())
	p.at = now
	for i := range nodes {
		if i != home {
			nodes[i].PullBPS = uint64(p.freeBPS)
		}
	}
}
