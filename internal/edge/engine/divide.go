package engine

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
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

// Entry is a service's proxy on a node, where users connect.
type Entry struct{ Service, Node string }

func (e Entry) compare(other Entry) int {
	return cmp.Or(strings.Compare(e.Service, other.Service), strings.Compare(e.Node, other.Node))
}

// Hundredths are the parts of services' minimums by path, in hundredths.
type Hundredths map[Path]uint64

// Need is what a service's minimum takes on a node, in bits per second.
type Need struct {
	// LocalBPS is what the proxy sends to users for instances of the node, RelayedBPS that for
	// instances of other nodes, AckBPS what the proxy sends to those instances for it.
	LocalBPS, RelayedBPS, AckBPS uint64
	// SentBPS is what instances of the node send to proxies of other nodes.
	SentBPS uint64
	// StartingBPS is what is kept for instances that start, beyond the rest.
	StartingBPS uint64
}

// BPS returns the sum, which is what the service claims on the node.
func (n Need) BPS() uint64 {
	return sum(sum(n.LocalBPS, n.StartingBPS), sum(n.RelayedBPS+n.AckBPS, n.SentBPS))
}

// UsersBPS returns what the proxy sends to users, which is what links to them carry.
func (n Need) UsersBPS() uint64 { return sum(sum(n.LocalBPS, n.StartingBPS), n.RelayedBPS) }

// Division is where services' minimums are needed, in bits per second.
type Division struct {
	// MinBPS are the minimums by service.
	MinBPS map[string]uint64
	Needs  map[Entry]Need
	// Parts are what users of each instance get of the minimum, Sent what of it instances send to
	// proxies of other nodes.
	Parts, Sent map[string]uint64
}

// Divide divides services' minimums by where their users connect. users are counts or fractions
// of any sum; without any, a service's instances share its users alike. starting are the
// instances that do not answer yet. before is the second result of the previous call; its parts
// stay while none is off by hysteresis.
func Divide(minBPS map[string]uint64, promises Promises, starting map[string]bool, users map[Path]float64, before Hundredths) (Division, Hundredths) {
	d := Division{MinBPS: minBPS, Needs: map[Entry]Need{}, Parts: map[string]uint64{}, Sent: map[string]uint64{}}
	after := Hundredths{}
	of := func(path Path) string {
		p := promises[path.Instance]
		if p.Claim || minBPS[p.Service] == 0 {
			return ""
		}
		return p.Service
	}
	exact, had := exactParts(users, of), byService(before, of)
	for service, instances := range promises.byService() {
		if minBPS[service] == 0 {
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
	rate := func(part uint64) uint64 { return hundredths(d.MinBPS[service], part) }
	for node, n := range needs {
		if n != (Need{}) {
			relayed := rate(n.RelayedBPS)
			d.Needs[Entry{service, node}] = Need{LocalBPS: rate(n.LocalBPS), RelayedBPS: relayed, AckBPS: relayed / relayExtra, SentBPS: rate(n.SentBPS)}
		}
	}
	for id := range of {
		d.Parts[id], d.Sent[id] = rate(of[id]), rate(sent[id])
	}
}

// keep enters what is kept for instances that start, or whose predecessor has not ended.
func (d *Division) keep(service string, promises Promises, instances []string, starting map[string]bool) {
	count, kept, moves := 0, map[string]uint64{}, map[string]bool{}
	for _, id := range instances {
		if !promises[id].Stopping && !slices.ContainsFunc(instances, func(other string) bool { return promises[other].Replaces == id }) {
			count++
		}
	}
	for _, id := range instances {
		p := promises[id]
		_, early := promises[p.Replaces]
		if !p.Stopping && (starting[id] || early) {
			kept[p.Node] += partOf(d.MinBPS[service], count)
			moves[p.Node] = moves[p.Node] || p.Replaces != ""
		}
	}
	for node, bps := range kept {
		n := d.Needs[Entry{service, node}]
		has := n.BPS()
		if moves[node] {
			has -= n.SentBPS
		}
		n.StartingBPS = bps - min(bps, has)
		d.Needs[Entry{service, node}] = n
	}
	for _, id := range instances { // what it is expected to serve
		if starting[id] && !promises[id].Stopping {
			d.Parts[id] = max(d.Parts[id], partOf(d.MinBPS[service], count))
		}
	}
}

// partOf returns the part of a minimum that one of count instances is expected to need.
func partOf(minBPS uint64, count int) uint64 { return minBPS / uint64(max(count, 1)) }

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

// OthersOffBPS returns how much the parts of a minimum may differ in the division of another weir-edge.
func OthersOffBPS(minBPS uint64) uint64 { return minBPS / whole * othersOff }

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
