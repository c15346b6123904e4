package run

import (
	"context"
	"maps"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
)

// told is what the nodes' agents were told.
type told struct {
	telling map[string]bool // agents that are being told minimums
	rooms   map[string]toldRoom
}

// toldRoom is the room that an agent was told last.
type toldRoom struct {
	v1.Room
	at time.Time
}

func newTold() told { return told{telling: map[string]bool{}, rooms: map[string]toldRoom{}} }

// tellRooms tells each node's agent in the background which other node can promise the most, when that has
// changed and often enough for it to count. An answer is not needed: an agent may be too old.
func (t *told) tellRooms(ctx context.Context, work *sync.WaitGroup, o *observation, nodes []edge.Node) {
	maps.DeleteFunc(t.rooms, func(name string, _ toldRoom) bool { return o.measured(name) == nil })
	for i := range o.nodes {
		n := &o.nodes[i]
		if len(nodes) < 2 || n.Agent == nil || n.Reported.State != monitor.StateReady || n.Reported.LooksOnly() {
			continue
		}
		now, last := toldRoom{roomBeside(nodes, n.Node.Name), time.Now()}, t.rooms[n.Node.Name]
		if now.Room == last.Room && now.at.Sub(last.at) < v1.RoomSilence/3 {
			continue
		}
		t.rooms[n.Node.Name] = now
		agent := n.Agent
		work.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, tellTimeout)
			defer cancel()
			_ = agent.SetRoom(ctx, now.Room)
		})
	}
}

// roomBeside returns the node other than the one of that name that can promise the most.
func roomBeside(nodes []edge.Node, name string) (best v1.Room) {
	for _, n := range nodes {
		if n.Name != name && n.State == string(engine.NodeReady) && n.FreeBPS > best.FreeBPS {
			best = v1.Room{Node: n.Name, FreeBPS: n.FreeBPS}
		}
	}
	return best
}
