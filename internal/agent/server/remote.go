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

	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
)

// The agent listens on the network only if configured, and only with TLS. A caller with neither
// a token nor a certificate learns nothing.
//
// A browser sends its user's certificate also for requests of foreign web sites, and to this
// host under a foreign name that leads here (DNS rebinding). So requests of web pages are
// refused, and requests for a host name that is not in the agent's certificate.

const (
	// The rate limits of a caller, and of failed requests of a network.
	callerPerSecond, callerBurst   = 50, 100
	failuresPerSecond, failedBurst = 1, 20
	// The rate limit of TLS handshakes of a network. A handshake is the most expensive request
	// that a stranger can send.
	handshakesPerSecond, handshakeBurst = 20, 50
	// remoteIdleTimeout ends idle connections.
	remoteIdleTimeout = 30 * time.Second
	// maxStream bounds one request: a reader of events has to show its token again then.
	maxStream = time.Hour
)

// remoteBudget limits connections from other hosts. Neither strangers nor callers with the role
// read can keep out those with the role admin.
var remoteBudget = access.Budget{
	Strangers: 256, Roles: map[access.Role]int{access.Read: 192, access.Admin: 64}, Caller: 48,
}

// errWho answers a request without a token or certificate.
var errWho = errors.New("the caller is unknown: send a token (Authorization: Bearer TOKEN; `weir token NAME` makes one), or use a client certificate")

var errToken = errors.New("this token is not valid: the administrator of this host makes one with `weir token NAME`")

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
		a.turnAway(w, r, http.StatusMisdirectedRequest, errors.New("the certificate of this host is not for the requested host name"))
		return
	case r.Header.Get("Origin") != "" || strings.HasSuffix(r.Header.Get("Sec-Fetch-Site"), "-site"):
		a.turnAway(w, r, http.StatusForbidden, errors.New("not allowed for web pages"))
		return
	}
	ctx, cancel := context.WithDeadline(r.Context(), now.Add(maxStream))
	defer cancel()
	a.API.ServeHTTP(w, r.WithContext(access.WithCaller(ctx, caller)))
}

// identify returns the caller. A token that is sent has to be valid, even beside a certificate.
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

// turnAway refuses a request and closes its connection: the rest of the request is not read.
func (a *API) turnAway(w http.ResponseWriter, r *http.Request, status int, err error) {
	a.bound(w)
	w.Header().Set("Connection", "close")
	a.answers.Refuse(w, r, status, err)
}

// noPlace refuses a caller whose connections are used up.
func (a *API) noPlace(w http.ResponseWriter, r *http.Request, caller access.Caller) {
	w.Header().Set("Retry-After", "1")
	a.turnAway(w, r, http.StatusServiceUnavailable, fmt.Errorf("too many connections at once of %s, or of all with the role %s: close some", caller.Name, caller.Role))
}

func (a *API) tooMany(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	a.turnAway(w, r, http.StatusTooManyRequests, errors.New("too many requests: ask less often, or follow /v1/events"))
}
