package core

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

// Frames of Linux 6.18, between the hosts 2001:db8:1::b and ::c at the two ends of a
// veth: detection of duplicates, resolution, a ping and its answer, the first and the
// last fragment of a longer ping, UDP to a port where nobody listens and what is said
// about it, UDP behind a hop by hop header, the membership of a group, and an
// advertisement that tells no MAC address.
const (
	linuxProbe    = "3333ff00000c02000000000c86dd6000000000203aff00000000000000000000000000000000ff0200000000000000000001ff00000c87007fae0000000020010db800010000000000000000000c0e017de3038d3dae"
	linuxAsks     = "3333ff00000c02000000000b86dd6000000000203aff20010db800010000000000000000000bff0200000000000000000001ff00000c87001bfd0000000020010db800010000000000000000000c010102000000000b"
	linuxSays     = "02000000000b02000000000c86dd6000000000203aff20010db800010000000000000000000c20010db800010000000000000000000b88008a466000000020010db800010000000000000000000c020102000000000c"
	linuxPings    = "02000000000c02000000000b86dd60000ca500403a4020010db800010000000000000000000b20010db800010000000000000000000c8000d30019a40000a8ef8e65"
	linuxReply    = "8100d20019a40000a8ef8e65"
	linuxFirst    = "02000000000c02000000000b86dd60000ca505b02c4020010db800010000000000000000000b20010db800010000000000000000000c3a0000013af496268000797819a60000f6f58e65"
	linuxLast     = "02000000000c02000000000b86dd60000ca500782c4020010db800010000000000000000000b20010db800010000000000000000000c3a000b503af49626"
	linuxUDP      = "02000000000c02000000000b86dd600035fc001c114020010db800010000000000000000000b20010db800010000000000000000000ce6970035001c5bb87878787878787878787878787878787878787878"
	linuxNobody   = "0104a8b000000000"
	linuxHopByHop = "02000000000c02000000000b86dd600035fc0024004020010db800010000000000000000000b20010db800010000000000000000000c1100010400000000e6970035001cfe9f7979797979797979797979797979797979797979"
	linuxGroup    = "33330000001602000000000b86dd6000000000240001fe80000000000000000000fffe00000bff0200000000000000000000000000163a000502000001008f0071f30000000104000000ff0200000000000000000001ff00000b"
	linuxSilent   = "02000000000c02000000000b86dd6000000000183aff20010db800010000000000000000000bfe80000000000000000000fffe00000c8800de954000000020010db800010000000000000000000b"
)

// unhex is a frame, with so many bytes of zeroes behind it.
func unhex(t *testing.T, s string, zeroes int) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, make([]byte, zeroes)...)
}

// pingZeroes are the payload of linuxPings that is not written out.
const pingZeroes = 52

// TestReadND: what Linux asks and says is understood, padded or not, and what RFC 4861
// says must not be believed is not.
func TestReadND(t *testing.T) {
	b, c := netip.MustParseAddr("2001:db8:1::b"), netip.MustParseAddr("2001:db8:1::c")
	macB, macC := openflow.MAC{2, 0, 0, 0, 0, 11}, openflow.MAC{2, 0, 0, 0, 0, 12}
	for name, one := range map[string]struct {
		frame string
		want  resolution
	}{
		"probe":         {linuxProbe, resolution{request: true, target: c, asker: netip.IPv6Unspecified()}},
		"solicitation":  {linuxAsks, resolution{request: true, target: c, asker: b, ip: b, mac: macB}},
		"advertisement": {linuxSays, resolution{ip: c, mac: macC}},
		"without a MAC": {linuxSilent, resolution{}},
	} {
		for _, padding := range []int{0, 7} {
			if got, ok := readResolution(etherIPv6, unhex(t, one.frame, padding)); !ok || got != one.want {
				t.Errorf("%s: %+v, want %+v", name, got, one.want)
			}
		}
	}
	bad := func(frame string, change func([]byte) []byte) []byte { return change(unhex(t, frame, 0)) }
	for name, frame := range map[string][]byte{
		"a ping":                     unhex(t, linuxPings, pingZeroes),
		"a group":                    unhex(t, linuxGroup, 0),
		"from another network":       bad(linuxSays, func(b []byte) []byte { b[14+7] = 254; return b }),
		"a wrong checksum":           bad(linuxSays, func(b []byte) []byte { b[85]++; return b }),
		"cut off":                    bad(linuxSays, func(b []byte) []byte { return b[:80] }),
		"an option without length":   resum(t, linuxSays, func(b []byte) { b[79] = 0 }),
		"an option that is too long": resum(t, linuxSays, func(b []byte) { b[79] = 2 }),
		"code 1":                     resum(t, linuxSays, func(b []byte) { b[55] = 1 }),
		"a group's address":          resum(t, linuxSays, func(b []byte) { b[62] = 0xff }),
		"asked for by all":           resum(t, linuxSays, func(b []byte) { b[38] = 0xff }),
		"a probe with a MAC":         resum(t, linuxProbe, func(b []byte) { b[78] = optionSourceMAC }),
	} {
		if got, ok := readResolution(etherIPv6, frame); ok {
			t.Errorf("%s is read: %+v", name, got)
		}
	}
}

// resum is a changed frame with its checksum.
func resum(t *testing.T, frame string, change func([]byte)) []byte {
	t.Helper()
	b := unhex(t, frame, 0)
	change(b)
	h, _ := readIP(b)
	h.upper[2], h.upper[3] = 0, 0
	sum := checksum(pseudoHeader(h.src, h.dst, len(h.upper)), h.upper)
	h.upper[2], h.upper[3] = byte(sum>>8), byte(sum)
	return b
}

// TestAnswers: what gateways ask and say is read as what Linux does.
func TestAnswers(t *testing.T) {
	gateway, c := netip.MustParseAddr("2001:db8:1::1"), netip.MustParseAddr("2001:db8:1::c")
	macC := openflow.MAC{2, 0, 0, 0, 0, 12}
	asked := question(gateway, c)
	if got, ok := readND(asked); !ok || got != (resolution{request: true, target: c, asker: gateway, ip: gateway, mac: gatewayMAC}) || !bytes.Equal(asked[:6], unhex(t, linuxAsks, 0)[:6]) {
		t.Errorf("the question is %x", asked)
	}
	said := answer(&resolution{request: true, target: gateway, asker: c}, macC)
	if got, ok := readND(said); !ok || got != (resolution{ip: gateway, mac: gatewayMAC}) || openflow.MAC(said) != macC || said[58] != flagRouter|flagSolicited|flagOverride {
		t.Errorf("the answer is %x", said)
	}
	defended := answer(&resolution{request: true, target: gateway, asker: netip.IPv6Unspecified()}, macC)
	if got, ok := readND(defended); !ok || got.ip != gateway || openflow.MAC(defended) != allNodesMAC || defended[58] != flagRouter|flagOverride {
		t.Errorf("who wants the gateway's address is told %x", defended)
	}
}

// TestICMPv6AsLinux: answers to pings and errors have the bytes that Linux sends.
func TestICMPv6AsLinux(t *testing.T) {
	ping := unhex(t, linuxPings, pingZeroes)
	h, ok := readIP(ping)
	if !ok {
		t.Fatal("a ping is not read")
	}
	reply := echoReply(ping, &h)
	if want := unhex(t, linuxReply, pingZeroes); len(reply) < 54 || !bytes.Equal(reply[54:], want) {
		t.Errorf("the reply is %x, want %x", reply, want)
	}
	sent := unhex(t, linuxUDP, 0)
	h, _ = readIP(sent)
	const noPort = 4
	said := icmpError(inet6.unreachable, noPort, h.dst, sent, &h)
	if want := append(unhex(t, linuxNobody, 0), sent[14:]...); len(said) < 54 || !bytes.Equal(said[54:], want) {
		t.Errorf("the error is %x, want %x", said, want)
	}
	large := unhex(t, linuxPings, pingZeroes+2000)
	large[18], large[19] = 0x08, 0x10 // its length
	h, _ = readIP(large)
	if said = icmpError(inet6.timeExceeded, 0, h.dst, large, &h); len(said) != 14+1280 {
		t.Errorf("an error has %d bytes", len(said))
	}
}

// TestReadIPv6: what Linux sends in fragments and behind extension headers.
func TestReadIPv6(t *testing.T) {
	for name, one := range map[string]struct {
		frame           string
		zeroes          int
		proto           uint8
		fragment, later bool
		upper           bool
		key             string
		vague           bool
	}{
		"a ping":             {linuxPings, pingZeroes, 58, false, false, true, "icmpv6 02:00:00:00:00:0b > 02:00:00:00:00:0c", false},
		"the first fragment": {linuxFirst, 1436, 58, true, false, true, "ipv6 02:", true},
		"the last fragment":  {linuxLast, 112, 58, true, true, false, "ipv6 02:", true},
		"UDP":                {linuxUDP, 0, flow.UDP, false, false, true, "udp [2001:db8:1::b]:59031 > [2001:db8:1::c]:53", false},
		"hop by hop":         {linuxHopByHop, 0, flow.UDP, false, false, true, "udp [2001:db8:1::b]:59031 > [2001:db8:1::c]:53", false},
		"a group":            {linuxGroup, 0, 58, false, false, true, "ipv6 02:", true},
	} {
		frame := unhex(t, one.frame, one.zeroes)
		h, ok := readIP(frame)
		if !ok || h.cut || h.proto != one.proto || h.fragment != one.fragment || h.later != one.later || (h.upper != nil) != one.upper {
			t.Errorf("%s: %+v", name, h)
		}
		f, ok := ReadFrame(frame)
		if !ok || f.vague != one.vague || !strings.HasPrefix(f.Key.String(), one.key) {
			t.Errorf("%s: %v, vague %v, want %s", name, f.Key, f.vague, one.key)
		}
	}
}
