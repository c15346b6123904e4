package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// Measured is a node of the container engine with its measurements.
type Measured struct {
	Node     runtime.Node
	Reported monitor.Node
	// Agent sets minimums of containers; nil without an agent, and where containers have their
	// minimums as labels.
	Agent Changer
}

// Changer is an agent that changes policies, and takes the name of another node with room; *client.Client is one.
type Changer interface {
	Set(ctx context.Context, container string, change v1.PolicyChange) (v1.Container, error)
	SetRoom(context.Context, v1.Room) error
}

// isThere reports whether the node answers its engine and its agent, if it has one.
func (m *Measured) isThere() bool {
	return m.Node.Ready && (m.Reported.State == monitor.StateReady || m.Reported.State == monitor.StateNoWeir)
}

// isReadOnly reports whether a node's agent, which has to be told minimums, lets weir-edge only
// read.
func (m *Measured) isReadOnly() bool {
	return m.Agent != nil && m.Reported.State == monitor.StateReady && m.Reported.LooksOnly()
}

// onlySent says that sharesOnlySent.
const onlySent = "it shares nothing of what it receives: start its Weir agent with --in-rate"

// sharesOnlySent reports whether a node's agent shares what the node sends, and not what it receives.
func (m *Measured) sharesOnlySent() bool {
	e := &m.Reported.Engine
	return m.Reported.State == monitor.StateReady && e.Out.BudgetBPS > 0 && e.In.BudgetBPS == 0
}

// observation is the input of one round besides the memory of weir-edge.
type observation struct {
	at       time.Time         // before the first question
	services []runtime.Service // parsed
	specs    map[string]spec.Spec
	before   map[string]runtime.Service // what a service goes back to, of updates that have not ended
	broken   map[string]string          // why a service's document cannot be read
	state    runtime.State
	promises engine.Promises
	nodes    []Measured
	proxies  map[string][]observedProxy // by service
	problems []problem
	links    *linkView
	// namesakes are managed services that are bound, and have the name of another service now.
	namesakes []runtime.Managed
	// input is the engine's input; the loop adds it.
	input engine.Input
}

// observedProxy is a service's proxy on a node.
type observedProxy struct {
	runtime.Proxy
	status proxy.Status
	err    error
	// late: it has not answered yet. status is its answer before; err is set if that is too old.
	late bool
	// asked is how many of its users have asked since the last round, at most. Their answers may wait in
	// the kernel, where the proxy does not count them any more.
	asked int
}

// observe asks the engine, the nodes and the proxies.
func (o *Options) observe(ctx context.Context, talks *talks) (*observation, error) {
	seen := &observation{at: time.Now(), specs: map[string]spec.Spec{}, before: map[string]runtime.Service{}, broken: map[string]string{}, proxies: map[string][]observedProxy{}}
	nodes, err := o.Runtime.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	if seen.state, err = o.Runtime.Look(ctx); err != nil {
		return nil, err
	}
	seen.dropNamesakes()
	for _, odd := range seen.state.Odd {
		seen.problems = append(seen.problems, problem{err: errors.New(odd)})
	}
	var counted []runtime.Instance
	if o.Schedules {
		counted = seen.state.Instances
	}
	seen.nodes = o.Nodes.Measure(ctx, nodes, counted)
	for _, listed := range seen.state.Services {
		service, parsed, err := o.serviceOf(listed.Document, listed.Pinned)
		if err != nil {
			seen.broken[listed.Name] = err.Error()
			continue
		}
		service.Update, service.Lost = listed.Update, listed.Lost
		if was := listed.Update.Before; was != nil {
			before, _, err := o.serviceOf(was.Document, was.Pinned)
			if err == nil {
				seen.before[listed.Name] = before
			}
			seen.problems = append(seen.problems, problem{service: listed.Name, err: err})
		}
		if listed.Lost && !o.DryRun {
			err := o.checkProxy(&service)
			if err == nil {
				err = o.Runtime.Deploy(ctx, service)
			}
			if err == nil && o.Schedules {
				err = errors.New("its Service was missing or changed, and was made again; weir-edge rm removes a service")
			} else if err == nil {
				err = errors.New("another program had removed the container of its proxy, which was made again; weir-edge rm removes a service, and docker system prune spares it with --filter label!=weir-edge.role")
			}
			seen.problems = append(seen.problems, problem{service: service.Name, err: err})
		}
		seen.specs[listed.Name] = parsed
		seen.services = append(seen.services, service)
	}
	seen.askProxies(ctx, o.Runtime, talks)
	links, problems := o.Links.askController(ctx, nodes, seen.wantsMinimum())
	seen.links, seen.problems = links, append(seen.problems, problems...)
	// After the controller: what another weir-edge has confirmed there, it has entered here before.
	if seen.promises, _, err = o.Runtime.Ledger().Read(ctx); err != nil {
		return nil, err
	}
	return seen, nil
}

// wantsMinimum reports whether a service has a minimum.
func (o *observation) wantsMinimum() bool {
	for _, parsed := range o.specs {
		if parsed.MinBPS() > 0 || parsed.InMinBPS() > 0 {
			return true
		}
	}
	return false
}

// serviceOf returns the service of a document that was deployed with that image.
func (o *Options) serviceOf(document, pinned string) (s runtime.Service, parsed spec.Spec, err error) {
	if parsed, err = spec.Parse([]byte(document)); err == nil {
		s, err = o.newService(parsed)
	}
	s.Pinned, s.Made = pinned, o.fingerprint(&parsed, pinned)
	if o.Schedules {
		parsed.Labels = runtime.LabelsWithoutMinimum(parsed.Labels)
	}
	return s, parsed, err
}

// fingerprint returns what instances are made of. Where the runtime's scheduler counts minimums each instance has
// the service's, which another one replaces; and what proxies have elsewhere: the health check, and the ports of
// users, by which its own ports are named.
func (o *Options) fingerprint(parsed *spec.Spec, pinned string) string {
	if o.Schedules {
		for _, label := range append([]string{spec.LabelHealth}, spec.MinimumLabels...) {
			pinned += "\x00" + parsed.Labels[label]
		}
		for _, p := range parsed.Ports {
			pinned += fmt.Sprintf("\x00%d", p.Host)
		}
	}
	return parsed.Fingerprint(pinned)
}

// service returns the deployed service of that name; nil if there is none that can be read.
func (o *observation) service(name string) *runtime.Service {
	i := slices.IndexFunc(o.services, func(s runtime.Service) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &o.services[i]
}

// listed returns a service as its engine has it; an empty one if it is not there.
func (o *observation) listed(name string) (listed runtime.Service) {
	for _, s := range o.state.Services {
		if s.Name == name {
			listed = s
		}
	}
	return listed
}

// madeOf returns what an instance is made of. One without a label is as old as weir-edge's that wrote
// none, so it is of the version before an update.
func (o *observation) madeOf(service, label string) string {
	if s := o.service(service); label == "" && s != nil {
		return cmp.Or(o.before[service].Made, s.Made)
	}
	return label
}

// containerPort returns the port at which instances made of a version answer users of a host's port; 0
// if there is none.
func (o *observation) containerPort(service *runtime.Service, made string, host uint16) uint16 {
	ports := service.Ports
	if before, is := o.before[service.Name]; is && before.Made == o.madeOf(service.Name, made) {
		ports = before.Ports
	}
	for _, p := range ports {
		if p.Host == host {
			return p.Container
		}
	}
	return 0
}

// askProxies asks all proxies.
func (o *observation) askProxies(ctx context.Context, rt runtime.Runtime, talks *talks) {
	for _, service := range o.services {
		proxies, err := rt.Proxies(ctx, service.Name)
		if err != nil {
			o.problems = append(o.problems, problem{service: service.Name, err: err})
			continue
		}
		list := make([]observedProxy, len(proxies))
		o.proxies[service.Name] = list
		for i, p := range proxies {
			list[i].Proxy = p
		}
	}
	talks.ask(o.proxies)
}

// keptOn returns the name of the only node that may have instances of a service; empty if all may. A
// node that is not there any more has its ID as its name.
func (o *observation) keptOn(s *spec.Spec) string {
	if s.Container == nil {
		return ""
	}
	for i := range o.nodes {
		if n := &o.nodes[i].Node; n.ID == s.Container.Node {
			return n.Name
		}
	}
	return s.Container.Node
}

// measured returns the node of that name; nil if there is none.
func (o *observation) measured(node string) *Measured {
	i := slices.IndexFunc(o.nodes, func(n Measured) bool { return n.Node.Name == node })
	if i < 0 {
		return nil
	}
	return &o.nodes[i]
}

// proxySentBPS returns the rate that a service's proxy sends over the uplink of its node; 0 if the
// agent there does not know the proxy.
func (o *observation) proxySentBPS(service, node string) (bps uint64) {
	n := o.measured(node)
	if n == nil {
		return 0
	}
	for i := range n.Reported.Containers {
		if c := &n.Reported.Containers[i]; c.Is(proxy.ContainerName(service)) { // another one may be ending
			bps += c.SentBPS
		}
	}
	return bps
}

// connections returns the users of a service without proxies by the nodes of its instances: the connections that
// agents count. It returns none while those of an instance that has users are not known.
func (o *observation) connections(service string) (list []engine.Demand) {
	users := map[string]int{}
	for i := range o.state.Instances {
		c := &o.state.Instances[i]
		n := o.measured(c.Node)
		if c.Service != service || c.Phase != runtime.Running || n == nil || !n.Node.Ready {
			continue
		}
		count := n.connections(c.ContainerID)
		if count == nil && c.Health != runtime.HealthStarting {
			return nil
		} else if count != nil {
			users[c.Node] += *count
		}
	}
	for node, count := range users {
		list = append(list, engine.Demand{Service: service, Node: node, Users: float64(count), Asked: count > 0})
	}
	return list
}

// connections returns the connections of a container, by its name; nil if they are not known.
func (m *Measured) connections(container string) *int {
	if m.Reported.State != monitor.StateReady && m.Reported.State != monitor.StateStale {
		return nil
	}
	for i := range m.Reported.Containers {
		if c := &m.Reported.Containers[i]; c.Is(container) {
			return c.Connections
		}
	}
	return nil
}

// roundTrip returns the round trip between two nodes; 0 if it is unknown, and within a node.
func (o *observation) roundTrip(a, b string) time.Duration {
	for _, l := range o.input.Links {
		if l.From == a && l.To == b || l.From == b && l.To == a {
			return time.Duration(l.RoundTripSeconds * float64(time.Second))
		}
	}
	return 0
}
