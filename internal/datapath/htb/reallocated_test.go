package htb

import (
	"maps"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// wiredDevice is a device whose counters are those of a wire.
type wiredDevice struct {
	*device
	counters *counters
}

func (d wiredDevice) ClassStats(_ int, handles []kernel.Handle, dst []kernel.ClassStats) ([]kernel.ClassStats, error) {
	for _, h := range handles {
		s := d.counters.stats[numberOf(h.Minor())]
		read := kernel.ClassStats{Handle: h, SentBytes: s.sentBytes}
		if kind := kindOf(h.Minor()); innerBits(h) == 0 && (kind == sched.Unclassified || kind == sched.BE) {
			read.BacklogBytes = uint32(s.backlogBytes)
		}
		dst = append(dst, read)
	}
	return dst, nil
}

// TestReallocated: whatever containers do and whatever is wanted of them, the loop, which applies what has changed,
// leaves the kernel and the classifier as if it had applied everything.
func TestReallocated(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBed(t, 100e6)
		d := &device{}
		b.device.tc = wiredDevice{d, b.kernel}
		b.Forget()
		b.reconcile()
		l := newWire(b)
		option := func() func(*sched.Competitor) {
			weight := rapid.SampledFrom([]uint32{0, 1, 100, 300}).Draw(rt, "weight")
			floor := rapid.SampledFrom([]uint64{0, 3e6, 10e6}).Draw(rt, "floor")
			ceiling := rapid.SampledFrom([]uint64{alloc.Unlimited, 20e6}).Draw(rt, "ceiling")
			latency := rapid.SampledFrom([]time.Duration{0, 5 * time.Millisecond}).Draw(rt, "latency")
			ordered := rapid.Bool().Draw(rt, "ordered")
			return func(c *sched.Competitor) {
				c.Weight, c.FloorBPS, c.CeilingBPS, c.Latency = weight, floor, ceiling, latency
				if c.Traffic = (sched.TrafficClasses{}); ordered {
					c.Traffic = sched.TrafficClasses{Ordered: true, Parts: halfAndThird}
				}
			}
		}
		any := func() *member { return rapid.SampledFrom(b.members).Draw(rt, "member") }
		rt.Repeat(map[string]func(*rapid.T){
			"start": func(rt *rapid.T) {
				if len(b.members) > 6 {
					rt.Skip()
				}
				b.start(option())
			},
			"change": func(*rapid.T) {
				b.change(any(), option())
				b.reconcile()
			},
			"stop": func(*rapid.T) {
				if m := any(); m != b.host {
					b.stop(m)
					b.reconcile()
				}
			},
			"send": func(rt *rapid.T) { l.greedy[any()] = rapid.Bool().Draw(rt, "greedy") },
			"pace": func(rt *rapid.T) { l.paceBPS[any()] = rapid.Float64Range(0, 60e6).Draw(rt, "pace") },
			"refuse": func(*rapid.T) {
				d.refuse = func(kernel.Op) error { d.refuse = nil; return unix.ENOMEM }
			},
			"forget": func(*rapid.T) { b.Forget() },
			"wait":   func(rt *rapid.T) { l.run(time.Duration(rapid.IntRange(1, 400).Draw(rt, "ms")) * time.Millisecond) },
			"": func(rt *rapid.T) {
				if left := changes(desired(b.device.applied, b.device.leaf), d.have()); len(left) > 0 {
					rt.Fatalf("the kernel lacks:\n%s", lines(left))
				}
				for i, m := range b.members {
					if m == b.host && !b.hostCompetes {
						continue // insignificant changes wait for others
					}
					if got, want := b.device.applied.classes[i], b.class(m); got != want {
						rt.Fatalf("applied %+v\nwant    %+v", got, want)
					}
				}
				efBPS, direct := maps.Clone(b.traffic.efBPS), slices.Clone(b.traffic.direct)
				for _, m := range b.members {
					m.told = told{}
				}
				must.Succeed(t, b.setDirect())
				must.Succeed(t, b.tellTraffic(b.members))
				for _, m := range b.members {
					if n := m.want.Number; efBPS[n] != b.traffic.efBPS[n] && (m != b.host || b.hostCompetes) {
						rt.Fatalf("EF of %d may have %d, want %d", n, efBPS[n], b.traffic.efBPS[n])
					}
				}
				if !slices.Equal(direct, b.traffic.direct) {
					rt.Fatalf("direct are %v, want %v", direct, b.traffic.direct)
				}
			},
		})
	})
}

// TestReallocatedAfterRefusal: what could not be applied when it was wanted is applied with the next allocation.
func TestReallocatedAfterRefusal(t *testing.T) {
	b := newBed(t, 100e6)
	a, silent := b.start(), b.start()
	l := newWire(b)
	l.run(time.Second)
	b.change(silent, weight(300))
	b.traffic.err = unix.ENOMEM
	if err := b.Apply(b.tree); err == nil {
		t.Fatal("nothing was refused")
	}
	b.traffic.err = nil
	l.greedy[a] = true
	l.run(time.Second)
	if got, want := b.device.applied.classes[2], b.class(silent); got != want {
		t.Errorf("applied %+v\nwant    %+v", got, want)
	}
}

// TestReallocatedAfterAbort: leaf classes and EF limits that the classifier refused while the kernel's state was unknown
// reach the classifier again with the next allocation.
func TestReallocatedAfterAbort(t *testing.T) {
	b := newBed(t, 100e6)
	silent := b.start(func(c *sched.Competitor) {
		c.Traffic = sched.TrafficClasses{Ordered: true, Parts: halfAndThird}
	})
	b.Forget()
	silent.told, b.traffic.efErr = told{}, unix.ENOMEM
	clear(b.traffic.efBPS)
	if err := b.applyReallocated(); err == nil {
		t.Fatal("nothing was refused")
	}
	b.traffic.efErr = nil
	must.Succeed(t, b.applyReallocated())
	if b.traffic.efBPS[silent.want.Number] == 0 {
		t.Error("the classifier has no limit of EF")
	}
}
