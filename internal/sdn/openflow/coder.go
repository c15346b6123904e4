package openflow

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// mode says whether a coder reads, writes or formats.
type mode uint8

const (
	reading mode = iota
	writing
	formatting
)

// coder walks through the fields of a message. After the first error all its methods do
// nothing.
type coder struct {
	mode mode
	b    []byte // the message, or the JSON output
	base int    // writing: offset of the message in b
	off  int    // reading: offset of the next byte
	end  int    // reading: end of the current structure
	what string // name of the current structure
	err  error

	numbers bool // formatting: values as numbers, not names
	shared  bool // reading: values may alias b
}

func (c *coder) fail(err error) {
	if c.err == nil {
		at := c.off
		if c.mode == writing {
			at = len(c.b) - c.base
		}
		c.err = &Error{c.what, at, err}
	}
}

// take consumes and returns the next n bytes.
func (c *coder) take(n int) []byte {
	if c.err != nil {
		return nil
	}
	if n > c.end-c.off {
		c.fail(fmt.Errorf("%d bytes where %d are needed: %w", c.end-c.off, n, io.ErrUnexpectedEOF))
		return nil
	}
	b := c.b[c.off : c.off+n]
	c.off += n
	return b
}

// more reports whether the structure being read has bytes left.
func (c *coder) more() bool { return c.err == nil && c.off < c.end }

func (c *coder) write(b ...byte) {
	if c.err == nil {
		c.b = append(c.b, b...)
	}
}

func bigEndian(b []byte) uint64 {
	var v uint64
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}

func u8[T ~uint8](c *coder, name string, v *T) {
	switch c.mode {
	case reading:
		if b := c.take(1); b != nil {
			*v = T(b[0])
		}
	case writing:
		c.write(byte(*v))
	case formatting:
		formatField(c, name, *v)
	}
}

func u16[T ~uint16](c *coder, name string, v *T) {
	switch c.mode {
	case reading:
		if b := c.take(2); b != nil {
			*v = T(binary.BigEndian.Uint16(b))
		}
	case writing:
		if c.err == nil {
			c.b = binary.BigEndian.AppendUint16(c.b, uint16(*v))
		}
	case formatting:
		formatField(c, name, *v)
	}
}

func u32[T ~uint32](c *coder, name string, v *T) {
	switch c.mode {
	case reading:
		if b := c.take(4); b != nil {
			*v = T(binary.BigEndian.Uint32(b))
		}
	case writing:
		if c.err == nil {
			c.b = binary.BigEndian.AppendUint32(c.b, uint32(*v))
		}
	case formatting:
		formatField(c, name, *v)
	}
}

func u64[T ~uint64](c *coder, name string, v *T) {
	switch c.mode {
	case reading:
		if b := c.take(8); b != nil {
			*v = T(binary.BigEndian.Uint64(b))
		}
	case writing:
		if c.err == nil {
			c.b = binary.BigEndian.AppendUint64(c.b, uint64(*v))
		}
	case formatting:
		formatField(c, name, *v)
	}
}

func formatField[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *coder, name string, v T) {
	c.key(name)
	c.formatNumber(any(v), uint64(v))
}

// constant16 codes a field that must have the value want.
func constant16[T ~uint16](c *coder, name string, want T) {
	v := want
	u16(c, name, &v)
	if c.err == nil && v != want {
		c.off -= 2
		c.fail(fmt.Errorf("%s %v, want %v", name, v, want))
	}
}

// u32s codes 32-bit numbers up to the end of the structure.
func u32s(c *coder, name string, v *[]uint32) {
	switch c.mode {
	case reading:
		for c.more() {
			*v = append(*v, uint32(bigEndian(c.take(4))))
		}
	case writing:
		for _, x := range *v {
			c.write(byte(x>>24), byte(x>>16), byte(x>>8), byte(x))
		}
	case formatting:
		c.list(name, len(*v), func(i int) { c.formatNumber(nil, uint64((*v)[i])) })
	}
}

// numbers32 codes a field of several 32-bit numbers.
func numbers32(c *coder, name string, v []uint32) {
	if c.mode == formatting {
		u32s(c, name, &v)
		return
	}
	for i := range v {
		u32(c, name, &v[i])
	}
}

// pad skips or writes n padding bytes.
func (c *coder) pad(n int) {
	switch c.mode {
	case reading:
		c.take(n)
	case writing:
		for range n {
			c.write(0)
		}
	}
}

// padTo8 pads a structure that starts at start to a multiple of eight bytes.
func (c *coder) padTo8(start int) { c.pad(-(c.at() - start) & 7) }

// at returns the offset of the next field.
func (c *coder) at() int {
	if c.mode == writing {
		return len(c.b)
	}
	return c.off
}

// data codes the bytes up to the end of the structure.
func (c *coder) data(name string, v *[]byte) {
	switch c.mode {
	case reading:
		*v = nil
		if c.more() {
			*v = c.keep(c.take(c.end - c.off))
		}
	case writing:
		c.write(*v...)
	case formatting:
		c.key(name)
		c.formatBytes(*v)
	}
}

// u8s codes bytes that are formatted as a list of numbers.
func (c *coder) u8s(name string, v *[]byte) {
	if c.mode == formatting {
		c.list(name, len(*v), func(i int) { c.formatNumber(nil, uint64((*v)[i])) })
		return
	}
	c.data(name, v)
}

// keep returns b if the message may alias the buffer, otherwise a copy.
func (c *coder) keep(b []byte) []byte {
	if c.shared {
		return b[:len(b):len(b)]
	}
	return bytes.Clone(b)
}

// text codes a zero-terminated string in a field of size bytes. A string that fills the
// field without a zero byte, which some switches send, is accepted.
func (c *coder) text(name string, size int, v *string) {
	switch c.mode {
	case reading:
		b, _, _ := bytes.Cut(c.take(size), []byte{0})
		*v = string(b)
	case writing:
		if len(*v) > size || strings.IndexByte(*v, 0) >= 0 {
			c.fail(fmt.Errorf("%s %q: at most %d bytes without a zero byte", name, *v, size))
			return
		}
		c.write([]byte(*v)...)
		c.pad(size - len(*v))
	case formatting:
		c.key(name)
		c.formatString(*v)
	}
}

func (c *coder) mac(name string, v *MAC) {
	switch c.mode {
	case reading:
		copy(v[:], c.take(len(v)))
	case writing:
		c.write(v[:]...)
	case formatting:
		c.key(name)
		c.formatString(v.String())
	}
}

// span is a structure that contains its own length.
type span struct {
	start, lengthAt, end int
	what                 string
}

func (c *coder) open(what string) span {
	s := span{start: c.at(), end: c.end, what: c.what}
	c.what = what
	return s
}

// length codes the 16-bit length field of a structure.
func (c *coder) length(s *span) {
	switch c.mode {
	case reading:
		at := c.off
		n := int(bigEndian(c.take(2)))
		switch {
		case c.err != nil:
		case s.start+n < c.off:
			c.off = at
			c.fail(fmt.Errorf("length %d ends before its own field", n))
		case s.start+n > c.end:
			c.off = at
			c.fail(fmt.Errorf("length %d where %d bytes are left: %w", n, c.end-s.start, io.ErrUnexpectedEOF))
		default:
			c.end = s.start + n
		}
	case writing:
		s.lengthAt = len(c.b)
		c.pad(2)
	}
}

// close ends a structure at the position that its length gives.
func (c *coder) close(s span) {
	switch c.mode {
	case reading:
		if c.more() {
			c.fail(fmt.Errorf("length %d, but the fields end after %d bytes", c.end-s.start, c.off-s.start))
		}
		c.end = s.end
	case writing:
		n := len(c.b) - s.start
		if n > MaxLen {
			c.fail(fmt.Errorf("%d bytes are too many: at most %d", n, MaxLen))
		}
		if c.err == nil {
			binary.BigEndian.PutUint16(c.b[s.lengthAt:], uint16(n))
		}
	}
	c.what = s.what
}

// closeAligned is close for structures whose length must be a multiple of eight.
func (c *coder) closeAligned(s span) {
	if c.mode != formatting && (c.at()-s.start)%8 != 0 {
		c.fail(fmt.Errorf("length %d is no multiple of 8", c.at()-s.start))
	}
	c.close(s)
}

// coded is a pointer to a structure with a code method.
type coded[T any] interface {
	*T
	code(c *coder)
}

// structs codes structures up to the end of the enclosing one.
func structs[T any, P coded[T]](c *coder, name string, v *[]T) {
	switch c.mode {
	case reading:
		*v = nil
		for c.more() {
			var one T
			P(&one).code(c)
			*v = append(*v, one)
		}
	case writing:
		for i := range *v {
			P(&(*v)[i]).code(c)
		}
	case formatting:
		c.list(name, len(*v), func(i int) { c.object(P(&(*v)[i]).code) })
	}
}

// object codes a nested structure.
func object[T any, P coded[T]](c *coder, name string, v *T) {
	if c.mode != formatting {
		P(v).code(c)
		return
	}
	c.key(name)
	c.object(P(v).code)
}

var errNil = errors.New("is nil")

// variants codes structures of several types up to the end of the enclosing one. empty
// returns a new structure of a type, or nil if the type is unknown.
func variants[V interface {
	comparable
	code(c *coder)
}, K ~uint16](c *coder, name string, v *[]V, what string, empty func(K) V) {
	var none V
	switch c.mode {
	case reading:
		*v = nil
		for c.more() {
			kind := K(bigEndian(c.peek(2)))
			if c.err != nil {
				return
			}
			one := empty(kind)
			if one == none {
				c.what = what
				c.fail(fmt.Errorf("type %d: %w", uint16(kind), ErrUnsupported))
				return
			}
			one.code(c)
			*v = append(*v, one)
		}
	case writing:
		for _, one := range *v {
			if one == none {
				c.fail(fmt.Errorf("%s %w", what, errNil))
				return
			}
			one.code(c)
		}
	case formatting:
		c.list(name, len(*v), func(i int) { c.object((*v)[i].code) })
	}
}

// peek returns the next n bytes without consuming them.
func (c *coder) peek(n int) []byte {
	b := c.take(n)
	if c.err == nil {
		c.off -= n
	}
	return b
}
