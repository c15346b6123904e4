package server

import (
	_ "embed" // openapi.json
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/metrics"
	"github.com/weir-project/weir/internal/front/exposition"
)

// route is an operation of the API, with its description for openapi.json.
type route struct {
	method, path, summary string
	query                 []parameter
	// request and response are of the types of the bodies; nil where there is none.
	request, response any
	// kind is the content type of the response, accepts of the request; "" for JSON.
	kind, accepts string
	timeout       time.Duration
	// upload: the request may be as large as an image.
	upload bool
	// handle answers with JSON; stream does all by itself.
	handle func(*http.Request) (any, error)
	stream http.HandlerFunc
}

// parameter is a parameter of a query; value is its default.
type parameter struct {
	name, summary string
	value         any
}

//go:embed openapi.json
var openAPI json.RawMessage

// routes returns all operations.
func (a *api) routes() []route {
	return []route{
		{
			method: "GET", path: "/v1/snapshot", summary: "All that weir-edge knows, of one moment", response: edge.Snapshot{},
			handle: func(*http.Request) (any, error) { return a.snapshot(), nil },
		},
		{
			method: "GET", path: "/v1/instances", summary: "The instances of all services", response: []edge.Instance{},
			handle: func(*http.Request) (any, error) { return a.Manager.Snapshot().Instances, nil },
		},
		{
			method: "GET", path: "/v1/nodes", summary: "All nodes and what they have left", response: []edge.Node{},
			handle: func(*http.Request) (any, error) { return a.Manager.Snapshot().Nodes, nil },
		},
		{
			method: "GET", path: "/v1/nodes/picasso", summary: "What the agents of all nodes said last, in the paper's words: {\"nodes\": [...]}, each as its /v1/node", response: json.RawMessage{},
			handle: func(*http.Request) (any, error) { return a.Manager.Monitored(), nil },
		},
		{
			method: "GET", path: "/v1/services", summary: "All services and what their users see of them", response: []edge.Service{},
			handle: func(*http.Request) (any, error) { return a.Manager.Snapshot().Services, nil },
		},
		{
			method: "POST", path: "/v1/services", summary: "Deploy a service: its specification, or PiCasso's deployment descriptor",
			request: json.RawMessage{}, response: edge.Deployed{}, timeout: deployTimeout, handle: a.deploy,
		},
		{
			method: "DELETE", path: "/v1/services/{name}", summary: "Remove a service and all its instances", response: struct{}{},
			handle: func(r *http.Request) (any, error) {
				return struct{}{}, a.Manager.Remove(r.Context(), r.PathValue("name"))
			},
		},
		{
			method: "GET", path: "/v1/services/{name}/explain", summary: "Why a service has the instances that it has", response: edge.Explanation{},
			handle: func(r *http.Request) (any, error) { return a.Manager.Explain(r.PathValue("name")) },
		},
		{
			method: "GET", path: "/v1/repository", summary: "The services in the repository", response: []edge.Stored{},
			handle: func(*http.Request) (any, error) { return a.Repository.List() },
		},
		{
			method: "POST", path: "/v1/repository", summary: "Put a service into the repository: the part specification, and then the part image, an archive as docker save makes it",
			accepts: "multipart/form-data", request: json.RawMessage{}, response: edge.Stored{}, timeout: deployTimeout, upload: true, handle: a.push,
		},
		{
			method: "DELETE", path: "/v1/repository/{name}", summary: "Take a service that is not deployed out of the repository", response: struct{}{},
			handle: func(r *http.Request) (any, error) { return struct{}{}, a.discard(r.PathValue("name")) },
		},
		{
			method: "POST", path: "/v1/repository/{name}/deploy", summary: "Deploy a service of the repository",
			response: edge.Deployed{}, timeout: deployTimeout, handle: a.deployStored,
		},
		{
			method: "GET", path: "/v1/events", summary: "Recent and current events, one JSON object a line",
			query: []parameter{
				{"since", "only what came after the event with this number", uint64(0)},
				{"follow", "go on with what happens from now on", true},
			},
			response: edge.Event{}, kind: "application/x-ndjson", stream: a.events,
		},
		{
			method: "POST", path: "/v1/stop", summary: "End weir-edge; what runs goes on", response: struct{}{},
			handle: func(*http.Request) (any, error) {
				a.Stop()
				return struct{}{}, nil
			},
		},
		{
			method: "GET", path: "/v1/openapi.json", summary: "This document", response: json.RawMessage{},
			handle: func(*http.Request) (any, error) { return openAPI, nil },
		},
		{
			method: "GET", path: "/metrics", summary: "What weir-edge knows, for Prometheus", response: "", kind: "text/plain", stream: a.metrics,
		},
	}
}

func (a *api) snapshot() edge.Snapshot {
	s := a.Manager.Snapshot()
	s.Version, s.Repository = a.Version, a.Address
	s.EngineSocket, s.Cluster, s.StateDir = a.EngineSocket, a.Cluster, a.StateDir
	return s
}

func (a *api) deploy(r *http.Request) (any, error) {
	document, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the specification: %w", err)
	}
	return a.Manager.Deploy(r.Context(), document)
}

func (a *api) metrics(w http.ResponseWriter, _ *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(requestTimeout))
	w.Header().Set("Content-Type", exposition.ContentType)
	if err := metrics.Write(w, a.snapshot(), a.Manager.Events().Counts()); err != nil {
		a.Log.Debug("cannot answer a scrape", "error", err)
	}
}
