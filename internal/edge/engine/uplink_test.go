package engine_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// TestFreeUplinks: a service that nobody uses yet goes where uplinks are free, whatever
// processors are a little busier, with a minimum and without. What a minimum takes from
// others is as good as free: a full uplink with one is better than one without.
func TestFreeUplinks(t *testing.T) {
	for _, label := range []string{"", "40mbit"} {
		nodes := boards("abcd")
		nodes[0].UplinkSentBPS, nodes[2].UplinkSentBPS = 100e6, 99e6 // a and c are full
		nodes[1].CPUUsedPercent, nodes[3].CPUUsedPercent = 30, 20
		s := web(func(s *spec.Spec) {
			s.AvailabilityPercent = 99.9
			if label != "" {
				s.Labels = map[string]string{"weir.min": label}
			}
		})
		on := map[string]bool{}
		for _, d := range newEngine(t).Round(engine.Input{At: start, Nodes: nodes, Services: []engine.Service{s}}).Decisions {
			on[d.Node] = d.Action == engine.Start
			percent := map[string]float64{"a": 99, "b": 0, "c": 99, "d": 0} // a node gives one in a hundred in any case
			if label != "" {
				percent["a"] = map[int]float64{1: 60, 2: 80}[len(on)] // the second is expected to need half
				percent["c"] = percent["a"]
			}
			for _, a := range d.Alternatives {
				if got := a.UplinkPercent; got < percent[a.Node]-0.001 || got > percent[a.Node]+0.001 {
					t.Errorf("minimum %q: %v %% of %s's uplink are others', want %v", label, got, a.Node, percent[a.Node])
				}
			}
		}
		if len(on) != 2 || !on["b"] || !on["d"] {
			t.Errorf("minimum %q: instances on %v, want b and d", label, on)
		}
	}
}

// TestProxySends: on one engine all that users get is sent by the proxy. Another instance
// there does not make more of the uplink.
func TestProxySends(t *testing.T) {
	for _, tc := range []struct {
		name    string
		sentBPS uint64 // at the uplink
		ownBPS  uint64 // of it
		action  engine.Action
		reason  string
	}{
		{"the service fills the uplink", 90e6, 90e6, engine.Keep, "users would not wait less"},
		{"others do", 90e6, 0, engine.Start, ""},
		{"both", 75e6, 45e6, engine.Start, ""},
	} {
		in := crowd(web(), boards("a"), 45, 1, running("web", "a", 1, 45, 0.1))
		in.Nodes[0].UplinkSentBPS, in.Demand[0].SentBPS = tc.sentBPS, tc.ownBPS
		e := newEngine(t)
		d := only(t, e.Round(later(in, e.Round(in), 2*time.Second)))
		if d.Action != tc.action || d.Cause != engine.CauseUsers || tc.reason != "" && !refused(d, tc.reason) {
			t.Errorf("%s: %s %s; %+v", tc.name, d.Action, d.Reason, d.Alternatives)
		}
	}
}

// TestOwnUplink: what a service's proxy sends at a node is the service's own there, also
// where no instance is, and not what others leave it.
func TestOwnUplink(t *testing.T) {
	in := crowd(web(), boards("bac"), 45, 1, running("web", "a", 1, 45, 0.1))
	in.Nodes[0].UplinkSentBPS, in.Demand[0].SentBPS = 60e6, 60e6 // users come to b
	in.Nodes[1].UplinkSentBPS, in.Instances[0].SentBPS = 62e6, 62e6
	in.Nodes[2].UplinkSentBPS = 50e6 // of others, at c
	e := newEngine(t)
	d := only(t, e.Round(later(in, e.Round(in), 2*time.Second)))
	if d.Action != engine.Start || d.Node != "b" || len(d.Alternatives) != 3 {
		t.Fatalf("%s on %s: %s; %+v", d.Action, d.Node, d.Reason, d.Alternatives)
	}
	for _, a := range d.Alternatives {
		if want := map[string]float64{"c": 50}[a.Node]; math.Abs(a.UplinkPercent-want) > 0.001 {
			t.Errorf("%v %% of %s's uplink are others', want %v", a.UplinkPercent, a.Node, want)
		}
	}
}

// TestUplinkToCome: what an instance is expected to send is not there for the next one.
func TestUplinkToCome(t *testing.T) {
	nodes := boards("abc")
	nodes[0].State, nodes[0].UplinkSentBPS = engine.NodeDraining, 80e6 // users come to a
	nodes[2].CPUUsedPercent = 20                                       // b is a little better than c
	busy, quiet := web(), web(func(s *spec.Spec) { s.Name = "zoo" })
	in := engine.Input{At: start, Nodes: nodes, Services: []engine.Service{busy, quiet}, Demand: []engine.Demand{{Service: "web", Node: "a", Users: 10, SentBPS: 80e6}}}
	on := map[string]string{}
	for _, d := range newEngine(t).Round(in).Decisions {
		on[d.Service] = d.Node
	}
	if on["web"] != "b" || on["zoo"] != "c" {
		t.Errorf("%v, want web on b, which fills its uplink, and zoo on c", on)
	}
}

// TestMinimumOnce: two instances on a node have the service's minimum of its uplink once.
func TestMinimumOnce(t *testing.T) {
	in := crowd(web(func(s *spec.Spec) { s.Labels["weir.min"] = "40mbit" }), boards("a"), 45, 1, running("web", "a", 1, 45, 0.1))
	in.Nodes[0].UplinkSentBPS, in.Demand[0].SentBPS, in.Claims = 100e6, 40e6, []engine.Claim{{Service: "web", Node: "a", MinBPS: 40e6}}
	e := newEngine(t)
	d := only(t, e.Round(later(in, e.Round(in), 2*time.Second)))
	if d.Action != engine.Keep || math.Abs(d.Alternatives[0].UplinkPercent-60) > 0.001 {
		t.Errorf("%s: %s; %+v", d.Action, d.Reason, d.Alternatives)
	}
}

// TestHeldByUplink: users who wait for the way from the node where they connect get no further
// instance, but the reason and what helps. Those who wait for the instances get one.
func TestHeldByUplink(t *testing.T) {
	for _, tc := range []struct {
		name            string
		users           float64 // of 50
		deliverySeconds float64
		sentBPS         uint64
		action          engine.Action
		cause           engine.Cause
		reason          string
	}{
		{"a full uplink", 20, 4.9, 100e6, engine.Keep, engine.CauseUplink, "users wait 5 s of the 2 s that they may have to, 4.9 s of it for the way to them: the uplink of a is full; a larger weir.min, or"},
		{"a full uplink, where answers under way add up", 45, 4.9, 100e6, engine.Keep, engine.CauseUplink, "the uplink of a is full"},
		{"a maximum", 20, 4.9, 50e6, engine.Keep, engine.CauseUplink, "whose uplink is not full"},
		{"slow instances", 20, 1, 100e6, engine.Start, engine.CauseResponse, ""},
		{"too many users for slow instances", 45, 1, 100e6, engine.Start, engine.CauseUsers, ""},
		{"delivery is not measured", 20, 0, 100e6, engine.Start, engine.CauseResponse, ""},
	} {
		in := crowd(web(func(s *spec.Spec) { s.ResponseSeconds = 2 }), boards("ab"), tc.users, 5, running("web", "a", 1, 20, 0.1))
		in.Nodes[0].UplinkSentBPS, in.Demand[0].DeliverySeconds = tc.sentBPS, tc.deliverySeconds
		e := newEngine(t)
		d := only(t, e.Round(later(in, e.Round(in), 2*time.Second)))
		if d.Action != tc.action || d.Cause != tc.cause || !strings.Contains(d.Reason, tc.reason) || d.Facts.DeliverySeconds != tc.deliverySeconds {
			t.Errorf("%s: %s %s %s; %+v", tc.name, d.Action, d.Cause, d.Reason, d.Facts)
		}
	}
}
