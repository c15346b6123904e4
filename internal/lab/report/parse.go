package report

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ParseError is what is wrong with a file, and where.
type ParseError struct {
	// Line and Column count from 1; a column is a character.
	Line, Column int
	Reason       string
}

// Error returns the position and the reason.
func (e *ParseError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// Kind is what tells the reports of commands apart: `weir bench` names the suite,
// `weir model` the model, and what it swept.
type Kind struct {
	Suite string `json:"suite"`
	Model string `json:"model"`
	Sweep string `json:"sweep"`
}

// ParseKind reads no more of a report than what kind it is.
func ParseKind(data []byte) (Kind, error) {
	var kind Kind
	return kind, placed(data, json.Unmarshal(data, &kind))
}

// Parse reads a report into a pointer to a command's own type, strictly: a field that the
// type does not have is an error, as is a value of another type.
func Parse(data []byte, into Result) error {
	if err := Strict(data, into); err != nil {
		return err
	}
	found := into.Base()
	if found.Format < 1 || found.Format > Format {
		return fmt.Errorf("its format is %d; this version of weir reads 1 to %d", found.Format, Format)
	}
	for _, q := range found.Quantities {
		if err := q.check(); err != nil {
			return err
		}
	}
	return nil
}

// Strict decodes JSON; a field that is not known and a value of another type are errors
// with line and column.
func Strict(data []byte, into any) error {
	return placed(data, json.Unmarshal(data, into, json.RejectUnknownMembers(true)))
}

// placed adds the position in data to an error of the decoder.
func placed(data []byte, err error) error {
	if err == nil {
		return nil
	}
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &semantic):
		return semanticError(data, semantic)
	case errors.As(err, &syntax):
		return at(data, int(syntax.ByteOffset), "it is no JSON: "+syntax.Err.Error())
	}
	return err
}

// semanticError explains which value was expected.
func semanticError(data []byte, e *json.SemanticError) error {
	// The decoder stands before the value, or before its name.
	offset := int(e.ByteOffset)
	offset += len(data[offset:]) - len(bytes.TrimLeft(data[offset:], " \t\r\n,:"))
	name := strings.TrimPrefix(string(e.JSONPointer), "/")
	if errors.Is(e.Err, json.ErrUnknownName) {
		return at(data, offset, fmt.Sprintf("unknown field %q", name))
	}
	if e.GoType != nil {
		value := string(e.JSONValue)
		if value == "" {
			value = "a " + e.JSONKind.String()
		}
		return at(data, offset, fmt.Sprintf("%s is %s, but must be a %s: rates are numbers in bits per second, times in the unit that the field's name says", name, value, e.GoType))
	}
	return at(data, offset, e.Error())
}

func at(data []byte, offset int, reason string) error {
	before := data[:min(max(offset, 0), len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return &ParseError{Line: line, Column: column, Reason: reason}
}
