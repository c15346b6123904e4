package minimums

import (
	"math"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
)

const (
	// turnoverUserSeconds sets how fast fractions follow the present users: with 16 users most of
	// the change takes a second, a single user who connects briefly changes almost nothing.
	turnoverUserSeconds = 8.0
	// maxLookGap limits the time credited to a user who was seen in one sample only.
	maxLookGap = time.Second
	// idleUsers is the number of local users assumed for an instance without users, so that its
	// relays are returned after some minutes.
	idleUsers = 0.1
	// A node's user count varies randomly by about 9 hundredths between samples. Parts therefore
	// follow the mean over steadyPeriod, or over movingPeriod once a fraction is off by moved.
	moved                      = 0.25
	steadyPeriod, movingPeriod = 20 * time.Second, 5 * time.Second
	// forgotten is the fraction below which a path without users is dropped.
	forgotten = 0.005
)

// division is the state from which minimums are divided, kept between rounds.
type division struct {
	// at is the time of the last count. users are the users counted then; for a silent proxy, those
	// of its last answer.
	at    time.Time
	users map[engine.Path]float64
	// fractions are the paths' parts of an instance's users, means the same, smoothed. movedAt is
	// when an instance's fractions were last off by moved.
	fractions, means map[engine.Path]float64
	movedAt          map[string]time.Time
	parts            engine.Hundredths
}

// Divide splits the promised minimums of instances by the nodes where their users connect.
func (d *division) Divide(in *Input) (divided engine.Division) {
	passed, first := in.At.Sub(d.at), d.at.IsZero()
	d.at = in.At
	d.countUsers(in)
	d.followUsers(in.Promises, passed, first)
	d.smooth(passed)
	divided, d.parts = engine.Divide(in.Promises, d.means, d.parts)
	return divided
}

// countUsers stores the users that proxies report. Users of a silent proxy stay while its node
// exists. Users that only probe a standby instance are ignored.
func (d *division) countUsers(in *Input) {
	users := map[engine.Path]float64{}
	for path, n := range d.users {
		p, promised := in.Promises[path.Instance]
		ofService := func(x Proxy) bool { return x.Service == p.Service }
		on := func(x Proxy) bool { return x.Service == p.Service && x.Node == path.Node }
		// The last counts stay for a listed proxy, and for all if the service has no listed proxy:
		// then weir-edge itself may be cut off.
		if promised && (!slices.ContainsFunc(in.Proxies, ofService) || slices.ContainsFunc(in.Proxies, on)) {
			users[path] = n
		}
	}
	for id, p := range in.Promises {
		for _, x := range in.Proxies {
			if x.Answers && x.Service == p.Service && !p.Relay {
				users[engine.Path{Instance: id, Node: x.Node}] = x.Users[id]
			}
		}
	}
	d.users = users
}

// followUsers moves fractions towards those of the users that are there, in t seconds with n
// users by
//
//	1 - exp(-n t / turnover)
//
// of the way. An instance begins with the users of its own node, except at the first look, as
// another weir-edge may have divided before this one.
func (d *division) followUsers(promises engine.Promises, passed time.Duration, first bool) {
	fractions := map[engine.Path]float64{}
	for path, fraction := range d.fractions {
		p, promised := promises[path.Instance]
		if _, known := d.users[path]; promised && (known || path.Node == p.Node) { // a node that is gone has none
			fractions[path] = fraction
		}
	}
	together, all := sumByInstance(fractions), sumByInstance(d.users)
	for id, p := range promises {
		own := engine.Path{Instance: id, Node: p.Node}
		if !p.Relay && together[id] == 0 {
			fractions[own], together[id] = 1, 1
		}
	}
	for path, n := range d.users {
		users, weight := all[path.Instance], 1.0
		if users == 0 {
			users = idleUsers
			if promises[path.Instance].Node == path.Node {
				n = users
			}
		}
		if !first {
			weight = engine.SmoothingWeight(users*min(passed, maxLookGap).Seconds(), turnoverUserSeconds)
		}
		before := fractions[path] / together[path.Instance]
		fractions[path] = before + (n/users-before)*weight
		if n == 0 && fractions[path] < forgotten {
			delete(fractions, path)
		}
	}
	d.fractions = fractions
}

// smooth updates the means of the fractions; a mean restarts if its fraction has moved.
func (d *division) smooth(passed time.Duration) {
	movedAt := map[string]time.Time{}
	for path, fraction := range d.fractions {
		id := path.Instance
		if movedAt[id].IsZero() {
			movedAt[id] = d.movedAt[id]
		}
		if math.Abs(fraction-d.means[path]) >= moved {
			movedAt[id] = d.at
		}
	}
	means := map[engine.Path]float64{}
	for path, fraction := range d.fractions {
		weight := 1.0
		if window := min(d.at.Sub(movedAt[path.Instance])-movingPeriod, steadyPeriod); window > passed {
			weight = passed.Seconds() / window.Seconds()
		}
		means[path] = d.means[path] + (fraction-d.means[path])*weight
	}
	d.means, d.movedAt = means, movedAt
}

// sumByInstance adds up the values of instances' paths.
func sumByInstance(values map[engine.Path]float64) map[string]float64 {
	sums := map[string]float64{}
	for path, n := range values {
		sums[path.Instance] += n
	}
	return sums
}
