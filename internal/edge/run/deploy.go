package run

import (
	"cmp"
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

// SpecificationError is the error of a specification that cannot be deployed.
type SpecificationError struct{ Err error }

func (e *SpecificationError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SpecificationError) Unwrap() error { return e.Err }

// Deploy creates or updates a service. An identical specification with the same image changes nothing.
func (m *Manager) Deploy(ctx context.Context, document []byte) (deployed edge.Deployed, err error) {
	s, err := Check(document)
	if err != nil {
		return deployed, err
	}
	files, err := s.TakeFiles()
	if err == nil {
		err = m.place(ctx, &s)
	}
	if err != nil {
		return deployed, &SpecificationError{err}
	}
	service, err := m.opts.newService(s)
	if err != nil {
		return deployed, err
	}
	service.Files = files
	if m.opts.DryRun {
		return deployed, errors.New("deploy: this weir-edge runs with --dry-run and changes nothing")
	}
	if err := m.opts.checkProxy(&service); err != nil {
		return deployed, err
	}
	image, err := m.fetch(ctx, s.Name, s.Image)
	if err != nil {
		return deployed, err
	}
	service.Pinned, service.Made = image.Pinned, m.opts.fingerprint(&s, image.Pinned)
	ended := m.takeTurn(ctx, func(ctx context.Context) { deployed, err = m.deploy(ctx, service, &s) })
	if err = errors.Join(ended, err); err != nil {
		return edge.Deployed{}, err
	}
	deployed.Service, deployed.Version, deployed.Notes = s.Name, service.Made, append(append(deployed.Notes, odd(&s, m.opts.Engine)...), m.opts.unused(&s)...)
	if image.Note != "" {
		deployed.Notes = append(deployed.Notes, image.Note)
	}
	for _, i := range m.Snapshot().Instances {
		if deployed.Changed && i.Service == s.Name && i.State == statePending {
			deployed.Notes = append(deployed.Notes, fmt.Sprintf("%s does not run: %s", i.Service, i.Reason))
		}
	}
	return deployed, nil
}

// checkProxy returns why the host cannot run the proxy of a service; nil for one without ports.
func (o *Options) checkProxy(s *runtime.Service) error {
	if o.CheckProxy == nil || o.Schedules || len(s.Ports) == 0 {
		return nil
	}
	if err := o.CheckProxy(); err != nil {
		return fmt.Errorf("start the proxy of %s: %w", s.Name, err)
	}
	return nil
}

// place writes the ID of the node into the specification of a service that is kept on one: where it is,
// else the node that the specification names, else the node of this engine.
func (m *Manager) place(ctx context.Context, s *spec.Spec) error {
	if s.Container == nil || s.Container.Node == "" && s.Keeper() == "" {
		return nil
	}
	nodes, err := m.opts.Runtime.Nodes(ctx)
	if err != nil {
		return err
	}
	c := *s.Container
	i := slices.IndexFunc(nodes, func(n runtime.Node) bool {
		return c.Node == "" && n.Here || c.Node != "" && (n.Name == c.Node || n.ID == c.Node)
	})
	if i < 0 {
		return fmt.Errorf("deploy %s: there is no node %q; weir-edge nodes lists what is", s.Name, c.Node)
	}
	for _, there := range m.Snapshot().Services {
		var kept spec.Spec
		if there.Name == s.Name && c.Node == "" && kept.UnmarshalJSON(there.Specification) == nil && kept.Container != nil {
			c.Node = kept.Container.Node
		}
	}
	c.Node = cmp.Or(c.Node, nodes[i].ID)
	if c.Node == nodes[i].Name {
		c.Node = nodes[i].ID
	}
	s.Container = &c
	return nil
}

// takeTurn runs apply between two rounds and waits for it and the round that follows. Its context ends
// with ctx and with Run.
func (m *Manager) takeTurn(ctx context.Context, apply func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := change{func(running context.Context) {
		defer context.AfterFunc(running, cancel)()
		apply(ctx)
	}, make(chan struct{})}
	select {
	case m.changes <- c:
		<-c.done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-m.stopped:
		return errors.New("weir-edge ends")
	}
}

// Check parses a specification and returns it if nodes could run it. Errors: *SpecificationError.
func Check(document []byte) (spec.Spec, error) {
	s, err := spec.Parse(document)
	if err == nil && s.Rule != "" {
		if err = engine.CheckRule(s.Rule); err != nil {
			err = fmt.Errorf("read the specification: rule: %w", err)
		}
	}
	if err == nil {
		_, err = new(Options).proxyConfig(s)
	}
	if err != nil {
		return spec.Spec{}, &SpecificationError{err}
	}
	return s, nil
}

// deploy creates or updates a service. Only turns may call it.
func (m *Manager) deploy(ctx context.Context, service runtime.Service, parsed *spec.Spec) (deployed edge.Deployed, err error) {
	state, err := m.opts.Runtime.Look(ctx)
	if err != nil {
		return deployed, err
	}
	if err := portsFree(service, state.Services); err != nil && !m.opts.Schedules {
		return deployed, err
	}
	message := "was deployed"
	if i := slices.IndexFunc(state.Services, func(s runtime.Service) bool { return s.Name == service.Name }); i >= 0 {
		there := &state.Services[i]
		if there.Document == service.Document && there.Pinned == service.Pinned {
			return deployed, nil
		}
		runs := m.answers(service.Name)
		service.Update = m.opts.updateOf(there, &service, runs)
		if was, _, err := m.opts.serviceOf(there.Document, there.Pinned); err == nil {
			deployed.Notes = m.opts.gaps(&was, &service, parsed, runs)
		}
		message = "is being updated"
		err = m.opts.Runtime.Update(ctx, *there, service)
	} else {
		err = m.opts.Runtime.Deploy(ctx, service)
	}
	if err != nil {
		return deployed, err
	}
	deployed.Changed = true
	m.runInLoop(func() {
		m.journal.record(edge.Event{Kind: edge.EventDeployed, Service: service.Name, Message: message})
	})
	return deployed, nil
}

// answers reports whether an instance of a service answered in the last round.
func (m *Manager) answers(service string) bool {
	return slices.ContainsFunc(m.view.Load().Instances, func(i edge.Instance) bool {
		return i.Service == service && i.State == string(engine.InstanceRunning)
	})
}

// unused returns notes on parts of a specification that have no effect where there are no proxies.
func (o *Options) unused(s *spec.Spec) (notes []string) {
	if !o.Schedules {
		return nil
	}
	if s.ResponseSeconds > 0 {
		notes = append(notes, "QoS.responseTime starts no instances on Kubernetes: requests pass no proxy of weir-edge, so nothing measures how long they take; users (par.maxUsers) and busy processors (limits.cpus) start some")
	}
	if s.Labels[spec.LabelMode] != "" {
		notes = append(notes, "the label "+spec.LabelMode+" has no effect on Kubernetes: there is no proxy of weir-edge")
	}
	if o.isUncounted() {
		notes = append(notes, "nothing counts users: give --agents, and the agents of the DaemonSet a certificate (docs/kubernetes.md). Until then there are as many instances as QoS.numUsers and QoS.availability need")
	}
	return notes
}

// odd returns notes on parts of a specification that have less effect than expected.
func odd(s *spec.Spec, e *engine.Engine) (notes []string) {
	if !e.HasAlgorithm(s.Algorithm) {
		notes = append(notes, fmt.Sprintf("there is no algorithm %q here, so hybrid decides: write local, remote, hybrid, rule, or the name of a rule of the configuration", s.Algorithm))
	}
	if s.NumUsers > 0 && s.MaxUsers == 0 {
		notes = append(notes, fmt.Sprintf("QoS.numUsers %d has no effect without par.maxUsers, the users that one instance serves: weir-edge profile measures it", s.NumUsers))
	}
	if s.Container != nil && s.Container.Sleeps && !s.CanSleep() {
		notes = append(notes, "x-weir-edge.minInstances 0 has no effect without ports, and with numUsers, availability, weir.min or more replicas: one instance stays")
	}
	return notes
}

// fetch fetches an image without starting an instance, so that a deployment fails early.
func (m *Manager) fetch(ctx context.Context, service, image string) (runtime.Image, error) {
	late := time.AfterFunc(pullingAfter, func() {
		m.post(func() {
			m.journal.record(edge.Event{Kind: edge.EventPulling, Service: service, Message: "pulling the image " + image})
		})
	})
	found, err := m.opts.Runtime.Fetch(ctx, service, image)
	if said := !late.Stop(); said && err != nil {
		m.post(func() { m.journal.fail(problem{service: service, err: err}) })
	}
	if err != nil {
		return found, err
	}
	nodes, err := m.opts.Runtime.Nodes(ctx)
	if err == nil && len(nodes) == 1 {
		m.post(func() { m.images.learn(nodes[0].Name, image, found, m.journal.noteKept) })
	}
	return found, err
}

// pullingAfter is the time after which fetching an image is reported; a present image is found at
// once.
const pullingAfter = 200 * time.Millisecond

// portsFree returns an error if another service uses a port of the new one.
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

// newService converts a specification for the runtime.
func (o *Options) newService(s spec.Spec) (runtime.Service, error) {
	document, err := s.MarshalJSON()
	if err != nil {
		return runtime.Service{}, fmt.Errorf("write the specification of %s: %w", s.Name, err)
	}
	config, err := o.proxyConfig(s)
	if err != nil {
		return runtime.Service{}, &SpecificationError{err}
	}
	made := runtime.Service{
		Name: s.Name, Document: string(document), Image: s.Image, Labels: maps.Clone(s.Labels),
		MemoryBytes: s.Limits.MemoryBytes, CPUs: s.Limits.CPUs, Proxy: config, Container: s.Container,
	}
	for _, p := range s.Ports {
		made.Ports = append(made.Ports, runtime.Port{Host: p.Host, Container: p.Container})
	}
	return made, nil
}

func (o *Options) proxyConfig(s spec.Spec) (proxy.Config, error) {
	c := proxy.Config{
		Service: s.Name, Mode: proxy.ModeHTTP, Control: o.Control, QueueTimeout: 30 * time.Second,
		ResponseTime: time.Duration(s.ResponseSeconds * float64(time.Second)),
		Sleeps:       s.CanSleep(),
		Users:        min(s.MaxUsers, 1e6) * s.MostInstances(),
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
func (m *Manager) Remove(ctx context.Context, service string) (err error) {
	if m.opts.DryRun {
		return errors.New("remove: this weir-edge runs with --dry-run and changes nothing")
	}
	ended := m.takeTurn(ctx, func(ctx context.Context) {
		if err = m.opts.Runtime.Remove(ctx, service, true); err == nil {
			m.runInLoop(func() {
				m.journal.record(edge.Event{Kind: edge.EventRemoved, Service: service, Message: "was removed"})
			})
		}
	})
	return errors.Join(ended, err)
}
