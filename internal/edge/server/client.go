package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
)

// Client speaks to a weir-edge.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the weir-edge that listens at socket.
func NewClient(socket string) *Client {
	var dialer net.Dialer
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}}
}

// Instances are those of all services.
func (c *Client) Instances(ctx context.Context) (list []edge.Instance, err error) {
	return list, c.call(ctx, http.MethodGet, "/v1/instances", nil, &list)
}

// Nodes are all nodes.
func (c *Client) Nodes(ctx context.Context) (list []edge.Node, err error) {
	return list, c.call(ctx, http.MethodGet, "/v1/nodes", nil, &list)
}

// Deploy deploys a service.
func (c *Client) Deploy(ctx context.Context, document []byte) (d edge.Deployed, err error) {
	return d, c.call(ctx, http.MethodPost, "/v1/services", document, &d)
}

// Remove removes a service.
func (c *Client) Remove(ctx context.Context, service string) error {
	return c.call(ctx, http.MethodDelete, "/v1/services/"+url.PathEscape(service), nil, nil)
}

// Explain says why a service has the instances that it has.
func (c *Client) Explain(ctx context.Context, service string) (e edge.Explanation, err error) {
	return e, c.call(ctx, http.MethodGet, "/v1/services/"+url.PathEscape(service)+"/explain", nil, &e)
}

// Events calls each with what happened lately and, with follow, with what happens,
// until ctx ends or each returns an error.
func (c *Client) Events(ctx context.Context, follow bool, each func(edge.Event) error) error {
	response, err := c.send(ctx, http.MethodGet, fmt.Sprintf("/v1/events?follow=%t", follow), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for decoder := json.NewDecoder(response.Body); ; {
		var event edge.Event
		err := decoder.Decode(&event)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("read events: %w", err)
		}
		if err := each(event); err != nil {
			return err
		}
	}
}

func (c *Client) call(ctx context.Context, method, path string, body []byte, result any) error {
	response, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if result == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(result); err != nil {
		return fmt.Errorf("read the answer of weir-edge: %w", err)
	}
	return nil
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://weir-edge"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	response, err := c.http.Do(request)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("no weir-edge runs on %s: start one with `weir-edge run`, or say where it listens with --socket", c.socket)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("not allowed to use %s: run as root (sudo)", c.socket)
	case err != nil:
		return nil, fmt.Errorf("ask weir-edge: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	var problem v1.Error
	if err := json.NewDecoder(response.Body).Decode(&problem); err != nil || problem.Message == "" {
		return nil, fmt.Errorf("weir-edge answered %s", response.Status)
	}
	return nil, errors.New(problem.Message)
}
