package proxy

import (
	"math"
	"time"
)

// Candidate is an instance that a proxy may send users to, as that sees it.
type Candidate struct {
	// Local is one on the proxy's own node.
	Local bool
	// Answers is one whose health checks are good.
	Answers   bool
	RoundTrip time.Duration
	// FreeBPS is what it could send from its node to other ones, in bits per second; 0:
	// nobody knows.
	FreeBPS uint64
	// Weight is the one that it has; 0: none yet.
	Weight int
}

const (
	maxWeight = 256 // HAProxy's
	// standby is the weight of those that are not needed: they get one user in a
	// hundred or so, which shows that they answer, and all if the others fall.
	standby = 1
	// crowdedPercent is how full the nearer instances are before farther ones get users,
	// who then come until they are no fuller than calmPercent.
	crowdedPercent = 80
	calmPercent    = 60
	// nearby is the round trip up to which distance does not matter.
	nearby = time.Millisecond
	// unlike is by which part of it a weight has to be another one to be changed.
	unlike = 0.25
)

// Weights are the parts of its users that a proxy gives to instances: to its own
// node's first, and to others as soon as those are crowded. maxUsers is what one
// instance can serve; 0: not known, then all get users.
//
// Among the others nearer and freer ones get more. Instance i at a round trip t_i, whose
// node's uplink has f_i free, gets
//
//	256 q_i / max q,   q_i = sqrt(f_i) / (t_i + 1 ms)
//
// with the largest f in place of one that is not known. It is the root because what
// others leave follows what is sent: who downloads beside the service takes all that it
// does not. In proportion to f itself whoever has more users by chance would keep them; by
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

// Tried is how many of a proxy's users an instance may have that only show that it answers:
// those of a standby.
func (s *SeenServer) Tried(users int) int {
	if s.Weight > standby {
		return 0
	}
	return 1 + users/100
}

// localsSuffice says whether the instances on the proxy's own node have room for its users.
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

// parts are how much those of other nodes should get, the best of those that answer 1.
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
		if best > 0 { // else nobody answers, and nobody gets users
			list[i] = min(list[i]/best, 1)
		}
	}
	return list
}

// settle is the weight that is right, or the one that is there, if that is about the same.
func settle(right float64, now int) int {
	if now > 0 && math.Abs(right-float64(now)) < max(unlike*float64(now), 1) {
		return now
	}
	return max(int(math.Round(right)), standby)
}
