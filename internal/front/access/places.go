package access

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Places are the connections that a listener may have open at once. Who opens many must
// not keep others out, least of all those who run the host: so each role has places of
// its own, and each caller a part of them.
//
// Who asks is known with the first request only. Until then a connection is a
// stranger's, and of those there are few. None of them is refused, as nobody can
// say whose it is; where there is one too many, the oldest one ends of whoever has the
// most. So an attacker pushes out its own, and somebody who shows a token right away
// comes through also beside it.
type Places struct {
	budget Budget

	mu sync.Mutex
	// by are all that are open.
	by map[net.Conn]*place
	// strangers are those that nobody has said anything on, the oldest first.
	strangers []*place
	roles     map[Role]int
	callers   map[Caller]int
}

// Budget is how many connections may be open at once.
type Budget struct {
	// Strangers are those of whom nobody knows yet.
	Strangers int
	// Roles are those of all who have a role, and Caller those of each, but for root,
	// who has all of its role's.
	Roles  map[Role]int
	Caller int
}

// place is one connection.
type place struct {
	conn net.Conn
	// from is what a stranger is taken for: the network, or the user.
	from string
	// caller is who asks on it; stranger says that this is not known.
	caller   Caller
	stranger bool
}

type placeKey struct{}

// NewPlaces returns a listener's.
func NewPlaces(budget Budget) *Places {
	return &Places{budget: budget, by: map[net.Conn]*place{}, roles: map[Role]int{}, callers: map[Caller]int{}}
}

// Watch has a server take places for its connections. from is whose a new connection
// seems to be.
func (p *Places) Watch(server *http.Server, from func(net.Conn) string) {
	before := server.ConnContext
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if before != nil {
			ctx = before(ctx, conn)
		}
		p.enter(conn, from(conn))
		return context.WithValue(ctx, placeKey{}, conn)
	}
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateClosed || state == http.StateHijacked {
			p.leave(conn)
		}
	}
}

// enter takes the place of a stranger.
func (p *Places) enter(conn net.Conn, from string) {
	p.mu.Lock()
	one := &place{conn: conn, from: from, stranger: true}
	p.by[conn] = one
	p.strangers = append(p.strangers, one)
	var ends net.Conn
	if len(p.strangers) > p.budget.Strangers {
		ends = p.forget(p.crowd()).conn
	}
	p.mu.Unlock()
	if encrypted, ok := ends.(*tls.Conn); ok {
		ends = encrypted.NetConn() // without a farewell, for which it would wait
	}
	if ends != nil {
		ends.Close() // its server notices, and it leaves
	}
}

// crowd is the oldest stranger from where the most are.
func (p *Places) crowd() int {
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

// forget drops a stranger, which is one no longer.
func (p *Places) forget(index int) *place {
	one := p.strangers[index]
	p.strangers = append(p.strangers[:index], p.strangers[index+1:]...)
	one.stranger = false
	return one
}

// Admit gives the connection of a request one of the places of who asks. It is false
// where they have none left: then the connection is to end.
func (p *Places) Admit(ctx context.Context, caller Caller) bool {
	conn, _ := ctx.Value(placeKey{}).(net.Conn)
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.by[conn]
	if one == nil {
		return true // it is not of a server that is watched
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

func (p *Places) leave(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.by[conn]; one != nil {
		p.release(one)
		delete(p.by, conn)
	}
}

// release gives back what a connection has.
func (p *Places) release(one *place) {
	switch {
	case one.stranger:
		for i := range p.strangers {
			if p.strangers[i] == one {
				p.forget(i)
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
