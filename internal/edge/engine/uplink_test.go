package engine_test

import (
	"testing"

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
				percent["a"], percent["c"] = 60, 60
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
