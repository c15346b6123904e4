package loop

import (
	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/policy"
)

// Conversion between the agent's types and those of the state file.

func savedSet(v policy.Values) *state.Set {
	if v == (policy.Values{}) {
		return nil
	}
	return &state.Set{
		Weight: v.Weight, MinBPS: v.MinBPS, MaxBPS: v.MaxBPS,
		Priority: v.Priority, LatencyMS: v.LatencyMS, Class: (*string)(v.Class),
		EFMax: (*state.Part)(v.EFMax), AFMin: (*state.Part)(v.AFMin), DSCP: (*string)(v.DSCP),
	}
}

func recalledSet(s *state.Set) policy.Values {
	if s == nil {
		return policy.Values{}
	}
	return policy.Values{
		Weight: s.Weight, MinBPS: s.MinBPS, MaxBPS: s.MaxBPS,
		Priority: s.Priority, LatencyMS: s.LatencyMS, Class: (*v1.Class)(s.Class),
		EFMax: (*v1.Part)(s.EFMax), AFMin: (*v1.Part)(s.AFMin), DSCP: (*v1.DSCP)(s.DSCP),
	}
}

func savedDevices(list []attach.Device) []state.Attachment {
	var saved []state.Attachment
	for _, at := range list {
		saved = append(saved, state.Attachment{
			Interface: at.Interface, Tap: state.Tap(at.Tap), GSOMaxBytes: at.GSOBefore,
		})
	}
	return saved
}

func recalledDevices(saved []state.Attachment) []attach.Device {
	var list []attach.Device
	for _, at := range saved {
		list = append(list, attach.Device{
			Attachment: identity.Attachment{Interface: at.Interface, Tap: identity.Tap(at.Tap)},
			GSOBefore:  at.GSOMaxBytes,
			Saved:      true,
		})
	}
	return list
}

// savedCounted returns a share's totals, with the kernel's counters at that moment.
func savedCounted(s *share) state.Counted {
	last := s.uplink.ledger.Last(s.container.Number)
	return state.Counted{
		SentBytes: s.totals.SentBytes, SentPackets: s.totals.SentPackets, DroppedPackets: s.totals.DroppedPackets, MarkedPackets: s.totals.MarkedPackets,
		ClassBytes: last.ClassBytes, ClassPackets: last.ClassPackets, ClassDrops: last.DroppedPackets, ClassMarks: last.MarkedPackets,
		DirectBytes: last.DirectBytes, DirectPackets: last.DirectPackets,
	}
}

// recallCounted makes a share continue the totals of an earlier agent.
func recallCounted(s *share, saved state.Counted) {
	s.totals = stats.Totals{
		SentBytes: saved.SentBytes, SentPackets: saved.SentPackets, DroppedPackets: saved.DroppedPackets, MarkedPackets: saved.MarkedPackets,
	}
	s.uplink.ledger.Resume(s.container.Number, stats.Reading{
		Sent: stats.Sent{
			ClassBytes: saved.ClassBytes, ClassPackets: saved.ClassPackets,
			DirectBytes: saved.DirectBytes, DirectPackets: saved.DirectPackets,
		},
		Queue: stats.Queue{DroppedPackets: saved.ClassDrops, MarkedPackets: saved.ClassMarks},
	})
}
