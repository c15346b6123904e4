package access

import (
	"context"
	"fmt"
	"net"
	"testing"
)

// open is a connection that knows whether it was closed.
type open struct {
	net.Conn
	closed bool
}

func (o *open) Close() error {
	o.closed = true
	return nil
}

func TestPlaces(t *testing.T) {
	p := NewPlaces(Budget{Strangers: 4, Roles: map[Role]int{Read: 3, Admin: 2}, Caller: 2})
	enter := func(from string) *open {
		one := &open{}
		p.Add(one, from)
		return one
	}
	admit := func(one *open, name string, role Role) bool {
		return p.Admit(context.WithValue(context.Background(), placeKey{}, net.Conn(one)), Caller{name, role})
	}
	// Strangers push out the oldest of those who have the most.
	lone := enter("a")
	crowd := []*open{enter("b"), enter("b"), enter("b"), enter("b"), enter("c")}
	for i, want := range []bool{true, true, false, false, false} {
		if crowd[i].closed != want {
			t.Errorf("connection %d of the crowd: closed is %t", i, crowd[i].closed)
		}
	}
	if lone.closed {
		t.Error("the only connection of a network is closed for one with four")
	}
	// Who is known is no stranger, and has so many places, alone and with others.
	var readers []*open
	for i, tc := range []struct {
		name string
		role Role
		want bool
	}{
		{"x", Read, true}, {"x", Read, true}, {"x", Read, false}, {"y", Read, true}, {"z", Read, false},
		{"me", Admin, true}, {"x", Admin, true}, {"you", Admin, false}, {"anonymous", None, false},
	} {
		one := enter(fmt.Sprint(i))
		if got := admit(one, tc.name, tc.role); got != tc.want {
			t.Errorf("%d, %s: %t", i, tc.name, got)
		}
		readers = append(readers, one)
		if !tc.want {
			p.Remove(one)
		}
	}
	if !admit(readers[0], "x", Read) {
		t.Error("the second request on a connection is refused")
	}
	if admit(readers[0], "z", Read) { // of all readers' places none is left
		t.Error("another caller on the same connection takes a place that is not there")
	}
	p.Remove(readers[0])
	p.Remove(readers[0])
	if one := enter("again"); !admit(one, "z", Read) {
		t.Error("a place that was given back is not to be had")
	}
	for conn := range p.by {
		p.Remove(conn)
	}
	if len(p.by)+len(p.strangers)+len(p.callers) != 0 || p.roles[Read] != 0 || p.roles[Admin] != 0 {
		t.Errorf("when all have left: %+v", p)
	}
	if !p.Admit(context.Background(), Caller{"x", Read}) {
		t.Error("a request without a watched connection is refused")
	}
}
