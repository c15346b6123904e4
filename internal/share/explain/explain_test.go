package explain

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/plan"
)

// wantsMore is a demand without end.
const wantsMore = alloc.Unlimited

// sender is a container of a test: its policy and what it wants.
type sender struct {
	name   string
	policy v1.Policy
	demand uint64
}

// snapshot is what an agent would publish of an uplink of 100 Mbit/s: admitted,
// entitled and allocated by internal/share/plan and internal/share/alloc.
func snapshot(hostDemand uint64, senders ...sender) v1.Snapshot {
	link := plan.Link{RateBPS: 100e6, ReserveBasisPoints: 500}
	claims := make([]plan.Claim, len(senders))
	for i, s := range senders {
		claims[i] = plan.Claim{FloorBPS: s.policy.MinBPS}
	}
	_, grants := link.Admit(plan.Claim{}, claims)
	host := sender{"host", v1.Policy{Weight: 100}, hostDemand}
	competes := hostDemand > link.HostReserveBPS(0)
	all := make([]alloc.Container, 0, len(senders)+1)
	for i, s := range senders {
		all = append(all, competitor(s, grants[i].FloorBPS))
	}
	var allocator alloc.Allocator
	hostEntitled, entitled := link.Entitle(&allocator, competitor(host, 0), competes, all)
	var division plan.Division
	link.Allocate(&allocator, &division, append(all, competitor(host, 0)), competes)
	allocated := division.AllocatedBPS

	up := v1.Uplink{Name: "up0", RateBPS: link.RateBPS, ReserveBPS: link.ReserveBPS(), Present: true, State: v1.StateOK, HostCompetes: competes}
	seen := v1.Snapshot{Status: v1.Status{Uplinks: []v1.Uplink{up}}}
	for i, s := range senders {
		c := container(s, entitled[i].BPS, allocated[i], grants[i].FloorBPS)
		if s.policy.LatencyMS > 0 && grants[i].FloorBPS > 0 {
			c.Shares[0].LatencyMS = s.policy.LatencyMS
		}
		seen.Containers = append(seen.Containers, c)
	}
	if competes {
		hostDemand = allocated[len(senders)]
	}
	c := container(host, hostEntitled.BPS, hostDemand, 0)
	c.ID, c.Runtime = "host", "host"
	seen.Containers = append(seen.Containers, c)
	return seen
}

func competitor(s sender, floor uint64) alloc.Container {
	c := alloc.Container{Weight: s.policy.Weight, FloorBPS: floor, CeilingBPS: s.policy.MaxBPS, Priority: s.policy.Priority, DemandBPS: s.demand}
	if c.CeilingBPS == 0 {
		c.CeilingBPS = alloc.Unlimited
	}
	return c
}

func container(s sender, entitled, allocated, admitted uint64) v1.Container {
	share := v1.Share{Uplink: "up0", Controlled: true, EntitledBPS: entitled, AllocatedBPS: allocated, AdmittedBPS: admitted, WantedBPS: s.demand}
	if s.demand == wantsMore {
		share.WantsMore, share.WantedBPS = true, 0
	}
	return v1.Container{Name: s.name, Mode: v1.ModeBridge, Direction: v1.Direction{Policy: s.policy, EntitledBPS: entitled, AllocatedBPS: allocated, Shares: []v1.Share{share}}}
}

func weight(w uint32) v1.Policy { return v1.Policy{Weight: w} }

func TestContainer(t *testing.T) {
	web, db := sender{"web", weight(200), wantsMore}, sender{"db", weight(100), wantsMore}
	for _, tc := range []struct {
		name                         string
		seen                         v1.Snapshot
		entitled, allocated, forMore string // all sentences
	}{
		{
			"weight among two", snapshot(0, web, db),
			"the uplink sends 100mbit; its weight is 200 of the 300 of 2 containers that share by weight: 100mbit x 200/300 = 66.7mbit",
			"it wants more than it gets; all others send what they are entitled to: nothing is idle",
			"more weight: 400 instead of 200 would entitle it to 80mbit; a minimum above 66.7mbit: up to 95mbit can be guaranteed to it beside the others' minimums",
		},
		{
			"a minimum lifts", snapshot(0, sender{"web", v1.Policy{Weight: 100, MinBPS: 60e6}, wantsMore}, db),
			"its minimum of 60mbit lifts it there: its weight of 100 alone would give it 50mbit; the minimum is not added to that",
			"it wants more than it gets; all others send what they are entitled to: nothing is idle",
			"more weight: 200 instead of 100 would entitle it to 66.7mbit; a minimum above 60mbit: up to 95mbit can be guaranteed to it beside the others' minimums",
		},
		{
			"others' minimums and maximums come first",
			snapshot(0, web, db, sender{"low", v1.Policy{Weight: 1, MinBPS: 30e6}, wantsMore}, sender{"cut", v1.Policy{Weight: 100, MaxBPS: 10e6}, wantsMore}),
			"the uplink sends 100mbit, less 30mbit to what minimums alone decide (low), less 10mbit to what maximums hold down (cut): 60mbit is left to be shared by weight; " +
				"its weight is 200 of the 300 of 2 containers that share by weight: 60mbit x 200/300 = 40mbit",
			"it wants more than it gets; all others send what they are entitled to: nothing is idle",
			"more weight: 400 instead of 200 would entitle it to 48mbit; a minimum above 40mbit: up to 65mbit can be guaranteed to it beside the others' minimums",
		},
		{
			"a maximum cuts", snapshot(0, sender{"web", v1.Policy{Weight: 200, MaxBPS: 20e6}, wantsMore}, db),
			"its maximum of 20mbit holds it there: without it, its weight of 200 would give it 66.7mbit",
			"it wants more than it gets; its maximum of 20mbit is reached",
			"a higher maximum: without one it would be entitled to 66.7mbit and get 66.7mbit now",
		},
		{
			"idle bandwidth by weight", snapshot(0, web, sender{"api", weight(200), wantsMore}, sender{"db", weight(100), 5e6}),
			"the uplink sends 100mbit; its weight is 200 of the 500 of 3 containers that share by weight: 100mbit x 200/500 = 40mbit",
			"it wants more than it gets; others leave 15mbit idle, which goes by priority to those that want more; it gets 7.5mbit of it, shared with api by weight",
			"more weight: 400 instead of 200 would entitle it to 57.1mbit; a minimum above 40mbit: up to 95mbit can be guaranteed to it beside the others' minimums",
		},
		{
			"idle bandwidth goes to a higher priority", snapshot(0, web, sender{"vip", v1.Policy{Weight: 200, Priority: 7}, wantsMore}, sender{"db", weight(100), 0}),
			"the uplink sends 100mbit; its weight is 200 of the 500 of 3 containers that share by weight: 100mbit x 200/500 = 40mbit",
			"it wants more than it gets; others leave 20mbit idle, which goes by priority to those that want more; before it come vip; nothing of it reaches this one",
			"more weight: 400 instead of 200 would entitle it to 57.1mbit; a minimum above 40mbit: up to 95mbit can be guaranteed to it beside the others' minimums; " +
				"a higher priority: with 8 it would be first with what is idle and get 60mbit now",
		},
		{
			"weight 0", snapshot(0, sender{"rest", weight(0), wantsMore}, sender{"db", weight(100), 60e6}),
			"weight 0: no share by weight; without a minimum it is entitled to nothing and lives on what others leave",
			"it wants more than it gets; others leave 40mbit idle, which goes by priority to those that want more; it gets 40mbit of it",
			"more weight: 100 instead of 0 would entitle it to 50mbit; a minimum above 0bit: up to 95mbit can be guaranteed to it beside the others' minimums",
		},
		{
			"weight 0 with a minimum", snapshot(0, sender{"rest", v1.Policy{MinBPS: 10e6}, 4e6}, db),
			"weight 0: no share by weight; it is entitled to its minimum of 10mbit and lives on what others leave beyond that",
			"it wants 4mbit, less than it is entitled to, and gets all of it",
			"nothing now: it gets all that it wants; more weight: 100 instead of 0 would entitle it to 50mbit; a minimum above 10mbit: up to 95mbit can be guaranteed to it beside the others' minimums",
		},
		{
			"silent", snapshot(0, sender{"web", weight(100), 0}, db),
			"the uplink sends 100mbit; its weight is 100 of the 200 of 2 containers that share by weight: 100mbit x 100/200 = 50mbit",
			"it sends nothing; others have what it leaves, until it does: then it has 50mbit at once",
			"nothing now: it gets all that it wants; more weight: 200 instead of 100 would entitle it to 66.7mbit; a minimum above 50mbit: up to 95mbit can be guaranteed to it beside the others' minimums",
		},
		{
			"wants some of what is idle", snapshot(0, sender{"web", weight(100), 70e6}, sender{"db", weight(100), 10e6}),
			"the uplink sends 100mbit; its weight is 100 of the 200 of 2 containers that share by weight: 100mbit x 100/200 = 50mbit",
			"it wants 70mbit and gets all of it, 20mbit of that out of what others leave idle",
			"nothing now: it gets all that it wants; more weight: 200 instead of 100 would entitle it to 66.7mbit; a minimum above 50mbit: up to 95mbit can be guaranteed to it beside the others' minimums",
		},
		{
			"alone", snapshot(0, web),
			"the uplink sends 100mbit; its weight is 200 of the 200 of 1 container that share by weight: 100mbit x 200/200 = 100mbit",
			"it wants more than it gets; all others send what they are entitled to: nothing is idle",
			"a faster uplink: no other policy gives it more of 100mbit",
		},
		{
			"the host competes", snapshot(wantsMore, sender{"web", weight(100), wantsMore}),
			"the uplink sends 100mbit; its weight is 100 of the 200 of 2 containers that share by weight: 100mbit x 100/200 = 50mbit",
			"it wants more than it gets; all others send what they are entitled to: nothing is idle",
			"more weight: 200 instead of 100 would entitle it to 66.7mbit; a minimum above 50mbit: up to 95mbit can be guaranteed to it beside the others' minimums",
		},
	} {
		got := Container(tc.seen, 0).Shares[0]
		for _, part := range []struct {
			what, want string
			got        []string
		}{{"entitled", tc.entitled, got.Entitled}, {"allocated", tc.allocated, got.Allocated}, {"for more", tc.forMore, got.ForMore}} {
			if text := strings.Join(part.got, "; "); text != part.want {
				t.Errorf("%s, %s:\n %s\nwant\n %s", tc.name, part.what, text, part.want)
			}
		}
	}
}

func TestHost(t *testing.T) {
	db := sender{"db", weight(100), wantsMore}
	got := Container(snapshot(500e3, db), 1).Shares[0]
	want := "[a hundredth of the uplink's 100mbit is the host class's whenever it wants it, before containers have what they are entitled to it wants no more than that now; when it does, it competes as a container does, with weight 100] [it wants 500kbit and gets it] [nothing: it gets all that it wants]"
	if got.EntitledBPS != 1e6 {
		t.Errorf("an idle host is entitled to %d", got.EntitledBPS)
	}
	if text := fmt.Sprint(got.Entitled, " ", got.Allocated, " ", got.ForMore); text != want {
		t.Errorf("an idle host:\n%s\nwant\n%s", text, want)
	}
	got = Container(snapshot(wantsMore, db), 1).Shares[0]
	if text := fmt.Sprint(got.Entitled); !strings.Contains(text, "100mbit x 100/200 = 50mbit") {
		t.Errorf("a busy host: %s", text)
	}
	// Its reserve is its own also beside heavy containers, and they are told.
	seen := snapshot(wantsMore, sender{"heavy", weight(10_000), wantsMore}, sender{"heavier", weight(20_000), wantsMore})
	for index, want := range map[int]string{
		2: "[a hundredth of the uplink's 100mbit is always the host class's: its policy alone would give it 332kbit]",
		0: "[the uplink sends 100mbit, less the 1mbit that are always the host class's: 99mbit is left to be shared by weight its weight is 10000 of the 30000 of 2 containers that share by weight: 99mbit x 10000/30000 = 33mbit]",
	} {
		if text := fmt.Sprint(Container(seen, index).Shares[0].Entitled); text != want {
			t.Errorf("beside heavy containers:\n%s\nwant\n%s", text, want)
		}
	}
}

// What is not in force is said where the value is.
func TestValues(t *testing.T) {
	seen := snapshot(0,
		sender{"first", v1.Policy{Weight: 100, MinBPS: 80e6, LatencyMS: 20}, wantsMore},
		sender{"late", v1.Policy{Weight: 100, MinBPS: 30e6, MaxBPS: 20e6, LatencyMS: 5, Class: v1.ClassEF, EFMax: v1.Part{Percent: 50}, AFMin: v1.Part{BPS: 5e6}}, wantsMore})
	seen.Containers[1].PolicyFrom = v1.PolicyFrom{Weight: v1.LayerDefaults, Min: v1.LayerSet}
	spell := func(e v1.Explanation) string {
		var words []string
		for _, v := range e.Policy {
			words = append(words, fmt.Sprintf("%s=%s from %q %q", v.Name, v.Value, v.From, v.Notes))
		}
		return strings.Join(words, "\n")
	}
	if got, want := spell(Container(seen, 0)), `max=none from "" []`; !strings.Contains(got, want) {
		t.Errorf("%s\nlacks %s", got, want)
	}
	if got, want := spell(Container(seen, 0)), "up0: holds for traffic within the minimum of 80mbit, in packets of at most 200000 bytes (rate x latency); a larger packet waits for its own tokens"; !strings.Contains(got, want) {
		t.Errorf("%s\nlacks %s", got, want)
	}
	want := `weight=100 from "defaults" []
min=30mbit from "set" ["up0: refused, none is in force: the minimums of all must fit the uplink less its reserve"]
max=20mbit from "" ["below the minimum: the maximum wins"]
priority=0 from "" []
latency=5ms from "" ["up0: refused, no bound is in force"]
class=ef from "" ["all of its traffic is EF; what of that is above ef-max is served as BE"]
ef-max=50% from "" []
dscp=none from "" []`
	if got := spell(Container(seen, 1)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestServiceCurve has the example of CNTC, section 3.2: a packet takes the 12 ms of formula 1 at 1 Mbit/s.
func TestServiceCurve(t *testing.T) {
	for _, tc := range []struct {
		uplink v1.Uplink
		want   string
	}{
		{v1.Uplink{Name: "up0", RateBPS: 1e6, MTUBytes: 1500}, "; HFSC's curve for it: m1 250kbit d 8ms m2 100kbit"},
		{v1.Uplink{Name: "up0", RateBPS: 0.6e6, MTUBytes: 1500}, ""},
		{v1.Uplink{Name: "up0"}, ""},
		{v1.Uplink{Name: "up1", RateBPS: 1e6, MTUBytes: 1500}, ""},
	} {
		if got := serviceCurve(&v1.Share{Uplink: "up0", AdmittedBPS: 100e3, LatencyMS: 20}, []v1.Uplink{tc.uplink}); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.uplink, got, tc.want)
		}
	}
}

func TestObstacles(t *testing.T) {
	for _, tc := range []struct {
		change func(*v1.Snapshot)
		says   string
	}{
		{func(s *v1.Snapshot) { s.Containers[0].Mode = v1.ModeNone }, "it has no network"},
		{func(s *v1.Snapshot) { s.Status.Uplinks[0].Present = false }, "the uplink up0 is not there"},
		{func(s *v1.Snapshot) { s.Status.Uplinks = nil }, "the uplink up0 is not there"},
		{func(s *v1.Snapshot) { s.Containers[0].Shares[0].Controlled = false }, "has not assigned its packets"},
		{func(s *v1.Snapshot) {
			s.Containers[0].Shares[0].Controlled = false
			s.Containers[0].Reason = "its packets cannot be told apart"
		}, "not controlled: its packets"},
		{func(s *v1.Snapshot) {
			s.Containers[0].Shares[0].Controlled = false
			s.Containers[0].CountedWith, s.Containers[0].Reason = "app", "it shares the network of app and is counted there"
		}, "it shares the network of app"},
	} {
		seen := snapshot(0, sender{"web", weight(100), wantsMore})
		tc.change(&seen)
		if got := Container(seen, 0).Shares[0].Entitled; len(got) != 1 || !strings.Contains(got[0], tc.says) {
			t.Errorf("%q, want %q", got, tc.says)
		}
	}
}

// Minimums that no longer fit, as the uplink became slower.
func TestCutMinimums(t *testing.T) {
	seen := snapshot(0, sender{"a", v1.Policy{Weight: 100, MinBPS: 50e6}, wantsMore}, sender{"b", v1.Policy{Weight: 100, MinBPS: 40e6}, wantsMore})
	seen.Status.Uplinks[0].RateBPS = 45e6
	seen.Status.Uplinks[0].ReserveBPS = 225e4
	want := "[the minimums of all, 90mbit together, exceed the 42.8mbit that they can have beside the reserve: all are cut by the same factor, and of its minimum of 50mbit it has 23.8mbit]"
	if got := fmt.Sprint(Container(seen, 0).Shares[0].Entitled); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The numbers of an explanation are those of the allocation, and add up.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		demand := rapid.SampledFrom([]uint64{0, 1e5, 3e6, 40e6, wantsMore})
		var senders []sender
		for i := range rapid.IntRange(1, 8).Draw(t, "containers") {
			senders = append(senders, sender{fmt.Sprint("c", i), v1.Policy{
				Weight:   rapid.Uint32Range(0, 500).Draw(t, "weight"),
				MinBPS:   rapid.SampledFrom([]uint64{0, 0, 1e6, 20e6, 50e6}).Draw(t, "min"),
				MaxBPS:   rapid.SampledFrom([]uint64{0, 0, 5e6, 30e6}).Draw(t, "max"),
				Priority: rapid.Uint32Range(0, 3).Draw(t, "priority"),
			}, demand.Draw(t, "demand")})
		}
		seen := snapshot(demand.Draw(t, "host"), senders...)
		for index := range seen.Containers {
			Container(seen, index) // says something of everybody
			d := newDivision(seen, 0, index)
			if d.me < 0 {
				continue
			}
			me := d.members[d.me]
			if want := seen.Containers[index].EntitledBPS; me.entitledBPS != want {
				t.Fatalf("%s is entitled to %d, the explanation says %d", me.name, want, me.entitledBPS)
			}
			if got, want := d.now(nil).AllocatedBPS[d.me], seen.Containers[index].AllocatedBPS; got != want {
				t.Fatalf("%s gets %d, the explanation says %d", me.name, want, got)
			}
			if g := d.groups(); kindOf(&me) == byWeight {
				share := float64(g.restBPS) * float64(me.Weight) / float64(g.freeWeight)
				if diff := share - float64(me.entitledBPS); diff > 1.01 || diff < -1.01 {
					t.Fatalf("%d x %d/%d is %f, not %d", g.restBPS, me.Weight, g.freeWeight, share, me.entitledBPS)
				}
			}
		}
	})
}
