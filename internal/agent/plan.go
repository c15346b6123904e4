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

// What is wanted at one uplink: which minimums and bounds on delay are in force
// (internal/plan decides), and what the scheduler is told. Who may send how much is
// its affair.

// plan decides what is wanted of an uplink, where containers are those that
// run, and controlled those of them that have a number, in its order.
func (u *link) plan(containers map[key]*container, controlled []*container) {
	u.controlled = u.controlled[:0]
	for _, c := range controlled {
		u.controlled = append(u.controlled, c.shares[u.index])
	}
	u.participants = append(append(u.participants[:0], u.controlled...), u.host)
	u.admit(containers)
}

// admit decides which minimums and bounds on delay are in force.
func (u *link) admit(containers map[key]*container) {
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

// entitle computes what everybody could have of an uplink that no scheduler shares
// out at present.
func (u *link) entitle() {
	competing := make([]alloc.Container, len(u.controlled))
	for i, s := range u.controlled {
		competing[i] = s.competitor()
	}
	host, entitlements := u.link().Entitle(&alloc.Allocator{}, u.host.competitor(), false, competing)
	u.host.class = sched.State{EntitledBPS: host.BPS, GuaranteedBPS: host.GuaranteeableBPS}
	for i, s := range u.controlled {
		s.class = sched.State{EntitledBPS: entitlements[i].BPS, GuaranteedBPS: entitlements[i].GuaranteeableBPS}
		if s.hasOwnDevices() {
			s.class.PacketBytes = sched.MaxPacketBytes(s.wanted().CeilingOr(u.rateBPS), entitlements[i].BPS)
		}
	}
}

// tree is what the scheduler is to do.
func (u *link) tree() sched.Tree {
	u.classes = append(u.classes[:0], u.host.wanted())
	for _, s := range u.controlled {
		u.classes = append(u.classes, s.wanted())
	}
	return sched.Tree{
		RateBPS:       u.rateBPS,
		MTUBytes:      u.mtuBytes,
		ControlNumber: identity.NumberControl,
		HostNumber:    identity.NumberHost,
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
