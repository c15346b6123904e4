// Package access says who may do what: the roles, the tokens and the certificates of
// those who ask over the network.
//
// # Problem
//
// Whoever changes a policy takes bandwidth from others, and whoever reads one learns
// what runs here. On the Unix socket the kernel says who asks. Over the network
// somebody has to prove it; and a browser proves it for any web site that it is told
// to by, if the proof is one that it sends by itself.
//
// # Method
//
// A request has a Caller, a name with a role, before it comes to a route, and one
// without comes to none. Tokens are 32 random bytes, of which the agent's file holds
// the hash; nothing is to be gained from that file, and as nobody can guess them no
// slow hash is needed. The holder of a certificate may read, and change things if the
// configuration names it.
//
// Both files are looked at again when they change: who is taken out is out at the next
// request.
package access

import (
	"context"
	"fmt"
)

// Role is what somebody may do. Each may do what those before it may.
type Role int

// The roles.
const (
	// None may do nothing.
	None Role = iota
	// Read may look at everything.
	Read
	// Admin may change policies, and let the configuration be read again.
	Admin
	// Root may take Weir down. It is the root user on the agent's host, on its socket.
	Root
)

var roleNames = [...]string{None: "none", Read: "read", Admin: "admin", Root: "root"}

func (r Role) String() string { return roleNames[r] }

// ParseRole reads a role that can be given to somebody: read or admin.
func ParseRole(text string) (Role, error) {
	for _, role := range []Role{Read, Admin} {
		if text == role.String() {
			return role, nil
		}
	}
	return None, fmt.Errorf("is not a role: write %s or %s", Read, Admin)
}

// Caller is who asks.
type Caller struct {
	// Name is for logs and limits: "uid 1000", "token hub", "certificate hub".
	Name string
	Role Role
}

type callerKey struct{}

// With keeps who asks.
func With(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// Of is who asks; somebody without a role where nobody is known.
func Of(ctx context.Context) Caller {
	caller, _ := ctx.Value(callerKey{}).(Caller)
	return caller
}
