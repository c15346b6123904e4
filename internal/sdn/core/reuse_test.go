package core

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// TestWrittenAgain: an entry in the memory of others, of whatever flows, is as one that
// is made anew.
func TestWrittenAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for range rapid.IntRange(1, 8).Draw(t, "entries") {
			f := &Flow{ID: rapid.Uint64Range(0, cookieIDMask).Draw(t, "id"), Key: anyKey(t)}
			if rapid.IntRange(0, 3).Draw(t, "routed") == 0 {
				f.next = mac(9)
			}
			hop := topology.Hop{Switch: 1, In: rapid.Uint32().Draw(t, "in"), Out: rapid.Uint32().Draw(t, "out")}
			f.Path = []topology.Hop{hop}
			queue := openflow.Queue(rapid.IntRange(0, 7).Draw(t, "queue"))
			match, actions := f.entry(hop, queue)
			want, err := flowMod(cookieFlow|f.ID, openflow.OFPFC_ADD, priorityFlow, match, actions...).MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			m := f.add(hop, queue)
			got, err := m.MarshalBinary()
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%x, %v; want %x", got, err, want)
			}
			m.IdleTimeout, m.Flags = 30, openflow.OFPFF_SEND_FLOW_REM // as installAt does
			openflow.SetXID(m, 7)
			Written(m)
		}
	})
}

// anyKey is a flow of any kind.
func anyKey(t *rapid.T) Key {
	k := Key{SrcMAC: mac(1), DstMAC: mac(2), VLAN: rapid.SampledFrom([]uint16{0, vlanPresent, vlanPresent | 7}).Draw(t, "vlan")}
	k.EtherType = rapid.SampledFrom([]uint16{etherARP, etherIPv4, etherIPv6}).Draw(t, "type")
	if k.EtherType == etherARP {
		return k
	}
	k.Proto = rapid.SampledFrom([]uint8{0, 1, flow.TCP, flow.UDP}).Draw(t, "protocol")
	if k.ported() {
		end := func(name string) (e flow.Endpoint) {
			e.IPv6 = k.EtherType == etherIPv6
			n := map[bool]int{true: 16, false: 4}[e.IPv6]
			copy(e.Addr[:n], rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, name))
			e.Port = rapid.Uint16().Draw(t, name+"'s port")
			return e
		}
		k.Src, k.Dst = end("source"), end("destination")
	}
	return k
}
