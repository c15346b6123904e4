package agent

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/classify"
	"github.com/weir-project/weir/internal/config"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
)

// fakeScheduler remembers what it was told, and has the counters it was given.
type fakeScheduler struct {
	applied []sched.Tree
	stats   []sched.Stats
	err     error
	forgot  int
}

func (*fakeScheduler) Name() string  { return "fake" }
func (s *fakeScheduler) Forget()     { s.forgot++ }
func (*fakeScheduler) Remove() error { return nil }

func (s *fakeScheduler) Apply(want sched.Tree) error {
	want.Classes = slices.Clone(want.Classes)
	s.applied = append(s.applied, want)
	return s.err
}

func (s *fakeScheduler) Stats(dst []sched.Stats) ([]sched.Stats, error) {
	return append(dst, s.stats...), s.err
}

// fakeClassifier has counted what it was given.
type fakeClassifier struct {
	offered [classify.NumberLast + 1]uint64
}

func (c *fakeClassifier) Close() error { return nil }

func (c *fakeClassifier) OfferedBytes(dst []uint64) error {
	copy(dst, c.offered[:])
	return nil
}

// bench is an agent on an uplink that is not there.
type bench struct {
	*Agent
	t          testing.TB
	scheduler  *fakeScheduler
	classifier *fakeClassifier
	started    int
}

func newBench(t testing.TB, rateBPS uint64) *bench {
	t.Helper()
	store, err := openStore(t.TempDir(), "up0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, scheduler: &fakeScheduler{}, classifier: &fakeClassifier{}}
	b.Agent = &Agent{
		config:   Config{Uplink: "up0", ReserveBasisPoints: config.DefaultReserveBasisPoints, Version: "test"},
		log:      slog.New(slog.DiscardHandler),
		store:    store,
		uplink:   &uplink{name: "up0", ifindex: 3, rateBPS: rateBPS, store: store, backend: b.scheduler, classifier: b.classifier},
		registry: newRegistry(),
		host:     newHost(policy.Default()),
		sources:  map[string]v1.Source{"docker": {Name: "docker"}},
		requests: make(chan func()),
		rescan:   make(chan struct{}, 1),
	}
	return b
}

// start adds a container that is attached, with labels as "weight=200".
func (b *bench) start(name string, labels ...string) *container {
	b.t.Helper()
	b.started++
	c := &container{Container: discovery.Container{
		ID: fmt.Sprintf("%012d", b.started), Name: name, Runtime: "docker",
		Labels: map[string]string{}, StartedAt: epoch.AddDate(0, 0, b.started),
	}, mode: v1.ModeBridge}
	c.labelPolicy = policy.Default()
	for _, label := range labels {
		b.label(c, label)
	}
	b.registry.byKey[c.key()] = c
	if !b.registry.assign(c, 0) {
		b.t.Fatal("no number left")
	}
	b.plan()
	return c
}

// label changes a label, as "min=10mbit".
func (b *bench) label(c *container, label string) {
	b.t.Helper()
	for i := range label {
		if label[i] == '=' {
			c.Labels[policy.Prefix+label[:i]] = label[i+1:]
		}
	}
	if c.labelPolicy, c.problems = policy.Parse(c.Labels); len(c.problems) > 0 {
		b.t.Fatalf("label %s: %v", label, c.problems)
	}
}

func (b *bench) stop(c *container) {
	b.forget(c)
	b.plan()
}
