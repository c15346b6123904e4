package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

// link is 100 Mbit/s with a reserve of 5 %.
var link = Link{RateBPS: 100e6, ReserveBasisPoints: 500}

// floors are claims written as "asked" or "asked/held", in Mbit/s.
func floors(t *testing.T, words string) []Claim {
	t.Helper()
	var claims []Claim
	for _, word := range strings.Fields(words) {
		var asked, held uint64
		if n, err := fmt.Sscanf(word, "%d/%d", &asked, &held); n == 0 {
			t.Fatalf("%s: %v", word, err)
		}
		claims = append(claims, Claim{FloorBPS: asked * 1e6, HeldBPS: held * 1e6})
	}
	return claims
}

// answers are grants written as the floor in force, with a ! where more was
// asked for.
func answers(grants ...Grant) string {
	var words []string
	for _, g := range grants {
		word := fmt.Sprint(g.FloorBPS / 1e6)
		if g.Refused != nil {
			word += "!"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestAdmit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		host   string
		claims string
		want   string // the host's first
	}{
		{"nobody asks", "0", "0 0", "0 0 0"},
		{"in the order of start", "0", "60 40 35", "0 60 0! 35"},
		{"all at once", "0", "60 60", "0 60 0!"},
		{"what is granted stays, also where an earlier one asks now", "0", "10 50/50 45/45", "0 0! 50 45"},
		{"a raise that is refused keeps what was held", "0", "60/50 40/40", "0 50! 40"},
		{"a raise that fits", "0", "55/50 40/40", "0 55 40"},
		{"a raise counts once", "0", "40/30 55", "0 40 55"},
		{"a lower floor makes room at once", "0", "40/0 55/60", "0 40 55"},
		{"a later one's lower floor makes room for an earlier one", "0", "60 30/90", "0 60 30"},
		{"all of the rate but the reserve", "0", "95", "0 95"},
		{"no more than that", "0", "96", "0 0!"},
		{"the host's own comes first", "20", "80 75", "20 0! 75"},
		{"the host's own does not fit", "200", "80", "0! 80"},
		{"the host's own does not fit beside what is granted", "30/10", "80/80 5", "10! 80 5"},
		{"a raise of the host's own that fits", "15/10", "80/80 5", "15 80 0!"},
		{"what the host was granted stays on a slower link", "60/60", "70/70", "60 70"},
		{"the link is slower than what was granted", "0", "70/70 60/60 1", "0 70 60 0!"},
	} {
		host, grants := link.Admit(floors(t, tc.host)[0], floors(t, tc.claims))
		if got := answers(append([]Grant{host}, grants...)...); got != tc.want {
			t.Errorf("%s: granted %s, want %s", tc.name, got, tc.want)
		}
	}
	_, grants := link.Admit(Claim{}, floors(t, "60 40"))
	var refusal *alloc.FloorError
	if !errors.As(grants[1].Refused, &refusal) || refusal.FreeBPS != 35e6 {
		t.Errorf("refused with %v", grants[1].Refused)
	}
}

// Whatever is asked for and whoever comes and goes: what is granted fits, is
// kept, nothing that would fit is refused, and a claim that could be granted as a
// whole is.
func TestAdmitAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		floor := rapid.SampledFrom([]uint64{0, 1e5, 5e6, 20e6, 30e6, 47e6, 90e6, 96e6})
		var claims []Claim
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch {
			case len(claims) == 0 || rapid.IntRange(0, 2).Draw(t, "what") == 0:
				claims = append(claims, Claim{FloorBPS: floor.Draw(t, "floor")})
			case rapid.Bool().Draw(t, "stop"):
				i := rapid.IntRange(0, len(claims)-1).Draw(t, "who")
				claims = slices.Delete(claims, i, i+1)
			default:
				claims[rapid.IntRange(0, len(claims)-1).Draw(t, "who")].FloorBPS = floor.Draw(t, "floor")
			}
			_, grants := link.Admit(Claim{}, claims)
			total := uint64(0)
			for i, g := range grants {
				total += g.FloorBPS
				if g.FloorBPS < min(claims[i].HeldBPS, claims[i].FloorBPS) {
					t.Fatalf("%d was granted, now it is %d", claims[i].HeldBPS, g.FloorBPS)
				}
				if (g.Refused != nil) != (g.FloorBPS < claims[i].FloorBPS) {
					t.Fatalf("asked %d, granted %d, refused: %v", claims[i].FloorBPS, g.FloorBPS, g.Refused)
				}
			}
			if total > 95e6 {
				t.Fatalf("%d granted", total)
			}
			for i, g := range grants {
				claims[i].HeldBPS = g.FloorBPS
				fits := link.Admits(total-g.FloorBPS, claims[i]) == nil
				if fits != (g.Refused == nil) {
					t.Fatalf("%d refused: %v, while %d is granted; it would be admitted now: %t", claims[i].FloorBPS, g.Refused, total, fits)
				}
			}
		}
	})
}

// What is refused at a request is what is refused when it is in a label.
func TestLatency(t *testing.T) {
	for _, tc := range []struct {
		name     string
		linkBPS  uint64
		floorBPS uint64
		latency  time.Duration
		smallest time.Duration // 0: it can be kept
	}{
		{"none", 100e6, 10e6, 0, 0},
		{"plenty", 100e6, 10e6, 20 * time.Millisecond, 0},
		// 2000 bits: a packet of 200 bytes is within it, a full frame is not.
		{"CNTC's own numbers", 100e6, 100e3, 20 * time.Millisecond, 0},
		{"just above two packets on the link", 100e6, 10e6, 501 * time.Microsecond, 0},
		{"below two packets on the link", 100e6, 90e6, 400 * time.Microsecond, 500001 * time.Nanosecond},
		{"the slow link's frame", 1e6, 900e3, 20 * time.Millisecond, 24224001 * time.Nanosecond},
	} {
		l := Link{RateBPS: tc.linkBPS, ReserveBasisPoints: 500}
		claim := Claim{FloorBPS: tc.floorBPS, Latency: tc.latency}
		host, grants := l.Admit(Claim{}, []Claim{claim})
		g, err := grants[0], l.Admits(host.FloorBPS, claim)
		if tc.smallest == 0 {
			if g.Latency != tc.latency || g.RefusedLatency != nil || err != nil {
				t.Errorf("%s: %+v, and %v", tc.name, g, err)
			}
			continue
		}
		var refusal *alloc.LatencyError
		if !errors.As(g.RefusedLatency, &refusal) || refusal.Min != tc.smallest || g.Latency != 0 || g.FloorBPS != tc.floorBPS {
			t.Errorf("%s: %+v", tc.name, g)
		}
		if err == nil || err.Error() != g.RefusedLatency.Error() {
			t.Errorf("%s: a request is answered %v", tc.name, err)
		}
	}
	// A bound needs the floor that is granted, not the one that was asked for.
	_, grants := link.Admit(Claim{}, []Claim{{FloorBPS: 90e6}, {FloorBPS: 50e6, Latency: 20 * time.Millisecond}})
	if g := grants[1]; g.Latency != 0 || g.RefusedLatency == nil || !strings.HasSuffix(g.RefusedLatency.Error(), "without the minimum rate, which was refused") {
		t.Errorf("without its floor: %+v", g)
	}
	var refusal *alloc.FloorError
	if err := link.Admits(90e6, Claim{FloorBPS: 50e6}); !errors.As(err, &refusal) || refusal.FreeBPS != 5e6 {
		t.Errorf("a floor that does not fit: %v", err)
	}
}

func TestEntitle(t *testing.T) {
	competitor := func(weight uint32, floorBPS uint64) alloc.Container {
		return alloc.Container{Weight: weight, FloorBPS: floorBPS, CeilingBPS: alloc.Unlimited, DemandBPS: alloc.Unlimited}
	}
	two := []alloc.Container{competitor(100, 0), competitor(300, 0)}
	slow := []alloc.Container{competitor(100, 70e6), competitor(100, 60e6), competitor(100, 0)}
	for _, tc := range []struct {
		name       string
		host       alloc.Container
		competes   bool
		containers []alloc.Container
		want       string // the host's first
	}{
		{"an idle host takes nothing", competitor(100, 0), false, two, "0bit 25mbit 75mbit"},
		{"one that wants more competes", competitor(100, 0), true, two, "20mbit 20mbit 60mbit"},
		{"by its weight", competitor(400, 0), true, two, "50mbit 12.5mbit 37.5mbit"},
		{"its floor is kept for it, idle or not", competitor(100, 20e6), false, two[:1], "20mbit 80mbit"},
		{"and lifts it when it competes", competitor(100, 60e6), true, two[:1], "60mbit 40mbit"},
		{"nobody else", competitor(100, 0), false, nil, "0bit"},
		{"floors that do not fit any more leave the reserve", competitor(100, 0), false, slow, "0bit 51.2mbit 43.8mbit 5mbit"},
		{"also beside one of the host's", competitor(100, 20e6), false, slow, "20mbit 40.4mbit 34.6mbit 5mbit"},
		{"which competes for it", competitor(100, 0), true, slow, "2.5mbit 51.2mbit 43.8mbit 2.5mbit"},
	} {
		host, all := link.Entitle(&alloc.Allocator{}, tc.host, tc.competes, tc.containers)
		var words []string
		sum, entitled := sched.ControlBPS(link.RateBPS), uint64(0)
		for i, e := range append([]Entitlement{host}, all...) {
			words = append(words, policy.FormatRateShort(e.BPS))
			sum += e.GuaranteeableBPS
			entitled += e.BPS
			if reserve := i == 0 && !tc.competes; e.GuaranteeableBPS > e.BPS && !reserve {
				t.Errorf("%s: %d can be guaranteed of %d", tc.name, e.GuaranteeableBPS, e.BPS)
			}
		}
		if got := strings.Join(words, " "); got != tc.want {
			t.Errorf("%s: entitled to %s, want %s", tc.name, got, tc.want)
		}
		if sum > link.RateBPS {
			t.Errorf("%s: %d guaranteed, control traffic included", tc.name, sum)
		}
		if entitled > link.RateBPS {
			t.Errorf("%s: %d entitled to, of %d", tc.name, entitled, link.RateBPS)
		}
		if host.GuaranteeableBPS < link.RateBPS/hostReserveDivisor {
			t.Errorf("%s: %d is kept for the host", tc.name, host.GuaranteeableBPS)
		}
	}
	if two[0] != competitor(100, 0) || two[:1][0].FloorBPS != 0 || two[1].Weight != 300 {
		t.Error("the arguments were changed")
	}
}

// A host class has its reserve, idle or not, beside any containers, also where the link is
// slower than what they were granted, and no share exceeds the link.
func TestHostReserveHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Link{RateBPS: rapid.Uint64Range(64e3, 1e12).Draw(t, "rate")}
		host := alloc.Container{
			Weight: rapid.Uint32Range(0, policy.MaxWeight).Draw(t, "host weight"), CeilingBPS: alloc.Unlimited, DemandBPS: alloc.Unlimited,
			FloorBPS: rapid.Uint64Range(0, l.RateBPS/20).Draw(t, "host floor"),
		}
		n := rapid.SampledFrom([]int{0, 1, 2, 100, 1000}).Draw(t, "containers")
		weight := rapid.SampledFrom([]uint32{0, 1, 100, policy.MaxWeight}).Draw(t, "weight")
		floor := rapid.SampledFrom([]uint64{0, l.RateBPS / 2000, l.RateBPS}).Draw(t, "floor")
		containers := slices.Repeat([]alloc.Container{{Weight: weight, FloorBPS: floor, CeilingBPS: alloc.Unlimited, DemandBPS: alloc.Unlimited}}, n)
		reserve := l.HostReserveBPS(0)
		for _, competes := range []bool{false, true} {
			got, all := l.Entitle(new(alloc.Allocator), host, competes, containers)
			if got.GuaranteeableBPS < reserve || competes && got.BPS < reserve {
				t.Fatalf("competes %t: the host class is entitled to %+v, less than %d", competes, got, reserve)
			}
			entitled, guaranteeable := got.BPS, got.GuaranteeableBPS
			for _, e := range all {
				entitled, guaranteeable = entitled+e.BPS, guaranteeable+e.GuaranteeableBPS
			}
			if entitled > l.RateBPS || guaranteeable > l.RateBPS-sched.ControlBPS(l.RateBPS) {
				t.Fatalf("competes %t: entitled to %d, guaranteed %d of %d", competes, entitled, guaranteeable, l.RateBPS)
			}
		}
		var d Division
		l.Allocate(new(alloc.Allocator), &d, append(containers, host), true)
		if got := d.AllocatedBPS[n]; got < reserve {
			t.Fatalf("the host class may send %d, less than %d", got, reserve)
		}
	})
}

// What is granted can be guaranteed, however small the reserve.
func TestAdmittedIsGuaranteed(t *testing.T) {
	for _, host := range []uint64{0, 1e6, 20e6} {
		for _, reserve := range []uint32{0, 100, 500} {
			l := Link{RateBPS: 100e6, ReserveBasisPoints: reserve}
			var refusal *alloc.FloorError
			_, refused := l.Admit(Claim{FloorBPS: host}, []Claim{{FloorBPS: 100e6}})
			if !errors.As(refused[0].Refused, &refusal) || refusal.FreeBPS == 0 {
				t.Fatalf("all of the rate: %v", refused[0].Refused)
			}
			hostGrant, grants := l.Admit(Claim{FloorBPS: host}, []Claim{{FloorBPS: refusal.FreeBPS}})
			container := alloc.Container{Weight: 1, FloorBPS: grants[0].FloorBPS, CeilingBPS: alloc.Unlimited}
			hostClass := alloc.Container{Weight: 100, FloorBPS: hostGrant.FloorBPS, CeilingBPS: alloc.Unlimited}
			for _, competes := range []bool{false, true} {
				_, e := l.Entitle(new(alloc.Allocator), hostClass, competes, []alloc.Container{container})
				if e[0].GuaranteeableBPS < grants[0].FloorBPS || grants[0].FloorBPS != refusal.FreeBPS {
					t.Errorf("reserve %d, host %d: granted %d of %d, of which %d can be guaranteed", reserve, host, grants[0].FloorBPS, refusal.FreeBPS, e[0].GuaranteeableBPS)
				}
			}
		}
	}
}

func TestReserves(t *testing.T) {
	if got := link.ReserveBPS(); got != 5e6 {
		t.Errorf("reserve %d", got)
	}
	if got := (Link{RateBPS: 100e6}).ReserveBPS(); got != 2e6 {
		t.Errorf("without a reserve: %d for the host and control traffic", got)
	}
	if got := link.HostReserveBPS(0); got != 1e6 {
		t.Errorf("the host's reserve is %d", got)
	}
	if got := link.HostReserveBPS(20e6); got != 20e6 {
		t.Errorf("with a floor it is %d", got)
	}
	if got := link.UnknownBPS(); got != 1e6 {
		t.Errorf("unknown origins may have %d", got)
	}
}

// What everybody may send now: the ideal allocation of what the host class leaves, or
// of all when it competes.
func TestAllocate(t *testing.T) {
	const greedy = alloc.Unlimited
	competitor := func(weight uint32, demandBPS uint64) alloc.Container {
		return alloc.Container{Weight: weight, CeilingBPS: alloc.Unlimited, DemandBPS: demandBPS}
	}
	for _, tc := range []struct {
		name       string
		hostBPS    uint64
		competes   bool
		demandsBPS [2]uint64 // of weights 100 and 300
		want       string    // of what
	}{
		{"silence", 0, false, [2]uint64{0, 0}, "0bit 0bit of 100mbit"},
		{"one sends", 0, false, [2]uint64{greedy, 0}, "100mbit 0bit of 100mbit"},
		{"both", 0, false, [2]uint64{greedy, greedy}, "25mbit 75mbit of 100mbit"},
		{"what the idle host sends is not given away", 800e3, false, [2]uint64{greedy, greedy}, "24.8mbit 74.4mbit of 99.2mbit"},
		{"one leaves something", 0, false, [2]uint64{greedy, 30e6}, "70mbit 30mbit of 100mbit"},
		{"the host competes", greedy, true, [2]uint64{greedy, greedy}, "20mbit 60mbit 20mbit of 100mbit"},
		{"and has what it wants", 10e6, true, [2]uint64{greedy, greedy}, "22.5mbit 67.5mbit 10mbit of 100mbit"},
		{"an idle host that floods", greedy, false, [2]uint64{greedy, greedy}, "0bit 0bit of 0bit"},
	} {
		var d Division
		competitors := []alloc.Container{competitor(100, tc.demandsBPS[0]), competitor(300, tc.demandsBPS[1]), competitor(100, tc.hostBPS)}
		for range 2 { // also with the memory of another
			link.Allocate(&alloc.Allocator{}, &d, competitors, tc.competes)
		}
		var words []string
		for _, bps := range d.AllocatedBPS {
			words = append(words, policy.FormatRateShort(bps))
		}
		words = append(words, "of", policy.FormatRateShort(d.CapacityBPS))
		if got := strings.Join(words, " "); got != tc.want || len(d.EntitledBPS) != len(d.AllocatedBPS) {
			t.Errorf("%s: allocated %s, want %s", tc.name, got, tc.want)
		}
	}
}

// A division that is used again is that of a new one.
func TestAllocateAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Division
		var a alloc.Allocator
		l := Link{RateBPS: 100e6}
		competitors := slices.Repeat([]alloc.Container{{Weight: 100, CeilingBPS: alloc.Unlimited}}, rapid.IntRange(1, 5).Draw(t, "competitors"))
		competes := false
		for range 20 {
			c := &competitors[rapid.IntRange(0, len(competitors)-1).Draw(t, "competitor")]
			some := rapid.SampledFrom([]uint64{0, 1e6, 7e6, 30e6, alloc.Unlimited})
			switch rapid.SampledFrom([]string{"demand", "demand", "weight", "floor", "ceiling", "priority", "rate", "host", "number", "host for a container"}).Draw(t, "change") {
			case "demand":
				c.DemandBPS = some.Draw(t, "demand")
			case "weight":
				c.Weight = rapid.Uint32Range(0, 3).Draw(t, "weight")
			case "floor":
				c.FloorBPS = min(some.Draw(t, "floor"), 50e6)
			case "ceiling":
				c.CeilingBPS = some.Draw(t, "ceiling")
			case "priority":
				c.Priority = rapid.Uint32Range(0, 2).Draw(t, "priority")
			case "rate":
				l.RateBPS = rapid.Uint64Range(1e6, 100e6).Draw(t, "rate")
			case "host":
				competes = !competes
			case "number":
				competitors = append(competitors, *c)
			case "host for a container": // those that compete may look the same
				if competes = !competes; competes && len(competitors) > 1 {
					competitors = competitors[:len(competitors)-1]
				} else {
					competitors = append(competitors, competitors[len(competitors)-1])
				}
			}
			var fresh Division
			l.Allocate(new(alloc.Allocator), &fresh, competitors, competes)
			l.Allocate(&a, &d, competitors, competes)
			if !slices.Equal(d.AllocatedBPS, fresh.AllocatedBPS) || !slices.Equal(d.EntitledBPS, fresh.EntitledBPS) {
				t.Fatalf("again: entitled %v, allocated %v; want %v, %v", d.EntitledBPS, d.AllocatedBPS, fresh.EntitledBPS, fresh.AllocatedBPS)
			}
		}
	})
}

func TestHostCompetes(t *testing.T) {
	for _, tc := range []struct {
		floorBPS, demandBPS uint64
		want                bool
	}{{0, 0, false}, {0, 1e6, false}, {0, 1e6 + 1, true}, {20e6, 20e6, false}, {20e6, alloc.Unlimited, true}} {
		if got := link.HostCompetes(tc.floorBPS, tc.demandBPS); got != tc.want {
			t.Errorf("with %d it wants %d: competes %t", tc.floorBPS, tc.demandBPS, got)
		}
	}
}
