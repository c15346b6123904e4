package agent

import (
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/plan"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
)

// What is wanted at the uplinks, and bringing them to that: which minimums and bounds
// on delay are in force (internal/plan decides), and what the scheduler is told. Who
// may send how much is its affair.

// reconcile brings classes, minimums and taps in line with who is running. A failure
// is not the end: it is told once, shown, and tried again with the next check.
func (a *Agent) reconcile() {
	controlled := a.registry.controlled()
	for _, u := range a.uplinks {
		before := u.reason
		err := u.device.Apply(u.plan(a.registry.byKey, controlled))
		u.take()
		u.ask()
		if err != nil {
			u.suspect = true
			if before == nil {
				a.log.Error("set up the scheduler", "uplink", u.name, "error", err)
			}
		}
		u.ledger.Keep(u.hasClass)
		u.classLedger.Keep(u.hasClasses)
	}
	a.assignNumbers()
	a.tellRefusals()
	a.unsaved = true
	a.saveSoon(time.Now())
	a.publish(time.Now())
}

// plan decides what is wanted of an uplink, where containers are those that run, and
// controlled those of them that have a number, in its order.
func (u *link) plan(containers map[key]*container, controlled []*container) sched.Tree {
	u.controlled = u.controlled[:0]
	for _, c := range controlled {
		u.controlled = append(u.controlled, c.shares[u.index])
	}
	u.participants = append(append(u.participants[:0], u.controlled...), u.host)
	for _, c := range containers {
		if c.number == 0 {
			c.shares[u.index].grant(plan.Grant{})
		}
	}
	asking := u.byStart()
	claims := make([]plan.Claim, len(asking))
	for i, s := range asking {
		claims[i] = s.claim(s.policy())
	}
	host, grants := u.link().Admit(u.host.claim(u.host.policy()), claims)
	u.host.grant(host)
	for i, s := range asking {
		s.grant(grants[i])
	}
	u.wanted = append(u.wanted[:0], u.host.wanted())
	for _, s := range u.controlled {
		u.wanted = append(u.wanted, s.wanted())
	}
	return sched.Tree{
		RateBPS:       u.rateBPS,
		MTUBytes:      u.mtuBytes,
		ControlNumber: identity.NumberControl,
		HostNumber:    identity.NumberHost,
		Competitors:   u.wanted,
	}
}

// byStart are the controlled shares in the order in which their containers started.
func (u *link) byStart() []*share {
	// Numbers are given in turn: most often this is in the order of start.
	list := slices.Clone(u.controlled)
	byStart := func(a, b *share) int { return startOrder(a.container, b.container) }
	if !slices.IsSortedFunc(list, byStart) {
		slices.SortFunc(list, byStart)
	}
	return list
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
