// Package promise decides which minimums are promised on the links of a network.
//
// Problem: a minimum at an uplink is worth nothing if a link on the way is full. Method: a promise
// names the traffic of one port of a node with one other host, and takes its minimum of every port
// that sends it, in both directions, over the widest of the shortest paths. It is admitted if each
// of these ports has that much left of what may be promised there. So all minimums fit, whatever
// others send. A reservation ends unless the ledger, which is elsewhere, confirms it; what the
// ledger confirms is kept, if it cannot be in force as broken. When links fail, promises move, the
// oldest first.
//
// Limits: one path in each direction; a promise that is in force does not move to make room.
package promise

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

const (
	// Lease is how long a promise lasts that is not confirmed.
	Lease = 10 * time.Second
	// FirstQueue is the number of the first queue of promises: those before it are of classes.
	FirstQueue = qos.MaxQueues
	// LastQueue is the number of the last queue of promises.
	LastQueue = 63
	// MinBPS is the least that HTB's clock can keep.
	MinBPS = 12000
	// maxIDBytes limits identifiers, maxPromises what is remembered.
	maxIDBytes, maxPromises = 200, 4096
)

// Kinds of refusals.
var (
	ErrInvalid = errors.New("invalid")
	ErrUnknown = errors.New("unknown")
	ErrAlike   = errors.New("cannot be told apart")
	ErrNoRoom  = errors.New("no room")
	ErrStandby = errors.New("standby")
)

// Protocols of a promise, as in the IP header.
const (
	TCP = 6
	UDP = 17
)

// Traffic is what a promise is for: the packets of one port of a node from and to another host.
type Traffic struct {
	Node, Peer netip.Addr
	Protocol   uint8
	Port       uint16
}

// Request is a wanted promise.
type Request struct {
	ID, Service string
	Traffic
	// MinBPS are the minimums from Node to Peer, and back.
	MinBPS [2]uint64
}

// tunnels are the UDP ports that carry packets of many services.
var tunnels = map[uint16]string{4789: "VXLAN", 8472: "VXLAN", 6081: "Geneve", 51820: "WireGuard", 500: "IPsec", 4500: "IPsec"}

// check returns an error if a request can never be admitted.
func (r *Request) check() error {
	invalid := func(format string, args ...any) error { return Refuse(ErrInvalid, format, args...) }
	switch {
	case r.ID == "" || len(r.ID) > maxIDBytes:
		return invalid("the id has %d bytes: give it 1 to %d", len(r.ID), maxIDBytes)
	case !r.Node.IsValid() || !r.Peer.IsValid() || r.Node == r.Peer || r.Node.Is4() != r.Peer.Is4():
		return invalid("node %v and peer %v must be two different addresses of one family", r.Node, r.Peer)
	case r.Protocol != TCP && r.Protocol != UDP || r.Port == 0:
		return Refuse(ErrAlike, "without tcp or udp and a port switches cannot tell the traffic from other traffic of %v: promise it on uplinks only", r.Node)
	case r.Protocol == UDP && tunnels[r.Port] != "":
		return Refuse(ErrAlike, "udp port %d is %s, in which switches cannot tell services apart: promise it on uplinks only", r.Port, tunnels[r.Port])
	case r.MinBPS == [2]uint64{}:
		return invalid("both minimums are 0")
	}
	for _, least := range r.MinBPS {
		if least != 0 && least < MinBPS {
			return invalid("a minimum of %d bit/s is less than %d", least, MinBPS)
		}
	}
	return nil
}

// refused is a refusal with its kind.
type refused struct {
	kind error
	text string
}

func (r *refused) Error() string { return r.text }
func (r *refused) Unwrap() error { return r.kind }

// Refuse returns a refusal of a kind.
func Refuse(kind error, format string, args ...any) error {
	return &refused{kind, fmt.Sprintf(format, args...)}
}

// Network is what a Book asks of the network.
type Network interface {
	// Way returns the widest of the shortest paths between two hosts, and an error that says which
	// host or path is missing.
	Way(from, to netip.Addr, width func(topology.Port) uint64) ([]topology.Hop, error)
	// Holds returns an error if a path of Way does not lead from one host to the other any more, or a
	// switch on it refuses the promise.
	Holds(id string, way []topology.Hop, from, to netip.Addr) error
	// Budget returns how much may be promised at a port in all, and an error if nothing can be.
	Budget(topology.Port) (uint64, error)
}

// Promise is a promised minimum.
type Promise struct {
	Request
	Since   time.Time
	Expires time.Time // zero: it is confirmed
	// Broken says why the promise is not in force; nil if its ways keep it.
	Broken error
	// Ways are the paths from Node to Peer, and back; without one where the minimum is 0.
	Ways [2][]topology.Hop
	// before is the confirmed request, to which a change goes back that is not confirmed.
	before *Request
}

// Queue is the queue of a promise at a port.
type Queue struct {
	Number int
	MinBPS uint64
	owner  owner
}

// owner is one direction of a promise.
type owner struct {
	id        string
	direction int
}

// Book are all promises, and what they take of ports.
type Book struct {
	byID  map[string]*Promise
	ports map[topology.Port][]Queue // by number
}

// NewBook returns a Book without promises.
func NewBook() *Book { return &Book{byID: map[string]*Promise{}, ports: map[topology.Port][]Queue{}} }

// Get returns a promise, or nil.
func (b *Book) Get(id string) *Promise { return b.byID[id] }

// All returns all promises, the oldest first.
func (b *Book) All() []*Promise {
	return slices.SortedFunc(maps.Values(b.byID), func(x, y *Promise) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.ID, y.ID))
	})
}

// Queues returns the queues of promises at a port, by number.
func (b *Book) Queues(p topology.Port) []Queue { return slices.Clone(b.ports[p]) }

// QueueOf returns the queue of a promise's packets at a port of one of its ways.
func (b *Book) QueueOf(id string, direction int, p topology.Port) (number int, ok bool) {
	i := slices.IndexFunc(b.ports[p], func(q Queue) bool { return q.owner == owner{id, direction} })
	if i < 0 {
		return 0, false
	}
	return b.ports[p][i].Number, true
}

// PromisedBPS returns what is promised at a port.
func (b *Book) PromisedBPS(p topology.Port) (sum uint64) {
	for _, q := range b.ports[p] {
		sum += q.MinBPS
	}
	return sum
}

// FreeBPS returns the largest minimum that is admitted at a port, and an error if that is 0.
func (b *Book) FreeBPS(p topology.Port, n Network) (uint64, error) {
	budget, err := n.Budget(p)
	taken := b.PromisedBPS(p)
	switch {
	case err != nil:
		return 0, err
	case len(b.ports[p]) > LastQueue-FirstQueue:
		return 0, fmt.Errorf("%v has %d queues of promises, the most there can be", p, len(b.ports[p]))
	case budget <= taken:
		return 0, fmt.Errorf("%v has promised all that it can: %s", p, mbit(taken))
	}
	return budget - taken, nil
}

// Path returns the path on which a promise between two hosts would be, and the largest minimum that
// is admitted on it.
func (b *Book) Path(from, to netip.Addr, n Network) ([]topology.Hop, uint64, error) {
	free := b.width(n)
	way, err := n.Way(from, to, free)
	if err != nil {
		return nil, 0, err
	}
	least := ^uint64(0)
	for _, p := range outputs(way) {
		least = min(least, free(p))
	}
	return way, least, nil
}

// width returns the free minimum of ports, 0 where nothing can be promised.
func (b *Book) width(n Network) func(topology.Port) uint64 {
	return func(p topology.Port) uint64 {
		free, _ := b.FreeBPS(p, n) // the caller has the reason from admit
		return free
	}
}

// outputs returns the ports that send a path's packets.
func outputs(way []topology.Hop) []topology.Port {
	ports := make([]topology.Port, 0, len(way))
	for _, hop := range way {
		ports = append(ports, topology.Port{Switch: hop.Switch, Number: hop.Out})
	}
	return ports
}

// Reserve admits a promise, or changed minimums of one, until the lease ends. What is admitted
// already stays as it is if the request is refused.
func (b *Book) Reserve(now time.Time, r Request, n Network) (*Promise, error) {
	if err := b.check(&r); err != nil {
		return nil, err
	}
	p := b.byID[r.ID]
	if p == nil {
		p = &Promise{Request: r, Since: now}
	}
	old, ports := *p, b.clonePorts()
	b.release(p)
	p.Request = r
	if err := b.admit(p, n); err != nil {
		*p, b.ports = old, ports
		return nil, err
	}
	if b.byID[r.ID] != nil && old.Expires.IsZero() {
		p.before = &old.Request
	}
	b.byID[r.ID], p.Expires = p, now.Add(Lease)
	return p, nil
}

func (b *Book) clonePorts() map[topology.Port][]Queue {
	out := make(map[topology.Port][]Queue, len(b.ports))
	for port, queues := range b.ports {
		out[port] = slices.Clone(queues)
	}
	return out
}

// Confirm makes a promise last. One that is not known, or has other minimums, is promised as the
// ledger has it, and is broken if it does not fit.
func (b *Book) Confirm(now time.Time, r Request, n Network) (*Promise, error) {
	if err := b.check(&r); err != nil {
		return nil, err
	}
	p := b.byID[r.ID]
	if p == nil || p.Request != r || p.Broken != nil {
		if p == nil {
			p = &Promise{Since: now}
			b.byID[r.ID] = p
		}
		b.release(p)
		p.Request = r
		b.tryAdmit(p, n)
	}
	p.Expires, p.before = time.Time{}, nil
	return p, nil
}

// check refuses requests that can never be admitted, and those for the traffic of another promise.
func (b *Book) check(r *Request) error {
	if err := r.check(); err != nil {
		return err
	}
	if b.byID[r.ID] == nil && len(b.byID) >= maxPromises {
		return Refuse(ErrNoRoom, "there are %d promises, the most there can be", maxPromises)
	}
	for id, p := range b.byID {
		if id != r.ID && p.Traffic == r.Traffic {
			return Refuse(ErrAlike, "promise %s is for the same traffic", id)
		}
	}
	return nil
}

// Release ends a promise, and reports whether there was one.
func (b *Book) Release(id string) bool {
	p := b.byID[id]
	if p == nil {
		return false
	}
	b.release(p)
	delete(b.byID, id)
	return true
}

// Settle ends reservations whose lease is over and moves promises whose ways do not hold, the oldest
// first. It returns the promises that broke, moved, ended or are in force again.
func (b *Book) Settle(now time.Time, n Network) (changed []*Promise) {
	for _, p := range b.All() {
		if !p.Expires.IsZero() && !now.Before(p.Expires) {
			changed = append(changed, p)
			b.end(p, n)
		}
	}
	lost := map[*Promise]bool{}
	for _, p := range slices.Backward(b.All()) {
		if p.Broken != nil {
			continue
		}
		if err := b.holds(p, n); err != nil {
			lost[p], p.Broken = true, err
			b.release(p)
		}
	}
	for _, p := range b.All() {
		if p.Broken == nil {
			continue
		}
		if b.tryAdmit(p, n); lost[p] || p.Broken == nil {
			changed = append(changed, p)
		}
	}
	return changed
}

// end ends a reservation: the promise, or the change of one.
func (b *Book) end(p *Promise, n Network) {
	if p.before == nil {
		b.Release(p.ID)
		return
	}
	b.release(p)
	p.Request, p.before, p.Expires = *p.before, nil, time.Time{}
	b.tryAdmit(p, n)
}

// holds returns an error if the ways of a promise do not keep it any more. Of too many promises at a
// port the newest is not kept.
func (b *Book) holds(p *Promise, n Network) error {
	for direction, way := range p.Ways {
		if way == nil {
			continue
		}
		from, to := p.ends(direction)
		if err := n.Holds(p.ID, way, from, to); err != nil {
			return err
		}
		for _, port := range outputs(way) {
			budget, err := n.Budget(port)
			if err != nil {
				return err
			}
			if b.PromisedBPS(port) > budget && b.newest(port) == p.ID {
				return Refuse(ErrNoRoom, "%v can promise no more than %s", port, mbit(budget))
			}
		}
	}
	return nil
}

// newest returns the newest promise at a port.
func (b *Book) newest(port topology.Port) string {
	var last *Promise
	for _, q := range b.ports[port] {
		if p := b.byID[q.owner.id]; last == nil || p.Since.After(last.Since) || p.Since.Equal(last.Since) && p.ID > last.ID {
			last = p
		}
	}
	return last.ID
}

func (t *Traffic) ends(direction int) (from, to netip.Addr) {
	if direction == 0 {
		return t.Node, t.Peer
	}
	return t.Peer, t.Node
}

// tryAdmit is admit for a promise that stays if it is not in force.
func (b *Book) tryAdmit(p *Promise, n Network) {
	if p.Broken = b.admit(p, n); p.Broken != nil {
		b.release(p)
	}
}

// admit takes a promise's minimums of the ports of its ways. If it fails the caller releases what
// was taken.
func (b *Book) admit(p *Promise, n Network) error {
	for direction, least := range p.MinBPS {
		if least == 0 {
			continue
		}
		from, to := p.ends(direction)
		way, err := n.Way(from, to, b.width(n))
		if err == nil {
			err = n.Holds(p.ID, way, from, to)
		}
		if err != nil {
			return err
		}
		for _, port := range outputs(way) {
			free, err := b.FreeBPS(port, n)
			switch {
			case err != nil:
				return Refuse(ErrNoRoom, "no minimum from %v to %v: %v", from, to, err)
			case free < least:
				return Refuse(ErrNoRoom, "%s from %v to %v: %v has %s left to promise", mbit(least), from, to, port, mbit(free))
			}
			b.take(port, least, owner{p.ID, direction})
		}
		p.Ways[direction] = way
	}
	p.Broken = nil
	return nil
}

// take gives a promise the lowest free queue of a port.
func (b *Book) take(port topology.Port, least uint64, of owner) {
	number := FirstQueue
	i := 0
	for ; i < len(b.ports[port]) && b.ports[port][i].Number == number; i++ {
		number++
	}
	b.ports[port] = slices.Insert(b.ports[port], i, Queue{number, least, of})
}

// release gives back what a promise has taken.
func (b *Book) release(p *Promise) {
	for port, queues := range b.ports {
		left := slices.DeleteFunc(queues, func(q Queue) bool { return q.owner.id == p.ID })
		if b.ports[port] = left; len(left) == 0 {
			delete(b.ports, port)
		}
	}
	p.Ways = [2][]topology.Hop{}
}

func mbit(bps uint64) string { return fmt.Sprintf("%.6gmbit", float64(bps)/1e6) }
