package loop

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/discovery/docker"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/htb"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
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
		if number, isShare := h.Minor()&0xfff, h.Minor()&0x4000 != 0; isShare { // it has sent what its leaf has
			stats = k.stats[number]
			stats.BacklogBytes = 0
		}
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
	next    time.Time // of the loop's turns
}

func newWire(b *bench) *wire {
	b.reconcile()
	return &wire{bench: b, now: epoch, greedy: map[*share]bool{}, paceBPS: map[*share]float64{}, sent: map[*share]float64{}}
}

// run lets time pass, and the control loop look when it wants to.
func (l *wire) run(d time.Duration) {
	const step = time.Millisecond
	for end := l.now.Add(d); l.now.Before(end); l.now = l.now.Add(step) {
		for _, s := range l.participants {
			bps, backlog := l.paceBPS[s], uint32(0)
			if l.greedy[s] {
				bps, backlog = float64(s.class.AllocatedBPS)+1e6, 100_000
			}
			l.sent[s] += bps / 8 * step.Seconds()
			l.classifier.offered[s.container.Number] = uint64(l.sent[s])
			l.scheduler.kernel.count(s.container.Number, kernel.ClassStats{SentBytes: uint64(l.sent[s]), BacklogBytes: backlog})
		}
		if c := l.classifier; c.armed && c.offered != c.offeredThen {
			c.armed, c.wokenAt = false, l.now
			if wake := l.now.Add(wakeInterval); wake.Before(l.next) {
				l.next = wake
			}
		}
		if !l.now.Before(l.next) {
			l.next = l.now.Add(l.control(l.now))
		}
	}
}

// fakeClassifier has counted what it was given.
type fakeClassifier struct {
	offered [identity.NumberLast + 1]uint64
	// armed: the next packet wakes the loop. offeredThen is offered when it was; wokenAt is when that packet came.
	armed       bool
	offeredThen [identity.NumberLast + 1]uint64
	wokenAt     time.Time
	cgroups     map[uint16]string
	classes     map[uint16]sched.TrafficClass
	told        map[uint16]toldNumber
	forgotten   []uint16
	excess      map[uint16]uint64 // bytes of EF above its maximum
	marked      map[uint16]bool   // whose class is written into the DSCP field
	published   map[identity.Published]uint16
	// indexDevices are those from which fragments are believed.
	indexDevices map[int]bool
	err          error
	// publishedRefused are those whose ports it has no room for.
	publishedRefused map[uint16]error
	// attached: it is on the device.
	attached bool

	unknownBPS uint64

	directBytes [identity.NumberLast + 1]uint64
}

// toldNumber is what a classifier was told of one number.
type toldNumber struct {
	cgroup identity.Applied[string]
	class  identity.Applied[sched.TrafficClass]
	mark   identity.Applied[bool]
}

func (c *fakeClassifier) SetDirect(sched.Bounds, []sched.Direct) error { return nil }
func (c *fakeClassifier) SetMinors(uint16, sched.Minors) error         { return nil }
func (c *fakeClassifier) SetEFRate(uint16, uint64) error               { return nil }

func (c *fakeClassifier) ArmWakeup() error {
	c.armed, c.offeredThen, c.wokenAt = true, c.offered, time.Time{}
	return nil
}

func (c *fakeClassifier) WokenAt() (time.Time, error) { return c.wokenAt, nil }

func (c *fakeClassifier) DirectSent(number uint16) (uint64, uint32, error) {
	return c.directBytes[number], uint32(c.directBytes[number] / 50), c.err
}

func (c *fakeClassifier) Apply(t identity.Table) identity.Refusals {
	c.marked = map[uint16]bool{}
	if c.told == nil {
		c.told = map[uint16]toldNumber{}
	}
	refusals := identity.Refusals{Numbers: map[uint16]identity.Refusal{}, Published: c.err, Index: c.err, Unknown: c.err}
	for _, n := range t.Numbers {
		had := c.told[n.Number]
		refusal := identity.Refusal{Published: c.publishedRefused[n.Number]}
		refusal.Class = had.class.Apply(n.Class, func() error { c.classes[n.Number] = n.Class; return c.err })
		refusal.Mark = had.mark.Apply(n.MarkDSCP, func() error { return c.err })
		c.marked[n.Number] = n.MarkDSCP
		if n.CgroupPath != "" {
			refusal.Cgroup = had.cgroup.Apply(n.CgroupPath, func() error { c.cgroups[n.Number] = n.CgroupPath; return c.err })
		}
		refusals.Numbers[n.Number], c.told[n.Number] = refusal, had
	}
	c.published, c.indexDevices, c.unknownBPS = t.Published, t.IndexDevices, t.UnknownBPS
	return refusals
}

func (*fakeClassifier) Carry([]kernel.Stacked) error { return nil }

func (c *fakeClassifier) Forget(number uint16) error {
	delete(c.classes, number)
	delete(c.cgroups, number)
	delete(c.told, number)
	c.forgotten = append(c.forgotten, number)
	return c.err
}

func (c *fakeClassifier) ClassOffered(number uint16) (identity.ClassOffered, error) {
	return identity.ClassOffered{EFExcessBytes: c.excess[number]}, nil
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
	kind       string
	scheduler  *fakeScheduler
	classifier *fakeClassifier
	delays     uplink.Delays
	foreign    *kernel.Qdisc // instead of ours
	gsoErr     error
	gone       bool
	isDefault  bool // the default route leads through it
	speedBPS   uint64
	speedErr   error
}

func (m *fakeMachine) LinkByName(name string) (kernel.Link, error) {
	if m.gone {
		return kernel.Link{}, kernel.ErrNoLink
	}
	return kernel.Link{Index: cmp.Or(m.index, 3), Name: name, Kind: m.kind, Up: true, GSOMaxBytes: 65536}, nil
}

func (m *fakeMachine) LinkByIndex(int) (kernel.Link, error) {
	return m.LinkByName(cmp.Or(m.name, "up0"))
}

func (m *fakeMachine) DefaultLink() (kernel.Link, error) { return m.LinkByName("up0") }

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
func (m *fakeMachine) HasClassifier(i int) (bool, error)     { return m.Classified(i) }
func (m *fakeMachine) Declassify(int) error                  { m.classifier.attached = false; return nil }

func (*fakeMachine) Obstacle(int) (string, error) { return "", nil }
func (*fakeMachine) Discard(string) error         { return nil }
func (*fakeMachine) Close() error                 { return nil }

func (m *fakeMachine) Incoming(func() (string, int)) uplink.Machine { return m }

func (m *fakeMachine) OpenClassifier(int, sched.Majors) (identity.Classifier, uplink.Delays, error) {
	m.classifier.attached, m.classifier.told = true, nil
	return m.classifier, m.delays, nil
}

// fakeTaps takes every tap.
type fakeTaps struct{}

func (*fakeTaps) Attach(identity.Tap, uint16) (uint32, error)   { return 1, nil }
func (*fakeTaps) Followers(identity.Tap) (kernel.Others, error) { return kernel.Others{}, nil }
func (*fakeTaps) Close()                                        {}
func (*fakeTaps) SoleProgram(identity.Tap) (uint32, error)      { return 1, nil }

// noOrigins is a kernel in which no packet has an unknown origin.
type noOrigins struct{}

func (noOrigins) Watch() error                      { return nil }
func (noOrigins) Unwatch() error                    { return nil }
func (noOrigins) Set(uint32, uint16) error          { return nil }
func (noOrigins) Forget(uint32) error               { return nil }
func (noOrigins) UnknownOrigins() ([]uint32, error) { return nil, nil }
func (noOrigins) Close() error                      { return nil }

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
	b.link = newLink(device, config.DefaultReserveBasisPoints)
	config := Config{
		Version: "test", Sources: []discovery.Source{docker.New(docker.Options{})}, Host: policy.Default(), Logger: slog.New(slog.DiscardHandler),
	}
	attacher := attach.New(attach.Kernel{Taps: &fakeTaps{}, Bridges: b.bridges, Origins: noOrigins{}}, config.Logger)
	attacher.IgnoreDefaultRoute = true // of the machine
	uplinks := &uplinks{list: []*link{b.link}, machine: b.machine, store: store, log: config.Logger}
	b.Agent = &Agent{
		config:     config,
		log:        config.Logger,
		store:      store,
		uplinks:    uplinks,
		containers: newContainers(config, attacher, uplinks),
		attach:     attacher,
		requests:   make(chan func()),
		board:      stats.NewBoard(),
		events:     stats.NewEvents(epoch),
	}
	b.containers.sources["docker"] = v1.Source{Name: "docker"}
	b.containers.addShares(b.containers.host)
	b.host = b.link.host
	b.scheduler.applied, b.scheduler.forgot = nil, 0
	return b
}

// plan is the part of reconcile that the scheduler sees.
func (b *bench) plan() {
	if err := b.link.device.Apply(b.link.plan(b.containers.byKey, b.containers.controlled())); err != nil {
		b.link.suspect = true
	}
	b.link.readCounters()
}

func (b *bench) control(now time.Time) time.Duration { return b.Agent.control(now) }

// start adds a container that is attached, with labels as "weight=200".
func (b *bench) start(name string, labels ...string) *share {
	b.t.Helper()
	b.started++
	c := &container{Container: attach.Container{Seen: discovery.Container{
		ID: fmt.Sprintf("%012d", b.started), Name: name, Runtime: "docker",
		Labels: map[string]string{}, StartedAt: epoch.AddDate(0, 0, b.started),
	}, Mode: v1.ModeBridge}}
	b.containers.addShares(c)
	b.containers.resolve(c)
	for _, label := range labels {
		b.label(c.shares[0], label)
	}
	b.containers.byKey[c.key()] = c
	if !b.containers.assign(c, 0) {
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
			c.container.Seen.Labels[policy.Prefix+label[:i]] = label[i+1:]
		}
	}
	if b.containers.resolve(c.container); len(c.container.resolved.Problems) > 0 {
		b.t.Fatalf("label %s: %v", label, c.container.resolved.Problems)
	}
}

func (b *bench) stop(c *share) {
	b.containers.forget(c.container)
	b.plan()
}

// useDelays makes the kernel one that can measure delays.
func (b *bench) useDelays(measured uplink.Delays) {
	b.machine.delays = measured
	b.classifier.attached = false
	b.advance(b.link)
}
