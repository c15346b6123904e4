package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/httpapi"
)

// Client speaks to a weir-edge.
type Client struct{ peer *httpapi.Peer }

// NewClient returns a client of the weir-edge that listens at socket.
func NewClient(socket string) *Client {
	return &Client{&httpapi.Peer{
		Name: "weir-edge", Base: "http://weir-edge", HTTP: httpapi.Unix(socket),
		Unreachable: func(err error) error { return unreachable(socket, err) },
		Refused:     func(_ int, message string) error { return errors.New(message) },
	}}
}

// ErrNotRunning is a socket at which no weir-edge answers.
var ErrNotRunning = errors.New("no weir-edge runs")

// unreachable says why there is no answer, and what to do.
func unreachable(socket string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w on %s: start one with `weir-edge run`, or say where it listens with --socket", ErrNotRunning, socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("not allowed to use %s: run as root (sudo)", socket)
	}
	return fmt.Errorf("ask weir-edge: %w", err)
}

// Instances are those of all services.
func (c *Client) Instances(ctx context.Context) (list []edge.Instance, err error) {
	return list, c.peer.Call(ctx, http.MethodGet, "/v1/instances", nil, &list)
}

// Nodes are all nodes.
func (c *Client) Nodes(ctx context.Context) (list []edge.Node, err error) {
	return list, c.peer.Call(ctx, http.MethodGet, "/v1/nodes", nil, &list)
}

// Deploy deploys a service.
func (c *Client) Deploy(ctx context.Context, document []byte) (d edge.Deployed, err error) {
	return d, c.peer.Call(ctx, http.MethodPost, "/v1/services", document, &d)
}

// Remove removes a service.
func (c *Client) Remove(ctx context.Context, service string) error {
	return c.peer.Call(ctx, http.MethodDelete, "/v1/services/"+url.PathEscape(service), nil, nil)
}

// Explain says why a service has the instances that it has.
func (c *Client) Explain(ctx context.Context, service string) (e edge.Explanation, err error) {
	return e, c.peer.Call(ctx, http.MethodGet, "/v1/services/"+url.PathEscape(service)+"/explain", nil, &e)
}

// Events calls each with what happened lately and, with follow, with what happens,
// until ctx ends or each returns an error.
func (c *Client) Events(ctx context.Context, follow bool, each func(edge.Event) error) error {
	return httpapi.Stream(ctx, c.peer, fmt.Sprintf("/v1/events?follow=%t", follow), each)
}
