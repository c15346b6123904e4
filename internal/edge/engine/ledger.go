package engine

import (
	"context"
	"errors"
)

// Ledger holds what is promised on all nodes, where every engine of the cluster
// sees it: in the Swarm's own store, or beside the engine of one host.
type Ledger interface {
	// Read returns what is promised, and a token of that state.
	Read(ctx context.Context) (Promises, Token, error)
	// Swap replaces the state that token was of. It returns [ErrConflict], and
	// changes nothing, if the state has changed since.
	Swap(ctx context.Context, token Token, promises Promises) error
}

// Token names one state of a ledger: a version of the Swarm's store, for example.
type Token string

// ErrConflict is returned by a ledger that has changed since it was read.
var ErrConflict = errors.New("what is promised has changed since it was read")

// Promises are all that is promised, by instance.
type Promises map[string]Promise

// Promise is what an instance has on its node, from before it starts until it is
// known to have ended.
type Promise struct {
	Service    string `json:"service"`
	Node       string `json:"node"`
	MinBPS     uint64 `json:"min_bps,omitempty"`
	LimitBytes uint64 `json:"limit_bytes,omitempty"`
	Replaces   string `json:"replaces,omitempty"`
}
