package run

import (
	"errors"
	"testing"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// TestCounters: a proxy that does not answer, is started anew or goes with its node takes
// nothing away from what was counted.
func TestCounters(t *testing.T) {
	m := &Manager{counters: map[string]*counters{}}
	at := func(node string, requests uint64, err error) seenProxy {
		return seenProxy{Proxy: runtime.Proxy{Node: node}, seen: proxy.Seen{Requests: requests, SentBytes: 10 * requests}, err: err}
	}
	for _, step := range []struct {
		what    string
		proxies []seenProxy
		want    uint64
	}{
		{"two", []seenProxy{at("a", 100, nil), at("b", 50, nil)}, 150},
		{"one does not answer", []seenProxy{at("a", 0, errors.New("no answer")), at("b", 60, nil)}, 160},
		{"it answers again", []seenProxy{at("a", 110, nil), at("b", 60, nil)}, 170},
		{"one is started anew", []seenProxy{at("a", 5, nil), at("b", 60, nil)}, 175},
		{"a node goes", []seenProxy{at("a", 5, nil)}, 175},
		{"and comes back", []seenProxy{at("a", 5, nil), at("b", 61, nil)}, 176},
	} {
		m.count(&seen{state: runtime.State{Services: []runtime.Service{{Name: "shop"}}}, proxies: map[string][]seenProxy{"shop": step.proxies}})
		if got := m.counters["shop"].total; got.requests != step.want || got.sentBytes != 10*step.want {
			t.Errorf("%s: %+v, want %d", step.what, got, step.want)
		}
	}
	if m.count(&seen{}); len(m.counters) > 0 {
		t.Errorf("%d services are remembered that are no more", len(m.counters))
	}
}
