package agent

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/state"
)

// An agent that starts again knows what the last one knew.
func TestSaveAndRecall(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, 100e6)
		for range rapid.IntRange(0, 5).Draw(rt, "containers") {
			c := b.start(rapid.StringMatching(`[a-z]{1,8}`).Draw(rt, "name"), "weight=200", "min=10mbit")
			if rapid.Bool().Draw(rt, "set") {
				c.set = policy.Values{Weight: new(uint32(7)), MinBPS: new(uint64(5e6)), MaxBPS: new(uint64(0))}
				b.resolve(c.container)
			}
			// Nothing is known of its devices, so that none is touched.
			c.HostNetwork = rapid.Bool().Draw(rt, "host network")
			c.NetNSPath = "/nowhere/ns/net"
			c.attachments = []attachment{{gsoBefore: 65536}}
		}
		b.reconcile()
		if err := b.save(); err != nil {
			rt.Fatal(err)
		}
		if b.uplink.reason != nil {
			rt.Fatal(b.uplink.reason)
		}
		saved, err := state.Open(b.dir)
		if err != nil {
			rt.Fatal(err)
		}
		next := newBench(t, 100e6)
		next.Agent.store = saved
		next.recall()
		if len(next.registry.byKey) != len(b.registry.byKey) {
			rt.Fatalf("%d of %d containers", len(next.registry.byKey), len(b.registry.byKey))
		}
		for k, c := range b.registry.byKey {
			got := next.registry.byKey[k]
			if got == nil || got.Name != c.Name || !got.StartedAt.Equal(c.StartedAt) || got.policy() != c.policy() || got.HostNetwork != c.HostNetwork {
				rt.Fatalf("%+v became %+v", c, got)
			}
		}
	})

	// Of a source that is not asked any more, nobody would ever say that its
	// containers are gone.
	b := newBench(t, 100e6)
	b.Agent.store.File = state.File{Containers: []state.Container{
		{ID: "0123456789abcdef", Runtime: "docker"},
		{ID: "fedcba", Runtime: "static", Number: 77, HostNetwork: true, CgroupPath: "/cgroup/fedcba"},
	}}
	b.classifier.cgroups[77] = "/cgroup/fedcba"
	b.recall()
	b.dropLeftovers()
	if path, tied := b.classifier.cgroups[77]; tied {
		t.Errorf("%s is still known by a number that is free", path)
	}
	if len(b.registry.byKey) != 1 || b.registry.byKey[key{"docker", "0123456789abcdef"}] == nil {
		t.Errorf("recalled %v", b.registry.byKey)
	}
}

// What was set is recalled value by value, and what was not is not.
func TestRecallWhatWasSet(t *testing.T) {
	some := policy.Values{Weight: new(uint32(700)), MaxBPS: new(uint64(0))}
	all := policy.Values{
		Weight: new(uint32(1)), MinBPS: new(uint64(5)), MaxBPS: new(uint64(2)), Priority: new(uint32(3)), LatencyMS: new(4.0), Class: new(v1.ClassBE),
	}
	for _, set := range []policy.Values{{}, some, all} {
		if got := recalledSet(savedSet(set)); !reflect.DeepEqual(got, set) {
			t.Errorf("%+v, want %+v", got, set)
		}
	}
	if savedSet(policy.Values{}) != nil {
		t.Error("nothing was set, and something is saved")
	}
}
