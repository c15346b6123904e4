package engine

import (
	"fmt"
	"slices"
)

// # Uplinks that have become too slow
//
// A node whose uplink has become too slow for what it has promised gives all minimums less. Nothing
// has failed: how much the node can promise is measured, so that instances may come back as soon as
// there is room. No more of them go elsewhere than make the rest fit, those of services with the
// lowest priority first.
//
// The first time they go at once. An uplink that is too slow again soon after has to be for a while,
// which doubles each time: else a flapping one has instances go to and fro.

// noteCuts notes which nodes have an uplink that is too slow, and forgets those that were left long ago.
func (w *world) noteCuts(services []*service) {
	cut := map[string]bool{}
	for _, s := range services {
		for _, i := range s.instances {
			cut[i.node.seen.Name] = cut[i.node.seen.Name] || i.MinCut && s.minimum != (Rates{})
		}
	}
	before := w.left
	w.left = map[string]Pace{}
	for _, n := range w.nodes {
		p := before[n.seen.Name]
		p.Hold(w.at, cut[n.seen.Name], 0)
		if !p.Within(w.at, p.Doubled(horizon)) {
			p = Pace{Since: p.Since}
		}
		if p != (Pace{}) {
			w.left[n.seen.Name] = p
		}
	}
}

// cutHold returns for how many more seconds a node's uplink has to be too slow until instances go.
func (w *world) cutHold(n *node) float64 {
	p := w.left[n.seen.Name]
	if !p.DoneBefore() {
		return 0
	}
	return p.Doubled(shortFault) - w.since(p.Since)
}

// noteLeft notes that an instance goes, which counts once until the uplink is fast enough again.
func (w *world) noteLeft(n *node) {
	p := w.left[n.seen.Name]
	if p.DoneBefore() {
		p.Raise()
	}
	p.Last = w.at
	w.left[n.seen.Name] = p
}

// relieve moves instances off nodes whose uplinks have become too slow for what they promise.
func (w *world) relieve(services []*service) {
	w.noteCuts(services)
	for _, s := range slices.Backward(services) {
		s.entries = s.demand.usual
		for _, i := range slices.Clone(s.instances) {
			if !i.MinCut || s.minimum == (Rates{}) || i.replacedBy != nil || i.node.seen.State != NodeReady || w.fits(i.node) {
				continue
			}
			n := need{
				cause: CauseRefused, must: true, away: i, apart: s.Spec.AvailabilityPercent > 0 && s.instancesOn(i.node.index) == 1,
				why: fmt.Sprintf("the uplink of %s has become too slow for the minimums there, %s of %s among them", i.Node, s.minimum, s.Spec.Name),
			}
			if rest := w.cutHold(i.node); s.Spec.IsExclusive() {
				s.keep(w, n.cause, n.why+", but "+s.alone())
			} else if rest > 0 {
				s.keep(w, n.cause, fmt.Sprintf("%s, but it was left for that lately; it is again if that lasts for another %s", n.why, duration(rest)))
			} else if w.place(s, n) {
				w.noteLeft(i.node)
			}
		}
	}
}

// fits reports whether a node's uplink is fast enough for what it has promised, without services whose
// instances have all left it: their claims are of users at the node's proxy, and no move of an instance
// frees those.
func (w *world) fits(n *node) bool {
	out, in := n.out.promisedBPS, n.in.promisedBPS
	for _, s := range w.services {
		if !slices.ContainsFunc(s.instances, func(i *instance) bool { return i.node == n && i.replacedBy == nil }) {
			out -= n.out.claimedBPS[s.Spec.Name]
			in -= n.in.claimedBPS[s.Spec.Name]
		}
	}
	return out <= n.out.BudgetBPS && in <= n.in.BudgetBPS
}
