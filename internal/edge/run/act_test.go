package run

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// without is an engine that has no image.
type without struct{ runtime.Runtime }

func (without) Fetch(context.Context, string) (runtime.Image, error) {
	return runtime.Image{}, runtime.ErrNoImage
}

// TestFailsAfterItsEnd: the start of an instance that fails after it was ended says nothing of
// the next one of that name.
func TestFailsAfterItsEnd(t *testing.T) {
	m := newManager(t)
	m.rt = without{}
	of := func() *start {
		return &start{decision: engine.Decision{Action: engine.Start, Service: "shop", Instance: "shop-1"}}
	}
	ended, current := of(), of()
	m.start(t.Context(), runtime.Service{}, ended)
	if len(m.cannotStart) > 0 {
		t.Errorf("it has ended: %v", m.cannotStart)
	}
	m.starting["shop-1"] = current
	m.start(t.Context(), runtime.Service{}, ended)
	if len(m.cannotStart) > 0 || m.starting["shop-1"] != current {
		t.Errorf("another one of that name starts: %v", m.cannotStart)
	}
	s := shop(0, 0)
	m.start(t.Context(), runtime.Service{}, current)
	if m.instances(s); m.cannotStart["shop-1"] == "" {
		t.Error("it cannot be started, and nobody says so")
	}
	s.promises = engine.Promises{}
	if m.instances(s); len(m.cannotStart) > 0 {
		t.Errorf("it is promised nothing any more: %v", m.cannotStart)
	}
	m.starting["shop-1"], s.at = of(), time.Now()
	if m.instances(s); len(m.starting) > 0 {
		t.Errorf("nobody knows of it any more: %v", m.starting)
	}
}

// TestNodeHasLeft: instances end whose node is none any more, and promises go with a node that
// is called something else.
func TestNodeHasLeft(t *testing.T) {
	m := newManager(t)
	ledger := &bench{promises: engine.Promises{
		"shop-1": {Service: "shop", Node: "a", MinBPS: 20e6}, "shop-2": {Service: "shop", Node: "b", MinBPS: 20e6, Replaces: "shop-1"},
	}}
	m.rt = ledger
	s := shop(0, 0)
	s.promises = ledger.promises
	s.state.Instances = []runtime.Instance{{ID: "shop-1", Service: "shop", Node: "id1"}, {ID: "shop-2", Service: "shop", Node: "b-id2"}}
	s.nodes[1].Node.Name = "b-id2"
	m.endLeft(s)
	if m.stopping["shop-1"] == nil || len(m.stopping) != 1 {
		t.Errorf("ending are %v", m.stopping)
	}
	m.mendPromises(t.Context(), s)
	if p := ledger.promises["shop-2"]; p != (engine.Promise{Service: "shop", Node: "b-id2", MinBPS: 20e6, Replaces: "shop-1"}) || len(ledger.promises) != 2 {
		t.Errorf("promised is %+v", ledger.promises)
	}
	here := len(m.said())
	if m.endLeft(s); len(m.said()) != here {
		t.Errorf("it is ended again: %s", m.said())
	}
}

// TestNameIsTaken: what this weir-edge is about to end and another one has taken out of the ledger
// keeps its name, as what has that name would be ended.
func TestNameIsTaken(t *testing.T) {
	m := newManager(t)
	m.stopping["shop-1"] = &stop{decision: engine.Decision{Action: engine.Stop, Service: "shop", Instance: "shop-1", Node: "a"}, at: time.Now(), ending: true}
	s := shop(0, 0)
	s.promises = engine.Promises{}
	if list := m.instances(s); len(list) != 1 || list[0].ID != "shop-1" || list[0].State != engine.InstanceStopping {
		t.Errorf("without a promise: %+v", list)
	}
	if list := m.instances(shop(0, 0)); len(list) != 1 {
		t.Errorf("with one: %+v", list)
	}
}

// TestOrphanOfThatName: since when an instance is missed is forgotten with its promise.
func TestOrphanOfThatName(t *testing.T) {
	m := newManager(t)
	m.orphans["shop-1"] = time.Now().Add(-time.Hour)
	gone := &seen{specs: map[string]spec.Spec{"shop": {Name: "shop"}}}
	if ids := m.orphaned(gone); len(ids) > 0 {
		t.Errorf("nothing is promised: %v", ids)
	}
	if ids := m.orphaned(shop(0, 0)); len(ids) > 0 {
		t.Errorf("promised anew, and taken back at once: %v", ids)
	}
}

// TestCrowdThatComesAndGoes: as many users as there were a moment ago may be back the next.
func TestCrowdThatComesAndGoes(t *testing.T) {
	m, now := newManager(t), time.Now()
	for _, step := range []struct {
		after time.Duration
		users int
		want  int
	}{
		{0, 10, 10}, {time.Second, 17, 17}, {time.Second, 5, 17}, {8 * time.Second, 16, 17}, {time.Second, 18, 18},
		{time.Second, 6, 18}, {10 * time.Second, 7, 7}, {time.Second, 6, 7},
	} {
		now = now.Add(step.after)
		if got := m.mostUsers("shop a", step.users, now); got != step.want {
			t.Errorf("%d users after %v: %d, want %d", step.users, step.after, got, step.want)
		}
	}
}

// TestProxyInItsPlace: a proxy that fails has time to begin, also if another one failed there.
func TestProxyInItsPlace(t *testing.T) {
	m := newManager(t)
	m.proxyFailedAt["shop b"] = time.Now().Add(-time.Hour)
	failing := &seen{proxies: map[string][]seenProxy{"shop": {{Proxy: runtime.Proxy{Node: "b"}, seen: proxy.Seen{}, err: errors.New("refused")}}}}
	if m.forgetProxies(failing); len(m.proxyFailedAt) != 1 {
		t.Error("it fails on, and that is forgotten")
	}
	if m.forgetProxies(&seen{}); len(m.proxyFailedAt) != 0 {
		t.Error("it is none any more")
	}
}
