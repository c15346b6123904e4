package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/access"
	"github.com/weir-project/weir/internal/httpapi"
)

// The network is where anybody asks. The agent listens there only if it is told to, and
// only with TLS. Whoever has neither a token nor a certificate learns nothing.
//
// A browser sends the certificate that its user has also for the web site of somebody
// else, and asks this host in the name of one whose name leads here. So whatever comes
// from a web page is refused, and whatever is for a host that the agent's certificate is
// not for.

const (
	// How often somebody may ask, and how often one network may ask in vain.
	callerPerSecond, callerBurst   = 50, 100
	failuresPerSecond, failedBurst = 1, 20
	// How often one network may have the agent prove who it is, which is what costs most
	// of all that a stranger can ask for.
	handshakesPerSecond, handshakeBurst = 20, 50
	// remoteIdleTimeout ends connections that ask for nothing.
	remoteIdleTimeout = 30 * time.Second
	// maxStream is how long one request may go on: then whoever follows events has to
	// show again who it is.
	maxStream = time.Hour
)

// remoteBudget is how many connections there are from other hosts. Who may only look
// cannot keep out who may change something, nor can a stranger.
var remoteBudget = access.Budget{
	Strangers: 256, Roles: map[access.Role]int{access.Read: 192, access.Admin: 64}, Caller: 48,
}

// errWho is a request of nobody that the agent knows.
var errWho = errors.New("who asks? Send a token (Authorization: Bearer TOKEN; `weir token NAME` makes one), or use a client certificate")

var errToken = errors.New("this token is not valid: ask whoever runs the agent for one (`weir token NAME`)")

// remote is the API for other hosts.
type remote struct {
	*API
	tokens           *access.Tokens
	certificates     *access.Certificates
	places           *access.Places
	callers, failing *access.Limits
}

// ListenTLS opens an address for TLS.
func ListenTLS(address string, certificates *access.Certificates) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	config := certificates.Config()
	limits, configOf := access.NewLimits(handshakesPerSecond, handshakeBurst), config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if !limits.Allow(access.Network(hello.Conn.RemoteAddr().String()), time.Now()) {
			return nil, errHandshakes
		}
		return configOf(hello)
	}
	return tls.NewListener(listener, config), nil
}

var errHandshakes = errors.New("too many connections one after another: keep one open")

// Remote returns a server for listeners of ListenTLS.
func (a *API) Remote(tokens *access.Tokens, certificates *access.Certificates) *http.Server {
	places := access.NewPlaces(remoteBudget)
	s := httpapi.NewServer(&remote{
		API: a, tokens: tokens, certificates: certificates, places: places,
		callers: access.NewLimits(callerPerSecond, callerBurst), failing: access.NewLimits(failuresPerSecond, failedBurst),
	}, a.log)
	s.IdleTimeout = remoteIdleTimeout
	places.Watch(s, func(conn net.Conn) string { return access.Network(conn.RemoteAddr().String()) })
	return s
}

func (a *remote) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	now, from := time.Now(), access.Network(r.RemoteAddr)
	caller, err := a.identify(r)
	switch {
	case err != nil && !a.failing.Allow(from, now), err == nil && !a.callers.Allow(caller.Name, now):
		a.tooMany(w, r)
		return
	case err != nil:
		header.Set("WWW-Authenticate", "Bearer")
		a.turnAway(w, r, http.StatusUnauthorized, err)
		return
	case !a.places.Admit(r.Context(), caller):
		a.noPlace(w, r, caller)
		return
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	switch {
	case !a.certificates.IsFor(host):
		a.turnAway(w, r, http.StatusMisdirectedRequest, errors.New("this host's certificate is not for the name that was asked for"))
		return
	case r.Header.Get("Origin") != "" || strings.HasSuffix(r.Header.Get("Sec-Fetch-Site"), "-site"):
		a.turnAway(w, r, http.StatusForbidden, errors.New("not allowed for web pages"))
		return
	}
	ctx, cancel := context.WithDeadline(r.Context(), now.Add(maxStream))
	defer cancel()
	a.API.ServeHTTP(w, r.WithContext(access.With(ctx, caller)))
}

// identify says who asks. A token that is given has to be valid, whatever else there is.
func (a *remote) identify(r *http.Request) (access.Caller, error) {
	if given := r.Header.Get("Authorization"); given != "" {
		scheme, token, _ := strings.Cut(given, " ")
		caller, ok := a.tokens.Find(strings.TrimSpace(token))
		if !strings.EqualFold(scheme, "Bearer") || !ok {
			return access.Caller{}, errToken
		}
		return caller, nil
	}
	caller, ok, err := a.certificates.Caller(r.TLS)
	if err == nil && !ok {
		err = errWho
	}
	return caller, err
}

// turnAway refuses a request and ends its connection: nobody reads what it goes on to
// send.
func (a *API) turnAway(w http.ResponseWriter, r *http.Request, status int, err error) {
	a.bound(w)
	w.Header().Set("Connection", "close")
	a.refuseAs(w, r, status, err)
}

// noPlace refuses whoever has as many connections as they may have.
func (a *API) noPlace(w http.ResponseWriter, r *http.Request, caller access.Caller) {
	w.Header().Set("Retry-After", "1")
	a.turnAway(w, r, http.StatusServiceUnavailable, fmt.Errorf("too many connections at once of %s, or of all with the role %s: close some", caller.Name, caller.Role))
}

func (a *API) tooMany(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	a.turnAway(w, r, http.StatusTooManyRequests, errors.New("too many requests: ask less often; /v1/events says what happens without being asked again"))
}
