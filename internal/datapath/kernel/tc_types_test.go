package kernel

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/weir-project/weir/test/must"
)

// messages reads the payloads of one kind ("qdisc" or "class") from a file of
// testdata.
func messages(t testing.TB, name, kind string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	must.Succeed(t, err)
	var list [][]byte
	for line := range strings.Lines(string(text)) {
		digits, ok := strings.CutPrefix(strings.TrimSpace(line), kind+" ")
		if !ok {
			continue
		}
		message, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		list = append(list, message)
	}
	if len(list) == 0 {
		t.Fatalf("%s holds no %s", name, kind)
	}
	return list
}

func TestHandle(t *testing.T) {
	for _, tc := range []struct {
		handle       Handle
		major, minor uint16
		text         string
	}{
		{NewHandle(0x7e11, 0x4010), 0x7e11, 0x4010, "7e11:4010"},
		{NewHandle(1, 0), 1, 0, "1:"},
		{NewHandle(0xa, 0xf), 0xa, 0xf, "a:f"},
		{NewHandle(0, 1), 0, 1, "0:1"},
		{0, 0, 0, "0:"},
		{HandleRoot, 0xffff, 0xffff, "root"},
		{HandleIngress, 0xffff, 0xfff1, "ingress"},
		{NewHandle(0xffff, 0), 0xffff, 0, "ffff:"},
		{NewHandle(0x7e11, 0xffff), 0x7e11, 0xffff, "7e11:ffff"},
	} {
		if tc.handle.Major() != tc.major || tc.handle.Minor() != tc.minor || tc.handle.String() != tc.text {
			t.Errorf("%#x: %x, %x, %s; want %x, %x, %s", uint32(tc.handle),
				tc.handle.Major(), tc.handle.Minor(), tc.handle, tc.major, tc.minor, tc.text)
		}
	}
}

func TestOpString(t *testing.T) {
	q := &Qdisc{Handle: NewHandle(0x10, 0), Parent: NewHandle(0x7e11, 0x10), Options: BFIFO{LimitBytes: 5}}
	root := &Qdisc{Handle: NewHandle(1, 0), Parent: HandleRoot, Options: HTB{DefaultMinor: 0x1f, DirectPackets: 3}}
	c := &Class{Handle: NewHandle(0x7e11, 0x10), Parent: NewHandle(0x7e11, 0xffff), Options: HTBClass{
		RateBytesPerSec: 1000, CeilBytesPerSec: 2000, Burst: BurstTicks(500, 1000), CeilBurst: BurstTicks(600, 2000), QuantumBytes: 1514, Prio: 2}}
	for _, tc := range []struct {
		op   Op
		want string
	}{
		{Op{Add, q, nil}, "qdisc add parent 7e11:10 handle 10: bfifo limit 5b"},
		{Op{Delete, q, nil}, "qdisc delete parent 7e11:10 handle 10:"},
		{Op{Change, root, nil}, "qdisc change root handle 1: htb default 1f direct_qlen 3"},
		{Op{Add, nil, c}, "class add parent 7e11:ffff classid 7e11:10 htb prio 2 quantum 1514 rate 1000bps burst 500b ceil 2000bps cburst 600b"},
		{Op{Delete, nil, c}, "class delete classid 7e11:10"},
	} {
		if got := tc.op.String(); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

func TestBurstTicks(t *testing.T) {
	for _, tc := range []struct {
		bytes, rate uint64
		want        Ticks
	}{
		{0, 1000, 0},
		{1000, 0, 0},
		{1000, 1000, 15_625_000},     // a second
		{1, 1_000_000_000, 1},        // rounds up: never less than asked for
		{53_125, 12_500_000, 66_407}, // tc makes it 66406
		{1514, 1, math.MaxUint32},    // 1514 s cannot be told
		{math.MaxUint64, 1, math.MaxUint32},
	} {
		if got := BurstTicks(tc.bytes, tc.rate); got != tc.want {
			t.Errorf("BurstTicks(%d, %d) = %d, want %d", tc.bytes, tc.rate, got, tc.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Uint64Range(1000, 1<<37).Draw(t, "rate")
		bytes := rapid.Uint64Range(1, rate*200).Draw(t, "bytes")
		got := BurstTicks(bytes, rate).Bytes(rate)
		// One tick more is the worst, and a rounding of floats.
		if most := bytes + rate*tickNS/1e9 + 1 + bytes/(1<<40); got+bytes/(1<<40) < bytes || got > most {
			t.Fatalf("%d bytes at %d became %d", bytes, rate, got)
		}
	})
}

// through is what the kernel tells of parameters that it was told, if it keeps
// all of them.
func through(t interface{ Fatalf(string, ...any) }, o Options, isClass bool) Options {
	value, nested, err := o.attribute()
	if err != nil {
		t.Fatalf("encode %s: %v", o, err)
	}
	got, err := decodeOptions(o.Kind(), isClass, value, nested)
	if err != nil {
		t.Fatalf("decode %s: %v", o, err)
	}
	return got
}

// rates are byte rates, many of them around what 32 bits hold.
var rates = rapid.OneOf(
	rapid.Uint64(),
	rapid.Uint64Range(1, 1<<33),
	rapid.SampledFrom([]uint64{0, 1, math.MaxUint32 - 1, math.MaxUint32, math.MaxUint32 + 1, math.MaxUint64}),
)

func TestOptionsThroughTheKernel(t *testing.T) {
	number := rapid.Uint32()
	rapid.Check(t, func(t *rapid.T) {
		for _, o := range []Options{
			HTB{DefaultMinor: rapid.Uint16().Draw(t, "minor"), DirectPackets: number.Draw(t, "direct")},
			BFIFO{LimitBytes: number.Draw(t, "limit")},
			TBF{
				RateBytesPerSec: rates.Draw(t, "rate"), Burst: Ticks(number.Draw(t, "burst")),
				OverheadBytes:   rapid.Uint16().Draw(t, "overhead"),
				PeakBytesPerSec: rates.Draw(t, "peak"), LimitBytes: number.Draw(t, "limit"),
			},
			FqCodel{
				// The kernel keeps hundreds.
				TargetMicroseconds:   100 * rapid.Uint32Range(0, 1e7).Draw(t, "target"),
				IntervalMicroseconds: 100 * rapid.Uint32Range(0, 1e7).Draw(t, "interval"),
				QuantumBytes:         number.Draw(t, "quantum"), MemoryLimitBytes: number.Draw(t, "memory"),
			},
		} {
			if got := through(t, o, false); got != o {
				t.Fatalf("%#v became %#v", o, got)
			}
		}
		class := HTBClass{
			RateBytesPerSec: rates.Draw(t, "rate"), CeilBytesPerSec: rates.Draw(t, "ceil"),
			OverheadBytes: rapid.Uint16().Draw(t, "overhead"),
			Burst:         Ticks(number.Draw(t, "burst")), CeilBurst: Ticks(number.Draw(t, "cburst")),
			QuantumBytes: number.Draw(t, "quantum"), Prio: number.Draw(t, "prio"),
		}
		if got := through(t, class, true); got != Options(class) {
			t.Fatalf("%#v became %#v", class, got)
		}
		unknown := Unknown{Name: "sfq", Raw: string(rapid.SliceOf(rapid.Byte()).Draw(t, "raw")), Nested: rapid.Bool().Draw(t, "nested")}
		if got := through(t, unknown, rapid.Bool().Draw(t, "class")); got != Options(unknown) {
			t.Fatalf("%#v became %#v", unknown, got)
		}
	})
}

// The kernel keeps CoDel's times in units of 1024 ns: it tells less than it was
// told, and that must not look like a change.
func TestFqCodelTimesThroughTheKernel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := FqCodel{
			TargetMicroseconds:   100 * rapid.Uint32Range(1, 10_000_000).Draw(t, "target"),
			IntervalMicroseconds: 100_000,
		}
		told := want
		// codel_time_to_us(set >> CODEL_SHIFT), include/net/codel.h
		told.TargetMicroseconds = uint32(uint64(want.TargetMicroseconds) * 1000 >> 10 << 10 / 1000)
		told.IntervalMicroseconds = 99_999
		if got := through(t, told, false); got != Options(want) {
			t.Fatalf("%v became %v", want, got)
		}
	})
}

// Peak and packet size go together, and to no limit at all.
func TestTBFPacketSize(t *testing.T) {
	value, _, err := TBF{RateBytesPerSec: 1e6, Burst: 1, LimitBytes: 1, PeakBytesPerSec: 1 << 40, MaxPacketBytes: 3125}.attribute()
	must.Succeed(t, err)
	if got := attribute(value, tcaTBFPBurst); len(got) != 4 || binary.NativeEndian.Uint32(got) != 3125 {
		t.Errorf("peak burst %v", got)
	}
	if got := attribute(value, tcaTBFPRate64); len(got) != 8 || binary.NativeEndian.Uint64(got) != 1<<40 {
		t.Errorf("peak rate %v", got)
	}
	if got := attribute(value, tcaTBFRate64); got != nil {
		t.Errorf("a rate that fits 32 bits is told as %v, too", got)
	}
	value, _, err = TBF{RateBytesPerSec: 1 << 32, Burst: 1, LimitBytes: 1, MaxPacketBytes: 3125}.attribute()
	must.Succeed(t, err)
	if attribute(value, tcaTBFPBurst) != nil || attribute(value, tcaTBFPRate64) != nil {
		t.Error("a packet size without a peak rate")
	}
	if got := attribute(value, tcaTBFRate64); len(got) != 8 || binary.NativeEndian.Uint64(got) != 1<<32 {
		t.Errorf("rate %v", got)
	}
}

// Byte for byte what tc(8) sends for the same command, where that is known.
func TestMessages(t *testing.T) {
	handle, parent := NewHandle(0x7e11, 0x10), NewHandle(0x7e11, 0x4010)
	class := &Class{Handle: handle, Parent: parent, Options: HTBClass{RateBytesPerSec: 1e6, CeilBytesPerSec: 1 << 33, Prio: 1}}
	qdisc := &Qdisc{Handle: NewHandle(0x10, 0), Parent: handle, Options: BFIFO{LimitBytes: 50000}}
	for _, tc := range []struct {
		op    Op
		typ   uint16
		flags netlink.HeaderFlags
		bare  bool
	}{
		{Op{Add, nil, class}, unix.RTM_NEWTCLASS, netlink.Create | netlink.Excl, false},
		{Op{Change, nil, class}, unix.RTM_NEWTCLASS, 0, false},
		{Op{Delete, nil, class}, unix.RTM_DELTCLASS, 0, true},
		{Op{Add, qdisc, nil}, unix.RTM_NEWQDISC, netlink.Create | netlink.Excl, false},
		{Op{Change, qdisc, nil}, unix.RTM_NEWQDISC, 0, false},
		{Op{Delete, qdisc, nil}, unix.RTM_DELQDISC, 0, true},
	} {
		m, err := tc.op.message(7)
		must.Succeed(t, err)
		if uint16(m.Header.Type) != tc.typ || m.Header.Flags != netlink.Request|tc.flags {
			t.Errorf("%s: type %d flags %s", tc.op, m.Header.Type, m.Header.Flags)
		}
		wantHandle, wantParent := handle, parent
		if tc.op.Qdisc != nil {
			wantHandle, wantParent = tc.op.Qdisc.Handle, handle
		}
		if !bytes.Equal(m.Data[:sizeofTcmsg], tcmsg(7, wantHandle, wantParent)) {
			t.Errorf("%s: header % x", tc.op, m.Data[:sizeofTcmsg])
		}
		if tc.bare != (len(m.Data) == sizeofTcmsg) {
			t.Errorf("%s: %d bytes", tc.op, len(m.Data))
		}
	}
	m, err := Op{Add, qdisc, nil}.message(3)
	must.Succeed(t, err)
	// The kernel told the same of a bfifo that tc made (testdata/tree.hex).
	want := messages(t, "tree.hex", "qdisc")[2]
	if got := m.Data[:len(m.Data)]; !bytes.Equal(got[20:40], want[20:40]) || !bytes.Equal(got[4:16], want[4:16]) {
		t.Errorf("sent % x\ntold % x", got, want)
	}
}
