package run

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
)

// usersSmoothing is the time constant of the numbers of users that minimums are divided by.
const usersSmoothing = 1500 * time.Millisecond

// fewUsers, smoothed, are none.
const fewUsers = 0.02

// dividing is what minimums are divided by.
type dividing struct {
	// at is when users were counted last.
	at time.Time
	// users are smoothed.
	users map[engine.Path]float64
	// given is what was to be in force after the last round where users come to, and taken
	// what of it they take.
	given map[engine.Entry]uint64
	taken engine.Taken
	// tenths are the parts of the last round.
	tenths engine.Tenths
}

// divide divides what is promised by where users come to now.
func (d *dividing) divide(s *seen, now time.Time) (division engine.Division) {
	passed := now.Sub(d.at)
	d.at = now
	d.smooth(s, passed)
	d.taken = d.taken.Next(d.given, sentByProxies(s), passed)
	division, d.tenths = engine.Divide(s.promises, d.users, d.taken, d.tenths)
	return division
}

// gave takes note of what is to be in force now where users come to.
func (d *dividing) gave(division engine.Division, promises engine.Promises) {
	d.given = map[engine.Entry]uint64{}
	for path := range d.users {
		entry := engine.Entry{Service: promises[path.Instance].Service, Node: path.Node}
		d.given[entry] = division.Local[entry] + min(division.Relayed[entry], promises[engine.RelayID(entry)].MinBPS)
	}
}

// smooth takes the users of now into the means, some time after the last ones. Of a proxy
// that does not answer they stay, while its node is there.
func (d *dividing) smooth(s *seen, passed time.Duration) {
	weight := 1 - math.Exp(-passed.Seconds()/usersSmoothing.Seconds())
	users := map[engine.Path]float64{}
	for path, n := range d.users {
		p, promised := s.promises[path.Instance]
		on := func(at seenProxy) bool { return at.Node == path.Node }
		// Without any proxy it is weir-edge that is cut off.
		if all := s.proxies[p.Service]; promised && (len(all) == 0 || slices.ContainsFunc(all, on)) {
			users[path] = n
		}
	}
	for id, p := range s.promises {
		for _, at := range s.proxies[p.Service] {
			if at.err != nil || p.Relay {
				continue
			}
			path, n := engine.Path{Instance: id, Node: at.Node}, 0.0
			for _, t := range at.seen.Servers {
				if t.Name == serverName(id) {
					n += float64(t.Users + t.Waiting)
				}
			}
			users[path] += (n - users[path]) * weight
		}
	}
	maps.DeleteFunc(users, func(_ engine.Path, n float64) bool { return n < fewUsers })
	d.users = users
}

// sentByProxies is what services' proxies sent in the last second, as nodes' agents count it
// at the uplink; of those that an agent does not know nobody can tell. (HAProxy counts what it sends when it has sent all of an answer.)
func sentByProxies(s *seen) map[engine.Entry]uint64 {
	sent := map[engine.Entry]uint64{}
	for _, n := range s.nodes {
		if n.Seen.State != monitor.StateReady {
			continue
		}
		for name := range s.specs {
			if bps, there := s.proxySentBPS(name, n.Node.Name); there {
				sent[engine.Entry{Service: name, Node: n.Node.Name}] = bps
			}
		}
	}
	return sent
}
