package agent

import (
	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/state"
	"github.com/weir-project/weir/internal/stats"
)

// What the agent knows, in the state file's types and back.

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

func savedAttachments(list []attachment) []state.Attachment {
	var saved []state.Attachment
	for _, at := range list {
		saved = append(saved, state.Attachment{
			Interface: at.Interface, Tap: state.Tap(at.Tap), GSOMaxBytes: at.gsoBefore,
		})
	}
	return saved
}

func recalledAttachments(saved []state.Attachment) []attachment {
	var list []attachment
	for _, at := range saved {
		list = append(list, attachment{
			Attachment: identity.Attachment{Interface: at.Interface, Tap: identity.Tap(at.Tap)},
			gsoBefore:  at.GSOMaxBytes,
			saved:      true,
		})
	}
	return list
}

// savedCounted is what a share has sent, with what the kernel's counters said.
func savedCounted(s *share) state.Counted {
	last := s.uplink.ledger.Last(s.number)
	return state.Counted{
		SentBytes: s.totals.SentBytes, SentPackets: s.totals.SentPackets, DroppedPackets: s.totals.DroppedPackets, MarkedPackets: s.totals.MarkedPackets,
		ClassBytes: last.ClassBytes, ClassPackets: last.ClassPackets, ClassDrops: last.DroppedPackets, ClassMarks: last.MarkedPackets,
		DirectBytes: last.DirectBytes, DirectPackets: last.DirectPackets,
	}
}

// recallCounted lets a share go on counting where an earlier agent ended: of the same
// class, or of another, that has counted nothing yet.
func recallCounted(s *share, saved state.Counted, sameClass bool) {
	s.totals = stats.Totals{
		SentBytes: saved.SentBytes, SentPackets: saved.SentPackets, DroppedPackets: saved.DroppedPackets, MarkedPackets: saved.MarkedPackets,
	}
	if !sameClass {
		return
	}
	s.uplink.ledger.Resume(s.number, stats.Reading{
		Sent: stats.Sent{
			ClassBytes: saved.ClassBytes, ClassPackets: saved.ClassPackets,
			DirectBytes: saved.DirectBytes, DirectPackets: saved.DirectPackets,
		},
		Queue: stats.Queue{DroppedPackets: saved.ClassDrops, MarkedPackets: saved.ClassMarks},
	})
}
