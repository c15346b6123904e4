package agent

import (
	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/state"
)

// What the agent knows, in the state file's types and back.

func savedSet(v policy.Values) *state.Set {
	if v == (policy.Values{}) {
		return nil
	}
	return &state.Set{
		Weight: v.Weight, MinBPS: v.MinBPS, MaxBPS: v.MaxBPS,
		Priority: v.Priority, LatencyMS: v.LatencyMS, Class: (*string)(v.Class),
	}
}

func recalledSet(s *state.Set) policy.Values {
	if s == nil {
		return policy.Values{}
	}
	return policy.Values{
		Weight: s.Weight, MinBPS: s.MinBPS, MaxBPS: s.MaxBPS,
		Priority: s.Priority, LatencyMS: s.LatencyMS, Class: (*v1.Class)(s.Class),
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

func savedQueueing(objects []kernel.SavedObject) []state.Queueing {
	var saved []state.Queueing
	for _, o := range objects {
		saved = append(saved, state.Queueing{
			IsClass: o.IsClass, Handle: uint32(o.Handle), Parent: uint32(o.Parent),
			Kind: o.Kind, Options: o.Options, Nested: o.Nested,
		})
	}
	return saved
}

func recalledQueueing(saved []state.Queueing) []kernel.SavedObject {
	var objects []kernel.SavedObject
	for _, q := range saved {
		objects = append(objects, kernel.SavedObject{
			IsClass: q.IsClass, Handle: kernel.Handle(q.Handle), Parent: kernel.Handle(q.Parent),
			Kind: q.Kind, Options: q.Options, Nested: q.Nested,
		})
	}
	return objects
}
