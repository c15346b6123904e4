package run

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// stateOf returns the state of an instance, and a reason. Its proxies report whether it answers.
func (l *lives) stateOf(o *observation, c runtime.Instance) (engine.InstanceState, string) {
	switch {
	case l.isStopping(o, c.ID):
		return engine.InstanceStopping, ""
	case c.Phase == runtime.Ended && len(l.runs[c.ID].restarts) >= mostRestarts:
		return engine.InstanceFailed, fmt.Sprintf("%s, after %d restarts within a minute", c.Reason, len(l.runs[c.ID].restarts))
	case c.Phase == runtime.Ended:
		return engine.InstanceStarting, c.Reason + "; it is being restarted"
	case c.Phase == runtime.Starting:
		return engine.InstanceStarting, l.waiting(c.ID, c.Reason)
	}
	if state, reason, said := l.healthOf(o, c); said {
		return state, reason
	}
	servers := serversOf(o, c.ID)
	if slices.ContainsFunc(servers, func(t proxy.ServerStatus) bool { return t.Up && t.Check != "" }) {
		if l.isSettling(o, c) {
			return engine.InstanceStarting, "its proxies are finding out that it answers"
		}
		return engine.InstanceRunning, l.waiting(c.ID, missedBy(o, c))
	}
	was, r, waited := l.since[c.ID], l.runs[c.ID], time.Duration(0)
	if !r.began.IsZero() {
		waited = time.Since(r.began)
	}
	if len(r.restarts) > 0 && r.began.After(was.at) {
		was.state = engine.InstanceStarting
	}
	verdict := slices.IndexFunc(servers, func(t proxy.ServerStatus) bool { return !t.Up && t.Check != "" })
	answering := slices.ContainsFunc(o.proxies[c.Service], func(p observedProxy) bool { return p.err == nil })
	switch {
	case !answering && (was.state != engine.InstanceStarting || waited > notAnswering):
		return engine.InstanceUnknown, "no proxy says whether it answers"
	case verdict < 0 && was.state == engine.InstanceRunning:
		return was.state, "" // the proxy has just been told of it
	case verdict < 0 && waited > notAnswering:
		return engine.InstanceUnknown, "no proxy has looked whether it answers"
	case verdict >= 0 && (was.state == engine.InstanceRunning || was.state == engine.InstanceUnhealthy):
		return engine.InstanceUnhealthy, "it does not answer its proxy: " + checked(servers[verdict])
	case verdict >= 0 && waited > notAnswering:
		return engine.InstanceFailed, fmt.Sprintf("it runs and has not answered for %v (%s): does it listen at the port of its specification?", notAnswering, checked(servers[verdict]))
	}
	reason := "no proxy has looked yet whether it answers"
	switch {
	case len(c.Addresses) == 0:
		reason = "it runs, and its engine does not say where it is reached"
	case verdict >= 0:
		reason = "it does not answer its proxy yet: " + checked(servers[verdict])
	}
	if len(r.restarts) > 0 {
		return engine.InstanceStarting, fmt.Sprintf("it was restarted (%s): %s", orUnknown(r.why), reason)
	}
	return engine.InstanceStarting, l.waiting(c.ID, reason)
}

// isSettling reports whether a new instance answers some proxies and not yet all: the one that it
// replaces would end before users of the others have another one.
func (l *lives) isSettling(o *observation, c runtime.Instance) bool {
	if l.since[c.ID].state != engine.InstanceStarting || time.Since(l.runs[c.ID].began) > slowly {
		return false
	}
	return slices.ContainsFunc(o.proxies[c.Service], func(p observedProxy) bool { return p.err == nil && !serverOf(p, c.ID).Up })
}

// healthOf returns the state of an instance that runs as its engine knows it: by its health check, and
// without ports by nothing else. Of others judged is false: proxies know.
func (l *lives) healthOf(o *observation, c runtime.Instance) (state engine.InstanceState, reason string, judged bool) {
	parsed, known := o.specs[c.Service]
	was, said := l.since[c.ID].state, ""
	ran := (was == engine.InstanceRunning || was == engine.InstanceUnhealthy) && !l.runs[c.ID].began.After(l.since[c.ID].at)
	if c.Reason != "" {
		said = ": " + c.Reason
	}
	switch {
	case c.Health == runtime.HealthStarting && ran: // Kubernetes has one word for both
		return engine.InstanceUnhealthy, "its health check does not pass any more" + said, true
	case c.Health == runtime.HealthStarting:
		return engine.InstanceStarting, l.waiting(c.ID, "its health check has not passed yet"), true
	case c.Health == runtime.HealthUnhealthy && was == engine.InstanceStarting:
		return engine.InstanceFailed, "it runs, and its health check fails" + said, true
	case c.Health == runtime.HealthUnhealthy:
		return engine.InstanceUnhealthy, "its health check fails" + said, true
	case c.Health == runtime.HealthServed:
		return engine.InstanceRunning, "", true
	case !known || len(parsed.Ports) > 0:
		return "", "", false
	case c.Health == "" && was != engine.InstanceRunning && time.Since(l.runs[c.ID].began) < staysUp:
		return engine.InstanceStarting, "it has no ports and no health check, and has to run for a while", true
	}
	return engine.InstanceRunning, "", true
}

// staysUp is how long an instance has to run of which nothing else says that it works.
const staysUp = 2 * time.Second

func orUnknown(reason string) string { return cmp.Or(reason, "its engine does not say why") }

// missedBy returns the proxies that cannot reach an instance which answers others; they send it no
// users.
func missedBy(o *observation, c runtime.Instance) string {
	var nodes []string
	found := ""
	for _, p := range o.proxies[c.Service] {
		if t := serverOf(p, c.ID); t.Check != "" && !t.Up && !t.Leaving {
			nodes, found = append(nodes, p.Node), checked(t)
		}
	}
	if len(nodes) == 0 {
		return ""
	}
	return fmt.Sprintf("the proxies on %s do not reach it: %s", strings.Join(nodes, ", "), found)
}

// waiting returns reason once an instance has existed for slowly, else an empty string.
func (l *lives) waiting(id, reason string) string {
	if first := l.since[id].first; first.IsZero() || time.Since(first) < slowly {
		return ""
	}
	return reason
}

const (
	// slowly is the time after which the reason why an instance does not answer is shown.
	slowly = 5 * time.Second
	// notAnswering is the time without an answer after which a new instance counts as failed.
	notAnswering = 30 * time.Second
)

// checked returns the result of a proxy's health check, and the proxy's node.
func checked(t proxy.ServerStatus) string {
	if !t.Address.IsValid() {
		return t.Check
	}
	return fmt.Sprintf("%s at %s", t.Check, t.Address)
}

// serversOf returns an instance's servers in all proxies of its service.
func serversOf(o *observation, id string) (servers []proxy.ServerStatus) {
	name := proxy.InstanceName(id)
	for _, proxies := range o.proxies {
		for _, p := range proxies {
			for _, t := range p.status.Servers {
				if t.Name == name {
					servers = append(servers, t)
				}
			}
		}
	}
	return servers
}

// serverOf returns an instance's state in one proxy: up if it is up at any port.
func serverOf(p observedProxy, id string) (found proxy.ServerStatus) {
	for _, t := range p.status.Servers {
		if t.Name == proxy.InstanceName(id) {
			t.Up = t.Up || found.Up
			found = t
		}
	}
	return found
}
