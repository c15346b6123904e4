package flows

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/sched"
)

// idle is the silence that ends a flow: a later packet begins another flow (internal/apps/flow).
const idle = 5 * time.Minute

// Live returns at most most live flows of a number, those seen last first; 0 means all. Times are
// relative to now.
func (m *Manager) Live(number uint16, most int, now time.Time) ([]v1.Flow, error) {
	var found []identity.Flow
	newest := func(a, b identity.Flow) int { return cmp.Compare(a.Idle, b.Idle) }
	err := m.Each(number, func(f identity.Flow) bool {
		if f.Idle > idle {
			return true
		}
		found = append(found, f)
		if most > 0 && len(found) >= 2*most { // keep memory for the result only, not for all flows
			slices.SortStableFunc(found, newest)
			found = found[:most]
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, newest)
	if most > 0 && len(found) > most {
		found = found[:most]
	}
	out := make([]v1.Flow, len(found))
	for i, f := range found {
		out[i] = view(f, now)
	}
	return out, nil
}

func view(f identity.Flow, now time.Time) v1.Flow {
	out := v1.Flow{
		Protocol:  map[uint8]string{6: "tcp", 17: "udp"}[f.Proto],
		Initiator: f.Initiator.String(), Responder: f.Responder.String(),
		Class: v1.Class(f.Class.String()), Stage: int(f.Stage), Confidence: f.LevelConfidence,
		SentBytes: f.Bytes[0], SentPackets: f.Packets[0], ReceivedBytes: f.Bytes[1], ReceivedPackets: f.Packets[1],
		BeganAt: now.Add(-f.Age), LastSeenAt: now.Add(-f.Idle),
	}
	if f.DelayPackets > 0 {
		out.DelayMS = float64(f.DelayNs) / 1e6
	}
	if f.Doubtful {
		out.Why = "uncertain"
	}
	if f.Bulk {
		out.Why = "bulk: " + sentWithin(f.RunBytes, f.Run)
	}
	if f.DSCPClass != sched.Unclassified {
		out.Class, out.ByDSCP = v1.Class(f.DSCPClass.String()), true
		out.Why = ""
	}
	if f.Stage > 0 && int(f.Type) < apps.NumTypes {
		out.Application = apps.Types[f.Type]
	}
	return out
}

// sentWithin returns an amount of bytes and the time it took, as text.
func sentWithin(bytes uint32, took time.Duration) string {
	if took < time.Millisecond {
		return fmt.Sprintf("%d kB at once", bytes/1000)
	}
	return fmt.Sprintf("%d kB in %v", bytes/1000, took.Round(time.Millisecond))
}
