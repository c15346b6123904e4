package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/node"
	"github.com/weir-project/weir/internal/stats"
)

// NewLocal measures the only node, which is this host, until ctx ends: by its Weir agent,
// which listens at socket, or, where there is none, by itself.
func NewLocal(ctx context.Context, socket string) (*Agents, error) {
	agent := &localAgent{agent: client.Unix(socket), meter: node.NewMeter()}
	a, err := newAgents(ctx, func(runtime.Node) (monitor.Agent, error) { return agent, nil })
	if err == nil {
		a.first = true // it answers at once, or is not there
	}
	return a, err
}

// localAgent asks the agent of this host. Without one it says what can be measured, and
// of no uplink and no container.
type localAgent struct {
	agent monitor.Agent
	meter *node.Meter
}

// Snapshot implements monitor.Agent.
func (l *localAgent) Snapshot(ctx context.Context) (v1.Snapshot, error) {
	seen, err := l.agent.Snapshot(ctx)
	if errors.Is(err, client.ErrNoAgent) {
		return v1.Snapshot{}, nil
	}
	return seen, err
}

// Access implements monitor.Agent.
func (l *localAgent) Access(ctx context.Context) (v1.Access, error) {
	who, err := l.agent.Access(ctx)
	if errors.Is(err, client.ErrNoAgent) {
		return v1.Access{}, nil
	}
	return who, err
}

// Node implements monitor.Agent.
func (l *localAgent) Node(ctx context.Context) (v1.Node, error) {
	seen, err := l.agent.Node(ctx)
	if !errors.Is(err, client.ErrNoAgent) {
		return seen, err
	}
	if seen, err = l.meter.Measure(time.Now(), &stats.Snapshot{}); err != nil {
		return v1.Node{}, fmt.Errorf("measure this host: %w", err)
	}
	return seen, nil
}
