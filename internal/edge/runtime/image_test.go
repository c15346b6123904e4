package runtime

import (
	"maps"
	"testing"
)

// The ledger counts a service's minimum once on a node, so one container has it.
func TestLabelsWithoutMinimum(t *testing.T) {
	labels := map[string]string{"weir.min": "1mbit", "weir.latency": "5ms", "weir.weight": "2", "x": "y"}
	if got := LabelsWithoutMinimum(labels); !maps.Equal(got, map[string]string{"weir.weight": "2", "x": "y"}) || len(labels) != 4 {
		t.Errorf("got %v", got)
	}
	if LabelsWithoutMinimum(nil) == nil {
		t.Error("labels of nothing cannot be added to")
	}
}
