package stats

import (
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/events"
)

// Events is a ring of the agent's last events.
type Events = events.Ring[v1.Event]

// NewEvents returns an empty ring.
func NewEvents(now time.Time) *Events {
	return events.NewRing(func(e *v1.Event) *uint64 { return &e.Seq }, nil, now)
}
