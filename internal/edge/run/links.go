package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/share/policy"
)

// # Links
//
// A minimum at an uplink is worth nothing if a link behind it is full. The controller of the switches
// (weir-sdn) knows links and keeps minimums there, for the packets of a node's port from and to the
// router that users are behind. So what users get of a claim is promised there as well:
//
//	reserve at the controller       it may refuse; a reservation ends after ten seconds
//	write the ledger                by compare-and-swap; the claim has what is promised on links
//	confirm at the controller       which then keeps it until it is released
//
// The ledger wins. What it has and the controller has not, or has otherwise, is confirmed again; what the
// controller has for these nodes, or had from this program for one that left, and the ledger has not is
// released. Where the divisions of two weir-edge differ a little, the larger part stays.
// Another weir-edge may be between the second step and the third, or between withdrawing a claim
// and making it again. So a round asks the controller before it reads the ledger, and releases what was not
// in the ledger after the answer before, either. While the controller is silent, minimums hold on uplinks
// only.
//
// Of several controllers that can take over from each other the master is asked, and all where that is not known. A
// master that took over knows no promise, and is told those of the ledger; while none is master, switches keep
// what they have.

const (
	// linksTimeout bounds the questions to the controller at the beginning of a round, and each change
	// after them; once a round's changes have taken as long, the rest waits for the next round. A
	// controller without an answer is silent, and is asked again after linksRetry. An answer is used for
	// linksFresh. With 32 paths that counts as 25 requests a second, of the fifty that a controller answers
	// to a token.
	linksTimeout, linksFresh = 400 * time.Millisecond, 400 * time.Millisecond
	linksRetry               = 2 * time.Second
	// backPart is the part of a minimum that is promised for the way back: requests and
	// acknowledgements. minLinkBPS is the least that a link promises.
	backPart, minLinkBPS = 16, 12000
)

// Links keeps minimums on the links between nodes and users. nil keeps none.
type Links struct {
	controllers []LinkController
	controller  LinkController // the master; nil while none is known
	users       netip.Addr
	asked       time.Time
	seen        *linkView // at that time
	// said reports that the controller is known to be silent. kept are the promises that the ledger had in
	// a round: their nodes may leave.
	said bool
	kept map[string]bool
}

// LinkController tells of links and promises minimums there; *client.SDN is one.
type LinkController interface {
	Links(context.Context) (v1.SDNLinks, error)
	Paths(ctx context.Context, to netip.Addr, from []netip.Addr) ([]v1.SDNPath, error)
	Reserve(context.Context, v1.SDNPromiseRequest) (v1.SDNPromise, error)
	Confirm(context.Context, v1.SDNPromiseRequest) (v1.SDNPromise, error)
	Release(ctx context.Context, id string) error
}

// NewLinks returns the Links of controllers, one of which is master. users is the address of the router or
// host that users are behind, as switches see it.
func NewLinks(controllers []LinkController, users netip.Addr) *Links {
	return &Links{controllers: controllers, users: users, seen: &linkView{}, kept: map[string]bool{}}
}

// linkView is what the controller says in a round; nil without one.
type linkView struct {
	users    netip.Addr
	silent   error         // why the controller does not answer
	spent    time.Duration // on changes
	promises map[string]v1.SDNPromise
	ports    map[linkPort]v1.SDNLinkDirection
	nodes    map[string]nodeLinks
	// unknown are the promises that are not in the ledger, doubted those that were not after the answer
	// before.
	unknown, doubted map[string]bool
}

// clone returns a view that later rounds do not change: while an answer is fresh, they have v.
func (v *linkView) clone() *linkView {
	if v == nil {
		return nil
	}
	own := *v
	own.nodes, own.promises = maps.Clone(v.nodes), maps.Clone(v.promises)
	return &own
}

type linkPort struct {
	dpid   string
	number uint32
}

// nodeLinks are the links between a node and users.
type nodeLinks struct {
	address netip.Addr
	freeBPS uint64
	// full is the link that has least left.
	full string
	// uncounted says why the links do not count; empty if they do.
	uncounted string
	asked     time.Time // for its path
}

// askController asks for promises and links, and for the paths of nodes only if something is to be promised there.
func (l *Links) askController(ctx context.Context, nodes []runtime.Node, promises bool) (*linkView, []problem) {
	if l == nil {
		return nil, nil
	}
	age, before := time.Since(l.asked), l.seen
	if age < linksFresh && before.silent == nil || age < linksRetry && before.silent != nil {
		return before, l.say(before)
	}
	v := &linkView{users: l.users, promises: map[string]v1.SDNPromise{}, ports: map[linkPort]v1.SDNLinkDirection{}, nodes: map[string]nodeLinks{}, doubted: before.unknown}
	for _, n := range nodes {
		was, address := before.nodes[n.Name], l.addressOf(n)
		if was.address != address {
			was = nodeLinks{address: address, uncounted: "its path has not been asked for yet"}
		}
		v.nodes[n.Name] = was
	}
	ctx, cancel := context.WithTimeout(ctx, linksTimeout)
	defer cancel()
	l.asked, l.seen = time.Now(), v
	seen, err := l.askMaster(ctx)
	if v.silent = err; err != nil {
		return v, l.say(v)
	}
	for _, p := range seen.Promises {
		v.promises[p.ID] = p
	}
	for _, link := range seen.Links {
		v.ports[linkPort{link.DPID, link.Port}] = link
	}
	if promises {
		v.findPaths(ctx, l.controller)
	}
	return v, l.say(v)
}

// errStandby says that none of the controllers that answer is master.
var errStandby = errors.New("no controller that --sdn names is the master of the switches: weir sdn ps on its host says why")

// askMaster asks the master for promises and links, and returns its answer. Where none is known, or it does not answer
// as the master any more, all controllers are asked at once.
func (l *Links) askMaster(ctx context.Context) (v1.SDNLinks, error) {
	asked := l.controllers
	if l.controller != nil {
		asked = []LinkController{l.controller}
	}
	seen, errs := make([]v1.SDNLinks, len(asked)), make([]error, len(asked))
	var all sync.WaitGroup
	for i := range asked {
		all.Go(func() { seen[i], errs[i] = asked[i].Links(ctx) })
	}
	all.Wait()
	l.controller = nil
	var silent error
	for i := range asked {
		switch {
		case errs[i] != nil:
			silent = cmp.Or(silent, errs[i])
		case seen[i].Standby:
			silent = errStandby
		default:
			l.controller = asked[i]
			return seen[i], nil
		}
	}
	if len(asked) < len(l.controllers) && ctx.Err() == nil {
		return l.askMaster(ctx)
	}
	return v1.SDNLinks{}, silent
}

// say returns that the controller does not answer, once.
func (l *Links) say(v *linkView) []problem {
	said := l.said
	if l.said = v.silent != nil; said || !l.said {
		return nil
	}
	if errors.Is(v.silent, errStandby) {
		return []problem{{err: fmt.Errorf("minimums are promised on uplinks only: %w", v.silent)}}
	}
	return []problem{{err: fmt.Errorf("the controller of switches does not answer, so minimums are promised on uplinks only until it does: %w", v.silent)}}
}

var errNoTime = errors.New("the controller of switches is slow: the rest follows in the next rounds")

// change asks the controller for a change. A round whose questions have taken linksTimeout has no time for
// it; without an answer the controller is silent.
func (v *linkView) change(ctx context.Context, question func(context.Context) error) error {
	switch {
	case v.silent != nil:
		return v.silent
	case v.spent >= linksTimeout:
		return errNoTime
	}
	ctx, cancel := context.WithTimeout(ctx, linksTimeout)
	defer cancel()
	begin := time.Now()
	err := question(ctx)
	v.spent += time.Since(begin)
	if refusal := (*client.Error)(nil); err != nil && (!errors.As(err, &refusal) || refusal.Status == http.StatusServiceUnavailable) {
		v.silent = err // it is a standby now, or says nothing
	}
	return err
}

// addressOf returns the address of a node; for that of a single engine, the one that this host has
// towards users.
func (l *Links) addressOf(n runtime.Node) netip.Addr {
	if n.Address.IsValid() || !n.Here {
		return n.Address
	}
	const discard = 9
	socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(l.users, discard))) // sends nothing
	if err != nil {
		return netip.Addr{}
	}
	defer socket.Close()
	address, _ := socket.LocalAddr().(*net.UDPAddr)
	return address.AddrPort().Addr().Unmap()
}

// findPaths asks for the paths between nodes and users: of as many nodes as one answer has, those asked
// for least recently. Without an answer they stay as they were.
func (v *linkView) findPaths(ctx context.Context, controller LinkController) {
	names := slices.SortedFunc(maps.Keys(v.nodes), func(a, b string) int {
		return cmp.Or(v.nodes[a].asked.Compare(v.nodes[b].asked), cmp.Compare(a, b))
	})
	var asked []string
	var from []netip.Addr
	for _, name := range names {
		n := v.nodes[name]
		switch {
		case !n.address.IsValid():
			n.uncounted = fmt.Sprintf("it has no address towards %v", v.users)
			v.nodes[name] = n
		case len(from) < v1.SDNMaxPaths:
			asked, from = append(asked, name), append(from, n.address)
		}
	}
	if len(from) == 0 {
		return
	}
	paths, err := controller.Paths(ctx, v.users, from)
	if err == nil && len(paths) != len(from) {
		err = fmt.Errorf("the controller was asked for %d paths and tells %d", len(from), len(paths))
	}
	for i, name := range asked {
		n := v.nodes[name]
		if n.asked = time.Now(); err == nil {
			n = v.withPath(n, paths[i])
		} else if n.uncounted != "" {
			n.uncounted = err.Error()
		}
		v.nodes[name] = n
	}
}

// withPath returns a node's links, which were known as was, with what their path can promise. A node that no
// switch leads to does not count, and neither does a path without queues.
func (v *linkView) withPath(was nodeLinks, path v1.SDNPath) nodeLinks {
	n := nodeLinks{address: was.address, asked: was.asked, freeBPS: path.FreeMinBPS}
	switch path.State {
	case v1.PathOK:
	case v1.PathNone:
		n.full = path.Reason
		return n
	default:
		n.uncounted = path.Reason
		return n
	}
	least := ^uint64(0)
	for _, hop := range path.Hops {
		switch link := v.ports[linkPort{hop.DPID, hop.Out}]; {
		case link.State == "refused" && link.PromisedBPS == 0:
			n.uncounted = link.Reason
		case link.FreeMinBPS < least:
			least = link.FreeMinBPS
			n.full = fmt.Sprintf("%s has %s left to promise", v.name(hop), policy.FormatRate(link.FreeMinBPS))
		}
	}
	return n
}

// name returns the name of the link by which a packet leaves a switch.
func (v *linkView) name(hop v1.SDNHop) string {
	link := v.ports[linkPort{hop.DPID, hop.Out}]
	to := fmt.Sprint("to ", v.users)
	if link.PeerDPID != "" {
		to = "to switch " + shortDPID(link.PeerDPID)
	}
	return fmt.Sprintf("link %s of switch %s %s", cmp.Or(link.Name, fmt.Sprint(hop.Out)), shortDPID(hop.DPID), to)
}

// shortDPID returns a switch's identifier without leading zeros.
func shortDPID(dpid string) string {
	for len(dpid) > 1 && dpid[0] == '0' {
		dpid = dpid[1:]
	}
	return dpid
}

// rooms returns what the links of nodes can still promise.
func (v *linkView) rooms() (list []engine.LinkRoom) {
	if v == nil || v.silent != nil {
		return nil
	}
	for name, n := range v.nodes {
		if n.uncounted == "" {
			list = append(list, engine.LinkRoom{Node: name, FreeBPS: n.freeBPS})
		}
	}
	slices.SortFunc(list, func(a, b engine.LinkRoom) int { return cmp.Compare(a.Node, b.Node) })
	return list
}

// offLinks returns why the minimum of a service is promised on no link between a node and users; empty
// if it is.
func (o *observation) offLinks(at engine.Entry) string {
	parsed, readable := o.specs[at.Service]
	switch n, known := o.links.nodes[at.Node]; {
	case errors.Is(o.links.silent, errStandby):
		return o.links.silent.Error()
	case o.links.silent != nil:
		return "the controller of switches does not answer: " + o.links.silent.Error()
	case !known:
		return "the node has left"
	case !readable:
		return "its specification cannot be read: deploy it again"
	case parsed.OnlyPort() == 0:
		return fmt.Sprintf("switches cannot tell a service with %d ports apart from others", len(parsed.Ports))
	default:
		return n.uncounted
	}
}

// request returns what the controller is asked for, for a claim of which bps are to be promised on links.
func (o *observation) request(at engine.Entry, bps uint64) v1.SDNPromiseRequest {
	parsed := o.specs[at.Service]
	address := o.links.nodes[at.Node].address
	return v1.SDNPromiseRequest{
		ID: linkID(at.Service, address), Service: at.Service, Node: address, Peer: o.links.users, Protocol: "tcp", Port: parsed.OnlyPort(),
		MinBPS: max(bps, minLinkBPS), BackBPS: max(bps/backPart, minLinkBPS),
	}
}

// linkID names a promise: no two ledgers have a node with the same address in one network.
func linkID(service string, node netip.Addr) string { return service + "@" + node.String() }

// reserveDecisions reserves what decisions need on links, and returns those that are refused beside the others.
func (l *Links) reserveDecisions(ctx context.Context, o *observation, decisions []engine.Decision) (admitted []engine.Decision, refused []engine.Refusal) {
	if l == nil {
		return decisions, nil
	}
	// A new master knows no promises. What the ledger has comes before what is new.
	ledgerTold := false
	for _, d := range decisions {
		at := engine.Entry{Service: d.Service, Node: d.Node}
		if d.Action != engine.Stop && d.MinBPS > o.promises[engine.ClaimID(at)].LinkBPS && o.offLinks(at) == "" {
			if !ledgerTold {
				_, _, ledgerTold = l.tellLedger(ctx, o, o.promises)
			}
			if !ledgerTold && o.links.silent == nil {
				refused = append(refused, engine.Refusal{Decision: d, Reason: "on the links to users: " + errNoTime.Error()})
				continue
			}
			var refusal *client.Error
			if errors.As(l.reserve(ctx, o.links, o.request(at, d.MinBPS)), &refusal) && refusal.Status == http.StatusConflict { // else on uplinks only
				refused = append(refused, engine.Refusal{Decision: d, Reason: "on the links to users: " + refusal.Message})
				continue
			}
		}
		admitted = append(admitted, d)
	}
	return admitted, refused
}

func (l *Links) reserve(ctx context.Context, v *linkView, r v1.SDNPromiseRequest) error {
	return v.change(ctx, func(ctx context.Context) error {
		_, err := l.controller.Reserve(ctx, r)
		return err
	})
}

// reserveClaims reserves what claims need on links, and returns what is promised there then.
func (l *Links) reserveClaims(ctx context.Context, o *observation, claims engine.Promises, d *engine.Division) map[engine.Entry]uint64 {
	reserved := map[engine.Entry]uint64{}
	if l == nil || o.links.silent != nil {
		return reserved
	}
	for _, p := range claims {
		if !p.Claim {
			continue
		}
		at := engine.Entry{Service: p.Service, Node: p.Node}
		n := o.links.nodes[p.Node]
		want := min(p.MinBPS, d.Needs[at].UsersBPS())
		if want > 0 && want+d.UsersOffBPS(p.Service) >= p.LinkBPS {
			want = max(want, p.LinkBPS) // it may be right in the division of another weir-edge
		}
		parsed := o.specs[p.Service]
		_, known := o.specs[p.Service]
		switch {
		case !known: // it cannot be read now
			continue
		case parsed.OnlyPort() == 0:
			want = 0
		case want > p.LinkBPS && o.offLinks(at) != "":
			continue
		}
		if want = min(want, p.LinkBPS+n.freeBPS); want > p.LinkBPS {
			if err := l.reserve(ctx, o.links, o.request(at, want)); err != nil {
				n.full = err.Error()
				o.links.nodes[p.Node] = n
				continue
			}
			n.freeBPS -= want - p.LinkBPS
			o.links.nodes[p.Node] = n
		}
		reserved[at] = want
	}
	return reserved
}

// matchLedger makes the controller's promises those of the ledger.
func (l *Links) matchLedger(ctx context.Context, o *observation, ledger engine.Promises) (problems []problem) {
	if l == nil || o.links.silent != nil {
		return nil
	}
	problems, wanted, complete := l.tellLedger(ctx, o, ledger)
	if !complete {
		return problems
	}
	return append(problems, l.releaseUnknown(ctx, o, wanted)...)
}

// tellLedger confirms those promises of the ledger that the controller does not have, and returns the IDs of
// all. It is not complete if there was no time for it, or the controller fell silent.
func (l *Links) tellLedger(ctx context.Context, o *observation, ledger engine.Promises) (problems []problem, wanted map[string]bool, complete bool) {
	wanted = map[string]bool{}
	for _, p := range ledger {
		at := engine.Entry{Service: p.Service, Node: p.Node}
		r := o.request(at, p.LinkBPS)
		if p.LinkBPS == 0 || !r.Node.IsValid() {
			continue
		}
		wanted[r.ID], l.kept[r.ID] = true, true
		has := o.links.promises[r.ID]
		if has.SDNPromiseRequest == r && has.Expires == nil || r.Port == 0 {
			continue
		}
		var confirmed v1.SDNPromise
		err := o.links.change(ctx, func(ctx context.Context) (err error) {
			confirmed, err = l.controller.Confirm(ctx, r)
			return err
		})
		if errors.Is(err, errNoTime) {
			return problems, wanted, false
		}
		if err != nil {
			problems = append(problems, problem{service: p.Service, node: p.Node, same: "confirm", err: fmt.Errorf(
				"promise the minimum of %s on links between %s and users: %w", p.Service, p.Node, err)})
			if o.links.silent != nil {
				return problems, wanted, false
			}
			continue
		}
		o.links.promises[r.ID] = confirmed
	}
	return problems, wanted, true
}

// releaseUnknown releases the promises that are not wanted for the second time.
func (l *Links) releaseUnknown(ctx context.Context, o *observation, wanted map[string]bool) (problems []problem) {
	nodes := map[netip.Addr]bool{}
	for _, n := range o.links.nodes {
		nodes[n.address] = true
	}
	o.links.unknown = map[string]bool{}
	for id, p := range o.links.promises {
		ours := l.kept[id] || nodes[p.Node] && id == linkID(p.Service, p.Node)
		if !ours || wanted[id] || p.Expires != nil { // a reservation ends by itself
			continue
		}
		if o.links.unknown[id] = true; !o.links.doubted[id] {
			continue
		}
		err := o.links.change(ctx, func(ctx context.Context) error { return l.controller.Release(ctx, id) })
		if errors.Is(err, errNoTime) {
			return problems
		}
		if refusal := (*client.Error)(nil); errors.As(err, &refusal) && refusal.Status == http.StatusNotFound {
			err = nil // another weir-edge has released it
		}
		if err != nil {
			problems = append(problems, problem{service: p.Service, same: "release", err: fmt.Errorf("end the promise of %s on links: %w", p.Service, err)})
			if o.links.silent != nil {
				return problems
			}
			continue
		}
		delete(o.links.promises, id)
		delete(l.kept, id)
	}
	return problems
}
