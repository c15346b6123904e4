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
)

// Client speaks to an agent.
type Client struct {
	socket string
	http   *http.Client
}

// ErrNoAgent is a socket on which no agent answers.
var ErrNoAgent = errors.New("no weir agent is running")

// NewClient returns a client of the agent that listens at socket.
func NewClient(socket string) *Client {
	var dialer net.Dialer
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}}
}

// Snapshot is all that the agent knows, of one moment.
func (c *Client) Snapshot(ctx context.Context) (v1.Snapshot, error) {
	var seen v1.Snapshot
	return seen, c.call(ctx, http.MethodGet, "/v1/snapshot", nil, &seen)
}

// Events calls each with the events after the one with number since, and, with
// follow, with those that happen from then on, until ctx ends, the agent stops, or
// each returns an error.
func (c *Client) Events(ctx context.Context, since uint64, follow bool, each func(v1.Event) error) error {
	path := fmt.Sprintf("/v1/events?since=%d&follow=%t", since, follow)
	response, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	for {
		var event v1.Event
		err := decoder.Decode(&event)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("read the agent's events: %w", err)
		}
		if err := each(event); err != nil {
			return err
		}
	}
}

// Containers lists the containers and the host class.
func (c *Client) Containers(ctx context.Context) ([]v1.Container, error) {
	var list []v1.Container
	return list, c.call(ctx, http.MethodGet, "/v1/containers", nil, &list)
}

// Status describes the agent.
func (c *Client) Status(ctx context.Context) (v1.Status, error) {
	var status v1.Status
	return status, c.call(ctx, http.MethodGet, "/v1/status", nil, &status)
}

// Set changes a container's policy.
func (c *Client) Set(ctx context.Context, name string, change v1.PolicyChange) (v1.Container, error) {
	var container v1.Container
	return container, c.call(ctx, http.MethodPatch, policyPath(name), change, &container)
}

// Explain says why a container gets what it gets.
func (c *Client) Explain(ctx context.Context, name string) (v1.Explanation, error) {
	var explanation v1.Explanation
	return explanation, c.call(ctx, http.MethodGet, "/v1/containers/"+url.PathEscape(name)+"/explain", nil, &explanation)
}

// Reset goes back to a container's labels.
func (c *Client) Reset(ctx context.Context, name string) (v1.Container, error) {
	var container v1.Container
	return container, c.call(ctx, http.MethodDelete, policyPath(name), nil, &container)
}

// Reload makes the agent read its configuration again.
func (c *Client) Reload(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/reload", nil, nil)
}

// Down makes the agent take everything out of the kernel and stop.
func (c *Client) Down(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/down", nil, nil)
}

func policyPath(name string) string {
	return "/v1/containers/" + url.PathEscape(name) + "/policy"
}

func (c *Client) call(ctx context.Context, method, path string, body, result any) error {
	response, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if result == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(result); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}

// send makes a request and returns the answer, whose body the caller closes, or
// what the agent had against it.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://weir"+path, reader)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	response, err := c.http.Do(request)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("%w on %s: start one with `weir agent --uplink IF --rate RATE`, or say where it listens with --socket", ErrNoAgent, c.socket)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("not allowed to use %s: run as root (sudo), or as a member of the agent's socket_group", c.socket)
	case err != nil:
		return nil, fmt.Errorf("ask the agent: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		var problem v1.Error
		if err := json.NewDecoder(response.Body).Decode(&problem); err != nil || problem.Message == "" {
			return nil, fmt.Errorf("the agent answered %s", response.Status)
		}
		return nil, errors.New(problem.Message)
	}
	return response, nil
}
