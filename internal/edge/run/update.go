package run

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// updateStep is the end of an update: what the service was and is from now on, and how that went.
type updateStep struct {
	was      runtime.Service
	service  runtime.Service
	decision engine.Decision
	err      error
}

// planUpdates returns the updates that end.
func planUpdates(o *observation, decisions []engine.Decision) (list []updateStep) {
	for _, d := range decisions {
		s := o.service(d.Service)
		switch {
		case s == nil:
		case d.Action == engine.Settle:
			settled := *s
			settled.Update = runtime.Update{}
			list = append(list, updateStep{was: o.listed(d.Service), service: settled, decision: d})
		case d.Action == engine.GoBack:
			before := o.before[d.Service]
			before.Update = runtime.Update{Left: s.Made, Reason: d.Reason}
			list = append(list, updateStep{was: o.listed(d.Service), service: before, decision: d})
		}
	}
	return list
}

// sayUpdated reports the end of an update, but of one that another weir-edge was faster to end or to
// replace: the next round sees that.
func (j *journal) sayUpdated(u updateStep) {
	if errors.Is(u.err, runtime.ErrChanged) {
		return
	}
	j.fail(problem{service: u.service.Name, err: u.err})
	if u.err == nil {
		j.recordDecision(u.decision)
	}
}

// updateOf returns what is kept of an update of a listed service to s: the version before, if that
// answers.
func (o *Options) updateOf(there, s *runtime.Service, answers bool) (kept runtime.Update) {
	before := there.Update.Before
	if before == nil && answers {
		before = &runtime.Version{Document: there.Document, Pinned: there.Pinned}
	}
	if before == nil {
		return kept
	}
	if was, _, err := o.serviceOf(before.Document, before.Pinned); err == nil && was.Made != s.Made {
		kept.Before = before
	}
	return kept
}

// wireUpdate returns what readers see of the version of a service and of its last update.
func wireUpdate(s *runtime.Service) edge.Update {
	return edge.Update{Version: s.Made, InProgress: s.Update.Before != nil, Left: s.Update.Left, Reason: s.Update.Reason}
}

// gaps returns notes on what users of a service miss while it becomes another one. With a scheduler there is no
// proxy.
func (o *Options) gaps(was, is *runtime.Service, parsed *spec.Spec, runs bool) (notes []string) {
	if !o.Schedules && (!slices.Equal(hostPorts(was), hostPorts(is)) || was.Proxy.File() != is.Proxy.File() || !maps.Equal(was.Labels, is.Labels)) {
		notes = append(notes, fmt.Sprintf("%s: its proxy starts anew, because its ports, labels, response time or number of users differ: users lose their connections", is.Name))
	}
	if runs && was.Made != is.Made && parsed.IsExclusive() {
		notes = append(notes, fmt.Sprintf("%s: the old instance ends before the new one starts, because %s is for one at a time: users wait for that long", is.Name, cmp.Or(parsed.Keeper(), "its volume")))
	}
	return notes
}

func hostPorts(s *runtime.Service) (ports []uint16) {
	for _, p := range s.Ports {
		ports = append(ports, p.Host)
	}
	return ports
}
