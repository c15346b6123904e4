package openflow

import "fmt"

// RequestBody is the body of a MultipartRequest.
type RequestBody interface {
	// MultipartType is the type in the request.
	MultipartType() MultipartType
	code(c *coder)
	isRequest()
}

// ReplyBody is the body of a MultipartReply.
type ReplyBody interface {
	// MultipartType is the type in the reply.
	MultipartType() MultipartType
	code(c *coder)
	isReply()
}

// MultipartRequest asks the switch for a MultipartReply. Section 7.3.5.
type MultipartRequest struct {
	Header
	Flags MultipartRequestFlags
	Body  RequestBody
}

func (m *MultipartRequest) code(c *coder) {
	multipart(c, &m.Flags, &m.Body, newRequestBody)
}

// MultipartReply is an answer, or a part of one. Section 7.3.5.
type MultipartReply struct {
	Header
	Flags MultipartReplyFlags // OFPMPF_REPLY_MORE: another one follows
	Body  ReplyBody
}

func (m *MultipartReply) code(c *coder) {
	multipart(c, &m.Flags, &m.Body, newReplyBody)
}

func multipart[F ~uint16, B interface {
	comparable
	MultipartType() MultipartType
	code(c *coder)
}](c *coder, flags *F, body *B, empty func(MultipartType) B) {
	var t MultipartType
	var none B
	if c.mode != reading {
		if *body == none {
			c.fail(fmt.Errorf("body %w", errNil))
			return
		}
		t = (*body).MultipartType()
	}
	u16(c, "multipart_type", &t)
	if c.mode == reading && c.err == nil {
		if *body = empty(t); *body == none {
			c.off -= 2
			c.fail(fmt.Errorf("multipart type %d: %w", uint16(t), ErrUnsupported))
			return
		}
	}
	u16(c, "flags", flags)
	c.pad(4)
	if c.err != nil {
		return
	}
	c.what += " " + t.String()
	_, list := any(*body).(interface{ isList() })
	if c.mode == formatting && !list {
		c.key("body")
		c.object((*body).code)
		return
	}
	(*body).code(c)
}

// DescRequest asks for a Desc. Section 7.3.5.1.
type DescRequest struct{}

func (*DescRequest) code(*coder) {}

// Desc describes the switch. Section 7.3.5.1.
type Desc struct {
	MfrDesc   string
	HwDesc    string
	SwDesc    string
	SerialNum string
	DpDesc    string
}

func (d *Desc) code(c *coder) {
	c.text("mfr_desc", 256, &d.MfrDesc)
	c.text("hw_desc", 256, &d.HwDesc)
	c.text("sw_desc", 256, &d.SwDesc)
	c.text("serial_num", 32, &d.SerialNum)
	c.text("dp_desc", 256, &d.DpDesc)
}

// FlowFilter chooses flows.
type FlowFilter struct {
	TableID    Table
	OutPort    Port
	OutGroup   Group
	Cookie     uint64
	CookieMask uint64
	Match      Match
}

// EveryFlow chooses all flows of all tables.
func EveryFlow() FlowFilter {
	return FlowFilter{TableID: OFPTT_ALL, OutPort: OFPP_ANY, OutGroup: OFPG_ANY}
}

func (f *FlowFilter) code(c *coder) {
	u8(c, "table_id", &f.TableID)
	c.pad(3)
	u32(c, "out_port", &f.OutPort)
	u32(c, "out_group", &f.OutGroup)
	c.pad(4)
	u64(c, "cookie", &f.Cookie)
	u64(c, "cookie_mask", &f.CookieMask)
	object(c, "match", &f.Match)
}

// FlowStatsRequest asks for a FlowStatsReply. Section 7.3.5.2.
type FlowStatsRequest struct{ FlowFilter }

// FlowStats is one flow. Section 7.3.5.2.
type FlowStats struct {
	TableID      Table
	DurationSec  uint32
	DurationNsec uint32
	Priority     uint16
	IdleTimeout  uint16
	HardTimeout  uint16
	Flags        FlowModFlags
	Cookie       uint64
	PacketCount  uint64
	ByteCount    uint64
	Match        Match
	Instructions []Instruction
}

func (f *FlowStats) code(c *coder) {
	s := c.open("ofp_flow_stats")
	c.length(&s)
	u8(c, "table_id", &f.TableID)
	c.pad(1)
	u32(c, "duration_sec", &f.DurationSec)
	u32(c, "duration_nsec", &f.DurationNsec)
	u16(c, "priority", &f.Priority)
	u16(c, "idle_timeout", &f.IdleTimeout)
	u16(c, "hard_timeout", &f.HardTimeout)
	u16(c, "flags", &f.Flags)
	c.pad(4)
	u64(c, "cookie", &f.Cookie)
	u64(c, "packet_count", &f.PacketCount)
	u64(c, "byte_count", &f.ByteCount)
	object(c, "match", &f.Match)
	c.instructions(&f.Instructions)
	c.close(s)
}

// AggregateStatsRequest asks for an AggregateStats. Section 7.3.5.3.
type AggregateStatsRequest struct{ FlowFilter }

// AggregateStats are what flows have carried together. Section 7.3.5.3.
type AggregateStats struct {
	PacketCount uint64
	ByteCount   uint64
	FlowCount   uint32
}

func (a *AggregateStats) code(c *coder) {
	u64(c, "packet_count", &a.PacketCount)
	u64(c, "byte_count", &a.ByteCount)
	u32(c, "flow_count", &a.FlowCount)
	c.pad(4)
}

// TableStatsRequest asks for a TableStatsReply. Section 7.3.5.4.
type TableStatsRequest struct{}

func (*TableStatsRequest) code(*coder) {}

// TableStats is one table. Section 7.3.5.4.
type TableStats struct {
	TableID      Table
	ActiveCount  uint32
	LookupCount  uint64
	MatchedCount uint64
}

func (t *TableStats) code(c *coder) {
	u8(c, "table_id", &t.TableID)
	c.pad(3)
	u32(c, "active_count", &t.ActiveCount)
	u64(c, "lookup_count", &t.LookupCount)
	u64(c, "matched_count", &t.MatchedCount)
}

// ExperimenterBody is what ofp_experimenter_multipart_header says, and what
// follows. Section 7.3.5.15.
type ExperimenterBody struct {
	Experimenter uint32
	ExpType      uint32
	Data         []byte
}

func (e *ExperimenterBody) code(c *coder) {
	u32(c, "experimenter", &e.Experimenter)
	u32(c, "exp_type", &e.ExpType)
	c.data("data", &e.Data)
}

// ExperimenterMultipartRequest is a request that somebody else defines. Section
// 7.3.5.15.
type ExperimenterMultipartRequest struct{ ExperimenterBody }

// ExperimenterMultipartReply is a reply that somebody else defines. Section
// 7.3.5.15.
type ExperimenterMultipartReply struct{ ExperimenterBody }
