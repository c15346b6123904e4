package run

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// proxies is the state of services' proxies kept between rounds.
type proxies struct {
	free     freeUplinks
	counters map[string]*counters // by service
	// failedAt is the time of each failing proxy's first failure, peaks the recent maximum of each
	// proxy's users.
	failedAt map[entry]time.Time
	peaks    map[entry]peak
	// trips are the last round trips between two nodes, in seconds, as proxies measured them.
	trips map[[2]string][]float64
	talks *talks // of the turns
}

// entry is a service's proxy on a node.
type entry struct{ service, node string }

// peak is the maximum number of a proxy's users within peakHold.
type peak struct {
	users int
	at    time.Time
}

func newProxies() proxies {
	return proxies{counters: map[string]*counters{}, failedAt: map[entry]time.Time{}, peaks: map[entry]peak{}, trips: map[[2]string][]float64{}, talks: newTalks()}
}

// proxyStep is the change of one proxy, and its result.
type proxyStep struct {
	observedProxy
	service string
	// file is the configuration to start from, where the proxy keeps one.
	file    string
	ports   []proxy.Port
	saveErr error
	// observedProxy.err is set if the proxy was not told because it did not answer or has ended;
	// refused is set if it rejected the change.
	refused error
}

// plan returns the changes of all proxies that send users to the present instances. isStopping
// reports which instances get no new users.
func (p *proxies) plan(o *observation, isStopping func(id string) bool) (list []proxyStep) {
	p.free.smooth(o.freeUplinks(), o.at)
	p.forget(o)
	for _, service := range o.services {
		for _, at := range o.proxies[service.Name] {
			step := proxyStep{observedProxy: at, service: service.Name, ports: p.ports(o, service, at, isStopping)}
			if at.Save != nil {
				config := service.Proxy
				config.Ports = step.ports
				step.file = config.File()
			}
			list = append(list, step)
		}
	}
	return list
}

// forget drops the state of proxies that are gone.
func (p *proxies) forget(o *observation) {
	there := map[entry]bool{}
	for service, list := range o.proxies {
		for _, at := range list {
			there[entry{service, at.Node}] = true
		}
	}
	maps.DeleteFunc(p.failedAt, func(e entry, _ time.Time) bool { return !there[e] })
	maps.DeleteFunc(p.peaks, func(e entry, _ peak) bool { return !there[e] })
}

// keep saves the proxy's file, and starts the proxy again if its engine does not.
func (s *proxyStep) keep(ctx context.Context) {
	if s.Save != nil {
		s.saveErr = s.Save(s.file)
	}
	if s.Restart != nil {
		s.saveErr = errors.Join(s.saveErr, s.Restart(ctx))
	}
}

// tell changes the proxy.
func (s *proxyStep) tell(ctx context.Context) {
	var dialed *net.OpError
	switch _, err := s.Control.Apply(ctx, s.ports); {
	case errors.As(err, &dialed) && dialed.Op == "dial": // it has ended since it answered
		s.err = err
	default:
		s.refused = err
	}
}

// replaceTimeout is the time for which a proxy that was just created or has ended may fail to
// answer.
const replaceTimeout = 5 * time.Second

// note records the result of a step and returns the errors to report; they may be nil.
func (p *proxies) note(s *proxyStep, now time.Time) [3]error {
	at := entry{s.service, s.Node}
	var failure error
	if s.err == nil {
		delete(p.failedAt, at)
	} else if first := p.failedAt[at]; first.IsZero() {
		p.failedAt[at] = now
	} else if now.Sub(first) > replaceTimeout {
		failure = s.err
	}
	return [...]error{s.saveErr, s.refused, failure}
}

// ports returns a service's servers for one proxy.
func (p *proxies) ports(o *observation, service runtime.Service, at observedProxy, isStopping func(id string) bool) []proxy.Port {
	var ready []runtime.Instance
	on := map[string]int{}
	for _, c := range o.state.Instances {
		if c.Service == service.Name && c.Phase == runtime.Running && c.Health != runtime.HealthStarting && !isStopping(c.ID) {
			ready = append(ready, c)
			on[c.Node]++
		}
	}
	slices.SortFunc(ready, func(a, b runtime.Instance) int { return strings.Compare(a.ID, b.ID) })
	var candidates []proxy.Candidate
	for _, c := range ready {
		server := serverOf(at, c.ID)
		candidates = append(candidates, proxy.Candidate{
			Local: c.Node == at.Node, Answers: server.Up, RoundTrip: o.roundTrip(at.Node, c.Node),
			FreeBPS: p.free.perInstance(service.Name, c.Node, on[c.Node]), Weight: server.Weight,
		})
	}
	maxUsers := o.specs[service.Name].MaxUsers
	weights := proxy.Weights(candidates, p.mostUsers(entry{service.Name, at.Node}, at.status.Users, o.at), maxUsers)
	ports := make([]proxy.Port, len(service.Ports))
	for i, published := range service.Ports {
		ports[i].Host = published.Host
		for j, c := range ready {
			if address, ok := c.Addresses[o.containerPort(&service, c.Made, published.Host)]; ok {
				ports[i].Servers = append(ports[i].Servers, proxy.Server{
					Name: proxy.InstanceName(c.ID), Address: address, Weight: weights[j], MaxUsers: maxUsers, Asked: service.Proxy.Asks(),
				})
			}
		}
	}
	return ports
}

// mostTrips is of how many round trips the shortest counts: a busy proxy takes its time to look.
const mostTrips = 10

// trip returns the shortest of the last round trips between two nodes, in seconds: what proxies of one take
// to connect to instances on the other; 0 if none does.
func (p *proxies) trip(o *observation, a, b string) float64 {
	now := 0.0
	for _, c := range o.state.Instances {
		for _, at := range o.proxies[c.Service] {
			took := serverOf(at, c.ID).RoundTrip.Seconds()
			if between := at.Node == a && c.Node == b || at.Node == b && c.Node == a; between && took > 0 && (now == 0 || took < now) {
				now = took
			}
		}
	}
	key := [2]string{a, b}
	if now == 0 {
		delete(p.trips, key)
		return 0
	}
	p.trips[key] = append(p.trips[key], now)
	p.trips[key] = p.trips[key][max(len(p.trips[key])-mostTrips, 0):]
	return slices.Min(p.trips[key])
}

// peakHold is the time for which a proxy counts users of a crowd that has left, because more may
// follow.
const peakHold = 10 * time.Second

// mostUsers returns a proxy's maximum number of users within peakHold.
func (p *proxies) mostUsers(at entry, users int, now time.Time) int {
	most := p.peaks[at]
	if users >= most.users || now.Sub(most.at) > peakHold {
		most = peak{users, now}
		p.peaks[at] = most
	}
	return most.users
}
