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

// MultipartRequest requests statistics or descriptions from a switch (section 7.3.5).
type MultipartRequest struct {
	Header
	Flags MultipartRequestFlags
	Body  RequestBody
}

func (m *MultipartRequest) code(c *coder) {
	multipart(c, &m.Flags, &m.Body, newRequestBody)
}

// MultipartReply is a reply, or one part of a longer one (section 7.3.5).
type MultipartReply struct {
	Header
	Flags MultipartReplyFlags // OFPMPF_REPLY_MORE: another part follows
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

// EveryFlow returns a filter for all flow entries of all tables.
func EveryFlow() FlowFilter {
	return FlowFilter{TableID: OFPTT_ALL, OutPort: OFPP_ANY, OutGroup: OFPG_ANY}
}
