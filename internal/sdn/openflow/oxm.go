package openflow

// OXMField is a match field number of class OFPXMC_OPENFLOW_BASIC (oxm_ofb_match_fields,
// section 7.2.3.7) or another class.
type OXMField uint8

// Len returns the value length in bytes of a field of class OFPXMC_OPENFLOW_BASIC.
func (f OXMField) Len() int {
	if int(f) >= len(oxmFields) {
		return 0
	}
	return oxmFields[f].len()
}

// oxmKind says how a value is formatted.
type oxmKind uint8

const (
	oxmNumber oxmKind = iota
	oxmPort
	oxmMAC
	oxmIPv4
	oxmIPv6
)

type oxmInfo struct {
	name string
	bits int
	kind oxmKind
}

// len returns the length of a value in bytes. Fields of 20 bits take four bytes, others the
// smallest number that holds them.
func (i *oxmInfo) len() int {
	if i.bits == 20 {
		return 4
	}
	return (i.bits + 7) / 8
}

// format writes a value; the value of an unknown field is written as raw bytes.
func (i *oxmInfo) format(c *coder, b []byte) {
	switch {
	case i == nil || len(b) != i.len():
		c.formatBytes(b)
	case i.kind == oxmPort:
		c.formatNumber(Port(bigEndian(b)), bigEndian(b))
	case i.kind == oxmMAC:
		c.formatString(formatMAC(b))
	case i.kind == oxmIPv4:
		c.formatString(formatIPv4(b))
	case i.kind == oxmIPv6:
		c.formatString(formatIPv6(b))
	default:
		c.formatNumber(nil, bigEndian(b))
	}
}
