package core

import (
	"cmp"
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
	// watchTotal is the number of requests to all switches in a tick, which bounds what they cost: divide
	// gives each switch its part.
	watchTotal = 512
	// WatchParts is the number of parts of a tick in which requests are sent, each to some of the switches:
	// thousands at once would delay packets by as many microseconds.
	WatchParts = 32
	// watchTicks is the number of ticks until the next request, at most.
	watchTicks = 64
	// silentPart: a flow that misses its turns is requested again after 1/silentPart of its silence.
	silentPart = 2
	// counterLag is how long a switch may take to bring its counters up to date; for Open vSwitch it
	// is half a second. What they grow by at once may have been sent in all that time.
	counterLag = time.Second
)

// watched are the flows of EF, by the switch that they enter at.
type watched struct {
	bySwitch map[topology.DPID]*wheel
	due      []topology.DPID // switches whose turn in this tick has not come
	first    topology.DPID   // where turns begin
	// switchesPerPart is how many of them have their turn in a part of the tick.
	switchesPerPart int
	tick            int
	on              bool // there is a second look
}

// wheel is a timing wheel. Flows that ended are found out when they are due.
type wheel struct {
	later    [watchTicks][]uint64 // flow numbers
	due      []uint64             // without a request yet
	requests int                  // in this tick, at most
}

// begin adds a flow that is judged EF, once its path is known.
func (w *watched) begin(f *Flow) {
	if w.on && f.judged.Level == apps.EF {
		w.add(f, 1)
	}
}

func (w *watched) add(f *Flow, ticks int) {
	d := f.Path[0].Switch
	if w.bySwitch[d] == nil {
		w.bySwitch[d] = &wheel{}
	}
	slot := &w.bySwitch[d].later[(w.tick+min(max(ticks, 1), watchTicks-1))%watchTicks]
	*slot = append(*slot, f.ID)
}

// beginTick makes the flows due whose turn is in the next tick.
func (w *watched) beginTick() {
	w.tick = (w.tick + 1) % watchTicks
	if len(w.due) > 0 { // the last tick ended before their turn
		w.first = w.due[0]
	}
	w.due = w.due[:0]
	for d, one := range w.bySwitch {
		slot := &one.later[w.tick]
		one.due, *slot = append(one.due, *slot...), (*slot)[:0]
		if len(one.due) > 0 {
			w.due = append(w.due, d)
		}
	}
	w.divide()
	w.switchesPerPart = (len(w.due) + WatchParts - 1) / WatchParts
}

// divide sets the number of requests to each switch in this tick: watchRequests, or as many as flows are due.
// If these are more than watchTotal, it is max-min fair: no switch gets more than one request above another
// that lacks some. Switches take turns at the rest, and, if there are more than watchTotal, at any request.
// What has no turn leaves w.due.
func (w *watched) divide() {
	var wants [watchRequests + 1]int // the number of switches by the requests that a switch wants
	for _, d := range w.due {
		wants[min(len(w.bySwitch[d].due), watchRequests)]++
	}
	each, rest := 0, watchTotal
	for unsatisfied := len(w.due); unsatisfied > 0 && unsatisfied <= rest; unsatisfied -= wants[each] {
		rest -= unsatisfied
		each++
	}
	// Unsigned: switches before w.first come last.
	slices.SortFunc(w.due, func(a, b topology.DPID) int { return cmp.Compare(a-w.first, b-w.first) })
	w.due = slices.DeleteFunc(w.due, func(d topology.DPID) bool {
		one := w.bySwitch[d]
		want := min(len(one.due), watchRequests)
		one.requests = min(want, each)
		if want > each && rest > 0 {
			one.requests++
			rest--
			w.first = d + 1
		}
		return one.requests == 0
	})
}

// requestWatched requests the counters of flows of EF at some of the switches where some are due.
func (l *flows) requestWatched() {
	w := &l.watched
	for _, d := range w.due[:min(w.switchesPerPart, len(w.due))] {
		if sw, due := l.switches.byID[d], w.bySwitch[d]; sw != nil && due != nil && sw.obeys() {
			due.request(l, d)
		}
	}
	w.due = w.due[min(w.switchesPerPart, len(w.due)):]
}

// request requests the counters of the flows that are due at a switch.
func (w *wheel) request(l *flows, d topology.DPID) {
	var requested []*Flow
	seen := 0
	for ; seen < len(w.due) && len(requested) < w.requests; seen++ {
		f := l.byID[w.due[seen]]
		switch {
		case f == nil || f.judged.Level != apps.EF:
		case f.Path[0].Switch != d, f.Verdict.Level != apps.EF: // statistics tell when it is EF again
			l.watched.add(f, 1)
		default:
			requested = append(requested, f)
			l.switches.send(d, watchRequest(f))
		}
	}
	w.due = slices.Delete(w.due, 0, seen)
	for _, f := range requested {
		ticks := 1
		if len(w.due) > 0 {
			ticks = int(l.now.Sub(f.active) / silentPart / (l.cfg.LLDPInterval / LLDPParts))
		}
		l.watched.add(f, ticks)
	}
}

// watchRequest requests the counters of a flow.
func watchRequest(f *Flow) openflow.Message {
	m := &struct {
		request openflow.MultipartRequest
		body    openflow.FlowStatsRequest
	}{body: openflow.FlowStatsRequest{FlowFilter: withCookie(cookieFlow|f.ID, ^uint64(0))}}
	m.request.XID, m.request.Body = WatchXID, &m.body
	return &m.request
}

// Parts sends the requests that remain of a tick, in at most WatchParts-1 parts.
type Parts struct{ Core *Core }

// HasMore reports whether requests remain.
func (p Parts) HasMore() bool { return len(p.Core.flows.watched.due) > 0 }

// SendNext returns the requests of the next part.
func (p Parts) SendNext(now time.Time) []Command {
	p.Core.advance(now)
	p.Core.flows.requestWatched()
	return p.Core.finish()
}
