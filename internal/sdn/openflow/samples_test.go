package openflow

import "strings"

// samples are messages of every type, with every structure that can be in one.
func samples() []Message {
	h := Header{Version: Version, XID: 0x01020304}
	all := append(sessionSamples(h), forwardingSamples(h)...)
	for _, body := range requestSamples() {
		all = append(all, &MultipartRequest{Header: h, Flags: OFPMPF_REQ_MORE, Body: body})
	}
	for _, body := range replySamples() {
		all = append(all, &MultipartReply{Header: h, Flags: OFPMPF_REPLY_MORE, Body: body})
	}
	return all
}

func sessionSamples(h Header) []Message {
	role := RoleState{Role: OFPCR_ROLE_MASTER, GenerationID: 1 << 63}
	async := AsyncConfig{[2]uint32{7, 1}, [2]uint32{7, 3}, [2]uint32{15, 2}}
	all := []Message{
		&Hello{Header: h, Elements: []HelloElement{
			{Type: OFPHET_VERSIONBITMAP, Bitmaps: []uint32{1<<1 | 1<<4, 1}},
			{Type: 9, Data: []byte("other")},
		}},
		&Hello{Header: Header{Version: 6, XID: 1}},
		&ErrorMessage{Header: Header{Version: 1, XID: 1}, ErrorType: OFPET_HELLO_FAILED, Data: []byte("no")},
		&ErrorMessage{Header: h, ErrorType: OFPET_EXPERIMENTER, Code: 5, Experimenter: 0x2320, Data: []byte{1}},
		&EchoRequest{Header: h, Data: []byte("are you there")},
		&EchoReply{Header: h, Data: []byte("are you there")},
		&Experimenter{Header: h, Experimenter: 0x2320, ExpType: 13, Data: []byte{1, 2, 3}},
		&FeaturesRequest{Header: h},
		&FeaturesReply{Header: h, DatapathID: 0xfedcba9876543210, NBuffers: 256, NTables: 254, AuxiliaryID: 1,
			Capabilities: OFPC_FLOW_STATS | OFPC_QUEUE_STATS, Reserved: 1},
		&GetConfigRequest{Header: h},
		&GetConfigReply{Header: h, SwitchConfig: SwitchConfig{OFPC_FRAG_DROP, 128}},
		&SetConfig{Header: h, SwitchConfig: SwitchConfig{OFPC_FRAG_NORMAL, OFPCML_NO_BUFFER}},
		&BarrierRequest{Header: h},
		&BarrierReply{Header: h},
		&RoleRequest{Header: h, RoleState: role},
		&RoleReply{Header: h, RoleState: role},
		&GetAsyncRequest{Header: h},
		&GetAsyncReply{Header: h, AsyncConfig: async},
		&SetAsync{Header: h, AsyncConfig: async},
		&QueueGetConfigRequest{Header: h, Port: OFPP_ANY},
		&QueueGetConfigReply{Header: h, Port: 3, Queues: []PacketQueue{
			{QueueID: 1, Port: 3, Properties: []QueueProp{
				{Property: OFPQT_MIN_RATE, Rate: 100}, {Property: OFPQT_MAX_RATE, Rate: 1001},
				{Property: OFPQT_EXPERIMENTER, Experimenter: 0x2320, Data: []byte{1, 2, 3}},
			}},
			{QueueID: 2, Port: 3},
		}},
	}
	for t := OFPET_HELLO_FAILED; t <= OFPET_TABLE_FEATURES_FAILED+1; t++ {
		all = append(all, &ErrorMessage{Header: h, ErrorType: t, Code: 1})
	}
	return all
}

func match() Match {
	var m Match
	for i := range oxmFields {
		f := OXMField(i)
		value := make([]byte, f.Len())
		value[len(value)-1] = 1
		m.Fields = append(m.Fields, NewOXM(f, value, nil))
	}
	m.Fields = append(m.Fields,
		NewOXM(OFPXMT_OFB_IPV4_DST, []byte{198, 18, 0, 0}, []byte{255, 254, 0, 0}),
		OXM{Class: OFPXMC_NXM_1, Field: 0, Value: []byte{1, 2, 3, 4}, Mask: []byte{255, 255, 0, 0}},
		OXM{Class: OFPXMC_EXPERIMENTER, Field: 42, Experimenter: 0x4f4e4600, Value: []byte{0, 2}, Mask: []byte{0, 3}},
	)
	return m
}

func actions() []Action {
	all := []Action{
		&ActionSetQueue{QueueID: 2},
		&ActionOutput{Port: 7},
		&ActionOutput{Port: OFPP_CONTROLLER, MaxLen: OFPCML_NO_BUFFER},
		&ActionMPLSTTL{MPLSTTL: 9},
		&ActionNwTTL{NwTTL: 63},
		&ActionPopMPLS{EtherType: 0x0800},
		&ActionGroup{GroupID: 5},
		&ActionSetField{Field: NewOXM(OFPXMT_OFB_ETH_DST, []byte{1, 2, 3, 4, 5, 6}, nil)},
		&ActionSetField{Field: NewOXMNumber(OFPXMT_OFB_IP_DSCP, 46)},
		&ActionExperimenter{Experimenter: 0x2320, Data: make([]byte, 8)},
	}
	for _, t := range []ActionType{OFPAT_COPY_TTL_OUT, OFPAT_COPY_TTL_IN, OFPAT_DEC_MPLS_TTL, OFPAT_DEC_NW_TTL, OFPAT_POP_VLAN, OFPAT_POP_PBB} {
		all = append(all, &ActionPlain{Type: t})
	}
	for _, t := range []ActionType{OFPAT_PUSH_VLAN, OFPAT_PUSH_MPLS, OFPAT_PUSH_PBB} {
		all = append(all, &ActionPush{Type: t, EtherType: 0x8100})
	}
	return all
}

func instructions() []Instruction {
	return []Instruction{
		&InstructionMeter{MeterID: 1},
		&InstructionActions{Type: OFPIT_APPLY_ACTIONS, Actions: actions()},
		&InstructionActions{Type: OFPIT_CLEAR_ACTIONS},
		&InstructionActions{Type: OFPIT_WRITE_ACTIONS, Actions: actions()[:2]},
		&InstructionWriteMetadata{Metadata: 1, MetadataMask: 1<<64 - 1},
		&InstructionGotoTable{TableID: 2},
		&InstructionExperimenter{Experimenter: 0x2320, Data: make([]byte, 16)},
	}
}

func buckets() []Bucket {
	return []Bucket{
		{Weight: 1, WatchPort: OFPP_ANY, WatchGroup: OFPG_ANY, Actions: actions()},
		{Weight: 2, WatchPort: 3, WatchGroup: 4},
	}
}

func bands() []MeterBand {
	return []MeterBand{
		{Type: OFPMBT_DROP, Rate: 1000, BurstSize: 100},
		{Type: OFPMBT_DSCP_REMARK, Rate: 1000, BurstSize: 100, PrecLevel: 1},
		{Type: OFPMBT_EXPERIMENTER, Rate: 1000, BurstSize: 100, Experimenter: 0x2320, Data: []byte{1, 2, 3, 4}},
	}
}

func port() PortDesc {
	return PortDesc{PortNo: OFPP_LOCAL, HWAddr: MAC{2, 0, 0, 0, 0, 1}, Name: "br0", Config: OFPPC_PORT_DOWN,
		State: OFPPS_LINK_DOWN, Curr: OFPPF_COPPER, Advertised: 1, Supported: 2, Peer: 4, CurrSpeed: 1e6, MaxSpeed: 1e7}
}

func forwardingSamples(h Header) []Message {
	return []Message{
		&PacketIn{Header: h, BufferID: OFP_NO_BUFFER, TotalLen: 60, Reason: OFPR_ACTION, TableID: 1, Cookie: 1 << 60,
			Match: match(), Data: []byte("packet")},
		&PacketOut{Header: h, BufferID: OFP_NO_BUFFER, InPort: OFPP_CONTROLLER, Actions: actions(), Data: []byte("packet")},
		&PacketOut{Header: h, BufferID: 7, InPort: 1},
		&FlowMod{Header: h, Cookie: 1, CookieMask: 2, TableID: OFPTT_ALL, Command: OFPFC_DELETE_STRICT, IdleTimeout: 3,
			HardTimeout: 4, Priority: 5, BufferID: OFP_NO_BUFFER, OutPort: OFPP_ANY, OutGroup: OFPG_ANY,
			Flags: OFPFF_SEND_FLOW_REM | 1<<15, Match: match(), Instructions: instructions()},
		&FlowRemoved{Header: h, Cookie: 1, Priority: 2, Reason: OFPRR_HARD_TIMEOUT, TableID: 3, DurationSec: 4,
			DurationNsec: 5, IdleTimeout: 6, HardTimeout: 7, PacketCount: 8, ByteCount: 9, Match: match()},
		&PortStatus{Header: h, Reason: OFPPR_MODIFY, Desc: port()},
		&PortMod{Header: h, PortNo: 1, HWAddr: MAC{2}, Config: OFPPC_NO_FWD, Mask: OFPPC_NO_FWD, Advertise: 4},
		&TableMod{Header: h, TableID: OFPTT_ALL, Config: 1},
		&GroupMod{Header: h, Command: OFPGC_MODIFY, GroupType: OFPGT_SELECT, GroupID: 1, Buckets: buckets()},
		&MeterMod{Header: h, Command: OFPMC_ADD, Flags: OFPMF_KBPS | OFPMF_STATS, MeterID: OFPM_CONTROLLER, Bands: bands()},
	}
}

func requestSamples() []RequestBody {
	features := TableFeaturesRequest(tableFeatures())
	filter := EveryFlow()
	filter.Match = match()
	return []RequestBody{
		&DescRequest{}, &FlowStatsRequest{filter}, &AggregateStatsRequest{EveryFlow()}, &TableStatsRequest{},
		&PortStatsRequest{PortNo: OFPP_ANY}, &QueueStatsRequest{PortNo: 1, QueueID: OFPQ_ALL},
		&GroupStatsRequest{GroupID: OFPG_ALL}, &GroupDescRequest{}, &GroupFeaturesRequest{},
		&MeterStatsRequest{MeterID: OFPM_ALL}, &MeterConfigRequest{MeterID: 1}, &MeterFeaturesRequest{},
		new(TableFeaturesRequest), &features, &PortDescRequest{},
		&ExperimenterMultipartRequest{ExperimenterBody{0x2320, 1, []byte("more")}},
	}
}

func tableFeatures() []TableFeatures {
	var properties []TableFeature
	for _, name := range namesTableFeatureProp.names {
		p := TableFeature{Type: TableFeatureProp(name.value)}
		switch {
		case p.Type <= OFPTFPT_INSTRUCTIONS_MISS:
			p.InstructionIDs = []InstructionID{{Type: OFPIT_METER}, {Type: OFPIT_EXPERIMENTER, Data: []byte{0, 0, 0x23, 0x20}}}
		case p.Type <= OFPTFPT_NEXT_TABLES_MISS:
			p.NextTableIDs = []byte{1, 2, 3}
		case p.Type <= OFPTFPT_APPLY_ACTIONS_MISS:
			p.ActionIDs = []ActionID{{Type: OFPAT_OUTPUT}, {Type: OFPAT_EXPERIMENTER, Data: []byte{0, 0, 0x23, 0x20}}}
		case p.Type <= OFPTFPT_APPLY_SETFIELD_MISS:
			p.OXMIDs = []OXMID{
				{Class: OFPXMC_OPENFLOW_BASIC, Field: OFPXMT_OFB_IPV4_DST, HasMask: true, Length: 8},
				{Class: OFPXMC_NXM_1, Field: 5, Length: 4},
				{Class: OFPXMC_EXPERIMENTER, Field: 42, Length: 6, Experimenter: 0x4f4e4600},
			}
		default:
			p.Experimenter, p.ExpType, p.Data = 0x2320, 1, []byte{1, 2, 3, 4}
		}
		properties = append(properties, p)
	}
	return []TableFeatures{
		{TableID: 0, Name: strings.Repeat("n", 32), MetadataMatch: 1, MetadataWrite: 2, Config: 3, MaxEntries: 4, Properties: properties},
		{TableID: 1},
	}
}

func replySamples() []ReplyBody {
	features := TableFeaturesReply(tableFeatures())
	return []ReplyBody{
		&Desc{MfrDesc: "Weir", HwDesc: "none", SwDesc: "1", SerialNum: "2", DpDesc: "ü"},
		&FlowStatsReply{{TableID: 1, DurationSec: 2, DurationNsec: 3, Priority: 4, IdleTimeout: 5, HardTimeout: 6,
			Flags: OFPFF_RESET_COUNTS, Cookie: 7, PacketCount: 8, ByteCount: 9, Match: match(), Instructions: instructions()}, {}},
		&AggregateStats{PacketCount: 1, ByteCount: 2, FlowCount: 3},
		&TableStatsReply{{TableID: 1, ActiveCount: 2, LookupCount: 3, MatchedCount: 4}},
		&PortStatsReply{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {}},
		&QueueStatsReply{{1, 2, 3, 4, 5, 6, 7}},
		&GroupStatsReply{{1, 2, 3, 4, 5, 6, []BucketCounter{{7, 8}, {9, 10}}}, {}},
		&GroupDescReply{{GroupType: OFPGT_FF, GroupID: 1, Buckets: buckets()}, {}},
		&GroupFeatures{1, OFPGFC_CHAINING, [4]uint32{1, 2, 3, 4}, [4]uint32{5, 6, 7, 8}},
		&MeterStatsReply{{1, 2, 3, 4, 5, 6, []MeterBandStats{{7, 8}}}, {}},
		&MeterConfigReply{{OFPMF_PKTPS, 1, bands()}, {}},
		&MeterFeatures{1, 2, 3, 4, 5},
		&features,
		&PortDescReply{port(), {}},
		&ExperimenterMultipartReply{ExperimenterBody{0x2320, 1, []byte("more")}},
	}
}
