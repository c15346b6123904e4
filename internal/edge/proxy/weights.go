package proxy

import (
	"time"
)

// Place is an instance as one proxy sees it.
type Place struct {
	// Local is one on the proxy's own node.
	Local bool
	// Answers is one whose health checks are good.
	Answers   bool
	RoundTrip time.Duration
}

const (
	maxWeight = 256 // HAProxy's
	// standby is the weight of those that are not needed: they get one user in a
	// hundred or so, which shows that they answer, and all if the others fall.
	standby = 1
	// crowdedPercent is how full the nearer instances are before farther ones get users.
	crowdedPercent = 80
	// nearby is the round trip up to which distance does not matter.
	nearby = time.Millisecond
)

// Weights are the parts of its users that a proxy gives to instances: to its own
// node's first, to the closest others as soon as those are crowded, and to farther
// ones less, by their round trip. maxUsers is what one instance can serve; 0: not
// known, then all get users.
func Weights(places []Place, users, maxUsers int) []int {
	weights := make([]int, len(places))
	locals := 0
	closest := time.Duration(1<<63 - 1)
	for _, p := range places {
		if p.Local && p.Answers {
			locals++
		}
		if !p.Local {
			closest = min(closest, p.RoundTrip)
		}
	}
	enough := locals > 0 && maxUsers > 0 && users*100 < locals*maxUsers*crowdedPercent
	for i, p := range places {
		switch {
		case p.Local:
			weights[i] = maxWeight
		case enough:
			weights[i] = standby
		default:
			weights[i] = max(standby, int(maxWeight*(closest+nearby)/(p.RoundTrip+nearby)))
		}
	}
	return weights
}
