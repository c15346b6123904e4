package run

import (
	"maps"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
)

// TestTakesLittle: users who take little of a minimum leave the rest to those of another
// node, once that has lasted, and not while nobody can tell what they take.
func TestTakesLittle(t *testing.T) {
	x, now := newMinimums(), time.Now()
	here, there := engine.Entry{Service: "shop", Node: "a"}, engine.Entry{Service: "shop", Node: "b"}
	after := func(d time.Duration, sentBPS map[string]uint64, state monitor.State) engine.Division {
		s := shop(5, 5)
		s.promises["shop@b"] = engine.Promise{Service: "shop", Node: "b", MinBPS: 20e6, Relay: true}
		for i := range s.nodes {
			s.nodes[i].Seen.State = state
			s.nodes[i].Seen.Containers[0].SentBPS = sentBPS[s.nodes[i].Node.Name]
			s.nodes[i].Seen.Containers[1].SentBPS = 50e6 // somebody else's
			if sentBPS == nil {
				// Agents have just started, and know no proxy yet.
				s.nodes[i].Seen.Containers = s.nodes[i].Seen.Containers[1:]
			}
		}
		now = now.Add(d)
		division := x.divide(s, now)
		x.gave(division, s.promises)
		return division
	}
	sent := map[string]uint64{"a": 1e6, "b": 10e6}
	half := func(d engine.Division) bool { return d.Local[here] == 10e6 && d.Relayed[there] == 10.625e6 }
	if d := after(0, sent, monitor.StateReady); !half(d) || !maps.Equal(x.given, map[engine.Entry]uint64{here: 10e6, there: 10.625e6}) {
		t.Errorf("at first: %+v, given %v", d, x.given)
	}
	if d := after(time.Second, sent, monitor.StateReady); !half(d) {
		t.Errorf("a second later: %+v", d)
	}
	if d := after(time.Hour, sent, monitor.StateStale); !half(d) {
		t.Errorf("nobody has looked for an hour: %+v", d)
	}
	for range 3 {
		if d := after(time.Minute, nil, monitor.StateReady); !half(d) {
			t.Errorf("no agent knows the proxies: %+v", d)
		}
	}
	if d := after(time.Minute, sent, monitor.StateReady); d.Local[here] != 2e6 || d.Sent["shop-1"] != 18e6 {
		t.Errorf("a minute later: %+v", d)
	}
	if d := after(time.Second, map[string]uint64{"a": 2e6, "b": 18e6}, monitor.StateReady); !half(d) {
		t.Errorf("they take all that they have: %+v", d)
	}
}
