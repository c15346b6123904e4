package run

import (
	"encoding/json"
	"net/netip"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// TestMonitored: all nodes that have answered are in one object, with the words of the paper.
func TestMonitored(t *testing.T) {
	said := v1.Node{PiID: "a", HardResources: v1.HardResources{Mem: "1 GB"}, ResourceUsage: v1.ResourceUsage{CPULoad: "0.03"}}
	o := &observation{nodes: []Measured{
		{Node: runtime.Node{Name: "a", Address: netip.MustParseAddr("198.18.0.1")}, Reported: monitor.Node{Said: &said}},
		{Node: runtime.Node{Name: "b"}},
	}}
	var got map[string][]map[string]any
	text, err := json.Marshal(o.monitored())
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil || len(got["nodes"]) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	n := got["nodes"][0]
	if n["PiID"] != "a" || n["PiIP"] != "198.18.0.1" || n["hardResources"].(map[string]any)["mem"] != "1 GB" || n["resourceUsage"].(map[string]any)["cpuLoad"] != "0.03" || said.PiIP != "" {
		t.Errorf("%s", text)
	}
}
