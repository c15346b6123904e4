package htb

import (
	"slices"

	"github.com/weir-project/weir/internal/kernel"
)

// changes lists what turns have into want, parents before children, removals
// last and children first.
func changes(want, have state) []kernel.Op {
	var ops []kernel.Op
	if misplaced(want, have) {
		ops = append(ops, kernel.Op{Verb: kernel.Delete, Qdisc: &have.qdiscs[have.root()]})
		have = state{}
	}
	haveQdisc := make(map[kernel.Handle]kernel.Qdisc, len(have.qdiscs))
	haveAt := make(map[kernel.Handle]kernel.Qdisc, len(have.qdiscs))
	for _, q := range have.qdiscs {
		haveQdisc[q.Handle], haveAt[q.Parent] = q, q
	}
	haveClass := make(map[kernel.Handle]kernel.Class, len(have.classes))
	for _, c := range have.classes {
		haveClass[c.Handle] = c
	}

	remove := func(q kernel.Qdisc) {
		ops = append(ops, kernel.Op{Verb: kernel.Delete, Qdisc: &q})
		delete(haveQdisc, q.Handle)
		delete(haveAt, q.Parent)
	}
	qdisc := func(q kernel.Qdisc) {
		old, there := haveQdisc[q.Handle]
		if there && old.Parent == q.Parent && old.Options.Kind() == q.Options.Kind() {
			if !sameOptions(old.Options, q.Options) {
				ops = append(ops, kernel.Op{Verb: kernel.Change, Qdisc: &q})
			}
			return
		}
		if there {
			remove(old)
		}
		if other, taken := haveAt[q.Parent]; taken {
			remove(other)
		}
		ops = append(ops, kernel.Op{Verb: kernel.Add, Qdisc: &q})
	}

	wanted := make(map[kernel.Handle]bool, len(want.classes))
	class := func(c kernel.Class) {
		wanted[c.Handle] = true
		old, there := haveClass[c.Handle]
		switch {
		case !there:
			ops = append(ops, kernel.Op{Verb: kernel.Add, Class: &c})
		case old.Options != c.Options:
			ops = append(ops, kernel.Op{Verb: kernel.Change, Class: &c})
		}
	}

	// What holds others, each with the class that it hangs on; then all other
	// classes, then their queues.
	for _, q := range want.qdiscs[:want.inner] {
		for _, c := range want.classes {
			if c.Handle == q.Parent {
				class(c)
			}
		}
		qdisc(q)
	}
	for _, c := range want.classes {
		if !wanted[c.Handle] {
			class(c)
		}
	}
	for _, q := range want.qdiscs[want.inner:] {
		qdisc(q)
	}

	// A leaf takes its queue along; what has others below it can go only after them.
	for _, bits := range []uint16{0, shareBit | guaranteeBit, shareBit} {
		for _, c := range have.classes {
			if !wanted[c.Handle] && innerBits(c.Handle) == bits {
				ops = append(ops, kernel.Op{Verb: kernel.Delete, Class: &c})
			}
		}
	}
	return ops
}

// root is the index of the device's root qdisc, or -1.
func (s state) root() int {
	return slices.IndexFunc(s.qdiscs, func(q kernel.Qdisc) bool { return q.Parent == kernel.HandleRoot })
}

// misplaced says whether a part of have that holds others is not where it is
// wanted, or not of the kind. The kernel can neither move nor convert it, nor
// change HTB's own parameters (htb_qdisc_ops has no change), so all is made
// anew. Only somebody else's tc, or a Weir that did it differently, leads here.
func misplaced(want, have state) bool {
	if have.root() < 0 {
		return false
	}
	for _, q := range want.qdiscs[:want.inner] {
		for _, old := range have.qdiscs {
			_, isHTB := q.Options.(kernel.HTB)
			if old.Handle == q.Handle && (old.Parent != q.Parent || old.Options.Kind() != q.Options.Kind() || isHTB && old.Options != q.Options) ||
				old.Handle != q.Handle && old.Parent == q.Parent {
				return true
			}
		}
	}
	parents := make(map[kernel.Handle]kernel.Handle, len(have.classes))
	for _, c := range have.classes {
		parents[c.Handle] = c.Parent
	}
	return slices.ContainsFunc(want.classes, func(c kernel.Class) bool {
		parent, there := parents[c.Handle]
		return there && parent != c.Parent
	})
}

// sameOptions compares what the kernel has with what is wanted. The kernel
// does not tell the packet limit of a token bucket filter; the burst grows
// with it at any one rate (terms.trunk).
func sameOptions(have, want kernel.Options) bool {
	if h, ok := have.(kernel.TBF); ok {
		if w, ok := want.(kernel.TBF); ok {
			w.MaxPacketBytes, h.MaxPacketBytes = 0, 0
			return h == w
		}
	}
	return have == want
}

// innerBits are the bits that tell classes apart that have others below them; 0 for a
// leaf.
func innerBits(h kernel.Handle) uint16 {
	if minor := h.Minor(); minor&shareBit != 0 {
		return minor & (shareBit | guaranteeBit)
	}
	return 0
}
