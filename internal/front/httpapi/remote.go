package httpapi

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
)

// Daemons listen on the network only if configured, and only with TLS. A caller with neither a token
// nor a certificate learns nothing.
//
// A browser sends its user's certificate also for requests of foreign web sites, and to this
// host under a foreign name that leads here (DNS rebinding). So requests of web pages are
// refused, and requests for a host name that is not in the daemon's certificate.

const (
	callerPerSecond     = 50
	failuresPerSecond   = 1
	handshakesPerSecond = 20
	// CallerBurst is how many requests of a caller may come at once; then the rate limit holds.
	CallerBurst = 100
	// FailedBurst is the same for failed requests of a network.
	FailedBurst = 20
	// HandshakeBurst is the same for TLS handshakes of a network. A handshake is the most expensive
	// request that a stranger can send.
	HandshakeBurst = 50
	// remoteIdleTimeout ends idle connections.
	remoteIdleTimeout = 30 * time.Second
	// maxStream bounds one request: a reader of events has to show its token again then.
	maxStream = time.Hour
)

// RemoteBudget limits connections from other hosts. Neither strangers nor callers with the role
// read can keep out those with the role admin.
var RemoteBudget = access.Budget{
	Strangers: 256, Roles: map[access.Role]int{access.Read: 192, access.Admin: 64}, Caller: 48,
}

// errWho answers a request without a token or certificate.
var errWho = errors.New("the caller is unknown: send a token (Authorization: Bearer TOKEN; `weir token NAME` makes one), or use a client certificate")

var errToken = errors.New("this token is not valid: the administrator of this host makes one with `weir token NAME`")

// remote is the API for other hosts.
type remote struct {
	http.Handler
	answers          *Answers
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
	limits, configOf := access.NewLimits(handshakesPerSecond, HandshakeBurst), config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if !limits.Allow(access.Network(hello.Conn.RemoteAddr().String()), time.Now()) {
			return nil, errHandshakes
		}
		return configOf(hello)
	}
	return tls.NewListener(listener, config), nil
}

var errHandshakes = errors.New("too many connections one after another: keep one open")

// NewRemote returns a server of an API for listeners of ListenTLS. Its requests have a caller
// ([access.CallerFrom]).
func NewRemote(api http.Handler, answers *Answers, tokens *access.Tokens, certificates *access.Certificates) *http.Server {
	places := access.NewPlaces(RemoteBudget)
	s := NewServer(&remote{
		Handler: api, answers: answers, tokens: tokens, certificates: certificates, places: places,
		callers: access.NewLimits(callerPerSecond, CallerBurst), failing: access.NewLimits(failuresPerSecond, FailedBurst),
	}, answers.Log)
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
	case err != nil && !a.failing.Allow(from, now), err == nil && !a.callers.AllowN(caller.Name, now, a.answers.cost(r)):
		a.answers.TooMany(w, r)
		return
	case err != nil:
		header.Set("WWW-Authenticate", "Bearer")
		a.answers.TurnAway(w, r, http.StatusUnauthorized, err)
		return
	case !a.places.Admit(r.Context(), caller):
		a.answers.NoPlace(w, r, caller)
		return
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	switch {
	case !a.certificates.IsFor(host):
		a.answers.TurnAway(w, r, http.StatusMisdirectedRequest, errors.New("the certificate of this host is not for the requested host name"))
		return
	case r.Header.Get("Origin") != "" || strings.HasSuffix(r.Header.Get("Sec-Fetch-Site"), "-site"):
		a.answers.TurnAway(w, r, http.StatusForbidden, errors.New("not allowed for web pages"))
		return
	}
	ctx, cancel := context.WithDeadline(r.Context(), now.Add(maxStream))
	defer cancel()
	a.Handler.ServeHTTP(w, r.WithContext(access.WithCaller(ctx, caller)))
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

// TurnAway refuses a request and closes its connection: the rest of the request is not read.
func (a *Answers) TurnAway(w http.ResponseWriter, r *http.Request, status int, err error) {
	a.Bound(w, a.Timeout)
	w.Header().Set("Connection", "close")
	a.Refuse(w, r, status, err)
}

// NoPlace refuses a caller whose connections are used up.
func (a *Answers) NoPlace(w http.ResponseWriter, r *http.Request, caller access.Caller) {
	w.Header().Set("Retry-After", "1")
	a.TurnAway(w, r, http.StatusServiceUnavailable, fmt.Errorf("too many connections at once of %s, or of all with the role %s: close some", caller.Name, caller.Role))
}

// TooMany refuses a caller that asks too often.
func (a *Answers) TooMany(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	a.TurnAway(w, r, http.StatusTooManyRequests, errors.New("too many requests: ask less often"))
}
