package run

import (
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
)

// freeUplinks is the smoothed rate, in bit/s, that a service's instances on a node could send to
// proxies on other nodes.
type freeUplinks struct {
	at  time.Time
	bps map[entry]float64
}

// freeSmoothing is the time constant.
const freeSmoothing = 5 * time.Second

// smooth adds the rates measured now to the means and drops nodes that were not measured.
func (f *freeUplinks) smooth(found map[entry]float64, now time.Time) {
	weight := engine.SmoothingWeight(now.Sub(f.at).Seconds(), freeSmoothing.Seconds())
	for at, bps := range found {
		if before, known := f.bps[at]; known {
			found[at] = before + (bps-before)*weight
		}
	}
	f.at, f.bps = now, found
}

// perInstance returns the free rate of each of count instances on a node; 0: unknown.
func (f *freeUplinks) perInstance(service, node string, count int) uint64 {
	return uint64(f.bps[entry{service, node}] / float64(max(count, 1)))
}

// freeUplinks returns the rate that others leave to a service on a node, less what its proxy there
// sends. Its instances' traffic to other nodes counts as free, because the result redistributes it.
func (o *observation) freeUplinks() map[entry]float64 {
	own, proxied, minimum := map[entry]float64{}, map[entry]float64{}, map[entry]float64{}
	for _, i := range o.input.Instances {
		at := entry{i.Service, i.Node}
		own[at] += float64(i.SentBPS)
		minimum[at] = float64(o.promises.ClaimBPS(engine.Entry{Service: i.Service, Node: i.Node}))
	}
	for _, d := range o.input.Demand {
		proxied[entry{d.Service, d.Node}] += float64(d.SentBPS)
	}
	nodes := map[string]engine.Node{}
	for _, n := range o.input.Nodes {
		nodes[n.Name] = n
	}
	free := map[entry]float64{}
	for at := range own {
		n := nodes[at.node]
		if n.UplinkBPS == 0 {
			continue
		}
		rate := float64(n.UplinkBPS)
		left := engine.UplinkLeftBPS(rate, float64(n.UplinkSentBPS), own[at]+proxied[at], minimum[at])
		free[at] = max(left-proxied[at], rate/100)
	}
	return free
}
