package stats

import (
	"math"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

const (
	// HistoryInterval is the time between two samples; historySamples is the number kept per share:
	// three minutes.
	HistoryInterval = time.Second
	historySamples  = 180
	// historyShares bounds the memory to 9 MB. Further containers get no history.
	historyShares = 1024
)

// History keeps the recent samples of containers. Recording, the control loop and readers do not
// wait for each other. The zero value is empty.
type History struct {
	mu    sync.Mutex
	rings map[historyKey]*ring
	turn  uint64
}

type historyKey struct {
	containerKey
	startedAt int64
	uplink    string
}

// ring holds the samples of one share; next is the index of the next sample.
type ring struct {
	samples []kept
	next    int
	turn    uint64 // of the last record
	dropped uint64 // at the last record
	marked  uint64
}

// kept is a compact v1.HistorySample.
type kept struct {
	atSeconds, atMilliseconds                  uint32 // since 1970
	entitled, allocated, rate, wanted, backlog float32
	delayP50, delayP99                         float32
	dropped, marked                            uint32
}

// wantsMore represents an unlimited demand.
var wantsMore = float32(math.Inf(1))

func historyOf(c *v1.Container, s *v1.Share) historyKey {
	return historyKey{keyOf(c), c.StartedAt.UnixNano(), s.Uplink}
}

// Record adds a sample of each container, and drops containers that are gone.
func (h *History) Record(now time.Time, s *Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rings == nil {
		h.rings = map[historyKey]*ring{}
	}
	h.turn++
	for i := range s.Containers {
		c := &s.Containers[i]
		for j := range c.Shares {
			share := &c.Shares[j]
			r := h.rings[historyOf(c, share)]
			if r == nil {
				if len(h.rings) >= historyShares {
					continue
				}
				r = &ring{dropped: share.DroppedPackets, marked: share.MarkedPackets}
				h.rings[historyOf(c, share)] = r
			}
			r.add(now, share)
			r.turn = h.turn
		}
	}
	for key, r := range h.rings {
		if r.turn != h.turn {
			delete(h.rings, key)
		}
	}
}

func (r *ring) add(now time.Time, s *v1.Share) {
	one := kept{
		atSeconds: uint32(now.Unix()), atMilliseconds: uint32(now.Nanosecond() / 1e6), entitled: float32(s.EntitledBPS), allocated: float32(s.AllocatedBPS), rate: float32(s.RateBPS),
		wanted: float32(s.WantedBPS), backlog: float32(s.BacklogBytes), delayP50: float32(s.DelayP50MS), delayP99: float32(s.DelayP99MS),
		dropped: more(r.dropped, s.DroppedPackets), marked: more(r.marked, s.MarkedPackets),
	}
	if s.WantsMore {
		one.wanted = wantsMore
	}
	r.dropped, r.marked = s.DroppedPackets, s.MarkedPackets
	if n := len(r.samples); n < historySamples {
		if n == cap(r.samples) { // grow no further than the number of samples kept
			r.samples = append(make([]kept, 0, min(2*n+16, historySamples)), r.samples...)
		}
		r.samples = append(r.samples, one)
		return
	}
	r.samples[r.next] = one
	r.next = (r.next + 1) % historySamples
}

// more returns the growth of a total.
func more(before, now uint64) uint32 {
	return uint32(min(now-min(before, now), math.MaxUint32))
}

// Of returns the samples of a container, oldest first.
func (h *History) Of(c *v1.Container) v1.History {
	seen := v1.History{ID: c.ID, Name: c.Name, Shares: []v1.HistoryShare{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range c.Shares {
		share := v1.HistoryShare{Uplink: c.Shares[i].Uplink, Samples: []v1.HistorySample{}}
		if r := h.rings[historyOf(c, &c.Shares[i])]; r != nil {
			for j := range r.samples {
				share.Samples = append(share.Samples, r.samples[(r.next+j)%len(r.samples)].view())
			}
		}
		seen.Shares = append(seen.Shares, share)
	}
	return seen
}

func (s kept) view() v1.HistorySample {
	view := v1.HistorySample{
		At: time.Unix(int64(s.atSeconds), int64(s.atMilliseconds)*1e6).UTC(), EntitledBPS: whole(s.entitled), AllocatedBPS: whole(s.allocated), RateBPS: whole(s.rate),
		WantsMore: s.wanted == wantsMore, BacklogBytes: whole(s.backlog),
		DelayP50MS: milliseconds(s.delayP50), DelayP99MS: milliseconds(s.delayP99), DroppedPackets: uint64(s.dropped), MarkedPackets: uint64(s.marked),
	}
	if !view.WantsMore {
		view.WantedBPS = whole(s.wanted)
	}
	return view
}

// whole rounds to the seven digits that a float32 holds.
func whole(x float32) uint64 {
	if x == 0 {
		return 0
	}
	unit := math.Pow(10, max(math.Floor(math.Log10(float64(x)))-6, 0))
	return uint64(math.Round(float64(x)/unit) * unit)
}

// milliseconds rounds to microseconds.
func milliseconds(x float32) float64 { return math.Round(float64(x)*1e3) / 1e3 }
