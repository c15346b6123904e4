package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/weir-project/weir/internal/access"
)

// atOnce is how many large answers there are at once for each role: one takes megabytes
// of the agent until it is read, or its time is over.
const atOnce = 2

var errLarge = errors.New("others read answers as large as this one, and the agent has memory for few: ask again, or for less")

// few lets so many of each role have an answer at once that is large. The others wait
// for their turn as long as they would for the agent: who does not read holds up its
// equals only.
func (a *API) few(large func(*http.Request) bool, next http.HandlerFunc) http.HandlerFunc {
	places := map[access.Role]chan struct{}{}
	for role := access.None; role <= access.Root; role++ {
		places[role] = make(chan struct{}, atOnce)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !large(r) {
			next(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), a.timeout)
		defer cancel()
		place := places[access.Of(ctx).Role]
		select {
		case place <- struct{}{}:
			defer func() { <-place }()
			next(w, r)
		case <-ctx.Done():
			a.bound(w)
			a.refuseAs(w, r, http.StatusServiceUnavailable, errLarge)
		}
	}
}
