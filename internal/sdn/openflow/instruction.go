package openflow

// Instruction is what a flow does with the packets that match. Section 7.2.4.
type Instruction interface {
	// InstructionType is the type in the instruction's header.
	InstructionType() InstructionType
	code(c *coder)
}

func newInstruction(t InstructionType) Instruction {
	switch t {
	case OFPIT_GOTO_TABLE:
		return &InstructionGotoTable{}
	case OFPIT_WRITE_METADATA:
		return &InstructionWriteMetadata{}
	case OFPIT_WRITE_ACTIONS, OFPIT_APPLY_ACTIONS, OFPIT_CLEAR_ACTIONS:
		return &InstructionActions{Type: t}
	case OFPIT_METER:
		return &InstructionMeter{}
	case OFPIT_EXPERIMENTER:
		return &InstructionExperimenter{}
	}
	return nil
}

func (c *coder) instructions(v *[]Instruction) {
	variants(c, "instructions", v, "ofp_instruction", newInstruction)
}

func (c *coder) instruction(what string, t InstructionType, fields func()) {
	s := c.open(what)
	constant16(c, "type", t)
	c.length(&s)
	fields()
	c.closeAligned(s)
}

// InstructionGotoTable goes on in another table. Section 7.2.4.
type InstructionGotoTable struct{ TableID Table }

// InstructionType implements Instruction.
func (i *InstructionGotoTable) InstructionType() InstructionType { return OFPIT_GOTO_TABLE }

func (i *InstructionGotoTable) code(c *coder) {
	c.instruction("ofp_instruction_goto_table", OFPIT_GOTO_TABLE, func() {
		u8(c, "table_id", &i.TableID)
		c.pad(3)
	})
}

// InstructionWriteMetadata sets metadata for the tables after. Section 7.2.4.
type InstructionWriteMetadata struct {
	Metadata     uint64
	MetadataMask uint64
}

// InstructionType implements Instruction.
func (i *InstructionWriteMetadata) InstructionType() InstructionType { return OFPIT_WRITE_METADATA }

func (i *InstructionWriteMetadata) code(c *coder) {
	c.instruction("ofp_instruction_write_metadata", OFPIT_WRITE_METADATA, func() {
		c.pad(4)
		u64(c, "metadata", &i.Metadata)
		u64(c, "metadata_mask", &i.MetadataMask)
	})
}

// InstructionActions writes, applies or clears actions. Section 7.2.4.
type InstructionActions struct {
	Type    InstructionType
	Actions []Action // none of OFPIT_CLEAR_ACTIONS
}

// InstructionType implements Instruction.
func (i *InstructionActions) InstructionType() InstructionType { return i.Type }

func (i *InstructionActions) code(c *coder) {
	c.instruction("ofp_instruction_actions", i.Type, func() {
		c.pad(4)
		c.actions(&i.Actions)
	})
}

// InstructionMeter meters the packets. Section 7.2.4.
type InstructionMeter struct{ MeterID Meter }

// InstructionType implements Instruction.
func (i *InstructionMeter) InstructionType() InstructionType { return OFPIT_METER }

func (i *InstructionMeter) code(c *coder) {
	c.instruction("ofp_instruction_meter", OFPIT_METER, func() { u32(c, "meter_id", &i.MeterID) })
}

// InstructionExperimenter is an instruction that somebody else defines. Section
// 7.2.4.
type InstructionExperimenter struct {
	Experimenter uint32
	Data         []byte // with padding: as long as the instruction becomes a multiple of 8
}

// InstructionType implements Instruction.
func (i *InstructionExperimenter) InstructionType() InstructionType { return OFPIT_EXPERIMENTER }

func (i *InstructionExperimenter) code(c *coder) {
	c.instruction("ofp_instruction_experimenter", OFPIT_EXPERIMENTER, func() {
		u32(c, "experimenter", &i.Experimenter)
		c.data("data", &i.Data)
	})
}
