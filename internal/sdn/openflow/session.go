package openflow

// NewHello returns a Hello that offers version 1.3 only.
func NewHello() *Hello {
	return &Hello{Elements: []HelloElement{{Type: OFPHET_VERSIONBITMAP, Bitmaps: []uint32{1 << Version}}}}
}

// Speaks reports whether the sender supports a version. Without a version bitmap, the
// header's version is the highest supported.
func (m *Hello) Speaks(version uint8) bool {
	for _, e := range m.Elements {
		if e.Type == OFPHET_VERSIONBITMAP {
			i := int(version / 32)
			return i < len(e.Bitmaps) && e.Bitmaps[i]&(1<<(version%32)) != 0
		}
	}
	return m.Version >= version
}

// ErrorMessage reports that a message was refused (section 7.4.4).
type ErrorMessage struct {
	Header
	ErrorType    ErrorType
	Code         uint16 // such as uint16(OFPBRC_BAD_LEN); exp_type for OFPET_EXPERIMENTER
	Experimenter uint32 // OFPET_EXPERIMENTER only
	// Data is the start of the refused message, or a text for OFPET_HELLO_FAILED.
	Data []byte
}

func (m *ErrorMessage) code(c *coder) {
	u16(c, "error_type", &m.ErrorType)
	switch {
	case m.ErrorType == OFPET_EXPERIMENTER:
		u16(c, "exp_type", &m.Code)
		u32(c, "experimenter", &m.Experimenter)
	case c.mode == formatting:
		c.key("code")
		c.formatNumber(errorCode(m.ErrorType, m.Code), uint64(m.Code))
	default:
		u16(c, "code", &m.Code)
	}
	c.data("data", &m.Data)
}
