package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/weir-project/weir/internal/share/policy"
)

// MaxBytes and maxDepth are the most that a specification may be. It comes from people,
// and from registries.
const (
	MaxBytes = 1 << 20
	maxDepth = 8
)

// value is a JSON value that knows where it is: "QoS.responseTime", "ports[1].host".
type value struct {
	path string
	kind kind
	// text is that of a string, or of a number as it is written.
	text    string
	members []member
	items   []*value
}

type member struct {
	name string
	*value
}

type kind string

const (
	kindObject kind = "an object"
	kindList   kind = "a list"
	kindText   kind = "a text"
	kindNumber kind = "a number"
	kindBool   kind = "true or false"
	kindNull   kind = "null"
)

// parseTree reads one JSON value. Unlike encoding/json it refuses a repeated key, of which
// readers take different ones.
func parseTree(data []byte) (*value, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("a specification has at most %d bytes, and this has %d", MaxBytes, len(data))
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	root, err := readValue(decoder, "", 0)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the specification; write one object only")
		}
	}
	if err != nil {
		return nil, locate(data, int(decoder.InputOffset()), err)
	}
	return root, nil
}

// locate adds the line and column of the reader to an error.
func locate(data []byte, offset int, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		offset = max(int(syntax.Offset)-1, 0)
	}
	offset = min(offset, len(data))
	offset = len(data) - len(bytes.TrimLeft(data[offset:], " \t\r\n,:"))
	line := 1 + bytes.Count(data[:offset], []byte("\n"))
	column := offset - bytes.LastIndexByte(data[:offset], '\n')
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it ends too early")
	case offset < len(data) && data[offset] == '\'':
		err = errors.New(`names and texts are in double quotes ("), not in single ones`)
	}
	return fmt.Errorf("line %d, column %d: %w", line, column, err)
}

func readValue(decoder *json.Decoder, path string, depth int) (*value, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	v := &value{path: path}
	switch t := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, fmt.Errorf("%s: is nested too deeply", path)
		}
		if t == '[' {
			v.kind = kindList
			return v, v.readItems(decoder, depth)
		}
		v.kind = kindObject
		return v, v.readMembers(decoder, depth)
	case string:
		v.kind, v.text = kindText, t
	case json.Number:
		v.kind, v.text = kindNumber, t.String()
	case bool:
		v.kind = kindBool
	default:
		v.kind = kindNull
	}
	return v, nil
}

func (v *value) readItems(decoder *json.Decoder, depth int) error {
	for decoder.More() {
		item, err := readValue(decoder, fmt.Sprintf("%s[%d]", v.path, len(v.items)), depth+1)
		if err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
	_, err := decoder.Token()
	return err
}

func (v *value) readMembers(decoder *json.Decoder, depth int) error {
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return err
		}
		name := token.(string) // the decoder takes nothing else for a name
		path := strings.TrimPrefix(v.path+"."+printable(name), ".")
		if seen[name] {
			return fmt.Errorf("%s: is given twice", path)
		}
		seen[name] = true
		item, err := readValue(decoder, path, depth+1)
		if err != nil {
			return err
		}
		v.members = append(v.members, member{name, item})
	}
	_, err := decoder.Token()
	return err
}

// printable returns a name that is safe to show on a terminal.
func printable(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || strings.ContainsAny(name, " .[]") && !strings.HasPrefix(name, policy.Prefix) {
		return quoted
	}
	return name
}

func (v *value) member(name string) *value {
	for _, m := range v.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}
