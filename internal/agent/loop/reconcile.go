package loop

import (
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/plan"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

// Reconciliation: compute the wanted state of the uplinks and apply it. internal/share/plan decides
// which minimums and latency bounds are in force; the scheduler divides the rate.

// reconcile is apply, after which the result is saved and shown. In a burst it is saved up to saveInterval later. What is saved
// is removed also after a crash, and admitted minimums stay so.
func (a *Agent) reconcile() {
	a.apply()
	a.saveSoon(time.Now())
	a.publish(time.Now())
}

// apply brings classes, minimums and taps in line with the running containers. A failure does
// not stop it: the failure is logged once, shown, and retried with the next check.
func (a *Agent) apply() {
	controlled := a.containers.controlled()
	for _, u := range a.uplinks.list {
		before := u.device.Problem()
		err := u.device.Apply(u.plan(a.containers.byKey, controlled))
		u.readCounters()
		if err != nil {
			u.suspect = true
			if before == nil {
				a.log.Error("cannot set up the scheduler", "uplink", u.label(), "error", err)
			}
		}
		u.ledger.Keep(u.hasClass)
		u.classLedger.Keep(u.hasClasses)
		if delays := u.device.Delays(); delays != nil {
			delays.Keep(u.hasClass)
		}
	}
	for _, c := range a.containers.byNumber {
		c.limitPackets()
	}
	a.attach.Apply(a.containers.attached(), a.uplinks.attachments())
	a.containers.tellRefusals()
	a.unsaved = true
}

// plan returns the wanted tree of an uplink. containers are all running ones; controlled are those
// with a number, sorted by number.
func (u *link) plan(containers map[key]*container, controlled []*container) sched.Tree {
	u.controlled = u.controlled[:0]
	for _, c := range controlled {
		u.controlled = append(u.controlled, c.shares[u.index])
	}
	u.participants = append(append(u.participants[:0], u.controlled...), u.host)
	for _, c := range containers {
		if c.Number == 0 {
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
		RateBPS:            u.device.RateBPS(),
		ReserveBasisPoints: u.reserveBasisPoints,
		OverheadBytes:      u.device.OverheadBytes(),
		MTUBytes:           u.device.MTUBytes(),
		PacketTime:         policy.PacketTime(u.device.Precision()),
		Incoming:           u.of != nil,
		ControlNumber:      identity.NumberControl,
		HostNumber:         identity.NumberHost,
		Competitors:        u.wanted,
	}
}

// byStart returns the controlled shares, oldest container first.
func (u *link) byStart() []*share {
	// Numbers are assigned in turn, so this is usually the order of start already.
	list := slices.Clone(u.controlled)
	byStart := func(a, b *share) int { return startOrder(a.container, b.container) }
	if !slices.IsSortedFunc(list, byStart) {
		slices.SortFunc(list, byStart)
	}
	return list
}

// claim returns the share's claim for a policy at the uplink, given its present grant.
func (s *share) claim(p v1.Policy) plan.Claim {
	return plan.Claim{FloorBPS: p.MinBPS, HeldBPS: s.admittedBPS, Latency: policy.Latency(p)}
}

// grant stores the decision about the share's claim.
func (s *share) grant(g plan.Grant) {
	s.admittedBPS, s.refused = g.FloorBPS, g.Refused
	s.latency, s.refusedLatency = g.Latency, g.RefusedLatency
}

// entitle computes all entitlements at an uplink without a scheduler.
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
			s.class.PacketBytes = sched.MaxPacketBytes(s.wanted().CeilingOr(u.device.RateBPS()), entitlements[i].BPS, policy.PacketTime(u.device.Precision()))
		}
	}
}

// startOrder orders containers by start time, oldest first.
func startOrder(a, b *container) int {
	if c := a.Seen.StartedAt.Compare(b.Seen.StartedAt); c != 0 {
		return c
	}
	if c := strings.Compare(a.Seen.Name, b.Seen.Name); c != 0 {
		return c
	}
	return strings.Compare(a.Seen.ID, b.Seen.ID)
}

// limitPackets sets how large the container's packets may be: as the strictest of its classes says.
func (c *container) limitPackets() {
	c.Want.PacketBytes = 0
	for _, s := range c.shares {
		if s.uplink.of != nil {
			continue
		}
		if bytes := s.class.PacketBytes; bytes > 0 && (c.Want.PacketBytes == 0 || bytes < c.Want.PacketBytes) {
			c.Want.PacketBytes = bytes
		}
	}
}

// attachments returns the uplinks as the attacher knows them.
func (us *uplinks) attachments() []*attach.Uplink {
	list := make([]*attach.Uplink, len(us.list))
	for i, u := range us.list {
		u.attached.NoteSenders = u.in != nil
		list[i] = &u.attached
	}
	return list
}
