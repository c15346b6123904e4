package server

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/golden"
)

// TestOpenAPI holds openapi.json to the routes, the types of api/v1 and what these
// say of themselves. It is made when Weir is built, not when it runs: that would
// cost a small daemon memory for something that never changes.
// Renew it with: go test ./internal/server -run TestOpenAPI -update
func TestOpenAPI(t *testing.T) {
	document := describe(t, (&API{}).routes())
	data, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "openapi.json", string(data)+"\n")
}

func describe(t *testing.T, routes []route) *huma.OpenAPI {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	document := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Weir", Version: "v1",
			Description: "The agent's API, on its Unix socket. Rates are bits per second. Fields and paths are only ever added.",
		},
		Paths:      map[string]*huma.PathItem{},
		Components: &huma.Components{Schemas: registry},
	}
	requests := map[string]bool{}
	schema := func(value any) *huma.Schema { return registry.Schema(reflect.TypeOf(value), true, "") }
	for _, r := range routes {
		operation := &huma.Operation{
			Method: r.method, Path: r.path, Summary: r.summary, OperationID: operationID(r),
			Responses: map[string]*huma.Response{"default": {
				Description: "What is wrong",
				Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: schema(v1.Error{})}},
			}},
		}
		for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(r.path, -1) {
			operation.Parameters = append(operation.Parameters, &huma.Param{
				Name: name[1], In: "path", Required: true, Schema: schema(""),
				Description: "name, ID, start of the ID, service or pod of a container; host for the host class",
			})
		}
		for _, p := range r.query {
			s := *schema(p.value)
			s.Default = p.value
			operation.Parameters = append(operation.Parameters, &huma.Param{Name: p.name, In: "query", Description: p.summary, Schema: &s})
		}
		for _, p := range r.header {
			operation.Parameters = append(operation.Parameters, &huma.Param{Name: p.name, In: "header", Description: p.summary, Schema: schema(p.value)})
		}
		if r.request != nil {
			requests[reflect.TypeOf(r.request).Name()] = true
			operation.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema(r.request)}}}
		}
		kind := r.kind
		if kind == "" {
			kind = "application/json"
		}
		s := &huma.Schema{Type: "object"}
		if _, free := r.response.(json.RawMessage); !free && r.response != struct{}{} {
			s = schema(r.response)
		}
		operation.Responses[strconv.Itoa(http.StatusOK)] = &huma.Response{Description: "Done", Content: map[string]*huma.MediaType{kind: {Schema: s}}}
		if r.tagged != nil {
			operation.Responses[strconv.Itoa(http.StatusOK)].Headers = map[string]*huma.Param{"ETag": {Description: "of the policy", Schema: schema("")}}
		}
		item := document.Paths[r.path]
		if item == nil {
			item = &huma.PathItem{}
			document.Paths[r.path] = item
		}
		switch r.method {
		case http.MethodGet:
			item.Get = operation
		case http.MethodPatch:
			item.Patch = operation
		case http.MethodDelete:
			item.Delete = operation
		case http.MethodPost:
			item.Post = operation
		default:
			t.Fatalf("%s is not described", r.method)
		}
	}
	comment(t, registry.Map())
	for name, s := range registry.Map() {
		if !requests[name] {
			s.AdditionalProperties = nil // what is answered may have more one day
			continue
		}
		for _, property := range s.Properties {
			property.Nullable = true // and is then as if it were not there
		}
	}
	return document
}

func operationID(r route) string {
	words := strings.FieldsFunc(r.path, func(c rune) bool { return !('a' <= c && c <= 'z') })
	if words[0] == "v" {
		words = words[1:]
	}
	return strings.ToLower(r.method) + "-" + strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "name" }), "-")
}

// comment gives schemas the comments of the types and fields that they are of.
func comment(t *testing.T, schemas map[string]*huma.Schema) {
	files, err := filepath.Glob("../../api/v1/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal("no api/v1", err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, data, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok || general.Tok != token.TYPE {
				continue
			}
			for _, spec := range general.Specs {
				named := spec.(*ast.TypeSpec)
				s := schemas[named.Name.Name]
				if s == nil {
					continue
				}
				s.Description = plain(general.Doc)
				fields, ok := named.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range fields.Fields.List {
					tag, _ := strconv.Unquote(field.Tag.Value)
					name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
					if property := s.Properties[name]; property != nil && property.Ref == "" {
						property.Description = plain(field.Doc)
					}
				}
			}
		}
	}
}

func plain(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }

// Everything in the document is there, and nothing else.
func TestOpenAPIIsServed(t *testing.T) {
	_, client := serveAgent(t)
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
			status, _ := rawRequest(t, client, strings.ToUpper(method), strings.ReplaceAll(path, "{name}", "web")+"?follow=false", "{}")
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
