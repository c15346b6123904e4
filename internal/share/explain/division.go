package explain

import (
	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/plan"
)

// member is a competitor for an uplink: a container or the host class.
type member struct {
	alloc.Container
	name         string
	entitledBPS  uint64
	allocatedBPS uint64
	// reserved: it is the host class, and its reserve is more than its policy gives it.
	reserved bool
}

// division is the division of one uplink, with the member to explain.
type division struct {
	uplink  v1.Uplink
	verb    string   // what the uplink does with what is divided: send or receive
	members []member // containers with a class, and the host class if it competes
	host    *member
	isHost  bool // the host class is the one to explain
	// me is the explained member's index; -1 for a host class that does not compete.
	me int
	// capacityBPS is the rate that the members' entitlements add up to.
	capacityBPS uint64
	// admittedBPS is the sum of all admitted minimums; floorsBPS is what those of members can have.
	admittedBPS, floorsBPS uint64
}

func newDivision(s v1.Snapshot, uplink, index int) *division {
	u := s.Status.Uplinks[uplink]
	d := &division{uplink: u, me: -1}
	for i := range s.Containers {
		c := &s.Containers[i]
		share := c.ShareAt(u.Name)
		if share == nil || !share.Controlled {
			continue
		}
		m := newMember(c, share)
		d.admittedBPS += m.FloorBPS
		if isHost(c) {
			d.host, d.isHost = &m, i == index
			continue
		}
		if i == index {
			d.me = len(d.members)
		}
		d.members = append(d.members, m)
	}
	d.capacityBPS, d.floorsBPS = u.RateBPS, d.link().FloorsBPS(0)
	switch {
	case d.host == nil:
	case u.HostCompetes:
		if d.isHost {
			d.me = len(d.members)
		}
		d.members = append(d.members, *d.host)
	default:
		d.capacityBPS -= min(d.host.FloorBPS, d.capacityBPS)
		d.floorsBPS = d.link().FloorsBPS(d.host.FloorBPS)
	}
	for i, bps := range d.entitled(d.competitors()) {
		d.members[i].entitledBPS = bps
	}
	if d.hostCompetes() {
		host := &d.members[len(d.members)-1]
		host.reserved = d.byPolicy(len(d.members)-1) < host.entitledBPS
	}
	return d
}

func newMember(c *v1.Container, share *v1.Share) member {
	m := member{name: c.Name, entitledBPS: share.EntitledBPS, allocatedBPS: share.AllocatedBPS, Container: alloc.Container{
		Weight: c.Policy.Weight, FloorBPS: share.AdmittedBPS, CeilingBPS: c.Policy.MaxBPS, Priority: c.Policy.Priority, DemandBPS: share.WantedBPS,
	}}
	if c.Policy.MaxBPS == 0 {
		m.CeilingBPS = alloc.Unlimited
	}
	if share.WantsMore {
		m.DemandBPS = alloc.Unlimited
	}
	return m
}

func isHost(c *v1.Container) bool { return c.Runtime == "host" && c.ID == "host" }

func (d *division) competitors() []alloc.Container {
	list := make([]alloc.Container, len(d.members))
	for i := range d.members {
		list[i] = d.members[i].Container
	}
	return list
}

// link returns the uplink as package plan needs it.
func (d *division) link() plan.Link {
	return plan.Link{RateBPS: d.uplink.RateBPS, ReserveBasisPoints: basisPoints(d.uplink)}
}

// hostClass returns the host class for the ideal allocation; the zero value without one.
func (d *division) hostClass() alloc.Container {
	if d.host == nil {
		return alloc.Container{}
	}
	return d.host.Container
}

// hostCompetes reports whether the host class is the last member.
func (d *division) hostCompetes() bool { return d.host != nil && d.uplink.HostCompetes }

// entitled returns the entitlements if the members had the values of competitors.
func (d *division) entitled(competitors []alloc.Container) []uint64 {
	containers, host, competes := competitors, d.hostClass(), d.hostCompetes()
	if competes {
		last := len(competitors) - 1
		containers, host = competitors[:last], competitors[last]
	}
	hostEntitled, all := d.link().Entitle(&alloc.Allocator{}, host, competes, containers)
	if competes {
		all = append(all, hostEntitled)
	}
	bps := make([]uint64, len(all))
	for i := range all {
		bps[i] = all[i].BPS
	}
	return bps
}

// byPolicy returns the entitlement of a member without the host class's reserve.
func (d *division) byPolicy(member int) uint64 {
	return new(alloc.Allocator).Entitle(nil, d.capacityBPS, d.floorsBPS, d.competitors())[member]
}

// entitledIf returns the entitlement of the explained member after a change of its values.
func (d *division) entitledIf(change func(*alloc.Container)) uint64 {
	list := d.competitors()
	change(&list[d.me])
	return d.entitled(list)[d.me]
}

// now is the division, by current demands, of the rate that the host class leaves: with the
// policies in force, or with one changed to see its effect.
type now struct {
	plan.Division
	// idleBPS is what remains when each member has the smaller of demand and entitlement.
	idleBPS uint64
}

func (d *division) now(change func(*alloc.Container)) now {
	list := d.competitors()
	if change != nil {
		change(&list[d.me])
	}
	competitors := list
	if !d.hostCompetes() {
		competitors = append(competitors, d.hostClass())
	}
	var n now
	d.link().Allocate(&alloc.Allocator{}, &n.Division, competitors, d.hostCompetes())
	n.idleBPS = n.CapacityBPS
	for i := range list {
		n.idleBPS -= min(n.idleBPS, n.EntitledBPS[i], list[i].DemandBPS)
	}
	return n
}

// groups sorts the members by what decides their entitlement.
type groups struct {
	floored, capped, free []member
	flooredBPS, cappedBPS uint64
	reservedBPS           uint64
	// restBPS is the rate that members in free share by weight; freeWeight is the sum of
	// their weights.
	restBPS, freeWeight uint64
}

func (d *division) groups() groups {
	g := groups{restBPS: d.capacityBPS}
	for _, m := range d.members {
		switch kindOf(&m) {
		case byMaximum:
			g.capped = append(g.capped, m)
			g.cappedBPS += m.entitledBPS
		case byReserve:
			g.reservedBPS = m.entitledBPS
		case byMinimum:
			g.floored = append(g.floored, m)
			g.flooredBPS += m.entitledBPS
		default:
			g.free = append(g.free, m)
			g.freeWeight += uint64(m.Weight)
		}
	}
	g.restBPS -= min(g.restBPS, g.flooredBPS+g.cappedBPS+g.reservedBPS)
	return g
}

// kind says what decides an entitlement.
type kind int

const (
	byWeight kind = iota
	byMinimum
	byMaximum
	// byReserve: the host class's reserve, which is more than its weight and minimum.
	byReserve
)

func kindOf(m *member) kind {
	switch {
	case m.entitledBPS >= m.CeilingBPS:
		return byMaximum
	case m.reserved:
		return byReserve
	case m.Weight == 0 || m.FloorBPS > 0 && m.entitledBPS <= m.FloorBPS:
		return byMinimum
	}
	return byWeight
}
