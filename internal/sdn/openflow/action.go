package openflow

// Action is what a switch does with a packet. Section 7.2.5.
type Action interface {
	// ActionType is the type in the action's header.
	ActionType() ActionType
	code(c *coder)
}

func newAction(t ActionType) Action {
	switch t {
	case OFPAT_OUTPUT:
		return &ActionOutput{}
	case OFPAT_COPY_TTL_OUT, OFPAT_COPY_TTL_IN, OFPAT_DEC_MPLS_TTL, OFPAT_DEC_NW_TTL, OFPAT_POP_VLAN, OFPAT_POP_PBB:
		return &ActionPlain{Type: t}
	case OFPAT_SET_MPLS_TTL:
		return &ActionMPLSTTL{}
	case OFPAT_PUSH_VLAN, OFPAT_PUSH_MPLS, OFPAT_PUSH_PBB:
		return &ActionPush{Type: t}
	case OFPAT_POP_MPLS:
		return &ActionPopMPLS{}
	case OFPAT_SET_QUEUE:
		return &ActionSetQueue{}
	case OFPAT_GROUP:
		return &ActionGroup{}
	case OFPAT_SET_NW_TTL:
		return &ActionNwTTL{}
	case OFPAT_SET_FIELD:
		return &ActionSetField{}
	case OFPAT_EXPERIMENTER:
		return &ActionExperimenter{}
	}
	return nil
}

func (c *coder) actions(v *[]Action) { variants(c, "actions", v, "ofp_action_header", newAction) }

// sizedActions are actions with their length before them, as in
// ofp_packet_out.
func (c *coder) sizedActions(v *[]Action) {
	switch c.mode {
	case reading:
		n := int(bigEndian(c.take(2)))
		c.pad(6)
		if n > c.end-c.off {
			c.off -= 8
			c.take(8 + n) // fails
			return
		}
		end := c.end
		c.end = c.off + n
		c.actions(v)
		c.end = end
	case writing:
		at := len(c.b)
		c.pad(8)
		c.actions(v)
		n := len(c.b) - at - 8
		if c.err == nil && n <= MaxLen { // a longer message fails as a whole
			c.b[at], c.b[at+1] = byte(n>>8), byte(n)
		}
	case formatting:
		c.actions(v)
	}
}

// action is the frame of all actions.
func (c *coder) action(what string, t ActionType, fields func()) {
	s := c.open(what)
	constant16(c, "type", t)
	c.length(&s)
	fields()
	c.closeAligned(s)
}

// ActionOutput sends the packet out of a port. Section 7.2.5.
type ActionOutput struct {
	Port   Port
	MaxLen PacketLen // of the packet, if it goes to the controller
}

// ActionType implements Action.
func (a *ActionOutput) ActionType() ActionType { return OFPAT_OUTPUT }

func (a *ActionOutput) code(c *coder) {
	c.action("ofp_action_output", OFPAT_OUTPUT, func() {
		u32(c, "port", &a.Port)
		u16(c, "max_len", &a.MaxLen)
		c.pad(6)
	})
}

// ActionPlain is an action without arguments: copy TTL outwards or inwards,
// decrement MPLS or IP TTL, pop a VLAN or a PBB tag. Section 7.2.5.
type ActionPlain struct{ Type ActionType }

// ActionType implements Action.
func (a *ActionPlain) ActionType() ActionType { return a.Type }

func (a *ActionPlain) code(c *coder) {
	c.action("ofp_action_header", a.Type, func() { c.pad(4) })
}

// ActionMPLSTTL sets the TTL of an MPLS header. Section 7.2.5.
type ActionMPLSTTL struct{ MPLSTTL uint8 }

// ActionType implements Action.
func (a *ActionMPLSTTL) ActionType() ActionType { return OFPAT_SET_MPLS_TTL }

func (a *ActionMPLSTTL) code(c *coder) {
	c.action("ofp_action_mpls_ttl", OFPAT_SET_MPLS_TTL, func() {
		u8(c, "mpls_ttl", &a.MPLSTTL)
		c.pad(3)
	})
}

// ActionNwTTL sets the TTL of an IP header. Section 7.2.5.
type ActionNwTTL struct{ NwTTL uint8 }

// ActionType implements Action.
func (a *ActionNwTTL) ActionType() ActionType { return OFPAT_SET_NW_TTL }

func (a *ActionNwTTL) code(c *coder) {
	c.action("ofp_action_nw_ttl", OFPAT_SET_NW_TTL, func() {
		u8(c, "nw_ttl", &a.NwTTL)
		c.pad(3)
	})
}

// ActionPush pushes a VLAN, an MPLS or a PBB header. Section 7.2.5.
type ActionPush struct {
	Type      ActionType
	EtherType uint16
}

// ActionType implements Action.
func (a *ActionPush) ActionType() ActionType { return a.Type }

func (a *ActionPush) code(c *coder) {
	c.action("ofp_action_push", a.Type, func() {
		u16(c, "ethertype", &a.EtherType)
		c.pad(2)
	})
}

// ActionPopMPLS pops an MPLS header. Section 7.2.5.
type ActionPopMPLS struct{ EtherType uint16 }

// ActionType implements Action.
func (a *ActionPopMPLS) ActionType() ActionType { return OFPAT_POP_MPLS }

func (a *ActionPopMPLS) code(c *coder) {
	c.action("ofp_action_pop_mpls", OFPAT_POP_MPLS, func() {
		u16(c, "ethertype", &a.EtherType)
		c.pad(2)
	})
}

// ActionSetQueue chooses the queue that the packet goes to at its port. Section
// 7.2.5.
type ActionSetQueue struct{ QueueID Queue }

// ActionType implements Action.
func (a *ActionSetQueue) ActionType() ActionType { return OFPAT_SET_QUEUE }

func (a *ActionSetQueue) code(c *coder) {
	c.action("ofp_action_set_queue", OFPAT_SET_QUEUE, func() { u32(c, "queue_id", &a.QueueID) })
}

// ActionGroup hands the packet to a group. Section 7.2.5.
type ActionGroup struct{ GroupID Group }

// ActionType implements Action.
func (a *ActionGroup) ActionType() ActionType { return OFPAT_GROUP }

func (a *ActionGroup) code(c *coder) {
	c.action("ofp_action_group", OFPAT_GROUP, func() { u32(c, "group_id", &a.GroupID) })
}

// ActionSetField overwrites a field of the packet. Section 7.2.5.
type ActionSetField struct{ Field OXM }

// ActionType implements Action.
func (a *ActionSetField) ActionType() ActionType { return OFPAT_SET_FIELD }

func (a *ActionSetField) code(c *coder) {
	s := c.open("ofp_action_set_field")
	constant16(c, "type", OFPAT_SET_FIELD)
	c.length(&s)
	object(c, "field", &a.Field)
	c.padTo8(s.start)
	c.closeAligned(s)
}

// ActionExperimenter is an action that somebody else defines, such as those of
// Nicira. Section 7.2.5.
type ActionExperimenter struct {
	Experimenter uint32
	Data         []byte // with padding: as long as the action becomes a multiple of 8
}

// ActionType implements Action.
func (a *ActionExperimenter) ActionType() ActionType { return OFPAT_EXPERIMENTER }

func (a *ActionExperimenter) code(c *coder) {
	c.action("ofp_action_experimenter_header", OFPAT_EXPERIMENTER, func() {
		u32(c, "experimenter", &a.Experimenter)
		c.data("data", &a.Data)
	})
}
