package explain

import (
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
)

// entitlement explains the container's entitlement.
func (d *division) entitlement() []string {
	if d.isHost && !d.uplink.HostCompetes {
		return d.hostReserve()
	}
	me := &d.members[d.me]
	g := d.groups()
	floors := uint64(0)
	for _, m := range d.members {
		if kindOf(&m) != byReserve {
			floors += min(m.FloorBPS, m.CeilingBPS)
		}
	}
	switch {
	case kindOf(me) == byReserve:
		return []string{fmt.Sprintf("a hundredth of the uplink's %s is always the host class's: its policy alone would give it %s", rate(d.uplink.RateBPS), rate(d.byPolicy(d.me)))}
	case floors > d.floorsBPS && me.entitledBPS < min(me.FloorBPS, me.CeilingBPS):
		return []string{fmt.Sprintf("the minimums of all, %s together, exceed the %s that they can have beside the reserve: all are cut by the same factor, and of its minimum of %s it has %s",
			rate(floors), rate(d.floorsBPS), rate(me.FloorBPS), rate(me.entitledBPS))}
	case me.Weight == 0 && me.FloorBPS == 0:
		return []string{"weight 0: no share by weight; without a minimum it is entitled to nothing and lives on what others leave"}
	case me.Weight == 0:
		return []string{fmt.Sprintf("weight 0: no share by weight; it is entitled to its minimum of %s and lives on what others leave beyond that", rate(me.entitledBPS))}
	case kindOf(me) == byMaximum:
		without := d.entitledIf(func(c *alloc.Container) { c.CeilingBPS = alloc.Unlimited })
		return []string{fmt.Sprintf("its maximum of %s holds it there: without it, its weight of %d would give it %s", rate(me.CeilingBPS), me.Weight, rate(without))}
	case kindOf(me) == byMinimum:
		without := d.entitledIf(func(c *alloc.Container) { c.FloorBPS = 0 })
		return []string{fmt.Sprintf("its minimum of %s lifts it there: its weight of %d alone would give it %s; the minimum is not added to that", rate(me.FloorBPS), me.Weight, rate(without))}
	}
	return append(d.budget(&g), fmt.Sprintf("its weight is %d of the %d of %s that share by weight: %s x %d/%d = %s",
		me.Weight, g.freeWeight, count(len(g.free)), rate(g.restBPS), me.Weight, g.freeWeight, rate(me.entitledBPS)))
}

func (d *division) hostReserve() []string {
	text := fmt.Sprintf("a hundredth of the uplink's %s is the host class's whenever it wants it, before containers have what they are entitled to", rate(d.uplink.RateBPS))
	if d.host.FloorBPS > d.link().HostReserveBPS(0) {
		text = fmt.Sprintf("the host class always has its minimum of %s", rate(d.host.FloorBPS))
	}
	return []string{text, fmt.Sprintf("it wants no more than that now; when it does, it competes as a container does, with weight %d", d.host.Weight)}
}

// budget explains the rate that is shared by weight.
func (d *division) budget(g *groups) []string {
	text := fmt.Sprintf("the uplink %ss %s", d.verb, rate(d.uplink.RateBPS))
	if held := d.uplink.RateBPS - d.capacityBPS; held > 0 {
		text += fmt.Sprintf(", less the host class's minimum of %s", rate(held))
	}
	if g.reservedBPS > 0 {
		text += fmt.Sprintf(", less the %s that are always the host class's", rate(g.reservedBPS))
	}
	if g.flooredBPS > 0 {
		text += fmt.Sprintf(", less %s to what minimums alone decide (%s)", rate(g.flooredBPS), names(g.floored))
	}
	if g.cappedBPS > 0 {
		text += fmt.Sprintf(", less %s to what maximums hold down (%s)", rate(g.cappedBPS), names(g.capped))
	}
	if g.restBPS != d.uplink.RateBPS {
		text += fmt.Sprintf(": %s is left to be shared by weight", rate(g.restBPS))
	}
	return []string{text}
}

// allocation explains the container's current allocation.
func (d *division) allocation() []string {
	if d.isHost && !d.uplink.HostCompetes && d.host.DemandBPS == 0 {
		return []string{"it " + d.verb + "s nothing; that much is kept for it at any time"}
	}
	if d.isHost && !d.uplink.HostCompetes {
		return []string{fmt.Sprintf("it wants %s and gets it", rate(d.host.DemandBPS))}
	}
	me, n := &d.members[d.me], d.now(nil)
	switch {
	case me.DemandBPS == 0:
		return []string{fmt.Sprintf("it %ss nothing; others have what it leaves, until it does: then it has %s at once", d.verb, rate(me.entitledBPS))}
	case me.DemandBPS != alloc.Unlimited && me.DemandBPS <= n.EntitledBPS[d.me]:
		return []string{fmt.Sprintf("it wants %s, less than it is entitled to, and gets all of it", rate(me.DemandBPS))}
	case me.DemandBPS != alloc.Unlimited && me.DemandBPS <= n.AllocatedBPS[d.me]:
		return []string{fmt.Sprintf("it wants %s and gets all of it, %s of that out of what others leave idle", rate(me.DemandBPS), rate(me.DemandBPS-n.EntitledBPS[d.me]))}
	case n.AllocatedBPS[d.me] >= me.CeilingBPS:
		return []string{fmt.Sprintf("it wants more than it gets; its maximum of %s is reached", rate(me.CeilingBPS))}
	}
	text := []string{"it wants more than it gets"}
	if n.idleBPS == 0 {
		return append(text, "all others "+d.verb+" what they are entitled to: nothing is idle")
	}
	text = append(text, fmt.Sprintf("others leave %s idle, which goes by priority to those that want more", rate(n.idleBPS)))
	before, beside := d.rivals()
	if len(before) > 0 {
		text = append(text, fmt.Sprintf("before it come %s", names(before)))
	}
	gets := n.AllocatedBPS[d.me] - min(n.AllocatedBPS[d.me], n.EntitledBPS[d.me])
	switch {
	case gets == 0:
		text = append(text, "nothing of it reaches this one")
	case len(beside) > 0:
		text = append(text, fmt.Sprintf("it gets %s of it, shared with %s by weight", rate(gets), names(beside)))
	default:
		text = append(text, fmt.Sprintf("it gets %s of it", rate(gets)))
	}
	return text
}

// heldBack says why a container may receive less than its allocation: see internal/datapath/htb/holdback.go.
func heldBack(s *v1.Share) []string {
	if s.HeldBackBPS == 0 || !s.WantsMore {
		return nil
	}
	return []string{fmt.Sprintf("%s of it is held back: more arrives than the rate, and its senders send more than its share. "+
		"What is dropped here has filled the link before it, where no minimum holds", rate(s.HeldBackBPS))}
}

// rivals returns the other members that want more than their entitlement: those offered
// idle capacity before the container, and those offered it together with it.
func (d *division) rivals() (before, beside []member) {
	me := &d.members[d.me]
	for i, m := range d.members {
		if i == d.me || min(m.DemandBPS, m.CeilingBPS) <= m.entitledBPS {
			continue
		}
		switch {
		case m.Priority > me.Priority, m.Priority == me.Priority && m.Weight > 0 && me.Weight == 0:
			before = append(before, m)
		case m.Priority == me.Priority && (m.Weight > 0) == (me.Weight > 0):
			beside = append(beside, m)
		}
	}
	return before, beside
}

// forMore lists the changes that would give the container more.
func (d *division) forMore() []string {
	if d.isHost && !d.uplink.HostCompetes {
		return []string{"nothing: it gets all that it wants"}
	}
	me, n := &d.members[d.me], d.now(nil)
	var text []string
	if me.CeilingBPS != alloc.Unlimited {
		without := d.now(func(c *alloc.Container) { c.CeilingBPS = alloc.Unlimited })
		raised := d.entitledIf(func(c *alloc.Container) { c.CeilingBPS = alloc.Unlimited })
		if raised > me.entitledBPS || without.AllocatedBPS[d.me] > n.AllocatedBPS[d.me] {
			text = append(text, fmt.Sprintf("a higher maximum: without one it would be entitled to %s and get %s now", rate(raised), rate(without.AllocatedBPS[d.me])))
		}
	}
	weight := min(max(2*me.Weight, 100), policy.MaxWeight)
	if raised := d.entitledIf(func(c *alloc.Container) { c.Weight = weight }); raised > me.entitledBPS {
		text = append(text, fmt.Sprintf("more weight: %d instead of %d would entitle it to %s", weight, me.Weight, rate(raised)))
	}
	text = append(text, d.moreByMinimum(me)...)
	if before, _ := d.rivals(); len(before) > 0 {
		priority := me.Priority
		for _, m := range before {
			priority = min(max(priority, m.Priority+1), policy.MaxPriority)
		}
		raised := d.now(func(c *alloc.Container) { c.Priority = priority })
		if raised.AllocatedBPS[d.me] > n.AllocatedBPS[d.me] {
			text = append(text, fmt.Sprintf("a higher priority: with %d it would be first with what is idle and get %s now", priority, rate(raised.AllocatedBPS[d.me])))
		}
	}
	switch {
	case me.DemandBPS != alloc.Unlimited && me.DemandBPS <= n.AllocatedBPS[d.me]:
		text = append([]string{"nothing now: it gets all that it wants"}, text...)
	case len(text) == 0:
		text = append(text, fmt.Sprintf("a faster uplink: no other policy gives it more of %s", rate(d.uplink.RateBPS)))
	}
	return text
}

// moreByMinimum explains the effect of a higher minimum, up to the rate still free.
func (d *division) moreByMinimum(me *member) []string {
	budget := d.uplink.RateBPS - min(d.uplink.ReserveBPS, d.uplink.RateBPS)
	others := d.admittedBPS - me.FloorBPS
	largest := min(budget-min(others, budget), me.CeilingBPS)
	if largest <= me.entitledBPS {
		return nil
	}
	return []string{fmt.Sprintf("a minimum above %s: up to %s can be guaranteed to it beside the others' minimums", rate(me.entitledBPS), policy.FormatRateWithin(largest))}
}
