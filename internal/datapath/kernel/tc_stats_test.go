package kernel

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

const testSequence = 7

// datagram is what one recvmsg gives: messages with headers.
func datagram(typ uint16, sequence uint32, payloads ...[]byte) []byte {
	var b []byte
	for _, payload := range payloads {
		header := make([]byte, sizeofHeader)
		binary.NativeEndian.PutUint32(header, uint32(sizeofHeader+len(payload)))
		binary.NativeEndian.PutUint16(header[4:], typ)
		binary.NativeEndian.PutUint32(header[8:], sequence)
		b = append(append(b, header...), payload...)
		b = append(b, make([]byte, align(len(b))-len(b))...)
	}
	return b
}

// newReader has asked for classes; parseStats tells of no others.
func newReader(wanted ...Handle) *classStatsReader {
	slices.Sort(wanted)
	return &classStatsReader{routeSocket: &routeSocket{sequence: testSequence}, wanted: wanted}
}

func parseStats(r *classStatsReader, b []byte, dst []ClassStats) ([]ClassStats, bool, error) {
	done, err := r.parse(b, func(class object) { dst = r.add(class, dst) })
	return dst, done, err
}

func TestClassStatsOfARealKernel(t *testing.T) {
	b := datagram(unix.RTM_NEWTCLASS, testSequence, messages(t, "counters.hex", "class")...)
	before := []ClassStats{{Handle: 1}}
	got, done, err := parseStats(newReader(NewHandle(0x7e11, 0x11), NewHandle(0x7e11, 0xffff), NewHandle(0x7e11, 0x10)), b, before)
	if err != nil || done {
		t.Fatalf("done %t, error %v", done, err)
	}
	slices.SortFunc(got[1:], func(a, b ClassStats) int { return int(a.Handle) - int(b.Handle) })
	want := []ClassStats{
		{Handle: 1},
		{Handle: NewHandle(0x7e11, 0x10), SentBytes: 2000, SentPackets: 4, BacklogBytes: 3000},
		{Handle: NewHandle(0x7e11, 0x11)},
		{Handle: NewHandle(0x7e11, 0xffff), SentBytes: 2000, SentPackets: 4},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	only := NewHandle(0x7e11, 0x10)
	got, _, err = parseStats(newReader(only), b, nil)
	if err != nil || len(got) != 1 || got[0].Handle != only {
		t.Errorf("of one class: %v, %v", got, err)
	}
}

func TestClassStatsAnswers(t *testing.T) {
	class := tcmsg(3, NewHandle(1, 1), HandleRoot)
	for _, tc := range []struct {
		name    string
		answer  []byte
		classes int
		done    bool
		err     error
	}{
		{"nothing", nil, 0, false, nil},
		{"the end", datagram(unix.NLMSG_DONE, testSequence, make([]byte, 4)), 0, true, nil},
		{"the end of an earlier request", datagram(unix.NLMSG_DONE, testSequence-1, make([]byte, 4)), 0, false, nil},
		{"the end without a number", datagram(unix.NLMSG_DONE, testSequence, nil), 0, true, nil},
		{
			"a class, and the end of a list that was cut short",
			slices.Concat(datagram(unix.RTM_NEWTCLASS, testSequence, class), datagram(unix.NLMSG_DONE, testSequence, netlinkErrno(unix.EMSGSIZE))),
			1, true, unix.EMSGSIZE,
		},
		{"the end of an earlier list that was cut short", datagram(unix.NLMSG_DONE, testSequence-1, netlinkErrno(unix.ENOMEM)), 0, false, nil},
		{"a class without counters", datagram(unix.RTM_NEWTCLASS, testSequence, class), 1, false, nil},
		{"a class that nobody asked for", datagram(unix.RTM_NEWTCLASS, testSequence, tcmsg(3, NewHandle(1, 2), HandleRoot)), 0, false, nil},
		{"a class of an earlier request", datagram(unix.RTM_NEWTCLASS, testSequence-1, class), 0, false, nil},
		{
			"a class, the end, and what is not ours",
			slices.Concat(datagram(unix.RTM_NEWTCLASS, testSequence, class), datagram(unix.NLMSG_DONE, testSequence, make([]byte, 4)), datagram(unix.RTM_NEWTCLASS, testSequence, class)),
			1, true, nil,
		},
		{"a refusal", datagram(unix.NLMSG_ERROR, testSequence, netlinkErrno(unix.EPERM)), 0, true, unix.EPERM},
		{"a refusal of an earlier request", datagram(unix.NLMSG_ERROR, testSequence-1, netlinkErrno(unix.EPERM)), 0, false, nil},
		{"a refusal without a reason", datagram(unix.NLMSG_ERROR, testSequence, nil), 0, false, errShort},
		{"less than it says", datagram(unix.RTM_NEWTCLASS, testSequence, class)[:30], 0, false, errShort},
		{"a length of nothing", make([]byte, 32), 0, false, errShort},
	} {
		got, done, err := parseStats(newReader(NewHandle(1, 1)), tc.answer, nil)
		if len(got) != tc.classes || done != tc.done || !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, done %t, error %v", tc.name, got, done, err)
		}
	}
}

// A list that changed while the kernel told it is marked, at times at its end only.
func TestDumpInterrupted(t *testing.T) {
	for _, sequence := range []uint32{testSequence, testSequence - 1} {
		end := datagram(unix.NLMSG_DONE, sequence, make([]byte, 4))
		binary.NativeEndian.PutUint16(end[6:], unix.NLM_F_DUMP_INTR)
		r := newReader()
		if _, err := r.parse(end, nil); err != nil || r.interrupted != (sequence == testSequence) {
			t.Errorf("the mark of request %d, while %d is answered, counts: %t (%v)", sequence, testSequence, r.interrupted, err)
		}
	}
}

// Attributes that say a length that cannot be.
func TestAttributeLengths(t *testing.T) {
	basic := []byte{20, 0, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0}
	wrap := func(length byte, value []byte) []byte { return append([]byte{length, 0, unix.TCA_STATS2, 0}, value...) }
	for _, tc := range []struct {
		name  string
		attrs []byte
		bytes uint64
	}{
		{"right", wrap(24, basic), 5},
		{"after another", append([]byte{5, 0, 1, 0, 'x', 0, 0, 0}, wrap(24, basic)...), 5},
		{"nothing", nil, 0},
		{"no room for a header", []byte{24, 0}, 0},
		{"length 0", wrap(0, basic), 0},
		{"another of length 0", append([]byte{0, 0, 1, 0}, wrap(24, basic)...), 0},
		{"another of length 3", append([]byte{3, 0, 1, 0}, wrap(24, basic)...), 0},
		{"longer than there is", wrap(25, basic), 0},
		{"shorter than counters", wrap(12, basic), 0},
		{"counters of length 0", wrap(24, append([]byte{0, 0, 1, 0}, basic[4:]...)), 0},
	} {
		if got := parseClassStats(tc.attrs); got.SentBytes != tc.bytes {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}

// What a queueing discipline did to packets, laid out as a kernel does.
func TestQueueStats(t *testing.T) {
	attr := func(kind uint16, value []byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(sizeofAttribute+len(value)))
		b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
		return append(b, make([]byte, align(len(b))-len(b))...)
	}
	words := func(words ...uint32) (b []byte) {
		for _, w := range words {
			b = binary.NativeEndian.AppendUint32(b, w)
		}
		return b
	}
	qdisc := func(kind string, stats ...[]byte) []byte {
		return append(attr(unix.TCA_KIND, append([]byte(kind), 0)), attr(unix.TCA_STATS2, slices.Concat(stats...))...)
	}
	queue := attr(statsQueue, words(1, 1500, 9, 0, 12))
	// type, maxpacket, drop_overlimit, ecn_mark, new_flow_count, ...
	codel := words(0, 1514, 4, 77, 5, 1, 1, 0, 3000, 0)
	for _, tc := range []struct {
		name  string
		attrs []byte
		want  QueueStats
	}{
		{"fq_codel", qdisc("fq_codel", queue, attr(statsApp, codel)), QueueStats{9, 77}},
		{"of an older kernel", qdisc("fq_codel", queue, attr(statsApp, codel[:7*4])), QueueStats{9, 77}},
		{"too short for marks", qdisc("fq_codel", queue, attr(statsApp, codel[:3*4])), QueueStats{9, 0}},
		{"of a flow of it", qdisc("fq_codel", queue, attr(statsApp, append(words(1), codel[4:]...))), QueueStats{9, 0}},
		{"without its own", qdisc("fq_codel", queue), QueueStats{9, 0}},
		{"another kind that has some", qdisc("codel", queue, attr(statsApp, codel)), QueueStats{9, 0}},
		{"bfifo", qdisc("bfifo", queue), QueueStats{9, 0}},
		{"nothing", nil, QueueStats{}},
	} {
		if got := parseQueueStats(tc.attrs); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// FuzzParsers: nothing that arrives on the socket makes a parser panic, run on
// for ever, or tell of more than was there.
func FuzzParsers(f *testing.F) {
	for _, kind := range []string{"qdisc", "class"} {
		for _, m := range messages(f, "tree.hex", kind) {
			f.Add(m)
		}
	}
	for _, m := range messages(f, "counters.hex", "class") {
		f.Add(m)
		f.Add(datagram(unix.RTM_NEWTCLASS, testSequence, m, m))
	}
	f.Add(datagram(unix.NLMSG_ERROR, testSequence, netlinkErrno(unix.EPERM)))
	f.Fuzz(func(t *testing.T, data []byte) {
		stats, _, err := parseStats(newReader(NewHandle(0x7e11, 0x10), NewHandle(0x7e11, 0x11)), data, nil)
		if len(stats)*(sizeofHeader+sizeofTcmsg) > len(data) {
			t.Errorf("%d classes in %d bytes (error %v)", len(stats), len(data), err)
		}
		if len(data) >= sizeofTcmsg {
			parseQueueStats(data[sizeofTcmsg:])
			for _, isClass := range []bool{false, true} {
				options, err := parseOptions(data[sizeofTcmsg:], isClass)
				if err == nil && options.String() == "" && options.Kind() != "" {
					t.Error("parameters without words")
				}
			}
		}
		for _, kind := range []string{"htb", "tbf", "bfifo", "fq_codel", "other"} {
			for _, isClass := range []bool{false, true} {
				options, err := decodeOptions(kind, isClass, data, false)
				if err != nil {
					continue
				}
				// What was understood can be said again, with the same meaning.
				value, nested, err := options.attribute()
				if err != nil {
					t.Fatalf("encode %#v: %v", options, err)
				}
				if _, unknown := options.(Unknown); unknown {
					continue
				}
				again, err := decodeOptions(kind, isClass, value, nested)
				if err != nil || again != options {
					t.Errorf("%#v became %#v (%v)", options, again, err)
				}
			}
		}
	})
}
