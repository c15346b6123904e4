package loop

import (
	"testing"
	"time"
	"unsafe"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
)

// Of which class a container's packets are, and in what order they go, is what was
// asked for last; of a container that is AF or BE as a whole, packets have no order.
func TestClassesOfAContainer(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.start("c", "class=auto", "ef-max=20%", "af-min=5mbit")
	plain := b.start("plain")
	b.reconcile()
	if got := b.classifier.classes; got[c.container.Number] != identity.ClassAuto || got[plain.container.Number] != sched.Unclassified {
		t.Errorf("the classifier knows %v", got)
	}
	want := sched.TrafficClasses{Ordered: true, Parts: alloc.ClassParts{EFMax: alloc.Part{Percent: 20}, AFMin: alloc.Part{BPS: 5e6}}}
	if got := c.wanted().Traffic; got != want {
		t.Errorf("the scheduler is told %+v", got)
	}
	if got := plain.wanted().Traffic; got != (sched.TrafficClasses{}) || plain.view().Classes != nil {
		t.Errorf("of a container without classes the scheduler is told %+v", got)
	}
	for class, ordered := range map[string]bool{"auto": true, "af": false, "be": false, "none": false, "ef": true} {
		if err := b.set(c.container, v1.PolicyChange{Class: &class}); err != nil {
			t.Fatal(err)
		}
		b.reconcile()
		if got := c.wanted().Traffic.Ordered; got != ordered {
			t.Errorf("%s: in order: %v", class, got)
		}
		if got, want := b.classifier.classes[c.container.Number], trafficClass(c.container.policy().Class); got != want {
			t.Errorf("%s: the classifier knows %v, want %v", class, got, want)
		}
	}
}

// What is seen of each class only grows, and is counted anew after the container had
// none.
func TestClassesSeen(t *testing.T) {
	c := ofClass(16, v1.ClassAuto)
	s := c.shares[0]
	s.class.Counters.QueueKnown = true
	count := func(at time.Duration, efBytes uint64, beDrops uint32) []v1.ClassShare {
		s.class.Traffic[sched.EF] = sched.TrafficCounters{SentBytes: efBytes, SentPackets: uint32(efBytes / 200), BacklogBytes: 400}
		s.class.Traffic[sched.BE] = sched.TrafficCounters{DroppedPackets: beDrops, MarkedPackets: 3 * beDrops}
		s.count(epoch.Add(at))
		return s.view().Classes
	}
	count(0, 200_000, 3)
	got := count(time.Second, 325_000, 5)
	want := []v1.ClassShare{
		{Class: v1.ClassEF, MaxBPS: 4e6, RateBPS: 1e6, BacklogBytes: 400, SentBytes: 325_000, SentPackets: 1625},
		{Class: v1.ClassAF, MinBPS: 2.4e6},
		{Class: v1.ClassBE, DroppedPackets: 5, MarkedPackets: 15},
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("class %d is seen as %+v, want %+v", i, got[i], want[i])
		}
	}
	// EF's maximum is of what the container may have: what is held back is not.
	s.class.AllocatedBPS, s.class.HeldBackBPS = 6e6, 2e6
	if got := s.view().Classes; got[0].MaxBPS != 3e6 {
		t.Errorf("held back: %+v", got)
	}
	// The classes were made again.
	s.uplink.classLedger.ClassesMade()
	if got := count(2*time.Second, 1000, 0); got[0].SentBytes != 326_000 || got[2].DroppedPackets != 5 || got[2].MarkedPackets != 15 {
		t.Errorf("after the classes were made again: %+v", got)
	}
	s.rest()
	if got := s.view().Classes; got[0].RateBPS != 0 || got[0].BacklogBytes != 0 || got[0].SentBytes != 326_000 {
		t.Errorf("at rest: %+v", got)
	}
	c.resolved.Policy.Class = v1.ClassBE
	s.count(epoch.Add(3 * time.Second))
	s.uplink.classLedger.Keep(func(uint16) bool { return false })
	if got := s.view().Classes; len(got) != 1 || got[0].Class != v1.ClassBE || got[0].SentBytes != s.totals.SentBytes {
		t.Errorf("all of it BE: %+v", got)
	}
	c.resolved.Policy.Class = v1.ClassAuto
	if got := count(4*time.Second, 500, 0); got[0].SentBytes != 500 {
		t.Errorf("counted anew: %+v", got)
	}
	sums := addClasses(addClasses(nil, got), got)
	if len(sums) != 3 || sums[0].RateBPS != 2*got[0].RateBPS || sums[1].MinBPS != 2*got[1].MinBPS {
		t.Errorf("at two uplinks: %+v", sums)
	}
}

// EF above its maximum is shown as it happens, and told when it begins and when it has
// been over for some seconds. What an earlier agent saw is not.
func TestExcess(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.start("c", "class=auto", "ef-max=5mbit")
	b.classifier.excess = map[uint16]uint64{c.container.Number: 1e6}
	ef := func(at time.Duration) v1.ClassShare {
		b.link.measuredAt = epoch.Add(at)
		c.count(epoch.Add(at))
		return c.view().Classes[0]
	}
	if got := ef(0); got.Held || got.ExcessBytes != 0 || got.ExcessBPS != 0 {
		t.Errorf("of an earlier agent: %+v", got)
	}
	b.classifier.excess[c.container.Number] += 125_000
	if got := ef(time.Second); !got.Held || got.ExcessBytes != 125_000 || got.ExcessBPS != 1e6 {
		t.Errorf("a second with too much: %+v", got)
	}
	if got := ef(3 * time.Second); !got.Held || got.ExcessBPS != 0 {
		t.Errorf("two seconds after it: %+v", got)
	}
	if got := ef(7 * time.Second); got.Held || got.ExcessBytes != 125_000 {
		t.Errorf("when it is over: %+v", got)
	}
	b.classifier.excess[c.container.Number] = 1000 // the uplink has a new classifier
	if got := ef(8 * time.Second); !got.Held || got.ExcessBytes != 126_000 {
		t.Errorf("counted anew: %+v", got)
	}
	c.rest()
	if got := c.view().Classes[0]; got.ExcessBPS != 0 {
		t.Errorf("at rest: %+v", got)
	}
}

// Delays of each class are shown beside those of all.
func TestClassDelays(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.start("c", "class=auto")
	measured := &fakeDelays{}
	b.useDelays(measured)
	c.countClasses(epoch)
	c.wake(epoch)
	(*[16]uint32)(unsafe.Pointer(&measured.histogram))[10] = 100 // packets in one of its buckets
	c.delay.turn(c)
	classes := c.view().Classes
	if classes[0].DelayP99MS == 0 || classes[0].DelayP99MS != c.view().DelayP99MS || classes[1].DelayP99MS != 0 {
		t.Errorf("shown are %+v", classes)
	}
	b.link.forgetMeasurements(uplink.Change{Classified: true})
	c.delay.turn(c)
	if got := c.view().Classes[0].DelayP99MS; got != 0 {
		t.Errorf("of another classifier %v is shown", got)
	}
}
