package openflow

import "fmt"

// TableFeaturesRequest asks for the features of all tables, or sets them.
// Section 7.3.5.5.
type TableFeaturesRequest []TableFeatures

func (t *TableFeaturesRequest) code(c *coder) { structs(c, "body", (*[]TableFeatures)(t)) }

func (*TableFeaturesRequest) isList() {}

// TableFeatures is what one table can do. Section 7.3.5.5.1.
type TableFeatures struct {
	TableID       Table
	Name          string
	MetadataMatch uint64
	MetadataWrite uint64
	Config        TableConfig
	MaxEntries    uint32
	Properties    []TableFeature
}

func (t *TableFeatures) code(c *coder) {
	s := c.open("ofp_table_features")
	c.length(&s)
	u8(c, "table_id", &t.TableID)
	c.pad(5)
	c.text("name", 32, &t.Name)
	u64(c, "metadata_match", &t.MetadataMatch)
	u64(c, "metadata_write", &t.MetadataWrite)
	u32(c, "config", &t.Config)
	u32(c, "max_entries", &t.MaxEntries)
	structs(c, "properties", &t.Properties)
	c.closeAligned(s)
}

// TableFeature is a property of a table: ofp_table_feature_prop_header with
// what follows. Section 7.3.5.5.2.
type TableFeature struct {
	Type           TableFeatureProp
	InstructionIDs []InstructionID // of OFPTFPT_INSTRUCTIONS
	NextTableIDs   []byte          // of OFPTFPT_NEXT_TABLES
	ActionIDs      []ActionID      // of OFPTFPT_WRITE_ACTIONS and OFPTFPT_APPLY_ACTIONS
	OXMIDs         []OXMID         // of OFPTFPT_MATCH, OFPTFPT_WILDCARDS and the two for set-field
	Experimenter   uint32          // of OFPTFPT_EXPERIMENTER, like the next two
	ExpType        uint32
	Data           []byte
}

func (p *TableFeature) code(c *coder) {
	s := c.open("ofp_table_feature_prop_header")
	u16(c, "type", &p.Type)
	c.length(&s)
	switch p.Type {
	case OFPTFPT_INSTRUCTIONS, OFPTFPT_INSTRUCTIONS_MISS:
		structs(c, "instruction_ids", &p.InstructionIDs)
	case OFPTFPT_NEXT_TABLES, OFPTFPT_NEXT_TABLES_MISS:
		p.codeTables(c)
	case OFPTFPT_WRITE_ACTIONS, OFPTFPT_WRITE_ACTIONS_MISS, OFPTFPT_APPLY_ACTIONS, OFPTFPT_APPLY_ACTIONS_MISS:
		structs(c, "action_ids", &p.ActionIDs)
	case OFPTFPT_MATCH, OFPTFPT_WILDCARDS, OFPTFPT_WRITE_SETFIELD, OFPTFPT_WRITE_SETFIELD_MISS,
		OFPTFPT_APPLY_SETFIELD, OFPTFPT_APPLY_SETFIELD_MISS:
		structs(c, "oxm_ids", &p.OXMIDs)
	case OFPTFPT_EXPERIMENTER, OFPTFPT_EXPERIMENTER_MISS:
		u32(c, "experimenter", &p.Experimenter)
		u32(c, "exp_type", &p.ExpType)
		c.data("data", &p.Data)
	default:
		c.fail(fmt.Errorf("type %v: %w", p.Type, ErrUnsupported))
	}
	c.close(s)
	c.padTo8(s.start)
}

// codeTables is data that is formatted as numbers.
func (p *TableFeature) codeTables(c *coder) {
	if c.mode == formatting {
		c.list("next_table_ids", len(p.NextTableIDs), func(i int) { c.formatNumber(nil, uint64(p.NextTableIDs[i])) })
		return
	}
	c.data("next_table_ids", &p.NextTableIDs)
}

// InstructionID is an instruction without its arguments.
type InstructionID struct {
	Type InstructionType
	Data []byte // of OFPIT_EXPERIMENTER: who, and what
}

func (i *InstructionID) code(c *coder) {
	s := c.open("ofp_instruction")
	u16(c, "type", &i.Type)
	c.length(&s)
	c.data("data", &i.Data)
	c.close(s)
}

// ActionID is an action without its arguments.
type ActionID struct {
	Type ActionType
	Data []byte // of OFPAT_EXPERIMENTER: who, and what
}

func (a *ActionID) code(c *coder) {
	s := c.open("ofp_action_header")
	u16(c, "type", &a.Type)
	c.length(&s)
	c.data("data", &a.Data)
	c.close(s)
}
