package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/stats"
	"github.com/weir-project/weir/internal/uplink"
)

// What readers see. The loop publishes a snapshot each period, and whenever it
// has decided something; readers take the latest and never enter the loop.

// Latest is all that the agent knows. It waits for the first snapshot of a new agent
// only.
func (a *Agent) Latest(ctx context.Context) (*stats.Snapshot, error) { return a.board.Latest(ctx) }

// Events are what happened lately, and what happens next.
func (a *Agent) Events() *stats.Events { return a.events }

// History is what containers did in the last minutes.
func (a *Agent) History() *stats.History { return &a.history }

// record keeps samples of what is published, beside the loop, until ctx ends.
func (a *Agent) record(ctx context.Context) {
	tick := time.NewTicker(stats.HistoryInterval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			if latest, err := a.board.Latest(ctx); err == nil {
				a.history.Record(now, latest)
			}
		case <-ctx.Done():
			return
		}
	}
}

// publishDue says whether counters were read since the last snapshot, or that is a
// period old.
func (a *Agent) publishDue(now time.Time) bool {
	counted := func(u *link) bool { return u.measuredAt.After(a.publishedAt) }
	containers := time.Duration(len(a.registry.byKey))
	return slices.ContainsFunc(a.uplinks, counted) || now.Sub(a.publishedAt) >= max(statsInterval, containers*statsIntervalPerShare)
}

// publish shows everybody what is known now, and tells what has changed since
// the last time.
func (a *Agent) publish(now time.Time) {
	a.publishedAt = now
	for _, u := range a.uplinks {
		u.ask()
	}
	s := &stats.Snapshot{At: time.Now(), Rules: a.config.Rules}
	for _, u := range a.uplinks {
		s.Links = append(s.Links, u.link())
	}
	s.Status = a.status()
	s.Containers = make([]v1.Container, 0, len(a.registry.byKey)+1)
	s.Places = make([]stats.Place, 0, cap(s.Containers))
	for _, c := range append(a.registry.all(), a.host) {
		s.Containers = append(s.Containers, a.view(c))
		place := stats.Place{Image: c.Image, Ports: c.Ports, NetNSPath: c.NetNSPath, CgroupPath: c.CgroupPath, Subject: c.subject(), Set: c.set}
		if a.flows != nil && c.looksAtFlows() {
			place.FlowNumber = c.number
		}
		s.Places = append(s.Places, place)
	}
	if before := a.board.Publish(s); before != nil {
		a.events.Add(stats.Changes(before, s)...)
		return
	}
	a.events.Add(v1.Event{At: s.At, Kind: v1.EventAgentStarted, Message: "version " + a.config.Version})
}

// status describes the agent and its uplinks.
func (a *Agent) status() v1.Status {
	status := v1.Status{Version: a.config.Version, State: v1.StateOK, Turns: a.turns.View(), Sources: []v1.Source{}}
	var names, schedulers, reasons []string
	for _, u := range a.uplinks {
		view := u.view()
		status.Uplinks = append(status.Uplinks, view)
		names = append(names, view.Name)
		if !slices.Contains(schedulers, view.Scheduler) {
			schedulers = append(schedulers, view.Scheduler)
		}
		status.RateBPS += view.RateBPS
		status.ReserveBPS += view.ReserveBPS
		status.SentBPS += view.SentBPS
		if view.State != v1.StateOK {
			status.State = view.State
			reasons = append(reasons, view.Reason)
		}
	}
	if a.flows != nil {
		status.Classifier = a.flows.InForce()
	}
	status.Uplink = strings.Join(names, ", ")
	status.Scheduler = strings.Join(schedulers, ", ")
	status.Reason = strings.Join(reasons, "; ")
	for _, s := range a.config.Sources {
		status.Sources = append(status.Sources, a.sources[s.Name()])
	}
	return status
}

// view is the uplink as users see it.
func (u *link) view() v1.Uplink {
	view := v1.Uplink{
		Name: u.name, RateBPS: u.rateBPS, ReserveBPS: u.link().ReserveBPS(), Present: u.device.State() != uplink.Absent, State: v1.StateOK,
		HostCompetes: u.hostCompetes, MTUBytes: u.mtuBytes,
	}
	if u.backend != nil {
		view.Scheduler = u.backend.Name()
	}
	if u.reason != nil {
		view.State, view.Reason = v1.StateDegraded, u.reason.Error()
	}
	for _, s := range u.participants {
		view.SentBPS += s.measured.rateBPS
	}
	return view
}
