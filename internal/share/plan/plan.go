// Package plan makes the decisions for one link: which floors and bounds on delay
// are granted, what each container is entitled to, and what it may send now. The
// rules are those of internal/share/alloc; what is added here is the host class, and what
// is granted already.
//
// All of it is functions over plain values, which know neither containers nor the
// kernel: the agent, `weir set`, the schedulers, `weir explain` and previews use the
// same ones.
package plan

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
)

// hostReserveDivisor sets the host class's reserve to 1/100 of the link, like that of
// control traffic. That is enough for a host without heavy traffic of its own (DNS, ssh).
// The host class competes as a container does, by its policy, only while it wants more, so
// an idle host does not reduce the entitlements of containers. It keeps the reserve then.
const hostReserveDivisor = 100

// Link is the shared resource: one direction of a device.
type Link struct {
	RateBPS uint64
	// ReserveBasisPoints is the part of the rate that floors cannot claim, in hundredths of
	// a percent; see ReserveBPS for its minimum.
	ReserveBasisPoints uint32
	// MTUBytes is the device's MTU; 0 means Ethernet's.
	MTUBytes uint32
	// PacketTime bounds how long a packet holds the link; 0 means 0.25 ms.
	PacketTime time.Duration
}

// LongestPacket returns how long the largest packet holds the link.
func (l Link) LongestPacket() time.Duration {
	return sched.LongestPacketTime(l.RateBPS, l.MTUBytes, l.PacketTime)
}

// ReserveBPS returns the rate that floors cannot claim: at least the rate reserved for
// control traffic and the host, which no scheduler could guarantee to a container.
func (l Link) ReserveBPS() uint64 {
	return max(l.RateBPS/10_000*uint64(l.ReserveBasisPoints), sched.ControlBPS(l.RateBPS)+l.HostReserveBPS(0))
}

// UnknownBPS returns the total rate of senders that belong to no known container.
func (l Link) UnknownBPS() uint64 { return l.RateBPS / hostReserveDivisor }

// HostReserveBPS returns what the host class can always have when it is granted floorBPS.
func (l Link) HostReserveBPS(floorBPS uint64) uint64 {
	return max(l.RateBPS/hostReserveDivisor, floorBPS)
}

func (l Link) admission() alloc.Admission {
	return alloc.Admission{CapacityBPS: l.RateBPS, ReserveBPS: l.ReserveBPS()}
}

// FloorsBPS returns what the floors of containers can have together beside one of the host class.
// Above that, because the rate was lowered or the reserve raised after they were admitted, all are cut
// by the same factor, so that the reserve stays for those without a floor.
func (l Link) FloorsBPS(hostFloorBPS uint64) uint64 {
	budget := l.admission().BudgetBPS()
	return budget - min(hostFloorBPS, budget)
}

// Claim is a request for guarantees on a link, which needs admission.
type Claim struct {
	// FloorBPS is the requested minimum, HeldBPS the minimum granted so far.
	FloorBPS, HeldBPS uint64
	// Latency is the requested latency bound; 0 for none.
	Latency time.Duration
}

// Grant is the answer to a Claim.
type Grant struct {
	// FloorBPS is the admitted minimum. Refused is nil, or an *alloc.FloorError if it is
	// less than requested.
	FloorBPS uint64
	Refused  error
	// Latency is the admitted latency bound. RefusedLatency is nil, or an
	// *alloc.LatencyError if the request was refused.
	Latency        time.Duration
	RefusedLatency error
}

// Admit decides all claims on a link: first the host class's, whose floor uses the same
// budget, then those of containers, given in the order of their start. Granted floors
// stay for all later requests, including those of the host. A refused claim may be repeated.
func (l Link) Admit(host Claim, claims []Claim) (Grant, []Grant) {
	// A lower floor needs no admission.
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

// Admits returns nil if a claim can be granted completely while the floors of all others,
// including the host class, total othersBPS. Errors: *alloc.FloorError,
// *alloc.LatencyError.
func (l Link) Admits(othersBPS uint64, c Claim) error {
	if err := l.admission().Admit(othersBPS, c.HeldBPS, c.FloorBPS); err != nil {
		return err
	}
	if c.Latency == 0 {
		return nil
	}
	return l.feasible(c.FloorBPS, c.Latency)
}

// bound decides the latency bound of a claim whose floor is decided. The bound does not
// depend on other claims.
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

// feasible returns nil if traffic within floorBPS can meet a latency bound. It may have to
// wait for two packets of others: one in the scheduler and one on the link.
func (l Link) feasible(floorBPS uint64, asked time.Duration) error {
	return alloc.AdmitLatency(floorBPS, 2*l.LongestPacket(), asked)
}

// Entitlement is the rate that a container can always have.
type Entitlement struct {
	// BPS is the ideal entitlement.
	BPS uint64
	// GuaranteeableBPS is the part that a scheduler can hold without the agent: it leaves
	// room for control traffic and the host's reserve, so that all guarantees fit the link.
	// For a host class that does not compete it is the reserve, which exceeds BPS and comes
	// out of the containers' entitlements.
	GuaranteeableBPS uint64
}

// Entitle computes the entitlements of the host class and the containers, which together
// are at most the link's rate. FloorBPS of each is its admitted floor. hostCompetes says
// that the host class wants more than its reserve; otherwise the containers get all but its
// floor.
func (l Link) Entitle(a *alloc.Allocator, host alloc.Container, hostCompetes bool, containers []alloc.Container) (Entitlement, []Entitlement) {
	guaranteeable := l.RateBPS - sched.ControlBPS(l.RateBPS)
	entitlements := make([]Entitlement, len(containers), len(containers)+1)
	if hostCompetes {
		entitlements = entitlements[:len(containers)+1]
		l.divide(a, entitlements, l.RateBPS, guaranteeable, l.FloorsBPS(0), append(containers[:len(containers):len(containers)], host), true)
		return entitlements[len(containers)], entitlements[:len(containers)]
	}
	reserve := min(l.HostReserveBPS(host.FloorBPS), guaranteeable)
	l.divide(a, entitlements, l.RateBPS-min(host.FloorBPS, l.RateBPS), guaranteeable-reserve, l.FloorsBPS(host.FloorBPS), containers, false)
	return Entitlement{BPS: min(host.FloorBPS, l.RateBPS), GuaranteeableBPS: reserve}, entitlements
}

// divide computes the entitlements of competitors at a capacity, and their guaranteeable
// part. Floors are cut to floorsBPS in total.
func (l Link) divide(a *alloc.Allocator, dst []Entitlement, capacityBPS, guaranteeableBPS, floorsBPS uint64, competitors []alloc.Container, hostCompetes bool) {
	for i, bps := range l.entitle(a, nil, capacityBPS, floorsBPS, competitors, hostCompetes) {
		dst[i].BPS = bps
	}
	for i, bps := range l.entitle(a, nil, guaranteeableBPS, floorsBPS, competitors, hostCompetes) {
		dst[i].GuaranteeableBPS = bps
	}
}

// entitle computes the entitlements of competitors. The reserve of a host class that
// competes, the last competitor, lifts its entitlement as a floor does, and is not cut when
// floors exceed floorsBPS.
func (l Link) entitle(a *alloc.Allocator, dst []uint64, capacityBPS, floorsBPS uint64, competitors []alloc.Container, hostCompetes bool) []uint64 {
	dst = a.Entitle(dst, capacityBPS, floorsBPS, competitors)
	if !hostCompetes {
		return dst
	}
	last := len(competitors) - 1
	reserve := min(l.HostReserveBPS(0), competitors[last].CeilingBPS, capacityBPS)
	if dst[last] >= reserve {
		return dst
	}
	return append(a.Entitle(dst, capacityBPS-reserve, floorsBPS, competitors[:last]), reserve)
}

// Division is the current division of a link.
type Division struct {
	// CapacityBPS is the divided rate: the link's rate, minus the traffic of a host class
	// that does not compete.
	CapacityBPS uint64
	// EntitledBPS is each competitor's entitlement to it and AllocatedBPS what it may send
	// at the current demands: containers in order, then the host class if it competes.
	EntitledBPS, AllocatedBPS []uint64

	// What EntitledBPS was computed for: a division at other demands alone has the same.
	entitled struct {
		competitors            []alloc.Container
		capacityBPS, floorsBPS uint64
		hostCompetes           bool
	}
}

// isEntitled reports whether EntitledBPS is that of these competitors at a capacity.
func (d *Division) isEntitled(capacityBPS, floorsBPS uint64, competitors []alloc.Container, hostCompetes bool) bool {
	of := &d.entitled
	if of.capacityBPS != capacityBPS || of.floorsBPS != floorsBPS || of.hostCompetes != hostCompetes {
		return false
	}
	return slices.EqualFunc(of.competitors, competitors, func(a, b alloc.Container) bool {
		a.DemandBPS = b.DemandBPS
		return a == b
	})
}

// Allocate divides the link among competitors: the containers, then the host class. Their
// FloorBPS is the admitted floor, DemandBPS the estimated demand. A host class that does
// not compete gets its demand first. The result is written to dst, whose memory is reused.
func (l Link) Allocate(a *alloc.Allocator, dst *Division, competitors []alloc.Container, hostCompetes bool) {
	dst.CapacityBPS = l.RateBPS
	floorsBPS := l.FloorsBPS(0)
	if !hostCompetes {
		last := len(competitors) - 1
		dst.CapacityBPS -= min(l.RateBPS, competitors[last].DemandBPS)
		floorsBPS = l.FloorsBPS(competitors[last].FloorBPS)
		competitors = competitors[:last]
	}
	if !dst.isEntitled(dst.CapacityBPS, floorsBPS, competitors, hostCompetes) {
		dst.EntitledBPS = l.entitle(a, dst.EntitledBPS, dst.CapacityBPS, floorsBPS, competitors, hostCompetes)
		dst.entitled.competitors = append(dst.entitled.competitors[:0], competitors...)
		dst.entitled.capacityBPS, dst.entitled.floorsBPS, dst.entitled.hostCompetes = dst.CapacityBPS, floorsBPS, hostCompetes
	}
	dst.AllocatedBPS = a.Allocate(dst.AllocatedBPS, dst.CapacityBPS, competitors, dst.EntitledBPS)
}

// HostCompetes reports whether a host class with the admitted floor floorBPS wants more
// than its reserve, so that it competes.
func (l Link) HostCompetes(floorBPS, demandBPS uint64) bool {
	return demandBPS > l.HostReserveBPS(floorBPS)
}
