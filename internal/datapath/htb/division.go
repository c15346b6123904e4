package htb

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/demand"
	"github.com/weir-project/weir/internal/share/plan"
	"github.com/weir-project/weir/internal/share/sched"
)

// Division of the link: entitlements and guarantees from the wanted tree, allocations from the
// containers that are sending. internal/share/plan has the decisions; tree.go brings HTB to keep
// them.

// member is a competitor with its measured traffic and its rates.
type member struct {
	want   sched.Competitor
	demand demand.Meter
	// active: it sent something recently or has packets queued. activeSince is the end of the last
	// time without any offered traffic.
	active      bool
	activeSince time.Time
	told        told
	// entitledBPS is the rate it can always have, guaranteedBPS the part of that which HTB
	// guarantees by itself, allocatedBPS the rate it may send at now.
	entitledBPS   uint64
	guaranteedBPS uint64
	allocatedBPS  uint64
	// lowered: its allocation fell by more than a loweredDivisor part in the last turn, and it wants more.
	lowered  bool
	holdback holdback
	// leaves are its leaves in the kernel; turnsSince counts the turns since its packets moved to
	// other leaves.
	leaves     leaves
	turnsSince int
	// goneQueues holds the drops and marks of removed leaves, queues those of present leaves by
	// traffic class.
	goneQueues kernel.QueueStats
	queues     [sched.NumTrafficClasses]kernel.QueueStats
	// backlogBytes is the queued traffic at the last reading.
	backlogBytes uint64
	// counters were read at countedAt, with countedBacklogBytes queued; sentAt is the time of their
	// last change.
	counters            sched.Counters
	trafficCounters     [sched.NumTrafficClasses]sched.TrafficCounters
	countedBacklogBytes uint64
	countedAt, sentAt   time.Time
}

// told holds the settings that the classifier has of a member, valid if known is set. Otherwise it
// may have settings of an earlier agent or of the number's last holder.
type told struct {
	known  bool
	minors sched.Minors
	// efBPS is the limit of its EF traffic.
	efBPS uint64
}

// division is the division of the link among the members.
type division struct {
	link plan.Link
	// members is sorted by number; competitors has the same members, with the host class last.
	members     []*member
	competitors []*member
	host        *member
	// quiet has an entry for each competitor, in their order.
	quiet []quiet
	// hostCompetes: the host class competes as containers do. hostCompetedAt is the last time it
	// wanted more than its reserve.
	hostCompetes   bool
	hostCompetedAt time.Time
	allocator      alloc.Allocator
	holdbacks      holdbacks
	reused         reused
}

// quiet tells an inactive member by what it has offered, if known is set. The loop looks at a thousand of these in a
// fraction of the time of a thousand members, which are far apart in memory.
type quiet struct {
	number       uint16
	known        bool
	offeredBytes uint64
}

// reused is memory reused in each division.
type reused struct {
	competing []alloc.Container
	divided   plan.Division
	// reallocated are the members whose allocations or savings have changed since the last turn; one may be there twice.
	reallocated []*member
}

// setMembers replaces the wanted tree. Members that remain keep their measurements.
func (d *division) setMembers(want sched.Tree) {
	d.link = plan.Link{RateBPS: want.RateBPS, ReserveBasisPoints: want.ReserveBasisPoints, MTUBytes: want.MTUBytes, PacketTime: want.PacketTime}
	d.holdbacks.incoming = want.Incoming
	before := d.members
	d.members = make([]*member, 0, len(want.Competitors))
	d.competitors = d.competitors[:0]
	for _, c := range want.Competitors {
		for len(before) > 0 && before[0].want.Number < c.Number {
			before = before[1:]
		}
		var m *member
		if len(before) > 0 && before[0].want.Number == c.Number {
			m = before[0]
		} else {
			m = &member{}
		}
		m.want = c
		m.change()
		d.members = append(d.members, m)
		if c.Number == want.HostNumber {
			d.host = m
		} else {
			d.competitors = append(d.competitors, m)
		}
	}
	d.competitors = append(d.competitors, d.host)
	d.quiet = d.quiet[:0]
	for _, m := range d.competitors {
		d.quiet = append(d.quiet, quiet{number: m.want.Number})
	}
	d.hostCompetes = d.hostCompetes || d.hostWantsMore()
	d.entitle()
	d.reused.reallocated = d.reused.reallocated[:0]
	d.allocate(true)
}

// member returns the member with this number, or nil.
func (d *division) member(number uint16) *member {
	i, found := indexOf(d.members, number)
	if !found {
		return nil
	}
	return d.members[i]
}

// indexOf returns the index of the member with this number.
func indexOf(members []*member, number uint16) (i int, found bool) {
	return slices.BinarySearchFunc(members, number, func(m *member, number uint16) int {
		return cmp.Compare(m.want.Number, number)
	})
}

// competitor returns the member as input of the ideal allocation, with a demand of demandBPS.
func (m *member) competitor(demandBPS uint64) alloc.Container {
	return alloc.Container{
		Weight: m.want.Weight, FloorBPS: m.want.FloorBPS, CeilingBPS: m.want.CeilingBPS,
		Priority: m.want.Priority, DemandBPS: demandBPS,
	}
}

// hostHold is how long the host class keeps competing after it wanted more than its reserve. Host
// traffic is bursty, and each change affects the entitlements and guarantees of all. Others may use
// its idle rate meanwhile.
const hostHold = 5 * time.Second

// hostWantsMore reports whether the host class wants more than its reserve.
func (d *division) hostWantsMore() bool {
	return d.link.HostCompetes(d.host.want.FloorBPS, d.host.demand.DemandBPS)
}

// judgeHost decides whether the host class competes, and reports whether that changed.
func (d *division) judgeHost(now time.Time) (changed bool) {
	before := d.hostCompetes
	if d.hostCompetes = d.hostWantsMore(); d.hostCompetes {
		d.hostCompetedAt = now
	}
	d.hostCompetes = d.hostCompetes || before && now.Sub(d.hostCompetedAt) < hostHold
	return d.hostCompetes != before
}

// entitle computes the entitlement of each member.
func (d *division) entitle() {
	containers := d.competitors[:len(d.competitors)-1]
	d.reused.competing = d.reused.competing[:0]
	for _, m := range containers {
		d.reused.competing = append(d.reused.competing, m.competitor(alloc.Unlimited))
	}
	competes := d.hostCompetes
	host, entitlements := d.link.Entitle(&d.allocator, d.host.competitor(alloc.Unlimited), competes, d.reused.competing)
	for i, m := range containers {
		m.entitledBPS = entitlements[i].BPS
		m.guarantee(entitlements[i].GuaranteeableBPS, m.want.FloorBPS)
	}
	d.host.entitledBPS = host.BPS
	if competes {
		d.host.guarantee(host.GuaranteeableBPS, d.link.HostReserveBPS(d.host.want.FloorBPS))
	} else {
		d.host.guaranteedBPS = host.GuaranteeableBPS
	}
}

// guaranteeSteps: guarantees are rounded down to steps of this part of themselves, and stay while
// they are at most two steps too low. So a container that comes or goes among a thousand does not
// change all of them in the kernel. The allocation compensates while an agent runs.
const guaranteeSteps = 256

// guarantee sets the member's HTB guarantee for an entitlement; floorBPS is not rounded down.
func (m *member) guarantee(bps, floorBPS uint64) {
	floor := min(floorBPS, bps)
	if m.guaranteedBPS <= bps && m.guaranteedBPS >= max(floor, bps-2*(bps/guaranteeSteps)) {
		return
	}
	step := uint64(1)
	for step*2*guaranteeSteps <= bps {
		step *= 2
	}
	m.guaranteedBPS = max(bps/step*step, floor)
}

// significantDivisor: a change of an allocation by less than this part of itself is ignored.
const significantDivisor = 500

// loweredDivisor: a share whose allocation falls by more than this part of itself loses its savings (class.Lowered).
// Smaller changes of others, which happen all the time, would leave shares without savings for late timers.
const loweredDivisor = 20

// allocate computes the rate that each member may send at now, adds those that it changed to the reallocated
// ones, and reports whether any allocation changed significantly. With exact, every change is significant.
func (d *division) allocate(exact bool) bool {
	competes := d.hostCompetes
	d.reused.competing = d.reused.competing[:0]
	for _, m := range d.competitors {
		d.reused.competing = append(d.reused.competing, m.competitor(m.demand.SteadyBPS()))
	}
	d.link.Allocate(&d.allocator, &d.reused.divided, d.reused.competing, competes)
	if !competes { // also where no change is significant
		d.host.allocatedBPS = max(d.host.guaranteedBPS, d.host.demand.DemandBPS)
		d.reused.reallocated = append(d.reused.reallocated, d.host)
	}
	changed := exact
	for i, allocatedBPS := range d.reused.divided.AllocatedBPS {
		m := d.competitors[i]
		if allocatedBPS >= d.reused.competing[i].DemandBPS {
			// Its demand is met; it may send a little more, within its maximum.
			allocatedBPS = min(m.demand.DemandBPS, m.want.CeilingBPS)
			d.reused.divided.AllocatedBPS[i] = allocatedBPS
		}
		difference := max(allocatedBPS, m.allocatedBPS) - min(allocatedBPS, m.allocatedBPS)
		if difference > m.allocatedBPS/significantDivisor {
			changed = true
		}
	}
	if changed {
		for i, allocatedBPS := range d.reused.divided.AllocatedBPS {
			m := d.competitors[i]
			m.lowered = allocatedBPS < m.allocatedBPS-m.allocatedBPS/loweredDivisor && m.demand.WantsMore()
			if m.allocatedBPS != allocatedBPS {
				m.allocatedBPS = allocatedBPS
				d.reused.reallocated = append(d.reused.reallocated, m)
			}
		}
	}
	return changed
}

// restoreSavings lets shares save again that lost their savings in the last turn, and returns only these, in the same
// memory.
func restoreSavings(reallocated []*member) (restored []*member) {
	restored = reallocated[:0]
	for _, m := range reallocated {
		if m.lowered {
			m.lowered = false
			restored = append(restored, m)
		}
	}
	return restored
}

// packetBytes returns the largest packet that a member's devices hand over; 0 if they have the
// link's limit.
func (d *division) packetBytes(m *member) uint32 {
	if !m.want.OwnDevices {
		return 0
	}
	return sched.MaxPacketBytes(m.want.CeilingOr(d.link.RateBPS), m.entitledBPS, d.link.PacketTime)
}

// class returns the member as a class of the tree.
func (d *division) class(m *member) class {
	want, limitBPS := m.want, d.limitBPS(m)
	want.CeilingBPS = min(want.CeilingBPS, limitBPS)
	return class{
		Competitor: want, GuaranteedBPS: min(m.guaranteedBPS, limitBPS), AllocatedBPS: min(m.allocatedBPS, limitBPS),
		PacketBytes: d.packetBytes(m), QueueDoublings: m.holdback.queue.doublings, Leaves: m.leaves, Lowered: m.lowered,
	}
}

// Snapshot implements sched.Backend.
func (b *Backend) Snapshot(dst *sched.Snapshot) {
	dst.Competitors = dst.Competitors[:0]
	dst.HostCompetes = b.host != nil && b.hostCompetes
	for _, m := range b.members {
		dst.Competitors = append(dst.Competitors, sched.State{
			Number: m.want.Number, Active: m.active, ActiveSince: m.activeSince, DemandBPS: m.demand.SteadyBPS(),
			EntitledBPS: m.entitledBPS, GuaranteedBPS: min(m.guaranteedBPS, b.limitBPS(m)), AllocatedBPS: min(m.allocatedBPS, b.limitBPS(m)), HeldBackBPS: m.mayHaveBPS() - min(m.mayHaveBPS(), b.limitBPS(m)),
			PacketBytes: b.packetBytes(m), BacklogBytes: m.countedBacklogBytes, Counters: m.counters, CountedAt: m.countedAt,
			Traffic: m.trafficCounters,
		})
	}
}
