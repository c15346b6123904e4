package htb

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/demand"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/plan"
	"github.com/weir-project/weir/internal/sched"
)

// Who may send how much: entitlements and what of them is guaranteed, from what is
// wanted, and allocations from who is sending. What of that is a decision is in
// internal/plan; how HTB is brought to keep it is in tree.go.

// member is a competitor with what is known of its traffic, and what it has.
type member struct {
	want   sched.Competitor
	demand demand.Meter
	// active: it sent something lately, or has something queued. It had offered
	// nothing until activeSince.
	active      bool
	activeSince time.Time
	// minors and efBPS, what its EF is held to, are what the classifier was told of it,
	// if told says so. It may know others of an earlier agent, or of the number's last
	// holder.
	minors sched.Minors
	efBPS  uint64
	told   bool
	// entitledBPS is what it can always have, guaranteedBPS what of that HTB holds
	// by itself, allocatedBPS what it may send now.
	entitledBPS   uint64
	guaranteedBPS uint64
	allocatedBPS  uint64
	// leaves are those that it has in the kernel; turnsSince counts turns since
	// packets go to others of them.
	leaves     leaves
	turnsSince int
	// divided: it has or had traffic classes, so what it sent is counted by its
	// share, which stays; goneQueues is what its leaves had dropped and marked that
	// were removed, and queues what those that are there have, by kind of traffic.
	divided    bool
	goneQueues kernel.QueueStats
	queues     [sched.NumTrafficClasses]kernel.QueueStats
	// backlogBytes is what is queued, as last asked.
	backlogBytes uint64
	// counters were read at countedAt, with countedBacklogBytes, and had changed
	// last at sentAt.
	counters            sched.Counters
	trafficCounters     [sched.NumTrafficClasses]sched.TrafficCounters
	countedBacklogBytes uint64
	countedAt, sentAt   time.Time
}

// division is how the link is divided.
type division struct {
	link plan.Link
	// members are in the order of their numbers; competitors are the same with
	// the host behind all others.
	members     []*member
	competitors []*member
	host        *member
	// hostCompetes: the host takes part as a container does. It wanted more than its reserve
	// last at hostCompetedAt.
	hostCompetes   bool
	hostCompetedAt time.Time
	allocator      alloc.Allocator

	// Scratch space.
	competing []alloc.Container
	divided   plan.Division
}

// take takes up what is wanted. Who was there before keeps what is known of it.
func (d *division) take(want sched.Tree) {
	d.link = plan.Link{RateBPS: want.RateBPS, MTUBytes: want.MTUBytes}
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
	d.hostCompetes = d.hostCompetes || d.hostWantsMore()
	d.entitle()
	d.allocate(true)
}

// member finds one by its number; nil if there is none.
func (d *division) member(number uint16) *member {
	i, found := slices.BinarySearchFunc(d.members, number, func(m *member, number uint16) int {
		return cmp.Compare(m.want.Number, number)
	})
	if !found {
		return nil
	}
	return d.members[i]
}

// competitor is the member as the ideal allocation sees it, with a demand of
// demandBPS.
func (m *member) competitor(demandBPS uint64) alloc.Container {
	return alloc.Container{
		Weight: m.want.Weight, FloorBPS: m.want.FloorBPS, CeilingBPS: m.want.CeilingBPS,
		Priority: m.want.Priority, DemandBPS: demandBPS,
	}
}

// hostHold is how long the host class goes on competing after it wanted more than its
// reserve. What a host sends comes in bursts, and each change is one of everybody's
// entitlement and guarantee. What it does not use meanwhile others have.
const hostHold = 5 * time.Second

// hostWantsMore says whether the host class wants more than its reserve.
func (d *division) hostWantsMore() bool {
	return d.link.HostCompetes(d.host.want.FloorBPS, d.host.demand.DemandBPS)
}

// judgeHost decides anew whether the host competes, and reports whether it changed.
func (d *division) judgeHost(now time.Time) (changed bool) {
	before := d.hostCompetes
	if d.hostCompetes = d.hostWantsMore(); d.hostCompetes {
		d.hostCompetedAt = now
	}
	d.hostCompetes = d.hostCompetes || before && now.Sub(d.hostCompetedAt) < hostHold
	return d.hostCompetes != before
}

// entitle computes what everybody can always have.
func (d *division) entitle() {
	containers := d.competitors[:len(d.competitors)-1]
	d.competing = d.competing[:0]
	for _, m := range containers {
		d.competing = append(d.competing, m.competitor(alloc.Unlimited))
	}
	competes := d.hostCompetes
	host, entitlements := d.link.Entitle(&d.allocator, d.host.competitor(alloc.Unlimited), competes, d.competing)
	for i, m := range containers {
		m.entitledBPS = entitlements[i].BPS
		m.guarantee(entitlements[i].GuaranteeableBPS)
	}
	d.host.entitledBPS = host.BPS
	if competes {
		d.host.guarantee(host.GuaranteeableBPS)
	} else {
		d.host.guaranteedBPS = host.GuaranteeableBPS
	}
}

// guaranteeSteps: guarantees are cut to steps of that part of themselves, and
// stay while they are at most two steps too low, so that a container that comes
// or goes among a thousand does not change all of them in the kernel. The
// allocation makes up for it while anybody looks after that.
const guaranteeSteps = 256

// guarantee takes what the entitlement allows HTB to guarantee.
func (m *member) guarantee(bps uint64) {
	floor := min(m.want.FloorBPS, bps)
	if m.guaranteedBPS <= bps && m.guaranteedBPS >= max(floor, bps-2*(bps/guaranteeSteps)) {
		return
	}
	step := uint64(1)
	for step*2*guaranteeSteps <= bps {
		step *= 2
	}
	m.guaranteedBPS = max(bps/step*step, floor)
}

// significantDivisor: an allocation that changes by less than this part of
// itself is left as it is.
const significantDivisor = 500

// allocate computes what everybody may send now and reports whether anything
// changed that matters. With exact, everything matters.
func (d *division) allocate(exact bool) bool {
	competes := d.hostCompetes
	d.competing = d.competing[:0]
	for _, m := range d.competitors {
		d.competing = append(d.competing, m.competitor(m.demand.SteadyBPS()))
	}
	d.link.Allocate(&d.allocator, &d.divided, d.competing, competes)
	if !competes {
		d.host.allocatedBPS = max(d.host.guaranteedBPS, d.host.demand.DemandBPS)
	}
	changed := exact
	for i, allocatedBPS := range d.divided.AllocatedBPS {
		m := d.competitors[i]
		if allocatedBPS >= d.competing[i].DemandBPS {
			// It has all it wants, and may send a little more, within its maximum.
			allocatedBPS = min(m.demand.DemandBPS, m.want.CeilingBPS)
			d.divided.AllocatedBPS[i] = allocatedBPS
		}
		difference := max(allocatedBPS, m.allocatedBPS) - min(allocatedBPS, m.allocatedBPS)
		if difference > m.allocatedBPS/significantDivisor {
			changed = true
		}
	}
	if changed {
		for i, allocatedBPS := range d.divided.AllocatedBPS {
			d.competitors[i].allocatedBPS = allocatedBPS
		}
	}
	return changed
}

// packetBytes is the largest packet that a member's devices hand over; 0 where they
// have the link's limit.
func (d *division) packetBytes(m *member) uint32 {
	if !m.want.OwnDevices {
		return 0
	}
	return sched.MaxPacketBytes(m.want.CeilingOr(d.link.RateBPS), m.entitledBPS)
}

// class is a member as the tree has it.
func (d *division) class(m *member) class {
	return class{Competitor: m.want, GuaranteedBPS: m.guaranteedBPS, AllocatedBPS: m.allocatedBPS, PacketBytes: d.packetBytes(m), Leaves: m.leaves}
}

// Snapshot implements sched.Backend.
func (b *Backend) Snapshot(dst *sched.Snapshot) {
	dst.Competitors = dst.Competitors[:0]
	dst.HostCompetes = b.host != nil && b.hostCompetes
	for _, m := range b.members {
		dst.Competitors = append(dst.Competitors, sched.State{
			Number: m.want.Number, Active: m.active, ActiveSince: m.activeSince, DemandBPS: m.demand.SteadyBPS(),
			EntitledBPS: m.entitledBPS, GuaranteedBPS: m.guaranteedBPS, AllocatedBPS: m.allocatedBPS,
			PacketBytes: b.packetBytes(m), BacklogBytes: m.countedBacklogBytes, Counters: m.counters, CountedAt: m.countedAt,
			Traffic: m.trafficCounters,
		})
	}
}
