package openflow

// Messages about packets, flows, ports and tables.

// PacketIn is a packet that the switch sends to the controller. Section 7.4.1.
type PacketIn struct {
	Header
	BufferID Buffer
	TotalLen uint16
	Reason   PacketInReason
	TableID  Table
	Cookie   uint64
	Match    Match
	Data     []byte
}

func (m *PacketIn) code(c *coder) {
	u32(c, "buffer_id", &m.BufferID)
	u16(c, "total_len", &m.TotalLen)
	u8(c, "reason", &m.Reason)
	u8(c, "table_id", &m.TableID)
	u64(c, "cookie", &m.Cookie)
	object(c, "match", &m.Match)
	c.pad(2)
	c.data("data", &m.Data)
}

// PacketOut is a packet that the switch shall send. Section 7.3.7.
type PacketOut struct {
	Header
	BufferID Buffer
	InPort   Port
	Actions  []Action
	Data     []byte // of a packet that the switch has not kept
}

func (m *PacketOut) code(c *coder) {
	u32(c, "buffer_id", &m.BufferID)
	u32(c, "in_port", &m.InPort)
	c.sizedActions(&m.Actions)
	c.data("data", &m.Data)
}

// FlowMod adds, changes or removes flows. Section 7.3.4.1.
type FlowMod struct {
	Header
	Cookie       uint64
	CookieMask   uint64
	TableID      Table
	Command      FlowModCommand
	IdleTimeout  uint16 // in seconds
	HardTimeout  uint16 // in seconds
	Priority     uint16
	BufferID     Buffer
	OutPort      Port
	OutGroup     Group
	Flags        FlowModFlags
	Match        Match
	Instructions []Instruction
}

func (m *FlowMod) code(c *coder) {
	u64(c, "cookie", &m.Cookie)
	u64(c, "cookie_mask", &m.CookieMask)
	u8(c, "table_id", &m.TableID)
	u8(c, "command", &m.Command)
	u16(c, "idle_timeout", &m.IdleTimeout)
	u16(c, "hard_timeout", &m.HardTimeout)
	u16(c, "priority", &m.Priority)
	u32(c, "buffer_id", &m.BufferID)
	u32(c, "out_port", &m.OutPort)
	u32(c, "out_group", &m.OutGroup)
	u16(c, "flags", &m.Flags)
	c.pad(2)
	object(c, "match", &m.Match)
	c.instructions(&m.Instructions)
}

// FlowRemoved tells that a flow is gone. Section 7.4.2.
type FlowRemoved struct {
	Header
	Cookie       uint64
	Priority     uint16
	Reason       FlowRemovedReason
	TableID      Table
	DurationSec  uint32
	DurationNsec uint32
	IdleTimeout  uint16
	HardTimeout  uint16
	PacketCount  uint64
	ByteCount    uint64
	Match        Match
}

func (m *FlowRemoved) code(c *coder) {
	u64(c, "cookie", &m.Cookie)
	u16(c, "priority", &m.Priority)
	u8(c, "reason", &m.Reason)
	u8(c, "table_id", &m.TableID)
	u32(c, "duration_sec", &m.DurationSec)
	u32(c, "duration_nsec", &m.DurationNsec)
	u16(c, "idle_timeout", &m.IdleTimeout)
	u16(c, "hard_timeout", &m.HardTimeout)
	u64(c, "packet_count", &m.PacketCount)
	u64(c, "byte_count", &m.ByteCount)
	object(c, "match", &m.Match)
}

// PortDesc is ofp_port. Section 7.2.1.
type PortDesc struct {
	PortNo     Port
	HWAddr     MAC
	Name       string
	Config     PortConfig
	State      PortState
	Curr       PortFeatures
	Advertised PortFeatures
	Supported  PortFeatures
	Peer       PortFeatures
	CurrSpeed  uint32 // in kbit/s
	MaxSpeed   uint32 // in kbit/s
}

func (p *PortDesc) code(c *coder) {
	u32(c, "port_no", &p.PortNo)
	c.pad(4)
	c.mac("hw_addr", &p.HWAddr)
	c.pad(2)
	c.text("name", 16, &p.Name)
	u32(c, "config", &p.Config)
	u32(c, "state", &p.State)
	u32(c, "curr", &p.Curr)
	u32(c, "advertised", &p.Advertised)
	u32(c, "supported", &p.Supported)
	u32(c, "peer", &p.Peer)
	u32(c, "curr_speed", &p.CurrSpeed)
	u32(c, "max_speed", &p.MaxSpeed)
}

// PortStatus tells that a port is new, gone or changed. Section 7.4.3.
type PortStatus struct {
	Header
	Reason PortReason
	Desc   PortDesc
}

func (m *PortStatus) code(c *coder) {
	u8(c, "reason", &m.Reason)
	c.pad(7)
	object(c, "desc", &m.Desc)
}

// PortMod changes a port. Section 7.3.4.3.
type PortMod struct {
	Header
	PortNo    Port
	HWAddr    MAC
	Config    PortConfig
	Mask      PortConfig // the bits of Config that count
	Advertise PortFeatures
}

func (m *PortMod) code(c *coder) {
	u32(c, "port_no", &m.PortNo)
	c.pad(4)
	c.mac("hw_addr", &m.HWAddr)
	c.pad(2)
	u32(c, "config", &m.Config)
	u32(c, "mask", &m.Mask)
	u32(c, "advertise", &m.Advertise)
	c.pad(4)
}

// TableMod changes a table; the specification has no use for it any more.
// Section 7.3.3.
type TableMod struct {
	Header
	TableID Table
	Config  TableConfig
}

func (m *TableMod) code(c *coder) {
	u8(c, "table_id", &m.TableID)
	c.pad(3)
	u32(c, "config", &m.Config)
}
