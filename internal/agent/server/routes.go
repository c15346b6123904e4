package server

import (
	_ "embed" // openapi.json
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/loop"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/node"
	"github.com/weir-project/weir/internal/share/explain"
)

// route is one route of the API. openapi.json is made from these.
type route struct {
	method, path string
	// role is the role that a caller needs.
	role    access.Role
	summary string
	// repeated requests change no policy, and are not logged.
	repeated bool
	query    []parameter
	// request and response have the types of the bodies; nil for no body.
	request, response any
	// kind is the content type of the response; "" for JSON.
	kind string
	// header lists the request headers that the route reads.
	header []parameter
	// One of these is set. handle returns the JSON response, tagged does too and sets headers,
	// stream writes the response itself.
	handle func(*http.Request) (any, error)
	tagged func(http.ResponseWriter, *http.Request) (any, error)
	stream http.HandlerFunc
}

// parameter is a parameter or header of a route; value is its default.
type parameter struct {
	name, summary string
	value         any
}

var ifMatch = []parameter{{"If-Match", "the ETag of the policy to change: 412 if the policy has another one now", ""}}

//go:embed openapi.json
var openAPI json.RawMessage

// routes returns all routes.
func (a *API) routes() []route {
	return []route{
		{
			method: "GET", path: "/v1/snapshot", role: access.Read, summary: "Everything the agent knows, at one moment",
			response: v1.Snapshot{}, handle: a.snapshot,
		},
		{
			method: "GET", path: "/v1/status", role: access.Read, summary: "The agent and its uplinks",
			response: v1.Status{}, handle: a.status,
		},
		{
			method: "GET", path: "/v1/uplinks", role: access.Read, summary: "The shared uplinks",
			response: []v1.Uplink{}, handle: a.uplinks,
		},
		{
			method: "GET", path: "/v1/uplinks/{uplink}", role: access.Read, summary: "One uplink",
			response: v1.Uplink{}, handle: a.uplink,
		},
		{
			method: "GET", path: "/v1/containers", role: access.Read, summary: "The containers, and the host class as the last one",
			response: []v1.Container{}, handle: a.containers,
		},
		{
			method: "GET", path: "/v1/containers/{name}/explain", role: access.Read, summary: "Why a container gets what it gets, and what it would need to get more",
			response: v1.Explanation{}, handle: a.explain,
		},
		{
			method: "GET", path: "/v1/containers/{name}/history", role: access.Read, summary: "A container's last three minutes, second by second",
			response: v1.History{}, handle: a.history,
		},
		{
			method: "GET", path: "/v1/containers/{name}/policy", role: access.Read, summary: "The policy of a container; its ETag is for If-Match",
			response: v1.ContainerPolicy{}, tagged: a.policy,
		},
		{
			method: "PATCH", path: "/v1/containers/{name}/policy", role: access.Admin, summary: "Change the policy of a container until it stops",
			request: v1.PolicyChange{}, response: v1.Container{}, tagged: a.set, header: ifMatch,
		},
		{
			method: "DELETE", path: "/v1/containers/{name}/policy", role: access.Admin, summary: "Go back to the policy of a container's labels and the configuration",
			response: v1.Container{}, tagged: a.reset, header: ifMatch,
		},
		{
			method: "POST", path: "/v1/containers/{name}/policy/preview", role: access.Read, summary: "What a change of policy would do to all containers; nothing is changed",
			request: v1.PolicyChange{}, response: v1.Preview{}, handle: a.preview,
		},
		{
			method: "GET", path: "/v1/flows", role: access.Read, summary: "Live flows of containers whose class is auto, the last seen of each",
			query: []parameter{
				{"container", "only those of this container, by name or ID", ""},
				{"limit", "at most so many of each container; 0 for all (at most 20,000 together)", uint64(defaultFlows)},
			},
			response: []v1.Flow{}, stream: a.limitLarge(manyFlows, a.answer(a.flows)),
		},
		{
			method: "GET", path: "/v1/node", role: access.Read, summary: "The host, what its containers use, and what its uplinks have to give",
			query:    []parameter{{"connections", "also count the connections of these containers, by their names, with commas between them (at most 256); a count may be ten seconds old, and is missing if there is no time for it", ""}},
			response: v1.Node{}, handle: a.node,
		},
		{
			method: "GET", path: "/v1/access", role: access.Read, summary: "The caller of this request and its role",
			response: v1.Access{}, handle: func(r *http.Request) (any, error) {
				caller := access.CallerFrom(r.Context())
				return v1.Access{Name: caller.Name, Role: caller.Role.String()}, nil
			},
		},
		{
			method: "GET", path: "/v1/events", role: access.Read, summary: "Past and new events, one JSON object a line; server-sent events if the request accepts text/event-stream",
			query: []parameter{
				{"since", "only events after the one with this number", uint64(0)},
				{"follow", "go on with new events", true},
			},
			header:   []parameter{{"Last-Event-ID", "of server-sent events: only events after the one with this number", uint64(0)}},
			response: v1.Event{}, kind: "application/x-ndjson", stream: a.events,
		},
		{
			method: "POST", path: "/v1/pods", role: access.Root, summary: "Report the pods of this node, for weir-k8s: a PodsChange a line, each answered by a PodState a line when it is in force; 409 while another one does",
			request: v1.PodsChange{}, response: v1.PodState{}, kind: "application/x-ndjson", stream: a.pods(v1.RuntimeKubernetes),
		},
		{
			method: "POST", path: "/v1/containerd", role: access.Root, summary: "Report the containers of containerd in the same way",
			request: v1.PodsChange{}, response: v1.PodState{}, kind: "application/x-ndjson", stream: a.pods(v1.RuntimeContainerd),
		},
		{
			method: "POST", path: "/v1/room", role: access.Admin, repeated: true, summary: "Say, for weir-edge, which other node can promise the most; it counts for ten seconds",
			request: v1.Room{}, response: struct{}{}, handle: a.setRoom,
		},
		{
			method: "POST", path: "/v1/reload", role: access.Admin, summary: "Read the configuration file again",
			response: v1.Reloaded{}, handle: func(r *http.Request) (any, error) { return a.agent.Reload(r.Context()) },
		},
		{
			method: "POST", path: "/v1/down", role: access.Root, summary: "Remove everything from the kernel and stop; for root only",
			response: struct{}{}, handle: a.down,
		},
		{
			method: "GET", path: "/v1/openapi.json", role: access.Read, summary: "This document",
			response: json.RawMessage{}, handle: func(*http.Request) (any, error) { return openAPI, nil },
		},
		{
			method: "GET", path: "/metrics", role: access.Read, summary: "Metrics, for Prometheus",
			response: "", kind: "text/plain", stream: a.metrics,
		},
	}
}

func (a *API) snapshot(r *http.Request) (any, error) {
	seen, err := a.agent.Latest(r.Context())
	if err != nil {
		return nil, err
	}
	seen.Status.LastEvent = a.agent.Events().Last()
	return seen.Snapshot, nil
}

func (a *API) status(r *http.Request) (any, error) {
	seen, err := a.agent.Latest(r.Context())
	if err != nil {
		return nil, err
	}
	seen.Status.LastEvent = a.agent.Events().Last()
	return seen.Status, nil
}

func (a *API) uplinks(r *http.Request) (any, error) {
	seen, err := a.agent.Latest(r.Context())
	if err != nil {
		return nil, err
	}
	return append([]v1.Uplink{}, seen.Status.Uplinks...), nil // an empty list, not null, if there are none
}

func (a *API) uplink(r *http.Request) (any, error) {
	seen, err := a.agent.Latest(r.Context())
	if err != nil {
		return nil, err
	}
	name := r.PathValue("uplink")
	i := slices.IndexFunc(seen.Status.Uplinks, func(u v1.Uplink) bool { return u.Name == name })
	if i < 0 {
		return nil, &notFoundError{fmt.Errorf("no such uplink: %q; /v1/uplinks lists those that are shared out", name)}
	}
	return seen.Status.Uplinks[i], nil
}

func (a *API) containers(r *http.Request) (any, error) {
	seen, err := a.agent.Latest(r.Context())
	if err != nil {
		return nil, err
	}
	return seen.Containers, nil
}

func (a *API) explain(r *http.Request) (any, error) {
	seen, index, err := a.find(r)
	if err != nil {
		return nil, err
	}
	e := explain.Container(seen.Snapshot, index)
	if room := a.roomElsewhere(seen, index); room != "" {
		explain.Note(&e, "min", room)
	}
	if c := &seen.Containers[index]; c.Policy.Class == v1.ClassAuto {
		// A container without a flow table has no flows to explain.
		if flows, err := a.agent.Flows(r.Context(), c.ID, fewFlows); err == nil {
			explain.Flows(&e, flows)
		}
	}
	return e, nil
}

// defaultFlows is the default limit of flows per container.
const defaultFlows = 1000

// fewFlows is the largest limit whose response does not count as large; the dashboard asks for as
// many per container.
const fewFlows = 100

func (a *API) flows(r *http.Request) (any, error) {
	limit, err := flowLimit(r)
	if err != nil {
		return nil, err
	}
	return a.agent.Flows(r.Context(), r.URL.Query().Get("container"), limit)
}

// manyFlows reports whether a request asks for a large response.
func manyFlows(r *http.Request) bool {
	limit, err := flowLimit(r)
	return err == nil && (limit == 0 || limit > fewFlows || r.URL.Query().Get("container") == "")
}

func flowLimit(r *http.Request) (int, error) {
	query := r.URL.Query()
	if !query.Has("limit") {
		return defaultFlows, nil
	}
	asked := query.Get("limit")
	n, err := strconv.ParseUint(asked, 10, 31)
	if err != nil {
		return 0, &badRequestError{fmt.Errorf("limit=%q is not a number from 0 to 2147483647", asked)}
	}
	return int(n), nil
}

func (a *API) history(r *http.Request) (any, error) {
	seen, index, err := a.find(r)
	if err != nil {
		return nil, err
	}
	return a.agent.History().Of(&seen.Containers[index]), nil
}

// preview returns the effects of a change. A refusal by the agent is part of the response.
func (a *API) preview(r *http.Request) (any, error) {
	change, err := readChange(r)
	if err != nil {
		return nil, err
	}
	seen, index, err := a.find(r)
	if err != nil {
		return nil, err
	}
	c := seen.Containers[index]
	after, err := a.agent.Try(r.Context(), r.PathValue("name"), change)
	switch {
	case errors.Is(err, loop.ErrRefused):
		preview := explain.Preview(seen.Snapshot, index, c.Policy)
		preview.Refused = err.Error()
		return preview, nil
	case err != nil:
		return nil, err
	}
	return explain.Preview(seen.Snapshot, index, after), nil
}

// find returns the latest snapshot and the index of the container that a request names.
func (a *API) find(r *http.Request) (seen *stats.Snapshot, index int, err error) {
	seen, err = a.agent.Latest(r.Context())
	if err != nil {
		return nil, 0, err
	}
	index, err = loop.Find(seen.Containers, r.PathValue("name"))
	return seen, index, err
}

func (a *API) node(r *http.Request) (any, error) {
	latest, err := a.agent.Latest(r.Context())
	if err != nil {
		return nil, err
	}
	seen, err := a.meter.Measure(time.Now(), &latest.Snapshot, places(latest))
	if err == nil && a.Responses != nil {
		var problem error
		if seen.Measured.Responses, problem = a.Responses(); problem != nil {
			seen.Measured.ResponsesReason = problem.Error()
		}
	}
	if names := r.URL.Query().Get("connections"); err == nil && names != "" {
		a.connections.add(r.Context(), strings.Split(names, ","), latest, seen.Measured.Containers)
	}
	return seen, err
}

// readChange decodes the policy change in the body of a request.
func readChange(r *http.Request) (v1.PolicyChange, error) {
	var change *v1.PolicyChange
	err := readBody(r, &change)
	if kind := new(json.UnmarshalTypeError); errors.As(err, &kind) && kind.Field != "" {
		return v1.PolicyChange{}, &badRequestError{fmt.Errorf(`read the policy: %s is a %s; write text, as in labels, such as {"weight": "300"}`, kind.Field, kind.Value)}
	}
	if err != nil {
		return v1.PolicyChange{}, fmt.Errorf("read the policy: %w", err)
	}
	if change == nil {
		return v1.PolicyChange{}, &badRequestError{errors.New(`read the policy: write an object with what is to change, such as {"weight": "300"}`)}
	}
	return *change, nil
}

// readBody decodes the JSON object in the body of a request.
func readBody(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&into) // null sets into to nil, and would leave the value unchanged
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		return &tooLargeError{fmt.Errorf("the request has more than %d bytes", large.Limit)}
	}
	if err != nil {
		return &badRequestError{err}
	}
	if into == nil {
		return &badRequestError{errors.New("the request is null, not a JSON object")}
	}
	if _, err = decoder.Token(); !errors.Is(err, io.EOF) {
		return &badRequestError{errors.New("there is data after the JSON object")}
	}
	return nil
}

// places returns the containers' data that the host's meter needs.
func places(s *stats.Snapshot) []node.Place {
	list := make([]node.Place, len(s.Places))
	for i, p := range s.Places {
		list[i] = node.Place{Image: p.Image, NetNSPath: p.NetNSPath, CgroupPath: p.CgroupPath}
		for _, port := range p.Ports {
			list[i].Ports = append(list[i].Ports, v1.Port{Container: port.Container, Host: port.Host, Protocol: port.Protocol})
		}
	}
	return list
}
