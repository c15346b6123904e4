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
	f.Add([]byte{0x80, 0, byte(OFPXMT_OFB_IPV4_DST)<<1 | 1, 6, 198, 18, 0, 1, 255, 255}) // half a mask
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		m, err := Parse(b)
		if !bytes.Equal(b, before) {
			t.Fatal("Parse wrote to its input")
		}
		for at := range b {
			checkBasic(t, b[at:])
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

// checkBasic reads a match field, and writes it behind others, with codeBasic and with codeAny.
func checkBasic(t testing.TB, b []byte) {
	t.Helper()
	var x, y OXM
	short, long := coder{b: b, end: len(b)}, coder{b: b, end: len(b)}
	done := x.codeBasic(&short)
	y.codeAny(&long)
	if valid := long.err == nil && y.known() != nil; done != valid {
		t.Fatalf("%x: read as basic %v, valid and basic %v", b[:min(len(b), 16)], done, valid)
	}
	if !done {
		if short.off != 0 || !reflect.DeepEqual(x, OXM{}) {
			t.Fatalf("%x: refused, but read to %d as %+v", b[:min(len(b), 16)], short.off, x)
		}
		return
	}
	if short.off != long.off || !reflect.DeepEqual(x, y) {
		t.Fatalf("%+v to %d, and in general %+v to %d", x, short.off, y, long.off)
	}
	short, long = coder{mode: writing, b: []byte("before")}, coder{mode: writing, b: []byte("before")}
	done = x.codeBasic(&short)
	y.codeAny(&long)
	if !done || long.err != nil || !bytes.Equal(short.b, long.b) {
		t.Fatalf("%+v: wrote %x, and in general %x, %v", x, short.b, long.b, long.err)
	}
}
