package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/share/explain"
	"github.com/weir-project/weir/internal/share/policy"
)

// An agent knows its own uplinks, weir-edge the free minimum of all nodes. So weir-edge sends agents, every few
// seconds, the name of the other node with the most room, which an agent forgets after [v1.RoomSilence]. Of
// several weir-edge the last message counts: they share the ledger.

// saidRoom is what weir-edge said last, and when.
type saidRoom struct {
	v1.Room
	at time.Time
}

// setRoom takes what weir-edge says.
func (a *API) setRoom(r *http.Request) (any, error) {
	said := saidRoom{at: time.Now()}
	if err := readBody(r, &said.Room); err != nil {
		return nil, fmt.Errorf("read the room of other nodes: %w", err)
	}
	if said.FreeBPS > policy.MaxRateBPS {
		return nil, &badRequestError{fmt.Errorf("free_bps: %d is no rate: at most %s", said.FreeBPS, policy.FormatRate(policy.MaxRateBPS))}
	}
	a.room.Store(&said)
	select {
	case a.roomSaid <- struct{}{}:
	default:
	}
	return struct{}{}, nil
}

// roomElsewhere returns where else the minimum of the container with the given index has room; "" if it is
// not refused here, or weir-edge has not said lately.
func (a *API) roomElsewhere(s *stats.Snapshot, index int) string {
	said := a.room.Load()
	if said == nil || time.Since(said.at) > v1.RoomSilence {
		return ""
	}
	return explain.Room(&s.Containers[index], s.Places[index].Image, said.Room)
}

// FollowRefusals follows each refusal of a container's minimum with an event, and a line of the log, that
// names the node with room for it, once weir-edge has said which, until ctx ends.
func (a *API) FollowRefusals(ctx context.Context) {
	events, refused := a.agent.Events(), map[string]bool{} // by the container's ID, without such an event yet
	for seq := uint64(0); ; {
		batch := events.Since(seq)
		for _, e := range batch.Events {
			if seq = e.Seq; e.Kind == v1.EventRefused {
				refused[e.ID] = true
			}
		}
		if len(refused) > 0 {
			now, err := a.agent.Latest(ctx)
			if err != nil {
				return // the agent ends
			}
			refused = a.nameRooms(now, refused)
		}
		if len(batch.Events) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-a.roomSaid:
		case <-batch.More:
			if batch.Closed {
				return
			}
		}
	}
}

// nameRooms makes the events of refused containers, and returns those whose minimum is still refused and
// of which weir-edge has said nothing.
func (a *API) nameRooms(s *stats.Snapshot, refused map[string]bool) map[string]bool {
	rest := map[string]bool{}
	for i := range s.Containers {
		c := &s.Containers[i]
		if !refused[c.ID] || c.State != v1.StateRejected {
			continue
		}
		text := a.roomElsewhere(s, i)
		if text == "" {
			rest[c.ID] = true
			continue
		}
		a.log.Warn("minimum refused here", "name", c.Name, "elsewhere", text)
		a.agent.Events().Add(v1.Event{At: time.Now(), Kind: v1.EventRoomElsewhere, Container: c.Name, ID: c.ID, Runtime: c.Runtime, Message: text})
	}
	return rest
}
