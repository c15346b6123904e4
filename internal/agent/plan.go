package agent

import (
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/plan"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
)

// Who gets what at one uplink: minimums are admitted, entitlements computed
// from the policies of all that run, allocations from what those want that are
// sending. What of that is a decision is in internal/plan.

// significantDivisor: an allocation that changes by less than this part of
// itself is left as it is.
const significantDivisor = 500

// plan computes who gets what of an uplink, where containers are those that
// run, and controlled those of them that have a number, in its order.
func (u *uplink) plan(containers map[key]*container, controlled []*container) {
	u.controlled = u.controlled[:0]
	for _, c := range controlled {
		u.controlled = append(u.controlled, c.shares[u.index])
	}
	u.participants = append(append(u.participants[:0], u.controlled...), u.host)
	u.admit(containers)
	u.entitle()
	u.allocate(true)
}

// admit decides which minimums and bounds on delay are in force.
func (u *uplink) admit(containers map[key]*container) {
	for _, c := range containers {
		if c.number == 0 {
			c.shares[u.index].grant(plan.Grant{})
		}
	}
	// Numbers are given in turn: most often this is in the order of start.
	asking := slices.Clone(u.controlled)
	byStart := func(a, b *share) int { return startOrder(a.container, b.container) }
	if !slices.IsSortedFunc(asking, byStart) {
		slices.SortFunc(asking, byStart)
	}
	claims := make([]plan.Claim, len(asking))
	for i, s := range asking {
		claims[i] = s.claim(s.policy())
	}
	host, grants := u.link().Admit(u.host.claim(u.host.policy()), claims)
	u.host.grant(host)
	for i, s := range asking {
		s.grant(grants[i])
	}
}

// claim is what a policy asks for at the uplink, given what the share has.
func (s *share) claim(p v1.Policy) plan.Claim {
	return plan.Claim{FloorBPS: p.MinBPS, HeldBPS: s.admittedBPS, Latency: policy.Latency(p)}
}

// grant takes what was decided on the share's claim.
func (s *share) grant(g plan.Grant) {
	s.admittedBPS, s.refused = g.FloorBPS, g.Refused
	s.latency, s.refusedLatency = g.Latency, g.RefusedLatency
}

// admits says whether a policy could be put into force. Errors: *alloc.FloorError,
// *alloc.LatencyError.
func (s *share) admits(p v1.Policy) error {
	others := uint64(0)
	for _, other := range s.uplink.participants {
		if other != s {
			others += other.admittedBPS
		}
	}
	return s.uplink.link().Admits(others, s.claim(p))
}

// hostCompetes says whether the host class wants more than its reserve.
func (u *uplink) hostCompetes() bool {
	return u.host.demand.DemandBPS > u.link().HostReserveBPS(u.host.admittedBPS)
}

// entitle computes what everybody can always have.
func (u *uplink) entitle() {
	u.competing = u.competing[:0]
	for _, s := range u.controlled {
		u.competing = append(u.competing, s.competitor(alloc.Unlimited))
	}
	competes := u.hostCompetes()
	host, entitlements := u.link().Entitle(&u.allocator, u.host.competitor(alloc.Unlimited), competes, u.competing)
	for i, s := range u.controlled {
		s.entitledBPS = entitlements[i].BPS
		s.guarantee(entitlements[i].GuaranteeableBPS)
	}
	u.host.entitledBPS = host.BPS
	if competes {
		u.host.guarantee(host.GuaranteeableBPS)
	} else {
		u.host.guaranteedBPS = host.GuaranteeableBPS
	}
}

// allocate computes what everybody may send now and reports whether anything
// changed that matters. With exact, everything matters.
func (u *uplink) allocate(exact bool) bool {
	participants := u.participants
	capacity := u.rateBPS
	if !u.hostCompetes() {
		participants = u.controlled
		capacity -= min(capacity, u.host.demand.SteadyBPS())
		u.host.allocatedBPS = max(u.host.guaranteedBPS, u.host.demand.DemandBPS)
	}
	u.competing = u.competing[:0]
	for _, s := range participants {
		u.competing = append(u.competing, s.competitor(s.demand.SteadyBPS()))
	}
	entitled := u.allocator.Entitle(nil, capacity, u.competing)
	allocated := u.allocator.Allocate(nil, capacity, u.competing, entitled)
	changed := exact
	for i, s := range participants {
		if allocated[i] >= u.competing[i].DemandBPS {
			// It has all it wants, and may send a little more.
			allocated[i] = s.demand.DemandBPS
		}
		difference := max(allocated[i], s.allocatedBPS) - min(allocated[i], s.allocatedBPS)
		if difference > s.allocatedBPS/significantDivisor {
			changed = true
		}
	}
	if changed {
		for i, s := range participants {
			s.allocatedBPS = allocated[i]
		}
	}
	return changed
}

// tree is what the scheduler is to do.
func (u *uplink) tree() sched.Tree {
	u.classes = append(u.classes[:0], u.host.class())
	for _, s := range u.controlled {
		u.classes = append(u.classes, s.class())
	}
	return sched.Tree{
		RateBPS:       u.rateBPS,
		MTUBytes:      u.mtuBytes,
		ControlNumber: identity.NumberControl,
		DefaultNumber: identity.NumberHost,
		Classes:       u.classes,
	}
}

// startOrder orders containers by their start, those that started first first.
func startOrder(a, b *container) int {
	if c := a.StartedAt.Compare(b.StartedAt); c != 0 {
		return c
	}
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}
