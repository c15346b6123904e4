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
	"github.com/weir-project/weir/internal/front/node"
)

// NewLocal returns Agents that measure this host, the only node, until ctx ends: by the Weir agent at
// socket, or directly if no agent runs.
func NewLocal(ctx context.Context, socket string) *Agents {
	agent := &localAgent{agent: client.Unix(socket), meter: node.NewMeter()}
	a := newAgents(ctx, func(runtime.Node) (monitor.Agent, error) { return agent, nil })
	a.first = true // a local agent answers at once or not at all
	return a
}

// localAgent asks the agent of this host. Without an agent it measures the host and reports neither
// uplinks nor containers.
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

// Follow implements monitor.Follower.
func (l *localAgent) Follow(ctx context.Context, since uint64, f client.Follower) error {
	if agent, follows := l.agent.(monitor.Follower); follows {
		return agent.Follow(ctx, since, f)
	}
	return nil
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
func (l *localAgent) Node(ctx context.Context, counted ...string) (v1.Node, error) {
	seen, err := l.agent.Node(ctx, counted...)
	if !errors.Is(err, client.ErrNoAgent) {
		return seen, err
	}
	if seen, err = l.meter.Measure(time.Now(), &v1.Snapshot{}, nil); err != nil {
		return v1.Node{}, fmt.Errorf("measure this host: %w", err)
	}
	return seen, nil
}
