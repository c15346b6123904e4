package loop

import (
	"path/filepath"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/discovery/pods"
	"github.com/weir-project/weir/test/must"
)

// TestPods: what weir-k8s reports is in force when it is answered, and is there again after a
// restart; a pod that ended meanwhile is not.
func TestPods(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
	here := t.TempDir()
	reported := func(id string) discovery.Container {
		return discovery.Container{ID: id, Name: "shop/" + id, Runtime: pods.Runtime, HostNetwork: true, CgroupPath: here, Labels: map[string]string{"weir.min": "60mbit"}}
	}
	first, second := reported("first"), reported("second")
	second.CgroupPath = filepath.Join(here, "gone")
	for _, test := range []struct {
		pod  discovery.Container
		want v1.State
	}{{first, v1.StateOK}, {second, v1.StateRejected}, {first, v1.StateOK}} {
		c, err := b.Learn(ctx, discovery.Event{Source: pods.Runtime, Updated: &test.pod})
		if err != nil || c.Name != test.pod.Name || c.State != test.want {
			t.Errorf("%s: %v, %+v", test.pod.Name, err, c)
		}
	}
	known := func(b *bench) (names []string, source v1.Source) {
		for _, c := range b.containers.all() {
			names = append(names, c.Seen.Name)
		}
		for _, s := range b.status().Sources {
			if s.Name == pods.Runtime {
				source = s
			}
		}
		return names, source
	}
	must.Succeed(t, b.do(ctx, func() {
		b.containers.forgetGonePods()
		if names, source := known(b); len(names) != 2 || !source.Connected {
			t.Errorf("with weir-k8s, which reports ends: %v, %+v", names, source)
		}
		must.Succeed(t, b.save())
	}))
	next := newBench(t, 100e6)
	if _, source := known(next); source.Name != "" {
		t.Errorf("where there was no weir-k8s: %+v", source)
	}
	next.Agent.store = b.Agent.store
	next.recall()
	next.containers.forgetGonePods()
	if names, source := known(next); len(names) != 1 || names[0] != "shop/first" || source.Connected || source.Reason == "" {
		t.Errorf("after a restart: %v, %+v", names, source)
	}
}
