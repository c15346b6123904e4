package run

import (
	"errors"
	"testing"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// TestCounters: a proxy that does not answer, is started anew or goes with its node takes
// nothing away from what was counted.
func TestCounters(t *testing.T) {
	p := newProxies()
	at := func(node string, requests uint64, err error) observedProxy {
		return observedProxy{Proxy: runtime.Proxy{Node: node}, status: proxy.Status{Requests: requests, SentBytes: 10 * requests}, err: err}
	}
	for _, step := range []struct {
		what    string
		proxies []observedProxy
		want    uint64
	}{
		{"two", []observedProxy{at("a", 100, nil), at("b", 50, nil)}, 150},
		{"one does not answer", []observedProxy{at("a", 0, errors.New("no answer")), at("b", 60, nil)}, 160},
		{"it answers again", []observedProxy{at("a", 110, nil), at("b", 60, nil)}, 170},
		{"one is started anew", []observedProxy{at("a", 5, nil), at("b", 60, nil)}, 175},
		{"a node goes", []observedProxy{at("a", 5, nil)}, 175},
		{"and comes back", []observedProxy{at("a", 5, nil), at("b", 61, nil)}, 176},
	} {
		p.count(&observation{state: runtime.State{Services: []runtime.Service{{Name: "shop"}}}, proxies: map[string][]observedProxy{"shop": step.proxies}})
		if got := p.counters["shop"].total; got.requests != step.want || got.sentBytes != 10*step.want {
			t.Errorf("%s: %+v, want %d", step.what, got, step.want)
		}
	}
	if p.count(&observation{}); len(p.counters) > 0 {
		t.Errorf("%d services are remembered that are no more", len(p.counters))
	}
}

// TestWaitingUsers: the users of all instances are those of the service, with those who wait at a proxy
// for an instance: at one on its node, or if there is none at another, or at none that runs.
func TestWaitingUsers(t *testing.T) {
	list := []edge.Instance{
		{Service: "other", Node: "a"}, {Service: "shop", Instance: "shop-1", Node: "b", Users: 3}, {Service: "shop", Instance: "shop-2", Node: "b"},
		{Service: "shop", Instance: "shop-3", Node: "a"}, {Service: "late", State: statePending},
	}
	addWaiting(list, "shop", "b", 4)
	addWaiting(list, "shop", "b", 1)
	addWaiting(list, "shop", "a", 2)
	addWaiting(list, "shop", "c", 8)
	addWaiting(list, "late", "c", 6)
	addWaiting(list, "gone", "c", 7)
	for i, want := range []int{0, 13, 0, 2, 6} {
		if list[i].Waiting != want {
			t.Errorf("%+v: %d wait, want %d", list[i], list[i].Waiting, want)
		}
	}
}
