package report

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// command is a report with a field of its own, as commands have it.
type command struct {
	Report
	Suite string `json:"suite"`
}

func TestParse(t *testing.T) {
	want := command{sample(), "suite"}
	want.Quantities = []Quantity{{Case: "a", Name: "b", Unit: "c", Better: Higher, Values: []float64{1, 2}}}
	text, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	var got command
	if err := Parse(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if kind, err := ParseKind(text); err != nil || kind.Suite != "suite" {
		t.Errorf("%+v, %v", kind, err)
	}
}

// TestParseRefuses: what is wrong is said with line and column.
func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"{\n  \"format\": 1,\n  \"sweet\": 2\n}", `line 3, column 3: unknown field "sweet"`},
		{"{\n  \"format\": 1,\n  \"environment\": {\"machine\": \"ü\", \"colour\": 1}\n}", `line 3, column 35: unknown field "environment/colour"`},
		{"{\n  \"format\": 1,\n  \"runs\": \"5mbit\"\n}", `line 3, column 11: runs is`},
		{"{\n  \"format\": 1,\n  \"quantities\": [\n    {\"case\": \"x\", \"values\": [\"1 s\"]}\n  ]\n}", "line 4, column 30: quantities/0/values/0 is"},
		{"{\n  \"format\": 1\n", "line 3, column 1: it is no JSON"},
		{"{\n\"format\": 1,\n  oops}", "line 3, column 3: it is no JSON"},
		{"[]", "line 1, column 1"},
		{"{}", "its format is 0; this version of weir reads 1 to 1"},
		{"{\"format\": 9}", "its format is 9"},
		{"{\"format\": 1, \"quantities\": [{\"case\": \"a\", \"name\": \"\", \"values\": [1]}]}", "without case or name"},
		{"{\"format\": 1, \"quantities\": [{\"case\": \"a\", \"name\": \"b\"}]}", "a: b has no values"},
		{"{\"format\": 1, \"quantities\": [{\"case\": \"a\", \"name\": \"b\", \"better\": \"more\", \"values\": [1]}]}", `better is "more"`},
	} {
		var got command
		if err := Parse([]byte(test.text), &got); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.text, err, test.want)
		}
	}
	if _, err := ParseKind([]byte("{\"suite\": 5}")); err == nil || !strings.Contains(err.Error(), "line 1, column 11: suite is a number, but must be a string") {
		t.Errorf("error %v", err)
	}
}
