package agent

import (
	"time"

	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/sched"
)

// How demand is told from what is seen at the uplink.
//
// A class with something queued wants more than it has: its demand is
// unlimited, and the ideal allocation decides what it gets. A class whose
// queue is empty gets all it wants: its demand is the rate at which it offers
// packets. One glance at a queue proves little (a burst of a well-behaved
// sender is queued for a moment, too), so it takes two in a row to change
// one's mind.

const (
	// minWindow is how far back a rate is measured: short, since everybody
	// else waits for what a sender that stopped has left.
	minWindow = 30 * time.Millisecond
	// windowFrames stretches the window of a slow class, for which a few
	// frames are no rate yet.
	windowFrames = 10
	// maxWindow bounds that.
	maxWindow = time.Second
	// glances is how many equal glances at the queue make a fact.
	glances = 2
	// headroom is how much more than it sends at present a sender that gets
	// all it wants is allowed for, in percent; it keeps the estimate still
	// while the rate wavers.
	headroomPercent = 5
	// hold is how far below its estimate a rate may fall before the estimate
	// follows, in percent.
	holdPercent = 15
)

// demandMeter estimates what one class wants to send.
type demandMeter struct {
	samples   []offered // oldest first, one window of them
	backlogs  int       // glances in a row that saw a backlog
	empties   int       // and that saw none
	wantsMore bool
	rateBPS   uint64 // at the last look
	demandBPS uint64
}

type offered struct {
	at    time.Time
	bytes uint64
}

// demandWindow is the time over which the rate of a class that is entitled to
// rateBPS is measured.
func demandWindow(rateBPS uint64) time.Duration {
	frames := time.Duration(windowFrames * sched.FrameBytes * 8 * uint64(time.Second) / max(rateBPS, 1))
	return min(max(minWindow, frames), maxWindow)
}

// settled says whether the last glance confirmed what is believed.
func (m *demandMeter) settled() bool { return m.wantsMore == (m.backlogs > 0) }

// observe takes one look: offeredBytes since ever, and what is queued now. It
// reports whether the estimate changed.
func (m *demandMeter) observe(now time.Time, window time.Duration, offeredBytes, backlogBytes uint64) bool {
	before, wantedMore := m.demandBPS, m.wantsMore
	if backlogBytes > 0 {
		m.backlogs, m.empties = m.backlogs+1, 0
	} else {
		m.backlogs, m.empties = 0, m.empties+1
	}
	switch {
	case m.backlogs >= glances:
		m.wantsMore = true
	case m.empties >= glances:
		m.wantsMore = false
	}

	m.rateBPS = m.rate(now, window, offeredBytes)
	rate := m.rateBPS
	switch {
	case m.wantsMore:
		m.demandBPS = alloc.Unlimited
	case wantedMore || rate > m.demandBPS || rate < m.demandBPS-m.demandBPS*holdPercent/100:
		m.demandBPS = rate + rate*headroomPercent/100
	}
	return m.demandBPS != before
}

// surprised says whether what was offered since the last look is out of all
// proportion to the rate before: somebody started, or stopped.
func (m *demandMeter) surprised(now time.Time, offeredBytes uint64) bool {
	const (
		times     = 3
		someBytes = 3 * sched.FrameBytes
	)
	if len(m.samples) == 0 {
		return offeredBytes > 0
	}
	last := m.samples[len(m.samples)-1]
	since := offeredBytes - last.bytes
	expected := uint64(float64(m.rateBPS) / 8 * now.Sub(last.at).Seconds())
	return since > times*expected+someBytes || expected > someBytes && since < expected/times
}

// lastOffered is the counter at the last look.
func (m *demandMeter) lastOffered() uint64 {
	if len(m.samples) == 0 {
		return 0
	}
	return m.samples[len(m.samples)-1].bytes
}

// rate is the mean over the window, in bits per second.
func (m *demandMeter) rate(now time.Time, window time.Duration, bytes uint64) uint64 {
	m.samples = append(m.samples, offered{at: now, bytes: bytes})
	// Keep one sample that is at least a window old.
	first := 0
	for first+1 < len(m.samples) && now.Sub(m.samples[first+1].at) >= window {
		first++
	}
	m.samples = append(m.samples[:0], m.samples[first:]...)
	oldest := m.samples[0]
	elapsed := now.Sub(oldest.at)
	if elapsed <= 0 || bytes < oldest.bytes {
		return 0
	}
	return uint64(float64(bytes-oldest.bytes) * 8 / elapsed.Seconds())
}
