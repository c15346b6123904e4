package htb

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/share/demand"
	"github.com/weir-project/weir/internal/share/sched"
)

// Periods of the control loop: while allocations change or are in doubt, or anything is received; while they are
// stable; while nothing is sent; and while the classifier wakes the agent with the next packet. A turn costs more
// than the work done in it.
const (
	changingInterval = 10 * time.Millisecond
	settledInterval  = 30 * time.Millisecond
	idleInterval     = 40 * time.Millisecond
	restInterval     = 500 * time.Millisecond
	// idleAfter is the silence after which the loop uses its idle period.
	idleAfter = time.Second
	// restAfter is the time without a change of its counters after which a class is inactive.
	restAfter = time.Second
)

var (
	errClassesGone  = errors.New("classes are missing: another program changed the uplink's queueing")
	errNotConnected = errors.New("no classifier is connected: the offered traffic is unknown")
)

// loop is the state of the feedback loop between two turns.
type loop struct {
	traffic sched.Traffic
	// following: nothing was applied since the classifier was connected. The tree may be an earlier
	// agent's and stays unchanged.
	following bool
	// uncounted: the counters of all classes, idle ones included, have to be read once.
	uncounted bool

	// last holds the times of the last look, of the last traffic seen, and of the last sudden change.
	last struct{ look, traffic, change time.Time }
	// armed: the next packet wakes the agent, or a packet has, and no turn has seen that yet.
	armed bool
	// inDoubt: offered rates did not show which members want more, so counters were read.
	inDoubt bool
}

// Connect implements sched.Backend.
func (b *Backend) Connect(want sched.Tree, traffic sched.Traffic) error {
	b.traffic, b.following, b.uncounted, b.armed = traffic, true, true, false
	b.setWanted(want)
	for _, m := range b.members {
		m.told = told{}
	}
	return b.setDirect()
}

// Disconnect implements sched.Backend.
func (b *Backend) Disconnect() { b.traffic = nil }

// Turn implements sched.Backend.
func (b *Backend) Turn(now time.Time, count bool) (sched.Turn, error) {
	turn := sched.Turn{Next: settledInterval}
	if b.traffic == nil {
		return turn, errNotConnected
	}
	if err := b.noteWoken(now); err != nil {
		return turn, err
	}
	changed, sudden, woke, err := b.estimateDemand(now, count)
	turn.Woke = woke
	if err != nil || b.following {
		return turn, err
	}
	hostChanged := b.judgeHost(now)
	if hostChanged {
		b.entitle()
	}
	draining, drained, err := b.drain()
	if err != nil {
		return turn, err
	}
	b.reused.reallocated = restoreSavings(b.reused.reallocated)
	restored := len(b.reused.reallocated) > 0
	// A new guarantee matters even if the allocation stays.
	allocated := (hostChanged || changed) && b.allocate(hostChanged)
	heldBack := b.holdBack(now, b.scratch.offered, b.device.leaf)
	// With incoming limits, setDirect depends on allocations.
	b.device.changed = b.device.changed || hostChanged || drained || heldBack || allocated && b.holdbacks.incoming
	if heldBack || allocated || drained || restored {
		if hostChanged || sudden {
			b.last.change = now
		}
		turn.Applied = true
		if err := b.applyReallocated(); err != nil {
			return turn, err
		}
	}
	switch {
	case now.Sub(b.last.traffic) > idleAfter:
		turn.Next, err = b.rest(draining)
	case b.holdbacks.incoming || b.inDoubt || draining || now.Sub(b.last.change) <= demand.SettledAfter:
		turn.Next = changingInterval
	}
	return turn, err
}

// leastOffered is the least time over which what was offered after a rest counts as a rate. A turn that is due
// may follow the first packet at once.
const leastOffered = time.Millisecond

// noteWoken notes when the first packet after a rest came: nothing was offered before.
func (b *Backend) noteWoken(now time.Time) error {
	if !b.armed {
		return nil
	}
	at, err := b.traffic.WokenAt()
	if err != nil || at.IsZero() {
		return err
	}
	b.armed = false
	if latest := now.Add(-leastOffered); at.After(latest) { // also after now, which is the time of a tick
		at = latest
	}
	if at.After(b.last.look) {
		b.last.look = at
	}
	return nil
}

// rest returns the time until the next turn while nothing is offered. Before a long rest it arms the classifier to
// wake the agent, and one more turn looks at packets that came before that.
func (b *Backend) rest(draining bool) (time.Duration, error) {
	if draining || b.hostCompetes || slices.ContainsFunc(b.competitors, func(m *member) bool { return m.active }) {
		return idleInterval, nil
	}
	if b.armed {
		return restInterval, nil
	}
	if err := b.traffic.ArmWakeup(); err != nil {
		return idleInterval, err
	}
	b.armed = true
	return idleInterval, nil
}

// estimateDemand estimates the demand of each member. It reports whether any estimate changed, whether one
// changed suddenly and may do so again, and whether a member woke up.
//
// Offered bytes are in shared memory and cost nothing to read. Backlogs have to be requested from
// the kernel, for all classes at once; that is done only if the offered bytes leave in doubt
// whether packets are queued.
func (b *Backend) estimateDemand(now time.Time, count bool) (changed, sudden, woke bool, err error) {
	if err := b.readOffered(); err != nil {
		return false, false, false, err
	}
	offeredBytes := uint64(0)
	b.scratch.awake = b.scratch.awake[:0]
	for i := range b.quiet {
		q := &b.quiet[i]
		offered := b.scratch.offered[q.number]
		if q.known && offered == q.offeredBytes {
			continue
		}
		m := b.competitors[i]
		d := &m.demand
		if !m.active {
			if !d.Known() {
				// Earlier counts under this number belong to its previous holder.
				d.Offer(now, demand.MinWindow, offered)
			}
			if offered == d.LastOffered() {
				q.known, q.offeredBytes = true, offered
				continue
			}
			m.wake(now, b.last.look)
			woke = true // since the last look, or since the packet that woke the agent
		}
		if offered != d.LastOffered() {
			b.last.traffic = now
			offeredBytes += offered - d.LastOffered()
		}
		d.Offer(now, demand.Window(m.expectedBPS()), offered)
		q.known = false
		b.scratch.awake = append(b.scratch.awake, m)
	}
	b.selectCounters(now, count, woke || b.full(offeredBytes, now.Sub(b.last.look)))
	b.last.look = now
	if err := b.readCounters(now, count); err != nil {
		return false, false, woke, err
	}
	for _, m := range b.scratch.awake {
		if m.backlogBytes > 0 {
			b.last.traffic = now
		}
		if m.demand.Decide(now) {
			changed = true
			sudden = sudden || !m.demand.Settled(now)
		}
		// While users watch, they see the transmission end.
		if count && m.demand.Settled(now) && m.demand.DemandBPS == 0 && now.Sub(m.sentAt) >= restAfter {
			m.active, m.countedBacklogBytes = false, 0
		}
	}
	return changed, sudden, woke, nil
}

// wake makes a member active again that has offered nothing until since.
func (m *member) wake(now, since time.Time) {
	m.active, m.activeSince, m.sentAt = true, since, now
	m.demand.Resume(since)
	m.demand.Doubt(now)
}

// expectedBPS returns the reference rate for the member's demand estimate: the larger of its
// entitlement and its guarantee or, without a weight, its allocation.
func (m *member) expectedBPS() uint64 {
	if m.want.Weight == 0 {
		return max(m.entitledBPS, m.allocatedBPS)
	}
	return max(m.entitledBPS, m.guaranteedBPS) // for the host class its reserve
}

// fullPercent: below this part of the link's rate no packets are queued for long, except at a
// maximum.
const fullPercent = 90

// full reports whether the offered traffic of a period may have filled the link.
func (b *Backend) full(offeredBytes uint64, elapsed time.Duration) bool {
	return float64(offeredBytes)*8 >= float64(b.link.RateBPS)*elapsed.Seconds()*fullPercent/100
}

// lackDivisor: while the members that wanted more lack less than this part of the link in total,
// the next regular reading of counters is soon enough to check them. Others may use their rate
// until then.
const lackDivisor = 20

// selectCounters selects the members whose counters to read: with count, all active ones; otherwise those
// whose demand is in relevant doubt.
func (b *Backend) selectCounters(now time.Time, count, full bool) {
	b.scratch.asked, b.scratch.lacking = b.scratch.asked[:0], b.scratch.lacking[:0]
	if count && b.uncounted {
		for _, m := range b.competitors {
			b.scratch.asked = append(b.scratch.asked, m.want.Number)
		}
		b.inDoubt = false
		return
	}
	lackingBPS := uint64(0)
	for _, m := range b.scratch.awake {
		d := &m.demand
		switch {
		case count:
			b.scratch.asked = append(b.scratch.asked, m.want.Number)
		case d.WantsMore():
			if lackBPS := d.LackBPS(now, m.allocatedBPS); lackBPS > 0 {
				b.scratch.lacking = append(b.scratch.lacking, m.want.Number)
				lackingBPS += lackBPS
			}
		case (full || d.RateBPS() > m.want.CeilingBPS/100*fullPercent) && d.MayWantMore(now, m.allocatedBPS):
			b.scratch.asked = append(b.scratch.asked, m.want.Number)
		}
	}
	if lackingBPS > b.link.RateBPS/lackDivisor {
		b.scratch.asked = append(b.scratch.asked, b.scratch.lacking...)
	}
	b.inDoubt = !count && len(b.scratch.asked) > 0
}

// readOffered reads the offered bytes of all members.
func (b *Backend) readOffered() error {
	last := int(b.members[len(b.members)-1].want.Number)
	if len(b.scratch.offered) <= last {
		b.scratch.offered = make([]uint64, last+1)
	}
	return b.traffic.OfferedBytes(b.scratch.offered[:last+1])
}

// readCounters reads the counters of the selected members.
func (b *Backend) readCounters(now time.Time, count bool) error {
	if len(b.scratch.asked) == 0 {
		return nil // no member has sent anything since the last count
	}
	read, err := b.stats(b.scratch.asked, count, b.scratch.read[:0])
	b.scratch.read = read
	if err != nil {
		return err
	}
	missing := len(read) < len(b.scratch.asked)
	if missing && !(count && b.uncounted) {
		return errClassesGone
	}
	for i := range read {
		m := b.member(read[i].number)
		m.backlogBytes = read[i].backlogBytes
		if m.active {
			m.demand.Queued(m.backlogBytes)
		}
	}
	if !count {
		return nil
	}
	b.uncounted = false
	return b.storeCounts(now, read)
}

// storeCounts stores the counters for users, all of the same moment. It returns an error if drops and
// marks cannot be read.
func (b *Backend) storeCounts(now time.Time, read []stats) error {
	queues, _ := b.device.queueStats()
	for i := range read {
		m, s := b.member(read[i].number), &read[i]
		counters := sched.Counters{SentBytes: s.sentBytes, SentPackets: s.sentPackets}
		var err error
		if counters.DirectBytes, counters.DirectPackets, err = b.traffic.DirectSent(s.number); err != nil {
			return err
		}
		queue, known := m.countQueues(queues)
		counters.DroppedPackets, counters.MarkedPackets, counters.QueueKnown = queue.DroppedPackets, queue.MarkedPackets, known
		m.trafficCounters = s.traffic
		for kind := range m.trafficCounters {
			m.trafficCounters[kind].DroppedPackets = m.queues[kind].DroppedPackets
			m.trafficCounters[kind].MarkedPackets = m.queues[kind].MarkedPackets
		}
		if counters.SentBytes != m.counters.SentBytes || counters.DirectBytes != m.counters.DirectBytes {
			m.sentAt = now
		}
		m.counters, m.countedBacklogBytes, m.countedAt = counters, s.backlogBytes, now
	}
	return nil
}

// setDirect tells the classifier which members' packets may bypass the classes while no packet
// waits: those of members without a maximum. Call it before a maximum is put into force; after a
// maximum ended, starting the bypass a little early does no harm.
func (b *Backend) setDirect() error {
	if b.traffic == nil {
		return nil
	}
	rateBPS := b.link.RateBPS
	b.scratch.direct = b.scratch.direct[:0]
	for _, m := range b.members {
		b.scratch.direct = append(b.scratch.direct, sched.Direct{Number: m.want.Number, May: min(m.want.CeilingOr(rateBPS), b.limitBPS(m)) == rateBPS && !m.want.Traffic.Ordered})
	}
	return b.traffic.SetDirect(sched.Bounds{
		RateBPS: rateBPS, OverheadBytes: b.device.wanted.overheadBytes,
		DirectBytes: directBytes(b.device.wanted.packetBytes()), ControlBPS: sched.ControlBPS(rateBPS),
	}, b.scratch.direct)
}
