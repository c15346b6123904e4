package run

import (
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
)

// freeUplinks are what instances could send from their nodes to proxies of others, in bit/s,
// smoothed: what others send changes from second to second.
type freeUplinks struct {
	at  time.Time
	bps map[uplinkOf]float64
}

// uplinkOf is a node's uplink as one service has it.
type uplinkOf struct{ service, node string }

// freeSmoothing is the time constant.
const freeSmoothing = 5 * time.Second

// take takes what was found at a moment into the means; who is not there is forgotten.
func (f *freeUplinks) take(found map[uplinkOf]float64, now time.Time) {
	weight := engine.SmoothingWeight(now.Sub(f.at).Seconds(), freeSmoothing.Seconds())
	for at, bps := range found {
		if before, known := f.bps[at]; known {
			found[at] = before + (bps-before)*weight
		}
	}
	f.at, f.bps = now, found
}

// of is what one of count instances of a service on a node could send; 0: nobody knows.
func (f *freeUplinks) of(service, node string, count int) uint64 {
	return uint64(f.bps[uplinkOf{service, node}] / float64(max(count, 1)))
}

// freeUplinks is what there is now. Of what others leave a service on a node, what users who
// come to that node get is taken already; what its instances send to other nodes is not, as
// that is what the rest is divided anew by.
func (s *seen) freeUplinks() map[uplinkOf]float64 {
	own, proxied, minimum := map[uplinkOf]float64{}, map[uplinkOf]float64{}, map[uplinkOf]float64{}
	for _, i := range s.input.Instances {
		at := uplinkOf{i.Service, i.Node}
		own[at] += float64(i.SentBPS)
		minimum[at] += float64(i.MinBPS)
	}
	for _, d := range s.input.Demand {
		proxied[uplinkOf{d.Service, d.Node}] += float64(d.SentBPS)
	}
	nodes := map[string]engine.Node{}
	for _, n := range s.input.Nodes {
		nodes[n.Name] = n
	}
	free := map[uplinkOf]float64{}
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
