package access

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Places limits the connections that a listener has open at once. A caller with many
// connections must not keep others out, least of all the administrators of the host: so each
// role has its own places, and each caller may have a part of them.
//
// The caller is known with the first request only. Until then a connection is a stranger's.
// Strangers are limited too, but none is refused, since it may be an administrator's: with one too many,
// the oldest connection of the network with the most strangers is closed. So an attacker closes
// its own connections, and a caller that shows its token at once gets through.
type Places struct {
	budget Budget

	mu sync.Mutex
	// by has all open connections.
	by map[net.Conn]*place
	// strangers are connections without a request yet, the oldest first.
	strangers []*place
	roles     map[Role]int
	callers   map[Caller]int
}

// Budget limits the connections that are open at once.
type Budget struct {
	// Strangers limits connections whose caller is unknown yet.
	Strangers int
	// Roles limits the connections of all callers with a role, Caller those of each caller but
	// root, which may have all of its role.
	Roles  map[Role]int
	Caller int
}

// place is one connection.
type place struct {
	conn net.Conn
	// from is the network or the user of a stranger.
	from string
	// caller is unknown for a stranger.
	caller   Caller
	stranger bool
}

type placeKey struct{}

// NewPlaces returns the places of a listener.
func NewPlaces(budget Budget) *Places {
	return &Places{budget: budget, by: map[net.Conn]*place{}, roles: map[Role]int{}, callers: map[Caller]int{}}
}

// Watch makes a server count its connections. from returns the network or user of a new one.
func (p *Places) Watch(server *http.Server, from func(net.Conn) string) {
	before := server.ConnContext
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if before != nil {
			ctx = before(ctx, conn)
		}
		p.Add(conn, from(conn))
		return context.WithValue(ctx, placeKey{}, conn)
	}
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateClosed || state == http.StateHijacked {
			p.Remove(conn)
		}
	}
}

// Add counts a new connection from a network or a user. With one too many, the oldest from where
// most strangers are is closed.
func (p *Places) Add(conn net.Conn, from string) {
	p.mu.Lock()
	one := &place{conn: conn, from: from, stranger: true}
	p.by[conn] = one
	p.strangers = append(p.strangers, one)
	var ends net.Conn
	if len(p.strangers) > p.budget.Strangers {
		ends = p.removeStranger(p.oldestOfCrowd()).conn
	}
	p.mu.Unlock()
	if encrypted, ok := ends.(*tls.Conn); ok {
		ends = encrypted.NetConn() // without TLS's close message, for which it would wait
	}
	if ends != nil {
		ends.Close() // then its server calls Remove
	}
}

// oldestOfCrowd returns the index of the oldest stranger from where most of them are.
func (p *Places) oldestOfCrowd() int {
	count := map[string]int{}
	for _, one := range p.strangers {
		count[one.from]++
	}
	found := 0
	for i, one := range p.strangers {
		if count[one.from] > count[p.strangers[found].from] {
			found = i
		}
	}
	return found
}

// removeStranger takes a connection off the list of strangers.
func (p *Places) removeStranger(index int) *place {
	one := p.strangers[index]
	p.strangers = append(p.strangers[:index], p.strangers[index+1:]...)
	one.stranger = false
	return one
}

// Admit gives the connection of a request one of the caller's places. It is false if the caller
// has none left; then the connection has to be closed.
func (p *Places) Admit(ctx context.Context, caller Caller) bool {
	conn, _ := ctx.Value(placeKey{}).(net.Conn)
	return p.AdmitConn(conn, caller)
}

// AdmitConn is [Places.Admit] for a connection that was added without a server.
func (p *Places) AdmitConn(conn net.Conn, caller Caller) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.by[conn]
	if one == nil {
		return true // not of a watched server
	}
	if one.caller == caller {
		return true
	}
	if p.roles[caller.Role] >= p.budget.Roles[caller.Role] || caller.Role != Root && p.callers[caller] >= p.budget.Caller {
		return false
	}
	p.release(one)
	one.caller = caller
	p.roles[caller.Role]++
	p.callers[caller]++
	return true
}

// Remove gives back the place of a connection that has ended.
func (p *Places) Remove(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.by[conn]; one != nil {
		p.release(one)
		delete(p.by, conn)
	}
}

// release gives back the place of a connection.
func (p *Places) release(one *place) {
	switch {
	case one.stranger:
		for i := range p.strangers {
			if p.strangers[i] == one {
				p.removeStranger(i)
				return
			}
		}
	case one.caller != Caller{}:
		p.roles[one.caller.Role]--
		if p.callers[one.caller]--; p.callers[one.caller] == 0 {
			delete(p.callers, one.caller)
		}
		one.caller = Caller{}
	}
}
