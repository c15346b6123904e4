package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Match selects packets by header fields (section 7.2.3).
type Match struct {
	Fields []OXM
}

// Field returns a field of class OFPXMC_OPENFLOW_BASIC, or nil if the match lacks it.
func (m *Match) Field(f OXMField) *OXM {
	for i := range m.Fields {
		if x := &m.Fields[i]; x.Class == OFPXMC_OPENFLOW_BASIC && x.Field == f {
			return x
		}
	}
	return nil
}

func (m *Match) code(c *coder) {
	s := c.open("ofp_match")
	constant16(c, "type", OFPMT_OXM)
	c.length(&s)
	if c.mode == reading && c.more() {
		if n := (c.end-c.off)/oxmBytes + 1; !c.shared || cap(m.Fields) < n {
			m.Fields = make([]OXM, 0, n)
		}
		m.Fields = m.Fields[:0]
		for c.more() {
			m.Fields = append(m.Fields, OXM{})
			m.Fields[len(m.Fields)-1].code(c)
		}
	} else {
		structs(c, "oxm_fields", &m.Fields)
	}
	c.close(s)
	c.padTo8(s.start)
}

// oxmBytes is the typical size of a field in a message.
const oxmBytes = 8

// OXM is a match field (OXM TLV): part of a match, a packet field or a value to set
// (section 7.2.3.2).
type OXM struct {
	Class        OXMClass
	Field        OXMField
	Experimenter uint32 // OFPXMC_EXPERIMENTER only
	Value        []byte // in network byte order
	Mask         []byte // same length as Value; nil for none
}

// NewOXM returns a field of class OFPXMC_OPENFLOW_BASIC; mask may be nil.
func NewOXM(f OXMField, value, mask []byte) OXM {
	return OXM{Class: OFPXMC_OPENFLOW_BASIC, Field: f, Value: value, Mask: mask}
}

// NewOXMNumber returns a field of class OFPXMC_OPENFLOW_BASIC with a numeric value. Bits
// beyond the field's width are dropped.
func NewOXMNumber(f OXMField, value uint64) OXM {
	b := make([]byte, f.Len())
	for i := range b {
		if shift := 8 * (len(b) - 1 - i); shift < 64 {
			b[i] = byte(value >> shift)
		}
	}
	return NewOXM(f, b, nil)
}

// Number returns the value of a field of up to eight bytes as a number.
func (x *OXM) Number() uint64 { return bigEndian(x.Value) }

func (x *OXM) known() *oxmInfo {
	if x.Class != OFPXMC_OPENFLOW_BASIC || int(x.Field) >= len(oxmFields) {
		return nil
	}
	return &oxmFields[x.Field]
}

func (x *OXM) code(c *coder) {
	if c.mode == formatting {
		x.format(c)
		return
	}
	if !x.codeBasic(c) {
		x.codeAny(c)
	}
}

// codeAny codes a field of any class, and reports what is wrong with it.
func (x *OXM) codeAny(c *coder) {
	what := c.what
	c.what = "OXM" // class and field are read first
	start := c.at()
	id := OXMID{Class: x.Class, Field: x.Field, HasMask: x.Mask != nil, Experimenter: x.Experimenter}
	if c.mode == writing {
		x.check(c, len(x.Value), x.Mask != nil, len(x.Mask) == len(x.Value))
		id.Length = uint8(x.length())
	}
	id.code(c)
	if c.mode == writing {
		c.write(x.Value...)
		c.write(x.Mask...)
	} else {
		x.read(c, start, id)
	}
	c.what = what
}

// oxmHeader is the length of what stands before the value.
const oxmHeader = 4

// codeBasic codes a valid basic-class field; otherwise returns false and the general coder reports the error.
func (x *OXM) codeBasic(c *coder) bool {
	if c.err != nil {
		return false
	}
	if c.mode == writing {
		info := x.known()
		if info == nil || len(x.Value) != info.len() || x.Mask != nil && len(x.Mask) != len(x.Value) {
			return false
		}
		field := uint8(x.Field) << 1
		if x.Mask != nil {
			field |= 1
		}
		c.b = append(c.b, byte(x.Class>>8), byte(x.Class&0xff), field, uint8(x.length()))
		c.b = append(append(c.b, x.Value...), x.Mask...)
		return true
	}
	b := c.b[c.off:c.end]
	if len(b) < oxmHeader {
		return false
	}
	one := OXM{Class: OXMClass(binary.BigEndian.Uint16(b)), Field: OXMField(b[2] >> 1)}
	info, n := one.known(), int(b[3])
	if info == nil {
		return false
	}
	size, masked := info.len(), b[2]&1 != 0
	if masked && n != 2*size || !masked && n != size || oxmHeader+n > len(b) {
		return false
	}
	payload := c.keep(b[oxmHeader : oxmHeader+n])
	if one.Value = payload[:size:size]; masked {
		one.Mask = payload[size:]
	}
	*x = one
	c.off += oxmHeader + n
	return true
}

// length returns the TLV's payload length.
func (x *OXM) length() int {
	n := len(x.Value) + len(x.Mask)
	if x.Class == OFPXMC_EXPERIMENTER {
		n += 4
	}
	return n
}

func (x *OXM) read(c *coder, start int, id OXMID) {
	*x = OXM{Class: id.Class, Field: id.Field, Experimenter: id.Experimenter}
	n := int(id.Length)
	if id.Class == OFPXMC_EXPERIMENTER {
		n -= 4
	}
	if c.err == nil && n > c.end-c.off {
		x.fail(c, fmt.Errorf("length %d where %d bytes are left: %w", n, c.end-c.off, io.ErrUnexpectedEOF))
		return
	}
	whole := c.off
	c.off = start // offset for error messages
	half := n
	if id.HasMask {
		half = n / 2
	}
	x.check(c, half, id.HasMask, !id.HasMask || n%2 == 0)
	c.off = whole
	payload := c.keep(c.take(n))
	if c.err != nil {
		return
	}
	x.Value = payload[:half:half]
	if id.HasMask {
		x.Mask = payload[half:]
	}
}

// check validates a field's length. For experimenter fields only the lengths of mask and
// value are compared.
func (x *OXM) check(c *coder, length int, masked, halves bool) {
	info := x.known()
	switch {
	case masked && !halves:
		x.fail(c, errors.New("value and mask are not of the same length"))
	case info != nil && length != info.len():
		x.fail(c, fmt.Errorf("value of %d bytes, want %d", length, info.len()))
	case x.Class == OFPXMC_OPENFLOW_BASIC && info == nil:
		x.fail(c, fmt.Errorf("field %d of %v: %w", x.Field, x.Class, ErrUnsupported))
	case x.length() > 255:
		x.fail(c, fmt.Errorf("%d bytes are too many: at most 255", x.length()))
	}
}

// fail records an error with the field's name, built only on failure because that is slow.
func (x *OXM) fail(c *coder, err error) {
	c.what = "OXM " + x.name()
	c.fail(err)
}

func (x *OXM) name() string {
	if info := x.known(); info != nil {
		return info.name
	}
	return fmt.Sprintf("field %d of class %#x", uint8(x.Field), uint16(x.Class))
}

func (x *OXM) format(c *coder) {
	info := x.known()
	if info == nil {
		u16(c, "class", &x.Class)
		u8(c, "field", &x.Field)
		if x.Class == OFPXMC_EXPERIMENTER {
			u32(c, "experimenter", &x.Experimenter)
		}
	} else {
		c.key("field")
		c.formatString(info.name)
	}
	c.key("value")
	info.format(c, x.Value)
	if x.Mask != nil {
		c.key("mask")
		info.format(c, x.Mask)
	}
}

// OXMID is the header of an OXM TLV, as it appears in table features (section 7.2.3.2).
type OXMID struct {
	Class        OXMClass
	Field        OXMField
	HasMask      bool
	Length       uint8  // payload length of the field in a match
	Experimenter uint32 // OFPXMC_EXPERIMENTER only
}

func (o *OXMID) code(c *coder) {
	if c.mode == formatting {
		o.format(c)
		return
	}
	u16(c, "class", &o.Class)
	field := uint8(o.Field) << 1
	if o.HasMask {
		field |= 1
	}
	if c.mode == writing && o.Field > 127 {
		c.fail(fmt.Errorf("field %d: at most 127", uint8(o.Field)))
	}
	u8(c, "field", &field)
	o.Field, o.HasMask = OXMField(field>>1), field&1 != 0
	u8(c, "length", &o.Length)
	if o.Class == OFPXMC_EXPERIMENTER {
		if c.err == nil && o.Length < 4 {
			c.fail(fmt.Errorf("length %d of a field of %v, want 4 or more", o.Length, o.Class))
		}
		u32(c, "experimenter", &o.Experimenter)
	}
}

func (o *OXMID) format(c *coder) {
	x := OXM{Class: o.Class, Field: o.Field}
	if info := x.known(); info != nil {
		c.key("field")
		c.formatString(info.name)
	} else {
		u16(c, "class", &o.Class)
		u8(c, "field", &o.Field)
		if o.Class == OFPXMC_EXPERIMENTER {
			u32(c, "experimenter", &o.Experimenter)
		}
	}
	hasMask := uint8(0)
	if o.HasMask {
		hasMask = 1
	}
	u8(c, "hasmask", &hasMask)
	u8(c, "length", &o.Length)
}
