package agent

import (
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/stats"
)

// excess is what of a share's EF was above its maximum, and so competed as BE
// (ef_within in bpf/uplink.bpf.c).
type excess struct {
	// counted is what the kernel had counted when it was read last, known says that it
	// was. It begins anew with the uplink's classifier.
	counted uint64
	known   bool
	// bytes only grow.
	bytes uint64
	rate  stats.Rate
	// at is when there was some; zero for never, or long ago.
	at time.Time
}

// heldFor is how long a share is said to have too much EF after it had: a flow is BE
// for a quarter of a second at a time, and what is told is not to come and go with that.
const heldFor = 5 * time.Second

// observe takes in what the kernel counted until now.
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

// held says whether there was some within the last seconds.
func (e *excess) held(now time.Time) bool { return !e.at.IsZero() && now.Sub(e.at) < heldFor }

// countExcess reads what of the share's EF was above its maximum.
func (s *share) countExcess(now time.Time) {
	if s.uplink.classifier == nil {
		return
	}
	offered, err := s.uplink.classifier.ClassOffered(s.number)
	if err != nil {
		return // what was offered is not known; what is sent still is
	}
	s.seen.excess.observe(now, offered.EFExcessBytes)
}

// showExcess puts it into what is shown of EF.
func (s *share) showExcess(view *v1.ClassShare) {
	e := &s.seen.excess
	view.ExcessBPS, view.ExcessBytes = e.rate.BPS(), e.bytes
	view.Held = e.held(s.uplink.measuredAt)
}

// restExcess says that nothing is sent any more.
func (s *share) restExcess() { s.seen.excess.rate = stats.Rate{} }
