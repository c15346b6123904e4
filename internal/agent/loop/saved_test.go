package loop

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// An agent that starts again knows what the last one knew.
func TestSaveAndRecall(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, 100e6)
		for range rapid.IntRange(0, 5).Draw(rt, "containers") {
			c := b.start(rapid.StringMatching(`[a-z]{1,8}`).Draw(rt, "name"), "weight=200", "min=10mbit")
			if rapid.Bool().Draw(rt, "set") {
				c.container.set = policy.Values{Weight: new(uint32(7)), MinBPS: new(uint64(5e6)), MaxBPS: new(uint64(0))}
				b.containers.resolve(c.container)
			}
			// Nothing is known of its devices, so that none is touched.
			c.container.Seen.HostNetwork = rapid.Bool().Draw(rt, "host network")
			c.container.Seen.NetNSPath = "/nowhere/ns/net"
			c.container.Devices = []attach.Device{{GSOBefore: 65536}}
		}
		b.reconcile()
		if err := b.save(); err != nil {
			rt.Fatal(err)
		}
		if b.link.device.Problem() != nil {
			rt.Fatal(b.link.device.Problem())
		}
		saved, err := state.Open(b.dir)
		if err != nil {
			rt.Fatal(err)
		}
		next := newBench(t, 100e6)
		next.Agent.store = saved
		next.recall()
		if len(next.containers.byKey) != len(b.containers.byKey) {
			rt.Fatalf("%d of %d containers", len(next.containers.byKey), len(b.containers.byKey))
		}
		for k, c := range b.containers.byKey {
			got := next.containers.byKey[k]
			if got == nil || !reflect.DeepEqual(got.Container.Seen, c.Container.Seen) || got.policy() != c.policy() {
				rt.Fatalf("%+v became %+v", c, got)
			}
		}
	})

	// All that a source reports is recalled, and its ports stay in force.
	b := newBench(t, 100e6)
	full := discovery.Container{
		ID: "0123", Name: "web", Runtime: "docker", Labels: map[string]string{"weir.weight": "7"}, Image: "nginx",
		ImageLabels: map[string]string{"weir.max": "5mbit"}, ImageUnknown: "gone", NetNSPath: "/nowhere/ns/net", CgroupPath: "/cgroup/web",
		Interface: "eth0", HostNetwork: true, NoNetwork: true, Lacks: discovery.Capabilities{NetAdmin: true, NetRaw: true}, Configured: true, SharesNetworkOf: "4567", Pod: discovery.Pod{Name: "pod", Members: []string{"app"}},
		RoutingMesh: true, Encrypted: true, Ports: []discovery.Port{{Container: 80, Host: 8080, Protocol: "tcp", AnyIPv4: true, AnyIPv6: true}}, StartedAt: epoch,
	}
	requireFull(t, full)
	requireFull(t, full.Ports[0])
	for _, none := range []bool{true, false} {
		seen := full
		seen.NoNetwork = none
		b.containers.update(seen)
		b.reconcile()
		must.Succeed(t, b.save())
		saved, err := state.Open(b.dir)
		must.Succeed(t, err)
		next := newBench(t, 100e6)
		next.Agent.store = saved
		next.recall()
		next.reconcile()
		if got := next.containers.byKey[key{"docker", "0123"}]; got == nil || !reflect.DeepEqual(got.Container.Seen, seen) {
			t.Errorf("%+v became %+v", seen, got)
		}
		if ports := next.classifier.published; !maps.Equal(ports, b.classifier.published) || (len(ports) == 0) != none {
			t.Errorf("ports %v became %v", b.classifier.published, ports)
		}
	}

	// Of a source that is not asked any more, nobody would ever say that its
	// containers are gone.
	b = newBench(t, 100e6)
	b.Agent.store.File = state.File{Containers: []state.Container{
		{ID: "0123456789abcdef", Runtime: "docker"},
		{ID: "fedcba", Runtime: "static", Number: 77, HostNetwork: true, CgroupPath: "/cgroup/fedcba"},
	}}
	b.classifier.cgroups[77] = "/cgroup/fedcba"
	b.recall()
	b.containers.dropLeftovers()
	if path, known := b.classifier.cgroups[77]; known {
		t.Errorf("%s is still known by a number that is free", path)
	}
	if len(b.containers.byKey) != 1 || b.containers.byKey[key{"docker", "0123456789abcdef"}] == nil {
		t.Errorf("recalled %v", b.containers.byKey)
	}
}

// requireFull fails unless each field of a struct has a value that tells whether it was saved.
func requireFull(t *testing.T, object any) {
	t.Helper()
	one := reflect.ValueOf(object)
	for i := range one.NumField() {
		if one.Field(i).IsZero() {
			t.Errorf("give %s a value", one.Type().Field(i).Name)
		}
	}
}

// What a container's device was is kept before that is changed: an agent may be
// killed at any time.
func TestLimitIsSavedFirst(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.start("c")
	c.container.Seen.NetNSPath = "/nowhere/ns/net"
	c.container.Devices = []attach.Device{{Attachment: identity.Attachment{Interface: "eth0", GSOMaxBytes: 65536}, GSOBefore: 65536}}
	b.saveFrom = time.Now().Add(time.Hour) // the file was written often lately
	b.reconcile()
	if c.container.Devices[0].Saved {
		t.Error("limited before it was saved")
	}
	b.saveSoon(b.saveFrom)
	if !c.container.Devices[0].Saved {
		t.Error("not limited when it was saved")
	}
	saved, err := state.Open(b.dir)
	if err != nil || len(saved.Containers) != 1 || saved.Containers[0].Attached[0].GSOMaxBytes != 65536 {
		t.Errorf("saved %+v, %v", saved, err)
	}
}

// What was set is recalled value by value, and what was not is not.
func TestRecallWhatWasSet(t *testing.T) {
	some := policy.Values{Weight: new(uint32(700)), MaxBPS: new(uint64(0))}
	all := policy.Values{
		Weight: new(uint32(1)), MinBPS: new(uint64(5)), MaxBPS: new(uint64(2)), Priority: new(uint32(3)), LatencyMS: new(4.0), Class: new(v1.ClassBE),
		EFMax: &v1.Part{BPS: 5e6}, AFMin: &v1.Part{Percent: 20}, DSCP: new(v1.DSCPMark),
		InWeight: new(uint32(6)), InMinBPS: new(uint64(7)), InMaxBPS: new(uint64(8)), InPriority: new(uint32(9)), InLatencyMS: new(10.0),
	}
	requireFull(t, all)
	for _, set := range []policy.Values{{}, some, all} {
		if got := recalledSet(savedSet(set)); !reflect.DeepEqual(got, set) {
			t.Errorf("%+v, want %+v", got, set)
		}
	}
	if savedSet(policy.Values{}) != nil {
		t.Error("nothing was set, and something is saved")
	}
}

// TestAutoMovedMeanwhile: an agent that starts where the default route leads through another device goes on with the
// totals and minimums.
func TestAutoMovedMeanwhile(t *testing.T) {
	config := UplinkConfig{Name: uplink.Auto, RateBPS: 1e8}
	for name, tc := range map[string]struct{ before, now string }{
		"another device": {"up1", "up2"},
		"the same":       {"up2", "up2"},
		"none before":    {"", "up2"},
		"none now":       {"up1", ""},
	} {
		host := machines{}
		for i, name := range []string{"up1", "up2"} {
			host.with(7+i, name)
		}
		start := func(b *bench, device string) *link {
			for _, m := range host {
				m.isDefault = m.name == device
			}
			b.uplinks.machine, b.uplinks.list, b.containers.host.shares = host, nil, nil
			must.Succeed(t, b.uplinks.open([]UplinkConfig{config}, 500))
			b.containers.addShares(b.containers.host)
			b.recall()
			return b.uplinks.list[0]
		}
		b := newBench(t, 100e6)
		first := start(b, tc.before)
		must.Succeed(t, b.install())
		s := b.start("c", "min=10mbit")
		s.totals.SentBytes, s.admittedBPS, first.host.totals.SentBytes, first.host.admittedBPS = 1e6, 10e6, 2e6, 5e6
		must.Succeed(t, b.save())

		next := newBench(t, 100e6)
		saved, err := state.Open(b.dir)
		must.Succeed(t, err)
		// An earlier agent may have shared more, whose entries may come first.
		saved.Uplinks = append([]*state.Uplink{{Name: "in-auto", Host: &state.Counted{SentBytes: 7}}}, saved.Uplinks...)
		next.Agent.store, next.uplinks.store = saved, saved
		second := start(next, tc.now)
		s = next.containers.byKey[s.container.key()].shares[0]
		if tc.now != "" && second.device.Name() != tc.now || s.totals.SentBytes != 1e6 || s.admittedBPS != 10e6 {
			t.Errorf("%s: at %s %+v, minimum %d", name, second.device.Name(), s.totals, s.admittedBPS)
		}
		if tc.before != "" && (second.host.totals.SentBytes != 2e6 || second.host.admittedBPS != 5e6) {
			t.Errorf("%s: the host has %+v, minimum %d", name, second.host.totals, second.host.admittedBPS)
		}
		must.Succeed(t, next.install())
		if s.totals.SentBytes != 1e6 {
			t.Errorf("%s: installed, %+v", name, s.totals)
		}
	}
}

// What was sent is counted on by the next agent, of the classes that it finds and
// of those that were made again in between.
func TestTotalsOutliveTheAgent(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	a.container.Seen.HostNetwork, a.container.Seen.CgroupPath = true, "/cgroup/a"
	b.reconcile()
	count := func(s *share, bytes uint64, packets, drops uint32) {
		t.Helper()
		s.class.Counters = sched.Counters{SentBytes: bytes, SentPackets: packets, DroppedPackets: drops, MarkedPackets: 2 * drops, QueueKnown: true}
		if s.container.Number == a.container.Number {
			s.class.Counters.DirectBytes, s.class.Counters.DirectPackets = 50, 1
		}
		s.count(epoch)
	}
	count(a, 1000, 10, 1)
	count(a, 400, 4, 0) // made again
	count(b.host, 300, 3, 0)
	b.host.admittedBPS = 20e6
	must.Succeed(t, b.save())
	for _, tc := range []struct {
		name                  string
		bytes                 uint64 // of the class, as the next agent finds it
		packets               uint32
		wantBytes, wantPacket uint64
	}{
		{"nothing was sent meanwhile", 400, 4, 1450, 15},
		{"something was", 600, 6, 1650, 17},
		{"the class was made again", 90, 1, 1540, 16},
	} {
		saved, err := state.Open(b.dir)
		must.Succeed(t, err)
		next := newBench(t, 100e6)
		next.Agent.store = saved
		next.recall()
		if next.host.admittedBPS != 20e6 {
			t.Errorf("%s: the host was granted %d", tc.name, next.host.admittedBPS)
		}
		again := next.containers.byKey[a.container.key()].shares[0]
		if again.container.Number != a.container.Number {
			t.Fatalf("number %d became %d", a.container.Number, again.container.Number)
		}
		next.plan()
		count(again, tc.bytes, tc.packets, 0)
		if got := again.view(); got.SentBytes != tc.wantBytes || got.SentPackets != tc.wantPacket || got.DroppedPackets != 1 || got.MarkedPackets != 2 {
			t.Errorf("%s: %+v, want %d bytes, %d packets, 1 dropped and 2 marked", tc.name, got, tc.wantBytes, tc.wantPacket)
		}
		count(next.host, 310, 4, 0)
		if got := next.host.view(); got.SentBytes != 310 || got.SentPackets != 4 {
			t.Errorf("%s: the host has %+v", tc.name, got)
		}
	}
}
