package run

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/store"
)

// fakeEngine is a container engine of one node, in memory.
type fakeEngine struct {
	runtime.Runtime
	mu     sync.Mutex
	ledger bench
	state  runtime.State
	down   error
}

func (f *fakeEngine) Kind() string                            { return "docker" }
func (f *fakeEngine) Changes(context.Context) <-chan struct{} { return nil }
func (f *fakeEngine) Ledger() engine.Ledger                   { return f }
func (f *fakeEngine) Fetch(_ context.Context, _, image string) (runtime.Image, error) {
	return runtime.Image{SizeBytes: 1, Took: time.Millisecond, Pinned: image}, nil
}

func (f *fakeEngine) Nodes(context.Context) ([]runtime.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []runtime.Node{{Name: "a", Ready: true, CPUs: 4, MemoryBytes: 1 << 30}}, f.down
}

func (f *fakeEngine) Look(context.Context) (runtime.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return runtime.State{Services: slices.Clone(f.state.Services), Instances: slices.Clone(f.state.Instances)}, nil
}

func (f *fakeEngine) Proxies(context.Context, string) ([]runtime.Proxy, error) { return nil, nil }

func (f *fakeEngine) Deploy(_ context.Context, s runtime.Service) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Services = append(f.state.Services, s)
	return nil
}

func (f *fakeEngine) Remove(_ context.Context, service string, _ bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.state.Services) == 0 {
		return runtime.ErrUnknown
	}
	f.state = runtime.State{}
	return nil
}

func (f *fakeEngine) Start(_ context.Context, s runtime.Service, instance, node string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.HasPrefix(s.Image, "bad") {
		return errors.New(s.Image + " does not start")
	}
	f.state.Instances = append(f.state.Instances, runtime.Instance{ID: instance, Service: s.Name, Node: node, Phase: runtime.Running, StartedAt: time.Now(), Made: s.Made})
	return nil
}

func (f *fakeEngine) Stop(_ context.Context, instance string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Instances = slices.DeleteFunc(f.state.Instances, func(i runtime.Instance) bool { return i.ID == instance })
	return nil
}

func (f *fakeEngine) Update(_ context.Context, _, s runtime.Service) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Services = []runtime.Service{s}
	return nil
}

func (f *fakeEngine) Read(ctx context.Context) (engine.Promises, engine.Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ledger.Read(ctx)
}

func (f *fakeEngine) Swap(ctx context.Context, token engine.Token, p engine.Promises) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ledger.Swap(ctx, token, p)
}

// hangingEngine does not answer what hangs names until the caller gives up.
type hangingEngine struct {
	*fakeEngine
	hangs string
}

func (f *hangingEngine) Look(ctx context.Context) (runtime.State, error) {
	if f.hangs == "look" {
		<-ctx.Done()
		return runtime.State{}, ctx.Err()
	}
	return f.fakeEngine.Look(ctx)
}

func (f *hangingEngine) Deploy(ctx context.Context, _ runtime.Service) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestHangingEngine: an engine that does not answer is reported, and a deployment that waits for it
// ends with weir-edge.
func TestHangingEngine(t *testing.T) {
	for _, hangs := range []string{"look", "deploy"} {
		synctest.Test(t, func(t *testing.T) {
			m := newManager(t)
			m.opts.Runtime = &hangingEngine{&fakeEngine{ledger: bench{promises: engine.Promises{}}}, hangs}
			m.opts.Nodes, m.opts.Engine = Unmeasured{}, newDecider(t)
			ctx, cancel := context.WithCancel(t.Context())
			ended, deployed := make(chan error, 1), make(chan error, 1)
			go func() { ended <- m.Run(ctx) }()
			if hangs == "deploy" {
				go func() {
					_, err := m.Deploy(context.WithoutCancel(ctx), []byte(`{"par": {"serviceName": "shop", "imageName": "i:1"}}`))
					deployed <- err
				}()
			}
			time.Sleep(roundTimeout + time.Second)
			if said := m.said(); (hangs == "look") != strings.Contains(said, "the container engine has not answered within 10s") {
				t.Errorf("%s: reported %q", hangs, said)
			}
			cancel()
			synctest.Wait()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("%s: %v", hangs, err)
				}
			default:
				t.Fatalf("%s: weir-edge does not end", hangs)
			}
			if hangs == "deploy" {
				if err := <-deployed; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
}

// slowEngine takes long to find that it cannot get an image.
type slowEngine struct{ *fakeEngine }

func (slowEngine) Fetch(context.Context, string, string) (runtime.Image, error) {
	time.Sleep(2 * pullingAfter)
	return runtime.Image{}, errors.New("no such host")
}

// TestPullEnds: that an image is pulled is reported, and how it ended.
func TestPullEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t)
		m.opts.Runtime, m.opts.Nodes, m.opts.Engine = slowEngine{&fakeEngine{ledger: bench{promises: engine.Promises{}}}}, Unmeasured{}, newDecider(t)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = m.Run(ctx) }()
		if _, err := m.Deploy(ctx, []byte(`{"par": {"serviceName": "shop", "imageName": "i:1"}}`)); err == nil {
			t.Error("it is deployed without its image")
		}
		synctest.Wait()
		if said := m.said(); !strings.Contains(said, "pulling the image i:1") || !strings.Contains(said, "no such host") {
			t.Errorf("reported is %q", said)
		}
		cancel()
	})
}

func newDecider(t *testing.T) *engine.Engine {
	t.Helper()
	decider, err := engine.New(engine.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	return decider
}

// TestRun: a service is deployed, runs and is removed while readers read; an engine that does not
// answer leaves the last view; and at its end the manager waits for its work and refuses changes.
func TestRun(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	kept, err := store.Open(filepath.Join(t.TempDir(), "edge.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	fake := &fakeEngine{ledger: bench{promises: engine.Promises{}}}
	m, err := New(Options{Runtime: fake, Nodes: Unmeasured{}, Store: kept, Log: log, Engine: newDecider(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var ended error
	running.Go(func() { ended = m.Run(ctx) })
	for range 3 {
		running.Go(func() {
			for seq := uint64(0); ctx.Err() == nil; time.Sleep(time.Millisecond) {
				for _, e := range m.Events().Since(seq).Events {
					seq = max(seq, e.Seq)
				}
				m.Events().Counts()
				_, _ = m.Explain("shop")
			}
		})
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not after 20 s: %+v\n%s", what, m.Snapshot(), m.said())
			}
		}
	}
	document := []byte(`{"par": {"serviceName": "shop", "imageName": "i:1"}}`)
	deployed, err := m.Deploy(ctx, document)
	if err != nil || !deployed.Changed || len(m.Snapshot().Services) != 1 {
		t.Fatalf("%+v, %v, and readers see %+v", deployed, err, m.Snapshot().Services)
	}
	until("an instance runs", func() bool {
		v := m.Snapshot()
		return len(v.Instances) == 1 && v.Instances[0].Instance == "shop-1" && v.Instances[0].Node == "a" && v.Instances[0].State == "running" && !v.Instances[0].StartedAt.IsZero()
	})
	if again, err := m.Deploy(ctx, document); err != nil || again.Changed {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	for _, update := range []struct {
		image string
		ends  func(u edge.Update, version string, i edge.Instance) bool
	}{
		{"i:2", func(u edge.Update, version string, i edge.Instance) bool {
			return u.Version == version && i.Version == version
		}},
		{"bad:1", func(u edge.Update, version string, i edge.Instance) bool {
			return u.Left == version && i.Version == deployed.Version && strings.Contains(u.Reason, "failed on a: bad:1 does not start")
		}},
	} {
		again, err := m.Deploy(ctx, []byte(`{"par": {"serviceName": "shop", "imageName": "`+update.image+`"}}`))
		if err != nil || !again.Changed || !m.Snapshot().Services[0].Update.InProgress {
			t.Errorf("%s: %+v, %v, and readers see %+v", update.image, again, err, m.Snapshot().Services)
		}
		until("an update to "+update.image, func() bool {
			v := m.Snapshot()
			return len(v.Instances) == 1 && update.ends(v.Services[0].Update, again.Version, v.Instances[0]) && v.Instances[0].State == "running"
		})
	}
	fake.mu.Lock()
	fake.down = errors.New("no answer")
	fake.mu.Unlock()
	until("the engine does not answer", func() bool {
		v := m.Snapshot()
		return len(v.Services) == 1 && v.Services[0].Reason == "no answer" && len(v.Instances) == 1
	})
	fake.mu.Lock()
	fake.down = nil
	fake.mu.Unlock()
	until("it answers again", func() bool { return m.Snapshot().Services[0].Reason == "" })
	if err := m.Remove(ctx, "shop"); err != nil || len(m.Snapshot().Services) != 0 {
		t.Errorf("%v, and readers see %+v", err, m.Snapshot().Services)
	}
	if err := m.Remove(ctx, "shop"); !errors.Is(err, runtime.ErrUnknown) {
		t.Errorf("removed again: %v", err)
	}
	for _, want := range []string{"was deployed", "is ready\n", "no answer: what runs goes on", "was removed"} {
		if said := m.said(); strings.Count(said, want) != 1 {
			t.Errorf("%q is not reported once:\n%s", want, said)
		}
	}
	// A message goes on from what its event is about, which readers see before it.
	for _, e := range m.Events().Newest(100, func(e edge.Event) bool { return e.Decision == nil }) {
		if begin := strings.Fields(e.Message + " -")[:2]; slices.Contains(begin, cmp.Or(e.Instance, e.Service, e.Node, "none")) {
			t.Errorf("%+v repeats what it is about", e)
		}
	}
	cancel()
	running.Wait()
	if ended != nil {
		t.Error(ended)
	}
	if err := m.Remove(t.Context(), "shop"); err == nil || err.Error() != "weir-edge ends" {
		t.Errorf("after its end: %v", err)
	}
}
