package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/config"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/discovery/docker"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
	"github.com/weir-project/weir/internal/sched/htb"
	"github.com/weir-project/weir/internal/state"
	"github.com/weir-project/weir/internal/stats"
	"github.com/weir-project/weir/internal/uplink"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeScheduler is the real one on a kernel that takes everything. It remembers what
// it was told.
type fakeScheduler struct {
	*htb.Backend
	kernel   *fakeKernel
	applied  []sched.Tree
	err      error
	forgot   int
	inKernel bool
}

func newScheduler() *fakeScheduler {
	k := &fakeKernel{}
	return &fakeScheduler{Backend: htb.New(k, 3), kernel: k}
}

// ourRoot is the handle by which it knows its own.
const ourRoot = kernel.Handle(0x7e0f << 16)

func (*fakeScheduler) Name() string { return "fake" }

func (*fakeScheduler) Owns(qdiscs []kernel.Qdisc) bool {
	return len(qdiscs) > 0 && qdiscs[0].Handle == ourRoot
}

func (s *fakeScheduler) Forget() {
	s.forgot++
	s.Backend.Forget()
}

func (s *fakeScheduler) Remove() error {
	s.inKernel = false
	return nil
}

func (s *fakeScheduler) Apply(want sched.Tree) error {
	s.inKernel = true
	kept := want
	kept.Competitors = slices.Clone(want.Competitors)
	s.applied = append(s.applied, kept)
	return errors.Join(s.Backend.Apply(want), s.err)
}

// fakeKernel takes whatever HTB wants and remembers it.
type fakeKernel struct {
	ops []kernel.Op
	// stats are the counters of classes, by number; those of others are 0.
	stats  map[uint16]kernel.ClassStats
	queues map[kernel.Handle]kernel.QueueStats
	err    error // what changes end with
}

func (*fakeKernel) Qdiscs(int) ([]kernel.Qdisc, error)  { return nil, nil }
func (*fakeKernel) Classes(int) ([]kernel.Class, error) { return nil, nil }
func (k *fakeKernel) QueueStats(int) (map[kernel.Handle]kernel.QueueStats, error) {
	return k.queues, nil
}

func (k *fakeKernel) ClassStats(_ int, handles []kernel.Handle, dst []kernel.ClassStats) ([]kernel.ClassStats, error) {
	for _, h := range handles {
		stats := k.stats[h.Minor()]
		stats.Handle = h
		dst = append(dst, stats)
	}
	return dst, nil
}

func (k *fakeKernel) Apply(_ int, ops []kernel.Op) error {
	k.ops = append(k.ops, ops...)
	return k.err
}

// count sets the counters of a number's class.
func (k *fakeKernel) count(number uint16, stats kernel.ClassStats) {
	if k.stats == nil {
		k.stats = map[uint16]kernel.ClassStats{}
	}
	k.stats[number] = stats
}

// wire plays an uplink that everybody can send over as they want.
type wire struct {
	*bench
	now     time.Time
	greedy  map[*share]bool
	paceBPS map[*share]float64
	sent    map[*share]float64
}

func newWire(b *bench) *wire {
	b.reconcile()
	return &wire{bench: b, now: epoch, greedy: map[*share]bool{}, paceBPS: map[*share]float64{}, sent: map[*share]float64{}}
}

// run lets time pass, and the control loop look when it wants to.
func (l *wire) run(d time.Duration) {
	const step = time.Millisecond
	next := l.now
	for end := l.now.Add(d); l.now.Before(end); l.now = l.now.Add(step) {
		for _, s := range l.participants {
			bps, backlog := l.paceBPS[s], uint32(0)
			if l.greedy[s] {
				bps, backlog = float64(s.class.AllocatedBPS)+1e6, 100_000
			}
			l.sent[s] += bps / 8 * step.Seconds()
			l.classifier.offered[s.number] = uint64(l.sent[s])
			l.scheduler.kernel.count(s.number, kernel.ClassStats{SentBytes: uint64(l.sent[s]), BacklogBytes: backlog})
		}
		if !l.now.Before(next) {
			next = l.now.Add(l.control(l.now))
		}
	}
}

// fakeClassifier has counted what it was given.
type fakeClassifier struct {
	offered   [identity.NumberLast + 1]uint64
	cgroups   map[uint16]string
	classes   map[uint16]sched.TrafficClass
	forgotten []uint16
	excess    map[uint16]uint64 // bytes of EF above its maximum
	marked    map[uint16]bool   // whose class is written into the DSCP field
	published map[identity.Published]uint16
	// fragmentDevices are those from which fragments are believed.
	fragmentDevices map[int]bool
	err             error
	// publishedRefused are those whose ports it has no room for.
	publishedRefused map[uint16]error
	// attached: it is on the device.
	attached bool

	unknownBPS uint64

	directBytes [identity.NumberLast + 1]uint64
}

func (c *fakeClassifier) SetDirect(sched.Bounds, []sched.Direct) error { return nil }
func (c *fakeClassifier) SetMinors(uint16, sched.Minors) error         { return nil }
func (c *fakeClassifier) SetEFRate(uint16, uint64) error               { return nil }

func (c *fakeClassifier) DirectSent(number uint16) (uint64, uint32, error) {
	return c.directBytes[number], uint32(c.directBytes[number] / 50), c.err
}

func (c *fakeClassifier) SetTrafficClass(number uint16, class sched.TrafficClass) error {
	c.classes[number] = class
	return c.err
}

func (c *fakeClassifier) SetMarkDSCP(number uint16, mark bool) error {
	if c.marked == nil {
		c.marked = map[uint16]bool{}
	}
	c.marked[number] = mark
	return c.err
}

func (c *fakeClassifier) ClassOffered(number uint16) (identity.ClassOffered, error) {
	return identity.ClassOffered{EFExcessBytes: c.excess[number]}, nil
}

func (c *fakeClassifier) ForgetClasses(number uint16) error {
	delete(c.classes, number)
	c.forgotten = append(c.forgotten, number)
	return c.err
}

func (c *fakeClassifier) AssignCgroup(path string, number uint16) error {
	c.cgroups[number] = path
	return c.err
}

func (c *fakeClassifier) UnassignCgroup(number uint16) error {
	delete(c.cgroups, number)
	return c.err
}

func (c *fakeClassifier) SetPublished(numbers map[identity.Published]uint16) (map[uint16]error, error) {
	c.published = numbers
	return c.publishedRefused, c.err
}

func (c *fakeClassifier) SetFragmentDevices(devices map[int]bool) error {
	c.fragmentDevices = devices
	return c.err
}

func (c *fakeClassifier) LimitUnknownOrigins(bps uint64) error {
	c.unknownBPS = bps
	return c.err
}

func (c *fakeClassifier) Close() error { return nil }

func (c *fakeClassifier) OfferedBytes(dst []uint64) error {
	copy(dst, c.offered[:])
	return nil
}

// fakeMachine has one device, up0 with index 3 unless it says something else, and
// does whatever it is asked to.
type fakeMachine struct {
	index      int
	name       string
	scheduler  *fakeScheduler
	classifier *fakeClassifier
	delays     uplink.Delays
	foreign    *kernel.Qdisc // instead of ours
	gsoErr     error
	gone       bool
	speedBPS   uint64
	speedErr   error
}

func (m *fakeMachine) LinkByName(name string) (kernel.Link, error) {
	if m.gone {
		return kernel.Link{}, kernel.ErrNoLink
	}
	return kernel.Link{Index: cmp.Or(m.index, 3), Name: name, GSOMaxBytes: 65536}, nil
}

func (m *fakeMachine) LinkByIndex(int) (kernel.Link, error) { return m.LinkByName("up0") }

func (m *fakeMachine) Links() ([]kernel.Link, error) { return nil, nil }

func (m *fakeMachine) SpeedBPS(string) (uint64, error) { return m.speedBPS, m.speedErr }

func (m *fakeMachine) SetGSOMaxBytes(_ int, bytes uint32) error {
	if bytes == 65536 { // put back
		return m.gsoErr
	}
	return nil
}

func (m *fakeMachine) Qdiscs(int) ([]kernel.Qdisc, error) {
	switch {
	case m.foreign != nil:
		return []kernel.Qdisc{*m.foreign}, nil
	case m.scheduler.inKernel:
		return []kernel.Qdisc{{Handle: ourRoot, Parent: kernel.HandleRoot}}, nil
	}
	return nil, nil
}

func (*fakeMachine) Save(int) ([]kernel.SavedObject, error)  { return nil, nil }
func (*fakeMachine) Restore(int, []kernel.SavedObject) error { return nil }
func (m *fakeMachine) DeleteRoot(int) error                  { m.foreign = nil; return nil }
func (m *fakeMachine) Scheduler(int) uplink.Scheduler        { return m.scheduler }
func (m *fakeMachine) Classified(int) (bool, error)          { return m.classifier.attached, nil }
func (m *fakeMachine) Declassify(int) error                  { m.classifier.attached = false; return nil }

func (m *fakeMachine) OpenClassifier(int, sched.Majors) (uplink.Classifier, uplink.Delays, error) {
	m.classifier.attached = true
	return m.classifier, m.delays, nil
}

// fakeTaps counts how often each number was verified.
type fakeTaps struct {
	verified map[uint16]int
	err      error
}

func (f *fakeTaps) Attach(_ identity.Tap, number uint16) error {
	if f.verified != nil {
		f.verified[number]++
	}
	return f.err
}

// bench is an agent on an uplink that is not there.
type bench struct {
	*Agent
	*link
	machine    *fakeMachine
	host       *share
	t          testing.TB
	dir        string // of the state file
	scheduler  *fakeScheduler
	classifier *fakeClassifier
	bridges    *fakeBridges
	started    int
}

func newBench(t testing.TB, rateBPS uint64) *bench {
	t.Helper()
	dir := t.TempDir()
	store, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: dir, scheduler: newScheduler(), bridges: &fakeBridges{attached: map[int]bool{}}, classifier: &fakeClassifier{cgroups: map[uint16]string{}, classes: map[uint16]sched.TrafficClass{}}}
	b.machine = &fakeMachine{scheduler: b.scheduler, classifier: b.classifier}
	device := uplink.New(uplink.Config{Name: "up0", RateBPS: rateBPS}, b.machine, store)
	device.Advance(func() sched.Tree {
		return sched.Tree{RateBPS: rateBPS, HostNumber: identity.NumberHost,
			Competitors: []sched.Competitor{{Number: identity.NumberHost, Weight: 100, CeilingBPS: alloc.Unlimited}}}
	})
	b.link = newLink(0, device, config.DefaultReserveBasisPoints)
	b.Agent = &Agent{
		config:    Config{Version: "test", Sources: []discovery.Source{docker.New(docker.Options{})}},
		log:       slog.New(slog.DiscardHandler),
		store:     store,
		uplinks:   []*link{b.link},
		inspector: identity.NewInspector(),
		taps:      &fakeTaps{},
		bridges:   newBridges(b.bridges),
		origins:   newOrigins(&fakeOrigins{numbers: map[uint32]uint16{}}),
		registry:  newRegistry(),
		host:      newHost(policy.Default()),
		sources:   map[string]v1.Source{"docker": {Name: "docker"}},
		requests:  make(chan func()),
		board:     stats.NewBoard(),
		events:    stats.NewEvents(epoch),
		rescan:    make(chan struct{}, 1),
	}
	b.addShares(b.Agent.host)
	b.host = b.link.host
	b.scheduler.applied, b.scheduler.forgot = nil, 0
	return b
}

// plan is the part of reconcile that the scheduler sees.
func (b *bench) plan() {
	if err := b.link.device.Apply(b.link.plan(b.registry.byKey, b.registry.controlled())); err != nil {
		b.link.suspect = true
	}
	b.link.take()
	b.link.ask()
}

func (b *bench) control(now time.Time) time.Duration { return b.Agent.control(now) }

// start adds a container that is attached, with labels as "weight=200".
func (b *bench) start(name string, labels ...string) *share {
	b.t.Helper()
	b.started++
	c := &container{Container: discovery.Container{
		ID: fmt.Sprintf("%012d", b.started), Name: name, Runtime: "docker",
		Labels: map[string]string{}, StartedAt: epoch.AddDate(0, 0, b.started),
	}, mode: v1.ModeBridge}
	b.addShares(c)
	b.resolve(c)
	for _, label := range labels {
		b.label(c.shares[0], label)
	}
	b.registry.byKey[c.key()] = c
	if !b.registry.assign(c, 0) {
		b.t.Fatal("no number left")
	}
	b.plan()
	return c.shares[0]
}

// label changes a label, as "min=10mbit".
func (b *bench) label(c *share, label string) {
	b.t.Helper()
	for i := range label {
		if label[i] == '=' {
			c.Labels[policy.Prefix+label[:i]] = label[i+1:]
		}
	}
	if b.resolve(c.container); len(c.resolved.Problems) > 0 {
		b.t.Fatalf("label %s: %v", label, c.resolved.Problems)
	}
}

func (b *bench) stop(c *share) {
	b.forget(c.container)
	b.plan()
}

// useDelays makes the kernel one that can measure delays.
func (b *bench) useDelays(measured uplink.Delays) {
	b.machine.delays = measured
	b.classifier.attached = false
	b.advance(b.link)
}
