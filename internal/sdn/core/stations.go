package core

import (
	"iter"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Limits on the stations that a controller remembers.
const (
	maxStations        = 1 << 16
	maxStationsPerPort = 1 << 10 // leaves room for the stations of other ports
	// stationAge is the silence after which a station is forgotten.
	stationAge = 10 * time.Minute
	// stationHold is how long a station must stay at a port before it may move again. It
	// prevents flapping between two stations with the same address.
	stationHold = time.Second
)

// stations are the known MAC addresses by port.
type stations struct {
	*event
	switches *switches
	byMAC    map[openflow.MAC]*station
}

type station struct {
	at            topology.Port
	seen, arrived time.Time
}

func newStations(s *switches) *stations {
	return &stations{event: s.event, switches: s, byMAC: map[openflow.MAC]*station{}}
}

// learn records that a station is at a known port. It reports whether the claim was
// accepted, and whether the station moved from another port.
func (s *stations) learn(mac openflow.MAC, at topology.Port) (believed, moved bool) {
	if mac[0]&1 != 0 || mac == (openflow.MAC{}) {
		return false, false // not a unicast source address
	}
	old := s.byMAC[mac]
	if old != nil && old.at == at {
		old.seen = s.now
		return true, false
	}
	p := s.switches.port(at)
	switch {
	case old == nil && len(s.byMAC) >= maxStations, p.stations >= maxStationsPerPort,
		old != nil && s.now.Sub(old.arrived) < stationHold: // two stations with one address, or spoofing
		s.counters.StationsRefused++
		return false, false
	case old != nil:
		s.forget(mac)
	}
	s.byMAC[mac] = &station{at: at, seen: s.now, arrived: s.now}
	p.stations++
	return true, old != nil
}

func (s *stations) forget(mac openflow.MAC) {
	if p := s.switches.port(s.byMAC[mac].at); p != nil {
		p.stations--
	}
	delete(s.byMAC, mac)
}

// behind yields the stations at a port. The caller may forget them during the iteration.
func (s *stations) behind(at topology.Port) iter.Seq[openflow.MAC] {
	if p := s.switches.port(at); p == nil || p.stations == 0 {
		return func(func(openflow.MAC) bool) {}
	}
	return s.where(func(one *station) bool { return one.at == at })
}

// expired yields the stations whose silence exceeds stationAge. The caller may forget them
// during the iteration.
func (s *stations) expired() iter.Seq[openflow.MAC] {
	return s.where(func(one *station) bool { return s.now.Sub(one.seen) > stationAge })
}

func (s *stations) where(matches func(*station) bool) iter.Seq[openflow.MAC] {
	return func(yield func(openflow.MAC) bool) {
		for mac, one := range s.byMAC {
			if matches(one) && !yield(mac) {
				return
			}
		}
	}
}

// hearAll notes that the stations of a switch are not silent now.
func (s *stations) hearAll(d topology.DPID) {
	for _, one := range s.byMAC {
		if one.at.Switch == d {
			one.seen = s.now
		}
	}
}

// allArrived reports whether all stations of a port arrived between two times.
func (s *stations) allArrived(at topology.Port, from, until time.Time) bool {
	for mac := range s.behind(at) {
		if arrived := s.byMAC[mac].arrived; arrived.Before(from) || arrived.After(until) {
			return false
		}
	}
	return true
}
