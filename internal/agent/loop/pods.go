package loop

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/discovery/pods"
)

// Learn handles an event of a source outside of the agent, and puts it into force. It returns the
// state of the container of an Updated event. The next turn of the control loop, within 10 ms, saves it (in a burst up to
// saveInterval later): a pod's start waits for no file. With Admit the minimum is saved before the answer: if it is in force now,
// it is also after a crash of the agent.
func (a *Agent) Learn(ctx context.Context, event discovery.Event) (state v1.PodState, err error) {
	err = a.do(ctx, func() {
		a.containers.learn(event)
		a.apply()
		a.publish(time.Now())
		if event.Updated != nil {
			c := a.containers.byKey[key{event.Updated.Runtime, event.Updated.ID}]
			view := c.view(a.containers.owners())
			inForce := c.minimumInForce()
			state = v1.PodState{State: view.State, Reason: view.Reason, MinimumInForce: &inForce}
			if inForce && event.Admit && c.lacksAdmitted(a.store.Containers) {
				if err := a.save(); err != nil {
					a.log.Error("cannot save a pod's minimum", "name", c.Seen.Name, "error", err)
					inForce, state.Reason = false, fmt.Sprintf("the agent cannot save its minimum, and would lose it with a restart: make room or mend the disk (%v)", err)
				}
			}
		}
	})
	return state, err
}

// minimumInForce reports whether each minimum of the policy is in force at each uplink, for all packets of the
// container; true without a minimum.
func (c *container) minimumInForce() bool {
	receives := c.resolved.In.MinBPS > 0
	if c.policy().MinBPS == 0 && !receives {
		return true
	}
	if c.Number == 0 || c.Obstacle != "" || len(c.Miscounted()) > 0 {
		return false
	}
	for _, s := range c.shares {
		lacksIn := s.uplink.of == nil && (s.uplink.in == nil || s.uplink.attached.ReceivesMiscounted(&c.Container))
		if receives && lacksIn || !s.minimumInForce() {
			return false
		}
	}
	return true
}

// minimumInForce reports whether the minimum of the share's direction is in force at its uplink.
func (s *share) minimumInForce() bool {
	minBPS := s.policy().MinBPS
	return minBPS == 0 || s.uplink.installed() && s.uplink.device.Problem() == nil && len(s.uplink.attached.Miscounted(&s.container.Container)) == 0 &&
		min(s.admittedBPS, s.class.GuaranteedBPS) >= minBPS
}

// forgetGonePods forgets what has ended while weir-k8s, which would report that, was not connected.
func (cs *containers) forgetGonePods() {
	for _, runtime := range pods.Runtimes() {
		if cs.sources[runtime].Connected {
			continue
		}
		for _, c := range cs.all() {
			if c.Seen.Runtime == runtime && pods.IsGone(c.Seen) {
				cs.forget(c)
			}
		}
	}
}
