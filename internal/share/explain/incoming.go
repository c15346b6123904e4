package explain

import (
	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// Incoming returns a snapshot of what the uplinks receive, in the form of what they send: the
// containers, and the uplinks that share what they receive, in the same order. Its numbers come about
// in the same way.
func Incoming(s v1.Snapshot) v1.Snapshot {
	received := v1.Snapshot{Status: s.Status}
	received.Status.Uplinks = nil
	for _, u := range s.Status.Uplinks {
		if u.In == nil {
			continue
		}
		u.RateBPS, u.ReserveBPS, u.SentBPS, u.Scheduler, u.HostCompetes = u.In.RateBPS, u.In.ReserveBPS, u.In.ReceivedBPS, u.In.Scheduler, u.In.HostCompetes
		received.Status.Uplinks = append(received.Status.Uplinks, u)
	}
	for _, c := range s.Containers {
		in, _ := c.Received()
		received.Containers = append(received.Containers, in)
	}
	return received
}

// explainIncoming adds what a container receives to its explanation.
func explainIncoming(e *v1.Explanation, s v1.Snapshot, index int) {
	if e.Container.In == nil {
		return
	}
	received := Incoming(s)
	e.InPolicy = values(&received.Containers[index], received.Status.Uplinks)[:len(policy.IncomingNames())]
	e.InShares = explainShares(received, index, "receive")
}
