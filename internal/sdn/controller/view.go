package controller

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// answerAge is how long readers share an answer: making one takes the lock of forwarding decisions.
const answerAge = 100 * time.Millisecond

// answer is a route's answer, which readers share.
type answer[T any] struct {
	mu      sync.Mutex
	value   T
	at      time.Time
	version uint64
}

// get returns the answer, which tell makes if it is of another version or too old. The caller changes
// nothing in it.
func (a *answer[T]) get(version uint64, tell func() T) T {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.version != version || time.Since(a.at) >= answerAge {
		a.version, a.value, a.at = version, tell(), time.Now()
	}
	return a.value
}

// queueStates returns the states of queues; nil knows none.
type queueStates func() map[topology.Port]qos.PortState

func (q queueStates) now() map[topology.Port]qos.PortState {
	if q == nil {
		return nil
	}
	return q()
}

// View returns the controller's state as an API object, at most answerAge old. The caller changes nothing
// in it.
func (c *Controller) View(queues queueStates) v1.SDN {
	return c.state.get(0, func() v1.SDN { return c.makeView(queues.now()) })
}

func (c *Controller) makeView(queues map[topology.Port]qos.PortState) v1.SDN {
	s := c.Snapshot(false)
	out := v1.SDN{At: s.At, Switches: []v1.SDNSwitch{}, Links: []v1.SDNLink{}, Counters: c.countersOf(s.Counters), MissingPorts: s.Untrusted}
	for _, n := range s.Switches {
		one := v1.SDNSwitch{
			DPID: n.DPID.String(), Connected: n.Connected, Role: roleName(n.Role), Since: n.Since, TableFull: n.Full, Flows: n.Flows, Ports: []v1.SDNPort{},
		}
		for _, p := range n.Ports {
			one.Ports = append(one.Ports, c.port(p, queues[topology.Port{Switch: n.DPID, Number: p.Number}]))
		}
		one.State, one.Reason = switchState(n, one.Ports)
		out.Switches = append(out.Switches, one)
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, v1.SDNLink{
			ADPID: l.A.Switch.String(), APort: l.A.Number, BDPID: l.B.Switch.String(), BPort: l.B.Number,
		})
	}
	for level, t := range s.Totals {
		out.Classes = append(out.Classes, v1.SDNClass{
			Class: className(apps.Level(level)), Flows: t.Flows, SentPackets: t.Packets, SentBytes: t.Bytes,
		})
	}
	return out
}

// switchState returns the state of a switch, and the reason if it is degraded.
func switchState(s core.Switch, ports []v1.SDNPort) (state, reason string) {
	without, untrusted := 0, 0
	for _, p := range ports {
		if p.Up && (p.State == "degraded" || p.State == "refused") {
			without++
		}
		if p.Trust != nil && p.Trust.Refused != "" {
			untrusted++
		}
	}
	switch {
	case !s.Connected:
		return "lost", ""
	case s.Role == openflow.OFPCR_ROLE_SLAVE:
		return "standby", ""
	case s.Full:
		return "table full", ""
	case s.WithoutQueues:
		return "degraded", "it refuses the action set_queue: packets are forwarded, and classes are not served in order"
	case without > 0:
		return "degraded", fmt.Sprintf("the queues of %d of %d ports are not in force: see their reasons", without, len(ports))
	case untrusted == 1:
		return "degraded", "a port of --trust is not trusted: see its reason"
	case untrusted > 1:
		return "degraded", fmt.Sprintf("%d ports of --trust are not trusted: see their reasons", untrusted)
	}
	return "ok", ""
}

// roleName returns the name of a role without OpenFlow's prefix.
func roleName(r openflow.Role) string {
	return strings.ToLower(strings.TrimPrefix(r.String(), "OFPCR_ROLE_"))
}

func className(l apps.Level) string { return strings.ToLower(l.String()) }

func (c *Controller) port(p core.PortState, made qos.PortState) v1.SDNPort {
	// Port names of switches may be invalid UTF-8.
	out := v1.SDNPort{Number: p.Number, Name: strings.ToValidUTF8(p.Name, "?"), Up: p.Up, RateBPS: made.RateBPS, State: made.State, Reason: made.Reason}
	out.SentBPS, out.ReceivedBPS = rounded(p.Count.TxRateBPS), rounded(p.Count.RxRateBPS)
	out.SentBytes, out.ReceivedBytes, out.DroppedPackets = p.Count.TxBytes, p.Count.RxBytes, p.Count.TxDropped
	if p.Blocked {
		out.State, out.Reason = "blocked", "another port leads to the same bridge: together they are a loop"
	}
	if t := p.Trust; t != nil {
		out.Trust = &v1.SDNTrust{Refused: t.Refused, EFBoundBPS: t.EFBoundBPS, EFDroppedPackets: t.DroppedPackets, EFDroppedBytes: t.DroppedBytes}
	}
	for _, mac := range p.Stations {
		out.Hosts = append(out.Hosts, mac.String())
	}
	if p.Link {
		out.PeerDPID, out.PeerPort = p.Peer.Switch.String(), p.Peer.Number
	}
	ids := map[openflow.Queue]bool{}
	for id := range p.Queues {
		ids[id] = true
	}
	for id := range made.Queues {
		ids[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		count, rates := p.Queues[id], made.Queues[id]
		if own, ok := made.Counters[id]; ok { // Weir's own queues on linux-noop ports: the switch does not count their packets
			count.TxBytes, count.TxPackets, count.Dropped, count.RateBPS = own.SentBytes, own.SentPackets, own.DroppedPackets, own.RateBPS
		}
		class := "-"
		if level, ok := c.options.Core.ClassOf(id); ok {
			class = className(level)
		}
		out.Queues = append(out.Queues, v1.SDNQueue{
			ID: uint32(id), Class: class, Applications: c.applications(id), MinBPS: rates.MinBPS, MaxBPS: rates.MaxBPS, RateBPS: rounded(count.RateBPS),
			SentBytes: count.TxBytes, SentPackets: count.TxPackets, DroppedPackets: count.Dropped,
		})
	}
	return out
}

// applications returns the application types that have this queue to themselves.
func (c *Controller) applications(id openflow.Queue) []string {
	var names []string
	for i, name := range apps.Types {
		if q, ok := c.options.Core.TypeQueues[i]; ok && q.Queue == id {
			names = append(names, name)
		}
	}
	return names
}

func rounded(v float64) uint64 { return uint64(math.Round(max(v, 0))) }

// Flows returns all known flows, sorted by rate, the highest first, at most answerAge old. The caller
// changes nothing in them.
func (c *Controller) Flows() []v1.SDNFlow { return c.flows.get(0, c.makeFlows) }

func (c *Controller) makeFlows() []v1.SDNFlow {
	flows := c.Snapshot(true).Flows
	slices.SortFunc(flows, func(a, b core.Flow) int {
		return cmp.Or(cmp.Compare(b.RateBPS, a.RateBPS), cmp.Compare(a.ID, b.ID))
	})
	out := []v1.SDNFlow{}
	for _, f := range flows {
		one := v1.SDNFlow{
			ID: f.ID, Flow: f.Key.String(), Application: f.Verdict.TypeName(), Class: className(f.Verdict.Level),
			Confidence: f.Verdict.Confidence, SecondLook: f.Verdict.Second, Began: f.Began, RateBPS: rounded(f.RateBPS),
			SentPackets: f.Packets, SentBytes: f.Bytes, Path: []v1.SDNHop{},
		}
		for _, hop := range f.Path {
			one.Path = append(one.Path, v1.SDNHop{DPID: hop.Switch.String(), In: hop.In, Out: hop.Out})
		}
		out = append(out, one)
	}
	return out
}

// countersOf returns all counters under their metric names.
func (c *Controller) countersOf(k core.Counters) []v1.SDNCounter {
	n := &c.counters
	return []v1.SDNCounter{
		{Name: "packet_ins", Value: k.PacketIns},
		{Name: "packet_ins_limited", Value: n.limited.Load()},
		{Name: "packet_ins_unknown", Value: k.Unknown},
		{Name: "packet_ins_on_probation", Value: k.Probation},
		{Name: "floods_limited", Value: k.FloodsLimited},
		{Name: "flows_installed", Value: k.Installed},
		{Name: "flows_reinstalled", Value: k.Reinstalled},
		{Name: "flows_rerouted", Value: k.Rerouted},
		{Name: "flows_reclassified", Value: k.Reclassified},
		{Name: "flows_evicted", Value: k.Evicted},
		{Name: "routed_ttl_expired", Value: k.Routed.TTL},
		{Name: "routed_no_route", Value: k.Routed.Nowhere},
		{Name: "routed_no_answer", Value: k.Routed.Unanswered},
		{Name: "tables_full", Value: k.TableFull},
		{Name: "ports_blocked", Value: k.Blocked},
		{Name: "hosts_refused", Value: k.StationsRefused},
		{Name: "switch_errors", Value: k.Errors},
		{Name: "roles_claimed", Value: k.RolesClaimed},
		{Name: "roles_lost", Value: k.RolesLost},
		{Name: "lldp_foreign", Value: k.LLDP.Foreign},
		{Name: "lldp_forged", Value: k.LLDP.Forged},
		{Name: "lldp_stale", Value: k.LLDP.Stale},
		{Name: "lldp_on_host_ports", Value: k.LLDP.OnStationPort},
		{Name: "connections", Value: n.accepted.Load()},
		{Name: "connections_refused", Value: n.refused.Load()},
		{Name: "connections_duplicate", Value: n.duplicates.Load()},
		{Name: "connections_timed_out", Value: n.timeouts.Load()},
		{Name: "connections_overflowed", Value: n.overflows.Load()},
		{Name: "messages_unreadable", Value: n.badMessages.Load()},
	}
}
