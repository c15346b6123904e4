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
	// Of crowdUsers users more than crowdMoved are not by chance at another node than usual in two looks
	// that are crowdStays apart, and in those between.
	crowdUsers, crowdMoved = 5, 0.5
	crowdStays             = 300 * time.Millisecond
	// maxLookGap limits the time credited to a user who was seen in one sample only.
	maxLookGap = time.Second
	// idleUsers is the number of users assumed for a service without users, so that its parts
	// return to the instances' own nodes after some minutes.
	idleUsers = 0.1
	// A node's user count varies randomly by about 9 hundredths between samples. Parts therefore
	// follow the mean over steadyPeriod, or over movingPeriod once a fraction is off by moved.
	moved                      = 0.25
	steadyPeriod, movingPeriod = 20 * time.Second, 5 * time.Second
	// silentUsers is for how long the users of a proxy that does not answer count, while another
	// proxy of the service does.
	silentUsers = time.Minute
	// forgotten is the fraction below which a path without users is dropped.
	forgotten = 0.005
)

// division is the state from which minimums are divided, kept between rounds.
type division struct {
	// at is the time of the last count. users are the users counted then; for a silent proxy, those
	// of its last answer.
	at    time.Time
	users map[engine.Path]float64
	// answered is when each proxy answered last.
	answered map[engine.Entry]time.Time
	// fractions are the paths' parts of a service's users, means the same, smoothed. movedAt is
	// when a service's users last moved.
	fractions, means map[engine.Path]float64
	movedAt          map[string]time.Time
	// elsewhere are the nodes with many more or fewer of a crowd at the last look than usual, and since when.
	elsewhere map[engine.Entry]time.Time
	parts     engine.Hundredths
}

// Divide divides the minimums of services by where their users connect.
func (d *division) Divide(in *Input) (divided engine.Division) {
	passed, first := in.At.Sub(d.at), d.at.IsZero()
	d.at = in.At
	d.countUsers(in)
	d.followUsers(in.Promises, passed, first)
	d.smooth(in.Promises, passed)
	minBPS := map[string]engine.Rates{}
	for _, s := range in.Services {
		rates := minBPS[s.Name]
		if s.In {
			rates.In = s.MinBPS
		} else {
			rates.Out = s.MinBPS
		}
		minBPS[s.Name] = rates
	}
	divided, d.parts = engine.Divide(minBPS, in.Promises, in.Starting, d.means, d.parts)
	return divided
}

// countUsers stores the users that proxies report. Users of a silent proxy stay for silentUsers
// while its node exists. Users that only probe a standby instance are ignored.
func (d *division) countUsers(in *Input) {
	users, answered, some := map[engine.Path]float64{}, map[engine.Entry]time.Time{}, map[string]bool{}
	for _, x := range in.Proxies {
		at := engine.Entry{Service: x.Service, Node: x.Node}
		if last, known := d.answered[at]; known && !x.Answers {
			answered[at] = last
		} else {
			answered[at] = in.At
		}
		some[x.Service] = some[x.Service] || x.Answers
	}
	d.answered = answered
	for path, n := range d.users {
		p, promised := in.Promises[path.Instance]
		ofService := func(x Proxy) bool { return x.Service == p.Service }
		on := func(x Proxy) bool {
			silent := in.At.Sub(answered[engine.Entry{Service: x.Service, Node: x.Node}])
			return x.Service == p.Service && x.Node == path.Node && (silent < silentUsers || !some[x.Service])
		}
		// The last counts stay for a listed proxy, and for all if the service has no listed proxy:
		// then weir-edge itself may be cut off.
		if promised && (!slices.ContainsFunc(in.Proxies, ofService) || slices.ContainsFunc(in.Proxies, on)) {
			users[path] = n
		}
	}
	for id, p := range in.Promises {
		for _, x := range in.Proxies {
			if x.Answers && x.Service == p.Service && !p.Claim {
				users[engine.Path{Instance: id, Node: x.Node}] = x.Users[id]
			}
		}
	}
	d.users = users
}

// followUsers moves fractions towards those of the users that are there, in t seconds with n
// users of the service by
//
//	1 - exp(-n t / turnover)
//
// of the way, and at once if a crowd has moved to another node. A service begins with
// [engine.Promises.Homes], except at the first look, as another
// weir-edge may have divided before this one.
func (d *division) followUsers(promises engine.Promises, passed time.Duration, first bool) {
	before := map[engine.Path]float64{}
	for path, fraction := range d.fractions {
		p, promised := promises[path.Instance]
		if _, known := d.users[path]; promised && (known || path.Node == p.Node) { // a node that is gone has none
			before[path] = fraction
		}
	}
	service := func(path engine.Path) string { return promises[path.Instance].Service }
	homes, together, all := promises.Homes(), sumBy(before, service), sumBy(d.users, service)
	paths := map[engine.Path]bool{}
	for _, known := range []map[engine.Path]float64{before, homes, d.users} {
		for path := range known {
			paths[path] = true
		}
	}
	differences := map[engine.Entry]float64{}
	for path := range paths {
		if s := service(path); all[s] >= crowdUsers {
			differences[engine.Entry{Service: s, Node: path.Node}] += d.users[path]/all[s] - d.means[path]
		}
	}
	elsewhere, crowds := map[engine.Entry]time.Time{}, map[string]bool{}
	for at, difference := range differences {
		if math.Abs(difference) > crowdMoved {
			if elsewhere[at] = d.elsewhere[at]; elsewhere[at].IsZero() {
				elsewhere[at] = d.at
			}
			crowds[at.Service] = crowds[at.Service] || d.at.Sub(elsewhere[at]) >= crowdStays
		}
	}
	d.elsewhere = elsewhere
	d.fractions = map[engine.Path]float64{}
	for path := range paths {
		s := service(path)
		users, right, was, weight := all[s], d.users[path]/all[s], before[path]/together[s], 1.0
		if users == 0 {
			users, right = idleUsers, homes[path]
		}
		if together[s] == 0 {
			was = homes[path]
		}
		if !first && !crowds[s] {
			weight = engine.SmoothingWeight(users*min(passed, maxLookGap).Seconds(), turnoverUserSeconds)
		}
		if fraction := was + (right-was)*weight; right > 0 || fraction >= forgotten {
			d.fractions[path] = fraction
		}
	}
}

// smooth updates the means of the fractions. A service's means restart if the users of a node have
// moved, or an instance has got its first ones; which instances serve a node's users varies by
// chance and moves nothing.
func (d *division) smooth(promises engine.Promises, passed time.Duration) {
	movedAt, changes := map[string]time.Time{}, map[engine.Entry]float64{}
	for path, fraction := range d.fractions {
		s := promises[path.Instance].Service
		if movedAt[s].IsZero() {
			movedAt[s] = d.movedAt[s]
		}
		if changes[engine.Entry{Service: s, Node: path.Node}] += fraction - d.means[path]; d.means[path] == 0 && fraction >= moved {
			movedAt[s] = d.at
		}
	}
	for at, change := range changes {
		if math.Abs(change) >= moved {
			movedAt[at.Service] = d.at
		}
	}
	means := map[engine.Path]float64{}
	for path, fraction := range d.fractions {
		weight := 1.0
		if window := min(d.at.Sub(movedAt[promises[path.Instance].Service])-movingPeriod, steadyPeriod); window > passed {
			weight = passed.Seconds() / window.Seconds()
		}
		means[path] = d.means[path] + (fraction-d.means[path])*weight
	}
	d.means, d.movedAt = means, movedAt
}

// sumBy adds up the values of services' paths.
func sumBy(values map[engine.Path]float64, service func(engine.Path) string) map[string]float64 {
	sums := map[string]float64{}
	for path, n := range values {
		sums[service(path)] += n
	}
	return sums
}
