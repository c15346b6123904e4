package htb

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/plan"
	"github.com/weir-project/weir/internal/share/sched"
)

// A guarantee is cut by a 256th at most, by two once the entitlement has
// changed, and never below the minimum.
func TestGuarantee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s member
		steps := uint64(1)
		for range 3 {
			bps := rapid.Uint64Range(0, 100e9).Draw(t, "bps")
			s.want.FloorBPS = rapid.Uint64Range(0, bps).Draw(t, "minimum")
			s.guarantee(bps, s.want.FloorBPS)
			if s.guaranteedBPS > bps || s.guaranteedBPS < bps-steps*(bps/guaranteeSteps) || s.guaranteedBPS < s.want.FloorBPS {
				t.Fatalf("%d of %d, minimum %d", s.guaranteedBPS, bps, s.want.FloorBPS)
			}
			steps = 2
		}
	})
}

// Small changes of the entitlement seldom change the guarantee.
func TestGuaranteeStays(t *testing.T) {
	changes := func(containers func(n int) int, turns int) int {
		var s member
		s.guarantee(100e6/uint64(containers(0)), 0)
		changes := 0
		for n := range turns {
			before := s.guaranteedBPS
			if s.guarantee(100e6/uint64(containers(n+1)), 0); s.guaranteedBPS != before {
				changes++
			}
		}
		return changes
	}
	// 500 containers more, one after the other, halve it, step by step.
	if n := changes(func(n int) int { return 500 + n }, 500); n > guaranteeSteps {
		t.Errorf("500 containers more changed everybody's guarantee %d times", n)
	}
	// Wherever a thousand stand, one that comes and goes soon changes nothing.
	for base := range 500 {
		if n := changes(func(n int) int { return 1000 + base + n%2 }, 1000); n > 1 {
			t.Errorf("one that comes and goes beside %d changed everybody's guarantee %d times", 1000+base, n)
		}
	}
}

func TestEntitle(t *testing.T) {
	b := newBed(t, 100e6)
	a, c := b.start(weight(100)), b.start(weight(300))
	// An idle host takes nothing from anybody; its reserve is kept for it.
	if got := entitled(a, c, b.host); got != "25mbit 75mbit 0bit" || b.host.guaranteedBPS != 1e6 {
		t.Errorf("host idle: entitled to %s, %d guaranteed", got, b.host.guaranteedBPS)
	}
	// Also while it sends no more than that.
	b.host.demand.DemandBPS = 1e6
	b.setWanted(b.tree)
	if got := entitled(a, c, b.host); got != "25mbit 75mbit 0bit" {
		t.Errorf("host within its reserve: entitled to %s", got)
	}
	// Then it competes like a container of its weight.
	b.host.demand.DemandBPS = 1e6 + 1
	b.setWanted(b.tree)
	if got := entitled(a, c, b.host); got != "20mbit 60mbit 20mbit" {
		t.Errorf("host competing: entitled to %s", got)
	}
	b.change(b.host, weight(400))
	b.setWanted(b.tree)
	if got := entitled(a, c, b.host); got != "12.5mbit 37.5mbit 50mbit" {
		t.Errorf("host with a weight of 400: entitled to %s", got)
	}

	// A minimum of the host is kept for it, idle or not.
	b = newBed(t, 100e6)
	b.change(b.host, floor(20e6))
	a = b.start()
	if got := entitled(a, b.host); got != "80mbit 20mbit" {
		t.Errorf("host with a minimum: entitled to %s", got)
	}
}

func TestAllocate(t *testing.T) {
	b := newBed(t, 100e6)
	a, c := b.start(weight(100)), b.start(weight(300))
	greedy := func(list ...*member) {
		for _, m := range b.members {
			m.demand.DemandBPS = 0
			if slices.Contains(list, m) {
				m.demand.DemandBPS = alloc.Unlimited
			}
		}
		b.setWanted(b.tree)
	}
	for _, tc := range []struct {
		greedy []*member
		want   string
	}{
		{nil, "0bit 0bit 1mbit"},
		{[]*member{a}, "100mbit 0bit 1mbit"},
		{[]*member{a, c}, "25mbit 75mbit 1mbit"},
		{[]*member{a, c, b.host}, "20mbit 60mbit 20mbit"},
		{[]*member{c, b.host}, "0bit 75mbit 25mbit"},
		{[]*member{b.host}, "0bit 0bit 100mbit"},
	} {
		greedy(tc.greedy...)
		if got := allocations(a, c, b.host); got != tc.want {
			t.Errorf("%d greedy: allocated %s, want %s", len(tc.greedy), got, tc.want)
		}
	}

	// What the idle host sends is not given away a second time.
	greedy(a, c)
	b.host.demand.DemandBPS = 525e3
	b.setWanted(b.tree)
	if sum := a.allocatedBPS + c.allocatedBPS; sum != 99.5e6 {
		t.Errorf("the host sends 500 kbit/s, the others may send %d", sum)
	}

	// Changes that do not matter are left, others are not.
	// What somebody may send above what it does at present is nobody's loss.
	c.demand.DemandBPS = 31.5e6
	if !b.allocate(false) || a.allocatedBPS != 69.5e6 || c.allocatedBPS != 31.5e6 {
		t.Errorf("allocated %s", allocations(a, c))
	}
	c.demand.DemandBPS = 31.5e6 + 52.5e3
	if b.allocate(false) || a.allocatedBPS != 69.5e6 {
		t.Errorf("a change of 50 kbit/s: allocated %s", allocations(a, c))
	}
	if !b.allocate(true) || a.allocatedBPS != 69.45e6 {
		t.Errorf("exactly: allocated %d", a.allocatedBPS)
	}
}

// Whoever runs and whoever sends: what the kernel guarantees to all classes,
// control traffic and the host included, fits the link, for it holds also when
// nobody adjusts anything. And every guaranteed minimum is among that.
func TestGuaranteesFitTheLink(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := uint64(math.Pow(10, rapid.Float64Range(6, 10.5).Draw(rt, "log10 of the rate")))
		b := newBed(t, rate)
		var asked plan.Claim
		if rapid.Bool().Draw(rt, "host has a minimum") {
			asked.FloorBPS = rapid.Uint64Range(1, rate).Draw(rt, "host's minimum")
		}
		var claims []plan.Claim
		for range rapid.IntRange(0, 10).Draw(rt, "containers") {
			b.start(weight(rapid.Uint32Range(1, 10_000).Draw(rt, "weight")))
			var claim plan.Claim
			if rapid.Bool().Draw(rt, "has a minimum") {
				claim.FloorBPS = rapid.Uint64Range(1, rate/2).Draw(rt, "minimum")
			}
			claims = append(claims, claim)
		}
		link := plan.Link{RateBPS: rate, ReserveBasisPoints: rapid.Uint32Range(0, 5000).Draw(rt, "reserve")}
		host, grants := link.Admit(asked, claims)
		b.change(b.host, floor(host.FloorBPS))
		for i, m := range b.containers() {
			b.change(m, floor(grants[i].FloorBPS))
			m.demand.DemandBPS = rapid.SampledFrom([]uint64{0, rate / 10, alloc.Unlimited}).Draw(rt, "demand")
		}
		b.host.demand.DemandBPS = rapid.SampledFrom([]uint64{0, rate / 200, rate / 3, alloc.Unlimited}).Draw(rt, "host's demand")
		b.Forget() // the kernel of the bed has nothing, then all
		b.kernel.ops = nil
		b.reconcile()

		sum := uint64(0)
		isShare := map[kernel.Handle]bool{}
		for _, op := range b.kernel.ops {
			if op.Class != nil {
				isShare[op.Class.Parent] = true
			}
		}
		for _, op := range b.kernel.ops {
			if op.Class != nil && op.Class.Handle.Major() == classMajor && !isShare[op.Class.Handle] {
				sum += op.Class.Options.(kernel.HTBClass).RateBytesPerSec * 8
			}
		}
		// A rate of less than a byte per second is one byte per second.
		if sum > rate+8*uint64(len(b.members)) || sum == 0 {
			rt.Fatalf("guarantees of %d bit/s on a link of %d, %.2f%%", sum, rate, 100*float64(sum)/float64(rate))
		}
		shares := uint64(0)
		for _, m := range b.members {
			if m.guaranteedBPS < m.want.FloorBPS {
				rt.Fatalf("%d: %d guaranteed, minimum %d", m.want.Number, m.guaranteedBPS, m.want.FloorBPS)
			}
			if m.demand.DemandBPS == alloc.Unlimited {
				shares += m.allocatedBPS
			}
		}
		if reserve := link.HostReserveBPS(0); b.host.guaranteedBPS < reserve {
			rt.Fatalf("%d guaranteed to the host class, its reserve is %d", b.host.guaranteedBPS, reserve)
		}
		if shares > rate {
			rt.Fatalf("%d allocated to greedy senders on a link of %d", shares, rate)
		}
	})
}

// Only who has no maximum may go past the classes, and that is known to the
// classifier when the kernel is told of a maximum.
func TestWhoMayGoDirect(t *testing.T) {
	b := newBed(t, 100e6)
	a, c, d := b.start(), b.start(maximum(50e6)), b.start(maximum(1e9))
	mayNot := func(when string, want ...uint16) {
		t.Helper()
		var got []uint16
		for _, d := range b.traffic.direct {
			if !d.May {
				got = append(got, d.Number)
			}
		}
		if len(b.traffic.direct) != len(b.members) || !slices.Equal(got, want) {
			t.Errorf("%s: of %v these may not go direct: %v, want %v", when, b.traffic.direct, got, want)
		}
	}
	mayNot("at first", c.want.Number)
	if want := (sched.Bounds{RateBPS: 100e6, DirectBytes: 4166, ControlBPS: 1e6}); b.traffic.bounds != want {
		t.Errorf("the classifier knows %+v, want %+v", b.traffic.bounds, want)
	}
	told := 0
	b.kernel.onApply = func() {
		told++
		mayNot("when the kernel is told", a.want.Number, d.want.Number)
	}
	b.change(a, maximum(20e6))
	b.change(c, maximum(100e6))
	b.change(d, maximum(99e6))
	b.reconcile()
	if told != 1 {
		t.Errorf("the kernel was told %d times", told)
	}
	b.kernel.onApply = nil
	b.stop(a)
	b.reconcile()
	mayNot("with one gone", d.want.Number)
	b.traffic.err = errors.New("no such map")
	applies := b.kernel.applies
	b.change(c, maximum(10e6))
	if err := b.Apply(b.tree); !errors.Is(err, b.traffic.err) || b.kernel.applies > applies {
		t.Errorf("a maximum is applied that may be passed by: %v", err)
	}
	// Without a classifier nothing goes past the classes.
	b.Disconnect()
	b.reconcile()
	if _, err := b.Turn(epoch, false); !errors.Is(err, errNotConnected) {
		t.Errorf("it looks at nothing: %v", err)
	}
}

// How large the packets of a class are: as its devices are limited, which those of
// the host are not.
func TestPacketBytes(t *testing.T) {
	d := division{link: plan.Link{RateBPS: 100e6}}
	for _, test := range []struct {
		name        string
		ownDevices  bool
		maxBPS      uint64
		entitledBPS uint64
		want        uint32
	}{
		{"the link's", true, alloc.Unlimited, 50e6, 3125},
		{"a small share", true, alloc.Unlimited, 2e6, 1514},
		{"a small maximum", true, 10e6, 50e6, 1514},
		{"in the host's network", false, alloc.Unlimited, 2e6, 0},
	} {
		m := &member{want: sched.Competitor{OwnDevices: test.ownDevices, CeilingBPS: test.maxBPS}, entitledBPS: test.entitledBPS}
		if got := d.packetBytes(m); got != test.want || d.class(m).PacketBytes != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}
