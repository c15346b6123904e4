package agent

import (
	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/state"
	"github.com/weir-project/weir/internal/stats"
)

// What the agent knows, in the state file's types and back.

func savedSet(p *v1.Policy) *state.Set {
	if p == nil {
		return nil
	}
	class := string(p.Class)
	return &state.Set{
		Weight: &p.Weight, MinBPS: &p.MinBPS, MaxBPS: &p.MaxBPS,
		Priority: &p.Priority, LatencyMS: &p.LatencyMS, Class: &class,
	}
}

// recalledSet is the policy of a container whose labels ask for p, and of which
// something was set.
func recalledSet(s *state.Set, p v1.Policy) *v1.Policy {
	if s == nil {
		return nil
	}
	take(&p.Weight, s.Weight)
	take(&p.MinBPS, s.MinBPS)
	take(&p.MaxBPS, s.MaxBPS)
	take(&p.Priority, s.Priority)
	take(&p.LatencyMS, s.LatencyMS)
	if s.Class != nil {
		p.Class = v1.Class(*s.Class)
	}
	return &p
}

func take[T any](dst, saved *T) {
	if saved != nil {
		*dst = *saved
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
		})
	}
	return list
}

// savedCounted is what a share has sent, with what the kernel's counters said.
func savedCounted(s *share) state.Counted {
	last := s.uplink.ledger.Last(s.number)
	return state.Counted{
		SentBytes: s.totals.SentBytes, SentPackets: s.totals.SentPackets, DroppedPackets: s.totals.DroppedPackets,
		ClassBytes: last.ClassBytes, ClassPackets: last.ClassPackets, ClassDrops: last.DroppedPackets,
		DirectBytes: last.DirectBytes, DirectPackets: last.DirectPackets,
	}
}

// recallCounted lets a share go on counting where an earlier agent ended.
func recallCounted(s *share, saved state.Counted) {
	s.totals = stats.Totals{
		SentBytes: saved.SentBytes, SentPackets: saved.SentPackets, DroppedPackets: saved.DroppedPackets,
	}
	s.uplink.ledger.Resume(s.number, stats.Reading{
		Sent: stats.Sent{
			ClassBytes: saved.ClassBytes, ClassPackets: saved.ClassPackets,
			DirectBytes: saved.DirectBytes, DirectPackets: saved.DirectPackets,
		},
		DroppedPackets: saved.ClassDrops,
	})
}
