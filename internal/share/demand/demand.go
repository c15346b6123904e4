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
// A rate has to be known soon, since the others wait for what a sender that
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

	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
)

const (
	// MinWindow is the length of the short window.
	MinWindow = 30 * time.Millisecond
	// windowFrames stretches the short window of slow classes to hold about this many
	// frames.
	windowFrames = 10
	// maxWindow limits that stretching.
	maxWindow = time.Second
	// chanceFrames is by how many frames per short window a rate may differ from the
	// estimate by chance: one frame at the edge of the window now, and one when the
	// estimate was made.
	chanceFrames = 2
	// longWindow is how often the estimate follows the long window, which reaches back one
	// to two times this long.
	longWindow = 500 * time.Millisecond
	// agreeingSamples is how many consecutive equal queue samples change the estimate.
	agreeingSamples = 2
	// SettledAfter is how long an estimate must stand before it counts as settled.
	SettledAfter = 200 * time.Millisecond
	// headroomPercent is how far the estimate of a satisfied sender is set above its rate,
	// in percent, so that the estimate stays stable while the rate wavers.
	headroomPercent = 5
	// holdPercent is how far a rate may fall below its estimate, in percent and beyond
	// chance, before the estimate follows at once.
	holdPercent = 15
	// Below the one part of its allocation, in percent, a sender that wanted
	// more surely does not any more; above the other, which is more than the
	// headroom leaves, one that got all it wanted perhaps wants more. In
	// between a sample now and then will do: it holds too little for others to wait for.
	enoughPercent   = 70
	wantMorePercent = 97
)

// Meter estimates the demand of one class. Its zero value has no samples.
type Meter struct {
	// DemandBPS is the estimate with headroom; alloc.Unlimited for a class that wants more
	// than it gets. Callers only read it.
	DemandBPS uint64

	samples   []offered // samples of the short window, oldest first
	older     offered   // start of the long window
	newer     offered   // start of the next long window
	sampled   bool      // Queued was called since the last decision
	backlogs  int       // consecutive samples with a backlog
	empties   int       // consecutive samples without one
	wantsMore bool
	rateBPS   uint64 // rate in the short window at the last sample
	changedAt time.Time
}

type offered struct {
	at    time.Time
	bytes uint64
}

// Window returns the time over which the rate of a class entitled to rateBPS is measured.
func Window(rateBPS uint64) time.Duration {
	frames := time.Duration(windowFrames * sched.FrameBytes * 8 * uint64(time.Second) / max(rateBPS, 1))
	return min(max(MinWindow, frames), maxWindow)
}

// Known reports whether the meter has a sample.
func (m *Meter) Known() bool { return len(m.samples) > 0 }

// Resume records that nothing was offered between the last sample and at.
func (m *Meter) Resume(at time.Time) {
	if m.Known() {
		m.samples = append(m.samples[:0], offered{at: at, bytes: m.LastOffered()})
		m.begin(m.last())
	}
}

// Offer starts a sample with the total of bytes offered so far.
func (m *Meter) Offer(now time.Time, window time.Duration, offeredBytes uint64) {
	if !m.Known() {
		m.begin(offered{at: now, bytes: offeredBytes})
	}
	m.rateBPS = m.rate(now, window, offeredBytes)
}

// LackBPS returns how far a class that wanted more offers below its allocation, if that
// makes its demand doubtful; otherwise 0.
func (m *Meter) LackBPS(now time.Time, allocatedBPS uint64) uint64 {
	if m.Settled(now) && m.rateBPS >= allocatedBPS/100*enoughPercent {
		return 0
	}
	return allocatedBPS - min(m.rateBPS, allocatedBPS)
}

// MayWantMore reports whether a satisfied class sends so close to its allocation that it
// may want more, on a full uplink.
func (m *Meter) MayWantMore(now time.Time, allocatedBPS uint64) bool {
	return !m.Settled(now) || m.rateBPS > allocatedBPS/100*wantMorePercent
}

// Queued adds the current backlog to the sample; call it when the demand is doubtful.
func (m *Meter) Queued(backlogBytes uint64) {
	m.sampled = true
	if backlogBytes > 0 {
		m.backlogs, m.empties = m.backlogs+1, 0
	} else {
		m.backlogs, m.empties = 0, m.empties+1
	}
}

// Decide completes a sample and reports whether the estimate changed. A changed estimate is
// unsettled for SettledAfter, unless the long window caused the change.
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
			// The sample contradicts the estimate.
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

// surprising reports whether the short window's rate differs from the estimate by more than
// chance.
func (m *Meter) surprising() bool {
	elapsed := m.last().at.Sub(m.samples[0].at)
	if elapsed <= 0 {
		return false
	}
	chanceBPS := uint64(chanceFrames * sched.FrameBytes * 8 * time.Second / elapsed)
	if m.rateBPS == 0 {
		// An estimate that only the short window supported ends with it.
		return m.DemandBPS >= chanceBPS || m.DemandBPS > 0 && m.older == m.newer
	}
	return m.rateBPS > m.DemandBPS+chanceBPS ||
		m.rateBPS+chanceBPS < m.DemandBPS-m.DemandBPS*holdPercent/100
}

// follow updates the estimate from the long window once that is complete, and reports
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

// rateBPS returns the mean rate between two samples, or 0 if the counter restarted.
func rateBPS(from, to offered) uint64 {
	elapsed := to.at.Sub(from.at)
	if elapsed <= 0 || to.bytes < from.bytes {
		return 0
	}
	return uint64(float64(to.bytes-from.bytes) * 8 / elapsed.Seconds())
}

// SteadyBPS returns the demand without headroom, which other classes may count on being
// left over.
func (m *Meter) SteadyBPS() uint64 {
	if m.DemandBPS == alloc.Unlimited {
		return alloc.Unlimited
	}
	return m.DemandBPS * 100 / (100 + headroomPercent)
}

// Settled reports whether the estimate has stood for SettledAfter without a contradicting
// sample.
func (m *Meter) Settled(now time.Time) bool { return now.Sub(m.changedAt) > SettledAfter }

// Doubt marks the estimate as unsettled from now on.
func (m *Meter) Doubt(now time.Time) { m.changedAt = now }

// WantsMore reports whether the class wants more than it gets.
func (m *Meter) WantsMore() bool { return m.wantsMore }

// RateBPS returns the offered rate in the short window at the last sample.
func (m *Meter) RateBPS() uint64 { return m.rateBPS }

// LastOffered returns the byte counter of the last sample.
func (m *Meter) LastOffered() uint64 {
	if len(m.samples) == 0 {
		return 0
	}
	return m.last().bytes
}

// last returns the last sample; there must be one.
func (m *Meter) last() offered { return m.samples[len(m.samples)-1] }

// begin starts the long window at a sample.
func (m *Meter) begin(at offered) { m.older, m.newer = at, at }

// rate adds a sample and returns the mean over the window in bits per second.
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
