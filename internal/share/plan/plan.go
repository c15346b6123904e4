// Package plan makes the decisions for one link: which floors and bounds on delay
// are granted, what everybody is entitled to, and what everybody may send now. The
// rules are those of internal/alloc; what is added here is the host class, and what
// is granted already.
//
// All of it is functions over plain values, which know neither containers nor the
// kernel: the agent, `weir set`, the schedulers, `weir explain` and whoever wants to
// know what would happen ask the same ones.
package plan

import (
	"errors"
	"time"

	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/sched"
)

// hostReserveDivisor is the part of a link that the host class can always have,
// like the part that control traffic has: what a host without heavy traffic of
// its own needs (name look-ups, an ssh session). It competes as a container does,
// by its policy, only while it wants more than that; so an idle host does not
// lower what containers are entitled to.
const hostReserveDivisor = 100

// Link is what is shared out: one direction of a device.
type Link struct {
	RateBPS uint64
	// ReserveBasisPoints is the part of the rate that floors may not claim, in
	// hundredths of a percent; see ReserveBPS for the least.
	ReserveBasisPoints uint32
	// MTUBytes is the device's; 0 for Ethernet's.
	MTUBytes uint32
}

// ReserveBPS is the part of the rate that floors may not claim: at least what is kept for
// control traffic and the host, as no scheduler could guarantee that to somebody else.
func (l Link) ReserveBPS() uint64 {
	return max(l.RateBPS/10_000*uint64(l.ReserveBasisPoints), sched.ControlBPS(l.RateBPS)+l.HostReserveBPS(0))
}

// UnknownBPS is what senders that nobody knows may have together.
func (l Link) UnknownBPS() uint64 { return l.RateBPS / hostReserveDivisor }

// HostReserveBPS is what the host class can always have when floorBPS is
// granted to it.
func (l Link) HostReserveBPS(floorBPS uint64) uint64 {
	return max(l.RateBPS/hostReserveDivisor, floorBPS)
}

func (l Link) admission() alloc.Admission {
	return alloc.Admission{CapacityBPS: l.RateBPS, ReserveBPS: l.ReserveBPS()}
}

// Claim is what somebody asks of a link that needs leave.
type Claim struct {
	// FloorBPS is the minimum that is asked for; HeldBPS is the one that was
	// granted so far.
	FloorBPS, HeldBPS uint64
	// Latency is the bound on delay that is asked for; 0 for none.
	Latency time.Duration
}

// Grant is the answer to a Claim.
type Grant struct {
	// FloorBPS is the minimum in force; Refused says why it is less than what
	// was asked for, and is nil or an *alloc.FloorError.
	FloorBPS uint64
	Refused  error
	// Latency is the bound on delay in force; RefusedLatency says why it is not
	// what was asked for, and is nil or an *alloc.LatencyError.
	Latency        time.Duration
	RefusedLatency error
}

// Admit answers all claims on a link: that of the host class before all others,
// for its floor comes out of the same budget, then those of containers, which are
// in the order of their start. What was granted stays, whatever others ask for, the
// host among them; who was refused may ask again.
func (l Link) Admit(host Claim, claims []Claim) (Grant, []Grant) {
	// A lower floor needs no one's leave.
	held := func(c Claim) uint64 { return min(c.HeldBPS, c.FloorBPS) }
	granted := held(host)
	for _, c := range claims {
		granted += held(c)
	}
	answer := func(c Claim) (g Grant) {
		g.FloorBPS = held(c)
		if c.FloorBPS > g.FloorBPS {
			g.Refused = l.admission().Admit(granted-g.FloorBPS, g.FloorBPS, c.FloorBPS)
		}
		if g.Refused == nil {
			granted += c.FloorBPS - g.FloorBPS
			g.FloorBPS = c.FloorBPS
		}
		l.bound(c, &g)
		return g
	}
	hostGrant := answer(host)
	grants := make([]Grant, len(claims))
	for i, c := range claims {
		grants[i] = answer(c)
	}
	return hostGrant, grants
}

// Admits says whether one claim could be granted as a whole, where the floors of
// all others, the host class among them, are othersBPS together. Errors:
// *alloc.FloorError, *alloc.LatencyError.
func (l Link) Admits(othersBPS uint64, c Claim) error {
	if err := l.admission().Admit(othersBPS, c.HeldBPS, c.FloorBPS); err != nil {
		return err
	}
	if c.Latency == 0 {
		return nil
	}
	return l.feasible(c.FloorBPS, c.Latency)
}

// bound decides on the bound on delay of a claim whose floor is decided. Nothing
// of another's is needed for that.
func (l Link) bound(c Claim, g *Grant) {
	if c.Latency == 0 {
		return
	}
	g.RefusedLatency = l.feasible(g.FloorBPS, c.Latency)
	var refusal *alloc.LatencyError
	switch {
	case g.RefusedLatency == nil:
		g.Latency = c.Latency
	case errors.As(g.RefusedLatency, &refusal):
		refusal.FloorRefused = g.FloorBPS == 0 && g.Refused != nil
	}
}

// feasible says whether traffic within floorBPS can be sent within a bound. What
// it waits for are the packets of others that are on their way already, one in the
// scheduler's hand and one on the link.
func (l Link) feasible(floorBPS uint64, asked time.Duration) error {
	return alloc.AdmitLatency(floorBPS, 2*sched.PacketTime(l.RateBPS, l.MTUBytes), asked)
}

// Entitlement is what somebody can always have.
type Entitlement struct {
	// BPS is the ideal.
	BPS uint64
	// GuaranteeableBPS is what of it a scheduler can hold by itself: it leaves
	// room for control traffic and the host's reserve, so that all of these fit
	// the link also when nobody adjusts anything. Of a host class that does not
	// compete it is the reserve, which is more: that comes out of what containers
	// are entitled to.
	GuaranteeableBPS uint64
}

// Entitle computes what the host class and the containers can always have, which is
// the link's rate at most. Their FloorBPS is what was granted. hostCompetes says that
// the host class wants more than its reserve; while it does not, all but its floor is
// the containers'.
func (l Link) Entitle(a *alloc.Allocator, host alloc.Container, hostCompetes bool, containers []alloc.Container) (Entitlement, []Entitlement) {
	guaranteeable := l.RateBPS - sched.ControlBPS(l.RateBPS)
	entitlements := make([]Entitlement, len(containers), len(containers)+1)
	if hostCompetes {
		entitlements = entitlements[:len(containers)+1]
		divide(a, entitlements, l.RateBPS, guaranteeable, append(containers[:len(containers):len(containers)], host))
		return entitlements[len(containers)], entitlements[:len(containers)]
	}
	reserve := min(l.HostReserveBPS(host.FloorBPS), guaranteeable)
	divide(a, entitlements, l.RateBPS-min(host.FloorBPS, l.RateBPS), guaranteeable-reserve, containers)
	return Entitlement{BPS: min(host.FloorBPS, l.RateBPS), GuaranteeableBPS: reserve}, entitlements
}

// divide entitles competitors to parts of a capacity, and of what of it can be
// guaranteed.
func divide(a *alloc.Allocator, dst []Entitlement, capacityBPS, guaranteeableBPS uint64, competitors []alloc.Container) {
	for i, bps := range a.Entitle(nil, capacityBPS, competitors) {
		dst[i].BPS = bps
	}
	for i, bps := range a.Entitle(nil, guaranteeableBPS, competitors) {
		dst[i].GuaranteeableBPS = bps
	}
}

// Division is what everybody may send of a link now.
type Division struct {
	// CapacityBPS is what is divided: the rate, less what a host class sends that
	// does not compete.
	CapacityBPS uint64
	// EntitledBPS is what each could have of it, AllocatedBPS what it may send,
	// given what all want: of the containers in their order, and then of the host
	// class if it competes.
	EntitledBPS, AllocatedBPS []uint64
}

// Allocate divides the link among containers and, behind them as the last of
// competitors, the host class. Their FloorBPS is what was granted, their DemandBPS
// what they want. A host class that does not compete has what it wants before all
// others. The result is in dst, with the memory that it has.
func (l Link) Allocate(a *alloc.Allocator, dst *Division, competitors []alloc.Container, hostCompetes bool) {
	dst.CapacityBPS = l.RateBPS
	if !hostCompetes {
		last := len(competitors) - 1
		dst.CapacityBPS -= min(l.RateBPS, competitors[last].DemandBPS)
		competitors = competitors[:last]
	}
	dst.EntitledBPS = a.Entitle(dst.EntitledBPS, dst.CapacityBPS, competitors)
	dst.AllocatedBPS = a.Allocate(dst.AllocatedBPS, dst.CapacityBPS, competitors, dst.EntitledBPS)
}

// HostCompetes says whether a host class that is granted floorBPS and wants
// demandBPS competes: it wants more than its reserve.
func (l Link) HostCompetes(floorBPS, demandBPS uint64) bool {
	return demandBPS > l.HostReserveBPS(floorBPS)
}
