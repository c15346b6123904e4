package core

import (
	"slices"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Between the statistics of all entries (StatsInterval) a transfer that goes first would delay urgent
// flows for seconds. So the counters of each flow of EF are requested at every tick, by its cookie,
// which switches find without a search. The requests to a switch are bounded; where there are more
// flows of EF than requests, they take turns, and those that are silent for long miss some.
const (
	// WatchXID is the transaction identifier of these requests: their replies are no end of statistics.
	WatchXID = 1<<32 - 1
	// watchRequests is the number of requests to one switch in a tick.
	watchRequests = 32
	// watchTicks is the number of ticks until the next request, at most.
	watchTicks = 64
	// silentPart: a flow that misses its turns is requested again after 1/silentPart of its silence.
	silentPart = 2
	// counterLag is how long a switch may take to bring its counters up to date; for Open vSwitch it
	// is half a second. What they grow by at once may have been sent in all that time.
	counterLag = time.Second
)

// watched is a timing wheel of the flows of EF. Flows that ended are found out when they are due.
type watched struct {
	due    [watchTicks][]uint64 // flow numbers
	missed []uint64             // due earlier, and without a request yet
	tick   int
	on     bool // there is a second look
}

// begin adds a flow that is judged EF.
func (w *watched) begin(f *Flow) {
	if w.on && f.judged.Level == apps.EF {
		w.add(f.ID, 1)
	}
}

func (w *watched) add(id uint64, ticks int) {
	slot := &w.due[(w.tick+min(max(ticks, 1), watchTicks-1))%watchTicks]
	*slot = append(*slot, id)
}

// next returns the flows that are due at the next tick, those first that missed their turn.
func (w *watched) next() []uint64 {
	w.tick = (w.tick + 1) % watchTicks
	due := slices.Concat(w.missed, w.due[w.tick])
	w.due[w.tick], w.missed = nil, nil
	return due
}

// requestWatched requests the counters of the flows of EF that are due.
func (l *flows) requestWatched() {
	requests := map[topology.DPID]int{}
	var requested []*Flow
	for _, id := range l.watched.next() {
		f := l.byID[id]
		if f == nil || f.judged.Level != apps.EF {
			continue
		}
		d := f.Path[0].Switch
		switch sw := l.switches.byID[d]; {
		case sw == nil || !sw.obeys() || f.Verdict.Level != apps.EF: // statistics tell when it is EF again
			l.watched.add(id, 1)
		case requests[d] == watchRequests:
			l.watched.missed = append(l.watched.missed, id)
		default:
			requests[d]++
			requested = append(requested, f)
			request := &openflow.MultipartRequest{Body: &openflow.FlowStatsRequest{FlowFilter: withCookie(cookieFlow|id, ^uint64(0))}}
			request.XID = WatchXID
			l.switches.send(d, request)
		}
	}
	for _, f := range requested {
		ticks := 1
		if len(l.watched.missed) > 0 {
			ticks = int(l.now.Sub(f.active) / silentPart / (l.cfg.LLDPInterval / LLDPParts))
		}
		l.watched.add(f.ID, ticks)
	}
}
