package core

import "github.com/weir-project/weir/internal/sdn/openflow"

// setKind names an index of flows. A flow is in at most one set of each kind.
type setKind int

const (
	fromStation setKind = iota
	toStation
	atIngress
	setKinds
)

// flowSet is a set of flows with O(1) removal: each flow stores its position. Flows come
// and go many thousand times a second.
type flowSet []*Flow

func (s *flowSet) add(k setKind, f *Flow) {
	f.place[k] = len(*s)
	*s = append(*s, f)
}

func (s *flowSet) remove(k setKind, f *Flow) {
	list, i, last := *s, f.place[k], len(*s)-1
	if i > last || list[i] != f {
		return
	}
	list[i] = list[last]
	list[i].place[k] = i
	list[last] = nil
	*s = list[:last]
}

// stationFlows are the flows from and to a station.
type stationFlows struct{ from, to flowSet }

// ofStation returns the flow sets of a station, creating them if needed.
func (l *flows) ofStation(mac openflow.MAC) *stationFlows {
	s := l.byStation[mac]
	if s == nil {
		s = &stationFlows{}
		l.byStation[mac] = s
	}
	return s
}

// leaveStations removes a flow from the sets of its stations.
func (l *flows) leaveStations(f *Flow) {
	for _, mac := range [...]openflow.MAC{f.Key.SrcMAC, f.to()} {
		s := l.byStation[mac]
		if s == nil { // source and destination are the same station
			continue
		}
		if mac == f.Key.SrcMAC {
			s.from.remove(fromStation, f)
		}
		if mac == f.to() {
			s.to.remove(toStation, f)
		}
		if len(s.from)+len(s.to) == 0 {
			delete(l.byStation, mac)
		}
	}
}
