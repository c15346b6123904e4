package loop

import (
	"context"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/discovery/pods"
)

// Learn handles an event of a source outside of the agent, and puts it into force. It returns the
// container of an Updated event.
func (a *Agent) Learn(ctx context.Context, event discovery.Event) (view v1.Container, err error) {
	err = a.do(ctx, func() {
		a.containers.learn(event)
		a.reconcile()
		if event.Updated != nil {
			view = a.containers.byKey[key{event.Updated.Runtime, event.Updated.ID}].view(a.containers.owners())
		}
	})
	return view, err
}

// forgetGonePods forgets the pods that have ended while weir-k8s, which would report that, was not
// connected.
func (cs *containers) forgetGonePods() {
	if cs.sources[pods.Runtime].Connected {
		return
	}
	for _, c := range cs.all() {
		if c.Seen.Runtime == pods.Runtime && pods.IsGone(c.Seen) {
			cs.forget(c)
		}
	}
}
