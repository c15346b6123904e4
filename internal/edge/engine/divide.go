package engine

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/share/policy"
)

// # Where a minimum is in force
//
// The minimum M of a service is what all of its users get together, however many instances and
// nodes there are. It is divided by where users connect and which instances serve them. Let
// x(i,k) be the part of all users of the service who connect to node k and are served by
// instance i; the sum of all x is 1. Users of an instance of their own node get what the proxy
// there sends, and nothing of the instance's passes the uplink. What users of another node get
// passes two uplinks: the instance sends it to the node whose proxy sends it to the users. So
// this is in force
//
//	Local(k)   = M sum of x(i,k) for i on k               for the service's proxy on k
//	Relayed(k) = M sum of x(i,k) for i elsewhere (1 + a)  for the same proxy, beside that
//	Sent(i)    = M sum of x(i,k) for k elsewhere          for the instance i itself
//
// where a is what the proxy sends beside that: an acknowledgement of 66 bytes for each full
// packet of the instance's (4.4 %), requests, and what it is asked by weir-edge. What all of it
// takes on a node is the service's claim there (claims.go). On one engine that is M, once. An
// instance does not add to it.
//
// What users send is the mirror of it, each packet the other way: the proxy receives what they send and
// acknowledgements of instances, and instances receive what proxies of other nodes pass on to them.
// Beside that, proxies need what they pass on of what their node sends:
//
//	Forwarded(k) = Relayed(k) of what is received, without a
//
// An instance that starts has no users yet. Until it answers, and until the instance that it
// replaces has ended and some seconds have passed (package run), its node keeps at least
// M / instances, so that users who are sent to the instance find their part there. The parts of present
// users count towards that; if the instance replaces another one, those of other nodes' users do not:
// they will follow it to its node.
//
// # How large the parts are
//
// A part follows the number of users, not their traffic: traffic depends on the part that they
// have, and a user who starts a download gets his part at once.
//
// Parts are hundredths of M, together 100. They stay as they are until one of them is off by
// hysteresis; then all are corrected.

// Path is the route of users from the proxy on a node to an instance.
type Path struct{ Instance, Node string }

// Entry is a service's proxy on a node, where users connect. In: what it receives, else what it sends.
type Entry struct {
	Service, Node string
	In            bool
}

// Compare orders entries by service and node, what is sent first.
func (e Entry) Compare(other Entry) int {
	return cmp.Or(strings.Compare(e.Service, other.Service), strings.Compare(e.Node, other.Node), strings.Compare(ofReceived(e.In), ofReceived(other.In)))
}

// anyService returns the same direction of all services on the node.
func (e Entry) anyService() Entry { return Entry{"", e.Node, e.In} }

// Directions are the values of [Entry.In]: what an uplink sends, and what it receives.
var Directions = [...]bool{false, true}

// ofReceived returns what follows a rate in words if it is of what a node receives.
func ofReceived(in bool) string {
	if in {
		return " of what it receives"
	}
	return ""
}

// Rates are of what is sent and of what is received, in bits per second.
type Rates struct {
	Out uint64 `json:"out"`
	In  uint64 `json:"in"`
}

// Of returns the rate of what is received, or sent.
func (r Rates) Of(in bool) uint64 {
	if in {
		return r.In
	}
	return r.Out
}

// each returns what f makes of both rates.
func (r Rates) each(f func(bps uint64) uint64) Rates { return Rates{f(r.Out), f(r.In)} }

// String returns the rates other than 0 in words.
func (r Rates) String() string {
	switch {
	case r.In == 0:
		return policy.FormatRate(r.Out)
	case r.Out == 0:
		return "in " + policy.FormatRate(r.In)
	}
	return policy.FormatRate(r.Out) + " and in " + policy.FormatRate(r.In)
}

// Hundredths are the parts of services' minimums by path, in hundredths.
type Hundredths map[Path]uint64

// Need is what a service's minimum takes of one direction of a node, in bits per second. Of what is
// received, who sends is who receives below.
type Need struct {
	// LocalBPS is what the proxy sends to users for instances of the node, RelayedBPS that for
	// instances of other nodes, AckBPS what the proxy sends to those instances for it.
	LocalBPS, RelayedBPS, AckBPS uint64
	// SentBPS is what instances of the node send to proxies of other nodes.
	SentBPS uint64
	// ForwardedBPS is what the proxy sends to instances of other nodes of a minimum of what users send.
	ForwardedBPS uint64
	// StartingBPS is what is kept for instances that start, beyond the rest.
	StartingBPS uint64
}

// BPS returns the sum, which is what the service claims on the node.
func (n Need) BPS() uint64 {
	return sum(sum(n.LocalBPS, n.StartingBPS), sum(n.RelayedBPS+n.AckBPS+n.ForwardedBPS, n.SentBPS))
}

// UsersBPS returns what the proxy sends to users, which is what links to them carry.
func (n Need) UsersBPS() uint64 { return sum(sum(n.LocalBPS, n.StartingBPS), n.RelayedBPS) }

// Division is where services' minimums are needed, in bits per second.
type Division struct {
	// MinBPS are the minimums by service.
	MinBPS map[string]Rates
	Needs  map[Entry]Need
	// Parts are what users of each instance get of the minimum, Sent what of it instances send to
	// proxies of other nodes.
	Parts, Sent map[string]Rates
}

// Divide divides services' minimums by where their users connect. users are counts or fractions
// of any sum; without any, a service's instances share its users alike. starting are the
// instances that do not answer yet. before is the second result of the previous call; its parts
// stay while none is off by hysteresis.
func Divide(minBPS map[string]Rates, promises Promises, starting map[string]bool, users map[Path]float64, before Hundredths) (Division, Hundredths) {
	d := Division{MinBPS: minBPS, Needs: map[Entry]Need{}, Parts: map[string]Rates{}, Sent: map[string]Rates{}}
	after := Hundredths{}
	of := func(path Path) string {
		p := promises[path.Instance]
		if p.Claim || minBPS[p.Service] == (Rates{}) {
			return ""
		}
		return p.Service
	}
	exact, had := exactParts(users, of), byService(before, of)
	for service, instances := range promises.byService() {
		if minBPS[service] == (Rates{}) {
			continue
		}
		if exact[service] == nil {
			exact[service] = promises.homes(instances, whole)
		}
		parts := nextParts(exact[service], had[service])
		maps.Copy(after, parts)
		d.add(service, promises, parts)
		d.keep(service, promises, instances, starting)
	}
	return d, after
}

// AddLocal makes a minimum what a service needs on a node, all for instances there.
func (d *Division) AddLocal(service, node string, minimum Rates) {
	for _, in := range Directions {
		if bps := minimum.Of(in); bps > 0 {
			d.Needs[Entry{service, node, in}] = Need{LocalBPS: bps}
		}
	}
}

// add enters what a service's users need.
func (d *Division) add(service string, promises Promises, parts map[Path]uint64) {
	needs, of, sent := map[string]Need{}, map[string]uint64{}, map[string]uint64{} // in hundredths
	for path, part := range parts {
		home, entered := promises[path.Instance].Node, needs[path.Node]
		if of[path.Instance] += part; home == path.Node {
			entered.LocalBPS += part
		} else {
			sent[path.Instance] += part
			entered.RelayedBPS += part
			from := needs[home]
			from.SentBPS += part
			needs[home] = from
		}
		needs[path.Node] = entered
	}
	for node, n := range needs {
		forwarded := hundredths(d.MinBPS[service].In, n.RelayedBPS)
		for _, in := range Directions {
			rate := func(part uint64) uint64 { return hundredths(d.MinBPS[service].Of(in), part) }
			relayed := rate(n.RelayedBPS)
			need := Need{LocalBPS: rate(n.LocalBPS), RelayedBPS: relayed, AckBPS: relayed / relayExtra, SentBPS: rate(n.SentBPS)}
			if !in {
				need.ForwardedBPS = forwarded
			}
			if need != (Need{}) {
				d.Needs[Entry{service, node, in}] = need
			}
		}
	}
	for id := range of {
		rate := func(part uint64) Rates {
			return d.MinBPS[service].each(func(bps uint64) uint64 { return hundredths(bps, part) })
		}
		d.Parts[id], d.Sent[id] = rate(of[id]), rate(sent[id])
	}
}

// keep enters what is kept for instances that start, or whose predecessor has not ended.
func (d *Division) keep(service string, promises Promises, instances []string, starting map[string]bool) {
	count, kept, moves := 0, map[string]uint64{}, map[string]bool{} // kept: for how many instances
	for _, id := range instances {
		if !promises[id].Stopping && !slices.ContainsFunc(instances, func(other string) bool { return promises[other].Replaces == id }) {
			count++
		}
	}
	for _, id := range instances {
		p := promises[id]
		_, early := promises[p.Replaces]
		if !p.Stopping && (starting[id] || early) {
			kept[p.Node]++
			moves[p.Node] = moves[p.Node] || p.Replaces != ""
		}
	}
	part := d.MinBPS[service].partOf(count)
	for node, starts := range kept {
		for _, in := range Directions {
			n, bps := d.Needs[Entry{service, node, in}], part.Of(in)*starts
			has := n.BPS()
			if moves[node] {
				has -= n.SentBPS
			}
			if n.StartingBPS = bps - min(bps, has); n != (Need{}) {
				d.Needs[Entry{service, node, in}] = n
			}
		}
	}
	for _, id := range instances { // what it is expected to serve
		if starting[id] && !promises[id].Stopping {
			d.Parts[id] = Rates{max(d.Parts[id].Out, part.Out), max(d.Parts[id].In, part.In)}
		}
	}
}

// partOf returns the part of a minimum that one of count instances is expected to need.
func (r Rates) partOf(count int) Rates {
	return r.each(func(bps uint64) uint64 { return bps / uint64(max(count, 1)) })
}

// hundredths returns so many hundredths of a rate, without overflow.
func hundredths(bps, part uint64) uint64 { return bps/whole*part + bps%whole*part/whole }

// byService returns the instances of each service by ID.
func (p Promises) byService() map[string][]string {
	by := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(p)) {
		if !p[id].Claim {
			by[p[id].Service] = append(by[p[id].Service], id)
		}
	}
	return by
}

// homes divides all among a service's instances, each at its own node. Those that stop have none
// if others go on.
func (p Promises) homes(instances []string, all float64) map[Path]float64 {
	stay := slices.DeleteFunc(slices.Clone(instances), func(id string) bool { return p[id].Stopping })
	if len(stay) == 0 {
		stay = instances
	}
	parts := map[Path]float64{}
	for _, id := range stay {
		parts[Path{id, p[id].Node}] = all / float64(len(stay))
	}
	return parts
}

// Homes returns the fractions of services' users that are expected while none are known: the
// instances of a service have the same, of users who connect to their own nodes.
func (p Promises) Homes() map[Path]float64 {
	all := map[Path]float64{}
	for _, instances := range p.byService() {
		maps.Copy(all, p.homes(instances, 1))
	}
	return all
}

// exactParts returns the parts of services' minimums by path, in hundredths; none for a service
// without users. Paths with few users have none.
func exactParts(users map[Path]float64, of func(Path) string) map[string]map[Path]float64 {
	paths := slices.SortedFunc(maps.Keys(users), func(a, b Path) int {
		return cmp.Or(cmp.Compare(finite(users[a]), finite(users[b])), comparePaths(a, b))
	})
	all, without, kept := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, path := range paths {
		all[of(path)] += finite(users[path])
	}
	parts := map[string]map[Path]float64{}
	for _, path := range paths { // those with few users first
		service, n := of(path), finite(users[path])
		if service == "" || n == 0 {
			continue
		}
		if n*whole <= fewHundredths*all[service] && (without[service]+n)*whole <= fewTogether*all[service] {
			without[service] += n
			continue
		}
		if parts[service] == nil {
			parts[service] = map[Path]float64{}
		}
		parts[service][path] = n * whole
		kept[service] += n
	}
	for service, by := range parts {
		for path := range by {
			by[path] /= kept[service]
		}
	}
	return parts
}

func comparePaths(a, b Path) int {
	return cmp.Or(strings.Compare(a.Instance, b.Instance), strings.Compare(a.Node, b.Node))
}

func byService(parts Hundredths, of func(Path) string) map[string]map[Path]uint64 {
	by := map[string]map[Path]uint64{}
	for path, part := range parts {
		service := of(path)
		if by[service] == nil {
			by[service] = map[Path]uint64{}
		}
		by[service][path] = part
	}
	return by
}

// OthersOffBPS returns how much what is needed may differ in the division of another weir-edge. What proxies
// pass on is part of what they send.
func (d *Division) OthersOffBPS(e Entry) uint64 {
	minimum := d.MinBPS[e.Service]
	if !e.In {
		return sum(minimum.Out, minimum.In) / whole * othersOff
	}
	return minimum.In / whole * othersOff
}

// UsersOffBPS is OthersOffBPS of what the proxy sends to users.
func (d *Division) UsersOffBPS(service string) uint64 {
	return d.MinBPS[service].Out / whole * othersOff
}

// nextParts returns the previous parts if none is off by hysteresis; else the exact ones rounded
// to hundredths by largest remainder.
func nextParts(exact map[Path]float64, now map[Path]uint64) map[Path]uint64 {
	if isAbout(exact, now) {
		return now
	}
	paths := slices.SortedFunc(maps.Keys(exact), comparePaths)
	parts, left := map[Path]uint64{}, uint64(whole)
	for _, path := range paths {
		parts[path] = uint64(exact[path])
		left -= min(parts[path], left)
	}
	slices.SortStableFunc(paths, func(a, b Path) int {
		return cmp.Compare(exact[b]-math.Floor(exact[b]), exact[a]-math.Floor(exact[a]))
	})
	for _, path := range paths[:min(int(left), len(paths))] {
		parts[path]++
	}
	return parts
}

// isAbout reports whether parts are all there and none is off by hysteresis. A path without users
// has no part at all: it would be missing where the users are.
func isAbout(exact map[Path]float64, now map[Path]uint64) bool {
	all := uint64(0)
	for path, part := range now {
		if exact[path] == 0 {
			return false
		}
		all += part
	}
	for path, right := range exact {
		if math.Abs(right-float64(now[path])) >= hysteresis {
			return false
		}
	}
	return all == whole
}
