package openflow

// Action is an operation of a switch on a packet (section 7.2.5).
type Action interface {
	// ActionType is the type in the action's header.
	ActionType() ActionType
	code(c *coder)
}

func (c *coder) actions(v *[]Action) { variants(c, "actions", v, "ofp_action_header", newAction) }

// sizedActions codes a list of actions preceded by its length, as in ofp_packet_out.
func (c *coder) sizedActions(v *[]Action) {
	switch c.mode {
	case reading:
		n := int(bigEndian(c.take(2)))
		c.pad(6)
		if n > c.end-c.off {
			c.off -= 8
			c.take(8 + n) // records the error
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

// Instruction is one part of what an entry does with packets (section 7.2.4).
type Instruction interface {
	// InstructionType is the type in the instruction's header.
	InstructionType() InstructionType
	code(c *coder)
}

func (c *coder) instructions(v *[]Instruction) {
	variants(c, "instructions", v, "ofp_instruction", newInstruction)
}
