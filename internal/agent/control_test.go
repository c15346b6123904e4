package agent

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
	"github.com/weir-project/weir/internal/sched/htb"
)

// admitted is the minimum in force and, after a slash, "refused" or nothing.
func admitted(containers ...*share) string {
	var words []string
	for _, c := range containers {
		word := fmt.Sprintf("%s %s", c.Name, policy.FormatRateShort(c.admittedBPS))
		if c.refused != nil {
			word += " refused"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// Minimums on 100 Mbit/s with a reserve of 5 %.
func TestAdmit(t *testing.T) {
	expect := func(t *testing.T, want string, containers ...*share) {
		t.Helper()
		if got := admitted(containers...); got != want {
			t.Errorf("admitted: %s; want %s", got, want)
		}
	}
	t.Run("in the order of start", func(t *testing.T) {
		b := newBench(t, 100e6)
		a, c, d := b.start("a", "min=60mbit"), b.start("c", "min=40mbit"), b.start("d", "min=35mbit")
		expect(t, "a 60mbit, c 0bit refused, d 35mbit", a, c, d)
		var refusal *alloc.FloorError
		if !errors.As(c.refused, &refusal) || refusal.FreeBPS != 35e6 {
			t.Errorf("refusal %v", c.refused)
		}
	})
	t.Run("at once, in the order of start", func(t *testing.T) {
		b := newBench(t, 100e6)
		c, a := b.start("c"), b.start("a")
		b.label(c, "min=60mbit")
		b.label(a, "min=60mbit")
		b.plan()
		expect(t, "c 60mbit, a 0bit refused", c, a)
	})
	t.Run("who was refused gets what somebody leaves", func(t *testing.T) {
		b := newBench(t, 100e6)
		a, c, d := b.start("a", "min=60mbit"), b.start("c", "min=40mbit"), b.start("d", "min=50mbit")
		expect(t, "a 60mbit, c 0bit refused, d 0bit refused", a, c, d)
		b.stop(a)
		expect(t, "c 40mbit, d 50mbit", c, d)
	})
	t.Run("who is not controlled has none", func(t *testing.T) {
		b := newBench(t, 100e6)
		a, c := b.start("a", "min=60mbit"), b.start("c", "min=60mbit")
		b.registry.release(a.container)
		b.plan()
		expect(t, "a 0bit, c 60mbit", a, c)
		if a.refused != nil {
			t.Errorf("refused for %v", a.refused)
		}
	})
	t.Run("the host's own comes first", func(t *testing.T) {
		b := newBench(t, 100e6)
		b.host.resolved.Policy.MinBPS = 20e6
		a, c := b.start("a", "min=80mbit"), b.start("c", "min=75mbit")
		expect(t, "a 0bit refused, c 75mbit, host 20mbit", a, c, b.host)
	})
	t.Run("the host's own does not fit", func(t *testing.T) {
		b := newBench(t, 100e6)
		b.host.resolved.Policy.MinBPS = 200e6
		a := b.start("a", "min=80mbit")
		expect(t, "a 80mbit, host 0bit refused", a, b.host)
		if state, _ := b.host.state(); state != v1.StateRejected {
			t.Errorf("the host is %s", state)
		}
	})
}

func entitled(containers ...*share) string {
	var words []string
	for _, c := range containers {
		words = append(words, policy.FormatRateShort(c.entitledBPS))
	}
	return strings.Join(words, " ")
}

func allocations(containers ...*share) string {
	var words []string
	for _, c := range containers {
		words = append(words, policy.FormatRateShort(c.allocatedBPS))
	}
	return strings.Join(words, " ")
}

func TestEntitle(t *testing.T) {
	b := newBench(t, 100e6)
	a, c := b.start("a", "weight=100"), b.start("c", "weight=300")
	// An idle host takes nothing from anybody; it has its reserve.
	if got := entitled(a, c, b.host); got != "25mbit 75mbit 1mbit" {
		t.Errorf("host idle: entitled to %s", got)
	}
	// Also while it sends no more than that.
	b.host.demand.DemandBPS = 1e6
	b.plan()
	if got := entitled(a, c, b.host); got != "25mbit 75mbit 1mbit" {
		t.Errorf("host within its reserve: entitled to %s", got)
	}
	// Then it competes like a container of its weight.
	b.host.demand.DemandBPS = 1e6 + 1
	b.plan()
	if got := entitled(a, c, b.host); got != "20mbit 60mbit 20mbit" {
		t.Errorf("host competing: entitled to %s", got)
	}
	b.host.resolved.Policy.Weight = 400
	b.plan()
	if got := entitled(a, c, b.host); got != "12.5mbit 37.5mbit 50mbit" {
		t.Errorf("host with a weight of 400: entitled to %s", got)
	}

	// A minimum of the host is kept for it, idle or not.
	b = newBench(t, 100e6)
	b.host.resolved.Policy.MinBPS = 20e6
	a = b.start("a")
	if got := entitled(a, b.host); got != "80mbit 20mbit" {
		t.Errorf("host with a minimum: entitled to %s", got)
	}
}

func TestAllocate(t *testing.T) {
	b := newBench(t, 100e6)
	a, c := b.start("a", "weight=100"), b.start("c", "weight=300")
	greedy := func(list ...*share) {
		for _, m := range append([]*share{b.host}, b.controlled...) {
			m.demand.DemandBPS = 0
			if slices.Contains(list, m) {
				m.demand.DemandBPS = alloc.Unlimited
			}
		}
		b.plan()
	}
	for _, tc := range []struct {
		greedy []*share
		want   string
	}{
		{nil, "0bit 0bit 1mbit"},
		{[]*share{a}, "100mbit 0bit 1mbit"},
		{[]*share{a, c}, "25mbit 75mbit 1mbit"},
		{[]*share{a, c, b.host}, "20mbit 60mbit 20mbit"},
		{[]*share{c, b.host}, "0bit 75mbit 25mbit"},
		{[]*share{b.host}, "0bit 0bit 100mbit"},
	} {
		greedy(tc.greedy...)
		if got := allocations(a, c, b.host); got != tc.want {
			t.Errorf("%d greedy: allocated %s, want %s", len(tc.greedy), got, tc.want)
		}
	}

	// What the idle host sends is not given away a second time.
	greedy(a, c)
	b.host.demand.DemandBPS = 525e3
	b.plan()
	if sum := a.allocatedBPS + c.allocatedBPS; sum != 99.5e6 {
		t.Errorf("the host sends 500 kbit/s, the others may send %d", sum)
	}

	// Changes that do not matter are left, others are not.
	// What somebody may send above what it does at present is nobody's loss.
	c.demand.DemandBPS = 31.5e6
	if !b.allocate(false) || a.allocatedBPS != 69.5e6 || c.allocatedBPS != 31.5e6 {
		t.Errorf("allocated %s", allocations(a, c))
	}
	c.demand.DemandBPS = 31.5e6 + 52.5e3
	if b.allocate(false) || a.allocatedBPS != 69.5e6 {
		t.Errorf("a change of 50 kbit/s: allocated %s", allocations(a, c))
	}
	if !b.allocate(true) || a.allocatedBPS != 69.45e6 {
		t.Errorf("exactly: allocated %d", a.allocatedBPS)
	}
}

// noKernel takes whatever HTB wants and remembers it.
type noKernel struct{ ops []kernel.Op }

func (*noKernel) Qdiscs(int) ([]kernel.Qdisc, error)  { return nil, nil }
func (*noKernel) Classes(int) ([]kernel.Class, error) { return nil, nil }

func (*noKernel) Drops(int) (map[kernel.Handle]uint32, error) { return nil, nil }

func (*noKernel) ClassStats(_ int, _ []kernel.Handle, dst []kernel.ClassStats) ([]kernel.ClassStats, error) {
	return dst, nil
}

func (k *noKernel) Apply(_ int, ops []kernel.Op) error {
	k.ops = append(k.ops, ops...)
	return nil
}

// Whoever runs and whoever sends: what the kernel guarantees to all classes,
// control traffic and the host included, fits the link, for it holds also when
// nobody adjusts anything. And every guaranteed minimum is among that.
func TestGuaranteesFitTheLink(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := uint64(math.Pow(10, rapid.Float64Range(6, 10.5).Draw(rt, "log10 of the rate")))
		b := newBench(t, rate)
		b.reserveBasisPoints = rapid.Uint32Range(200, 5000).Draw(rt, "reserve")
		if rapid.Bool().Draw(rt, "host has a minimum") {
			b.host.resolved.Policy.MinBPS = rapid.Uint64Range(1, rate).Draw(rt, "host's minimum")
		}
		for range rapid.IntRange(0, 10).Draw(rt, "containers") {
			c := b.start("c", fmt.Sprintf("weight=%d", rapid.Uint32Range(1, 10_000).Draw(rt, "weight")))
			if rapid.Bool().Draw(rt, "has a minimum") {
				b.label(c, fmt.Sprintf("min=%dbit", rapid.Uint64Range(1, rate/2).Draw(rt, "minimum")))
			}
			c.demand.DemandBPS = rapid.SampledFrom([]uint64{0, rate / 10, alloc.Unlimited}).Draw(rt, "demand")
		}
		b.host.demand.DemandBPS = rapid.SampledFrom([]uint64{0, rate / 200, rate / 3, alloc.Unlimited}).Draw(rt, "host's demand")
		b.plan()

		tree := b.tree()
		k := &noKernel{}
		if err := htb.New(k, 3).Apply(tree); err != nil {
			rt.Fatal(err)
		}
		sum := uint64(0)
		isShare := map[kernel.Handle]bool{}
		for _, op := range k.ops {
			if op.Class != nil {
				isShare[op.Class.Parent] = true
			}
		}
		for _, op := range k.ops {
			if op.Class != nil && op.Class.Handle.Major() == htb.Major && !isShare[op.Class.Handle] {
				sum += op.Class.Options.(kernel.HTBClass).RateBytesPerSec * 8
			}
		}
		// A rate of less than a byte per second is one byte per second.
		if sum > rate+8*uint64(len(tree.Classes)) {
			rt.Fatalf("guarantees of %d bit/s on a link of %d, %.2f%%", sum, rate, 100*float64(sum)/float64(rate))
		}
		for _, c := range b.participants {
			if c.guaranteedBPS < c.admittedBPS {
				rt.Fatalf("%s: %d guaranteed, minimum %d", c.Name, c.guaranteedBPS, c.admittedBPS)
			}
		}
		shares := uint64(0)
		for _, c := range b.participants {
			if c.demand.DemandBPS == alloc.Unlimited {
				shares += c.allocatedBPS
			}
		}
		if shares > rate {
			rt.Fatalf("%d allocated to greedy senders on a link of %d", shares, rate)
		}
	})
}

// link plays the uplink: what containers offer, HTB lets through by the tree
// that was applied last, and the rest is queued.
type link struct {
	*bench
	now     time.Time
	greedy  map[*share]bool
	paceBPS map[*share]float64
	queue   map[*share]float64
	sent    map[*share]float64
}

func newLink(b *bench) *link {
	l := &link{bench: b, now: epoch, greedy: map[*share]bool{}, paceBPS: map[*share]float64{},
		queue: map[*share]float64{}, sent: map[*share]float64{}}
	b.reconcile()
	return l
}

// run lets time pass in steps of a millisecond, and the control loop look when
// it wants to.
func (l *link) run(d time.Duration) {
	const step = time.Millisecond
	next := l.now
	for end := l.now.Add(d); l.now.Before(end); l.now = l.now.Add(step) {
		l.transmit(step.Seconds())
		if !l.now.Before(next) {
			next = l.now.Add(l.control(l.now))
		}
	}
}

func (l *link) transmit(seconds float64) {
	all := append(slices.Clone(l.controlled), l.host)
	for _, c := range all {
		offer := l.paceBPS[c] / 8 * seconds
		if l.greedy[c] {
			offer = max(0, 100_000-l.queue[c]) // TCP fills the queue
		}
		l.queue[c] += offer
		l.classifier.offered[c.number] += uint64(offer)
	}
	tree := l.scheduler.applied[len(l.scheduler.applied)-1]
	left := float64(tree.RateBPS) / 8 * seconds
	serve := func(c *share, most float64) {
		bytes := max(0, min(l.queue[c], most, left))
		l.queue[c] -= bytes
		l.sent[c] += bytes
		left -= bytes
	}
	classes := map[uint16]sched.Class{}
	for _, class := range tree.Classes {
		classes[class.Number] = class
	}
	served := maps.Clone(l.sent)
	for _, c := range all {
		serve(c, float64(classes[c.number].GuaranteedBPS)/8*seconds)
	}
	for _, c := range all {
		already := l.sent[c] - served[c]
		serve(c, float64(classes[c.number].AllocatedBPS)/8*seconds-already)
	}
	for range 3 { // what is idle, in equal parts
		part := left / float64(len(all))
		for _, c := range all {
			serve(c, part)
		}
	}
	l.scheduler.stats = l.scheduler.stats[:0]
	for _, c := range all {
		l.scheduler.stats = append(l.scheduler.stats, sched.Stats{
			Number: c.number, SentBytes: uint64(l.sent[c]), BacklogBytes: uint64(l.queue[c])})
	}
}

func near(got, want uint64) bool {
	return math.Abs(float64(got)-float64(want)) <= 0.01*float64(want)+1
}

// The target: 50 ms to the new allocation after any change.
const reaction = 50 * time.Millisecond

func TestControlReacts(t *testing.T) {
	b := newBench(t, 100e6)
	a, c := b.start("a", "weight=100"), b.start("c", "weight=300")
	l := newLink(b)
	expect := func(when string, wantA, wantC float64) {
		t.Helper()
		if !near(a.allocatedBPS, uint64(wantA)) || !near(c.allocatedBPS, uint64(wantC)) {
			t.Errorf("%s: allocated %s, want %.1f and %.1f Mbit/s", when, allocations(a, c), wantA/1e6, wantC/1e6)
		}
		last := l.scheduler.applied[len(l.scheduler.applied)-1].Classes
		if last[1].AllocatedBPS != a.allocatedBPS || last[2].AllocatedBPS != c.allocatedBPS {
			t.Errorf("%s: the scheduler was told %v", when, last)
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
	if got := l.control(l.now); got != idleInterval {
		t.Errorf("in silence it looks every %s", got)
	}
}

// The host class competes only while it wants more than its reserve.
func TestControlOfTheHost(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	l := newLink(b)
	l.greedy[a] = true
	l.paceBPS[l.host] = 0.5e6
	l.run(time.Second)
	if l.hostCompetes() || !near(a.allocatedBPS, 99.5e6) || a.entitledBPS != 100e6 {
		t.Errorf("idle host: a is entitled to %d, allocated %d", a.entitledBPS, a.allocatedBPS)
	}
	l.paceBPS[l.host], l.greedy[l.host] = 0, true
	l.run(reaction)
	if !l.hostCompetes() || !near(a.allocatedBPS, 50e6) || a.entitledBPS != 50e6 {
		t.Errorf("busy host: a is entitled to %d, allocated %d", a.entitledBPS, a.allocatedBPS)
	}
	if tree := l.scheduler.applied[len(l.scheduler.applied)-1]; tree.Classes[0].GuaranteedBPS < 49.25e6 || tree.Classes[0].GuaranteedBPS > 49.5e6 {
		t.Errorf("the scheduler guarantees the busy host %d", tree.Classes[0].GuaranteedBPS)
	}
	l.greedy[l.host] = false
	l.run(2 * reaction)
	if l.hostCompetes() || !near(a.allocatedBPS, 100e6) || a.entitledBPS != 100e6 {
		t.Errorf("idle host again: a is entitled to %d, allocated %d", a.entitledBPS, a.allocatedBPS)
	}
}

// While nothing changes, nothing is applied.
func TestControlKeepsStill(t *testing.T) {
	b := newBench(t, 100e6)
	a, c := b.start("a"), b.start("c", "weight=300")
	l := newLink(b)
	l.greedy[a], l.paceBPS[c] = true, 20e6
	l.run(time.Second)
	applied := len(l.scheduler.applied)
	l.run(3 * time.Second)
	if n := len(l.scheduler.applied) - applied; n > 0 {
		t.Errorf("%d changes in 3 seconds of the same traffic", n)
	}
	if rate := a.rate.BPS() + c.rate.BPS(); !near(rate, 100e6) {
		t.Errorf("measured %d", rate)
	}
}

// What the scheduler refused once is forgotten when it takes the next tree.
func TestApplyMends(t *testing.T) {
	b := newBench(t, 100e6)
	b.start("a")
	b.uplink.reason = unix.EPERM
	b.Agent.apply(b.uplink)
	if b.uplink.reason != nil {
		t.Errorf("still %v", b.uplink.reason)
	}
}

// Classes that somebody removed are noticed when they are asked for.
func TestMeasureMissesClasses(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	b.reconcile()
	if _, _, err := b.measure(epoch); err != nil {
		t.Errorf("error %v", err)
	}
	b.classifier.offered[a.number] = 1
	if _, _, err := b.measure(epoch.Add(changingInterval)); !errors.Is(err, errClassesGone) {
		t.Errorf("error %v", err)
	}
	b.classifier.offered[a.number] = 1 << 20 // more than the uplink takes
	b.scheduler.stats = []sched.Stats{{Number: a.number, BacklogBytes: 5}, {Number: 99}}
	if _, _, err := b.measure(epoch.Add(2 * changingInterval)); err != nil || a.backlogBytes != 5 {
		t.Errorf("error %v, backlog %d", err, a.backlogBytes)
	}
}

// What was counted for the last holder of a number is not its next holder's.
func TestMeasureOfAReusedNumber(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	b.classifier.offered[a.number] = 1 << 40
	b.scheduler.stats = []sched.Stats{{Number: a.number}}
	b.reconcile()
	for i := range time.Duration(10) {
		if _, _, err := b.measure(epoch.Add(i * changingInterval)); err != nil || a.active || a.demand.DemandBPS > 0 {
			t.Fatalf("error %v, active %t, demand %d", err, a.active, a.demand.DemandBPS)
		}
	}
}

// Nothing is asked of the scheduler for those that do not send, and little for
// those whose offer leaves no doubt.
func TestMeasureAsksLittle(t *testing.T) {
	b := newBench(t, 100e6)
	for range 50 {
		b.start("c")
	}
	l := newLink(b)
	l.greedy[b.controlled[0]], l.greedy[b.controlled[1]] = true, true
	l.paceBPS[b.controlled[2]] = 1e6
	l.run(2 * time.Second)
	b.scheduler.asked = 0
	l.run(time.Second)
	// Three of them for people to look at, every 250 ms.
	if most := 3 * int(time.Second/statsInterval+1) * 2; b.scheduler.asked > most {
		t.Errorf("asked for %d classes in a second, want at most %d", b.scheduler.asked, most)
	}
}

// The scheduler is asked for more only where the answer can change what somebody
// may send.
func TestMeasureAsksWhereItMatters(t *testing.T) {
	pace := func(i int, bps float64) func(*link) {
		return func(l *link) { l.paceBPS[l.controlled[i]] = bps }
	}
	greedy := func(count int, want bool) func(*link) {
		return func(l *link) {
			for _, s := range l.controlled[:count] {
				l.greedy[s] = want
			}
		}
	}
	for _, tc := range []struct {
		name        string
		first, then func(*link)
		asks        bool
	}{
		{"a rate changes on an uplink that is not full", pace(0, 40e6), pace(0, 60e6), false},
		{"a rate rises until the uplink is full", pace(0, 40e6), pace(0, 110e6), true},
		{"a rate rises to the maximum", pace(49, 10e6), pace(49, 20e6), true},
		{"one wakes up", pace(0, 40e6), pace(1, 1e6), true},
		{"one of fifty that want more stops", greedy(50, true), greedy(1, false), false},
		{"ten of fifty that want more stop", greedy(50, true), greedy(10, false), true},
	} {
		b := newBench(t, 100e6)
		for range 49 {
			b.start("c")
		}
		b.start("limited", "max=20mbit")
		l := newLink(b)
		tc.first(l)
		l.run(2 * time.Second)
		b.scheduler.looks = 0
		tc.then(l)
		l.run(statsInterval - changingInterval)
		// One look may be for people.
		if asks := b.scheduler.looks > 1; asks != tc.asks {
			t.Errorf("%s: %d looks at the counters", tc.name, b.scheduler.looks)
		}
	}
}

func TestLearn(t *testing.T) {
	b := newBench(t, 100e6)
	seen := func(id, name string, labels map[string]string) discovery.Container {
		return discovery.Container{ID: id, Name: name, Runtime: "docker", Labels: labels, NoNetwork: true, StartedAt: epoch}
	}
	names := func() string {
		var list []string
		for _, c := range b.registry.all() {
			list = append(list, c.Name)
		}
		return strings.Join(list, " ")
	}
	b.learn(discovery.Event{Source: "docker", Snapshot: &discovery.Snapshot{Containers: []discovery.Container{seen("1", "a", nil), seen("2", "c", nil)}}})
	if names() != "a c" || !b.sources["docker"].Connected {
		t.Errorf("after the snapshot: %s, %+v", names(), b.sources["docker"])
	}
	started := seen("3", "d", map[string]string{"weir.weight": "200", "weir.max": "fast", "com.example": "x"})
	b.learn(discovery.Event{Source: "docker", Updated: &started})
	d := b.registry.byKey[key{"docker", "3"}]
	if names() != "a c d" || d.policy().Weight != 200 || len(d.resolved.Problems) != 1 || len(d.Labels) != 2 || len(started.Labels) != 3 {
		t.Errorf("after a start: %s, %+v", names(), d)
	}
	// The same again is the same container, with what was set.
	d.set.Weight = new(uint32(7))
	b.learn(discovery.Event{Source: "docker", Updated: &started})
	if b.registry.byKey[key{"docker", "3"}] != d || d.policy().Weight != 7 {
		t.Error("an update lost what was set")
	}
	// Another run is not.
	again := started
	again.StartedAt = epoch.Add(time.Hour)
	b.learn(discovery.Event{Source: "docker", Updated: &again})
	if d = b.registry.byKey[key{"docker", "3"}]; d.policy().Weight != 200 {
		t.Error("what was set outlived the container")
	}
	b.learn(discovery.Event{Source: "docker", Disconnected: errors.New("no answer")})
	if s := b.sources["docker"]; names() != "a c d" || s.Connected || s.Reason != "no answer" {
		t.Errorf("after losing the source: %s, %+v", names(), s)
	}
	b.learn(discovery.Event{Source: "docker", RemovedID: "1"})
	b.learn(discovery.Event{Source: "docker", RemovedID: "nobody"})
	if names() != "c d" {
		t.Errorf("after a stop: %s", names())
	}
	// Of another source, the same ID is another container, and a snapshot
	// speaks for its own source only.
	other := discovery.Container{ID: "2", Name: "p", Runtime: "podman", NoNetwork: true}
	b.learn(discovery.Event{Source: "podman", Snapshot: &discovery.Snapshot{Containers: []discovery.Container{other}}})
	if names() != "p c d" {
		t.Errorf("after another source's snapshot: %s", names())
	}
	b.learn(discovery.Event{Source: "docker", Snapshot: &discovery.Snapshot{}})
	if names() != "p" {
		t.Errorf("after an empty snapshot: %s", names())
	}
}

// Containers that cannot be told apart run without a class, and say why.
func TestInspectWithoutDevices(t *testing.T) {
	b := newBench(t, 100e6)
	for _, tc := range []struct {
		container discovery.Container
		mode      v1.Mode
		state     v1.State
		reason    string
	}{
		{discovery.Container{HostNetwork: true}, v1.ModeHost, v1.StateDegraded, "host class"},
		{discovery.Container{NoNetwork: true}, v1.ModeNone, v1.StateOK, ""},
		{discovery.Container{NetNSPath: "/proc/self/ns/net"}, v1.ModeHost, v1.StateDegraded, "host class"},
		{discovery.Container{NetNSPath: "/nowhere/ns/net"}, v1.ModeNone, v1.StateDegraded, "cannot be looked at"},
	} {
		tc.container.ID, tc.container.Runtime = "1", "docker"
		c := &container{Container: tc.container, resolved: policy.Resolution{Policy: policy.Default()}}
		if !b.registry.assign(c, 0) {
			t.Fatal("no number")
		}
		b.inspect(c)
		state, reason := c.state()
		if c.mode != tc.mode || state != tc.state || !strings.Contains(reason, tc.reason) || (reason == "") != (tc.reason == "") {
			t.Errorf("%+v: %s, %s, %q", tc.container, c.mode, state, reason)
		}
		if c.number != 0 || len(b.registry.byNumber) > 0 {
			t.Errorf("%+v keeps number %d", tc.container, c.number)
		}
	}
}

// Only who has no maximum may go past the classes, and that is known to the
// classifier when the scheduler is told of a maximum.
func TestWhoMayGoDirect(t *testing.T) {
	b := newBench(t, 100e6)
	a, c, d := b.start("a"), b.start("c", "max=50mbit"), b.start("d", "max=1gbit")
	mayNot := func(when string, want ...uint16) {
		t.Helper()
		var got []uint16
		for _, d := range b.classifier.direct {
			if !d.May {
				got = append(got, d.Number)
			}
		}
		if len(b.classifier.direct) != len(b.participants) || !slices.Equal(got, want) {
			t.Errorf("%s: of %v these may not go direct: %v, want %v", when, b.classifier.direct, got, want)
		}
	}
	b.reconcile()
	mayNot("at first", c.number)
	if want := (identity.Link{RateBPS: 100e6, DirectBytes: 4166, ControlBPS: 1e6}); b.classifier.link != want {
		t.Errorf("the classifier knows a link %+v, want %+v", b.classifier.link, want)
	}
	told := 0
	b.scheduler.onApply = func() {
		told++
		mayNot("when the scheduler is told", a.number, d.number)
	}
	b.label(a, "max=20mbit")
	b.label(c, "max=100mbit")
	b.label(d, "max=99mbit")
	b.reconcile()
	if told != 1 {
		t.Errorf("the scheduler was told %d times", told)
	}
	b.scheduler.onApply = nil
	b.stop(a)
	b.reconcile()
	mayNot("with one gone", d.number)
	b.classifier.err = errors.New("no such map")
	applied := len(b.scheduler.applied)
	b.reconcile()
	if b.uplink.reason == nil || len(b.scheduler.applied) > applied {
		t.Errorf("a maximum is applied that may be passed by; reason %v", b.uplink.reason)
	}
}

// What went direct was sent as well.
func TestSentBytes(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	b.reconcile()
	for i := range uint64(3) {
		b.classifier.offered[a.number] = 1000 + 3000*i
		b.classifier.directBytes[a.number] = 1000 * i
		b.scheduler.stats = []sched.Stats{{Number: a.number, SentBytes: 1000 + 2000*i}}
		if _, _, err := b.measure(epoch.Add(time.Duration(i) * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.view(); got.SentBytes != 7000 || got.RateBPS != 8*3000 {
		t.Errorf("%d bytes sent at %d bit/s, want 7000 at 24000", got.SentBytes, got.RateBPS)
	}
}
