package run

import (
	"math"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
)

const (
	// turnoverUserSeconds is the constant by which the fractions of users follow those who are
	// there: 16 users change most of them within a second, and one who comes by another node
	// for a moment next to nothing.
	turnoverUserSeconds = 8.0
	// longestLook is how long users count at most who were seen once.
	longestLook = time.Second
	// nobody is how many users of its own node an instance without any is taken to have, so
	// that what is relayed for it is given back after some minutes.
	nobody = 0.1
	// farOff is by how many hundredths of a minimum a part is off that is corrected at once;
	// every correctionPeriod those are that are off by littleOff.
	farOff, littleOff = 8.0, 2.0
	correctionPeriod  = 3 * time.Second
	// Who is with whom changes by chance from look to look, by some 9 hundredths: parts go by the
	// mean of steadyPeriod, until fractions are elsewhere by elsewhere, which they follow then for
	// movingPeriod.
	elsewhere                  = 0.25
	steadyPeriod, movingPeriod = 20 * time.Second, 5 * time.Second
	// forgotten is the fraction of its users at which a path is forgotten that nobody comes by.
	forgotten = 0.005
)

// dividing is what minimums are divided by.
type dividing struct {
	// at is when users were counted last.
	at time.Time
	// users are those of then, or, of a proxy that did not answer, of when it last did.
	users map[engine.Path]float64
	// fractions are those of an instance's users who come by its paths.
	fractions map[engine.Path]float64
	// means are fractions, smoothed, and moved is when those of an instance were elsewhere last.
	means map[engine.Path]float64
	moved map[string]time.Time
	// parts are those of the last round; at corrected also small errors were.
	parts     engine.Hundredths
	corrected time.Time
}

// divide divides what is promised by where users come to.
func (d *dividing) divide(s *seen, now time.Time) (division engine.Division) {
	passed := now.Sub(d.at)
	first := d.at.IsZero()
	d.at = now
	d.count(s)
	d.follow(s.promises, passed, first)
	d.steady(passed)
	off := farOff
	if now.Sub(d.corrected) >= correctionPeriod {
		off, d.corrected = littleOff, now
	}
	division, d.parts = engine.Divide(s.promises, d.means, d.parts, off)
	return division
}

// count takes over what proxies say. Of one that does not answer users stay, while its node
// is there. Who only shows that a standby answers does not come by it.
func (d *dividing) count(s *seen) {
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
					n += float64(max(t.Users+t.Waiting-t.Tried(at.seen.Users), 0))
				}
			}
			users[path] = n
		}
	}
	d.users = users
}

// follow moves fractions towards those of the users who are there: in t seconds with n users by
//
//	1 - exp(-n t / turnover)
//
// of the way. An instance begins with those of its own node, but for the first look of this
// weir-edge, as another one may have divided before it.
func (d *dividing) follow(promises engine.Promises, passed time.Duration, first bool) {
	fractions := map[engine.Path]float64{}
	for path, fraction := range d.fractions {
		p, promised := promises[path.Instance]
		if _, known := d.users[path]; promised && (known || path.Node == p.Node) { // a node that is gone has none
			fractions[path] = fraction
		}
	}
	together, all := sums(fractions), sums(d.users)
	for id, p := range promises {
		own := engine.Path{Instance: id, Node: p.Node}
		if !p.Relay && together[id] == 0 {
			fractions[own], together[id] = 1, 1
		}
	}
	for path, n := range d.users {
		own, users, weight := promises[path.Instance].Node == path.Node, all[path.Instance], 1.0
		if users == 0 {
			users = nobody
			if own {
				n = users
			}
		}
		if !first {
			weight = engine.SmoothingWeight(users*min(passed, longestLook).Seconds(), turnoverUserSeconds)
		}
		before := fractions[path] / together[path.Instance]
		fractions[path] = before + (n/users-before)*weight
		if n == 0 && fractions[path] < forgotten {
			delete(fractions, path)
		}
	}
	d.fractions = fractions
}

// steady takes fractions into their means, which begin anew where fractions are elsewhere.
func (d *dividing) steady(passed time.Duration) {
	moved := map[string]time.Time{}
	for path, fraction := range d.fractions {
		id := path.Instance
		if moved[id].IsZero() {
			moved[id] = d.moved[id]
		}
		if math.Abs(fraction-d.means[path]) >= elsewhere {
			moved[id] = d.at
		}
	}
	means := map[engine.Path]float64{}
	for path, fraction := range d.fractions {
		weight := 1.0
		if window := min(d.at.Sub(moved[path.Instance])-movingPeriod, steadyPeriod); window > passed {
			weight = passed.Seconds() / window.Seconds()
		}
		means[path] = d.means[path] + (fraction-d.means[path])*weight
	}
	d.means, d.moved = means, moved
}

// sums are those of instances' paths.
func sums(of map[engine.Path]float64) map[string]float64 {
	all := map[string]float64{}
	for path, n := range of {
		all[path.Instance] += n
	}
	return all
}
