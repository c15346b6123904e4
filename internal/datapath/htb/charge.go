package htb

import (
	"time"

	"github.com/weir-project/weir/internal/share/alloc"
)

// Charging what is dropped.
//
// Problem. What a container receives has crossed the bottleneck before this host, whether it is
// dropped here or not. Senders that do not slow down for losses (BBR) send a tenth more than their
// container's share or more, and fill the queue before the bottleneck, where no share counts: with
// 100 Mbit/s shared of 105, and 32 flows of others, a minimum of 30 got 5 (weir bench in).
//
// Method. While more arrives than the link's rate, but no more than such a bottleneck lets through, a
// container that gets more than it may is held below its share, by what is dropped of its packets.
// Senders follow the rate that gets through, so what arrives comes down to the rate, and the queue
// before the bottleneck empties. The rate held back goes to no other container.
//
// Bounds. No container is held below its minimum, nor by more than a third of its share. If its senders
// do not follow, as those of plain UDP, it is let go for a minute: holding it helps nobody. Where far
// more arrives than the rate, the bottleneck is elsewhere, and nobody is held.
const (
	chargeInterval = 100 * time.Millisecond
	// chargeAverage is the time over which arrivals are averaged, chargeTime that in which a container
	// that gets twice its share would be held by all of it, and releaseTime that in which it is let go.
	chargeAverage = 300 * time.Millisecond
	chargeTime    = 500 * time.Millisecond
	releaseTime   = 2 * time.Second
	// A container that is held by mostCharged for deafAfter, and still gets more than it may, is not held
	// for deafFor.
	deafAfter, deafFor = 2 * time.Second, time.Minute
	// mostCharged is the largest part of a share that is held back.
	mostCharged = 1.0 / 3
	// Above arrivalsMost of the rate containers are held, below arrivalsLeast they are let go. Above
	// arrivalsElsewhere nobody is.
	arrivalsMost, arrivalsLeast, arrivalsElsewhere = 1.01, 1.00, 1.20
)

// arrivals say whether the link is what an uplink receives, and when charge looked last.
type arrivals struct {
	incoming bool
	lookedAt time.Time
}

// arrived is what arrives for a member, and the part of its allocation that is held back for it.
type arrived struct {
	bytes   uint64
	bps     float64
	charged float64
	// mostSince is since when the most is held back, deafUntil until when nothing is.
	mostSince, deafUntil time.Time
}

// capBPS returns the rate to which a member is held; alloc.Unlimited if it is not.
func (m *member) capBPS() uint64 {
	if m.arrived.charged == 0 {
		return alloc.Unlimited
	}
	return max(uint64(float64(m.mayBPS())*(1-m.arrived.charged)), m.want.FloorBPS)
}

// mayBPS returns what a member may have now if it wants it.
func (m *member) mayBPS() uint64 { return min(max(m.allocatedBPS, m.entitledBPS), m.want.CeilingBPS) }

// charge looks at what arrived, and reports whether a cap changed enough to be applied. offered are the
// members' bytes so far, by number.
func (d *division) charge(now time.Time, offered []uint64) (changed bool) {
	if !d.arrivals.incoming {
		return false
	}
	elapsed := now.Sub(d.arrivals.lookedAt)
	if elapsed < chargeInterval {
		return false
	}
	known := elapsed < 10*chargeInterval
	d.arrivals.lookedAt = now
	total := 0.0
	for _, m := range d.competitors {
		a, bytes := &m.arrived, offered[m.want.Number]
		if known && bytes >= a.bytes {
			bps := float64(bytes-a.bytes) * 8 / elapsed.Seconds()
			a.bps += (bps - a.bps) * elapsed.Seconds() / (elapsed + chargeAverage).Seconds()
		}
		a.bytes = bytes
		total += a.bps
	}
	of := total / float64(d.link.RateBPS)
	for _, m := range d.competitors {
		before := m.arrived.charged
		m.arrived.hold(now, elapsed, of, float64(m.mayBPS()))
		changed = changed || int(before*significantDivisor) != int(m.arrived.charged*significantDivisor)
	}
	return changed
}

// hold decides how much is held back of mayBPS, after elapsed time in which of the link's rate arrived.
func (a *arrived) hold(now time.Time, elapsed time.Duration, of, mayBPS float64) {
	excess := a.bps/mayBPS - 1
	switch {
	case now.Before(a.deafUntil):
	case of > arrivalsElsewhere || of < arrivalsLeast:
		a.charged -= min(a.charged, max(a.charged*elapsed.Seconds()/releaseTime.Seconds(), 0.001))
	case of > arrivalsMost && excess > 0:
		a.charged = min(a.charged+excess*elapsed.Seconds()/chargeTime.Seconds(), mostCharged)
	}
	switch {
	case a.charged < mostCharged || excess <= 0:
		a.mostSince = now
	case now.Sub(a.mostSince) > deafAfter:
		a.charged, a.deafUntil = 0, now.Add(deafFor)
	}
}
