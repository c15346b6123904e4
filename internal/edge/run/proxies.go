package run

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// syncProxies makes all proxies send users to the instances that there are.
func (m *Manager) syncProxies(ctx context.Context, s *seen) {
	if m.opts.DryRun {
		return
	}
	m.free.take(s.freeUplinks(), s.at)
	m.forgetProxies(s)
	var telling sync.WaitGroup
	for _, service := range s.services {
		for _, p := range s.proxies[service.Name] {
			telling.Go(func() { m.syncProxy(ctx, s, service, p) })
		}
	}
	telling.Wait()
}

func (m *Manager) syncProxy(ctx context.Context, s *seen, service runtime.Service, p seenProxy) {
	ports := m.ports(s, service, p)
	if p.Save != nil {
		config := service.Proxy
		config.Ports = ports
		if err := p.Save(config.File()); err != nil {
			m.failed(service.Name, "", p.Node, err)
		}
	}
	if p.err != nil {
		m.proxyFailed(service.Name, p)
		return
	}
	m.proxyAnswers(service.Name, p)
	var dialed *net.OpError
	switch _, err := p.Control.Apply(ctx, ports); {
	case errors.As(err, &dialed) && dialed.Op == "dial": // it has ended since it answered
		p.err = err
		m.proxyFailed(service.Name, p)
	case err != nil:
		m.failed(service.Name, "", p.Node, err)
	}
}

// proxyFailed: a proxy that has just been made needs a moment, also in place of another one.
func (m *Manager) proxyFailed(service string, p seenProxy) {
	key := service + " " + p.Node
	m.mu.Lock()
	first := m.proxyFailedAt[key]
	if first.IsZero() {
		m.proxyFailedAt[key] = time.Now()
	}
	m.mu.Unlock()
	if !first.IsZero() && time.Since(first) > 5*time.Second {
		m.failed(service, "", p.Node, p.err)
	}
}

// forgetProxies forgets proxies that are none any more: others may come in their places.
func (m *Manager) forgetProxies(s *seen) {
	there := map[string]bool{}
	for service, proxies := range s.proxies {
		for _, p := range proxies {
			there[service+" "+p.Node] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.proxyFailedAt, func(key string, _ time.Time) bool { return !there[key] })
	maps.DeleteFunc(m.peaks, func(key string, _ peak) bool { return !there[key] })
}

// proxyAnswers forgets that a proxy failed.
func (m *Manager) proxyAnswers(service string, p seenProxy) {
	m.mu.Lock()
	delete(m.proxyFailedAt, service+" "+p.Node)
	m.mu.Unlock()
}

// ports are a service's instances as one proxy should know them.
func (m *Manager) ports(s *seen, service runtime.Service, p seenProxy) []proxy.Port {
	var ready []runtime.Instance
	m.mu.Lock()
	for _, c := range s.state.Instances {
		if c.Service == service.Name && c.Phase == runtime.Running && m.stopping[c.ID] == nil {
			ready = append(ready, c)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(ready, func(a, b runtime.Instance) int { return strings.Compare(a.ID, b.ID) })
	on := map[string]int{}
	for _, c := range ready {
		on[c.Node]++
	}
	var candidates []proxy.Candidate
	for _, c := range ready {
		there := serverOf(p, c.ID)
		candidates = append(candidates, proxy.Candidate{
			Local: c.Node == p.Node, Answers: there.Up, RoundTrip: roundTrip(s, p.Node, c.Node),
			FreeBPS: m.free.of(service.Name, c.Node, on[c.Node]), Weight: there.Weight,
		})
	}
	maxUsers := s.specs[service.Name].MaxUsers
	weights := proxy.Weights(candidates, m.mostUsers(service.Name+" "+p.Node, p.seen.Users, s.at), maxUsers)
	ports := make([]proxy.Port, len(service.Ports))
	for i, published := range service.Ports {
		ports[i].Host = published.Host
		for j, c := range ready {
			if address, ok := c.Addresses[published.Container]; ok {
				ports[i].Servers = append(ports[i].Servers, proxy.Server{Name: serverName(c.ID), Address: address, Weight: weights[j], MaxUsers: maxUsers, Asked: service.Proxy.Asks()})
			}
		}
	}
	return ports
}

// peak is the most users that a proxy had at once, lately.
type peak struct {
	users int
	at    time.Time
}

// calmAfter is for how long a crowd has to be gone until its proxy goes by fewer users: others
// come the next moment.
const calmAfter = 10 * time.Second

// mostUsers is how many users a proxy has, or lately had.
func (m *Manager) mostUsers(proxy string, users int, now time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := m.peaks[proxy]
	if users >= most.users || now.Sub(most.at) > calmAfter {
		most = peak{users, now}
		m.peaks[proxy] = most
	}
	return most.users
}

// serverOf is an instance as a proxy sees it: up if it is at one of its ports.
func serverOf(p seenProxy, id string) (there proxy.SeenServer) {
	for _, t := range p.seen.Servers {
		if t.Name == serverName(id) {
			t.Up = t.Up || there.Up
			there = t
		}
	}
	return there
}

// roundTrip between two nodes; 0 where it is not known, and on one.
func roundTrip(s *seen, a, b string) time.Duration {
	if a == b {
		return 0
	}
	for _, l := range s.input.Links {
		if l.From == a && l.To == b || l.From == b && l.To == a {
			return time.Duration(l.RoundTripSeconds * float64(time.Second))
		}
	}
	return 0
}
