// Package client reads and changes Weir agents, over the Unix socket of this host or
// from elsewhere over TLS. Weir's own commands use nothing else.
//
//	here := client.Unix("/run/weir/weir.sock")
//	containers, err := here.Containers(ctx)
//
//	trust, err := client.LoadTLS("ca.pem", "", "")
//	there, err := client.New("https://gateway:7481", client.Options{TLS: trust, Token: token})
//
// A Client may be used by many goroutines at once. How long a request may take, its
// context says. What an agent has against a request is an *Error, whose text says what
// to do.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/weir-project/weir/api/v1/transport"
)

// DefaultSocket is the default path of an agent's socket.
const DefaultSocket = "/run/weir/weir.sock"

// ErrNoAgent means that no agent answers at an address.
var ErrNoAgent = errors.New("no weir agent is running")

// ErrNotAllowed means that this user may not open the agent's socket.
var ErrNotAllowed = errors.New("not allowed")

// ErrTrust means that TLS verification failed on either side.
var ErrTrust = errors.New("not to be trusted")

// Error is an agent's refusal of a request.
type Error struct {
	// Status is the HTTP status code.
	Status int
	// Message says what is wrong and what to do.
	Message string
}

func (e *Error) Error() string { return e.Message }

// Client sends requests to one agent.
type Client struct{ peer *transport.Peer }

// Options are the credentials for an agent on another host.
type Options struct {
	// Token is a bearer token of the agent; empty for none.
	Token string
	// TLS has the trusted authorities and, optionally, the client certificate (LoadTLS);
	// nil means the system's authorities.
	TLS *tls.Config
	// MaxAnswerBytes limits what is read of an answer; 0 means 64 MiB.
	MaxAnswerBytes int
}

// Unix returns a client of the agent that listens at a Unix socket.
func Unix(socket string) *Client {
	return &Client{&transport.Peer{
		Name: "the agent", Base: "http://weir", HTTP: transport.Unix(socket), Refused: refused,
		Unreachable: func(err error) error { return unreachableLocally(socket, err) },
	}}
}

func refused(status int, message string) error { return &Error{Status: status, Message: message} }

// New returns a client of the agent at an address: the absolute path of a Unix socket, or
// https://HOST:PORT. It does not connect yet.
func New(address string, o Options) (*Client, error) {
	if filepath.IsAbs(address) {
		return Unix(address), nil
	}
	peer, err := remote("the agent", ErrNoAgent, "`listen` in its configuration", address, o)
	if err != nil {
		return nil, err
	}
	return &Client{peer}, nil
}

// remote returns the peer of a daemon that listens at https://HOST:PORT. A refused connection returns
// the error notListening, with the setting that makes the daemon listen.
func remote(name string, notListening error, setting, address string, o Options) (*transport.Peer, error) {
	parsed, err := url.Parse(address)
	switch {
	case err != nil, parsed.Scheme != "https", parsed.Port() == "", parsed.Hostname() == "":
		return nil, fmt.Errorf("%q is not where %s listens: write https://HOST:PORT, or the path of a Unix socket", address, name)
	case parsed.User != nil, strings.Trim(parsed.Path, "/") != "", parsed.RawQuery != "", parsed.Fragment != "":
		return nil, fmt.Errorf("%q has more than a host and a port: write https://%s", parsed.Redacted(), parsed.Host)
	case strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("this is not a token: `weir token NAME` on that host makes one, a single word")
	}
	base := "https://" + parsed.Host
	return &transport.Peer{
		Name: name, Base: base, Token: o.Token, MaxAnswerBytes: o.MaxAnswerBytes, Refused: refused,
		HTTP: transport.Client(&http.Transport{
			DialContext:         (&net.Dialer{Timeout: transport.ConnectTimeout}).DialContext,
			TLSHandshakeTimeout: transport.ConnectTimeout, TLSClientConfig: o.TLS.Clone(), ForceAttemptHTTP2: true,
		}),
		Unreachable: func(err error) error {
			if errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("%w at %s: start one there with %s", notListening, base, setting)
			}
			return distrusted(name, base, err)
		},
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.peer.HTTP.CloseIdleConnections() }

// Get sends a request for a path of the agent's API, and returns the answer if that is a success. The
// caller closes its body.
func (c *Client) Get(ctx context.Context, path string) (*http.Response, error) {
	return c.send(ctx, http.MethodGet, path, nil, nil)
}

func (c *Client) call(ctx context.Context, method, path string, body, result any) error {
	return c.peer.Call(ctx, method, path, body, result)
}

func (c *Client) send(ctx context.Context, method, path string, body any, header http.Header) (*http.Response, error) {
	return c.peer.Send(ctx, method, path, body, header)
}

// unreachableLocally explains a failed connection to an agent's socket and says what to do.
func unreachableLocally(address string, err error) error {
	switch {
	case address == "":
		return errors.New("the path of the agent's socket is empty: say where it listens with --socket PATH")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w on %s: start one with `weir agent --uplink IF --rate RATE`, or say where it listens with --socket", ErrNoAgent, address)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w to use %s: run as root (sudo), or as a member of the agent's socket_group", ErrNotAllowed, address)
	}
	return distrusted("the agent", address, err)
}

// distrusted explains an error of TLS; others it only names.
func distrusted(name, address string, err error) error {
	if why := distrust(err); why != "" {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the address is said already
		}
		var alert *net.OpError
		if errors.As(err, &alert) {
			err = alert // without where in the HTTP client it was met
		}
		return fmt.Errorf("%s at %s %w: %s (%w)", strings.TrimPrefix(name, "the "), address, ErrTrust, why, err)
	}
	return fmt.Errorf("ask %s: %w", name, err)
}
