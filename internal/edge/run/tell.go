package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/policy"
)

// told is what an agent was told last of a container, and what it said.
type told struct {
	bps uint64
	at  time.Time
	// hasBPS is what the container has since, if the agent did as it was told.
	done   bool
	hasBPS uint64
	// refused is why the minimum is not in force, since when.
	refused string
	since   time.Time
}

const (
	// refusalPatience is for how long an agent has to refuse, again and again: what somebody
	// else gives back is free with the agent's next look.
	refusalPatience = 2 * time.Second
	// tellTimeout bounds one change of a policy.
	tellTimeout = 2 * time.Second
)

// begin says whether nobody tells a node's agent anything; then somebody does from now on.
func (x *minimums) begin(node string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.telling[node] {
		return false
	}
	x.telling[node] = true
	return true
}

func (x *minimums) end(node string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.telling, node)
}

// forget drops what was said of containers that nobody speaks of any more.
func (x *minimums) forget(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.told, func(_ string, t told) bool { return now.Sub(t.at) > time.Minute })
}

// refusal is why an agent has refused a container's minimum for a while; empty if it has
// not.
func (x *minimums) refusal(container string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.told[container]
	if t.at.Sub(t.since) < refusalPatience {
		return ""
	}
	return t.refused
}

// tell tells a node's agent what is to be in force, in that order, for as long as it answers:
// what it is told late may not be right any more. If it has said anything, another round
// looks at what there is now.
func (m *Manager) tell(ctx context.Context, n Measured, wishes []wish) {
	if n.readOnly() {
		m.cannotTell(n, wishes)
		return
	}
	answered := false
	for _, w := range wishes {
		has, err := w.bps, set(ctx, n, w, w.bps)
		if isRefusal(err) && w.promised < w.bps {
			m.failedAt("relay refused", w.service, "", n.Node.Name, fmt.Errorf("users of %s who come to %s have less than its minimum: the agent there does not relay %s: %w",
				w.service, n.Node.Name, policy.FormatRate(w.bps-w.promised), err))
			has, err = max(w.has, w.promised), nil
			if w.has < w.promised {
				err = set(ctx, n, w, w.promised)
			}
		}
		if !m.heard(n.Node.Name, w, has, err) {
			break
		}
		answered = true
	}
	if answered {
		m.again()
	}
}

// cannotTell takes what an agent would have to be told for a refusal, where weir-edge may
// only look: it could change policies when that was promised.
func (m *Manager) cannotTell(n Measured, wishes []wish) {
	err := &client.Error{Status: http.StatusForbidden, Message: "it lets " + n.Seen.Access.Name + " only look"}
	for _, w := range wishes {
		if w.bps > w.has {
			m.heard(n.Node.Name, w, w.has, err)
		}
	}
}

// set tells a node's agent the minimum of one container.
func set(ctx context.Context, n Measured, w wish, bps uint64) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	minimum, latency := "none", "none"
	if bps > 0 {
		minimum = policy.FormatRate(bps)
		if w.latency != "" {
			latency = w.latency
		}
	}
	_, err := n.Agent.Set(ctx, w.container, v1.PolicyChange{Min: &minimum, Latency: &latency})
	var answer *client.Error
	if errors.As(err, &answer) { // it is kept, shown and quoted in events
		return &client.Error{Status: answer.Status, Message: monitor.Cut(answer.Message)}
	}
	return err
}

// heard notes what a node's agent said to a wish, if it did, and says it where it matters.
// Without an error hasBPS is what the container has now.
func (m *Manager) heard(node string, w wish, hasBPS uint64, err error) (answered bool) {
	x := &m.minimums
	x.mu.Lock()
	last, now := x.told[w.container], time.Now()
	said := told{bps: w.bps, at: now, done: err == nil, hasBPS: hasBPS, since: now}
	if isRefusal(err) {
		said.refused = err.Error()
		if last.refused != "" {
			said.since = last.since
		}
	}
	x.told[w.container] = said
	x.mu.Unlock()
	var answer *client.Error
	answered = err == nil || errors.As(err, &answer)
	switch {
	case err == nil, m.ctx.Err() != nil: // weir-edge ends
	case isRefusal(err):
		m.failedAt("refused", w.service, "", node, fmt.Errorf("the agent of %s refuses the minimum %s of %s: %w", node, policy.FormatRate(w.bps), w.service, err))
	case answered && answer.Status == http.StatusNotFound: // it has ended
	default:
		m.failed(w.service, "", node, fmt.Errorf("tell the agent of %s the minimum of %s: %w", node, w.service, err))
	}
	return answered
}

// isRefusal says whether an agent does not give what it was told to: it has no room for it,
// or lets weir-edge only look.
func isRefusal(err error) bool {
	var answer *client.Error
	return errors.As(err, &answer) && (answer.Status == http.StatusConflict || answer.Status == http.StatusForbidden)
}
