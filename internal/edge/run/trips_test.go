package run

import (
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// TestTrips: between nodes counts the shortest of the last times that proxies took to connect, in either
// direction; nodes near each other may be far from weir-edge.
func TestTrips(t *testing.T) {
	nodes := []Measured{}
	for _, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, Measured{Node: runtime.Node{Name: name}, Reported: monitor.Node{RoundTripSeconds: 0.05}})
	}
	p := newProxies()
	look := func(took time.Duration) []engine.Link {
		server := proxy.ServerStatus{Name: proxy.InstanceName("s-1"), Up: true, RoundTrip: took}
		return p.links(&observation{
			nodes: nodes, state: runtime.State{Instances: []runtime.Instance{{ID: "s-1", Service: "s", Node: "b"}}},
			proxies: map[string][]observedProxy{"s": {
				{Proxy: runtime.Proxy{Node: "a"}, status: proxy.Status{Servers: []proxy.ServerStatus{server}}},
				{Proxy: runtime.Proxy{Node: "b"}, status: proxy.Status{Servers: []proxy.ServerStatus{{Name: server.Name, RoundTrip: time.Millisecond / 2}}}},
			}},
		})
	}
	for _, step := range []struct {
		took time.Duration
		want float64
	}{{2 * time.Millisecond, 0.002}, {40 * time.Millisecond, 0.002}, {0, 0.05}, {40 * time.Millisecond, 0.04}} {
		got := map[string]float64{}
		for _, l := range look(step.took) {
			got[l.From+l.To] = l.RoundTripSeconds
		}
		if len(got) != 3 || got["ab"] != step.want || got["ac"] != 0.05 || got["bc"] != 0.05 {
			t.Errorf("%v: %v, want %v between a and b", step.took, got, step.want)
		}
	}
	for range mostTrips {
		look(time.Second)
	}
	if got := look(time.Second)[0].RoundTripSeconds; got != 1 {
		t.Errorf("after ten looks it is %v", got)
	}
}
