package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// SavedObject is a qdisc or class as the kernel described it: enough to put
// it back.
type SavedObject struct {
	IsClass bool   `json:"is_class,omitempty"`
	Handle  Handle `json:"handle"`
	Parent  Handle `json:"parent"`
	Kind    string `json:"kind"`
	Options []byte `json:"options,omitempty"`
	Nested  bool   `json:"nested,omitempty"`
}

// ErrFilters is queueing that cannot be put back, because filters hang on it.
var ErrFilters = errors.New("filters hang on it, which cannot be put back later: remove them first")

// Save describes the queueing of a device, parents first, its ingress and the
// kernel's own defaults left out. Errors: ErrFilters.
func (t *TC) Save(ifindex int) ([]SavedObject, error) {
	var objects []SavedObject
	collect := func(isClass bool) func(handle, parent Handle, attrs []byte) error {
		return func(handle, parent Handle, attrs []byte) error {
			kind, raw, nested, err := rawOptions(attrs)
			if handle.Major() == 0 || parent == HandleIngress {
				return err
			}
			objects = append(objects, SavedObject{
				IsClass: isClass, Handle: handle, Parent: parent, Kind: kind, Options: raw, Nested: nested,
			})
			return err
		}
	}
	if err := t.dump(getQdisc, ifindex, collect(false)); err != nil {
		return nil, err
	}
	if err := t.dump(getClass, ifindex, collect(true)); err != nil {
		return nil, err
	}
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

// parentsFirst orders objects so that each comes after the one it hangs on.
func parentsFirst(objects []SavedObject) []SavedObject {
	placed := map[Handle]bool{HandleRoot: true}
	ordered := make([]SavedObject, 0, len(objects))
	for rest := objects; len(rest) > 0; {
		var later []SavedObject
		for _, o := range rest {
			// A class with the root as its parent hangs on its qdisc.
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
			return append(ordered, later...) // hangs on nothing we know; the kernel will say
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

// Restore puts back what Save described. Classes that a qdisc makes by itself
// are left to it.
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

// settable are the options in the form that the kernel takes, where that is
// not the form in which it gives them.
func (o SavedObject) settable() []byte {
	if o.Kind != "htb" || o.IsClass {
		return o.Options
	}
	// HTB tells its version with a minor number below, and takes it without
	// (net/sched/sch_htb.c, htb_dump and htb_init).
	options := bytes.Clone(o.Options)
	if glob := attribute(options, tcaHTBInit); len(glob) >= sizeofHTBGlob {
		binary.NativeEndian.PutUint32(glob, htbVersion)
	}
	return options
}

// configurableClasses are the qdiscs whose classes somebody adds; those of
// others (tbf, prio, mq, fq_codel) come with the qdisc.
var configurableClasses = map[string]bool{"htb": true, "hfsc": true, "drr": true, "qfq": true, "cbq": true}
