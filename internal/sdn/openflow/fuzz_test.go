package openflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

// FuzzParse reads anything, and what can be read it writes and reads again.
func FuzzParse(f *testing.F) {
	for _, m := range samples() {
		f.Add(mustMarshal(f, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		m, err := Parse(b)
		if !bytes.Equal(b, before) {
			t.Fatal("Parse wrote to its input")
		}
		if err != nil {
			var bad *Error
			if m != nil || !errors.As(err, &bad) || bad.Offset < 0 || bad.Offset > len(b) {
				t.Fatalf("message %v, error %#v", m, err)
			}
			return
		}
		written := mustMarshal(t, m)
		if len(written) != len(b) {
			t.Fatalf("%d bytes became %d", len(b), len(written))
		}
		again, err := Parse(written)
		if err != nil {
			t.Fatalf("%v in what was written", err)
		}
		if !reflect.DeepEqual(again, m) {
			t.Fatalf("%s became %s", Format(m, true), Format(again, true))
		}
		checkShared(t, b, m, written)
		if text := Format(m, false); !json.Valid(text) {
			t.Fatalf("no JSON: %s", text)
		}
	})
}

// checkShared reads a message without copies of its parts, and writes it behind
// others.
func checkShared(t testing.TB, b []byte, m Message, written []byte) {
	t.Helper()
	shared, err := ParseShared(b)
	if err != nil || !reflect.DeepEqual(shared, m) {
		t.Fatalf("%v; shared: %s, copied: %s", err, Format(shared, true), Format(m, true))
	}
	both, err := Append([]byte("before"), shared)
	if err != nil || string(both) != "before"+string(written) {
		t.Fatalf("%v; behind other bytes: %x, alone: %x", err, both, written)
	}
}
