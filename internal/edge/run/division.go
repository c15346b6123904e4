package run

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
)

const (
	// turnover is after how many user-seconds where users come from is what it was for the
	// last ones: of many within a second, and one who comes elsewhere for a moment moves next
	// to nothing.
	turnover = 8.0
	// longestLook is for how long users count at most who were seen once.
	longestLook = time.Second
	// nobody is how many users of its own node an instance without any is taken to have, so
	// that what is relayed for it is given back after some minutes.
	nobody = 0.1
	// clearlyOff is by how many hundredths of a minimum a part has to be off to be made right
	// at once, and off to be made right after settled.
	clearlyOff, off = 8.0, 2.0
	settled         = 3 * time.Second
	// fewUsers is a part of an instance's users that is none.
	fewUsers = 0.005
)

// dividing is what minimums are divided by.
type dividing struct {
	// at is when users were counted last.
	at time.Time
	// users are those of then, or, of a proxy that did not answer, of when it last did.
	users map[engine.Path]float64
	// shares are the parts of an instance's users that come by its paths, 1 together.
	shares map[engine.Path]float64
	// parts are those of the last round, looked at closely last at looked.
	parts  engine.Hundredths
	looked time.Time
}

// divide divides what is promised by where users come to.
func (d *dividing) divide(s *seen, now time.Time) (division engine.Division) {
	passed := now.Sub(d.at)
	first := d.at.IsZero()
	d.at = now
	d.count(s)
	d.share(s.promises, passed, first)
	bound := clearlyOff
	if now.Sub(d.looked) >= settled {
		bound, d.looked = off, now
	}
	division, d.parts = engine.Divide(s.promises, d.shares, d.parts, bound)
	return division
}

// count takes over what proxies say. Of one that does not answer users stay, while its node
// is there. Who shows that a standby answers does not come by it.
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
				if t.Name == serverName(id) && !t.IsStandby() {
					n += float64(t.Users + t.Waiting)
				}
			}
			users[path] = n
		}
	}
	d.users = users
}

// share moves shares to where users come to now: in t seconds with n users by
//
//	1 - exp(-n t / turnover)
//
// of the way. An instance begins with those of its own node, but for the first look of this
// weir-edge, as another one may have divided before it.
func (d *dividing) share(promises engine.Promises, passed time.Duration, first bool) {
	shares := map[engine.Path]float64{}
	for path, share := range d.shares {
		p, promised := promises[path.Instance]
		if _, known := d.users[path]; promised && (known || path.Node == p.Node) { // a node that is gone has none
			shares[path] = share
		}
	}
	shared, all := sums(shares), sums(d.users)
	for id, p := range promises {
		own := engine.Path{Instance: id, Node: p.Node}
		if !p.Relay && shared[id] == 0 {
			shares[own], shared[id] = 1, 1
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
			weight -= math.Exp(-users * min(passed, longestLook).Seconds() / turnover)
		}
		before := shares[path] / shared[path.Instance]
		shares[path] = before + (n/users-before)*weight
	}
	maps.DeleteFunc(shares, func(_ engine.Path, share float64) bool { return share < fewUsers })
	d.shares = shares
}

// sums are those of instances' paths.
func sums(of map[engine.Path]float64) map[string]float64 {
	all := map[string]float64{}
	for path, n := range of {
		all[path.Instance] += n
	}
	return all
}
