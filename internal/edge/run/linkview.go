package run

import (
	"cmp"
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/share/policy"
)

// linkPlaces returns where a claim holds on links, and where it does not.
func (o *observation) linkPlaces(at engine.Entry, n engine.Need, promisedBPS uint64) []edge.Place {
	if o.links == nil {
		return nil
	}
	list := o.placesToUsers(at, n, promisedBPS)
	if n.SentBPS > 0 {
		list = append(list, edge.Place{Where: "links to other nodes", State: edge.PlaceUplinksOnly, Reason: "links keep what users get, not what instances send to proxies of other nodes"})
	}
	return list
}

// placesToUsers returns where the part of a claim that users get holds on links: each on the way to them.
func (o *observation) placesToUsers(at engine.Entry, n engine.Need, promisedBPS uint64) (list []edge.Place) {
	all := edge.Place{Where: fmt.Sprintf("links to %v", o.links.users), PromisedBPS: promisedBPS}
	why, p := o.offLinks(at), o.links.promises[linkID(at.Service, o.links.nodes[at.Node].address)]
	switch {
	case promisedBPS == 0 && n.UsersBPS() == 0:
		return nil
	case promisedBPS == 0 && why != "":
		all.State, all.Reason = edge.PlaceUplinksOnly, why
	case promisedBPS == 0:
		all.State, all.Reason = edge.PlaceShort, o.links.nodes[at.Node].full
	case o.links.silent != nil:
		all.State, all.Reason = edge.PlaceUnknown, why
	case p.ID == "":
		all.State, all.Reason = v1.PromiseWaiting, "the controller of switches does not have it yet"
	case why == "" && p.SDNPromiseRequest != o.request(at, promisedBPS):
		all.State, all.Reason = v1.PromiseWaiting, fmt.Sprintf("the controller of switches still keeps %s at port %d", policy.FormatRate(p.MinBPS), p.Port)
	default:
		all.State, all.Reason = p.State, p.Reason
		if promisedBPS < n.UsersBPS() {
			all.Reason = cmp.Or(all.Reason, fmt.Sprintf("users need %s, and %s", policy.FormatRate(n.UsersBPS()), o.links.nodes[at.Node].full))
		}
	}
	for _, hop := range p.Path {
		one := all
		one.Where, one.Reason = o.links.name(hop), cmp.Or(o.links.ports[linkPort{hop.DPID, hop.Out}].Reason, all.Reason)
		list = append(list, one)
	}
	if len(list) == 0 {
		list = append(list, all)
	}
	return list
}

// linkShortfall returns why users may have less on links than their part of a claim; empty if they have
// it, and where links do not count.
func (o *observation) linkShortfall(at engine.Entry, n engine.Need, promisedBPS uint64) string {
	if o.links == nil {
		return ""
	}
	for _, p := range o.placesToUsers(at, n, promisedBPS) {
		switch p.State {
		case edge.PlaceShort, v1.PromiseBroken, v1.PromiseWaiting, v1.PromiseInForce:
			if p.Reason != "" {
				return p.Where + ": " + p.Reason
			}
		}
	}
	return ""
}
