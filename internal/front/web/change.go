package web

import (
	"net/http"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/access"
)

// changes are what the page may ask for that is more than looking. Each takes a token.
var changes = []string{
	"POST /v1/containers/{name}/policy/preview",
	"PATCH /v1/containers/{name}/policy",
	"DELETE /v1/containers/{name}/policy",
}

// How often somebody may guess a token.
const failuresPerSecond, failedBurst = 1, 20

// gate lets everybody look, and those who have a token do what its role allows.
type gate struct {
	routes  *http.ServeMux
	next    http.Handler   // the routes, for so many at once
	tokens  *access.Tokens // nil: nobody has one
	failing *access.Limits
	places  *access.Places // for connections
}

// anybody is who shows no token.
var anybody = access.Caller{Name: "the dashboard", Role: access.Read}

func newGate(tokens *access.Tokens) *gate {
	return &gate{tokens: tokens, failing: access.NewLimits(failuresPerSecond, failedBurst), places: access.NewPlaces(budget)}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller := anybody
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
		turnAway(w, http.StatusBadRequest, "a request that looks has no body")
		return
	} else if !looks && !g.mayChange(w, r, caller) {
		return
	}
	g.next.ServeHTTP(w, r.WithContext(access.With(r.Context(), caller)))
}

func (g *gate) find(authorization string) (access.Caller, bool) {
	scheme, token, _ := strings.Cut(authorization, " ")
	if g.tokens == nil || !strings.EqualFold(scheme, "Bearer") {
		return access.Caller{}, false
	}
	return g.tokens.Find(strings.TrimSpace(token))
}

// mayChange says whether a request that is more than looking goes on, and if not, why.
func (g *gate) mayChange(w http.ResponseWriter, r *http.Request, caller access.Caller) bool {
	// What the mux has no route for is none of the changes.
	_, route := g.routes.Handler(r)
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	switch {
	case g.tokens == nil || !strings.HasPrefix(route, r.Method+" "):
		w.Header().Set("Allow", "GET, HEAD")
		turnAway(w, http.StatusMethodNotAllowed, "the dashboard does not do that: use the agent's socket, for instance with `weir set`")
	case origin != "" && origin != "http://"+r.Host, site != "" && site != "same-origin" && site != "none":
		turnAway(w, http.StatusForbidden, "only the dashboard's own page changes something")
	case r.Header.Get("Authorization") == "":
		w.Header().Set("WWW-Authenticate", "Bearer")
		turnAway(w, http.StatusUnauthorized, "a change takes a token: `sudo weir token NAME --role admin` makes one")
	case caller.Role < access.Admin:
		turnAway(w, http.StatusForbidden, "this token is for looking only: `sudo weir token NAME --role admin` makes one for changes")
	case r.Method != http.MethodDelete && r.Header.Get("Content-Type") != "application/json":
		turnAway(w, http.StatusUnsupportedMediaType, "a change is JSON, and says so")
	case r.Method != http.MethodPost && r.Header.Get("If-Match") == "":
		turnAway(w, http.StatusPreconditionRequired, "a change says what it has seen: get the policy, and send its ETag as If-Match")
	default:
		return true
	}
	return false
}

// turnAway refuses a request, and nobody reads what it goes on to send.
func turnAway(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Connection", "close")
	refuse(w, status, message)
}
