package htb

import (
	"time"

	"github.com/weir-project/weir/internal/share/alloc"
)

// Limiting senders that fill the bottleneck.
//
// Problem. What a container receives has passed the bottleneck before this host, whether it is
// dropped here or not. Senders that do not slow down for losses (BBR) send a tenth or more above their
// container's share, and fill the queue before the bottleneck, where no share counts: with
// 100 Mbit/s shared of 105, and 32 flows of others, a minimum of 30 got 5 (weir bench in).
//
// Method. While more than the link's rate arrives, no more than such a bottleneck lets through, and less
// for a container than it is entitled to, those that receive more than their allocation are limited to less than
// it: part of the allocation is held back. Senders follow the rate that gets through, so what arrives comes down
// to the rate, and the queue before the bottleneck empties. What is held back stays unused.
//
// The part grows with the excess over the allocation, not over the limit, and shrinks by itself as soon as no
// container lacks anything. It does by container what CAKE's option ingress does.
//
// Bounds. A container is not limited below its minimum, below a hundredth of the link, or by more than a third of
// its allocation. Senders that do not follow, as those of plain UDP, make their container exempt for a minute. If
// containers that lack something do not receive more within seconds, they want no more, and all are exempt. Where far
// more arrives than the rate, the bottleneck is elsewhere, and there is no limit. Nor is there one for the first half
// second, in which TCP finds its share. An agent that ends leaves the limits as they are.
const (
	holdbackInterval = 100 * time.Millisecond
	// holdbackAverage is the time over which arrivals are averaged.
	holdbackAverage = 300 * time.Millisecond
	// holdbackDelay is how long too much must arrive before a limit is set.
	holdbackDelay = 500 * time.Millisecond
	// growTime is in what time an excess is held back whole, shrinkTime in what a part shrinks by itself,
	// fastShrinkTime while less than the rate or the limit arrives, or limits do not help, and slowShrinkTime
	// while senders still send more than the share.
	growTime       = time.Second
	shrinkTime     = 5 * time.Second
	fastShrinkTime = 2 * time.Second
	slowShrinkTime = 20 * time.Second
	// mostHeld is the largest part of an allocation that is held back. Less than 1/smallDivisor of the
	// link fills no bottleneck.
	mostHeld     = 1.0 / 3
	smallDivisor = 100
	// If significantPart or more has been held back for unresponsiveAfter, and more than unresponsiveExcess
	// of the largest excess still arrives, a container is exempt for exemptFor. So is one for which more than
	// ignoredLimit of its limit has arrived all that time; of BBR's senders it does for 4 s at most (16 flows, 20 and 50 ms).
	significantPart    = 0.05
	unresponsiveAfter  = 12 * time.Second
	unresponsiveExcess = 0.7
	ignoredLimit       = 1.3
	exemptFor          = time.Minute
	// Of the rate: more is too much (TCP's losses make up to 1.03), and even more comes from a bottleneck
	// elsewhere. Of its entitlement: a container that receives less lacks something, unless it receives next to
	// nothing.
	tooMuchArrives, elsewhereArrives = 1.03, 1.20
	lackPart, littlePart             = 0.98, 0.05
	// If those that lack something do not receive helps times as much within helpTime as they did at worst in
	// worstTime, limits do not help them, and all are exempt for exemptFor.
	helps     = 1.1
	worstTime = 5 * time.Second
	helpTime  = 15 * time.Second
)

// holdbacks is what is known of all arrivals.
type holdbacks struct {
	incoming bool // the link is what an uplink receives
	lookedAt time.Time
	// fitAt is the last time at which no more arrived than should, notFullAt the last time the bottleneck was not
	// full, notLackedAt the last time no member lacked anything.
	fitAt, notFullAt, notLackedAt time.Time
	// lackedBPS is what those that lacked something received at worst shortly after limitedAt, when the first of
	// the present limits was set; there is none until helplessEnd.
	lackedBPS              float64
	limitedAt, helplessEnd time.Time
}

// holdback is what arrives for a member, and the part of its allocation that is held back.
type holdback struct {
	bytes       uint64
	counted     bool // bytes are this member's own
	arrivingBPS float64
	part        float64
	// mostExcess is the largest excess since less than significantPart was held back, insignificantAt the last time
	// at which that was so, or unknown. mostExcess does not decay: what senders that follow exceed their share by stays
	// below it for as long as they are limited. followedAt, the last time at which about as much arrived as the limit, or
	// it was unknown, shows senders that do not follow after a burst, too.
	mostExcess                               float64
	insignificantAt, followedAt, exemptUntil time.Time
	queue                                    stretch
}

// limitBPS returns the rate to which a member is limited; alloc.Unlimited if nothing is held back.
func (d *division) limitBPS(m *member) uint64 {
	if m.holdback.part == 0 {
		return alloc.Unlimited
	}
	return max(uint64(float64(m.mayHaveBPS())*(1-m.holdback.part)), d.leastBPS(m))
}

// lacks reports whether a member that receives more than a little receives less than it is entitled to. A member
// that wants no more counts, too: the price is a limit for members that exceed their share anyway.
func (d *division) lacks(m *member) bool {
	little := min(float64(d.link.RateBPS)/smallDivisor, littlePart*float64(m.entitledBPS))
	return m.holdback.arrivingBPS > little && m.holdback.arrivingBPS < lackPart*float64(m.entitledBPS)
}

// leastBPS returns the rate below which a member is not limited.
func (d *division) leastBPS(m *member) uint64 {
	return max(m.want.FloorBPS, d.link.RateBPS/smallDivisor)
}

// mayHaveBPS returns the rate that a member may have now if it wants that much.
func (m *member) mayHaveBPS() uint64 {
	return min(max(m.allocatedBPS, m.entitledBPS), m.want.CeilingBPS)
}

// holdBack decides what is held back, and reports whether a limit changed enough to be applied.
// offeredBytes are the members' bytes so far, by number; leaf is what their queues are: only FIFOs are stretched.
func (d *division) holdBack(now time.Time, offeredBytes []uint64, leaf leafKind) (changed bool) {
	elapsed := now.Sub(d.holdbacks.lookedAt)
	if !d.holdbacks.incoming || elapsed < holdbackInterval {
		return false
	}
	d.holdbacks.lookedAt = now
	known, lackedBPS, arrivingBPS := elapsed < 10*holdbackInterval, 0.0, 0.0
	for _, m := range d.competitors {
		h := &m.holdback
		h.count(offeredBytes[m.want.Number], elapsed, known)
		if now.Before(h.exemptUntil) { // others cannot make room for it
			arrivingBPS += min(h.arrivingBPS, float64(m.mayHaveBPS()))
		} else {
			arrivingBPS += h.arrivingBPS
		}
		if d.lacks(m) {
			lackedBPS += h.arrivingBPS
		}
	}
	if !known { // a first look, or one after a pause
		d.holdbacks.fitAt, d.holdbacks.notFullAt = now, now
		for _, m := range d.competitors {
			m.holdback.resumeJudging(now)
		}
		return false
	}
	ofRate := arrivingBPS / float64(d.link.RateBPS)
	if ofRate < tooMuchArrives || ofRate > elsewhereArrives {
		d.holdbacks.fitAt = now
	}
	if ofRate < fullLinkRatio || ofRate > elsewhereArrives {
		d.holdbacks.notFullAt = now
	}
	if lackedBPS == 0 {
		d.holdbacks.notLackedAt = now
	}
	longAgo := func(at time.Time) bool { return now.Sub(at) > holdbackDelay }
	full := leaf == leafBFIFO && longAgo(d.holdbacks.notFullAt)
	limited, tooMuch := false, longAgo(d.holdbacks.fitAt) && longAgo(d.holdbacks.notLackedAt) && d.holdbacks.help(now, lackedBPS)
	for _, m := range d.competitors {
		h, before := &m.holdback, m.holdback.part
		mayHaveBPS := float64(m.mayHaveBPS())
		if mayHaveBPS == 0 { // weight 0, no minimum, and idle until now
			h.part, changed = 0, h.queue.adjust(now, false) || before > 0 || changed
			h.resumeJudging(now)
			continue
		}
		excess := h.arrivingBPS/mayHaveBPS - 1
		changed = h.queue.adjust(now, full && excess > excessPart) || changed
		switch {
		case ofRate > elsewhereArrives:
			h.part = 0
		case h.part > 0 && (ofRate < 1 || now.Before(d.holdbacks.helplessEnd) || h.arrivingBPS < float64(d.limitBPS(m))):
			h.shrink(elapsed, fastShrinkTime)
		case excess < 0:
			h.shrink(elapsed, shrinkTime)
		case !tooMuch:
			h.shrink(elapsed, slowShrinkTime)
		default:
			mostHeld := min(mostHeld, 1-float64(d.leastBPS(m))/mayHaveBPS)
			h.grow(now, elapsed, excess, mostHeld)
		}
		h.judge(now, excess, d.limitBPS(m))
		limited = limited || h.part > 0
		changed = changed || int(before*significantDivisor) != int(h.part*significantDivisor) || before > 0 && h.part == 0
	}
	if !limited {
		d.holdbacks.limitedAt = time.Time{}
	}
	return changed
}

// help reports whether limits may help those that lack something and receive lackedBPS: not if they did not
// help within helpTime.
func (h *holdbacks) help(now time.Time, lackedBPS float64) bool {
	if h.limitedAt.IsZero() {
		h.limitedAt, h.lackedBPS = now, lackedBPS
	}
	switch age := now.Sub(h.limitedAt); {
	case age < worstTime:
		h.lackedBPS = min(h.lackedBPS, lackedBPS)
	case age > helpTime && lackedBPS < helps*h.lackedBPS:
		h.helplessEnd = now.Add(exemptFor)
	}
	return now.After(h.helplessEnd)
}

// count adds what arrived in elapsed to the average, if that time is known.
func (h *holdback) count(bytes uint64, elapsed time.Duration, known bool) {
	if known && h.counted && bytes >= h.bytes {
		bps := float64(bytes-h.bytes) * 8 / elapsed.Seconds()
		h.arrivingBPS += (bps - h.arrivingBPS) * elapsed.Seconds() / (elapsed + holdbackAverage).Seconds()
	}
	h.bytes, h.counted = bytes, true
}

func (h *holdback) shrink(elapsed, in time.Duration) {
	const least = 0.001
	h.part -= min(h.part, max(h.part*elapsed.Seconds()/in.Seconds(), least))
}

// grow holds back more of a member that receives more than it may have.
func (h *holdback) grow(now time.Time, elapsed time.Duration, excess, mostHeld float64) {
	if !now.Before(h.exemptUntil) {
		h.part = max(min(h.part+excess*elapsed.Seconds()/growTime.Seconds(), mostHeld), 0)
	}
}

// resumeJudging makes judge count from now on: it cannot tell whether the member's senders followed until now.
func (h *holdback) resumeJudging(now time.Time) { h.insignificantAt, h.followedAt = now, now }

// judge exempts a member whose senders do not follow its limit.
func (h *holdback) judge(now time.Time, excess float64, limitBPS uint64) {
	if h.part < significantPart {
		h.insignificantAt, h.mostExcess = now, 0
	}
	if h.arrivingBPS < ignoredLimit*float64(limitBPS) {
		h.followedAt = now
	}
	h.mostExcess = max(h.mostExcess, excess)
	asBefore := now.Sub(h.insignificantAt) > unresponsiveAfter && excess > unresponsiveExcess*h.mostExcess
	if asBefore || now.Sub(h.followedAt) > unresponsiveAfter {
		h.part, h.exemptUntil, h.queue.shortUntil = 0, now.Add(exemptFor), now.Add(exemptFor)
	}
}
