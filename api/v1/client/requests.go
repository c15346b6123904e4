package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
)

// Snapshot returns the agent's whole state at one moment.
func (c *Client) Snapshot(ctx context.Context) (v1.Snapshot, error) {
	var seen v1.Snapshot
	return seen, c.call(ctx, http.MethodGet, "/v1/snapshot", nil, &seen)
}

// Status returns the state of the agent and its uplinks.
func (c *Client) Status(ctx context.Context) (v1.Status, error) {
	var status v1.Status
	return status, c.call(ctx, http.MethodGet, "/v1/status", nil, &status)
}

// Node returns the host's resources, its containers' usage, and the free capacity of its
// uplinks. Of the containers with these names it counts connections, too.
func (c *Client) Node(ctx context.Context, counted ...string) (v1.Node, error) {
	var node v1.Node
	path := "/v1/node"
	if len(counted) > 0 {
		path += "?connections=" + url.QueryEscape(strings.Join(counted, ","))
	}
	return node, c.call(ctx, http.MethodGet, path, nil, &node)
}

// Access returns the caller's identity and role.
func (c *Client) Access(ctx context.Context) (v1.Access, error) {
	var who v1.Access
	return who, c.call(ctx, http.MethodGet, "/v1/access", nil, &who)
}

// SetRoom says which other node of weir-edge can promise the most. It counts for [v1.RoomSilence].
func (c *Client) SetRoom(ctx context.Context, room v1.Room) error {
	return c.call(ctx, http.MethodPost, "/v1/room", room, nil)
}

// Uplinks returns the uplinks that the agent controls.
func (c *Client) Uplinks(ctx context.Context) ([]v1.Uplink, error) {
	var list []v1.Uplink
	return list, c.call(ctx, http.MethodGet, "/v1/uplinks", nil, &list)
}

// Uplink returns one uplink. Errors: an *Error with status 404 if there is none of that
// name.
func (c *Client) Uplink(ctx context.Context, name string) (v1.Uplink, error) {
	var uplink v1.Uplink
	return uplink, c.call(ctx, http.MethodGet, "/v1/uplinks/"+url.PathEscape(name), nil, &uplink)
}

// Containers returns the containers, with the host class last.
func (c *Client) Containers(ctx context.Context) ([]v1.Container, error) {
	var list []v1.Container
	return list, c.call(ctx, http.MethodGet, "/v1/containers", nil, &list)
}

// Explain returns the reasons for a container's share. Containers are named as for `weir
// set`.
func (c *Client) Explain(ctx context.Context, name string) (v1.Explanation, error) {
	var explanation v1.Explanation
	return explanation, c.call(ctx, http.MethodGet, containerPath(name, "explain"), nil, &explanation)
}

// Flows returns the live flows of the containers of class auto, most recent first: of one
// container, or of all if name is empty. limit is the most flows per container; 0 means no
// limit.
func (c *Client) Flows(ctx context.Context, name string, limit uint) ([]v1.Flow, error) {
	query := url.Values{"limit": {strconv.FormatUint(uint64(limit), 10)}}
	if name != "" {
		query.Set("container", name)
	}
	var list []v1.Flow
	return list, c.call(ctx, http.MethodGet, "/v1/flows?"+query.Encode(), nil, &list)
}

// History returns a container's activity of the last three minutes, second by second.
func (c *Client) History(ctx context.Context, name string) (v1.History, error) {
	var history v1.History
	return history, c.call(ctx, http.MethodGet, containerPath(name, "history"), nil, &history)
}

// Policy returns a container's policy and its ETag, for SetIf and ResetIf.
func (c *Client) Policy(ctx context.Context, name string) (policy v1.ContainerPolicy, etag string, err error) {
	response, err := c.send(ctx, http.MethodGet, containerPath(name, "policy"), nil, nil)
	if err != nil {
		return policy, "", err
	}
	defer response.Body.Close()
	return policy, response.Header.Get("ETag"), c.peer.Decode(response, &policy)
}

// Preview returns the effect of a Set without making the change.
func (c *Client) Preview(ctx context.Context, name string, change v1.PolicyChange) (v1.Preview, error) {
	var preview v1.Preview
	return preview, c.call(ctx, http.MethodPost, containerPath(name, "policy/preview"), change, &preview)
}

// Set changes a container's policy until the container stops.
func (c *Client) Set(ctx context.Context, name string, change v1.PolicyChange) (v1.Container, error) {
	return c.SetIf(ctx, name, "", change)
}

// SetIf is Set on condition that the policy still has the ETag. Errors: an *Error with
// status 412 if it does not.
func (c *Client) SetIf(ctx context.Context, name, etag string, change v1.PolicyChange) (v1.Container, error) {
	return c.change(ctx, http.MethodPatch, name, etag, change)
}

// Reset restores the policy from a container's labels and the configuration.
func (c *Client) Reset(ctx context.Context, name string) (v1.Container, error) {
	return c.ResetIf(ctx, name, "")
}

// ResetIf is Reset on condition that the policy still has the ETag. Errors: as for SetIf.
func (c *Client) ResetIf(ctx context.Context, name, etag string) (v1.Container, error) {
	return c.change(ctx, http.MethodDelete, name, etag, nil)
}

func (c *Client) change(ctx context.Context, method, name, etag string, body any) (v1.Container, error) {
	var container v1.Container
	header := http.Header{}
	if etag != "" {
		header.Set("If-Match", etag)
	}
	response, err := c.send(ctx, method, containerPath(name, "policy"), body, header)
	if err != nil {
		return container, err
	}
	defer response.Body.Close()
	return container, c.peer.Decode(response, &container)
}

// Reload makes the agent read its configuration file again and returns what changed.
func (c *Client) Reload(ctx context.Context) (v1.Reloaded, error) {
	var done v1.Reloaded
	return done, c.call(ctx, http.MethodPost, "/v1/reload", nil, &done)
}

// Down makes the agent remove everything from the kernel and stop. Only root on the agent's
// host may call it.
func (c *Client) Down(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/down", nil, nil)
}

func containerPath(name, what string) string {
	return "/v1/containers/" + url.PathEscape(name) + "/" + what
}
