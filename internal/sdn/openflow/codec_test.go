package openflow

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weir-project/weir/test/must"
)

func mustMarshal(t testing.TB, m Message) []byte {
	t.Helper()
	b, err := m.MarshalBinary()
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	return b
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	must.Succeed(t, err)
	return b
}

// TestRoundTrip writes and reads a message of every type, and finds in it what
// was written.
func TestRoundTrip(t *testing.T) {
	seen := map[Type]bool{}
	requests, replies := map[MultipartType]bool{}, map[MultipartType]bool{}
	for _, m := range samples() {
		b := mustMarshal(t, m)
		got, err := Parse(b)
		if err != nil {
			t.Errorf("%v: %v", m.MessageType(), err)
			continue
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%v:\n%s, want\n%s", m.MessageType(), Format(got, false), Format(m, false))
		}
		if again := mustMarshal(t, got); !bytes.Equal(again, b) {
			t.Errorf("%v written again:\n%x, want\n%x", m.MessageType(), again, b)
		}
		checkShared(t, b, got, b)
		into := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
		SetXID(into, 77) // what it held before is gone
		if err := into.(encoding.BinaryUnmarshaler).UnmarshalBinary(b); err != nil || !reflect.DeepEqual(into, m) {
			t.Errorf("%v read into one that is there (%v):\n%s, want\n%s", m.MessageType(), err, Format(into, false), Format(m, false))
		}
		seen[m.MessageType()] = true
		switch m := m.(type) {
		case *MultipartRequest:
			requests[m.Body.MultipartType()] = true
		case *MultipartReply:
			replies[m.Body.MultipartType()] = true
		}
	}
	for _, n := range namesType.names {
		if !seen[Type(n.value)] {
			t.Errorf("no sample of %s", n.name)
		}
	}
	for _, n := range namesMultipartType.names {
		if !requests[MultipartType(n.value)] || !replies[MultipartType(n.value)] {
			t.Errorf("no sample of a request and a reply of %s", n.name)
		}
	}
}

// TestLayout holds messages to bytes that were put together by hand from the
// specification.
func TestLayout(t *testing.T) {
	for name, test := range map[string]struct {
		m    Message
		want string
	}{
		"hello": {NewHello(), "04000010 00000000 0001 0008 00000010"},
		"flow mod": {&FlowMod{Header: Header{XID: 1}, TableID: 2, IdleTimeout: 5, HardTimeout: 6, Priority: 100, BufferID: OFP_NO_BUFFER, OutPort: OFPP_ANY, OutGroup: OFPG_ANY,
			Match: Match{[]OXM{NewOXMNumber(OFPXMT_OFB_IN_PORT, 3)}},
			Instructions: []Instruction{&InstructionActions{OFPIT_APPLY_ACTIONS, []Action{
				&ActionSetQueue{1}, &ActionOutput{Port: 4},
			}}}},
			"040e 0060 00000001 0000000000000000 0000000000000000 02 00 0005 0006 0064 ffffffff ffffffff ffffffff 0000 0000" +
				"0001 000c 80000004 00000003 00000000" +
				"0004 0020 00000000 0015 0008 00000001 0000 0010 00000004 0000 000000000000"},
		"packet out": {&PacketOut{BufferID: OFP_NO_BUFFER, InPort: OFPP_CONTROLLER, Actions: []Action{&ActionOutput{Port: 1}}, Data: []byte{0xaa}},
			"040d 0029 00000000 ffffffff fffffffd 0010 000000000000 0000 0010 00000001 0000 000000000000 aa"},
		"set field": {&PacketOut{Actions: []Action{&ActionSetField{NewOXMNumber(OFPXMT_OFB_ETH_TYPE, 0x0800)}}},
			"040d 0028 00000000 00000000 00000000 0010 000000000000 0019 0010 80000a02 0800 000000000000"},
	} {
		want := unhex(t, test.want)
		if got := mustMarshal(t, test.m); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x", name, got, want)
		}
	}
}

// TestTruncated reads every message cut off everywhere, with the length of
// before and with that of what is left: always an error or a shorter message,
// and the right error in the first case.
func TestTruncated(t *testing.T) {
	for _, m := range samples() {
		whole := mustMarshal(t, m)
		for n := range whole {
			if _, err := Parse(whole[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%v cut to %d of %d bytes: error %v", m.MessageType(), n, len(whole), err)
			}
			if n < HeaderLen {
				continue
			}
			short := bytes.Clone(whole[:n])
			binary.BigEndian.PutUint16(short[2:], uint16(n))
			got, err := Parse(short)
			var bad *Error
			if err == nil {
				mustMarshal(t, got)
			} else if !errors.As(err, &bad) || bad.Offset > n {
				t.Fatalf("%v cut to %d bytes: error %v", m.MessageType(), n, err)
			}
		}
	}
}

// TestOversized reads messages with bytes after their end.
func TestOversized(t *testing.T) {
	for _, m := range samples() {
		long := append(mustMarshal(t, m), 0)
		if _, err := Parse(long); err == nil || !strings.Contains(err.Error(), "1 bytes after the end") {
			t.Errorf("%v with a byte more: error %v", m.MessageType(), err)
		}
	}
	for _, text := range []string{"0414 0009 00000000 00", "0415 000c 00000000 00000000", "0418 0019 00000000 00000001 00000000 0000000000000000 00"} {
		if _, err := Parse(unhex(t, text)); err == nil || !strings.Contains(err.Error(), "after the last field") {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

// TestRefused are messages that are wrong, and what is said of them.
func TestRefused(t *testing.T) {
	flowMod := "040e %LEN 00000000 0000000000000000 0000000000000000 00 00 0000 0000 0000 ffffffff ffffffff ffffffff 0000 0000"
	const anyPacket = "0001 0004 00000000"
	for name, test := range map[string]struct{ message, want string }{
		"no header":            {"0400", "byte 2: ofp_header: unexpected EOF"},
		"type":                 {"041e 0008 00000000", "byte 1: ofp_header: message type 30: not OpenFlow 1.3"},
		"version 1.0":          {"0105 0008 00000000", "byte 0: ofp_header: OFPT_FEATURES_REQUEST of version 1: not OpenFlow 1.3 (version 4)"},
		"version 1.4":          {"0505 0008 00000000", "byte 0: ofp_header: OFPT_FEATURES_REQUEST of version 5: not OpenFlow 1.3 (version 4)"},
		"hello of version 0":   {"0000 0008 00000000", "byte 0: ofp_header: OFPT_HELLO of version 0: not OpenFlow 1.3 (version 4)"},
		"length below header":  {"0405 0007 00000000", "byte 2: ofp_header: length 7 is less than a header's"},
		"length above message": {"0405 0009 00000000", "byte 8: ofp_header: OFPT_FEATURES_REQUEST of length 9: unexpected EOF"},
		"field cut off":        {"0407 0008 00000000", ""},
		"config cut off":       {"0409 000a 00000000 0000", "byte 10: OFPT_SET_CONFIG: 0 bytes where 2 are needed: unexpected EOF"},
		"hello element":        {"0400 000c 00000000 0001 0003", "byte 10: ofp_hello_elem_header: length 3 ends before its own field"},
		"long hello element":   {"0400 000c 00000000 0001 0009", "byte 10: ofp_hello_elem_header: length 9 where 4 bytes are left: unexpected EOF"},
		"standard match":       {flowMod + "0000 0004 00000000", "byte 48: ofp_match: type OFPMT_STANDARD, want OFPMT_OXM"},
		"OXM length":           {flowMod + "0001 000a 80000002 0000 000000000000", "byte 52: OXM in_port: value of 2 bytes, want 4"},
		"OXM mask":             {flowMod + "0001 0009 00010301 00 00000000000000", "byte 52: OXM field 1 of class 0x1: value and mask are not of the same length"},
		"OXM field":            {flowMod + "0001 0009 80007e01 00 00000000000000", "byte 52: OXM field 63 of class 0x8000: field 63 of OFPXMC_OPENFLOW_BASIC: not OpenFlow 1.3"},
		"OXM payload":          {flowMod + "0001 0008 00010204", "byte 56: OXM field 1 of class 0x1: length 4 where 0 bytes are left: unexpected EOF"},
		"OXM experimenter":     {flowMod + "0001 000c ffff0003 00000000 00000000", "byte 56: OXM: length 3 of a field of OFPXMC_EXPERIMENTER, want 4 or more"},
		"instruction":          {flowMod + anyPacket + "0007 0008 00000000", "byte 56: ofp_instruction: type 7: not OpenFlow 1.3"},
		"instruction length":   {flowMod + anyPacket + "0001 000c 00000000 00000000", "byte 64: ofp_instruction_goto_table: length 12, but the fields end after 8 bytes"},
		"long instruction":     {flowMod + anyPacket + "0001 0010 00000000 0000000000000000", "byte 64: ofp_instruction_goto_table: length 16, but the fields end after 8 bytes"},
		"action":               {flowMod + anyPacket + "0004 0010 00000000 0001 0008 00000000", "byte 64: ofp_action_header: type 1: not OpenFlow 1.3"},
		"short action":         {flowMod + anyPacket + "0004 0010 00000000 0000 0008 00000000", "byte 72: ofp_action_output: 0 bytes where 2 are needed: unexpected EOF"},
		"zero action":          {flowMod + anyPacket + "0004 0010 00000000 0000 0000 00000000", "byte 66: ofp_action_output: length 0 ends before its own field"},
		"half an action":       {flowMod + anyPacket + "0004 0009 00000000 00", "byte 64: ofp_instruction_actions: 1 bytes where 2 are needed: unexpected EOF"},
		"experimenter action":  {flowMod + anyPacket + "0004 0014 00000000 ffff 000c 00002320 00000000", "byte 76: ofp_action_experimenter_header: length 12 is no multiple of 8"},
		"actions_len":          {"040d 0018 00000000 ffffffff fffffffd 0008 000000000000", "byte 16: OFPT_PACKET_OUT: 8 bytes where 16 are needed: unexpected EOF"},
		"multipart request":    {"0412 0010 00000000 000e 0000 00000000", "byte 8: OFPT_MULTIPART_REQUEST: multipart type 14: not OpenFlow 1.3"},
		"multipart reply":      {"0413 0010 00000000 0010 0000 00000000", "byte 8: OFPT_MULTIPART_REPLY: multipart type 16: not OpenFlow 1.3"},
		"port stats":           {"0413 0014 00000000 0004 0000 00000000 00000001", "byte 20: OFPT_MULTIPART_REPLY OFPMP_PORT_STATS: 0 bytes where 4 are needed: unexpected EOF"},
		"queue property":       {"0417 0028 00000000 00000001 00000000 00000001 00000001 0018 000000000000 0003 0008 00000000", "byte 40: ofp_queue_prop_header: property 3: not OpenFlow 1.3"},
		"meter band":           {"041d 001c 00000000 0000 0000 00000001 0003 000c 00000000 00000000", "byte 28: ofp_meter_band_header: type 3: not OpenFlow 1.3"},
		"table feature":        {"0413 0058 00000000 000c 0000 00000000 0048 00 0000000000" + strings.Repeat("00", 56) + "0009 0004 00000000", "byte 84: ofp_table_feature_prop_header: type 9: not OpenFlow 1.3"},
	} {
		message := unhex(t, strings.ReplaceAll(test.message, "%LEN", "0000"))
		if strings.Contains(test.message, "%LEN") {
			binary.BigEndian.PutUint16(message[2:], uint16(len(message)))
		}
		_, err := Parse(message)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, test.want)
		}
	}
}

// TestUnmarshal is for callers who know which message it is.
func TestUnmarshal(t *testing.T) {
	m := EchoRequest{Data: []byte("what was there before")}
	if err := m.UnmarshalBinary(unhex(t, "0402 0008 00000005")); err != nil || m.XID != 5 || m.Data != nil {
		t.Errorf("%+v, %v", m, err)
	}
	if err := m.UnmarshalBinary(unhex(t, "0403 0008 00000005")); err == nil || !strings.Contains(err.Error(), "message type OFPT_ECHO_REPLY, want OFPT_ECHO_REQUEST") {
		t.Errorf("an echo reply: %v", err)
	}
	if err := m.UnmarshalBinary(nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("nothing: %v", err)
	}
}

// TestUnwritable are messages that cannot be written.
func TestUnwritable(t *testing.T) {
	big := make([]byte, MaxLen)
	for name, test := range map[string]struct {
		m    Message
		want string
	}{
		"too long":            {&EchoRequest{Data: big}, "too many for one message"},
		"too many actions":    {&PacketOut{Actions: many(func() Action { return &ActionOutput{} })}, "too many for one message"},
		"long instruction":    {&FlowMod{Instructions: []Instruction{&InstructionActions{OFPIT_APPLY_ACTIONS, many(func() Action { return &ActionOutput{} })}}}, "too many"},
		"nil action":          {&PacketOut{Actions: []Action{nil}}, "ofp_action_header is nil"},
		"nil instruction":     {&FlowMod{Instructions: []Instruction{nil}}, "ofp_instruction is nil"},
		"no body":             {&MultipartRequest{}, "body is nil"},
		"no reply":            {&MultipartReply{}, "body is nil"},
		"long name":           {&PortStatus{Desc: PortDesc{Name: "a name of 17 byte"}}, "at most 16 bytes"},
		"zero byte":           {&PortStatus{Desc: PortDesc{Name: "a\x00b"}}, "without a zero byte"},
		"version":             {&EchoRequest{Header: Header{Version: 5}}, "of version 5: not OpenFlow 1.3"},
		"OXM value":           {&FlowMod{Match: Match{[]OXM{NewOXM(OFPXMT_OFB_IN_PORT, []byte{1}, nil)}}}, "OXM in_port: value of 1 bytes, want 4"},
		"OXM mask":            {&FlowMod{Match: Match{[]OXM{NewOXM(OFPXMT_OFB_IP_PROTO, []byte{1}, []byte{1, 2})}}}, "not of the same length"},
		"OXM field":           {&FlowMod{Match: Match{[]OXM{{Class: OFPXMC_NXM_1, Field: 128}}}}, "at most 127"},
		"OXM of basic class":  {&FlowMod{Match: Match{[]OXM{NewOXM(41, []byte{1}, nil)}}}, "not OpenFlow 1.3"},
		"long OXM":            {&FlowMod{Match: Match{[]OXM{{Class: OFPXMC_NXM_1, Value: big[:256]}}}}, "at most 255"},
		"long OXM of another": {&FlowMod{Match: Match{[]OXM{{Class: OFPXMC_EXPERIMENTER, Value: big[:252]}}}}, "at most 255"},
		"OXM ID": {&MultipartRequest{Body: &TableFeaturesRequest{{Properties: []TableFeature{{Type: OFPTFPT_MATCH,
			OXMIDs: []OXMID{{Class: OFPXMC_EXPERIMENTER}}}}}}}, "want 4 or more"},
		"odd action":     {&PacketOut{Actions: []Action{&ActionExperimenter{Data: []byte{1}}}}, "no multiple of 8"},
		"meter band":     {&MeterMod{Bands: []MeterBand{{Type: 7}}}, "type 7: not OpenFlow 1.3"},
		"queue property": {&QueueGetConfigReply{Queues: []PacketQueue{{Properties: []QueueProp{{}}}}}, "property 0: not OpenFlow 1.3"},
	} {
		if b, err := test.m.MarshalBinary(); err == nil || b != nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %s", name, err, test.want)
		}
	}
}

func many[T any](one func() T) []T {
	all := make([]T, MaxLen/16+1)
	for i := range all {
		all[i] = one()
	}
	return all
}

// TestReader cuts a stream apart however it arrives.
func TestReader(t *testing.T) {
	var stream []byte
	var offsets []int64
	for _, m := range samples() {
		offsets = append(offsets, int64(len(stream)))
		stream = append(stream, mustMarshal(t, m)...)
	}
	r := NewReader(iotest.OneByteReader(bytes.NewReader(stream)))
	for i, want := range samples() {
		b, err := r.Next()
		must.Succeed(t, err)
		if got, err := Parse(b); err != nil || !reflect.DeepEqual(got, want) || r.Offset() != offsets[i] {
			t.Fatalf("message %d at %d: %v, %v", i, r.Offset(), got, err)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	for text, want := range map[string]string{
		"0402 00":              "byte 3: ofp_header: unexpected EOF",
		"0402 0007 00000000":   "byte 2: ofp_header: length 7 is less than a header's",
		"0402 000a 00000000":   "byte 8: ofp_header: OFPT_ECHO_REQUEST of length 10: unexpected EOF",
		"0402 000a 0000000001": "byte 9: ofp_header: OFPT_ECHO_REQUEST of length 10: unexpected EOF",
	} {
		if _, err := NewReader(bytes.NewReader(unhex(t, text))).Next(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestFormat holds the JSON to what a reader expects.
func TestFormat(t *testing.T) {
	m := &FlowMod{Header: Header{XID: 7}, Command: OFPFC_ADD, BufferID: OFP_NO_BUFFER, OutPort: OFPP_ANY, OutGroup: 9,
		Flags: OFPFF_SEND_FLOW_REM | 1<<15,
		Match: Match{[]OXM{
			NewOXMNumber(OFPXMT_OFB_IN_PORT, uint64(OFPP_LOCAL)),
			NewOXM(OFPXMT_OFB_IPV4_DST, []byte{198, 18, 0, 0}, []byte{255, 254, 0, 0}),
			{Class: OFPXMC_NXM_1, Field: 1, Value: []byte{1, 2}},
		}},
		Instructions: []Instruction{&InstructionGotoTable{TableID: 1}}}
	names := `{"version":4,"type":"OFPT_FLOW_MOD","xid":7,"cookie":0,"cookie_mask":0,"table_id":0,"command":"OFPFC_ADD",` +
		`"idle_timeout":0,"hard_timeout":0,"priority":0,"buffer_id":"OFP_NO_BUFFER","out_port":"OFPP_ANY","out_group":9,` +
		`"flags":["OFPFF_SEND_FLOW_REM",32768],"match":{"type":"OFPMT_OXM","oxm_fields":[{"field":"in_port","value":"OFPP_LOCAL"},` +
		`{"field":"ipv4_dst","value":"198.18.0.0","mask":"255.254.0.0"},{"class":"OFPXMC_NXM_1","field":1,"value":"AQI="}]},` +
		`"instructions":[{"type":"OFPIT_GOTO_TABLE","table_id":1}]}`
	if got := string(Format(m, false)); got != names {
		t.Errorf("%s, want\n%s", got, names)
	}
	if got := string(Format(m, true)); !strings.Contains(got, `"flags":32769`) || !strings.Contains(got, `"value":4294967294`) {
		t.Errorf("with numbers: %s", got)
	}
	bad := &ErrorMessage{ErrorType: OFPET_BAD_REQUEST, Code: uint16(OFPBRC_BAD_LEN)}
	if got, want := string(Format(bad, false)), `{"version":4,"type":"OFPT_ERROR","xid":0,"error_type":"OFPET_BAD_REQUEST","code":"OFPBRC_BAD_LEN","data":""}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, m := range samples() {
		if b := Format(m, false); !json.Valid(b) || bytes.ContainsRune(b, '\n') {
			t.Errorf("%v: not one line of JSON: %s", m.MessageType(), b)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		OFPR_ACTION.String():                                "OFPR_ACTION",
		PacketInReason(9).String():                          "9",
		(OFPFF_SEND_FLOW_REM | OFPFF_RESET_COUNTS).String(): "OFPFF_SEND_FLOW_REM|OFPFF_RESET_COUNTS",
		FlowModFlags(0x101).String():                        "OFPFF_SEND_FLOW_REM|0x100",
		FlowModFlags(0).String():                            "0",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestIPv6 compares addresses with how the standard library writes them.
func TestIPv6(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		var b [16]byte
		for i := range 8 {
			if random.IntN(2) == 0 {
				binary.BigEndian.PutUint16(b[2*i:], uint16(random.Uint32()>>(16+random.IntN(16))))
			}
		}
		want := netip.AddrFrom16(b)
		if want.Is4In6() {
			continue
		}
		if got := formatIPv6(b[:]); got != want.String() {
			t.Fatalf("%x: %s, want %s", b, got, want)
		}
	}
}

func TestHelloSpeaks(t *testing.T) {
	for name, test := range map[string]struct {
		hello Hello
		want  bool
	}{
		"bitmap":                {*NewHello(), true},
		"bitmap of a later one": {Hello{Header{Version: 6}, []HelloElement{{Type: OFPHET_VERSIONBITMAP, Bitmaps: []uint32{1<<6 | 1<<4}}}}, true},
		"bitmap without":        {Hello{Header{Version: 6}, []HelloElement{{Type: OFPHET_VERSIONBITMAP, Bitmaps: []uint32{1<<6 | 1}}}}, false},
		"empty bitmap":          {Hello{Header{Version: 4}, []HelloElement{{Type: OFPHET_VERSIONBITMAP}}}, false},
		"no bitmap":             {Hello{Header: Header{Version: 4}}, true},
		"no bitmap and 1.0":     {Hello{Header: Header{Version: 1}}, false},
		"another element":       {Hello{Header{Version: 5}, []HelloElement{{Type: 7}}}, true},
	} {
		if got := test.hello.Speaks(Version); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestMatchField(t *testing.T) {
	m := Match{[]OXM{{Class: OFPXMC_NXM_1, Field: OFPXMT_OFB_IN_PORT, Value: []byte{9}}, NewOXMNumber(OFPXMT_OFB_IN_PORT, 7)}}
	if x := m.Field(OFPXMT_OFB_IN_PORT); x == nil || x.Number() != 7 {
		t.Errorf("in_port: %v", x)
	}
	if x := m.Field(OFPXMT_OFB_ETH_DST); x != nil {
		t.Errorf("eth_dst: %v", x)
	}
	if x := NewOXMNumber(OFPXMT_OFB_IPV6_SRC, 1<<40); !bytes.Equal(x.Value, []byte{10: 1, 15: 0}) {
		t.Errorf("ipv6_src: %x", x.Value)
	}
	if n := OXMField(40).Len(); n != 0 {
		t.Errorf("a field that is not there has %d bytes", n)
	}
}

// TestTypes: what an action and an instruction say of themselves is what is
// written.
func TestTypes(t *testing.T) {
	for _, a := range actions() {
		b := mustMarshal(t, &PacketOut{Actions: []Action{a}})
		if got := ActionType(bigEndian(b[24:26])); got != a.ActionType() {
			t.Errorf("%T: %v, want %v", a, got, a.ActionType())
		}
	}
	for _, i := range instructions() {
		b := mustMarshal(t, &FlowMod{Instructions: []Instruction{i}})
		if got := InstructionType(bigEndian(b[56:58])); got != i.InstructionType() {
			t.Errorf("%T: %v, want %v", i, got, i.InstructionType())
		}
	}
}

// TestReadShared: of what a message held before nothing is left, however long.
func TestReadShared(t *testing.T) {
	short := Match{Fields: []OXM{NewOXMNumber(OFPXMT_OFB_IN_PORT, 3)}}
	for _, kind := range [][]Message{
		{&PacketIn{Match: match(), Data: []byte{1, 2}}, &PacketIn{Match: short}, &PacketIn{Data: []byte{3}}, &PacketIn{Match: match()}},
		{&FlowRemoved{Match: match(), Cookie: 7}, &FlowRemoved{Match: short}, &FlowRemoved{}},
	} {
		into := newMessage(kind[0].MessageType())
		for i, m := range kind {
			b := mustMarshal(t, m)
			want, err := ParseShared(b)
			if err == nil {
				err = ReadShared(into, b)
			}
			if err != nil || !bytes.Equal(mustMarshal(t, into), b) || string(Format(into, false)) != string(Format(want, false)) {
				t.Errorf("%v %d (%v):\n%s, want\n%s", m.MessageType(), i, err, Format(into, false), Format(want, false))
			}
		}
	}
}

// BenchmarkPacketIn is what a controller does for every new flow: read a packet
// in, write a flow mod and a packet out.
func BenchmarkPacketIn(b *testing.B) {
	in := mustMarshal(b, &PacketIn{BufferID: OFP_NO_BUFFER, TotalLen: 128, Match: Match{[]OXM{NewOXMNumber(OFPXMT_OFB_IN_PORT, 3)}}, Data: make([]byte, 128)})
	act := []Action{&ActionSetQueue{QueueID: 1}, &ActionOutput{Port: 2}}
	b.ReportAllocs()
	for b.Loop() {
		m, err := Parse(in)
		if err != nil {
			b.Fatal(err)
		}
		mustMarshal(b, &FlowMod{BufferID: OFP_NO_BUFFER, Match: m.(*PacketIn).Match,
			Instructions: []Instruction{&InstructionActions{OFPIT_APPLY_ACTIONS, act}}})
		mustMarshal(b, &PacketOut{BufferID: OFP_NO_BUFFER, InPort: 3, Actions: act, Data: m.(*PacketIn).Data})
	}
}
