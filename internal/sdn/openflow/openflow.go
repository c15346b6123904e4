// Package openflow reads and writes the messages of OpenFlow 1.3, between a
// switch and its controller.
//
// Every message of the OpenFlow Switch Specification 1.3.5 has a type with
// MarshalBinary and UnmarshalBinary, and Parse returns the message of bytes. The names of types and constants are the specification's, and so are
// those in the JSON that Format writes.
//
// The layout of a message, an action or a match is written once, in spec.txt, from which
// its type and its method code are generated. A coder walks through code to read, to
// write or to format, so that the three cannot disagree. Lengths are never stored: they
// are checked when read, and computed when written.
//
// Extensions of experimenters and vendors (Nicira's actions and match fields
// among them) stay bytes. Everything else that OpenFlow 1.3 does not define is refused,
// with its name and place. A message that is read takes memory in proportion to its
// size.
package openflow

//go:generate go run ./gen spec.txt spec_gen.go

import (
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Version is OpenFlow 1.3 as it stands in headers.
const Version = 4

// HeaderLen is the length of the header that all messages begin with.
const HeaderLen = 8

// MaxLen is the maximum length of a message, limited by the 16-bit length field.
const MaxLen = 1<<16 - 1

// Header is ofp_header without type and length (section 7.1).
type Header struct {
	// Version is the sender's version. 0 means 1.3; only Hello and Error may have others.
	Version uint8
	// XID is the transaction identifier. A reply has that of its request.
	XID uint32
}

func (h *Header) header() *Header { return h }

// Message is one OpenFlow message.
type Message interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
	// MessageType is the type in the header.
	MessageType() Type

	header() *Header
	code(c *coder)
}

// Error says why a message cannot be read or written.
type Error struct {
	What   string // the structure, by its name in the specification
	Offset int    // of the field, in bytes from the start of the message
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("byte %d: %s: %v", e.Offset, e.What, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// ErrUnsupported is the error for values that OpenFlow 1.3 does not define.
var ErrUnsupported = errors.New("not OpenFlow 1.3")

// Parse decodes one whole message. The result shares no memory with b.
func Parse(b []byte) (Message, error) { return parse(b, false) }

// ParseShared is Parse without copies: the result aliases b, which must not change
// afterwards.
func ParseShared(b []byte) (Message, error) { return parse(b, true) }

// ReadShared decodes b into m, a used PacketIn or FlowRemoved, and reuses its memory. The
// result aliases b.
func ReadShared(m Message, b []byte) error { return read(m, b, true) }

func parse(b []byte, shared bool) (Message, error) {
	if len(b) < HeaderLen {
		return nil, &Error{"ofp_header", len(b), io.ErrUnexpectedEOF}
	}
	m := newMessage(Type(b[1]))
	if m == nil {
		return nil, &Error{"ofp_header", 1, fmt.Errorf("message type %d: %w", b[1], ErrUnsupported)}
	}
	if err := read(m, b, shared); err != nil {
		return nil, err
	}
	return m, nil
}

// speaksAnyVersion reports whether a message type has the same layout in all versions, as
// version negotiation needs.
func speaksAnyVersion(t Type) bool { return t == OFPT_HELLO || t == OFPT_ERROR }

// checkVersion returns an error for a header of another version than 1.3, except for types
// that speak any.
func checkVersion(b []byte) error {
	if t := Type(b[1]); b[0] != Version && (b[0] == 0 || !speaksAnyVersion(t)) {
		return &Error{"ofp_header", 0, fmt.Errorf("%v of version %d: %w (version %d)", t, b[0], ErrUnsupported, Version)}
	}
	return nil
}

func unmarshal(m Message, b []byte) error { return read(m, b, false) }

// coders is a pool of coders.
var coders = sync.Pool{New: func() any { return new(coder) }}

func read(m Message, b []byte, shared bool) error {
	if len(b) < HeaderLen {
		return &Error{"ofp_header", len(b), io.ErrUnexpectedEOF}
	}
	t, length := m.MessageType(), int(binary.BigEndian.Uint16(b[2:]))
	bad := func(offset int, err error) error { return &Error{"ofp_header", offset, err} }
	switch {
	case Type(b[1]) != t:
		return bad(1, fmt.Errorf("message type %v, want %v", Type(b[1]), t))
	case checkVersion(b) != nil:
		return checkVersion(b)
	case length < HeaderLen:
		return bad(2, fmt.Errorf("length %d is less than a header's", length))
	case length > len(b):
		return bad(len(b), fmt.Errorf("%v of length %d: %w", t, length, io.ErrUnexpectedEOF))
	case length < len(b):
		return bad(length, fmt.Errorf("%d bytes after the end of %v", len(b)-length, t))
	}
	*m.header() = Header{Version: b[0], XID: binary.BigEndian.Uint32(b[4:])}
	c := coders.Get().(*coder)
	*c = coder{mode: reading, b: b, off: HeaderLen, end: length, what: t.String(), shared: shared}
	m.code(c)
	if c.err == nil && c.off < c.end {
		c.fail(fmt.Errorf("%d bytes after the last field", c.end-c.off))
	}
	err := c.err
	*c = coder{}
	coders.Put(c)
	return err
}

func marshal(m Message) ([]byte, error) {
	return Append(make([]byte, 0, 192), m) // fits the entry of a flow
}

// Append appends an encoded message to b. On an error it returns nil and leaves b
// unchanged.
func Append(b []byte, m Message) ([]byte, error) {
	t, h := m.MessageType(), m.header()
	version := h.Version
	if version == 0 {
		version = Version
	}
	if version != Version && !speaksAnyVersion(t) {
		return nil, &Error{"ofp_header", 0, fmt.Errorf("%v of version %d: %w (version %d)", t, version, ErrUnsupported, Version)}
	}
	start := len(b)
	c := coders.Get().(*coder)
	*c = coder{mode: writing, what: t.String(), base: start, b: append(b, version, byte(t), 0, 0)}
	c.b = binary.BigEndian.AppendUint32(c.b, h.XID)
	m.code(c)
	length := len(c.b) - start
	if c.err == nil && length > MaxLen {
		c.fail(fmt.Errorf("%d bytes are too many for one message: at most %d", length, MaxLen))
	}
	b, err := c.b, c.err
	*c = coder{}
	coders.Put(c)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(length))
	return b, nil
}

// SetXID sets the transaction identifier of a message.
func SetXID(m Message, xid uint32) { m.header().XID = xid }
