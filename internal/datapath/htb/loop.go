package htb

import (
	"errors"
	"time"

	"github.com/weir-project/weir/internal/demand"
	"github.com/weir-project/weir/internal/sched"
)

// The loop's period: while who may send how much is changing or in doubt, while
// that stands, and while nothing is sent at all. To wake up costs more than what is
// done then.
const (
	changingInterval = 10 * time.Millisecond
	settledInterval  = 30 * time.Millisecond
	idleInterval     = 40 * time.Millisecond
	// idleAfter is how long nothing has to be sent for that.
	idleAfter = time.Second
	// restAfter is how long a class's counters have to stand until it is not
	// active any more.
	restAfter = time.Second
)

var (
	errClassesGone  = errors.New("classes are missing: somebody changed the uplink's queueing")
	errNotConnected = errors.New("the scheduler does not know what is offered: no classifier is connected")
)

// loop is what the feedback loop remembers from one look to the next.
type loop struct {
	traffic sched.Traffic
	// following: nothing was applied since the classifier was connected. The tree may
	// be an earlier agent's, and stays as it is.
	following bool
	// uncounted: the counters of all are to be read once, whoever is active.
	uncounted bool

	lastLook    time.Time
	lastTraffic time.Time
	lastChange  time.Time
	// inDoubt: counters were asked for, as the rates left doubt who wants more.
	inDoubt bool

	// Scratch space.
	offered []uint64
	asked   []uint16
	lacking []uint16
	read    []stats
	direct  []sched.Direct
}

// Connect implements sched.Backend.
func (b *Backend) Connect(want sched.Tree, traffic sched.Traffic) error {
	b.traffic, b.following, b.uncounted = traffic, true, true
	b.want(want)
	for _, m := range b.members {
		m.told = false
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
	changed, sudden, woke, err := b.look(now, count)
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
	// A new guarantee matters also where the allocation stays.
	if (hostChanged || changed) && b.allocate(hostChanged) || drained {
		if hostChanged || sudden {
			b.lastChange = now
		}
		turn.Applied = true
		if err := b.put(); err != nil {
			return turn, err
		}
	}
	switch {
	case now.Sub(b.lastTraffic) > idleAfter:
		turn.Next = idleInterval
	case b.inDoubt || draining || now.Sub(b.lastChange) <= demand.SettledAfter:
		turn.Next = changingInterval
	}
	return turn, nil
}

// look takes one look at what everybody wants and reports whether any estimate
// changed, whether one did so suddenly, and may do so again, and whether anybody
// woke up.
//
// What was offered is counted in shared memory and costs nothing to read. What
// is queued has to be asked of the kernel, which tells of all classes or
// none; that is done only where what is offered leaves in doubt whether anything
// is.
func (b *Backend) look(now time.Time, count bool) (changed, sudden, woke bool, err error) {
	if err := b.readOffered(); err != nil {
		return false, false, false, err
	}
	offeredBytes := uint64(0)
	for _, m := range b.competitors {
		d, offered := &m.demand, b.offered[m.want.Number]
		if !m.active {
			if !d.Known() {
				// What was counted under this number before is not ours.
				d.Offer(now, demand.MinWindow, offered)
			}
			if offered == d.LastOffered() {
				continue
			}
			m.wake(now, b.lastLook)
			woke = true // who knows when
		}
		if offered != d.LastOffered() {
			b.lastTraffic = now
			offeredBytes += offered - d.LastOffered()
		}
		d.Offer(now, demand.Window(m.expectedBPS()), offered)
	}
	b.ask(now, count, woke || b.full(offeredBytes, now.Sub(b.lastLook)))
	b.lastLook = now
	if err := b.readCounters(now, count); err != nil {
		return false, false, woke, err
	}
	for _, m := range b.competitors {
		if !m.active {
			continue
		}
		if m.backlogBytes > 0 {
			b.lastTraffic = now
		}
		if m.demand.Decide(now) {
			changed = true
			sudden = sudden || !m.demand.Settled(now)
		}
		// Where people look they see it come to an end.
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

// expectedBPS is the rate at which the member's demand is looked at: what it can
// always have, or without a weight, which may be nothing, what it has.
func (m *member) expectedBPS() uint64 {
	if m.want.Weight == 0 {
		return max(m.entitledBPS, m.allocatedBPS)
	}
	return max(m.entitledBPS, m.guaranteedBPS) // of the host that is its reserve
}

// fullPercent: where less than that part of the link is offered nothing is
// queued, or not for long, but at a maximum.
const fullPercent = 90

// full says whether so much was offered in a time that the link may be full.
func (b *Backend) full(offeredBytes uint64, elapsed time.Duration) bool {
	return float64(offeredBytes)*8 >= float64(b.link.RateBPS)*elapsed.Seconds()*fullPercent/100
}

// lackDivisor: while those that wanted more leave less than that part of the
// link all together, the next look at all counters is soon enough to see
// whether they still do. What they leave is lent to others until then.
const lackDivisor = 20

// ask chooses whose counters to ask the kernel for: with count, those of all
// that are active, otherwise of those that leave doubt that matters.
func (b *Backend) ask(now time.Time, count, full bool) {
	b.asked, b.lacking = b.asked[:0], b.lacking[:0]
	lackingBPS := uint64(0)
	for _, m := range b.competitors {
		d := &m.demand
		switch {
		case count && b.uncounted:
			b.asked = append(b.asked, m.want.Number)
		case !m.active:
		case count:
			b.asked = append(b.asked, m.want.Number)
		case d.WantsMore():
			if lackBPS := d.LackBPS(now, m.allocatedBPS); lackBPS > 0 {
				b.lacking = append(b.lacking, m.want.Number)
				lackingBPS += lackBPS
			}
		case (full || d.RateBPS() > m.want.CeilingBPS/100*fullPercent) && d.MayWantMore(now, m.allocatedBPS):
			b.asked = append(b.asked, m.want.Number)
		}
	}
	if lackingBPS > b.link.RateBPS/lackDivisor {
		b.asked = append(b.asked, b.lacking...)
	}
	b.inDoubt = !count && len(b.asked) > 0
}

// readOffered reads what everybody has offered so far.
func (b *Backend) readOffered() error {
	last := int(b.members[len(b.members)-1].want.Number)
	if len(b.offered) <= last {
		b.offered = make([]uint64, last+1)
	}
	return b.traffic.OfferedBytes(b.offered[:last+1])
}

// readCounters asks the kernel for the counters of those that are asked for, by
// their number.
func (b *Backend) readCounters(now time.Time, count bool) error {
	if len(b.asked) == 0 {
		return nil // nobody has sent anything since: what was counted stands
	}
	read, err := b.stats(b.asked, b.read[:0])
	b.read = read
	if err != nil {
		return err
	}
	missing := len(read) < len(b.asked)
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
	return b.count(now, read)
}

// count takes in the counters that were read, for people to look at: all of one
// moment. Where drops and marks cannot be read, that is said.
func (b *Backend) count(now time.Time, read []stats) error {
	queues, _ := b.queueStats()
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

// setDirect tells the classifier whose packets need not pass through the classes
// where nobody waits: those without a maximum. To be called before a maximum is
// put into force; that those who have none any more get on with it a little early
// does no harm.
func (b *Backend) setDirect() error {
	if b.traffic == nil {
		return nil
	}
	rateBPS := b.link.RateBPS
	b.direct = b.direct[:0]
	for _, m := range b.members {
		b.direct = append(b.direct, sched.Direct{Number: m.want.Number, May: m.want.CeilingOr(rateBPS) == rateBPS && !m.want.Traffic.Ordered})
	}
	return b.traffic.SetDirect(sched.Bounds{
		RateBPS: rateBPS, DirectBytes: directBytes(b.wanted.packetBytes()), ControlBPS: sched.ControlBPS(rateBPS),
	}, b.direct)
}
