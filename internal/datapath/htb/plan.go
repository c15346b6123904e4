package htb

import (
	"slices"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// changes returns the operations that turn have into want: parents before children, then removals,
// children first.
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

	// First the qdiscs with classes below them, each after its parent class; then all other
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

	// Removing a leaf removes its queue; a class with others below it must be removed after them.
	for _, bits := range []uint16{0, shareBit | guaranteeBit, shareBit} {
		for _, c := range have.classes {
			if !wanted[c.Handle] && innerBits(c.Handle) == bits {
				ops = append(ops, kernel.Op{Verb: kernel.Delete, Class: &c})
			}
		}
	}
	return ops
}

// root returns the index of the device's root qdisc, or -1.
func (s state) root() int {
	return slices.IndexFunc(s.qdiscs, func(q kernel.Qdisc) bool { return q.Parent == kernel.HandleRoot })
}

// misplaced reports whether an inner qdisc or class of have is in the wrong place or of the wrong
// kind. The kernel can neither move nor convert it, nor change HTB's own parameters (htb_qdisc_ops
// has no change), so everything is made anew. Only another program's tc or a different version of
// Weir causes this.
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

// sameOptions reports whether the kernel has the wanted options. The kernel does not report the
// packet limit of a token bucket filter, but the burst grows with it at any given rate
// (terms.trunk).
func sameOptions(have, want kernel.Options) bool {
	if h, ok := have.(kernel.TBF); ok {
		if w, ok := want.(kernel.TBF); ok {
			w.MaxPacketBytes, h.MaxPacketBytes = 0, 0
			return h == w
		}
	}
	return have == want
}

// innerBits returns the bits that distinguish the classes with others below them; 0 for a leaf.
func innerBits(h kernel.Handle) uint16 {
	if minor := h.Minor(); minor&shareBit != 0 {
		return minor & (shareBit | guaranteeBit)
	}
	return 0
}
