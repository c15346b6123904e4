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
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// DefaultSocket is where an agent listens that is not told otherwise.
const DefaultSocket = "/run/weir/weir.sock"

const (
	// connectTimeout bounds how long it takes to reach an agent: the connection,
	// and TLS.
	connectTimeout = 10 * time.Second
	// maxAnswerBytes bounds an answer; that of a node with a thousand containers
	// and four uplinks has 3 MB.
	maxAnswerBytes = 64 << 20
)

// ErrNoAgent is an address at which no agent answers.
var ErrNoAgent = errors.New("no weir agent is running")

// Error is what an agent has against a request.
type Error struct {
	// Status is that of HTTP.
	Status int
	// Message says what is wrong and what to do.
	Message string
}

func (e *Error) Error() string { return e.Message }

// Client speaks to one agent.
type Client struct {
	address string // as users write it
	base    string // what paths are appended to
	unix    bool
	token   string
	http    *http.Client
}

// Options say who asks, and whom to trust, of an agent on another host.
type Options struct {
	// Token is a bearer token of the agent; empty for none.
	Token string
	// TLS has whom to trust and the client's certificate, if there is one (LoadTLS);
	// nil for the authorities that the system trusts.
	TLS *tls.Config
}

// Unix returns a client of the agent that listens at a Unix socket.
func Unix(socket string) *Client {
	dialer := net.Dialer{Timeout: connectTimeout}
	return &Client{
		address: socket, base: "http://weir", unix: true,
		http: httpClient(&http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			},
		}),
	}
}

// New returns a client of the agent at an address: the absolute path of a Unix socket,
// or https://HOST:PORT. Nothing is asked yet.
func New(address string, o Options) (*Client, error) {
	if filepath.IsAbs(address) {
		return Unix(address), nil
	}
	parsed, err := url.Parse(address)
	switch {
	case err != nil, parsed.Scheme != "https", parsed.Port() == "", parsed.Hostname() == "":
		return nil, fmt.Errorf("%q is not where an agent listens: write https://HOST:PORT, or the path of a Unix socket", address)
	case parsed.User != nil, strings.Trim(parsed.Path, "/") != "", parsed.RawQuery != "", parsed.Fragment != "":
		return nil, fmt.Errorf("%q has more than a host and a port: write https://%s", parsed.Redacted(), parsed.Host)
	case strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("this is not a token: `weir token NAME` on the agent's host makes one, a single word")
	}
	return &Client{
		address: "https://" + parsed.Host, base: "https://" + parsed.Host, token: o.Token,
		http: httpClient(&http.Transport{
			DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
			TLSHandshakeTimeout: connectTimeout, TLSClientConfig: o.TLS.Clone(), ForceAttemptHTTP2: true,
		}),
	}, nil
}

// httpClient goes nowhere but where it was told: an agent sends nobody elsewhere, and
// a token is for that agent alone.
func httpClient(transport *http.Transport) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close ends connections that wait for more requests.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call makes a request and decodes the answer into result, unless that is nil.
func (c *Client) call(ctx context.Context, method, path string, body, result any) error {
	response, err := c.send(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return decode(response, result)
}

func decode(response *http.Response, result any) error {
	if result == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswerBytes)).Decode(result); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}

// send makes a request and returns the answer, whose body the caller closes, or what
// the agent had against it.
func (c *Client) send(ctx context.Context, method, path string, body any, header http.Header) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, reader)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, refusal(response)
	}
	return response, nil
}

// unreachable says why there is no answer, and what to do.
func (c *Client) unreachable(err error) error {
	refused := errors.Is(err, syscall.ECONNREFUSED)
	switch {
	case c.unix && (refused || errors.Is(err, fs.ErrNotExist)):
		return fmt.Errorf("%w on %s: start one with `weir agent --uplink IF --rate RATE`, or say where it listens with --socket", ErrNoAgent, c.address)
	case c.unix && errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("not allowed to use %s: run as root (sudo), or as a member of the agent's socket_group", c.address)
	case refused:
		return fmt.Errorf("%w at %s: start one there with `listen` in its configuration", ErrNoAgent, c.address)
	}
	return fmt.Errorf("ask the agent: %w", err)
}

// refusal is what an answer that is not a success says.
func refusal(response *http.Response) error {
	var problem v1.Error
	if err := decode(response, &problem); err != nil || problem.Message == "" {
		return &Error{Status: response.StatusCode, Message: "the agent answered " + response.Status}
	}
	return &Error{Status: response.StatusCode, Message: problem.Message}
}
