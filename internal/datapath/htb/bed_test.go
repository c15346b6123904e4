package htb

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// countInterval is how often the bed's agent counts, for people to look at.
const countInterval = 250 * time.Millisecond

// counters are a kernel that takes whatever it is told and has the counters that it
// is given.
type counters struct {
	ops     []kernel.Op
	applies int
	stats   map[uint16]stats
	queues  map[kernel.Handle]kernel.QueueStats
	err     error
	looks   int // how often counters were asked for
	asked   int // of how many classes, all together
	onApply func()
}

func (*counters) Qdiscs(int) ([]kernel.Qdisc, error)  { return nil, nil }
func (*counters) Classes(int) ([]kernel.Class, error) { return nil, nil }

func (k *counters) QueueStats(int) (map[kernel.Handle]kernel.QueueStats, error) {
	return k.queues, nil
}

func (k *counters) ClassStats(_ int, handles []kernel.Handle, dst []kernel.ClassStats) ([]kernel.ClassStats, error) {
	k.looks++
	k.asked += len(handles)
	for _, h := range handles {
		s, there := k.stats[h.Minor()]
		if innerBits(h) != 0 { // a share has sent what its leaf has, and queues nothing
			s, there = k.stats[numberOf(h.Minor())]
			s.backlogBytes = 0
		}
		if there {
			dst = append(dst, kernel.ClassStats{Handle: h,
				SentBytes: s.sentBytes, SentPackets: s.sentPackets, BacklogBytes: uint32(s.backlogBytes)})
		}
	}
	return dst, k.err
}

func (k *counters) Apply(_ int, ops []kernel.Op) error {
	k.applies++
	k.ops = append(k.ops, ops...)
	if k.onApply != nil {
		k.onApply()
	}
	return nil
}

// fakeTraffic has counted what it was given.
type fakeTraffic struct {
	offered     []uint64
	directBytes []uint64
	bounds      sched.Bounds
	direct      []sched.Direct
	minors      map[uint16]sched.Minors
	efBPS       map[uint16]uint64
	told        int // how often minors were set
	// armed: the next packet wakes the loop; wokenAt is when it came.
	armed   bool
	wokenAt time.Time
	err     error
	efErr   error
}

func (f *fakeTraffic) SetMinors(number uint16, minors sched.Minors) error {
	f.told++
	f.minors[number] = minors
	return nil
}

func (f *fakeTraffic) OfferedBytes(dst []uint64) error {
	copy(dst, f.offered)
	return nil
}

func (f *fakeTraffic) ArmWakeup() error {
	f.armed, f.wokenAt = f.err == nil, time.Time{}
	return f.err
}

func (f *fakeTraffic) WokenAt() (time.Time, error) { return f.wokenAt, f.err }

func (f *fakeTraffic) SetDirect(bounds sched.Bounds, direct []sched.Direct) error {
	f.bounds, f.direct = bounds, slices.Clone(direct)
	return f.err
}

func (f *fakeTraffic) DirectSent(number uint16) (uint64, uint32, error) {
	return f.directBytes[number], uint32(f.directBytes[number] / 50), f.err
}

// bed is a scheduler on a link that is not there.
type bed struct {
	*Backend
	t       testing.TB
	kernel  *counters
	traffic *fakeTraffic
	tree    sched.Tree
	counted time.Time
	// changed is how often the loop changed rates.
	changed int
}

func newBed(t testing.TB, rateBPS uint64) *bed {
	t.Helper()
	b := &bed{t: t, kernel: &counters{stats: map[uint16]stats{}}, traffic: &fakeTraffic{offered: make([]uint64, 100), directBytes: make([]uint64, 100), minors: map[uint16]sched.Minors{}, efBPS: map[uint16]uint64{}}}
	b.Backend = New(b.kernel, testIfindex)
	b.tree = sched.Tree{RateBPS: rateBPS, ControlNumber: controlNumber, HostNumber: hostNumber,
		Competitors: []sched.Competitor{{Number: hostNumber, Weight: 100, CeilingBPS: alloc.Unlimited}}}
	b.reconcile()
	must.Succeed(t, b.Connect(b.tree, b.traffic))
	b.reconcile()
	return b
}

// reconcile puts the tree into force.
func (b *bed) reconcile() {
	b.t.Helper()
	must.Succeed(b.t, b.Apply(b.tree))
}

// start adds a class, of weight 100 if nothing else is said.
func (b *bed) start(options ...func(*sched.Competitor)) *member {
	b.t.Helper()
	c := sched.Competitor{Number: 16, Weight: 100, CeilingBPS: alloc.Unlimited, OwnDevices: true}
	if n := len(b.tree.Competitors); n > 1 {
		c.Number = b.tree.Competitors[n-1].Number + 1
	}
	for _, option := range options {
		option(&c)
	}
	b.tree.Competitors = append(b.tree.Competitors, c)
	b.reconcile()
	return b.member(c.Number)
}

// change changes what is wanted of a class, which does not come into force yet.
func (b *bed) change(m *member, option func(*sched.Competitor)) {
	for i := range b.tree.Competitors {
		if b.tree.Competitors[i].Number == m.want.Number {
			option(&b.tree.Competitors[i])
		}
	}
}

func (b *bed) stop(m *member) {
	b.tree.Competitors = slices.DeleteFunc(b.tree.Competitors, func(c sched.Competitor) bool { return c.Number == m.want.Number })
}

func weight(w uint32) func(*sched.Competitor)  { return func(c *sched.Competitor) { c.Weight = w } }
func floor(bps uint64) func(*sched.Competitor) { return func(c *sched.Competitor) { c.FloorBPS = bps } }
func maximum(bps uint64) func(*sched.Competitor) {
	return func(c *sched.Competitor) { c.CeilingBPS = bps }
}
func preferred(p uint32) func(*sched.Competitor) { return func(c *sched.Competitor) { c.Priority = p } }
func (b *bed) containers() []*member             { return b.members[1:] }
func entitled(members ...*member) string {
	return rates(members, func(m *member) uint64 { return m.entitledBPS })
}
func allocations(members ...*member) string {
	return rates(members, func(m *member) uint64 { return m.allocatedBPS })
}
func near(got, want uint64) bool { return math.Abs(float64(got)-float64(want)) <= 0.01*float64(want)+1 }

func rates(members []*member, of func(*member) uint64) string {
	text := ""
	for _, m := range members {
		text += " " + policy.FormatRateShort(of(m))
	}
	return text[1:]
}

// wire plays the link: what containers offer, HTB lets through by the tree that was
// put last, and the rest is queued.
type wire struct {
	*bed
	now     time.Time
	greedy  map[*member]bool
	paceBPS map[*member]float64
	queue   map[*member]float64
	sent    map[*member]float64
	next    time.Time // of the loop's turns
}

func newWire(b *bed) *wire {
	return &wire{bed: b, now: epoch, greedy: map[*member]bool{}, paceBPS: map[*member]float64{},
		queue: map[*member]float64{}, sent: map[*member]float64{}}
}

// run lets time pass in steps of a millisecond, and the loop look when it wants to.
func (w *wire) run(d time.Duration) {
	const step = time.Millisecond
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(step) {
		armed := w.traffic.armed
		w.transmit(step.Seconds())
		if armed && !w.traffic.armed && w.now.Add(wakeInterval).Before(w.next) {
			w.next = w.now.Add(wakeInterval)
		}
		if !w.now.Before(w.next) {
			w.next = w.now.Add(w.control(w.now))
		}
	}
}

// control is one turn of the loop, as the agent has it made.
func (b *bed) control(now time.Time) time.Duration {
	b.t.Helper()
	count := now.Sub(b.counted) >= countInterval
	if count {
		b.counted = now
	}
	turn, err := b.Turn(now, count)
	must.Succeed(b.t, err)
	if turn.Applied {
		b.changed++
	}
	return turn.Next
}

func (w *wire) transmit(seconds float64) {
	all := w.competitors
	for _, m := range all {
		offer := w.paceBPS[m] / 8 * seconds
		if w.greedy[m] {
			offer = max(0, 100_000-w.queue[m]) // TCP fills the queue
		}
		if offer > 0 && w.traffic.armed {
			w.traffic.armed, w.traffic.wokenAt = false, w.now
		}
		w.queue[m] += offer
		w.traffic.offered[m.want.Number] += uint64(offer)
	}
	left := float64(w.device.applied.rateBPS) / 8 * seconds
	serve := func(m *member, most float64) {
		bytes := max(0, min(w.queue[m], most, left))
		w.queue[m] -= bytes
		w.sent[m] += bytes
		left -= bytes
	}
	classes := map[uint16]class{}
	for _, c := range w.device.applied.classes {
		classes[c.Number] = c
	}
	served := maps.Clone(w.sent)
	for _, m := range all {
		serve(m, float64(classes[m.want.Number].GuaranteedBPS)/8*seconds)
	}
	for _, m := range all {
		already := w.sent[m] - served[m]
		serve(m, float64(classes[m.want.Number].AllocatedBPS)/8*seconds-already)
	}
	for range 3 { // what is idle, in equal parts
		part := left / float64(len(all))
		for _, m := range all {
			serve(m, part)
		}
	}
	for _, m := range all {
		w.kernel.stats[m.want.Number] = stats{sentBytes: uint64(w.sent[m]), backlogBytes: uint64(w.queue[m])}
	}
}

func (f *fakeTraffic) SetEFRate(number uint16, bps uint64) error {
	if f.efErr != nil {
		return f.efErr
	}
	f.efBPS[number] = bps
	return nil
}
