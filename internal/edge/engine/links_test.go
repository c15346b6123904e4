package engine_test

import (
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// TestLinkRooms: a node whose links cannot promise the minimum gets no instance, and says so; links that
// are not told, or on which the service cannot be told apart, do not count.
func TestLinkRooms(t *testing.T) {
	place := func(change func(*engine.Input)) engine.Result {
		in := engine.Input{At: start, Nodes: boards("ab"), Services: []engine.Service{web(func(s *spec.Spec) {
			s.Labels = map[string]string{"weir.min": "20mbit"}
			s.Ports = []spec.Port{{Host: 80, Container: 80}}
		})}}
		for i := range in.Nodes {
			in.Nodes[i].Weir, in.Nodes[i].UplinkBPS, in.Nodes[i].Out.BudgetBPS = true, 100e6, 95e6
		}
		in.LinkRooms = []engine.LinkRoom{{Node: "a", FreeBPS: 19e6}, {Node: "b", FreeBPS: 20e6}}
		change(&in)
		return newEngine(t).Round(in)
	}
	name := web().Spec.Name
	for what, test := range map[string]struct {
		change func(*engine.Input)
		want   string
	}{
		"only b has room": {func(*engine.Input) {}, "b"},
		"a has promised most of it to the service": {func(in *engine.Input) {
			in.LinkRooms[1].FreeBPS, in.Claims = 0, []engine.Claim{{Service: name, Node: "a", MinBPS: 1e6, InMinBPS: 1e6, LinkBPS: 1e6}}
		}, "a"},
		"a's links are not told": {func(in *engine.Input) { in.LinkRooms[0].Node, in.LinkRooms[1].FreeBPS = "z", 0 }, "a"},
		"no switch can tell it": {func(in *engine.Input) {
			in.LinkRooms = in.LinkRooms[:1]
			in.Nodes = in.Nodes[:1]
			in.Services[0].Spec.Ports = nil
		}, "a"},
		"another service has taken": {func(in *engine.Input) { in.Claims = []engine.Claim{{Service: "other", Node: "a", LinkBPS: 9e6}} }, "b"},
		"none has room":             {func(in *engine.Input) { in.LinkRooms[1].FreeBPS = 1e6 }, ""},
	} {
		got, reason := "", ""
		for _, d := range place(test.change).Decisions {
			if d.Action == engine.Start {
				got = d.Node
			}
			reason += d.Reason
			for _, e := range d.Excluded {
				reason += e.Reason
			}
		}
		if got != test.want || got == "" && !strings.Contains(reason, "has links to users that cannot promise 20mbit more") {
			t.Errorf("%s: it starts on %q: %s", what, got, reason)
		}
	}
}

// TestAdmitLinks: the ledger has no more on links than the claim, also when that is reduced.
func TestAdmitLinks(t *testing.T) {
	at := engine.Entry{Service: "web", Node: "a"}
	claims := engine.Promises{engine.ClaimID(at): {Service: "web", Node: "a", MinBPS: 10e6, Claim: true}}
	engine.AdmitLinks(claims, map[engine.Entry]uint64{at: 12e6, {Service: "web", Node: "b"}: 5e6})
	if p := claims[engine.ClaimID(at)]; p.LinkBPS != 10e6 || len(claims) != 1 {
		t.Errorf("%+v", claims)
	}
	nodes := []engine.Node{{Name: "a", State: engine.NodeReady, Weir: true, Out: engine.Room{BudgetBPS: 95e6}}}
	needs := engine.Division{MinBPS: map[string]engine.Rates{"web": {Out: 10e6}}, Needs: map[engine.Entry]engine.Need{at: {LocalBPS: 4e6}}}
	if p := engine.AdmitClaims(nodes, claims, claims, needs, nil)[engine.ClaimID(at)]; p.MinBPS != 4e6 || p.LinkBPS != 4e6 {
		t.Errorf("%+v", p)
	}
	needs.Needs[at] = engine.Need{LocalBPS: 15e6}
	if p := engine.AdmitClaims(nodes, claims, claims, needs, nil)[engine.ClaimID(at)]; p.MinBPS != 15e6 || p.LinkBPS != 10e6 {
		t.Errorf("%+v", p)
	}
}
