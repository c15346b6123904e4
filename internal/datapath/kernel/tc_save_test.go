package kernel

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParentsFirst(t *testing.T) {
	qdisc := func(handle, parent Handle) SavedObject { return SavedObject{Handle: handle, Parent: parent} }
	class := func(handle, parent Handle) SavedObject {
		return SavedObject{IsClass: true, Handle: handle, Parent: parent}
	}
	h := NewHandle
	for _, tc := range []struct {
		name    string
		objects []SavedObject
		want    string
	}{
		{"nothing", nil, ""},
		{"one qdisc", []SavedObject{qdisc(h(1, 0), HandleRoot)}, "1:"},
		{
			"as the kernel lists a tree: queues before what they hang on",
			[]SavedObject{qdisc(h(1, 0), HandleRoot), qdisc(h(0x20, 0), h(1, 2)), class(h(1, 2), h(1, 1)), class(h(1, 1), HandleRoot)},
			"1: 1:1 1:2 20:",
		},
		{
			"a class that hangs on its qdisc",
			[]SavedObject{class(h(1, 1), h(1, 0)), qdisc(h(1, 0), HandleRoot)},
			"1: 1:1",
		},
		{
			"a queue on a class that a classless qdisc does not list",
			[]SavedObject{qdisc(h(2, 0), h(1, 1)), qdisc(h(1, 0), HandleRoot)},
			"1: 2:",
		},
		{
			"the same where it is listed",
			[]SavedObject{qdisc(h(2, 0), h(1, 1)), qdisc(h(1, 0), HandleRoot), class(h(1, 1), h(1, 0))},
			"1: 1:1 2:",
		},
		{
			"mq with queues",
			[]SavedObject{qdisc(h(0x8001, 0), h(1, 1)), qdisc(h(0x8002, 0), h(1, 2)), qdisc(h(1, 0), HandleRoot), class(h(1, 1), HandleRoot), class(h(1, 2), HandleRoot)},
			"1: 1:1 1:2 8001: 8002:",
		},
		{
			"what hangs on nothing comes last",
			[]SavedObject{class(h(7, 2), h(7, 1)), qdisc(h(1, 0), HandleRoot)},
			"1: 7:2",
		},
	} {
		var got []string
		for _, o := range parentsFirst(tc.objects) {
			got = append(got, o.Handle.String())
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, got, tc.want)
		}
	}
}

// Whatever the order of a tree, nothing comes before its parent and nothing is
// lost.
func TestParentsFirstOfAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		objects := []SavedObject{{Handle: NewHandle(1, 0), Parent: HandleRoot}}
		var classes []SavedObject
		for i := range rapid.IntRange(1, 12).Draw(t, "classes") {
			parent := HandleRoot
			if len(classes) > 0 && rapid.Bool().Draw(t, "below another") {
				parent = rapid.SampledFrom(classes).Draw(t, "parent").Handle
			}
			c := SavedObject{IsClass: true, Handle: NewHandle(1, uint16(i+1)), Parent: parent}
			classes = append(classes, c)
			objects = append(objects, c)
			if rapid.Bool().Draw(t, "with a queue") {
				objects = append(objects, SavedObject{Handle: NewHandle(uint16(0x10+i), 0), Parent: c.Handle})
			}
		}
		ordered := parentsFirst(rapid.Permutation(objects).Draw(t, "order"))
		if len(ordered) != len(objects) {
			t.Fatalf("%d objects became %d", len(objects), len(ordered))
		}
		at := func(h Handle) int {
			return slices.IndexFunc(ordered, func(o SavedObject) bool { return o.Handle == h })
		}
		for i, o := range ordered {
			on := o.Parent
			if on == HandleRoot {
				if !o.IsClass {
					continue
				}
				on = NewHandle(1, 0)
			}
			if parent := at(on); parent < 0 || parent > i {
				t.Fatalf("%s comes before %s", o.Handle, on)
			}
		}
	})
}
