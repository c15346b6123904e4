package run

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
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
	// tenths are the parts of the last round.
	tenths engine.Tenths
}

// divide divides what is promised by where users come to now.
func (d *dividing) divide(s *seen, now time.Time) (division engine.Division) {
	passed := now.Sub(d.at)
	d.at = now
	d.smooth(s, passed)
	// By users alone: whoever asks for little now may ask for all of a minimum at once, and
	// has it at once.
	division, d.tenths = engine.Divide(s.promises, d.users, nil, d.tenths)
	return division
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
