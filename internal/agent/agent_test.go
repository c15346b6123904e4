package agent

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
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
	lifecycle "github.com/weir-project/weir/internal/uplink"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeScheduler remembers what it was told, and has the counters it was given.
type fakeScheduler struct {
	applied  []sched.Tree
	stats    []sched.Stats
	drops    map[uint16]uint32
	err      error
	forgot   int
	looks    int // how often counters were asked for
	asked    int // of how many classes, all together
	inKernel bool
	onApply  func()
}

func (s *fakeScheduler) Drops() (map[uint16]uint32, error) { return s.drops, s.err }

func (*fakeScheduler) Name() string    { return "fake" }
func (s *fakeScheduler) Forget()       { s.forgot++ }
func (s *fakeScheduler) Remove() error { s.inKernel = false; return nil }

func (s *fakeScheduler) Apply(want sched.Tree) error {
	s.inKernel = true
	if s.onApply != nil {
		s.onApply()
	}
	want.Classes = slices.Clone(want.Classes)
	s.applied = append(s.applied, want)
	return s.err
}

func (s *fakeScheduler) Stats(numbers []uint16, dst []sched.Stats) ([]sched.Stats, error) {
	s.looks++
	s.asked += len(numbers)
	for _, stats := range s.stats {
		if slices.Contains(numbers, stats.Number) {
			dst = append(dst, stats)
		}
	}
	return dst, s.err
}

// fakeClassifier has counted what it was given.
type fakeClassifier struct {
	offered   [identity.NumberLast + 1]uint64
	cgroups   map[uint16]string
	published map[identity.Published]uint16
	err       error
	// attached: it is on the device.
	attached bool

	unknownBPS uint64

	link        identity.Link
	direct      []identity.Direct
	directBytes [identity.NumberLast + 1]uint64
}

func (c *fakeClassifier) SetDirect(link identity.Link, direct []identity.Direct) error {
	c.link = link
	c.direct = append(c.direct[:0], direct...)
	return c.err
}

func (c *fakeClassifier) DirectSent(number uint16) (uint64, uint32, error) {
	return c.directBytes[number], uint32(c.directBytes[number] / 50), c.err
}

func (c *fakeClassifier) AssignCgroup(path string, number uint16) error {
	c.cgroups[number] = path
	return c.err
}

func (c *fakeClassifier) UnassignCgroup(number uint16) error {
	delete(c.cgroups, number)
	return c.err
}

func (c *fakeClassifier) SetPublished(numbers map[identity.Published]uint16) error {
	c.published = numbers
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

// fakeMachine has one device, and does whatever it is asked to.
type fakeMachine struct {
	scheduler  sched.Backend
	classifier *fakeClassifier
	delays     lifecycle.Delays
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
	return kernel.Link{Index: 3, Name: name, GSOMaxBytes: 65536}, nil
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
	fake, isFake := m.scheduler.(*fakeScheduler)
	switch {
	case m.foreign != nil:
		return []kernel.Qdisc{*m.foreign}, nil
	case isFake && fake.inKernel:
		return []kernel.Qdisc{{Handle: htb.DirectMajor << 16, Parent: kernel.HandleRoot}}, nil
	}
	return nil, nil
}

func (*fakeMachine) Save(int) ([]kernel.SavedObject, error)  { return nil, nil }
func (*fakeMachine) Restore(int, []kernel.SavedObject) error { return nil }
func (m *fakeMachine) DeleteRoot(int) error                  { m.foreign = nil; return nil }
func (m *fakeMachine) Scheduler(int) sched.Backend           { return m.scheduler }
func (m *fakeMachine) Classified(int) (bool, error)          { return m.classifier.attached, nil }
func (m *fakeMachine) Declassify(int) error                  { m.classifier.attached = false; return nil }

func (m *fakeMachine) OpenClassifier(int) (lifecycle.Classifier, lifecycle.Delays, error) {
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
	*uplink
	machine    *fakeMachine
	host       *share
	t          testing.TB
	dir        string // of the state file
	scheduler  *fakeScheduler
	classifier *fakeClassifier
	started    int
}

func newBench(t testing.TB, rateBPS uint64) *bench {
	t.Helper()
	scheduler := &fakeScheduler{}
	b := newBenchOf(t, rateBPS, scheduler)
	scheduler.applied, scheduler.forgot = nil, 0
	b.scheduler = scheduler
	return b
}

// newBenchOf is newBench with a scheduler of one's own.
func newBenchOf(t testing.TB, rateBPS uint64, scheduler sched.Backend) *bench {
	t.Helper()
	dir := t.TempDir()
	store, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: dir, classifier: &fakeClassifier{cgroups: map[uint16]string{}}}
	b.machine = &fakeMachine{scheduler: scheduler, classifier: b.classifier}
	device := lifecycle.New(lifecycle.Config{Name: "up0", RateBPS: rateBPS}, b.machine, store)
	device.Advance(func() sched.Tree { return sched.Tree{RateBPS: rateBPS} })
	b.uplink = newUplink(0, device, config.DefaultReserveBasisPoints)
	b.Agent = &Agent{
		config:    Config{Version: "test", Sources: []discovery.Source{docker.New(docker.Options{})}},
		log:       slog.New(slog.DiscardHandler),
		store:     store,
		uplinks:   []*uplink{b.uplink},
		inspector: identity.NewInspector(),
		taps:      &fakeTaps{},
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
	b.host = b.uplink.host
	return b
}

func (b *bench) plan() { b.uplink.plan(b.registry.byKey, b.registry.controlled()) }

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
func (b *bench) useDelays(measured lifecycle.Delays) {
	b.machine.delays = measured
	b.classifier.attached = false
	b.advance(b.uplink)
}
