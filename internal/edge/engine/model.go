package engine

import (
	"cmp"
	"math"
)

// # What users wait
//
// How long users wait is estimated from how many of them the nodes of a service can
// carry. A node n carries
//
//	K_n = min(count_n * maxUsers, F_n / k, B_n / b)
//
// at once: count_n instances of maxUsers each; F_n processors that others leave to
// the service there (at most count_n * limits.cpus), of which one user keeps k busy;
// and B_n bits per second of its uplink that others leave, or that its minimum takes from
// them, of which one user takes b.
// k and b are measured: what the service uses, by its users. A limit that is not known
// does not bind.
//
// What users get passes the uplink of the node that they come to, sent by its proxy, and,
// if another node serves them, also that one's, sent by the instance: b on each. So b is
// what proxies send, by the users who come to them; and the service's own part of an
// uplink, which others do not take, is what its proxy and its instances there send. On one
// engine only the proxy sends, as nothing of the instances' leaves the host.
//
// That proxies' uplinks bound what comes in there, wherever instances are, is not in this:
// where users come to follows instances, if names say the nodes that a service runs on. What
// users wait for the way from those nodes is measured apart, and stays what it is with
// another instance (grow.go).
//
// Proxies balance, so all of a service's nodes are used to the same part
// rho = users / sum K_n, and users wait
//
//	R = S * g(rho) + round trip,   g(rho) = 1 / (1 - rho)    for rho below 0.9
//
// as in a processor that is shared out (M/G/1-PS), where S follows from what users
// wait now. From 0.9 on users wait for each other, and so R grows as rho: the
// asymptote of a closed queueing network (Denning and Buzen, "The Operational Analysis
// of Queueing Network Models", 1978). It is what PiCasso measured: another
// container on the same node changes nothing when its processor is exhausted, as F_n
// stays what it is, and two or four nodes divide the response time by that number
// (figure 7: -55.01 % and -77.25 %; by this, -50 % and -75 %).

// stretch returns the response time of a node at utilization rho, relative to an idle node.
func stretch(rho float64) float64 {
	if rho < high {
		return 1 / (1 - rho)
	}
	return rho / high / (1 - high)
}

// model estimates the response time of one service.
type model struct {
	cpusPerUser float64 // k; 0: not known
	bpsPerUser  float64 // b; 0: not known
	users       float64
	// rho is the present utilization, seconds the response time at it without the round trip.
	rho     float64
	seconds float64
}

// newModel fits the model to a service's measurements.
func newModel(w *world, s *service) model {
	m := model{users: s.demand.users}
	var cpus, sent, served float64
	for _, i := range s.instances {
		if i.State == InstanceRunning {
			cpus += i.CPUs
			sent += float64(i.SentBPS)
			served += i.Users
		}
	}
	if served = max(served, s.demand.users); served >= 1 {
		m.cpusPerUser = cpus / served
		m.bpsPerUser = sent / served
	}
	if s.demand.told.users >= 1 {
		m.bpsPerUser = max(m.bpsPerUser, s.demand.told.bps/s.demand.told.users)
	}
	m.rho = m.use(m.carried(w, s, true))
	// Without users: the last measured response time, else the specified one, else 1 s.
	wait := cmp.Or(s.demand.response-s.demand.delivery, finite(float64(s.memory.Means.Seconds-s.memory.Means.Delivery)), finite(s.Spec.ResponseSeconds), 1)
	m.seconds = max(wait-s.roundTrip(w, -1), wait*least)
	return m
}

// use returns the utilization if nodes can carry that many users.
func (m *model) use(carried float64) float64 {
	switch {
	case m.users == 0:
		return 0
	case carried <= 0:
		return worstUse
	}
	return min(m.users/carried, worstUse)
}

// after returns the response time at another utilization, without the round trip.
func (m *model) after(rho float64) float64 {
	if m.rho >= high && rho >= high/4 {
		return m.seconds * rho / m.rho
	}
	return m.seconds / stretch(m.rho) * stretch(rho)
}

// expected returns the response time with all instances, including those decided in this round.
func (s *service) expected(w *world) float64 {
	return s.model.after(s.model.use(s.model.carried(w, s, false))) + s.roundTrip(w, -1) + s.demand.delivery
}

// carried returns how many users a service's nodes can carry together; with running, only nodes
// whose instances run count.
func (m *model) carried(w *world, s *service, running bool) float64 {
	sum := 0.0
	for i := range s.hosts {
		h := &s.hosts[i]
		count := h.count
		if running {
			count = h.running
		}
		sum += m.carries(w.nodes[h.node], s, h, count)
	}
	return sum
}

// without returns how many of the carried users remain if one instance is removed.
func (m *model) without(i *instance, s *service, carried float64) float64 {
	h := s.host(i.node.index)
	return carried - m.carries(i.node, s, h, h.count) + m.carries(i.node, s, h, h.count-1)
}

// carries returns K_n: the users that a node can carry with count instances. own is the present use
// of the service there.
func (m *model) carries(n *node, s *service, own *host, count int) float64 {
	if count == 0 {
		return 0
	}
	users := mostMeasured
	if s.Spec.MaxUsers > 0 {
		users = float64(count * s.Spec.MaxUsers)
	}
	if m.cpusPerUser > 0 && n.seen.CPUs > 0 {
		left := max(n.seen.CPUs-max(n.busyCPUs-own.cpus, 0), n.seen.CPUs*least)
		if limit := s.Spec.Limits.CPUs; limit > 0 {
			left = min(left, limit*float64(count))
		}
		users = min(users, left/m.cpusPerUser)
	}
	if m.bpsPerUser > 0 && n.seen.UplinkBPS > 0 {
		users = min(users, s.uplinkLeft(n, own, count)/m.bpsPerUser)
	}
	return users
}

// uplinkLeft returns the rate of a node's uplink available to the service with count instances
// there. The minimum that counts is what the service claims there, and at least the part of an
// instance more.
func (s *service) uplinkLeft(n *node, own *host, count int) float64 {
	minimum := n.out.claimedBPS[s.Spec.Name]
	if count > own.count {
		minimum = max(minimum, s.minimum.partOf(len(s.instances)+1).Out)
	}
	return UplinkLeftBPS(float64(n.seen.UplinkBPS), n.sentBPS, own.bps+s.demand.proxyBPS[n.index], float64(minimum))
}

// UplinkLeftBPS returns the uplink rate available to a service: rate less the traffic of others
// (sent less own), but at least its promised minimum and never 0. All are in bit/s.
func UplinkLeftBPS(rate, sent, own, minimum float64) float64 {
	return min(max(rate-max(sent-own, 0), minimum, rate*least), rate)
}

// finite returns a measured number, or 0 if it is implausible.
func finite(x float64) float64 {
	if math.IsNaN(x) || x < 1/mostMeasured || x > mostMeasured {
		return 0
	}
	return x
}
