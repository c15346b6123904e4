package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/minimums"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/share/policy"
)

// tellTimeout limits one policy change at an agent.
const tellTimeout = 2 * time.Second

// answer is an agent's answer to an order.
type answer struct {
	order  minimums.Order
	at     time.Time
	hasBPS uint64 // without an error: what the container has now
	err    error
	sent   bool // to the agent
	// relayErr is why the agent refuses the part of the order that is a relay, startErr that for
	// instances that start.
	relayErr, startErr error
}

// tell sends orders to a node's agent one by one and stops if it does not answer, because a late
// order may be outdated.
func tell(ctx context.Context, n *Measured, orders []minimums.Order) (answers []answer) {
	for _, o := range orders {
		a := answer{order: o, hasBPS: o.BPS}
		switch {
		case !n.isReadOnly():
			a.sent, a.err = true, set(ctx, n, o, o.BPS)
		case o.BPS <= o.HasBPS:
			continue
		default: // it let weir-edge change policies when that was promised
			a.err = &client.Error{Status: http.StatusForbidden, Message: "it gives " + n.Reported.Access.Name + " only the role read"}
		}
		if a.sent && isRefusal(a.err) && 0 < o.StartingBPS && o.StartingBPS < o.BPS {
			a.startErr = a.err
			a.setLess(ctx, n, o.BPS-o.StartingBPS)
		}
		if a.sent && isRefusal(a.err) && o.PromisedBPS < o.BPS {
			a.relayErr = a.err
			a.setLess(ctx, n, o.PromisedBPS-o.StartingBPS)
		}
		a.at = time.Now()
		answers = append(answers, a)
		if !a.isAnswered() {
			break
		}
	}
	return answers
}

// setLess sets a part of an order that the agent has refused, unless the container has as much.
func (a *answer) setLess(ctx context.Context, n *Measured, bps uint64) {
	a.hasBPS, a.err = max(a.order.HasBPS, bps), nil
	if a.order.HasBPS < bps {
		a.err = set(ctx, n, a.order, bps)
	}
}

// set sets the minimum of one container at a node's agent.
func set(ctx context.Context, n *Measured, o minimums.Order, bps uint64) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	minimum, latency := "none", "none"
	if bps > 0 {
		minimum = policy.FormatRate(bps)
		if o.Latency != "" {
			latency = o.Latency
		}
	}
	change := v1.PolicyChange{Min: &minimum, Latency: &latency}
	if o.In {
		change = v1.PolicyChange{InMin: &minimum, InLatency: &latency}
	}
	_, err := n.Agent.Set(ctx, o.Container, change)
	var said *client.Error
	if errors.As(err, &said) { // it is kept, shown and quoted in events
		return &client.Error{Status: said.Status, Message: monitor.Cut(said.Message)}
	}
	return err
}

// isAnswered reports whether the agent answered, an error included.
func (a *answer) isAnswered() bool {
	var said *client.Error
	return a.err == nil || errors.As(a.err, &said)
}

// noteAnswers records an agent's answers and reports refusals. Any answer triggers another round.
func (m *Manager) noteAnswers(node string, answers []answer) {
	delete(m.told.telling, node)
	for _, a := range answers {
		o := a.order
		noted := minimums.Answer{State: minimums.InForce, HasBPS: a.hasBPS}
		if isRefusal(a.err) {
			noted = minimums.Answer{State: minimums.Refused, Reason: a.err.Error()}
		} else if a.err != nil {
			noted = minimums.Answer{}
		}
		m.minimums.Note(a.at, o, noted)
		if a.sent && a.isAnswered() {
			m.requestRound()
		}
		if a.relayErr != nil {
			m.journal.fail(problem{service: o.Service, node: node, same: "relay refused", err: fmt.Errorf(
				"users of %s who come to %s have less than its minimum: the agent there does not relay %s: %w",
				o.Service, node, policy.FormatRate(o.BPS-o.PromisedBPS), a.relayErr)})
		}
		if a.startErr != nil {
			m.journal.fail(problem{service: o.Service, node: node, same: "start refused", err: fmt.Errorf(
				"the agent of %s keeps nothing of the minimum of %s for the instance that starts there: %w", node, o.Service, a.startErr)})
		}
		var said *client.Error
		switch {
		case a.err == nil, m.ctx.Err() != nil: // weir-edge ends
		case isRefusal(a.err):
			m.journal.fail(problem{service: o.Service, node: node, same: fmt.Sprint("refused", o.In), err: fmt.Errorf(
				"the agent of %s refuses the minimum %s of %s: %w", node, ratesOf(o), o.Service, a.err)})
		case errors.As(a.err, &said) && said.Status == http.StatusNotFound: // the container has ended
		default:
			m.journal.fail(problem{service: o.Service, node: node, err: fmt.Errorf("set the minimum of %[2]s at node %[1]s: %[3]w", node, o.Service, a.err)})
		}
	}
}

// ratesOf returns what an order asks for.
func ratesOf(o minimums.Order) engine.Rates {
	if o.In {
		return engine.Rates{In: o.BPS}
	}
	return engine.Rates{Out: o.BPS}
}

// isRefusal reports whether an agent rejected an order: no room for it, or read-only access.
func isRefusal(err error) bool {
	var said *client.Error
	return errors.As(err, &said) && (said.Status == http.StatusConflict || said.Status == http.StatusForbidden)
}
