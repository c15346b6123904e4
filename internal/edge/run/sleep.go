package run

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/spec"
)

// wakePeriod is the time between two looks whether a user has come to a service that sleeps, who waits
// for that long in the worst case. A look takes a proxy 0.1 ms.
const wakePeriod = 100 * time.Millisecond

// watchSleepers calls wake when a user comes to a proxy of a service that sleeps, until ctx ends.
func watchSleepers(ctx context.Context, sleepers *atomic.Pointer[[]proxy.Control], wake func()) {
	ticker := time.NewTicker(wakePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, control := range *sleepers.Load() {
			if seen, err := control.Status(ctx); err == nil && seen.Connected > 0 {
				wake()
			}
		}
	}
}

// sleepers returns the proxies of services that sleep.
func (o *observation) sleepers() *[]proxy.Control {
	list := []proxy.Control{}
	for name, parsed := range o.specs {
		if !parsed.CanSleep() || slices.ContainsFunc(o.input.Instances, func(i engine.Instance) bool { return i.Service == name }) {
			continue
		}
		for _, p := range o.proxies[name] {
			list = append(list, p.Control)
		}
	}
	return &list
}

// users returns how many users a proxy has. Those of a service that sleeps wait for an instance, and
// HAProxy counts only their connections.
func (p *observedProxy) users(s *spec.Spec) int {
	if s.CanSleep() && !slices.ContainsFunc(p.status.Servers, func(t proxy.ServerStatus) bool { return t.Up }) {
		return max(p.status.Users, p.status.Connected)
	}
	return p.status.Users
}
