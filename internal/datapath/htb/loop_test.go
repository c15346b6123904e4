package htb

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
)

// The target: 50 ms to the new allocation after any change.
const reaction = 50 * time.Millisecond

// The agent's time between the first packet after a silence and its look.
const wakeInterval = 10 * time.Millisecond

// TestLowerAllocationEndsSavings: a share whose allocation falls much loses what it has saved, for a turn, which costs
// no apply of everything.
func TestLowerAllocationEndsSavings(t *testing.T) {
	b := newBed(t, 100e6)
	a, c := b.start(weight(100)), b.start(weight(300))
	l := newWire(b)
	saves := func(m *member) bool {
		for _, class := range desired(l.device.applied, leafFqCodel).classes {
			if class.Handle == shareClass(m.want.Number) {
				return class.Options.(kernel.HTBClass).Burst > 0
			}
		}
		return false
	}
	l.greedy[a] = true
	l.run(time.Second)
	l.greedy[c], l.traffic.direct = true, nil
	beforeBPS, without := a.allocatedBPS, 0
	for range 200 { // milliseconds
		l.run(time.Millisecond)
		if fell := a.allocatedBPS < beforeBPS-beforeBPS/loweredDivisor; fell && saves(a) || !saves(c) {
			t.Fatalf("allocated %s: savings %t and %t", allocations(a, c), saves(a), saves(c))
		}
		beforeBPS = a.allocatedBPS
		if !saves(a) {
			without++
		}
	}
	if most := 3 * int(changingInterval/time.Millisecond); without == 0 || without > most || !near(a.allocatedBPS, 25e6) {
		t.Errorf("allocated %s, without savings for %d ms, want at most %d", allocations(a, c), without, most)
	}
	if l.traffic.direct != nil {
		t.Error("everything was applied")
	}
	little := b.start()
	l.run(time.Second)
	beforeBPS, l.paceBPS[little] = a.allocatedBPS, 2e6
	for range 200 {
		if l.run(time.Millisecond); !saves(a) || !saves(c) {
			t.Fatalf("allocated %s: savings %t and %t", allocations(a, c, little), saves(a), saves(c))
		}
	}
	if a.allocatedBPS >= beforeBPS {
		t.Errorf("allocated %s, nothing fell", allocations(a, c, little))
	}
}

func TestControlReacts(t *testing.T) {
	b := newBed(t, 100e6)
	a, c := b.start(weight(100)), b.start(weight(300))
	l := newWire(b)
	expect := func(when string, wantA, wantC float64) {
		t.Helper()
		if !near(a.allocatedBPS, uint64(wantA)) || !near(c.allocatedBPS, uint64(wantC)) {
			t.Errorf("%s: allocated %s, want %.1f and %.1f Mbit/s", when, allocations(a, c), wantA/1e6, wantC/1e6)
		}
		if last := l.device.applied.classes; last[1].AllocatedBPS != a.allocatedBPS || last[2].AllocatedBPS != c.allocatedBPS {
			t.Errorf("%s: the kernel was told %v", when, last)
		}
	}
	l.run(3 * time.Second)
	l.greedy[a] = true
	l.run(reaction)
	expect("one starts", 100e6, 0)
	l.greedy[c] = true
	l.run(reaction)
	expect("another starts", 25e6, 75e6)
	before := maps.Clone(l.sent)
	l.run(time.Second)
	expect("a second later", 25e6, 75e6)
	if sent := 8 * (l.sent[a] - before[a]); !near(uint64(sent), 25e6) {
		t.Errorf("a sent %.1f Mbit/s", sent/1e6)
	}
	l.greedy[c] = false
	l.run(2 * reaction) // its queue has to drain first
	expect("one stops", 100e6, 0)
	l.paceBPS[c] = 30e6
	l.run(4 * reaction)
	if c.demand.DemandBPS < 30e6 || c.demand.DemandBPS > 34.5e6 {
		t.Errorf("a sender of 30 Mbit/s is allowed for %d", c.demand.DemandBPS)
	}
	expect("one sends steadily", 100e6-float64(c.demand.SteadyBPS()), float64(c.demand.DemandBPS))
	l.greedy[a], l.paceBPS[c] = false, 0
	l.run(3 * time.Second)
	expect("silence", 0, 0)
	if got := l.control(l.now); got != restInterval {
		t.Errorf("in silence it looks every %s", got)
	}
}

// What comes in may take 20 ms to new rates: its loop never waits longer than a turn while anything is received.
func TestControlOfWhatComesIn(t *testing.T) {
	for incoming, want := range map[bool]time.Duration{false: settledInterval, true: changingInterval} {
		b := newBed(t, 100e6)
		b.tree.Incoming = incoming
		a, c := b.start(), b.start()
		l := newWire(b)
		l.greedy[a], l.greedy[c] = true, true
		l.run(3 * time.Second)
		if got := l.control(l.now); got != want {
			t.Errorf("comes in: %v, settled: it looks every %s, want %s", incoming, got, want)
		}
		l.greedy[a], l.greedy[c] = false, false
		l.run(3 * time.Second)
		if got := l.control(l.now); got != restInterval {
			t.Errorf("comes in: %v, in silence: it looks every %s", incoming, got)
		}
	}
}

// TestControlWakes: in silence turns are rare, and the scheduler arms the classifier before. A container that starts to
// send during a rest is served as soon as at other times. Its first rate counts from its first packet, and that packet
// whole.
func TestControlWakes(t *testing.T) {
	b := newBed(t, 100e6)
	a, c := b.start(weight(100)), b.start(weight(300))
	l := newWire(b)
	l.greedy[a] = true
	l.run(time.Second)
	if l.traffic.armed {
		t.Error("the classifier wakes a loop that does not rest")
	}
	l.greedy[a] = false
	for round := range 10 {
		l.run(3*time.Second + time.Duration(round)*37*time.Millisecond)
		if !l.traffic.armed {
			t.Fatal("the classifier was not told to wake the loop")
		}
		started := l.now
		l.greedy[a], l.paceBPS[c] = true, 30e6
		l.run(reaction)
		if since := c.activeSince; since.Sub(started) != 0 {
			t.Errorf("it has sent since %s after its first packet", since.Sub(started))
		}
		if c.demand.DemandBPS < 28e6 || c.demand.DemandBPS > 37e6 || !near(a.allocatedBPS, 100e6-c.demand.SteadyBPS()) {
			t.Errorf("a sender of 30 Mbit/s is allowed for %d, the other gets %d", c.demand.DemandBPS, a.allocatedBPS)
		}
		l.greedy[a], l.paceBPS[c] = false, 0
	}
}

// TestControlWakesLate: a turn at the first packet, or one whose tick is older than the packet, makes no rate of
// nearly no time.
func TestControlWakesLate(t *testing.T) {
	const packetBytes = 1500
	for _, after := range []time.Duration{time.Microsecond, 0, -20 * time.Millisecond} {
		b := newBed(t, 1e9)
		c := b.start()
		l := newWire(b)
		l.run(4 * time.Second)
		if !l.traffic.armed {
			t.Fatal("the classifier was not told to wake the loop")
		}
		l.traffic.armed, l.traffic.wokenAt = false, l.now
		l.traffic.offered[c.want.Number] += packetBytes
		l.control(l.now.Add(after))
		if got, most := c.demand.RateBPS(), uint64(packetBytes*8*time.Second/leastOffered); !c.active || got == 0 || got > most {
			t.Errorf("a packet is looked at after %s: active %t, a rate of %d, want %d at most", after, c.active, got, most)
		}
		if since := l.now.Add(after).Sub(c.activeSince); since < leastOffered || since > 2*restInterval {
			t.Errorf("a packet is looked at after %s: active for %s", after, since)
		}
	}
}

// TestControlOfRestartedCounters: a container that fell silent as its counter restarted is not taken for one that sends.
func TestControlOfRestartedCounters(t *testing.T) {
	b := newBed(t, 100e6)
	c := b.start()
	l := newWire(b)
	l.run(time.Second)
	l.greedy[c] = true
	l.run(time.Second)
	l.greedy[c] = false
	l.traffic.offered[c.want.Number] = 0
	l.run(5 * time.Second)
	if c.active || c.allocatedBPS != 0 {
		t.Errorf("active %v, allocated %d", c.active, c.allocatedBPS)
	}
}

// A classifier that cannot be told to wake the loop leaves it at its short period.
func TestControlWithoutWakeUps(t *testing.T) {
	b := newBed(t, 100e6)
	b.traffic.err = errors.New("gone")
	for range 2 {
		if turn, err := b.Turn(epoch.Add(time.Hour), false); !errors.Is(err, b.traffic.err) || turn.Next != idleInterval {
			t.Errorf("the next turn is in %s, error %v", turn.Next, err)
		}
	}
	b.traffic.err = nil
	if turn, err := b.Turn(epoch.Add(time.Hour), false); err != nil || turn.Next != idleInterval || !b.traffic.armed {
		t.Errorf("the next turn is in %s, error %v", turn.Next, err)
	}
	b.traffic.err = errors.New("gone")
	if turn, err := b.Turn(epoch.Add(time.Hour), false); !errors.Is(err, b.traffic.err) || turn.Next > idleInterval {
		t.Errorf("armed: the next turn is in %s, error %v", turn.Next, err)
	}
}

// The host class competes only while it wants more than its reserve.
func TestControlOfTheHost(t *testing.T) {
	b := newBed(t, 100e6)
	a := b.start()
	l := newWire(b)
	l.greedy[a] = true
	l.paceBPS[l.host] = 0.5e6
	l.run(time.Second)
	if l.hostCompetes || !near(a.allocatedBPS, 99.5e6) || a.entitledBPS != 100e6 {
		t.Errorf("idle host: a is entitled to %d, allocated %d", a.entitledBPS, a.allocatedBPS)
	}
	l.paceBPS[l.host], l.greedy[l.host] = 0, true
	l.run(reaction)
	if !l.hostCompetes || !near(a.allocatedBPS, 50e6) || a.entitledBPS != 50e6 {
		t.Errorf("busy host: a is entitled to %d, allocated %d", a.entitledBPS, a.allocatedBPS)
	}
	if tree := l.device.applied; tree.classes[0].GuaranteedBPS < 49.25e6 || tree.classes[0].GuaranteedBPS > 49.5e6 {
		t.Errorf("the kernel guarantees the busy host %d", tree.classes[0].GuaranteedBPS)
	}
	l.greedy[l.host] = false
	l.run(2 * reaction)
	if !near(a.allocatedBPS, 100e6) {
		t.Errorf("idle host again: a is allocated %d", a.allocatedBPS)
	}
	l.run(hostHold)
	if l.hostCompetes || !near(a.allocatedBPS, 100e6) || a.entitledBPS != 100e6 {
		t.Errorf("idle host for a while: a is entitled to %d, allocated %d", a.entitledBPS, a.allocatedBPS)
	}
}

// What containers are entitled to does not come and go with each burst of a host that
// sends about its reserve.
func TestControlOfAHostOfBursts(t *testing.T) {
	b := newBed(t, 100e6)
	a := b.start()
	l := newWire(b)
	l.greedy[a] = true
	changes, before := 0, l.hostCompetes
	for range 100 {
		for _, bps := range []float64{1.5e6, 0.4e6} {
			l.paceBPS[l.host] = bps
			l.run(300 * time.Millisecond)
			if l.hostCompetes != before {
				changes, before = changes+1, !before
			}
			if sum := a.allocatedBPS + l.host.allocatedBPS; !near(sum, 100e6) {
				t.Fatalf("a is allocated %d, the host %d", a.allocatedBPS, l.host.allocatedBPS)
			}
		}
	}
	if changes != 1 {
		t.Errorf("in a minute the host began or ceased to compete %d times", changes)
	}
}

// What somebody may send more than it does is within its maximum, too.
func TestControlBelowAMaximum(t *testing.T) {
	b := newBed(t, 100e6)
	a := b.start(maximum(10e6))
	l := newWire(b)
	l.paceBPS[a] = 9.9e6
	for range 10 {
		l.run(200 * time.Millisecond)
		if a.allocatedBPS > 10e6 {
			t.Fatalf("a is allocated %d", a.allocatedBPS)
		}
	}
	if a.demand.DemandBPS <= 10e6 {
		t.Errorf("a wants %d: the test is of nothing", a.demand.DemandBPS)
	}
}

// While nothing changes, nothing is applied.
func TestControlKeepsStill(t *testing.T) {
	b := newBed(t, 100e6)
	a, c := b.start(), b.start(weight(300))
	l := newWire(b)
	l.greedy[a], l.paceBPS[c] = true, 20e6
	l.run(time.Second)
	changed := l.changed
	before := maps.Clone(l.sent)
	l.run(3 * time.Second)
	if n := l.changed - changed; n > 0 {
		t.Errorf("%d changes in 3 seconds of the same traffic", n)
	}
	if bps := 8 * (l.sent[a] + l.sent[c] - before[a] - before[c]) / 3; !near(uint64(bps), 100e6) {
		t.Errorf("sent %.1f Mbit/s", bps/1e6)
	}
}

// Classes that somebody removed are noticed when they are asked for.
func TestLookMissesClasses(t *testing.T) {
	b := newBed(t, 100e6)
	a := b.start()
	// What an earlier agent left may lack some; that is mended by the next Apply.
	b.control(epoch)
	b.traffic.offered[a.want.Number] = 2
	if _, err := b.Turn(epoch.Add(2*changingInterval), true); !errors.Is(err, errClassesGone) {
		t.Errorf("error %v", err)
	}
	b.traffic.offered[a.want.Number] = 1 << 20 // more than the link takes
	b.kernel.stats[a.want.Number] = stats{backlogBytes: 5}
	if _, err := b.Turn(epoch.Add(3*changingInterval), false); err != nil || a.backlogBytes != 5 {
		t.Errorf("error %v, backlog %d", err, a.backlogBytes)
	}
}

// What was counted for the last holder of a number is not its next holder's.
func TestLookAtAReusedNumber(t *testing.T) {
	b := newBed(t, 100e6)
	a := b.start()
	b.traffic.offered[a.want.Number] = 1 << 40
	b.kernel.stats[a.want.Number] = stats{}
	for i := range time.Duration(10) {
		if _, _, _, err := b.estimateDemand(epoch.Add(i*changingInterval), false); err != nil || a.active || a.demand.DemandBPS > 0 {
			t.Fatalf("error %v, active %t, demand %d", err, a.active, a.demand.DemandBPS)
		}
	}
}

// Nothing is asked of the kernel for those that do not send, and little for
// those whose offer leaves no doubt.
func TestLookAsksLittle(t *testing.T) {
	b := newBed(t, 100e6)
	for range 50 {
		b.start()
	}
	l := newWire(b)
	l.greedy[b.containers()[0]], l.greedy[b.containers()[1]] = true, true
	l.paceBPS[b.containers()[2]] = 1e6
	l.run(2 * time.Second)
	b.kernel.asked = 0
	l.run(time.Second)
	// Three of them for people to look at, every 250 ms.
	if most := 3 * int(time.Second/countInterval+1) * 2; b.kernel.asked > most {
		t.Errorf("asked for %d classes in a second, want at most %d", b.kernel.asked, most)
	}
}

// The kernel is asked for more only where the answer can change what somebody
// may send.
func TestLookAsksWhereItMatters(t *testing.T) {
	pace := func(i int, bps float64) func(*wire) {
		return func(l *wire) { l.paceBPS[l.containers()[i]] = bps }
	}
	greedy := func(count int, want bool) func(*wire) {
		return func(l *wire) {
			for _, s := range l.containers()[:count] {
				l.greedy[s] = want
			}
		}
	}
	for _, tc := range []struct {
		name        string
		first, then func(*wire)
		asks        bool
	}{
		{"a rate changes on an uplink that is not full", pace(0, 40e6), pace(0, 60e6), false},
		{"a rate rises until the uplink is full", pace(0, 40e6), pace(0, 110e6), true},
		{"a rate rises to the maximum", pace(49, 10e6), pace(49, 20e6), true},
		{"one wakes up", pace(0, 40e6), pace(1, 1e6), true},
		{"one of fifty that want more stops", greedy(50, true), greedy(1, false), false},
		{"ten of fifty that want more stop", greedy(50, true), greedy(10, false), true},
	} {
		b := newBed(t, 100e6)
		for range 49 {
			b.start()
		}
		b.start(maximum(20e6))
		l := newWire(b)
		tc.first(l)
		l.run(2 * time.Second)
		b.kernel.looks = 0
		tc.then(l)
		l.run(countInterval - changingInterval)
		// One look may be for people.
		if asks := b.kernel.looks > 1; asks != tc.asks {
			t.Errorf("%s: %d looks at the counters", tc.name, b.kernel.looks)
		}
	}
}

// TestControlReactsWithoutWeight: who has no weight is entitled to nothing, and is
// followed as fast as others in what it gets and leaves.
func TestControlReactsWithoutWeight(t *testing.T) {
	b := newBed(t, 100e6)
	first, second, third := b.start(weight(0), preferred(5)), b.start(weight(0), preferred(1)), b.start(weight(1))
	l := newWire(b)
	expect := func(when string, wantFirst, wantSecond, wantThird float64) {
		t.Helper()
		if !near(first.allocatedBPS, uint64(wantFirst)) || !near(second.allocatedBPS, uint64(wantSecond)) || !near(third.allocatedBPS, uint64(wantThird)) {
			t.Errorf("%s: allocated %s, want %.1f, %.1f and %.1f Mbit/s", when, allocations(first, second, third), wantFirst/1e6, wantSecond/1e6, wantThird/1e6)
		}
	}
	l.run(3 * time.Second)
	l.greedy[first], l.greedy[second] = true, true
	l.run(2 * reaction)
	expect("all is idle but these two", 100e6, 0, 0)
	l.run(time.Second)
	l.greedy[first] = false
	l.paceBPS[first] = 30e6
	l.run(4 * reaction) // its queue has to drain first
	expect("the first wants less", float64(first.demand.DemandBPS), 100e6-float64(first.demand.SteadyBPS()), 0)
	if first.demand.DemandBPS > 34.5e6 {
		t.Errorf("a sender of 30 Mbit/s is allowed for %d", first.demand.DemandBPS)
	}
	l.greedy[third] = true
	l.run(2 * reaction)
	expect("one with a weight starts", 0, 0, 100e6)
}

// What an earlier agent left stays as it is until it is known who sends, and its
// counters are read whoever sends.
func TestConnectChangesNothing(t *testing.T) {
	b := newBed(t, 100e6)
	a, c := b.start(), b.start(weight(300))
	w := newWire(b)
	w.greedy[a], w.greedy[c] = true, true
	w.run(time.Second)

	// A new agent, which is to do something else.
	next := newBed(t, 100e6)
	next.Backend = New(next.kernel, testIfindex)
	next.traffic = b.traffic
	next.kernel.stats = b.kernel.stats
	next.tree = b.tree
	next.tree.RateBPS = 50e6
	next.kernel.ops = nil
	if err := next.Connect(next.tree, next.traffic); err != nil {
		t.Fatal(err)
	}
	for turn := range 4 {
		now := w.now.Add(time.Duration(turn) * changingInterval)
		b.traffic.offered[a.want.Number] += 200_000
		got, err := next.Turn(now, turn == 0)
		if err != nil || got.Applied || len(next.kernel.ops) > 0 {
			t.Fatalf("look %d: %+v, %v, changes %v", turn, got, err, next.kernel.ops)
		}
	}
	var seen sched.Snapshot
	next.Snapshot(&seen)
	for _, s := range seen.Competitors {
		if s.Counters.SentBytes != b.kernel.stats[s.Number].sentBytes || s.CountedAt.IsZero() {
			t.Errorf("class %d has counted %+v at %s", s.Number, s.Counters, s.CountedAt)
		}
	}
	if got := next.member(a.want.Number); got.demand.DemandBPS != alloc.Unlimited {
		t.Errorf("who sends is not known: %d", got.demand.DemandBPS)
	}
	if next.reconcile(); len(next.kernel.ops) == 0 {
		t.Error("nothing is applied after that")
	}
}

// A snapshot has all of one moment: what went through the class, what went past it,
// and what was dropped, if that can be read.
func TestSnapshot(t *testing.T) {
	b := newBed(t, 100e6)
	a := b.start()
	b.kernel.stats[hostNumber], b.kernel.stats[a.want.Number] = stats{}, stats{}
	b.control(epoch)
	at := epoch.Add(countInterval)
	b.traffic.offered[a.want.Number] = 5000
	b.traffic.directBytes[a.want.Number] = 500
	b.kernel.stats[a.want.Number] = stats{sentBytes: 4000, sentPackets: 4, backlogBytes: 700}
	b.kernel.queues = map[kernel.Handle]kernel.QueueStats{leafQdisc(a.want.Number): {DroppedPackets: 3, MarkedPackets: 7}}
	b.control(at)
	var seen sched.Snapshot
	b.Snapshot(&seen)
	got := seen.Competitors[1]
	want := sched.State{
		Number: a.want.Number, Active: true, ActiveSince: epoch,
		DemandBPS: a.demand.SteadyBPS(), EntitledBPS: 100e6, GuaranteedBPS: a.guaranteedBPS, AllocatedBPS: a.allocatedBPS,
		PacketBytes: 3125, BacklogBytes: 700, CountedAt: at,
		Counters: sched.Counters{SentBytes: 4000, SentPackets: 4, DirectBytes: 500, DirectPackets: 10, DroppedPackets: 3, MarkedPackets: 7, QueueKnown: true},
	}
	want.Traffic[sched.Unclassified] = sched.TrafficCounters{SentBytes: 4000, SentPackets: 4, BacklogBytes: 700, DroppedPackets: 3, MarkedPackets: 7}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if host := seen.Competitors[0]; host.Active || !host.CountedAt.Equal(epoch) || seen.HostCompetes {
		t.Errorf("the host has sent nothing since it was counted first: %+v", host)
	}

	// What is held back of it is not allocated.
	before := *a
	a.holdback.part, a.allocatedBPS = 0.2, a.entitledBPS
	b.Snapshot(&seen)
	if got := seen.Competitors[1]; got.AllocatedBPS != 80e6 || got.HeldBackBPS != 20e6 || got.GuaranteedBPS != min(a.guaranteedBPS, 80e6) {
		t.Errorf("held back: %+v", got)
	}
	*a = before

	// It falls silent: not active any more, when its counters have stood for a while.
	b.kernel.queues = nil
	b.kernel.stats[a.want.Number] = stats{sentBytes: 4700, sentPackets: 5}
	for now := at; now.Before(at.Add(3 * time.Second)); now = now.Add(changingInterval) {
		b.control(now)
	}
	b.Snapshot(&seen)
	if got := seen.Competitors[1]; got.Active || got.BacklogBytes != 0 || got.Counters.SentBytes != 4700 || got.Counters.QueueKnown || got.DemandBPS != 0 {
		t.Errorf("silent: %+v", got)
	}
}
