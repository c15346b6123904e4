// Package demand estimates what a sender wants of a link from what can be seen
// at the link: how much it offers, and whether anything of it is queued there.
//
// A class with something queued wants more than it has: its demand is
// unlimited, and the ideal allocation decides what it gets. A class whose
// queue is empty gets all it wants: its demand is the rate at which it offers
// packets. One sample of a queue proves little (a burst of a well-behaved
// sender is queued for a moment, too), so it takes two in a row to change the
// estimate. And a queue needs to be sampled only where the offered rate leaves
// doubt: a sender that wanted more and goes on offering all that it may send,
// still does; one that got all it wanted and offers less than it may send, or may
// send more than it does, as the link is not full, still does.
//
// A rate has to be known soon, since everybody else waits for what a sender that
// stopped has left, and exactly, since what a sender is thought to leave is added
// to what others may send. No window does both: in 60 ms a sender of 0.8 Mbit/s
// offers three frames or five. So there are two. What the short one sees is
// believed at once where it differs by more than chance; otherwise the long one
// decides, now and then.
//
// A meter has no clock: every time is an argument.
package demand

import (
	"time"

	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/sched"
)

const (
	// MinWindow is how far back the short window reaches.
	MinWindow = 30 * time.Millisecond
	// windowFrames stretches the window of a slow class, for which a few
	// frames are no rate yet.
	windowFrames = 10
	// maxWindow bounds that.
	maxWindow = time.Second
	// chanceFrames is by how many frames in the short window a rate may differ
	// from the estimate by chance: one that the window just holds or not, now
	// and when the estimate was made.
	chanceFrames = 2
	// longWindow is how far back the long window reaches, first that far and
	// then twice, and how often the estimate follows it.
	longWindow = 500 * time.Millisecond
	// agreeingSamples is how many equal samples of the queue in a row decide.
	agreeingSamples = 2
	// SettledAfter is how long an estimate has to stand to be out of doubt.
	SettledAfter = 200 * time.Millisecond
	// headroomPercent is how much more than it sends at present a sender that gets
	// all it wants is allowed for, in percent; it keeps the estimate still
	// while the rate wavers.
	headroomPercent = 5
	// holdPercent is how far below its estimate a rate may fall before the estimate
	// follows at once, in percent, besides what chance explains.
	holdPercent = 15
	// Below the one part of its allocation, in percent, a sender that wanted
	// more surely does not any more; above the other, which is more than the
	// headroom leaves, one that got all it wanted perhaps wants more. In
	// between a sample now and then will do: nobody has to wait for so little.
	enoughPercent   = 70
	wantMorePercent = 97
)

// Meter estimates what one class wants to send. Its zero value knows nothing.
type Meter struct {
	// DemandBPS is the estimate, with headroom: alloc.Unlimited of one that wants
	// more than it gets. To be read only.
	DemandBPS uint64

	samples   []offered // oldest first, one short window of them
	older     offered   // where the long window begins
	newer     offered   // where the next one does
	sampled   bool      // Queued was called since the last decision
	backlogs  int       // samples in a row that saw a backlog
	empties   int       // and that saw none
	wantsMore bool
	rateBPS   uint64 // in the short window, at the last look
	changedAt time.Time
}

type offered struct {
	at    time.Time
	bytes uint64
}

// Window is the time over which the rate of a class that is entitled to
// rateBPS is measured.
func Window(rateBPS uint64) time.Duration {
	frames := time.Duration(windowFrames * sched.FrameBytes * 8 * uint64(time.Second) / max(rateBPS, 1))
	return min(max(MinWindow, frames), maxWindow)
}

// Known says whether the meter has looked before.
func (m *Meter) Known() bool { return len(m.samples) > 0 }

// Resume says that nothing was offered from the last look until at.
func (m *Meter) Resume(at time.Time) {
	if m.Known() {
		m.samples = append(m.samples[:0], offered{at: at, bytes: m.LastOffered()})
		m.begin(m.last())
	}
}

// Offer is the first part of a look: what was offered since ever.
func (m *Meter) Offer(now time.Time, window time.Duration, offeredBytes uint64) {
	if !m.Known() {
		m.begin(offered{at: now, bytes: offeredBytes})
	}
	m.rateBPS = m.rate(now, window, offeredBytes)
}

// LackBPS is how much less than allocatedBPS, which is what it may send, a class
// offers that wanted more, if that leaves doubt whether it still does; 0 where
// there is none.
func (m *Meter) LackBPS(now time.Time, allocatedBPS uint64) uint64 {
	if m.Settled(now) && m.rateBPS >= allocatedBPS/100*enoughPercent {
		return 0
	}
	return allocatedBPS - min(m.rateBPS, allocatedBPS)
}

// MayWantMore says whether the rate leaves doubt whether a class that got all it
// wanted still does, on an uplink that is full.
func (m *Meter) MayWantMore(now time.Time, allocatedBPS uint64) bool {
	return !m.Settled(now) || m.rateBPS > allocatedBPS/100*wantMorePercent
}

// Queued is the second part of a look, where there was doubt: what is queued
// now.
func (m *Meter) Queued(backlogBytes uint64) {
	m.sampled = true
	if backlogBytes > 0 {
		m.backlogs, m.empties = m.backlogs+1, 0
	} else {
		m.backlogs, m.empties = 0, m.empties+1
	}
}

// Decide ends a look and reports whether the estimate changed. It is in doubt
// for a while then (Settled), unless the long window decided.
func (m *Meter) Decide(now time.Time) bool {
	before, wantedMore := m.DemandBPS, m.wantsMore
	if m.sampled {
		switch {
		case m.backlogs >= agreeingSamples:
			m.wantsMore = true
		case m.empties >= agreeingSamples:
			m.wantsMore = false
		}
		if m.wantsMore != (m.backlogs > 0) {
			// This sample contradicts what is believed.
			m.changedAt = now
		}
		m.sampled = false
	}
	switch {
	case m.wantsMore:
		m.DemandBPS = alloc.Unlimited
	case wantedMore || m.surprising():
		m.DemandBPS = withHeadroom(m.rateBPS)
		m.begin(m.last())
	default:
		return m.follow()
	}
	if m.DemandBPS == before {
		return false
	}
	m.changedAt = now
	return true
}

// surprising says whether the rate in the short window differs from the estimate
// by more than chance.
func (m *Meter) surprising() bool {
	elapsed := m.last().at.Sub(m.samples[0].at)
	if elapsed <= 0 {
		return false
	}
	chanceBPS := uint64(chanceFrames * sched.FrameBytes * 8 * time.Second / elapsed)
	if m.rateBPS == 0 {
		// What only the short window saw is gone when it does not any more.
		return m.DemandBPS >= chanceBPS || m.DemandBPS > 0 && m.older == m.newer
	}
	return m.rateBPS > m.DemandBPS+chanceBPS ||
		m.rateBPS+chanceBPS < m.DemandBPS-m.DemandBPS*holdPercent/100
}

// follow lets the estimate follow the long window, when it is full, and reports
// whether it changed.
func (m *Meter) follow() bool {
	now := m.last()
	if now.at.Sub(m.newer.at) < longWindow {
		return false
	}
	before := m.DemandBPS
	m.DemandBPS = withHeadroom(rateBPS(m.older, now))
	m.older, m.newer = m.newer, now
	return m.DemandBPS != before
}

func withHeadroom(bps uint64) uint64 { return bps + bps*headroomPercent/100 }

// rateBPS is the mean rate between two looks; 0 if the counter began anew.
func rateBPS(from, to offered) uint64 {
	elapsed := to.at.Sub(from.at)
	if elapsed <= 0 || to.bytes < from.bytes {
		return 0
	}
	return uint64(float64(to.bytes-from.bytes) * 8 / elapsed.Seconds())
}

// SteadyBPS is the demand without the headroom: what it leaves is others' to
// have, and they count on it.
func (m *Meter) SteadyBPS() uint64 {
	if m.DemandBPS == alloc.Unlimited {
		return alloc.Unlimited
	}
	return m.DemandBPS * 100 / (100 + headroomPercent)
}

// Settled says whether the estimate has stood for a while, and no sample
// contradicted it.
func (m *Meter) Settled(now time.Time) bool { return now.Sub(m.changedAt) > SettledAfter }

// Doubt says that the estimate may be wrong from now on: it is not settled for a
// while.
func (m *Meter) Doubt(now time.Time) { m.changedAt = now }

// WantsMore says whether the class wants more than it gets.
func (m *Meter) WantsMore() bool { return m.wantsMore }

// RateBPS is the rate that was offered in the short window, at the last look.
func (m *Meter) RateBPS() uint64 { return m.rateBPS }

// LastOffered is the counter at the last look.
func (m *Meter) LastOffered() uint64 {
	if len(m.samples) == 0 {
		return 0
	}
	return m.last().bytes
}

// last is the last look; there must have been one.
func (m *Meter) last() offered { return m.samples[len(m.samples)-1] }

// begin lets the long window begin at a look.
func (m *Meter) begin(at offered) { m.older, m.newer = at, at }

// rate is the mean over the window, in bits per second.
func (m *Meter) rate(now time.Time, window time.Duration, bytes uint64) uint64 {
	m.samples = append(m.samples, offered{at: now, bytes: bytes})
	// Keep one sample that is at least a window old.
	first := 0
	for first+1 < len(m.samples) && now.Sub(m.samples[first+1].at) >= window {
		first++
	}
	m.samples = append(m.samples[:0], m.samples[first:]...)
	return rateBPS(m.samples[0], m.last())
}
