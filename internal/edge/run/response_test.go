package run

import (
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// TestResponse: agents know how long users wait; without one it is the time to the first byte. Of
// several nodes the slowest counts.
func TestResponse(t *testing.T) {
	at := func(node string, ms time.Duration) observedProxy {
		return observedProxy{Proxy: runtime.Proxy{Node: node}, status: proxy.Status{
			Response: ms * time.Millisecond,
			Servers:  []proxy.ServerStatus{{Name: "edge-web-1", Response: 2 * ms * time.Millisecond}},
		}}
	}
	o := &observation{
		nodes: []Measured{
			{Node: runtime.Node{Name: "a"}, Reported: monitor.Node{Responses: []v1.ServiceResponse{
				{Service: "shop", MeanSeconds: 9}, {Service: "web", MeanSeconds: 2, P95Seconds: 5, DeliverySeconds: 1.9},
				{Service: "web", Instance: "edge-web-1", MeanSeconds: 3, P95Seconds: 4, DeliverySeconds: 2.9},
			}}},
			{Node: runtime.Node{Name: "b"}},
		},
		proxies: map[string][]observedProxy{"web": {at("b", 30), at("a", 3)}, "bare": {at("b", 30)}, "mail": {at("b", 1)}},
		specs:   map[string]spec.Spec{"mail": {Labels: map[string]string{spec.LabelMode: "tcp"}}},
	}
	for _, c := range []struct {
		service, instance string
		want              response
	}{
		{"web", "", response{2, 5, 1.9, edge.ResponseDelivered}},
		{"web", "web-1", response{3, 4, 2.9, edge.ResponseDelivered}},
		{"bare", "", response{mean: 0.03, end: edge.ResponseFirstByte}},
		{"bare", "web-1", response{mean: 0.06, end: edge.ResponseFirstByte}},
		{"mail", "", response{mean: 0.001, end: edge.ResponseConnected}},
		{"gone", "", response{}},
	} {
		if got := o.slowest(c.service, c.instance); got != c.want {
			t.Errorf("%s %q: %+v, want %+v", c.service, c.instance, got, c.want)
		}
	}
}

// TestFullProxy: users who wait for a place at a proxy are in none of its numbers, so the service says
// why they wait.
func TestFullProxy(t *testing.T) {
	o := &observation{proxies: map[string][]observedProxy{"web": {
		{Proxy: runtime.Proxy{Node: "a"}}, {Proxy: runtime.Proxy{Node: "b"}, status: proxy.Status{Full: true}},
	}}}
	if said := wireService(o, &claimStep{}, runtime.Service{Name: "web"}, nil, counts{}).Reason; said != "the proxy on b has as many connections as it may: further users wait for a place" {
		t.Errorf("it says %q", said)
	}
}
