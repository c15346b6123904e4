package run

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// TestFailsAfterItsEnd: the start of an instance that fails after its end does not affect the next
// one of that name.
func TestFailsAfterItsEnd(t *testing.T) {
	l, noImage := newLives(), errors.New("no image")
	newStart := func() *start {
		return &start{decision: engine.Decision{Action: engine.Start, Service: "shop", Instance: "shop-1"}}
	}
	ended, current := newStart(), newStart()
	l.noteStart(ended, noImage)
	if len(l.cannotStart) > 0 {
		t.Errorf("it has ended: %v", l.cannotStart)
	}
	l.starting["shop-1"] = current
	l.noteStart(ended, noImage)
	if len(l.cannotStart) > 0 || l.starting["shop-1"] != current {
		t.Errorf("another one of that name starts: %v", l.cannotStart)
	}
	o := shop(0, 0)
	l.noteStart(current, noImage)
	if l.instances(o); l.cannotStart["shop-1"] == "" {
		t.Error("it cannot be started, and that is forgotten")
	}
	o.promises = engine.Promises{}
	if l.instances(o); len(l.cannotStart) > 0 {
		t.Errorf("it is promised nothing any more: %v", l.cannotStart)
	}
	l.starting["shop-1"], o.at = newStart(), time.Now()
	if l.instances(o); len(l.starting) > 0 {
		t.Errorf("it is neither there nor promised: %v", l.starting)
	}
}

// withImage is an engine that has an image, and starts nothing.
type withImage struct {
	runtime.Runtime
	bench
	err error
}

func (w *withImage) Ledger() engine.Ledger { return &w.bench }

func (w *withImage) Fetch(context.Context, string, string) (runtime.Image, error) {
	return runtime.Image{SizeBytes: 1}, w.err
}

func (w *withImage) Start(context.Context, runtime.Service, string, string) error {
	return runtime.ErrExists
}

// TestStartInstance: an instance is started with its image and its promise, and one that is there
// is no error.
func TestStartInstance(t *testing.T) {
	promised := engine.Promises{"shop-1": {}}
	for name, test := range map[string]struct {
		promises engine.Promises
		err      error
		nodeGets bool // the image
		fetched  bool
		says     string
	}{
		"it is there":           {promised, nil, false, true, ""},
		"no image":              {promised, runtime.ErrNoImage, false, false, "the image is not there"},
		"not asked for":         {promised, runtime.ErrNoImage, true, true, ""},
		"not promised any more": {nil, nil, false, true, "start shop-1 on a: what it needs is not promised any more"},
	} {
		rt, fetched := &withImage{bench: bench{promises: test.promises}, err: test.err}, false
		err := startInstance(t.Context(), rt, runtime.Service{}, engine.Decision{Instance: "shop-1", Node: "a"}, !test.nodeGets, func(runtime.Image) { fetched = true })
		if fetched != test.fetched || (err == nil) != (test.says == "") || err != nil && err.Error() != test.says {
			t.Errorf("%s: fetched %t, %v", name, fetched, err)
		}
	}
}

// TestNodeHasLeft: instances end whose node is none any more, and promises go with a node that
// is called something else.
func TestNodeHasLeft(t *testing.T) {
	m := newManager(t)
	ledger := &bench{promises: engine.Promises{
		"shop-1": {Service: "shop", Node: "a"}, "shop-2": {Service: "shop", Node: "b", LimitBytes: 5e6, Replaces: "shop-1"},
	}}
	o := shop(0, 0)
	o.promises = ledger.promises
	o.state.Instances = []runtime.Instance{{ID: "shop-1", Service: "shop", Node: "id1"}, {ID: "shop-2", Service: "shop", Node: "b-id2"}}
	o.nodes[1].Node.Name = "b-id2"
	m.endLeft(o)
	if m.lives.stopping["shop-1"] == nil || len(m.lives.stopping) != 1 {
		t.Errorf("ending are %v", m.lives.stopping)
	}
	step := m.lives.planPromises(o)
	if step.apply(t.Context(), ledger); step.err != nil {
		t.Error(step.err)
	}
	if p := ledger.promises["shop-2"]; p != (engine.Promise{Service: "shop", Node: "b-id2", LimitBytes: 5e6, Replaces: "shop-1"}) || len(ledger.promises) != 2 {
		t.Errorf("promised is %+v", ledger.promises)
	}
	here := len(m.said())
	if m.endLeft(o); len(m.said()) != here {
		t.Errorf("it is ended again: %s", m.said())
	}
}

// TestNameIsTaken: an instance that this weir-edge is about to end keeps its name after another
// weir-edge has taken it out of the ledger, as another instance of that name would be ended.
func TestNameIsTaken(t *testing.T) {
	l := newLives()
	l.stopping["shop-1"] = &stop{decision: engine.Decision{Action: engine.Stop, Service: "shop", Instance: "shop-1", Node: "a"}, at: time.Now(), ending: true}
	o := shop(0, 0)
	o.promises = engine.Promises{}
	if list := l.instances(o); len(list) != 1 || list[0].ID != "shop-1" || list[0].State != engine.InstanceStopping {
		t.Errorf("without a promise: %+v", list)
	}
	if list := l.instances(shop(0, 0)); len(list) != 1 {
		t.Errorf("with one: %+v", list)
	}
}

// TestOrphanOfThatName: since when an instance is missing is forgotten with its promise.
func TestOrphanOfThatName(t *testing.T) {
	l := newLives()
	l.orphans["shop-1"] = time.Now().Add(-time.Hour)
	gone := &observation{specs: map[string]spec.Spec{"shop": {Name: "shop"}}}
	if ids := l.orphaned(gone); len(ids) > 0 {
		t.Errorf("nothing is promised: %v", ids)
	}
	if ids := l.orphaned(shop(0, 0)); len(ids) > 0 {
		t.Errorf("promised anew, and taken back at once: %v", ids)
	}
}

// TestVanished: what an instance was promised is withdrawn soon after another program has removed it,
// and later if it was never seen: it may be starting.
func TestVanished(t *testing.T) {
	for _, seen := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l, o := newLives(), shop(0, 0)
			if seen {
				o.state.Instances = []runtime.Instance{{ID: "shop-1", Service: "shop", Node: "a", Phase: runtime.Running}}
			}
			l.instances(o)
			o.state.Instances = nil
			began := time.Now()
			for l.instances(o); len(l.orphaned(o)) == 0; l.instances(o) {
				time.Sleep(period)
			}
			if took := time.Since(began); seen != (took <= vanishedTimeout+period) || took < vanishedTimeout {
				t.Errorf("seen: %v, it is withdrawn after %v", seen, took)
			}
		})
	}
}

// TestCrowdThatComesAndGoes: as many users as there were a moment ago may be back the next.
func TestCrowdThatComesAndGoes(t *testing.T) {
	p, now := newProxies(), time.Now()
	for _, step := range []struct {
		after time.Duration
		users int
		want  int
	}{
		{0, 10, 10}, {time.Second, 17, 17}, {time.Second, 5, 17}, {8 * time.Second, 16, 17}, {time.Second, 18, 18},
		{time.Second, 6, 18}, {10 * time.Second, 7, 7}, {time.Second, 6, 7},
	} {
		now = now.Add(step.after)
		if got := p.mostUsers(entry{"shop", "a"}, step.users, now); got != step.want {
			t.Errorf("%d users after %v: %d, want %d", step.users, step.after, got, step.want)
		}
	}
}

// TestProxyInItsPlace: a proxy that fails has time to begin, also if another one failed there.
func TestProxyInItsPlace(t *testing.T) {
	p := newProxies()
	p.failedAt[entry{"shop", "b"}] = time.Now().Add(-time.Hour)
	failing := &observation{proxies: map[string][]observedProxy{"shop": {{Proxy: runtime.Proxy{Node: "b"}, err: errors.New("refused")}}}}
	if p.forget(failing); len(p.failedAt) != 1 {
		t.Error("it still fails, and that is forgotten")
	}
	if p.forget(&observation{}); len(p.failedAt) != 0 {
		t.Error("it is gone")
	}
}

// TestEndedOnce: a round that observed before an instance had ended does not end it again.
func TestEndedOnce(t *testing.T) {
	l, observed := newLives(), time.Now()
	l.ended["shop-1"] = observed.Add(time.Millisecond)
	o := shop(0, 0)
	o.at = observed
	o.promises["shop-1"] = engine.Promise{Service: "shop", Node: "a", Stopping: true}
	if l.drained(o); len(l.stopping) != 0 {
		t.Error("it is ended again")
	}
	o.at = observed.Add(time.Second) // another one of that name
	if l.drained(o); len(l.stopping) != 1 {
		t.Error("it is not ended")
	}
}
