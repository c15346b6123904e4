package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/weir-project/weir/internal/front/access"
)

// maxLarge is the number of large responses that each role may have in progress. Each takes
// megabytes of memory until it is read or times out.
const maxLarge = 2

var errLarge = errors.New("too many large responses in progress: retry, or ask for fewer flows")

// limitLarge allows maxLarge large responses per role at a time. Other requests wait as long as
// they would for the agent, so a slow reader delays its own role only.
func (a *API) limitLarge(large func(*http.Request) bool, next http.HandlerFunc) http.HandlerFunc {
	places := map[access.Role]chan struct{}{}
	for role := access.None; role <= access.Root; role++ {
		places[role] = make(chan struct{}, maxLarge)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !large(r) {
			next(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), a.answers.Timeout)
		defer cancel()
		place := places[access.CallerFrom(ctx).Role]
		select {
		case place <- struct{}{}:
			defer func() { <-place }()
			next(w, r)
		case <-ctx.Done():
			a.bound(w)
			a.answers.Refuse(w, r, http.StatusServiceUnavailable, errLarge)
		}
	}
}
