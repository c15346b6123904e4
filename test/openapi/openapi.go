// Package openapi makes the OpenAPI document of an API from its routes, the types of its
// bodies and what these say of themselves. That is done by tests and not by a program
// that runs, which it would cost memory for something that never changes.
package openapi

import (
	"cmp"
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

// API is what a document describes.
type API struct {
	Title, Description string
	// Name is what {name} in a path is, and Names are others by what is in braces.
	Name  string
	Names map[string]string
	// Sources are the files that the bodies' types are in.
	Sources    []string
	Operations []Operation
}

// Operation is a route.
type Operation struct {
	Method, Path, Summary string
	Query, Header         []Parameter
	// Request and Response are of the types of the bodies; nil where there is none.
	Request, Response any
	// Kind is the content type of the response, Accepts of the request; "" for JSON.
	Kind, Accepts string
	// Tagged: the response has an ETag.
	Tagged bool
}

// Parameter is one of a route's. Its value is of the type of its default.
type Parameter struct {
	Name, Summary string
	Value         any
}

// Compare fails the test if the file at path is not what the API is.
func Compare(t testing.TB, path string, api API) {
	t.Helper()
	data, err := json.MarshalIndent(describe(t, api), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, path, string(data)+"\n")
}

func describe(t testing.TB, api API) *huma.OpenAPI {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	document := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: api.Title, Version: "v1", Description: api.Description,
		},
		Paths:      map[string]*huma.PathItem{},
		Components: &huma.Components{Schemas: registry},
	}
	requests := map[string]bool{}
	schema := func(value any) *huma.Schema { return registry.Schema(reflect.TypeOf(value), true, "") }
	body := func(value any) *huma.Schema {
		if _, free := value.(json.RawMessage); free || value == struct{}{} {
			return &huma.Schema{Type: "object"}
		}
		return schema(value)
	}
	for _, r := range api.Operations {
		operation := &huma.Operation{
			Method: r.Method, Path: r.Path, Summary: r.Summary, OperationID: operationID(r),
			Responses: map[string]*huma.Response{"default": {
				Description: "What is wrong",
				Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: schema(v1.Error{})}},
			}},
		}
		for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(r.Path, -1) {
			operation.Parameters = append(operation.Parameters, &huma.Param{
				Name: name[1], In: "path", Required: true, Schema: schema(""),
				Description: cmp.Or(api.Names[name[1]], api.Name),
			})
		}
		for _, p := range r.Query {
			s := *schema(p.Value)
			s.Default = p.Value
			operation.Parameters = append(operation.Parameters, &huma.Param{Name: p.Name, In: "query", Description: p.Summary, Schema: &s})
		}
		for _, p := range r.Header {
			operation.Parameters = append(operation.Parameters, &huma.Param{Name: p.Name, In: "header", Description: p.Summary, Schema: schema(p.Value)})
		}
		if r.Request != nil {
			requests[reflect.TypeOf(r.Request).Name()] = true
			operation.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
				cmp.Or(r.Accepts, "application/json"): {Schema: body(r.Request)},
			}}
		}
		kind := cmp.Or(r.Kind, "application/json")
		operation.Responses[strconv.Itoa(http.StatusOK)] = &huma.Response{Description: "Done", Content: map[string]*huma.MediaType{kind: {Schema: body(r.Response)}}}
		if r.Tagged {
			operation.Responses[strconv.Itoa(http.StatusOK)].Headers = map[string]*huma.Param{"ETag": {Description: "of the policy", Schema: schema("")}}
		}
		item := document.Paths[r.Path]
		if item == nil {
			item = &huma.PathItem{}
			document.Paths[r.Path] = item
		}
		switch r.Method {
		case http.MethodGet:
			item.Get = operation
		case http.MethodPatch:
			item.Patch = operation
		case http.MethodDelete:
			item.Delete = operation
		case http.MethodPost:
			item.Post = operation
		default:
			t.Fatalf("%s is not described", r.Method)
		}
	}
	comment(t, api.Sources, registry.Map())
	for name, s := range registry.Map() {
		if !requests[name] {
			s.AdditionalProperties = nil // what is answered may have more one day
			continue
		}
		for _, property := range s.Properties {
			property.Nullable = property.Ref == "" // and is then as if it were not there; a reference has no type
		}
	}
	return document
}

func operationID(r Operation) string {
	words := strings.FieldsFunc(r.Path, func(c rune) bool { return !('a' <= c && c <= 'z') })
	if words[0] == "v" {
		words = words[1:]
	}
	return strings.ToLower(r.Method) + "-" + strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "name" }), "-")
}

// comment gives schemas the comments of the types and fields that they are of.
func comment(t testing.TB, sources []string, schemas map[string]*huma.Schema) {
	var files []string
	for _, pattern := range sources {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		files = append(files, found...)
	}
	var embedded [][2]string // a type, and one that it embeds
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
					if field.Tag == nil { // embedded: its fields are described where it is declared
						embedded = append(embedded, [2]string{named.Name.Name, field.Type.(*ast.Ident).Name})
						continue
					}
					tag, _ := strconv.Unquote(field.Tag.Value)
					name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
					if property := s.Properties[name]; property != nil && property.Ref == "" {
						property.Description = plain(field.Doc)
					}
				}
			}
		}
	}
	for _, types := range embedded {
		for name, described := range schemas[types[1]].Properties {
			if property := schemas[types[0]].Properties[name]; property.Ref == "" {
				property.Description = described.Description
			}
		}
	}
}

func plain(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }
