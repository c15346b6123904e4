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

// Reset goes back to a container's labels.
func (c *Client) Reset(ctx context.Context, name string) (v1.Container, error) {
	var container v1.Container
	return container, c.call(ctx, http.MethodDelete, policyPath(name), nil, &container)
}

// Down makes the agent take everything out of the kernel and stop.
func (c *Client) Down(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/down", nil, nil)
}

func policyPath(name string) string {
	return "/v1/containers/" + url.PathEscape(name) + "/policy"
}

func (c *Client) call(ctx context.Context, method, path string, body, result any) error {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://weir"+path, reader)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	response, err := c.http.Do(request)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w on %s: start one with `weir agent --uplink IF --rate RATE`, or say where it listens with --socket", ErrNoAgent, c.socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("not allowed to use %s: run as root (sudo), or as a member of the agent's socket_group", c.socket)
	case err != nil:
		return fmt.Errorf("ask the agent: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var problem v1.Error
		if err := json.NewDecoder(response.Body).Decode(&problem); err != nil || problem.Message == "" {
			return fmt.Errorf("the agent answered %s", response.Status)
		}
		return errors.New(problem.Message)
	}
	if result == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(result); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}
