package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/weir-project/weir/internal/share/policy"
)

// Error is one mistake in a file.
type Error struct {
	File    string
	Line    int    // from 1
	Path    string // e.g. "containers[0].policy.min", empty for the file as a whole
	Message string // what is wrong, and what to write instead
}

// Error returns "weir.yaml:7: containers[0].policy.min: ...".
func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Message)
	}
	return fmt.Sprintf("%s:%d: %s: %s", e.File, e.Line, e.Path, e.Message)
}

// reader collects the mistakes of a file.
type reader struct {
	file   string
	errors []*Error
}

func (r *reader) fail(line int, path, format string, args ...any) {
	r.errors = append(r.errors, &Error{File: r.file, Line: line, Path: path, Message: fmt.Sprintf(format, args...)})
}

// err returns all mistakes in the order of their lines.
func (r *reader) err() error {
	slices.SortStableFunc(r.errors, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path))
	})
	joined := make([]error, len(r.errors))
	for i, e := range r.errors {
		joined[i] = e
	}
	return errors.Join(joined...)
}

// parse returns the root of the YAML tree; ok is false if there is none.
func (r *reader) parse(data []byte) (root value, ok bool) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // a byte order mark
	// Duplicate keys are allowed here since fields reports them better.
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		line, message := 1, err.Error()
		if at, ok := errors.AsType[yaml.Error](err); ok {
			message = at.GetMessage()
			if token := at.GetToken(); token != nil {
				line = token.Position.Line
			}
		}
		r.fail(line, "", "not valid YAML: %s", message)
		return value{}, false
	}
	var documents []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			documents = append(documents, d.Body)
		}
	}
	if len(documents) == 0 {
		return value{}, false
	}
	if len(documents) > 1 {
		r.fail(documents[1].GetToken().Position.Line, "", "more than one document; remove the line with ---")
		return value{}, false
	}
	return value{r: r, node: documents[0], line: documents[0].GetToken().Position.Line}, true
}

// value is a position in the YAML tree. The zero value stands for an absent one, in which
// all methods find nothing.
type value struct {
	r    *reader
	node ast.Node
	path string
	line int // line of its key, or of the value if it has no key
}

func (v value) given() bool { return v.node != nil }

func (v value) fail(format string, args ...any) { v.r.fail(v.line, v.path, format, args...) }

// fields returns the values of a map by key: empty if nothing is written, nil if it is not
// a map. If known is not empty, other keys are reported and omitted.
func (v value) fields(known ...string) map[string]value {
	if v.isNull() {
		return map[string]value{}
	}
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		v.fail("%s; write keys and values%s", kind(v.node), example(known))
		return nil
	}
	fields := map[string]value{}
	for _, entry := range m.Values {
		at := value{r: v.r, node: entry.Value, path: v.path, line: entry.Key.GetToken().Position.Line}
		key, ok := scalar(entry.Key)
		if !ok {
			at.fail("has a key that is not a plain name (merge keys are not supported)")
			continue
		}
		at.path = strings.TrimPrefix(v.path+"."+key, ".")
		first, duplicate := fields[key]
		switch {
		case duplicate:
			at.fail("is already given on line %d; remove one of them", first.line)
		case len(known) > 0 && !slices.Contains(known, key):
			at.fail("unknown key; %s", suggest(key, known))
		default:
			fields[key] = at
		}
	}
	return fields
}

// example returns how a map with one of the known keys is written, or nothing.
func example(known []string) string {
	if len(known) == 0 {
		return ""
	}
	return fmt.Sprintf(", such as {%s: VALUE}", known[0])
}

// require reports keys that are missing in the fields of a value.
func (v value) require(fields map[string]value, keys ...string) {
	if fields == nil { // not a map, which fields has reported
		return
	}
	for _, key := range keys {
		if !fields[key].given() {
			v.fail("%s is missing", key)
		}
	}
}

func suggest(key string, known []string) string {
	if i := slices.IndexFunc(known, func(name string) bool { return strings.HasPrefix(name, key+".") }); i >= 0 {
		return fmt.Sprintf("write %s: VALUE, a key for each value", known[i])
	}
	if name, ok := policy.Nearest(key, known); ok {
		return fmt.Sprintf("did you mean %s?", name)
	}
	return "known here are " + strings.Join(known, ", ")
}

// items returns the elements of a list.
func (v value) items() []value {
	if v.isNull() {
		return nil
	}
	list, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.fail("%s; write a list, each item after a dash", kind(v.node))
		return nil
	}
	items := make([]value, len(list.Values))
	for i, node := range list.Values {
		items[i] = value{r: v.r, node: node, path: fmt.Sprintf("%s[%d]", v.path, i), line: node.GetToken().Position.Line}
	}
	return items
}

// unique reports a value that occurred before. lines holds the earlier values with their
// lines.
func (v value) unique(lines map[string]int, value, advice string) {
	if first, taken := lines[value]; taken && value != "" {
		v.fail("%q is already used on line %d; %s", value, first, advice)
		return
	}
	lines[value] = v.line
}

// text returns a scalar as it is written.
func (v value) text() (string, bool) {
	if !v.given() {
		return "", false
	}
	if v.isNull() {
		v.fail("is empty; write a value or remove the key")
		return "", false
	}
	text, ok := scalar(v.node)
	if !ok {
		v.fail("%s; write a single value", kind(v.node))
	}
	return text, ok
}

// isNull reports whether the value is empty or null.
func (v value) isNull() bool {
	_, null := v.node.(*ast.NullNode)
	return null || !v.given()
}

// read parses a value into field, if it is present.
func read[T any](v value, field *T, parse func(string) (T, error)) {
	text, ok := v.text()
	if !ok {
		return
	}
	parsed, err := parse(text)
	if err != nil {
		v.fail("%q: %v", text, err)
		return
	}
	*field = parsed
}

// scalar returns the text of a scalar. Numbers and booleans are returned as written, so
// that YAML does not interpret them.
func scalar(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, true
	}
	return "", false
}

// kind returns the name of a node's kind for errors.
func kind(node ast.Node) string {
	switch node.(type) {
	case *ast.MappingNode:
		return "is a map"
	case *ast.SequenceNode:
		return "is a list"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode, *ast.TagNode:
		return "anchors, aliases, merge keys and tags are not supported"
	}
	return "is a single value"
}
