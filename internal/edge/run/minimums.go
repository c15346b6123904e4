package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/access"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/policy"
)

// minimums are in force, on a swarm, where users come to (engine.Divide): nodes' agents
// are told. What the ledger promises comes first; an agent that refuses all the same,
// because somebody else was faster, is a reason to go to another node.
//
// What an agent was told outlives weir-edge and the agent, and ends with the container.
type minimums struct {
	// Of rounds, one after the other: users by path, smoothed, as of when, and the parts
	// that were made of them.
	users  map[engine.Path]float64
	at     time.Time
	tenths engine.Tenths

	mu sync.Mutex
	// telling are the nodes whose agents are being told.
	telling map[string]bool
	told    map[string]told // by container
	may     map[string]permission
}

// permission is whether a node's agent lets weir-edge change policies, as of when.
type permission struct {
	denied bool
	at     time.Time
}

// told is what an agent was told last of a container, and what it said.
type told struct {
	bps uint64
	at  time.Time
	// hasBPS is what the container has since, if the agent did as it was told.
	done   bool
	hasBPS uint64
	// refused is why the minimum is not in force, since when.
	refused string
	since   time.Time
}

// wish is a minimum that is to be in force for a container.
type wish struct {
	container, service string
	// latency is as in the service's labels; empty for none.
	latency string
	bps     uint64
	// promised is the part of bps that instances of the node are promised; the rest is
	// relayed for those of others.
	promised uint64
	has      uint64
}

const (
	// usersSmoothing is the time constant of the numbers of users that minimums are
	// divided by.
	usersSmoothing = 1500 * time.Millisecond
	// fewUsers, smoothed, are none.
	fewUsers = 0.02
	// shownAfter is how old what an agent shows may be when it answers.
	shownAfter = 300 * time.Millisecond
	// tellAgain is after how long an agent is told again what it refused.
	tellAgain = time.Second
	// refusalPatience is for how long an agent has to refuse, again and again: what somebody
	// else gives back is free with the agent's next look.
	refusalPatience = 2 * time.Second
	// tellTimeout bounds one change of a policy.
	tellTimeout = 2 * time.Second
	// askAgain is after how long an agent is asked again whether weir-edge may.
	askAgain = time.Minute
)

func newMinimums() minimums {
	return minimums{
		users: map[engine.Path]float64{}, telling: map[string]bool{}, told: map[string]told{}, may: map[string]permission{},
	}
}

// holdMinimums has minimums in force where users come to.
func (m *Manager) holdMinimums(ctx context.Context, s *seen) {
	if m.opts.DryRun || !slices.ContainsFunc(s.nodes, func(n Measured) bool { return n.Agent != nil }) {
		return
	}
	m.minimums.smooth(s, time.Now())
	var division engine.Division
	division, m.minimums.tenths = engine.Divide(s.promises, m.minimums.users, m.minimums.tenths)
	promises, err := m.promiseRelays(ctx, s, division)
	if err != nil {
		promises = s.promises // the next round tries again
		if !errors.Is(err, engine.ErrConflict) {
			m.failed("", "", "", err)
		}
	}
	m.saySmallRelays(division, promises)
	m.minimums.forget(time.Now())
	for _, n := range s.nodes {
		if n.Agent == nil || n.Seen.Uplink == nil {
			continue
		}
		if !m.minimums.begin(n.Node.Name) {
			continue
		}
		// Nobody tells this agent anything else now: what it was told last is known.
		wishes := m.minimums.wanting(m.minimums.wishesOf(s, n, division, promises))
		if len(wishes) == 0 && m.minimums.asked(n.Node.Name) {
			m.minimums.end(n.Node.Name)
			continue
		}
		m.work.Go(func() {
			m.tell(m.ctx, n, wishes)
			m.minimums.end(n.Node.Name)
		})
	}
}

// smooth takes the users of now into the means. Of a proxy that does not answer they
// stay, while its node is there.
func (x *minimums) smooth(s *seen, now time.Time) {
	weight := 1 - math.Exp(-now.Sub(x.at).Seconds()/usersSmoothing.Seconds())
	x.at = now
	users := map[engine.Path]float64{}
	for path, n := range x.users {
		p, promised := s.promises[path.Instance]
		on := func(at seenProxy) bool { return at.Node == path.Node }
		// Without any proxy it is weir-edge that is cut off.
		if all := s.proxies[p.Service]; promised && (len(all) == 0 || slices.ContainsFunc(all, on)) {
			users[path] = n
		}
	}
	for id, p := range s.promises {
		for _, at := range s.proxies[p.Service] {
			if at.err != nil || p.Relay {
				continue
			}
			path, n := engine.Path{Instance: id, Node: at.Node}, 0.0
			for _, t := range at.seen.Servers {
				if t.Name == serverName(id) {
					n += float64(t.Users + t.Waiting)
				}
			}
			users[path] += (n - users[path]) * weight
		}
	}
	maps.DeleteFunc(users, func(_ engine.Path, n float64) bool { return n < fewUsers })
	x.users = users
}

// promiseRelays enters into the ledger what proxies are to send for instances of other
// nodes, as far as there is room, and says what is promised then.
func (m *Manager) promiseRelays(ctx context.Context, s *seen, division engine.Division) (engine.Promises, error) {
	inForce := map[engine.Place]uint64{}
	for _, p := range s.promises {
		if !p.Relay {
			continue
		}
		place := engine.Place{Service: p.Service, Node: p.Node}
		inForce[place] = 0 // on a node that has left
		for _, n := range s.nodes {
			if n.Node.Name != p.Node {
				continue
			}
			inForce[place] = p.MinBPS
			if n.Seen.State == monitor.StateReady {
				has := m.minimums.proxyBPS(&n.Seen, p.Service)
				inForce[place] = min(p.MinBPS, has-min(has, division.Local[place]))
			}
		}
	}
	if maps.Equal(s.promises, engine.AdmitRelays(s.input.Nodes, s.promises, division.Relayed, inForce)) {
		return s.promises, nil
	}
	return engine.PromiseRelays(ctx, m.rt.Ledger(), s.input.Nodes, division.Relayed, inForce)
}

// saySmallRelays says where users come to who have less than the minimum.
func (m *Manager) saySmallRelays(division engine.Division, promises engine.Promises) {
	for place, wanted := range division.Relayed {
		if promised := promises[engine.RelayID(place)].MinBPS; promised < wanted {
			m.failed(place.Service, "", place.Node, fmt.Errorf("users of %s who come to %s have less than its minimum: of %s that the proxy there should relay, the node can promise %s",
				place.Service, place.Node, policy.FormatRate(wanted), policy.FormatRate(promised)))
		}
	}
}

// proxyBPS is the minimum that a service's proxy may have in force.
func (x *minimums) proxyBPS(n *monitor.Node, service string) (bps uint64) {
	for i := range n.Containers {
		if c := &n.Containers[i]; c.Is(runtime.ProxyName(service)) {
			bps += max(c.AdmittedBPS, x.hasBPS(n, c))
		}
	}
	return bps
}

// hasBPS is the minimum that a container has: as its agent shows or, if it was told
// something since it did, that.
func (x *minimums) hasBPS(n *monitor.Node, c *monitor.Container) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.told[c.ID]; t.done && n.AgeSeconds != nil && time.Since(t.at).Seconds() <= *n.AgeSeconds+shownAfter.Seconds() {
		return t.hasBPS
	}
	return c.MinBPS
}

// wishesOf are the minimums that are to be in force on a node and those that are not to
// be any more: of the containers of all services that have one.
func (x *minimums) wishesOf(s *seen, n Measured, division engine.Division, promises engine.Promises) (list []wish) {
	for name, parsed := range s.specs {
		if parsed.MinBPS() == 0 {
			continue
		}
		place := engine.Place{Service: name, Node: n.Node.Name}
		relayed := min(division.Relayed[place], promises[engine.RelayID(place)].MinBPS)
		local := division.Local[place]
		most := uint64(math.MaxUint64) // who can have all that it may send needs no more
		if p, _ := policy.Parse(parsed.Labels); p.MaxBPS > 0 {
			most = p.MaxBPS
		}
		want := func(name string, bps, promised uint64) {
			for i, c := range x.tasksOf(&n.Seen, name) {
				w := wish{container: c.ID, service: parsed.Name, latency: parsed.Labels[policy.Prefix+"latency"], has: x.hasBPS(&n.Seen, &c)}
				if i == 0 { // another one is ending, or has just begun
					w.bps, w.promised = min(bps, most), min(promised, most)
				}
				list = append(list, w)
			}
		}
		want(runtime.ProxyName(name), local+relayed, local)
		for id, p := range s.promises {
			if !p.Relay && p.Service == name && p.Node == n.Node.Name {
				want(runtime.InstanceName(id), division.Sent[id], division.Sent[id])
			}
		}
	}
	// What is given back comes first, so that there is room for the rest.
	slices.SortFunc(list, func(a, b wish) int {
		raises := func(w wish) int {
			if w.bps > w.has {
				return 1
			}
			return 0
		}
		if order := raises(a) - raises(b); order != 0 {
			return order
		}
		return strings.Compare(a.container, b.container)
	})
	return list
}

// tasksOf are the containers of that name, the one that has a minimum first.
func (x *minimums) tasksOf(n *monitor.Node, name string) (tasks []monitor.Container) {
	for _, c := range n.Containers {
		if !c.Is(name) {
			continue
		}
		if x.hasBPS(n, &c) > 0 {
			tasks = slices.Insert(tasks, 0, c)
		} else {
			tasks = append(tasks, c)
		}
	}
	return tasks
}

// wanting are the wishes that are not fulfilled, and that the agent was not told of just
// now.
func (x *minimums) wanting(list []wish) []wish {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.DeleteFunc(list, func(w wish) bool {
		last, was := x.told[w.container]
		if w.has == w.bps {
			if last.refused != "" {
				delete(x.told, w.container)
			}
			return true
		}
		return was && last.bps == w.bps && time.Since(last.at) < tellAgain
	})
}

// begin says whether nobody tells a node's agent anything, and it may be told; then
// somebody does from now on.
func (x *minimums) begin(node string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.may[node]; x.telling[node] || p.denied && p.isNew() {
		return false
	}
	x.telling[node] = true
	return true
}

// asked says whether a node's agent was asked lately whether weir-edge may tell it anything.
func (x *minimums) asked(node string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.may[node].isNew()
}

func (p permission) isNew() bool { return time.Since(p.at) <= askAgain }

func (x *minimums) end(node string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.telling, node)
}

// forget drops what was said of containers that nobody speaks of any more.
func (x *minimums) forget(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.told, func(_ string, t told) bool { return now.Sub(t.at) > time.Minute })
	// A node's last answer holds until its next.
	maps.DeleteFunc(x.may, func(_ string, p permission) bool { return !p.denied && now.Sub(p.at) > askAgain })
}

// denies says whether a node's agent does not let weir-edge change policies.
func (x *minimums) denies(node string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.may[node].denied
}

// refusal is why an agent has refused a container's minimum for a while; empty if it has
// not.
func (x *minimums) refusal(container string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.told[container]
	if t.at.Sub(t.since) < refusalPatience {
		return ""
	}
	return t.refused
}

// tell tells a node's agent what is to be in force, in that order.
func (m *Manager) tell(ctx context.Context, n Measured, wishes []wish) {
	if !m.mayTell(ctx, n) {
		return // the next round asks again, in its time
	}
	defer m.again()
	for _, w := range wishes {
		has, err := w.bps, set(ctx, n, w, w.bps)
		if isRefusal(err) && w.promised < w.bps {
			m.failed(w.service, "", n.Node.Name, fmt.Errorf("users of %s who come to %s have less than its minimum: the agent there does not relay %s: %w",
				w.service, n.Node.Name, policy.FormatRate(w.bps-w.promised), err))
			has, err = max(w.has, w.promised), nil
			if w.has < w.promised {
				err = set(ctx, n, w, w.promised)
			}
		}
		m.heard(n.Node.Name, w, has, err)
	}
}

// mayTell says whether a node's agent lets weir-edge change policies, which it is asked
// from time to time. If not, nothing is promised there.
func (m *Manager) mayTell(ctx context.Context, n Measured) bool {
	x := &m.minimums
	if x.asked(n.Node.Name) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	who, err := n.Agent.Access(ctx)
	var answer *client.Error
	switch {
	case err == nil && who.Role == access.Read.String():
		m.failed("", "", n.Node.Name, fmt.Errorf("no minimum can be promised on %s: its agent lets %s only look: give weir-edge a token with the role admin (weir token weir-edge --role admin), or list its certificate in admins", n.Node.Name, monitor.Cut(who.Name)))
	case err != nil && !errors.As(err, &answer):
		return false // it does not answer, and is asked again
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.may[n.Node.Name] = permission{denied: err == nil && who.Role == access.Read.String(), at: time.Now()}
	return !x.may[n.Node.Name].denied
}

// set tells a node's agent the minimum of one container.
func set(ctx context.Context, n Measured, w wish, bps uint64) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	minimum, latency := "none", "none"
	if bps > 0 {
		minimum = policy.FormatRate(bps)
		if w.latency != "" {
			latency = w.latency
		}
	}
	_, err := n.Agent.Set(ctx, w.container, v1.PolicyChange{Min: &minimum, Latency: &latency})
	var answer *client.Error
	if errors.As(err, &answer) { // it is kept, shown and quoted in events
		return &client.Error{Status: answer.Status, Message: monitor.Cut(answer.Message)}
	}
	return err
}

// heard notes what a node's agent said to a wish, and says it where it matters. Without an
// error hasBPS is what the container has now.
func (m *Manager) heard(node string, w wish, hasBPS uint64, err error) {
	x := &m.minimums
	x.mu.Lock()
	last, now := x.told[w.container], time.Now()
	said := told{bps: w.bps, at: now, done: err == nil, hasBPS: hasBPS, since: now}
	if isRefusal(err) {
		said.refused = err.Error()
		if last.refused != "" {
			said.since = last.since
		}
	}
	x.told[w.container] = said
	x.mu.Unlock()
	var answer *client.Error
	switch {
	case err == nil, m.ctx.Err() != nil: // weir-edge ends
	case isRefusal(err):
		m.failed(w.service, "", node, fmt.Errorf("the agent of %s refuses the minimum %s of %s: %w", node, policy.FormatRate(w.bps), w.service, err))
	case errors.As(err, &answer) && answer.Status == http.StatusNotFound: // it has ended
	default:
		m.failed(w.service, "", node, fmt.Errorf("tell the agent of %s the minimum of %s: %w", node, w.service, err))
	}
}

// isRefusal says whether an agent cannot give what it was told.
func isRefusal(err error) bool {
	var answer *client.Error
	return errors.As(err, &answer) && answer.Status == http.StatusConflict
}

// heldBPS is what containers of services have in force at a node of what the ledger
// promises there. What they have beyond that is promised by somebody else.
func (s *seen) heldBPS(n Measured) (sum uint64) {
	promised, names := map[string]uint64{}, map[string][]string{}
	for id, p := range s.promises {
		if p.Node != n.Node.Name {
			continue
		}
		promised[p.Service] += min(p.MinBPS, policy.MaxRateBPS)
		names[p.Service] = append(names[p.Service], runtime.ProxyName(p.Service), runtime.InstanceName(id))
	}
	for service, most := range promised {
		held := uint64(0)
		for i := range n.Seen.Containers {
			c := &n.Seen.Containers[i]
			if slices.ContainsFunc(names[service], c.Is) {
				held += c.AdmittedBPS
			}
		}
		sum += min(held, most)
	}
	return sum
}
