package openflow

// Messages about the session between controller and switch.

// Hello is the first message of both sides. Section 7.5.1.
type Hello struct {
	Header
	Elements []HelloElement
}

// NewHello says that the sender speaks 1.3 alone.
func NewHello() *Hello {
	return &Hello{Elements: []HelloElement{{Type: OFPHET_VERSIONBITMAP, Bitmaps: []uint32{1 << Version}}}}
}

// Speaks tells whether the sender speaks a version: by its bitmap, or without
// one by its header, whose version is the highest it speaks.
func (m *Hello) Speaks(version uint8) bool {
	for _, e := range m.Elements {
		if e.Type == OFPHET_VERSIONBITMAP {
			i := int(version / 32)
			return i < len(e.Bitmaps) && e.Bitmaps[i]&(1<<(version%32)) != 0
		}
	}
	return m.Version >= version
}

func (m *Hello) code(c *coder) { structs(c, "elements", &m.Elements) }

// HelloElement is ofp_hello_elem_header with what follows. Section 7.5.1.
type HelloElement struct {
	Type    HelloElementType
	Bitmaps []uint32 // of OFPHET_VERSIONBITMAP: bit i of word w is version 32*w+i
	Data    []byte   // of other types, which receivers must ignore
}

func (e *HelloElement) code(c *coder) {
	s := c.open("ofp_hello_elem_header")
	u16(c, "type", &e.Type)
	c.length(&s)
	if e.Type == OFPHET_VERSIONBITMAP {
		u32s(c, "bitmaps", &e.Bitmaps)
	} else {
		c.data("data", &e.Data)
	}
	c.close(s)
	c.padTo8(s.start)
}

// ErrorMessage tells the other side what was wrong with one of its messages.
// Section 7.4.4.
type ErrorMessage struct {
	Header
	ErrorType    ErrorType
	Code         uint16 // such as uint16(OFPBRC_BAD_LEN); of OFPET_EXPERIMENTER: exp_type
	Experimenter uint32 // of OFPET_EXPERIMENTER
	// Data begins as the message that was wrong; of OFPHFC it is a text.
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
		c.formatNumber(m.code16(), uint64(m.Code))
	default:
		u16(c, "code", &m.Code)
	}
	c.data("data", &m.Data)
}

// code16 is the code with the type that has its name.
func (m *ErrorMessage) code16() any {
	switch m.ErrorType {
	case OFPET_HELLO_FAILED:
		return HelloFailedCode(m.Code)
	case OFPET_BAD_REQUEST:
		return BadRequestCode(m.Code)
	case OFPET_BAD_ACTION:
		return BadActionCode(m.Code)
	case OFPET_BAD_INSTRUCTION:
		return BadInstructionCode(m.Code)
	case OFPET_BAD_MATCH:
		return BadMatchCode(m.Code)
	case OFPET_FLOW_MOD_FAILED:
		return FlowModFailedCode(m.Code)
	case OFPET_GROUP_MOD_FAILED:
		return GroupModFailedCode(m.Code)
	case OFPET_PORT_MOD_FAILED:
		return PortModFailedCode(m.Code)
	case OFPET_TABLE_MOD_FAILED:
		return TableModFailedCode(m.Code)
	case OFPET_QUEUE_OP_FAILED:
		return QueueOpFailedCode(m.Code)
	case OFPET_SWITCH_CONFIG_FAILED:
		return SwitchConfigFailedCode(m.Code)
	case OFPET_ROLE_REQUEST_FAILED:
		return RoleRequestFailedCode(m.Code)
	case OFPET_METER_MOD_FAILED:
		return MeterModFailedCode(m.Code)
	case OFPET_TABLE_FEATURES_FAILED:
		return TableFeaturesFailedCode(m.Code)
	}
	return m.Code
}

// EchoRequest asks for an EchoReply with the same data. Section 7.5.2.
type EchoRequest struct {
	Header
	Data []byte
}

func (m *EchoRequest) code(c *coder) { c.data("data", &m.Data) }

// EchoReply answers an EchoRequest. Section 7.5.3.
type EchoReply struct {
	Header
	Data []byte
}

func (m *EchoReply) code(c *coder) { c.data("data", &m.Data) }

// Experimenter is a message that somebody else defines. Section 7.5.4.
type Experimenter struct {
	Header
	Experimenter uint32
	ExpType      uint32
	Data         []byte
}

func (m *Experimenter) code(c *coder) {
	u32(c, "experimenter", &m.Experimenter)
	u32(c, "exp_type", &m.ExpType)
	c.data("data", &m.Data)
}

// FeaturesRequest asks for a FeaturesReply. Section 7.3.1.
type FeaturesRequest struct{ Header }

func (m *FeaturesRequest) code(*coder) {}

// FeaturesReply is ofp_switch_features. Section 7.3.1.
type FeaturesReply struct {
	Header
	DatapathID   uint64
	NBuffers     uint32
	NTables      uint8
	AuxiliaryID  uint8
	Capabilities Capabilities
	Reserved     uint32
}

func (m *FeaturesReply) code(c *coder) {
	u64(c, "datapath_id", &m.DatapathID)
	u32(c, "n_buffers", &m.NBuffers)
	u8(c, "n_tables", &m.NTables)
	u8(c, "auxiliary_id", &m.AuxiliaryID)
	c.pad(2)
	u32(c, "capabilities", &m.Capabilities)
	u32(c, "reserved", &m.Reserved)
}

// GetConfigRequest asks for a GetConfigReply. Section 7.3.2.
type GetConfigRequest struct{ Header }

func (m *GetConfigRequest) code(*coder) {}

// SwitchConfig is what ofp_switch_config says. Section 7.3.2.
type SwitchConfig struct {
	Flags       ConfigFlags
	MissSendLen PacketLen
}

func (s *SwitchConfig) code(c *coder) {
	u16(c, "flags", &s.Flags)
	u16(c, "miss_send_len", &s.MissSendLen)
}

// GetConfigReply is the configuration of a switch. Section 7.3.2.
type GetConfigReply struct {
	Header
	SwitchConfig
}

func (m *GetConfigReply) code(c *coder) { m.SwitchConfig.code(c) }

// SetConfig changes the configuration of a switch. Section 7.3.2.
type SetConfig struct {
	Header
	SwitchConfig
}

func (m *SetConfig) code(c *coder) { m.SwitchConfig.code(c) }

// BarrierRequest asks the switch to finish everything before it first. Section
// 7.3.8.
type BarrierRequest struct{ Header }

func (m *BarrierRequest) code(*coder) {}

// BarrierReply tells that everything before the BarrierRequest is done. Section
// 7.3.8.
type BarrierReply struct{ Header }

func (m *BarrierReply) code(*coder) {}

// RoleState is what ofp_role_request says. Section 7.3.9.
type RoleState struct {
	Role         Role
	GenerationID uint64
}

func (s *RoleState) code(c *coder) {
	u32(c, "role", &s.Role)
	c.pad(4)
	u64(c, "generation_id", &s.GenerationID)
}

// RoleRequest asks for a role among the controllers of a switch. Section 7.3.9.
type RoleRequest struct {
	Header
	RoleState
}

func (m *RoleRequest) code(c *coder) { m.RoleState.code(c) }

// RoleReply tells a controller its role. Section 7.3.9.
type RoleReply struct {
	Header
	RoleState
}

func (m *RoleReply) code(c *coder) { m.RoleState.code(c) }

// AsyncConfig is ofp_async_config: bit n of a mask stands for reason n. The
// first of each pair is for masters and equals, the second for slaves. Section
// 7.3.10.
type AsyncConfig struct {
	PacketInMask    [2]uint32
	PortStatusMask  [2]uint32
	FlowRemovedMask [2]uint32
}

func (a *AsyncConfig) code(c *coder) {
	numbers32(c, "packet_in_mask", a.PacketInMask[:])
	numbers32(c, "port_status_mask", a.PortStatusMask[:])
	numbers32(c, "flow_removed_mask", a.FlowRemovedMask[:])
}

// GetAsyncRequest asks for a GetAsyncReply. Section 7.3.10.
type GetAsyncRequest struct{ Header }

func (m *GetAsyncRequest) code(*coder) {}

// GetAsyncReply tells which messages the switch sends of itself. Section 7.3.10.
type GetAsyncReply struct {
	Header
	AsyncConfig
}

func (m *GetAsyncReply) code(c *coder) { m.AsyncConfig.code(c) }

// SetAsync chooses which messages the switch sends of itself. Section 7.3.10.
type SetAsync struct {
	Header
	AsyncConfig
}

func (m *SetAsync) code(c *coder) { m.AsyncConfig.code(c) }
