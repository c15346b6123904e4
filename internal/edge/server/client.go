package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"

	"github.com/weir-project/weir/api/v1/edge"

	"github.com/weir-project/weir/api/v1/transport"
)

// Client speaks to a weir-edge.
type Client struct{ peer *transport.Peer }

// NewClient returns a client of the weir-edge that listens at socket.
func NewClient(socket string) *Client {
	return &Client{transport.Local("weir-edge", socket, "weir-edge run", ErrNotRunning)}
}

// ErrNotRunning is the error of a socket at which no weir-edge answers.
var ErrNotRunning = errors.New("no weir-edge runs")

// Snapshot returns all that weir-edge knows, of one moment.
func (c *Client) Snapshot(ctx context.Context) (s edge.Snapshot, err error) {
	return s, c.peer.Call(ctx, http.MethodGet, "/v1/snapshot", nil, &s)
}

// Instances returns the instances of all services.
func (c *Client) Instances(ctx context.Context) (list []edge.Instance, err error) {
	return list, c.peer.Call(ctx, http.MethodGet, "/v1/instances", nil, &list)
}

// Nodes returns all nodes.
func (c *Client) Nodes(ctx context.Context) (list []edge.Node, err error) {
	return list, c.peer.Call(ctx, http.MethodGet, "/v1/nodes", nil, &list)
}

// Monitored returns what the agents of all nodes said last.
func (c *Client) Monitored(ctx context.Context) (all edge.Monitored, err error) {
	return all, c.peer.Call(ctx, http.MethodGet, "/v1/nodes/picasso", nil, &all)
}

// Deploy deploys a service.
func (c *Client) Deploy(ctx context.Context, document []byte) (d edge.Deployed, err error) {
	return d, c.peer.Call(ctx, http.MethodPost, "/v1/services", document, &d)
}

// Stored returns the services in the repository.
func (c *Client) Stored(ctx context.Context) (list []edge.Stored, err error) {
	return list, c.peer.Call(ctx, http.MethodGet, "/v1/repository", nil, &list)
}

// Push puts a service into the repository: its specification, and its image as an
// archive.
func (c *Client) Push(ctx context.Context, document []byte, image io.Reader) (stored edge.Stored, err error) {
	reader, writer := io.Pipe()
	defer reader.Close()
	parts := multipart.NewWriter(writer)
	go func() { _ = writer.CloseWithError(writeParts(parts, document, image)) }()
	response, err := c.peer.Send(ctx, http.MethodPost, "/v1/repository", io.Reader(reader), http.Header{"Content-Type": {parts.FormDataContentType()}})
	if err != nil {
		return stored, err
	}
	defer response.Body.Close()
	return stored, c.peer.Decode(response, &stored)
}

func writeParts(w *multipart.Writer, document []byte, image io.Reader) error {
	part, err := w.CreateFormField(partSpecification)
	if err == nil {
		_, err = part.Write(document)
	}
	if err == nil {
		part, err = w.CreateFormField(partImage)
	}
	if err == nil {
		_, err = io.Copy(part, image)
	}
	if err == nil {
		err = w.Close()
	}
	return err
}

// Discard takes a service out of the repository.
func (c *Client) Discard(ctx context.Context, service string) error {
	return c.peer.Call(ctx, http.MethodDelete, "/v1/repository/"+url.PathEscape(service), nil, nil)
}

// DeployStored deploys a service of the repository.
func (c *Client) DeployStored(ctx context.Context, service string) (d edge.Deployed, err error) {
	return d, c.peer.Call(ctx, http.MethodPost, "/v1/repository/"+url.PathEscape(service)+"/deploy", nil, &d)
}

// Stop ends weir-edge; what runs goes on.
func (c *Client) Stop(ctx context.Context) error {
	return c.peer.Call(ctx, http.MethodPost, "/v1/stop", nil, nil)
}

// Remove removes a service.
func (c *Client) Remove(ctx context.Context, service string) error {
	return c.peer.Call(ctx, http.MethodDelete, "/v1/services/"+url.PathEscape(service), nil, nil)
}

// Explain returns why a service has the instances that it has.
func (c *Client) Explain(ctx context.Context, service string) (e edge.Explanation, err error) {
	return e, c.peer.Call(ctx, http.MethodGet, "/v1/services/"+url.PathEscape(service)+"/explain", nil, &e)
}

// Events calls each with recent events and, with follow, with those that follow,
// until ctx ends or each returns an error.
func (c *Client) Events(ctx context.Context, follow bool, each func(edge.Event) error) error {
	return transport.Stream(ctx, c.peer, fmt.Sprintf("/v1/events?follow=%t", follow), each)
}
