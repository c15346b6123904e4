package agent

import (
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
)

// Who gets what at one uplink: minimums are admitted, entitlements computed
// from the policies of all that run, allocations from what those want that are
// sending. The rules are those of internal/alloc; what is added here is the
// host class.

// hostReserveDivisor is the part of the uplink that the host class can always
// have, like the part that control traffic has: what a host without heavy
// traffic of its own needs (name look-ups, an ssh session). It competes as a
// container does, by its policy, only while it wants more than that; so an
// idle host does not lower what containers are entitled to.
const hostReserveDivisor = 100

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

// admission is the rule for minimums on this uplink. The host class's own
// minimum comes out of the same budget.
func (u *uplink) admission() alloc.Admission {
	return alloc.Admission{CapacityBPS: u.rateBPS, ReserveBPS: u.reserveBPS()}
}

func (u *uplink) reserveBPS() uint64 {
	return u.rateBPS / 10_000 * uint64(u.reserveBasisPoints)
}

// admit decides which minimums are guaranteed. What is admitted stays; who
// was refused is asked again in order of start.
func (u *uplink) admit(containers map[key]*container) {
	u.admitHost()
	total := u.host.admittedBPS
	var asking []*share
	for _, c := range containers {
		s := c.shares[u.index]
		if c.number == 0 {
			s.admittedBPS = 0
		}
		asked := c.policy().MinBPS
		// A lower minimum needs no one's leave.
		s.admittedBPS = min(s.admittedBPS, asked)
		s.refused = nil
		total += s.admittedBPS
		if c.number != 0 && asked > s.admittedBPS {
			asking = append(asking, s)
		}
	}
	slices.SortFunc(asking, func(a, b *share) int { return startOrder(a.container, b.container) })
	for _, s := range asking {
		asked := s.policy().MinBPS
		if err := u.admission().Admit(total-s.admittedBPS, s.admittedBPS, asked); err != nil {
			s.refused = err
			continue
		}
		total += asked - s.admittedBPS
		s.admittedBPS = asked
	}
	for _, s := range u.controlled {
		s.admitLatency(u.rateBPS)
	}
}

// admitHost guarantees the host class's own minimum before all others, if the
// uplink has that much.
func (u *uplink) admitHost() {
	asked := u.host.policy().MinBPS
	if u.host.refused = u.admission().Admit(0, 0, asked); u.host.refused != nil {
		asked = 0
	}
	u.host.admittedBPS = asked
	u.host.admitLatency(u.rateBPS)
}

// admits says whether a policy could be put into force: its minimum fits, and
// with that its bound on delay can be kept. Errors: *alloc.FloorError,
// *alloc.LatencyError.
func (s *share) admits(p v1.Policy) error {
	u := s.uplink
	if p.MinBPS > s.admittedBPS {
		others := u.host.admittedBPS
		for _, other := range u.controlled {
			if other != s {
				others += other.admittedBPS
			}
		}
		if err := u.admission().Admit(others, s.admittedBPS, p.MinBPS); err != nil {
			return err
		}
	}
	if p.LatencyMS == 0 {
		return nil
	}
	return feasibleLatency(u.rateBPS, u.mtuBytes, p.MinBPS, policy.Latency(p))
}

// hostCompetes says whether the host class wants more than its reserve.
func (u *uplink) hostCompetes() bool {
	return u.host.demand.demandBPS > u.hostReserveBPS()
}

func (u *uplink) hostReserveBPS() uint64 {
	return max(u.rateBPS/hostReserveDivisor, u.host.admittedBPS)
}

// entitle computes what everybody can always have.
func (u *uplink) entitle() {
	capacity := u.rateBPS
	// The kernel's guarantees leave room for control traffic and the host's
	// reserve, so that they fit the link also when nobody adjusts anything.
	guaranteeable := capacity - sched.ControlBPS(capacity)
	u.competing = u.competing[:0]
	for _, s := range u.controlled {
		u.competing = append(u.competing, s.competitor(alloc.Unlimited))
	}
	if u.hostCompetes() {
		u.competing = append(u.competing, u.host.competitor(alloc.Unlimited))
		shares := u.allocator.Entitle(nil, capacity, u.competing)
		guarantees := u.allocator.Entitle(nil, guaranteeable, u.competing)
		for i, s := range u.participants {
			s.entitledBPS = shares[i]
			s.guarantee(guarantees[i])
		}
		return
	}
	shares := u.allocator.Entitle(nil, capacity-u.host.admittedBPS, u.competing)
	reserve := min(u.hostReserveBPS(), guaranteeable)
	guarantees := u.allocator.Entitle(nil, guaranteeable-reserve, u.competing)
	for i, s := range u.controlled {
		s.entitledBPS = shares[i]
		s.guarantee(guarantees[i])
	}
	u.host.entitledBPS, u.host.guaranteedBPS = reserve, reserve
}

// allocate computes what everybody may send now and reports whether anything
// changed that matters. With exact, everything matters.
func (u *uplink) allocate(exact bool) bool {
	participants := u.participants
	capacity := u.rateBPS
	if !u.hostCompetes() {
		participants = u.controlled
		capacity -= min(capacity, u.host.demand.steadyBPS())
		u.host.allocatedBPS = max(u.host.guaranteedBPS, u.host.demand.demandBPS)
	}
	u.competing = u.competing[:0]
	for _, s := range participants {
		u.competing = append(u.competing, s.competitor(s.demand.steadyBPS()))
	}
	entitled := u.allocator.Entitle(nil, capacity, u.competing)
	allocated := u.allocator.Allocate(nil, capacity, u.competing, entitled)
	changed := exact
	for i, s := range participants {
		if allocated[i] >= u.competing[i].DemandBPS {
			// It has all it wants, and may send a little more.
			allocated[i] = s.demand.demandBPS
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
