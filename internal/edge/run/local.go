package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/node"
	"github.com/weir-project/weir/internal/stats"
)

// localPeriod is the time between two questions to the agent of this host.
const localPeriod = time.Second

// Local measures the only node, which is this host: by its Weir agent or, where there
// is none, by itself. It implements Nodes.
type Local struct {
	agent *client.Client
	meter *node.Meter

	mu   sync.Mutex
	last Measured
	used map[string]float64 // processor seconds of containers, by ID
	at   time.Time          // of used
}

// NewLocal makes a measurer of this host, whose agent listens at socket.
func NewLocal(socket string) *Local {
	return &Local{agent: client.Unix(socket), meter: node.NewMeter()}
}

// Measure implements Nodes.
func (l *Local) Measure(ctx context.Context, nodes []runtime.Node) []Measured {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.last.At) > localPeriod {
		if fresh, err := l.measure(ctx); err != nil {
			l.last.Error = err
		} else {
			l.last = fresh
		}
	}
	list := make([]Measured, len(nodes))
	for i, n := range nodes {
		list[i] = l.last
		list[i].Node = n
	}
	return list
}

func (l *Local) measure(ctx context.Context) (Measured, error) {
	ctx, cancel := context.WithTimeout(ctx, localPeriod)
	defer cancel()
	m := Measured{At: time.Now()}
	seen, err := l.agent.Node(ctx)
	switch {
	case err == nil:
		m.Weir = true
		if m.Containers, err = l.agent.Containers(ctx); err != nil {
			return m, err
		}
	case errors.Is(err, client.ErrNoAgent):
		if seen, err = l.meter.Measure(m.At, &stats.Snapshot{}); err != nil {
			return m, fmt.Errorf("measure this host: %w", err)
		}
	default:
		return m, err
	}
	m.Values = seen.Measured
	m.CPUs = l.rates(m.At, seen.Measured.Containers)
	return m, nil
}

// rates are the processors that containers have kept busy since the last question.
func (l *Local) rates(now time.Time, containers []v1.MeasuredContainer) map[string]float64 {
	passed := now.Sub(l.at).Seconds()
	used, rates := map[string]float64{}, map[string]float64{}
	for _, c := range containers {
		if c.CPUSeconds == nil {
			continue
		}
		used[c.ID] = *c.CPUSeconds
		if before, known := l.used[c.ID]; known && passed > 0 {
			rates[c.ID] = max(0, *c.CPUSeconds-before) / passed
		}
	}
	l.used, l.at = used, now
	return rates
}
