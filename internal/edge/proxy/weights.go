package proxy

import (
	"math"
	"time"
)

// Candidate is an instance that a proxy may send users to.
type Candidate struct {
	// Local: the instance is on the proxy's own node.
	Local bool
	// Answers: the instance's health checks succeed.
	Answers   bool
	RoundTrip time.Duration
	// FreeBPS is the rate that it could send to other nodes, in bits per second; 0: unknown.
	FreeBPS uint64
	// Weight is the present weight; 0: none yet.
	Weight int
}

const (
	maxWeight = 256 // HAProxy's
	// standby is the weight of instances that are not needed. They get about one user in a hundred,
	// which proves that they answer, and all users if the others fail.
	standby = 1
	// crowdedPercent is the utilization of near instances from which farther ones get users, who
	// then come until it falls to calmPercent.
	crowdedPercent = 80
	calmPercent    = 60
	// nearby is the round trip below which distance is ignored.
	nearby = time.Millisecond
	// unlike is the relative difference from which a weight is changed.
	unlike = 0.25
)

// Weights returns the parts of its users that a proxy gives to instances: to its own
// node's first, and to others as soon as those are crowded. maxUsers is what one
// instance can serve; 0: not known, then all get users.
//
// Among the others nearer and freer ones get more. Instance i at a round trip t_i, whose
// node's uplink has f_i free, gets
//
//	256 q_i / max q,   q_i = sqrt(f_i) / (t_i + 1 ms)
//
// with the largest f in place of one that is not known. It is the root because what
// others leave follows what is sent: a download beside the service takes all that it
// does not. In proportion to f itself an instance with more users by chance would keep them; by
// the root, parts come nearer to each other each time.
//
// Users come and go, and so does what others send. So a weight stays as it is until the
// one that would be right differs by a quarter of it.
func Weights(candidates []Candidate, users, maxUsers int) []int {
	weights := make([]int, len(candidates))
	enough, right := localsSuffice(candidates, users, maxUsers), parts(candidates)
	for i, c := range candidates {
		switch {
		case c.Local:
			weights[i] = maxWeight
		case enough:
			weights[i] = standby
		default:
			weights[i] = settle(maxWeight*right[i], c.Weight)
		}
	}
	return weights
}

// Tried returns how many of a proxy's users may be probes of a standby instance.
func (s *ServerStatus) Tried(users int) int {
	if s.Weight > standby {
		return 0
	}
	return 1 + users/100
}

// localsSuffice reports whether the instances on the proxy's own node have room for its users.
func localsSuffice(candidates []Candidate, users, maxUsers int) bool {
	locals, percent := 0, crowdedPercent
	for _, c := range candidates {
		if c.Local && c.Answers {
			locals++
		}
		if !c.Local && c.Weight > standby {
			percent = calmPercent
		}
	}
	return locals > 0 && maxUsers > 0 && users*100 < locals*maxUsers*percent
}

// parts returns the relative shares of instances on other nodes; the best that answers gets 1.
func parts(candidates []Candidate) []float64 {
	freest, best := uint64(0), 0.0
	for _, c := range candidates {
		if !c.Local {
			freest = max(freest, c.FreeBPS)
		}
	}
	list := make([]float64, len(candidates))
	for i, c := range candidates {
		if c.Local {
			continue
		}
		free := 1.0
		if c.FreeBPS > 0 {
			free = float64(c.FreeBPS) / float64(freest)
		}
		list[i] = math.Sqrt(free) * nearby.Seconds() / (max(c.RoundTrip, 0) + nearby).Seconds()
		if c.Answers {
			best = max(best, list[i])
		}
	}
	for i := range list {
		if best > 0 { // else no instance answers, and none gets users
			list[i] = min(list[i]/best, 1)
		}
	}
	return list
}

// settle returns the new weight, or the present one if they are close.
func settle(right float64, now int) int {
	if now > 0 && math.Abs(right-float64(now)) < max(unlike*float64(now), 1) {
		return now
	}
	return max(int(math.Round(right)), standby)
}
