// Package access identifies the callers of a daemon's API: roles, tokens, certificates, and
// limits for each caller.
//
// # Problem
//
// A change of a policy takes bandwidth from other containers, and a policy tells what runs
// here. On the Unix socket the kernel identifies the caller. Over the network the caller has to
// prove its identity; and a proof that a browser sends by itself can be used by any web site.
//
// # Method
//
// A request has a Caller, a name with a role, before it reaches a route; a request without one
// is refused. A token has 32 random bytes, and the file of tokens holds its hash: the file is
// of no use to a thief, and since a token cannot be guessed, a fast hash is enough. The holder
// of a client certificate may read, and make changes if the configuration names it.
//
// Both files are read again when they change: a token that was deleted is refused at the next
// request.
package access

import (
	"context"
	"fmt"
)

// Role is what a caller may do. Each role includes those before it.
type Role int

// The roles.
const (
	// None may do nothing.
	None Role = iota
	// Read may read everything.
	Read
	// Admin may change policies and reload the configuration.
	Admin
	// Root may take Weir down. Root is the root user of the host, on the Unix socket.
	Root
)

var roleNames = [...]string{None: "none", Read: "read", Admin: "admin", Root: "root"}

func (r Role) String() string { return roleNames[r] }

// ParseRole reads the role of a token: read or admin.
func ParseRole(text string) (Role, error) {
	for _, role := range []Role{Read, Admin} {
		if text == role.String() {
			return role, nil
		}
	}
	return None, fmt.Errorf("is not a role: write %s or %s", Read, Admin)
}

// Caller is the author of a request.
type Caller struct {
	// Name is for logs and limits: "uid 1000", "token hub", "certificate hub".
	Name string
	Role Role
}

type callerKey struct{}

// WithCaller returns a context with the caller of a request.
func WithCaller(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// CallerFrom returns the caller of a request, or an anonymous one without a role.
func CallerFrom(ctx context.Context) Caller {
	caller, _ := ctx.Value(callerKey{}).(Caller)
	return caller
}
