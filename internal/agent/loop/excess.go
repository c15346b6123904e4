package loop

import (
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
)

// excess counts a share's EF traffic above its maximum, which the classifier treats as BE
// (ef_within in bpf/uplink.bpf.c).
type excess struct {
	// counted is the kernel's counter at the last reading; known is set after the first one. The
	// counter restarts with the uplink's classifier.
	counted uint64
	known   bool
	// bytes is a total that only grows.
	bytes uint64
	rate  stats.Rate
	// at is the time of the last excess; zero for never or long ago.
	at time.Time
}

// heldFor is how long a share is reported as having too much EF after the last excess. A flow is BE
// for a quarter of a second at a time; the report must not flap with that.
const heldFor = 5 * time.Second

// observe adds a reading of the kernel's counter.
func (e *excess) observe(now time.Time, counted uint64) {
	grown := counted - e.counted
	if counted < e.counted {
		grown = counted
	}
	if !e.known {
		grown = 0
	}
	e.counted, e.known = counted, true
	if grown > 0 {
		e.bytes += grown
		e.at = now
	}
	e.rate.Observe(now, e.bytes)
}

// held reports whether there was an excess within the last heldFor.
func (e *excess) held(now time.Time) bool { return !e.at.IsZero() && now.Sub(e.at) < heldFor }

// countExcess reads the kernel's counter of the share's EF above its maximum.
func (s *share) countExcess(now time.Time) {
	if s.uplink.device.Classifier() == nil {
		return
	}
	offered, err := s.uplink.device.Classifier().ClassOffered(s.container.Number)
	if err != nil {
		return // only the offered bytes are unknown; the sent bytes are not
	}
	s.seen.excess.observe(now, offered.EFExcessBytes)
}

// showExcess adds the excess to the API view of EF.
func (s *share) showExcess(view *v1.ClassShare) {
	e := &s.seen.excess
	view.ExcessBPS, view.ExcessBytes = e.rate.BPS(), e.bytes
	view.Held = e.held(s.uplink.measuredAt)
}

// restExcess resets the rate: the share sends nothing any more.
func (s *share) restExcess() { s.seen.excess.rate = stats.Rate{} }
