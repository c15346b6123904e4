package web

import (
	"net/http"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/front/access"
)

// changes are the routes of the page that need a token.
var changes = []string{
	"POST /v1/containers/{name}/policy/preview",
	"PATCH /v1/containers/{name}/policy",
	"DELETE /v1/containers/{name}/policy",
}

// The rate limit of invalid tokens.
const failuresPerSecond, failedBurst = 1, 20

// gate identifies callers: without a token a caller may read, with one what its role allows.
type gate struct {
	routes  *http.ServeMux
	next    http.Handler   // the routes, for a bounded number of requests at once
	tokens  *access.Tokens // nil: no changes
	failing *access.Limits
	places  *access.Places
}

// anonymous is the caller without a token.
var anonymous = access.Caller{Name: "the dashboard", Role: access.Read}

func newGate(tokens *access.Tokens) *gate {
	return &gate{tokens: tokens, failing: access.NewLimits(failuresPerSecond, failedBurst), places: access.NewPlaces(budget)}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller := anonymous
	if given := r.Header.Get("Authorization"); given != "" {
		found, ok := g.find(given)
		switch {
		case !ok && !g.failing.Allow("", time.Now()):
			w.Header().Set("Retry-After", "1")
			turnAway(w, http.StatusTooManyRequests, "too many tokens that are not valid: wait")
			return
		case !ok:
			turnAway(w, http.StatusUnauthorized, "this token is not valid: `sudo weir token NAME --role admin` makes one")
			return
		}
		caller = found
	}
	if !g.places.Admit(r.Context(), caller) {
		tooMany(w)
		return
	}
	if looks := r.Method == http.MethodGet || r.Method == http.MethodHead; looks && r.ContentLength != 0 {
		turnAway(w, http.StatusBadRequest, "a request that reads must have no body")
		return
	} else if !looks && !g.mayChange(w, r, caller) {
		return
	}
	g.next.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), caller)))
}

func (g *gate) find(authorization string) (access.Caller, bool) {
	scheme, token, _ := strings.Cut(authorization, " ")
	if g.tokens == nil || !strings.EqualFold(scheme, "Bearer") {
		return access.Caller{}, false
	}
	return g.tokens.Find(strings.TrimSpace(token))
}

// mayChange reports whether a request for a change goes on; if not, it answers why.
func (g *gate) mayChange(w http.ResponseWriter, r *http.Request, caller access.Caller) bool {
	// A path without a route is none of the changes.
	_, route := g.routes.Handler(r)
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	switch {
	case g.tokens == nil || !strings.HasPrefix(route, r.Method+" "):
		w.Header().Set("Allow", "GET, HEAD")
		turnAway(w, http.StatusMethodNotAllowed, "the dashboard cannot do that: use the agent's socket, for instance with `weir set`")
	case origin != "" && origin != "http://"+r.Host, site != "" && site != "same-origin" && site != "none":
		turnAway(w, http.StatusForbidden, "only the dashboard's own page may make changes")
	case r.Header.Get("Authorization") == "":
		w.Header().Set("WWW-Authenticate", "Bearer")
		turnAway(w, http.StatusUnauthorized, "a change needs a token: `sudo weir token NAME --role admin` makes one")
	case caller.Role < access.Admin:
		turnAway(w, http.StatusForbidden, "this token is for reading only: `sudo weir token NAME --role admin` makes one for changes")
	case r.Method != http.MethodDelete && r.Header.Get("Content-Type") != "application/json":
		turnAway(w, http.StatusUnsupportedMediaType, "a change must have the content type application/json")
	case r.Method != http.MethodPost && r.Header.Get("If-Match") == "":
		turnAway(w, http.StatusPreconditionRequired, "If-Match is missing: read the policy, and send its ETag as If-Match")
	default:
		return true
	}
	return false
}

// turnAway refuses a request and closes its connection: the rest of the request is not read.
func turnAway(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Connection", "close")
	refuse(w, status, message)
}
