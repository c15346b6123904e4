package run

import (
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// TestTellRooms: weir-edge sends each agent the name of the other node that can promise the most, whenever that
// node changes and before the agent forgets the name; but not to agents that do not answer or are read only.
func TestTellRooms(t *testing.T) {
	m := newManager(t)
	o, agents := &observation{}, map[string]*agent{}
	nodes := []edge.Node{{Name: "a", FreeBPS: 95e6}, {Name: "b", FreeBPS: 40e6}, {Name: "c", FreeBPS: 50e6}, {Name: "d", FreeBPS: 99e6}, {Name: "e"}}
	for i := range nodes {
		name := nodes[i].Name
		nodes[i].State = "ready"
		agents[name] = &agent{}
		o.nodes = append(o.nodes, Measured{Node: runtime.Node{Name: name}, Agent: agents[name], Reported: monitor.Node{State: monitor.StateReady}})
	}
	nodes[3].State = "draining"
	o.nodes[2].Reported.Access.Role = "read"
	o.nodes[3].Reported.State = monitor.StateStale
	told := func(nodes []edge.Node) map[string]v1.Room {
		m.told.tellRooms(t.Context(), &m.work, o, nodes)
		m.work.Wait()
		got := map[string]v1.Room{}
		for name, a := range agents {
			for _, room := range a.rooms {
				got[name] = room
			}
			a.rooms = nil
		}
		return got
	}
	want := func(when string, nodes []edge.Node, want map[string]v1.Room) {
		t.Helper()
		got := told(nodes)
		for name, room := range want {
			if got[name] != room {
				t.Errorf("%s: %s was told %+v, want %+v", when, name, got[name], room)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	age := func(by time.Duration) {
		for name, last := range m.told.rooms {
			last.at = time.Now().Add(-by)
			m.told.rooms[name] = last
		}
	}
	a, c := v1.Room{Node: "a", FreeBPS: 95e6}, v1.Room{Node: "c", FreeBPS: 50e6}
	want("at first", nodes, map[string]v1.Room{"a": c, "b": a, "e": a})
	age(0)
	want("the same", nodes, nil)
	age(v1.RoomSilence / 2)
	want("some time later", nodes, map[string]v1.Room{"a": c, "b": a, "e": a})
	age(0)
	nodes[2].FreeBPS = 60e6
	want("another rate", nodes, map[string]v1.Room{"a": {Node: "c", FreeBPS: 60e6}})
	nodes[0].FreeBPS, nodes[1].FreeBPS, nodes[2].FreeBPS = 0, 0, 0
	want("no room", nodes, map[string]v1.Room{"a": {}, "b": {}, "e": {}})
	age(time.Hour)
	want("no other node", nodes[:1], nil)
	o.nodes = o.nodes[1:]
	told(nodes)
	if _, kept := m.told.rooms["a"]; kept {
		t.Error("a node that has left is remembered")
	}
}
