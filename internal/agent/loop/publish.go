package loop

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/agent/uplink"
)

// Data for readers. The loop publishes a snapshot every period and after every decision; readers
// take the latest and never enter the loop.

// Latest returns the latest snapshot. It waits only for the first snapshot of a new agent.
func (a *Agent) Latest(ctx context.Context) (*stats.Snapshot, error) { return a.board.Latest(ctx) }

// Events returns the ring of recent and coming events.
func (a *Agent) Events() *stats.Events { return a.events }

// History returns samples of the last minutes of each container.
func (a *Agent) History() *stats.History { return &a.history }

// recordHistory samples the published snapshots until ctx ends. It runs beside the loop.
func recordHistory(ctx context.Context, history *stats.History, board *stats.Board) {
	tick := time.NewTicker(stats.HistoryInterval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			if latest, err := board.Latest(ctx); err == nil {
				history.Record(now, latest)
			}
		case <-ctx.Done():
			return
		}
	}
}

// publishDue reports whether counters were read since the last snapshot, or that snapshot is a
// period old.
func (a *Agent) publishDue(now time.Time) bool {
	counted := func(u *link) bool { return u.measuredAt.After(a.publishedAt) }
	containers := time.Duration(len(a.containers.byKey))
	return slices.ContainsFunc(a.uplinks.list, counted) || now.Sub(a.publishedAt) >= max(statsInterval, containers*statsIntervalPerShare)
}

// publish publishes a new snapshot, and the events since the last one.
func (a *Agent) publish(now time.Time) {
	a.publishedAt = now
	for _, u := range a.uplinks.list {
		u.readCounters()
	}
	s := &stats.Snapshot{At: time.Now(), Rules: a.containers.rules}
	for _, u := range a.uplinks.list {
		if u.of != nil {
			s.LinksIn = append(s.LinksIn, u.link())
		} else {
			s.Links = append(s.Links, u.link())
		}
	}
	s.Status = a.status()
	s.Containers = make([]v1.Container, 0, len(a.containers.byKey)+1)
	s.Places = make([]stats.Place, 0, cap(s.Containers))
	owners := a.containers.owners()
	for _, c := range append(a.containers.all(), a.containers.host) {
		s.Containers = append(s.Containers, c.view(owners))
		place := stats.Place{Image: c.Seen.Image, Ports: c.Seen.Ports, NetNSPath: c.Seen.NetNSPath, CgroupPath: c.Seen.CgroupPath, EdgeProxy: isEdgeProxy(c), Subject: c.subject(), Set: c.set}
		if a.attach.Flows != nil && c.ClassifiesFlows() {
			place.FlowNumber = c.Number
		}
		s.Places = append(s.Places, place)
	}
	a.containers.unpublished.clear()
	if before := a.board.Publish(s); before != nil {
		a.events.Add(stats.Changes(before, s)...)
		return
	}
	a.events.Add(v1.Event{At: s.At, Kind: v1.EventAgentStarted, Message: "version " + a.config.Version})
}

// isEdgeProxy reports whether weir-edge made the container as a proxy. A label of its image, which may
// have any author, does not make it one.
func isEdgeProxy(c *container) bool {
	_, copied := c.Seen.ImageLabels[v1.LabelEdgeRole]
	return c.Seen.Labels[v1.LabelEdgeRole] == v1.EdgeProxy && !copied && c.Seen.ImageUnknown == ""
}

// status returns the state of the agent and its uplinks.
func (a *Agent) status() v1.Status {
	status := v1.Status{Version: a.config.Version, State: v1.StateOK, Turns: a.turns.View(), Sources: []v1.Source{}}
	var names, schedulers, reasons []string
	for _, u := range a.uplinks.list {
		if u.of != nil {
			continue
		}
		view := u.view()
		if u.in != nil {
			view.In = u.in.incomingView()
			view.State, view.Reason = worse(view.State, view.In.State), joined(view.Reason, view.In.Reason)
		}
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
		}
		if view.Reason != "" && !slices.Contains(reasons, view.Reason) {
			reasons = append(reasons, view.Reason)
		}
	}
	if a.attach.Flows != nil {
		status.Classifier = a.attach.Flows.InForce()
	}
	status.Uplink = strings.Join(names, ", ")
	status.Scheduler = strings.Join(schedulers, ", ")
	status.Reason = strings.Join(reasons, "; ")
	for _, name := range a.containers.asked {
		if source, heard := a.containers.sources[name]; heard { // others may never come
			status.Sources = append(status.Sources, source)
		}
	}
	return status
}

// view returns the uplink for the API.
func (u *link) view() v1.Uplink {
	view := v1.Uplink{
		Name: u.device.Name(), RateBPS: u.device.RateBPS(), ReserveBPS: u.link().ReserveBPS(), Present: u.device.State() != uplink.Absent, State: v1.StateOK,
		HostCompetes: u.hostCompetes, MTUBytes: u.device.MTUBytes(), Precision: cmp.Or(u.device.Precision(), v1.PrecisionExact),
	}
	if u.device.Scheduler() != nil {
		view.Scheduler = u.device.Scheduler().Name()
	}
	for _, problem := range []error{u.device.Problem(), u.attached.Problem()} {
		if problem != nil {
			view.State = v1.StateDegraded
			view.Reason = joined(view.Reason, problem.Error())
		}
	}
	view.SentBPS = u.sumBPS()
	return view
}

// incomingView returns what an uplink receives for the API.
func (u *link) incomingView() *v1.UplinkIn {
	view := &v1.UplinkIn{Device: u.device.Name(), RateBPS: u.device.RateBPS(), ReserveBPS: u.link().ReserveBPS(), ReceivedBPS: u.sumBPS(), HostCompetes: u.hostCompetes, State: v1.StateOK}
	if u.device.Scheduler() != nil {
		view.Scheduler = u.device.Scheduler().Name()
	}
	if problem := u.device.Problem(); problem != nil {
		view.State, view.Reason = v1.StateDegraded, u.says(problem.Error())
	}
	return view
}

// sumBPS returns the rate of all shares together.
func (u *link) sumBPS() (bps uint64) {
	for _, s := range u.participants {
		bps += s.measured.rateBPS
	}
	return bps
}

func worse(a, b v1.State) v1.State {
	if a == v1.StateOK {
		return b
	}
	return a
}

// joined joins two reasons, of which each may be empty.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
