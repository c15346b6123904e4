package engine

import (
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/share/policy"
)

// # Uplinks that have become too slow
//
// A node whose uplink has become too slow for what it has promised gives all minimums less. Nothing
// has failed: how much the node can promise is measured, so that instances may come back as soon as
// there is room. No more of them go elsewhere than make the rest fit, those of services with the
// lowest priority first.

// relieve moves instances off nodes whose uplinks have become too slow for what they promise.
func (w *world) relieve(services []*service) {
	for _, s := range slices.Backward(services) {
		s.entries = s.demand.usual
		for _, i := range slices.Clone(s.instances) {
			if !i.MinCut || s.minBPS == 0 || i.replacedBy != nil || i.node.seen.State != NodeReady || w.stayingBPS(i.node) <= i.node.seen.BudgetBPS {
				continue
			}
			n := need{
				cause: CauseRefused, must: true, away: i, apart: s.Spec.AvailabilityPercent > 0 && s.instancesOn(i.node.index) == 1,
				why: fmt.Sprintf("the uplink of %s has become too slow for the minimums there, %s of %s among them", i.Node, policy.FormatRate(s.minBPS), s.Spec.Name),
			}
			if s.Spec.IsExclusive() {
				s.keep(w, n.cause, n.why+", but "+s.alone())
			} else {
				w.place(s, n)
			}
		}
	}
}

// stayingBPS returns what a node has promised, without services that have no instance there which stays:
// nothing that moves frees the claim of users who are at the node's proxy.
func (w *world) stayingBPS(n *node) uint64 {
	bps := n.promisedBPS
	for _, s := range w.services {
		if !slices.ContainsFunc(s.instances, func(i *instance) bool { return i.node == n && i.replacedBy == nil }) {
			bps -= n.claimedBPS[s.Spec.Name]
		}
	}
	return bps
}
