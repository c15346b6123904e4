package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// SavedObject is a qdisc or class as the kernel described it, sufficient to restore it.
type SavedObject struct {
	IsClass bool   `json:"is_class,omitempty"`
	Handle  Handle `json:"handle"`
	Parent  Handle `json:"parent"`
	Kind    string `json:"kind"`
	Options []byte `json:"options,omitempty"`
	Nested  bool   `json:"nested,omitempty"`
}

// ErrFilters: the queueing cannot be restored later, because it has filters.
var ErrFilters = errors.New("its filters cannot be put back later: remove it by hand if no other program needs it (tc qdisc del dev IF root)")

// Save returns the queueing of a device, parents first, without its ingress and the kernel's
// defaults. Errors: ErrFilters.
func (t *TC) Save(ifindex int) ([]SavedObject, error) {
	save := func(o object) (SavedObject, error) {
		kind, raw, nested, err := rawOptions(o.attrs())
		return SavedObject{Handle: o.handle(), Parent: o.parent(), Kind: kind, Options: bytes.Clone(raw), Nested: nested}, err
	}
	objects, err := list(t, getQdisc, ifindex, save)
	if err != nil {
		return nil, err
	}
	classes, err := list(t, getClass, ifindex, save)
	if err != nil {
		return nil, err
	}
	for _, c := range classes {
		c.IsClass = true
		objects = append(objects, c)
	}
	objects = slices.DeleteFunc(objects, func(o SavedObject) bool { return o.Handle.Major() == 0 || o.Parent == HandleIngress })
	for _, o := range objects {
		if o.IsClass {
			continue
		}
		has, err := t.HasFilters(ifindex, o.Handle)
		if err != nil {
			return nil, err
		}
		if has {
			return nil, fmt.Errorf("%s qdisc %s: %w", o.Kind, o.Handle, ErrFilters)
		}
	}
	return parentsFirst(objects), nil
}

// parentsFirst sorts objects so that each comes after its parent.
func parentsFirst(objects []SavedObject) []SavedObject {
	placed := map[Handle]bool{HandleRoot: true}
	ordered := make([]SavedObject, 0, len(objects))
	for rest := objects; len(rest) > 0; {
		var later []SavedObject
		for _, o := range rest {
			// The parent of a top-level class is its qdisc.
			on := o.Parent
			if o.IsClass && on == HandleRoot {
				on = NewHandle(o.Handle.Major(), 0)
			}
			// The classes of a classless parent (tbf 1:1) are its qdisc.
			if placed[on] || !o.IsClass && placed[NewHandle(on.Major(), 0)] && !hasObject(rest, on) {
				ordered = append(ordered, o)
				placed[o.Handle] = true
			} else {
				later = append(later, o)
			}
		}
		if len(later) == len(rest) {
			return append(ordered, later...) // its parent is unknown; the kernel will refuse it
		}
		rest = later
	}
	return ordered
}

func hasObject(objects []SavedObject, handle Handle) bool {
	for _, o := range objects {
		if o.Handle == handle {
			return true
		}
	}
	return false
}

// Restore restores the objects that Save returned, except classes that a qdisc makes by itself.
func (t *TC) Restore(ifindex int, objects []SavedObject) error {
	var errs []error
	for _, o := range objects {
		options := Unknown{Name: o.Kind, Raw: string(o.settable()), Nested: o.Nested}
		op := Op{Verb: Add}
		if o.IsClass {
			if !configurableClasses[o.Kind] {
				continue
			}
			op.Class = &Class{Handle: o.Handle, Parent: o.Parent, Options: options}
		} else {
			op.Qdisc = &Qdisc{Handle: o.Handle, Parent: o.Parent, Options: options}
		}
		if err := t.Apply(ifindex, []Op{op}); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// settable returns the options in the form that the kernel accepts, which may differ from the form
// that it returns.
func (o SavedObject) settable() []byte {
	if o.Kind != "htb" || o.IsClass {
		return o.Options
	}
	// HTB returns its version with a minor number below, and accepts it only without
	// (net/sched/sch_htb.c, htb_dump and htb_init).
	options := bytes.Clone(o.Options)
	if glob := attribute(options, tcaHTBInit); len(glob) >= sizeofHTBGlob {
		binary.NativeEndian.PutUint32(glob, htbVersion)
	}
	return options
}

// configurableClasses lists the qdiscs whose classes users add; those of others (tbf, prio, mq,
// fq_codel) come with the qdisc.
var configurableClasses = map[string]bool{"htb": true, "hfsc": true, "drr": true, "qfq": true, "cbq": true}
