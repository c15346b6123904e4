package server

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/openapi"
)

// TestOpenAPI holds openapi.json to the routes, the types of api/v1 and what these
// say of themselves. It is made when Weir is built, not when it runs: that would
// cost a small daemon memory for something that never changes.
// Renew it with: go test ./internal/agent/server -run TestOpenAPI -update
func TestOpenAPI(t *testing.T) {
	openapi.Compare(t, "openapi.json", described())
}

func described() openapi.API {
	api := openapi.API{
		Title:       "Weir",
		Description: "The agent's API, on its Unix socket. Rates are bits per second. Fields and paths are only ever added.",
		Name:        "name, ID, start of the ID, service or pod of a container; host for the host class",
		Names:       map[string]string{"uplink": "name of the device"},
		Sources:     []string{"../../../api/v1/*.go"},
	}
	for _, r := range (&API{}).routes() {
		o := openapi.Operation{
			Method: r.method, Path: r.path, Summary: r.summary, Request: r.request, Response: r.response, Kind: r.kind, Tagged: r.tagged != nil,
		}
		for _, p := range r.query {
			o.Query = append(o.Query, openapi.Parameter{Name: p.name, Summary: p.summary, Value: p.value})
		}
		for _, p := range r.header {
			o.Header = append(o.Header, openapi.Parameter{Name: p.name, Summary: p.summary, Value: p.value})
		}
		api.Operations = append(api.Operations, o)
	}
	return api
}

// Everything in the document is there, and nothing else.
func TestOpenAPIIsServed(t *testing.T) {
	agent, client := serveAgent(t)
	agent.uplinks = []v1.Uplink{{Name: "eth0"}}
	named := strings.NewReplacer("{name}", "web", "{uplink}", "eth0")
	var document struct {
		Paths map[string]map[string]struct {
			RequestBody *struct{}
		}
		Components struct {
			Schemas map[string]struct {
				AdditionalProperties *bool
				Properties           map[string]struct{ Description string }
			}
		}
	}
	if _, body := rawRequest(t, client, "GET", "/v1/openapi.json", ""); json.Unmarshal([]byte(body), &document) != nil {
		t.Fatalf("not JSON: %.100q", body)
	}
	count := 0
	for path, methods := range document.Paths {
		for method := range methods {
			count++
			status, _ := rawRequest(t, client, strings.ToUpper(method), named.Replace(path)+"?follow=false", "{}")
			if status != http.StatusOK {
				t.Errorf("%s %s: %d", method, path, status)
			}
		}
	}
	if want := len((&API{}).routes()); count != want {
		t.Errorf("%d operations, want %d", count, want)
	}
	change := document.Components.Schemas["PolicyChange"]
	if change.AdditionalProperties == nil || *change.AdditionalProperties || len(change.Properties) != reflect.TypeOf(v1.PolicyChange{}).NumField() {
		t.Errorf("a change of policy: %+v", change)
	}
	if text := document.Components.Schemas["Policy"].Properties["min_bps"].Description; !strings.Contains(text, "guaranteed egress rate") {
		t.Errorf("min_bps is described as %q", text)
	}
}
