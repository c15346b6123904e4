package client

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/transport"
)

// SDN is a client of the controller of `weir sdn run`. What the controller has against a request is
// an *Error: 409 if a link has no room, 404 if it does not know a host or a promise, 422 if no
// switch can tell the traffic apart, 503 if another controller is the master of the switches.
type SDN struct{ peer *transport.Peer }

// ErrNoController means that no controller answers at a socket.
var ErrNoController = errors.New("no controller is running")

// sdnTimeout limits a request to the controller.
const sdnTimeout = 10 * time.Second

// OpenSDN returns a client of the controller at an address: the absolute path of a Unix socket, or
// https://HOST:PORT. It does not connect yet.
func OpenSDN(address string, o Options) (*SDN, error) {
	if filepath.IsAbs(address) {
		return NewSDN(address), nil
	}
	peer, err := remote("the controller", ErrNoController, "--api of `weir sdn run`", address, o)
	if err != nil {
		return nil, err
	}
	return &SDN{peer}, nil
}

// NewSDN returns a client of the controller at a Unix socket.
func NewSDN(socket string) *SDN {
	peer := transport.Local("the controller", socket, "weir sdn run", ErrNoController)
	peer.Refused = refused
	return &SDN{peer}
}

// Status returns the controller's switches, links and counters.
func (c *SDN) Status(ctx context.Context) (v1.SDN, error) {
	return askSDN[v1.SDN](ctx, c, http.MethodGet, "/v1/sdn", nil)
}

// Flows returns the flows that the controller knows.
func (c *SDN) Flows(ctx context.Context) ([]v1.SDNFlow, error) {
	return askSDN[[]v1.SDNFlow](ctx, c, http.MethodGet, "/v1/sdn/flows", nil)
}

// Links returns what links have, carry and have promised, and all promises.
func (c *SDN) Links(ctx context.Context) (v1.SDNLinks, error) {
	return askSDN[v1.SDNLinks](ctx, c, http.MethodGet, "/v1/links", nil)
}

// Paths returns the paths from hosts, up to v1.SDNMaxPaths, to another host.
func (c *SDN) Paths(ctx context.Context, to netip.Addr, from []netip.Addr) ([]v1.SDNPath, error) {
	query := url.Values{"to": {to.String()}}
	for _, host := range from {
		query.Add("from", host.String())
	}
	return askSDN[[]v1.SDNPath](ctx, c, http.MethodGet, "/v1/paths?"+query.Encode(), nil)
}

// Reserve promises a minimum for ten seconds.
func (c *SDN) Reserve(ctx context.Context, p v1.SDNPromiseRequest) (v1.SDNPromise, error) {
	return askSDN[v1.SDNPromise](ctx, c, http.MethodPost, "/v1/promises", p)
}

// Confirm makes a reserved promise last, or promises anew what the controller does not know.
func (c *SDN) Confirm(ctx context.Context, p v1.SDNPromiseRequest) (v1.SDNPromise, error) {
	return askSDN[v1.SDNPromise](ctx, c, http.MethodPut, promisePath(p.ID), p)
}

// Release ends a promise.
func (c *SDN) Release(ctx context.Context, id string) error {
	_, err := askSDN[struct{}](ctx, c, http.MethodDelete, promisePath(id), nil)
	return err
}

func promisePath(id string) string { return "/v1/promises/" + url.PathEscape(id) }

func askSDN[T any](ctx context.Context, c *SDN, method, path string, body any) (v T, err error) {
	ctx, cancel := context.WithTimeout(ctx, sdnTimeout)
	defer cancel()
	return v, c.peer.Call(ctx, method, path, body, &v)
}
