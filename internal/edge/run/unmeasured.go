package run

import (
	"context"

	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// Unmeasured reports of nodes only what the container engine knows: they count as idle, and nothing
// is promised at their uplinks. It implements Nodes.
type Unmeasured struct{}

// Lower implements Nodes: nothing is kept.
func (Unmeasured) Lower() <-chan struct{} { return nil }

// Reported implements Nodes: no agent says anything.
func (Unmeasured) Reported() []monitor.Node { return nil }

// Measure implements Nodes.
func (Unmeasured) Measure(_ context.Context, nodes []runtime.Node, _ []runtime.Instance) []Measured {
	list := make([]Measured, len(nodes))
	for i, n := range nodes {
		list[i] = Measured{Node: n, Reported: monitor.Node{Name: n.Name, State: monitor.StateNoWeir, Engine: monitor.Unmeasured(n.Name)}}
	}
	return list
}
