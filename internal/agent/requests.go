package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/policy"
)

// What users ask of the agent through its socket.

var (
	// ErrUnknown is a name or ID that no running container has.
	ErrUnknown = errors.New("no such container")
	// ErrAmbiguous is a name or ID that several containers have.
	ErrAmbiguous = errors.New("several containers match")
	// ErrRefused is a change that cannot be made. Nothing was changed.
	ErrRefused = errors.New("refused")
)

// Containers lists what runs, the host class last.
func (a *Agent) Containers(ctx context.Context) ([]v1.Container, error) {
	var list []v1.Container
	err := a.do(ctx, func() {
		for _, c := range a.registry.all() {
			list = append(list, c.view())
		}
		list = append(list, a.host.view())
	})
	return list, err
}

// Status describes the agent and its uplink.
func (a *Agent) Status(ctx context.Context) (v1.Status, error) {
	var status v1.Status
	err := a.do(ctx, func() {
		status = v1.Status{
			Version:    a.config.Version,
			Uplink:     a.uplink.name,
			RateBPS:    a.uplink.rateBPS,
			ReserveBPS: a.reserveBPS(),
			Scheduler:  a.uplink.backend.Name(),
			State:      v1.StateOK,
		}
		if a.uplink.reason != nil {
			status.State, status.Reason = v1.StateDegraded, a.uplink.reason.Error()
		}
		for _, c := range a.participants {
			status.SentBPS += c.rate.bps()
		}
		for _, s := range a.config.Sources {
			status.Sources = append(status.Sources, a.sources[s.Name()])
		}
	})
	return status, err
}

// find looks a container up by name, ID or the start of an ID.
func (a *Agent) find(name string) (*container, error) {
	if name == a.host.Name {
		return a.host, nil
	}
	var byName, byID []*container
	for _, c := range a.registry.all() {
		switch {
		case c.ID == name:
			return c, nil
		case c.Name == name:
			byName = append(byName, c)
		case len(name) >= 4 && strings.HasPrefix(c.ID, name):
			byID = append(byID, c)
		}
	}
	matches := byName
	if len(matches) == 0 {
		matches = byID
	}
	switch len(matches) {
	case 0:
		return nil, fmt.Errorf("%w: %q; `weir ps` lists those that run", ErrUnknown, name)
	case 1:
		return matches[0], nil
	}
	var ids []string
	for _, c := range matches {
		ids = append(ids, fmt.Sprintf("%s (%s)", short(c.ID), c.Runtime))
	}
	return nil, fmt.Errorf("%w %q: use the ID of the one you mean: %s", ErrAmbiguous, name, strings.Join(ids, ", "))
}

// Set changes the policy of a running container until it stops. Errors:
// ErrUnknown, ErrAmbiguous, ErrRefused.
func (a *Agent) Set(ctx context.Context, name string, change v1.PolicyChange) (v1.Container, error) {
	var (
		view v1.Container
		err  error
	)
	doErr := a.do(ctx, func() {
		var c *container
		if c, err = a.find(name); err != nil {
			return
		}
		if err = a.set(c, change); err != nil {
			return
		}
		a.reconcile()
		view = c.view()
	})
	return view, errors.Join(doErr, err)
}

func (a *Agent) set(c *container, change v1.PolicyChange) error {
	if c == a.host {
		return fmt.Errorf("%w: the host class has its policy in the config file", ErrRefused)
	}
	p, err := policy.ApplyChange(c.policy(), change)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if p.MinBPS > c.admittedBPS && c.number != 0 {
		others := a.host.admittedBPS
		for _, other := range a.registry.byNumber {
			if other != c {
				others += other.admittedBPS
			}
		}
		if err := a.admission().Admit(others, c.admittedBPS, p.MinBPS); err != nil {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	c.override = &p
	a.log.Info("policy set", "name", c.Name, "policy", p)
	return nil
}

// Reset goes back to the policy of the container's labels. Errors:
// ErrUnknown, ErrAmbiguous.
func (a *Agent) Reset(ctx context.Context, name string) (v1.Container, error) {
	var (
		view v1.Container
		err  error
	)
	doErr := a.do(ctx, func() {
		var c *container
		if c, err = a.find(name); err != nil {
			return
		}
		c.override = nil
		a.log.Info("policy reset", "name", c.Name)
		a.reconcile()
		view = c.view()
	})
	return view, errors.Join(doErr, err)
}

// Down takes everything out of the kernel, puts back what was there before,
// and ends Run.
func (a *Agent) Down(ctx context.Context) error {
	var err error
	doErr := a.do(ctx, func() {
		for _, c := range a.registry.byKey {
			a.release(c)
		}
		err = a.uplink.remove()
		if a.removed = err == nil; a.removed {
			a.log.Info("uplink given back", "uplink", a.uplink.name)
		}
	})
	return errors.Join(doErr, err)
}

// save keeps what neither the kernel nor a source knows.
func (a *Agent) save() error {
	containers := make([]savedContainer, 0, len(a.registry.byKey))
	for _, c := range a.registry.all() {
		s := savedContainer{
			ID: c.ID, Name: c.Name, Runtime: c.Runtime, Labels: c.Labels,
			NetNSPath: c.NetNSPath, Interface: c.Interface, StartedAt: c.StartedAt,
			Number: c.number, AdmittedBPS: c.admittedBPS, Override: c.override,
			HostNetwork: c.HostNetwork, SharesNetwork: c.SharesNetworkOf,
		}
		for _, at := range c.attachments {
			s.Attached = append(s.Attached, savedAttachment{
				Interface: at.Interface, HostIfindex: at.Tap.Ifindex, GSOMaxBytes: at.gsoBefore,
			})
		}
		containers = append(containers, s)
	}
	a.store.state.Containers = containers
	return a.store.save()
}

// recall takes up the containers that an earlier agent knew, so that their
// classes stay until their source has said who runs.
func (a *Agent) recall() {
	for _, s := range a.store.state.Containers {
		if _, configured := a.sources[s.Runtime]; !configured {
			continue
		}
		c := &container{
			Container: discovery.Container{
				ID: s.ID, Name: s.Name, Runtime: s.Runtime, Labels: s.Labels,
				NetNSPath: s.NetNSPath, Interface: s.Interface, StartedAt: s.StartedAt,
				HostNetwork: s.HostNetwork, SharesNetworkOf: s.SharesNetwork,
			},
			override: s.Override,
		}
		c.attachments = s.attachments()
		c.labelPolicy, c.problems = policy.Parse(c.Labels)
		if s.Number != 0 {
			a.registry.assign(c, s.Number)
			c.admittedBPS = s.AdmittedBPS
		}
		a.registry.byKey[c.key()] = c
		a.inspect(c)
	}
}
