package run

import (
	"context"

	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// Unmeasured knows of nodes what the container engine says, which nobody has asked for
// what is used of them: they count as idle, and nothing is promised at their uplinks.
// It implements Nodes.
type Unmeasured struct{}

// Measure implements Nodes.
func (Unmeasured) Measure(_ context.Context, nodes []runtime.Node) []Measured {
	list := make([]Measured, len(nodes))
	for i, n := range nodes {
		list[i] = Measured{Node: n, Seen: monitor.Node{Name: n.Name, State: monitor.StateNoWeir}}
	}
	return list
}
