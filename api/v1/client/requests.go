package client

import (
	"context"
	"net/http"
	"net/url"

	v1 "github.com/weir-project/weir/api/v1"
)

// Snapshot is all that the agent knows, of one moment.
func (c *Client) Snapshot(ctx context.Context) (v1.Snapshot, error) {
	var seen v1.Snapshot
	return seen, c.call(ctx, http.MethodGet, "/v1/snapshot", nil, &seen)
}

// Status describes the agent and its uplinks.
func (c *Client) Status(ctx context.Context) (v1.Status, error) {
	var status v1.Status
	return status, c.call(ctx, http.MethodGet, "/v1/status", nil, &status)
}

// Node describes the host, what its containers use, and what its uplinks have to give.
func (c *Client) Node(ctx context.Context) (v1.Node, error) {
	var node v1.Node
	return node, c.call(ctx, http.MethodGet, "/v1/node", nil, &node)
}

// Containers lists the containers, and the host class as the last one.
func (c *Client) Containers(ctx context.Context) ([]v1.Container, error) {
	var list []v1.Container
	return list, c.call(ctx, http.MethodGet, "/v1/containers", nil, &list)
}

// Explain says why a container gets what it gets. Containers are named as for `weir
// set`.
func (c *Client) Explain(ctx context.Context, name string) (v1.Explanation, error) {
	var explanation v1.Explanation
	return explanation, c.call(ctx, http.MethodGet, containerPath(name, "explain"), nil, &explanation)
}

// History is what a container did in the last three minutes, second by second.
func (c *Client) History(ctx context.Context, name string) (v1.History, error) {
	var history v1.History
	return history, c.call(ctx, http.MethodGet, containerPath(name, "history"), nil, &history)
}

// Set changes a container's policy until it stops.
func (c *Client) Set(ctx context.Context, name string, change v1.PolicyChange) (v1.Container, error) {
	var container v1.Container
	return container, c.call(ctx, http.MethodPatch, containerPath(name, "policy"), change, &container)
}

// Reset goes back to the policy of a container's labels and the configuration.
func (c *Client) Reset(ctx context.Context, name string) (v1.Container, error) {
	var container v1.Container
	return container, c.call(ctx, http.MethodDelete, containerPath(name, "policy"), nil, &container)
}

// Reload makes the agent read its configuration again.
func (c *Client) Reload(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/reload", nil, nil)
}

// Down makes the agent take everything out of the kernel and stop. Only root may, on
// the agent's host.
func (c *Client) Down(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/down", nil, nil)
}

func containerPath(name, what string) string {
	return "/v1/containers/" + url.PathEscape(name) + "/" + what
}
