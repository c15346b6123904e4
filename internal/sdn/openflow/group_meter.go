package openflow

import "fmt"

// Groups and meters.

// GroupMod adds, changes or removes a group. Section 7.3.4.2.
type GroupMod struct {
	Header
	Command   GroupModCommand
	GroupType GroupType
	GroupID   Group
	Buckets   []Bucket
}

func (m *GroupMod) code(c *coder) {
	u16(c, "command", &m.Command)
	u8(c, "group_type", &m.GroupType)
	c.pad(1)
	u32(c, "group_id", &m.GroupID)
	structs(c, "buckets", &m.Buckets)
}

// Bucket is one set of actions of a group. Section 7.3.4.2.
type Bucket struct {
	Weight     uint16
	WatchPort  Port
	WatchGroup Group
	Actions    []Action
}

func (b *Bucket) code(c *coder) {
	s := c.open("ofp_bucket")
	c.length(&s)
	u16(c, "weight", &b.Weight)
	u32(c, "watch_port", &b.WatchPort)
	u32(c, "watch_group", &b.WatchGroup)
	c.pad(4)
	c.actions(&b.Actions)
	c.closeAligned(s)
}

// GroupStatsRequest asks for a GroupStatsReply. Section 7.3.5.9.
type GroupStatsRequest struct {
	GroupID Group // OFPG_ALL is all
}

func (g *GroupStatsRequest) code(c *coder) {
	u32(c, "group_id", &g.GroupID)
	c.pad(4)
}

// GroupStats is what one group has carried. Section 7.3.5.9.
type GroupStats struct {
	GroupID      Group
	RefCount     uint32
	PacketCount  uint64
	ByteCount    uint64
	DurationSec  uint32
	DurationNsec uint32
	BucketStats  []BucketCounter
}

func (g *GroupStats) code(c *coder) {
	s := c.open("ofp_group_stats")
	c.length(&s)
	c.pad(2)
	u32(c, "group_id", &g.GroupID)
	u32(c, "ref_count", &g.RefCount)
	c.pad(4)
	u64(c, "packet_count", &g.PacketCount)
	u64(c, "byte_count", &g.ByteCount)
	u32(c, "duration_sec", &g.DurationSec)
	u32(c, "duration_nsec", &g.DurationNsec)
	structs(c, "bucket_stats", &g.BucketStats)
	c.close(s)
}

// BucketCounter is what one bucket has carried. Section 7.3.5.9.
type BucketCounter struct {
	PacketCount uint64
	ByteCount   uint64
}

func (b *BucketCounter) code(c *coder) {
	u64(c, "packet_count", &b.PacketCount)
	u64(c, "byte_count", &b.ByteCount)
}

// GroupDescRequest asks for a GroupDescReply. Section 7.3.5.10.
type GroupDescRequest struct{}

func (*GroupDescRequest) code(*coder) {}

// GroupDesc is one group. Section 7.3.5.10.
type GroupDesc struct {
	GroupType GroupType
	GroupID   Group
	Buckets   []Bucket
}

func (g *GroupDesc) code(c *coder) {
	s := c.open("ofp_group_desc")
	c.length(&s)
	u8(c, "group_type", &g.GroupType)
	c.pad(1)
	u32(c, "group_id", &g.GroupID)
	structs(c, "buckets", &g.Buckets)
	c.close(s)
}

// GroupFeaturesRequest asks for a GroupFeatures. Section 7.3.5.11.
type GroupFeaturesRequest struct{}

func (*GroupFeaturesRequest) code(*coder) {}

// GroupFeatures tells which groups a switch can have. Section 7.3.5.11.
type GroupFeatures struct {
	Types        uint32 // bit n stands for group type n
	Capabilities GroupCapabilities
	MaxGroups    [4]uint32 // by group type
	Actions      [4]uint32 // by group type; bit n stands for action type n
}

func (g *GroupFeatures) code(c *coder) {
	u32(c, "types", &g.Types)
	u32(c, "capabilities", &g.Capabilities)
	numbers32(c, "max_groups", g.MaxGroups[:])
	numbers32(c, "actions", g.Actions[:])
}

// MeterMod adds, changes or removes a meter. Section 7.3.4.4.
type MeterMod struct {
	Header
	Command MeterModCommand
	Flags   MeterFlags
	MeterID Meter
	Bands   []MeterBand
}

func (m *MeterMod) code(c *coder) {
	u16(c, "command", &m.Command)
	u16(c, "flags", &m.Flags)
	u32(c, "meter_id", &m.MeterID)
	structs(c, "bands", &m.Bands)
}

// MeterBand is what a meter does above a rate. Section 7.3.4.4.
type MeterBand struct {
	Type         MeterBandType
	Rate         uint32 // in kbit/s, or packets/s with OFPMF_PKTPS
	BurstSize    uint32 // in kbit, or packets
	PrecLevel    uint8  // of OFPMBT_DSCP_REMARK
	Experimenter uint32 // of OFPMBT_EXPERIMENTER
	Data         []byte // of OFPMBT_EXPERIMENTER
}

func (b *MeterBand) code(c *coder) {
	s := c.open("ofp_meter_band_header")
	u16(c, "type", &b.Type)
	c.length(&s)
	u32(c, "rate", &b.Rate)
	u32(c, "burst_size", &b.BurstSize)
	switch b.Type {
	case OFPMBT_DROP:
		c.pad(4)
	case OFPMBT_DSCP_REMARK:
		u8(c, "prec_level", &b.PrecLevel)
		c.pad(3)
	case OFPMBT_EXPERIMENTER:
		u32(c, "experimenter", &b.Experimenter)
		c.data("data", &b.Data)
	default:
		c.fail(fmt.Errorf("type %v: %w", b.Type, ErrUnsupported))
	}
	c.close(s)
}

// MeterStatsRequest asks for a MeterStatsReply. Section 7.3.5.12.
type MeterStatsRequest struct {
	MeterID Meter // OFPM_ALL is all
}

func (m *MeterStatsRequest) code(c *coder) {
	u32(c, "meter_id", &m.MeterID)
	c.pad(4)
}

// MeterStats is what one meter has seen. Section 7.3.5.12.
type MeterStats struct {
	MeterID       Meter
	FlowCount     uint32
	PacketInCount uint64
	ByteInCount   uint64
	DurationSec   uint32
	DurationNsec  uint32
	BandStats     []MeterBandStats
}

func (m *MeterStats) code(c *coder) {
	s := c.open("ofp_meter_stats")
	u32(c, "meter_id", &m.MeterID)
	c.length(&s)
	c.pad(6)
	u32(c, "flow_count", &m.FlowCount)
	u64(c, "packet_in_count", &m.PacketInCount)
	u64(c, "byte_in_count", &m.ByteInCount)
	u32(c, "duration_sec", &m.DurationSec)
	u32(c, "duration_nsec", &m.DurationNsec)
	structs(c, "band_stats", &m.BandStats)
	c.close(s)
}

// MeterBandStats is what one band has seen. Section 7.3.5.12.
type MeterBandStats struct {
	PacketBandCount uint64
	ByteBandCount   uint64
}

func (m *MeterBandStats) code(c *coder) {
	u64(c, "packet_band_count", &m.PacketBandCount)
	u64(c, "byte_band_count", &m.ByteBandCount)
}

// MeterConfigRequest asks for a MeterConfigReply. Section 7.3.5.13.
type MeterConfigRequest struct {
	MeterID Meter // OFPM_ALL is all
}

func (m *MeterConfigRequest) code(c *coder) {
	u32(c, "meter_id", &m.MeterID)
	c.pad(4)
}

// MeterConfig is one meter. Section 7.3.5.13.
type MeterConfig struct {
	Flags   MeterFlags
	MeterID Meter
	Bands   []MeterBand
}

func (m *MeterConfig) code(c *coder) {
	s := c.open("ofp_meter_config")
	c.length(&s)
	u16(c, "flags", &m.Flags)
	u32(c, "meter_id", &m.MeterID)
	structs(c, "bands", &m.Bands)
	c.close(s)
}

// MeterFeaturesRequest asks for a MeterFeatures. Section 7.3.5.14.
type MeterFeaturesRequest struct{}

func (*MeterFeaturesRequest) code(*coder) {}

// MeterFeatures tells which meters a switch can have. Section 7.3.5.14.
type MeterFeatures struct {
	MaxMeter     uint32
	BandTypes    uint32 // bit n stands for band type n
	Capabilities uint32 // bits of MeterFlags
	MaxBands     uint8
	MaxColor     uint8
}

func (m *MeterFeatures) code(c *coder) {
	u32(c, "max_meter", &m.MaxMeter)
	u32(c, "band_types", &m.BandTypes)
	u32(c, "capabilities", &m.Capabilities)
	u8(c, "max_bands", &m.MaxBands)
	u8(c, "max_color", &m.MaxColor)
	c.pad(2)
}
