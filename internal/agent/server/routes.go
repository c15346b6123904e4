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
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/access"
	"github.com/weir-project/weir/internal/agent"
	"github.com/weir-project/weir/internal/explain"
)

// route is one thing that the API does. What it says of itself is what
// openapi.json says.
type route struct {
	method, path string
	// role is what it takes to ask for it.
	role    access.Role
	summary string
	query   []parameter
	// request and response are of the types of the bodies; nil where there is none.
	request, response any
	// kind is the content type of the response; "" for JSON.
	kind string
	// header are what else it reads of a request.
	header []parameter
	// handle answers with JSON; tagged does, and sets headers; stream does all by
	// itself.
	handle func(*http.Request) (any, error)
	tagged func(http.ResponseWriter, *http.Request) (any, error)
	stream http.HandlerFunc
}

// parameter is one of a route's query. Its value is of the type of its default.
type parameter struct {
	name, summary string
	value         any
}

var ifMatch = []parameter{{"If-Match", "the ETag of the policy that is to be changed: 412 if it is another one now", ""}}

//go:embed openapi.json
var openAPI json.RawMessage

// routes are all that there is.
func (a *API) routes() []route {
	return []route{
		{
			method: "GET", path: "/v1/snapshot", role: access.Read, summary: "All that the agent knows, of one moment",
			response: v1.Snapshot{}, handle: a.snapshot,
		},
		{
			method: "GET", path: "/v1/status", role: access.Read, summary: "The agent and its uplinks",
			response: v1.Status{}, handle: a.status,
		},
		{
			method: "GET", path: "/v1/uplinks", role: access.Read, summary: "The uplinks that are shared out, one by one",
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
			method: "GET", path: "/v1/containers/{name}/history", role: access.Read, summary: "What a container did in the last three minutes, second by second",
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
			method: "POST", path: "/v1/containers/{name}/policy/preview", role: access.Read, summary: "What a change of policy would do, to everybody; nothing is changed",
			request: v1.PolicyChange{}, response: v1.Preview{}, handle: a.preview,
		},
		{
			method: "GET", path: "/v1/flows", role: access.Read, summary: "Live flows of containers whose class is auto, those of each that were seen last",
			query: []parameter{
				{"container", "only those of this container, by name or ID", ""},
				{"limit", "so many of each container at most; 0 for as many as there may be (20,000 of all)", uint64(defaultFlows)},
			},
			response: []v1.Flow{}, stream: a.few(manyFlows, a.answer(a.flows)),
		},
		{
			method: "GET", path: "/v1/node", role: access.Read, summary: "The host, what its containers use, and what its uplinks have to give",
			response: v1.Node{}, handle: a.node,
		},
		{
			method: "GET", path: "/v1/access", role: access.Read, summary: "Who asks, and what they may do",
			response: v1.Access{}, handle: func(r *http.Request) (any, error) {
				caller := access.Of(r.Context())
				return v1.Access{Name: caller.Name, Role: caller.Role.String()}, nil
			},
		},
		{
			method: "GET", path: "/v1/events", role: access.Read, summary: "What happened lately and what happens, one JSON object a line; as server-sent events for who accepts text/event-stream",
			query: []parameter{
				{"since", "only what came after the event with this number", uint64(0)},
				{"follow", "go on with what happens from now on", true},
			},
			header:   []parameter{{"Last-Event-ID", "of server-sent events: go on after the event with this number", uint64(0)}},
			response: v1.Event{}, kind: "application/x-ndjson", stream: a.events,
		},
		{
			method: "POST", path: "/v1/reload", role: access.Admin, summary: "Read the configuration file again",
			response: struct{}{}, handle: func(r *http.Request) (any, error) { return struct{}{}, a.agent.Reload(r.Context()) },
		},
		{
			method: "POST", path: "/v1/down", role: access.Root, summary: "Take everything out of the kernel and stop; for root only",
			response: struct{}{}, handle: a.down,
		},
		{
			method: "GET", path: "/v1/openapi.json", role: access.Read, summary: "This document",
			response: json.RawMessage{}, handle: func(*http.Request) (any, error) { return openAPI, nil },
		},
		{
			method: "GET", path: "/metrics", role: access.Read, summary: "What the agent knows, for Prometheus",
			response: "", kind: "text/plain", stream: a.metrics,
		},
	}
}

func (a *API) snapshot(r *http.Request) (any, error) {
	seen, err := a.agent.Latest(r.Context())
	if err != nil {
		return nil, err
	}
	return seen.Snapshot, nil
}

func (a *API) status(r *http.Request) (any, error) {
	seen, err := a.agent.Latest(r.Context())
	if err != nil {
		return nil, err
	}
	return seen.Status, nil
}

func (a *API) uplinks(r *http.Request) (any, error) {
	seen, err := a.agent.Latest(r.Context())
	if err != nil {
		return nil, err
	}
	return append([]v1.Uplink{}, seen.Status.Uplinks...), nil // a list, also of none
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
	return explain.Container(seen, index), nil
}

// defaultFlows is how many flows of each container are told of if nobody asks for more.
const defaultFlows = 1000

// fewFlows is how many flows are no large answer: as many as the dashboard shows of a
// container.
const fewFlows = 100

func (a *API) flows(r *http.Request) (any, error) {
	limit, err := flowLimit(r)
	if err != nil {
		return nil, err
	}
	return a.agent.Flows(r.Context(), r.URL.Query().Get("container"), limit)
}

// manyFlows says whether a request asks for flows that take megabytes.
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

// preview says what a change would do. What the agent has against it is part of that.
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
	case errors.Is(err, agent.ErrRefused):
		preview := explain.Preview(seen, index, c.Policy)
		preview.Refused = err.Error()
		return preview, nil
	case err != nil:
		return nil, err
	}
	return explain.Preview(seen, index, after), nil
}

// find is the container that a request names, in the latest snapshot.
func (a *API) find(r *http.Request) (seen v1.Snapshot, index int, err error) {
	latest, err := a.agent.Latest(r.Context())
	if err != nil {
		return seen, 0, err
	}
	index, err = agent.Find(latest.Containers, r.PathValue("name"))
	return latest.Snapshot, index, err
}

func (a *API) node(r *http.Request) (any, error) {
	latest, err := a.agent.Latest(r.Context())
	if err != nil {
		return nil, err
	}
	return a.meter.Measure(time.Now(), latest)
}

// readChange is the body of a request that is to change a policy, or to try it.
func readChange(r *http.Request) (v1.PolicyChange, error) {
	var change *v1.PolicyChange
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&change)
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		return v1.PolicyChange{}, &tooLargeError{fmt.Errorf("read the policy: the request has more than %d bytes; a change of all values has less than 500", large.Limit)}
	}
	if kind := new(json.UnmarshalTypeError); errors.As(err, &kind) && kind.Field != "" {
		return v1.PolicyChange{}, &badRequestError{fmt.Errorf(`read the policy: %s is a %s; write text, as in labels, such as {"weight": "300"}`, kind.Field, kind.Value)}
	}
	if err != nil {
		return v1.PolicyChange{}, &badRequestError{fmt.Errorf("read the policy: %w", err)}
	}
	if _, err = decoder.Token(); !errors.Is(err, io.EOF) {
		return v1.PolicyChange{}, &badRequestError{errors.New("read the policy: something follows it")}
	}
	if change == nil {
		return v1.PolicyChange{}, &badRequestError{errors.New(`read the policy: write an object with what is to change, such as {"weight": "300"}`)}
	}
	return *change, nil
}
