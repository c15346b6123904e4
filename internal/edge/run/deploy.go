package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// SpecificationError is a specification that cannot be deployed.
type SpecificationError struct{ Err error }

func (e *SpecificationError) Error() string { return e.Err.Error() }

// Unwrap is what errors.Is goes by.
func (e *SpecificationError) Unwrap() error { return e.Err }

// Deploy makes a service from its specification. The same one again changes nothing.
func (m *Manager) Deploy(ctx context.Context, document []byte) (edge.Deployed, error) {
	deployed, err := m.deploy(ctx, document)
	if deployed.Changed {
		m.round(m.ctx) // so that whoever asks next sees it
		for _, i := range m.Instances() {
			if i.Service == deployed.Service && i.State == statePending {
				deployed.Notes = append(deployed.Notes, fmt.Sprintf("%s does not run: %s", i.Service, i.Reason))
			}
		}
	}
	return deployed, err
}

// Check reads a specification, and says what of it no node could run. Errors:
// *SpecificationError.
func Check(document []byte) (spec.Spec, error) {
	s, err := spec.Parse(document)
	if err == nil && s.Rule != "" {
		if err = engine.CheckRule(s.Rule); err != nil {
			err = fmt.Errorf("read the specification: rule: %w", err)
		}
	}
	if err == nil {
		_, err = proxyConfig(s, "")
	}
	if err != nil {
		return spec.Spec{}, &SpecificationError{err}
	}
	return s, nil
}

func (m *Manager) deploy(ctx context.Context, document []byte) (edge.Deployed, error) {
	s, err := Check(document)
	if err != nil {
		return edge.Deployed{}, err
	}
	service, err := m.service(s)
	if err != nil {
		return edge.Deployed{}, err
	}
	if m.opts.DryRun {
		return edge.Deployed{}, errors.New("deploy: this weir-edge runs with --dry-run and changes nothing")
	}
	if err := m.fetch(ctx, s.Name, s.Image); err != nil {
		return edge.Deployed{}, err
	}
	m.rounds.Lock()
	defer m.rounds.Unlock()
	state, err := m.rt.Look(ctx)
	if err != nil {
		return edge.Deployed{}, err
	}
	if err := portsFree(service, state.Services); err != nil {
		return edge.Deployed{}, err
	}
	for _, there := range state.Services {
		if there.Name != s.Name {
			continue
		}
		if there.Document == service.Document {
			return edge.Deployed{Service: s.Name, Notes: odd(&s, m.opts.Engine)}, nil
		}
		return edge.Deployed{}, fmt.Errorf("service %s %w, with another specification: remove it first (weir-edge rm %[1]s)", s.Name, runtime.ErrExists)
	}
	if err := m.rt.Deploy(ctx, service); err != nil {
		return edge.Deployed{}, err
	}
	m.record(edge.Event{Kind: edge.EventDeployed, Service: s.Name, Message: fmt.Sprintf("service %s was deployed", s.Name)})
	return edge.Deployed{Service: s.Name, Changed: true, Notes: odd(&s, m.opts.Engine)}, nil
}

// odd says what of a specification does less than it says.
func odd(s *spec.Spec, e *engine.Engine) (notes []string) {
	if !e.HasAlgorithm(s.Algorithm) {
		notes = append(notes, fmt.Sprintf("there is no algorithm %q here, so hybrid decides: write local, remote, hybrid, rule, or the name of a rule of the configuration", s.Algorithm))
	}
	if s.NumUsers > 0 && s.MaxUsers == 0 {
		notes = append(notes, fmt.Sprintf("QoS.numUsers %d has no effect without par.maxUsers, the users that one instance serves: weir-edge profile measures it", s.NumUsers))
	}
	return notes
}

// fetch gets an image to where it can be got without starting anything, so that an
// error is the answer to who deploys.
func (m *Manager) fetch(ctx context.Context, service, image string) error {
	late := time.AfterFunc(pullingAfter, func() {
		m.record(edge.Event{Kind: edge.EventPulling, Service: service, Message: "pulling the image " + image})
	})
	found, err := m.rt.Fetch(ctx, image)
	late.Stop()
	if err != nil {
		return err
	}
	nodes, err := m.rt.Nodes(ctx)
	if err != nil {
		return err
	}
	if len(nodes) == 1 {
		m.learnImage(nodes[0].Name, image, found)
	}
	return nil
}

// pullingAfter is how long getting an image may take without a word: one that is there
// is found at once.
const pullingAfter = 200 * time.Millisecond

// portsFree says which other service has a port of a new one.
func portsFree(s runtime.Service, others []runtime.Service) error {
	for _, other := range others {
		parsed, err := spec.Parse([]byte(other.Document))
		if err != nil || other.Name == s.Name {
			continue
		}
		for _, p := range parsed.Ports {
			if slices.ContainsFunc(s.Ports, func(q runtime.Port) bool { return q.Host == p.Host }) {
				return fmt.Errorf("deploy %s: port %d is the service %s's: choose another", s.Name, p.Host, other.Name)
			}
		}
	}
	return nil
}

// service is what a runtime makes of a specification.
func (m *Manager) service(s spec.Spec) (runtime.Service, error) {
	document, err := s.MarshalJSON()
	if err != nil {
		return runtime.Service{}, fmt.Errorf("write the specification of %s: %w", s.Name, err)
	}
	config, err := proxyConfig(s, m.opts.Control)
	if err != nil {
		return runtime.Service{}, &SpecificationError{err}
	}
	made := runtime.Service{
		Name: s.Name, Document: string(document), Image: s.Image, Labels: maps.Clone(s.Labels),
		MemoryBytes: s.Limits.MemoryBytes, CPUs: s.Limits.CPUs, Proxy: config,
	}
	for _, p := range s.Ports {
		made.Ports = append(made.Ports, runtime.Port{Host: p.Host, Container: p.Container})
	}
	return made, nil
}

func proxyConfig(s spec.Spec, control string) (proxy.Config, error) {
	c := proxy.Config{
		Service: s.Name, Mode: proxy.ModeHTTP, Control: control, QueueTimeout: 30 * time.Second,
		ResponseTime: time.Duration(s.ResponseSeconds * float64(time.Second)),
	}
	switch mode := proxy.Mode(s.Labels[spec.LabelMode]); mode {
	case "":
	case proxy.ModeHTTP, proxy.ModeTCP:
		c.Mode = mode
	default:
		return c, fmt.Errorf("read the specification: the label %s is %q: write http or tcp", spec.LabelMode, mode)
	}
	c.Health = s.Labels[spec.LabelHealth]
	if err := proxy.CheckHealthPath(c.Health); err != nil {
		return c, fmt.Errorf("read the specification: the label %s: %w", spec.LabelHealth, err)
	}
	for _, p := range s.Ports {
		c.Ports = append(c.Ports, proxy.Port{Host: p.Host})
	}
	return c, nil
}

// Remove ends a service.
func (m *Manager) Remove(ctx context.Context, service string) error {
	err := m.remove(ctx, service)
	m.round(m.ctx)
	return err
}

func (m *Manager) remove(ctx context.Context, service string) error {
	if m.opts.DryRun {
		return errors.New("remove: this weir-edge runs with --dry-run and changes nothing")
	}
	m.rounds.Lock()
	defer m.rounds.Unlock()
	if err := m.rt.Remove(ctx, service); err != nil {
		return err
	}
	m.record(edge.Event{Kind: edge.EventRemoved, Service: service, Message: fmt.Sprintf("service %s was removed", service)})
	return nil
}
