package run

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/store"
)

// images records which nodes have which images, and the smoothed rate at which other nodes can
// fetch them: the free uplink rate of the repository's node.
type images struct {
	store *store.Store
	// fetched are images that were fetched, by node and name.
	fetched map[[2]string]bool
	// repository is where nodes reach it; invalid if there is none.
	repository netip.Addr
	// freeBPS is the free rate in bits per second at the time at; 0: unknown.
	freeBPS float64
	at      time.Time
}

func newImages(opts Options) images {
	return images{store: opts.Store, repository: opts.Repository, fetched: map[[2]string]bool{}}
}

// has reports whether a node has fetched an image.
func (m *images) has(node, image string) bool { return m.fetched[[2]string{node, image}] }

// learn records that a node has an image, and stores the transfer time if it was fetched. It calls
// kept with the error.
func (m *images) learn(node, name string, image runtime.Image, kept func(error)) {
	m.fetched[[2]string{node, name}] = true
	if image.Took == 0 {
		return
	}
	known := m.store.StartUp(name)
	known.TransferSeconds, known.ImageBytes = image.Took.Seconds(), image.SizeBytes
	m.store.SetStartUp(name, known, kept)
}

// measurePulls sets the rate at which nodes fetch images. The repository's own node needs no uplink
// for that.
func (m *images) measurePulls(nodes []engine.Node, measured []Measured, now time.Time) {
	home := slices.IndexFunc(measured, func(n Measured) bool { return m.repository.IsValid() && n.Node.Address == m.repository })
	if home < 0 || nodes[home].UplinkBPS == 0 {
		m.freeBPS, m.at = 0, time.Time{}
		return
	}
	rate := float64(nodes[home].UplinkBPS)
	free := max(rate-float64(nodes[home].UplinkSentBPS), rate/100) // others give way to a transfer
	m.freeBPS += (free - m.freeBPS) * engine.SmoothingWeight(now.Sub(m.at).Seconds(), freeSmoothing.Seconds())
	m.at = now
	for i := range nodes {
		if i != home {
			nodes[i].PullBPS = uint64(m.freeBPS)
		}
	}
}
