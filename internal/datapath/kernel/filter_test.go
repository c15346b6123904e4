package kernel

import (
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nlenc"

	"github.com/weir-project/weir/test/must"
)

// TestFilterEffect: of foreign filters those count that may change what a packet carries.
func TestFilterEffect(t *testing.T) {
	const gone, conforms = 2, 3                             // TC_ACT_SHOT, TC_ACT_PIPE
	generic := func(verdict int32, more ...uint32) []byte { // struct tc_gen
		b := make([]byte, 20)
		copy(b[8:], nlenc.Int32Bytes(verdict))
		for _, n := range more {
			b = append(b, nlenc.Uint32Bytes(n)...)
		}
		return b
	}
	police := func(verdict int32) []byte { return append(make([]byte, 4), nlenc.Int32Bytes(verdict)...) }
	type attributes = map[uint16][]byte
	encode := func(list attributes) []byte {
		e := netlink.NewAttributeEncoder()
		for kind, value := range list {
			e.Bytes(kind, value)
		}
		b, err := e.Encode()
		must.Succeed(t, err)
		return b
	}
	action := func(kind string, options attributes) []byte {
		return encode(attributes{1: append([]byte(kind), 0), 2: encode(options)})
	}
	class := nlenc.Uint32Bytes(0x10007)
	for _, c := range []struct {
		what, kind string
		options    attributes
		want       effect
	}{
		{"an unknown kind", "cgroup", nil, unclear},
		{"a BPF program", "bpf", attributes{11: class}, unclear},
		{"bytecode", "bpf", attributes{3: class}, indexes},
		{"a match alone", "u32", nil, keeps},
		{"a match alone", "flower", nil, indexes},
		{"a class", "u32", attributes{1: class}, indexes},
		{"no class", "matchall", attributes{1: nlenc.Uint32Bytes(0), 2: encode(attributes{1: action("gact", attributes{2: generic(gone)})})}, keeps},
		{"pass", "matchall", attributes{2: encode(attributes{1: action("gact", attributes{2: generic(0)})})}, indexes},
		{"continue", "matchall", attributes{2: encode(attributes{1: action("gact", attributes{2: generic(-1)})})}, keeps},
		{"continue, or at random pass", "matchall", attributes{2: encode(attributes{1: action("gact", attributes{2: generic(-1), 3: make([]byte, 8)})})}, indexes},
		{"mirror", "flower", attributes{3: encode(attributes{1: action("mirred", attributes{2: generic(conforms, 2, 7)})})}, keeps},
		{"redirect", "flower", attributes{3: encode(attributes{1: action("mirred", attributes{2: generic(4, 1, 7)})})}, diverts},
		{"redirect with a class", "flower", attributes{1: class, 3: encode(attributes{1: action("mirred", attributes{2: generic(4, 1, 7)})})}, unclear},
		{"redirect to ingress", "flower", attributes{3: encode(attributes{1: action("mirred", attributes{2: generic(4, 3, 7)})})}, diverts},
		{"a policer", "u32", attributes{7: encode(attributes{1: action("police", attributes{1: police(gone)})})}, indexes},
		{"a policer whose packets go on", "u32", attributes{7: encode(attributes{1: action("police", attributes{1: police(gone), 5: nlenc.Uint32Bytes(conforms)})})}, keeps},
		{"a policer of old tools", "u32", attributes{6: encode(attributes{1: police(gone)})}, indexes},
		{"skbedit after csum", "basic", attributes{3: encode(attributes{
			1: action("csum", attributes{1: generic(conforms)}), 2: action("skbedit", attributes{2: generic(conforms)})})}, unclear},
		{"an unknown action", "fw", attributes{4: encode(attributes{1: action("ife", nil)})}, unclear},
	} {
		if got, err := filterEffect(c.kind, encode(c.options)); err != nil || got != c.want {
			t.Errorf("%s, %s: %d, %v, want %d", c.kind, c.what, got, err, c.want)
		}
	}
}
