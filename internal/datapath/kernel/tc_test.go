package kernel

import (
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
)

// fakeSocket answers requests as the kernel does: dumps with messages, changes with the errors of
// refused ones and an acknowledgement of each one that asks for it, in order.
type fakeSocket struct {
	mu sync.Mutex
	// dumps are the payloads of the answer to a request of a type.
	dumps map[uint16][][]byte
	// interruptions is how many answers of each type end after the first message, which says so.
	interruptions int
	asked         map[uint16]int
	// parent is that of the last list requested through reader.
	parent Handle
	// refuse gives the error of a change, by how many came before it.
	refuse   map[int]unix.Errno
	batches  []int // how many changes came at once
	messages int
	asking   int // changes that asked for an acknowledgement
	answers  [][]netlink.Message
}

func (s *fakeSocket) Close() error { return nil }

// requested returns how many lists of a kind were requested.
func (s *fakeSocket) requested(kind uint16) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[kind]
}

func (s *fakeSocket) Send(m netlink.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var answer []netlink.Message
	kind := uint16(m.Header.Type)
	for _, data := range s.dumps[kind] {
		answer = append(answer, netlink.Message{
			Header: netlink.Header{Type: m.Header.Type, Flags: netlink.Multi, Sequence: m.Header.Sequence, PID: m.Header.PID},
			Data:   data,
		})
		if s.asked[kind] < s.interruptions {
			answer[0].Header.Flags |= netlink.DumpInterrupted
			break
		}
	}
	if s.asked == nil {
		s.asked = map[uint16]int{}
	}
	s.asked[kind]++
	answer = append(answer, netlink.Message{Header: netlink.Header{
		Type: netlink.Done, Flags: netlink.Multi, Sequence: m.Header.Sequence, PID: m.Header.PID}, Data: make([]byte, 4)})
	s.answers = append(s.answers, answer)
	return nil
}

func (s *fakeSocket) SendMessages([]netlink.Message) error {
	return errors.New("no change comes this way")
}

// change answers changes as the kernel does: a refused one, and one that asks for it.
func (s *fakeSocket) change(b []byte) (answers [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for len(b) >= sizeofHeader {
		var a answer
		var err error
		if a, b, err = cutAnswer(b); err != nil {
			return nil
		}
		errno, refused := s.refuse[s.messages]
		asks := a.flags&unix.NLM_F_ACK != 0
		if asks {
			s.asking++
		}
		if refused || asks {
			answers = append(answers, datagram(unix.NLMSG_ERROR, a.sequence, netlinkErrno(errno)))
		}
		s.messages++
		count++
	}
	s.batches = append(s.batches, count)
	return answers
}

// tried returns how many changes came at once, and in all.
func (s *fakeSocket) tried() (batches []int, changes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batches, s.messages
}

func netlinkErrno(errno unix.Errno) []byte {
	v := uint32(-int32(errno))
	return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}
}

func (s *fakeSocket) Receive() ([]netlink.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answers) == 0 {
		return nil, errors.New("nothing to receive: the caller would wait for ever")
	}
	answer := s.answers[0]
	s.answers = s.answers[1:]
	return answer, nil
}

func (s *fakeSocket) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		list, err := s.Receive()
		if err != nil {
			yield(netlink.Message{}, err)
			return
		}
		for _, m := range list {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (s *fakeSocket) open() *netlink.Conn { return netlink.NewConn(s, 1) }

func (s *fakeSocket) tc(t testing.TB) *TC {
	return &TC{classStatsReader{routeSocket: s.reader(t)}}
}

// reader returns a socket to the fake, which is a real one.
func (s *fakeSocket) reader(t testing.TB) *routeSocket {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must.Succeed(t, err)
	r, done := &routeSocket{fd: ends[0], buffer: make([]byte, dumpBytes)}, make(chan struct{})
	t.Cleanup(func() {
		_ = r.close() // may be closed
		<-done
	})
	go func() {
		defer close(done)
		defer unix.Close(ends[1])
		request := make([]byte, dumpBytes)
		for {
			n, err := unix.Read(ends[1], request)
			if err != nil || n < sizeofHeader {
				return
			}
			if binary.NativeEndian.Uint16(request[6:])&unix.NLM_F_DUMP != unix.NLM_F_DUMP {
				for _, b := range s.change(request[:n]) {
					if _, err := unix.Write(ends[1], b); err != nil {
						return
					}
				}
				continue
			}
			kind, sequence := binary.NativeEndian.Uint16(request[4:]), binary.NativeEndian.Uint32(request[8:])
			m := netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Sequence: sequence}}
			s.mu.Lock()
			s.parent = object(request[sizeofHeader:]).parent()
			s.mu.Unlock()
			if s.Send(m) != nil {
				return
			}
			answer, _ := s.Receive()
			for _, m := range answer {
				b := datagram(uint16(m.Header.Type), sequence, m.Data)
				binary.NativeEndian.PutUint16(b[6:], uint16(m.Header.Flags))
				if _, err := unix.Write(ends[1], b); err != nil {
					return
				}
			}
		}
	}()
	return r
}

func recorded(t *testing.T) *TC {
	return (&fakeSocket{dumps: map[uint16][][]byte{
		getQdisc: messages(t, "tree.hex", "qdisc"),
		getClass: messages(t, "tree.hex", "class"),
	}}).tc(t)
}

// What a real kernel tells, of the device that is asked for only.
func TestQdiscs(t *testing.T) {
	got, err := recorded(t).Qdiscs(3)
	must.Succeed(t, err)
	want := []Qdisc{
		{NewHandle(0x7e10, 0), HandleRoot, TBF{RateBytesPerSec: 12_562_500, Burst: 332_711, PeakBytesPerSec: 1 << 43, LimitBytes: 1_000_000}},
		{NewHandle(0x10, 0), NewHandle(0x7e11, 0x10), BFIFO{LimitBytes: 50_000}},
		{NewHandle(0x7e11, 0), NewHandle(0x7e10, 1), HTB{DefaultMinor: 1, DirectPackets: 1000}},
		{NewHandle(0xffff, 0), HandleIngress, Unknown{Name: "clsact"}},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}

	got, err = recorded(t).Qdiscs(2)
	if want := []Qdisc{{0, HandleRoot, Unknown{Name: "noqueue"}}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the other device has %v (%v)", got, err)
	}
}

func TestQueuesOfARealKernel(t *testing.T) {
	r, got, elsewhere := routeSocket{sequence: testSequence}, map[Handle]QueueStats{}, map[Handle]QueueStats{}
	_, err := r.parse(datagram(unix.RTM_NEWQDISC, testSequence, messages(t, "counters.hex", "qdisc")...), func(qdisc object) {
		addQueue(got, 3, qdisc)
		addQueue(elsewhere, 4, qdisc)
	})
	want := map[Handle]QueueStats{NewHandle(0x7e11, 0): {DroppedPackets: 9}, NewHandle(0x10, 0): {DroppedPackets: 9}}
	if err != nil || !maps.Equal(got, want) || len(elsewhere) != 0 {
		t.Errorf("got %v (%v), want %v; and %v of a device that there is none of", got, err, want, elsewhere)
	}
}

func TestClasses(t *testing.T) {
	got, err := recorded(t).Classes(3)
	must.Succeed(t, err)
	want := []Class{
		{NewHandle(0x7e10, 1), NewHandle(0x7e10, 0), Unknown{Name: "tbf"}},
		{NewHandle(0x7e11, 0xffff), HandleRoot, HTBClass{
			RateBytesPerSec: 12_500_000, CeilBytesPerSec: 12_500_000, Burst: 66_406, CeilBurst: 66_406, QuantumBytes: 3125}},
		{NewHandle(0x7e11, 0x10), NewHandle(0x7e11, 0x4010), HTBClass{
			RateBytesPerSec: 6_250_000, CeilBytesPerSec: 5_000_000_000, Burst: 70_312, CeilBurst: 46, QuantumBytes: 9375, Prio: 3}},
		// Set to quantum 9375 and prio 2 when it had a class below it.
		{NewHandle(0x7e11, 0x4010), NewHandle(0x7e11, 0xffff), HTBClass{
			RateBytesPerSec: 5_000_000, CeilBytesPerSec: 12_500_000, Burst: 5000, CeilBurst: 2000, QuantumBytes: 3125, Prio: 1}},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestClassStatsOfAQdisc: classes of the qdiscs below are not listed, of which fq_codel has 1024 each.
func TestClassStatsOfAQdisc(t *testing.T) {
	htb, leaf := NewHandle(0x7e11, 0), NewHandle(0x7e11, 0x10)
	for want, handles := range map[Handle][]Handle{htb: {leaf, NewHandle(0x7e11, 0x4010)}, 0: {NewHandle(0x7e10, 1), leaf}} {
		s := &fakeSocket{dumps: map[uint16][][]byte{getClass: messages(t, "tree.hex", "class")}}
		got, err := s.tc(t).ClassStats(3, handles, nil)
		s.mu.Lock()
		if err != nil || len(got) != 2 || s.parent != want {
			t.Errorf("of %v: %v (%v), requested those of %v, want %v", handles, got, err, s.parent, want)
		}
		s.mu.Unlock()
	}
}

func TestSave(t *testing.T) {
	got, err := recorded(t).Save(3)
	must.Succeed(t, err)
	var order []string
	for _, o := range got {
		order = append(order, o.Kind+" "+o.Handle.String())
	}
	want := []string{"tbf 7e10:", "tbf 7e10:1", "htb 7e11:", "htb 7e11:ffff", "htb 7e11:4010", "htb 7e11:10", "bfifo 10:"}
	slices.Sort(order[1:3]) // either may be first
	slices.Sort(want[1:3])
	if !slices.Equal(order, want) {
		t.Errorf("saved %v, want %v", order, want)
	}

	filtered := &fakeSocket{dumps: map[uint16][][]byte{
		getQdisc:            messages(t, "tree.hex", "qdisc"),
		getClass:            messages(t, "tree.hex", "class"),
		unix.RTM_GETTFILTER: {tcmsg(3, 0, NewHandle(0x7e11, 0))},
	}}
	if _, err := filtered.tc(t).Save(3); !errors.Is(err, ErrFilters) || !strings.Contains(err.Error(), "tc qdisc del dev IF root") {
		t.Errorf("with filters: %v", err)
	}
}

// TestInterruptedDumps: a list that changes while the kernel sends it is requested again, else its
// second entry would be missing; but not for ever.
func TestInterruptedDumps(t *testing.T) {
	filter := func(handle uint32, kind string) []byte {
		return append(tcmsg(3, Handle(handle), 0), nltest.MustMarshalAttributes([]netlink.Attribute{{Type: unix.TCA_KIND, Data: append([]byte(kind), 0)}})...)
	}
	chain := func(name, device string) []byte {
		hook := nltest.MustMarshalAttributes([]netlink.Attribute{{Type: nftaHookDevice, Data: append([]byte(device), 0)}})
		return append([]byte{familyNetdev, 0, 0, 0}, nltest.MustMarshalAttributes([]netlink.Attribute{
			{Type: nftaTable, Data: []byte("t\x00")}, {Type: nftaChainName, Data: append([]byte(name), 0)}, {Type: nftaChainHook, Data: hook},
		})...)
	}
	dumps := map[uint16][][]byte{
		getQdisc: messages(t, "tree.hex", "qdisc"), getClass: messages(t, "tree.hex", "class"),
		getFilter:   {filter(1, "u32"), filter(2, "u32")},
		nftGetChain: {chain("a", "eth1"), chain("b", "eth0")},
	}
	lists := map[string]struct {
		kind    uint16
		entries int
		count   func(*fakeSocket) (int, error)
	}{
		"qdiscs": {getQdisc, 4, func(s *fakeSocket) (int, error) {
			list, err := s.tc(t).Qdiscs(3)
			return len(list), err
		}},
		"classes": {getClass, 4, func(s *fakeSocket) (int, error) {
			list, err := s.tc(t).Classes(3)
			return len(list), err
		}},
		"whether there are filters": {getFilter, 1, func(s *fakeSocket) (int, error) {
			has, err := s.tc(t).HasFilters(3, 0)
			return map[bool]int{true: 1}[has], err
		}},
		"effects of filters": {getFilter, 2, func(s *fakeSocket) (int, error) {
			list, err := Hook{Ifindex: 3}.readEffects(s.open())
			return len(list), err
		}},
		"chains at ingress": {nftGetChain, 1, func(s *fakeSocket) (int, error) {
			list, err := namesAtIngress(s.open(), "eth0", false, []nftKind{nftChains})
			return len(list), err
		}},
	}
	for name, list := range lists {
		for _, tc := range []struct {
			interruptions, asked int
			err                  error
		}{{0, 1, nil}, {3, 4, nil}, {dumpAttempts, dumpAttempts, nl.ErrDumpInterrupted}} {
			s := &fakeSocket{dumps: dumps, interruptions: tc.interruptions}
			entries, err := list.count(s)
			if asked := s.requested(list.kind); asked != tc.asked || !errors.Is(err, tc.err) || err == nil && entries != list.entries {
				t.Errorf("%s, %d interruptions: requested %d times, %d entries, %v", name, tc.interruptions, asked, entries, err)
			}
		}
	}
}

func TestDumpRefusesNonsense(t *testing.T) {
	for name, message := range map[string][]byte{
		"empty":                 {},
		"half a tcmsg":          tcmsg(3, 1, 2)[:18],
		"half an attribute":     append(tcmsg(3, 1, 2), 8, 0, 1),
		"an attribute too long": append(tcmsg(3, 1, 2), 200, 0, 1, 0, 'h', 't', 'b', 0),
		"short parameters":      append(tcmsg(3, 1, 2), 8, 0, 1, 0, 't', 'b', 'f', 0, 12, 0, 2, 0, 8, 0, 1, 0, 0, 0, 0, 0),
		"no room for a rate":    append(tcmsg(3, 1, 2), 8, 0, 1, 0, 't', 'b', 'f', 0, 12, 0, 2, 0, 8, 0, 4, 0, 0, 0, 0, 0),
	} {
		s := &fakeSocket{dumps: map[uint16][][]byte{getQdisc: {message}}}
		if got, err := s.tc(t).Qdiscs(3); err == nil {
			t.Errorf("%s: no error, but %v", name, got)
		}
	}
}

func TestApply(t *testing.T) {
	var ops []Op
	for i := range 150 {
		ops = append(ops, Op{Verb: Add, Class: &Class{
			Handle: NewHandle(1, uint16(i)), Parent: NewHandle(1, 0), Options: HTBClass{RateBytesPerSec: 1, CeilBytesPerSec: 1}}})
	}
	s := &fakeSocket{}
	if err := s.tc(t).Apply(3, ops); err != nil {
		t.Errorf("apply: %v", err)
	}
	batches, _ := s.tried()
	if want := []int{64, 64, 22}; !slices.Equal(batches, want) || s.asking != len(want) {
		t.Errorf("batches of %v with %d acknowledgements, want %v and one each", batches, s.asking, want)
	}
	err := s.tc(t).Apply(3, nil)
	if batches, _ := s.tried(); err != nil || len(batches) != 3 {
		t.Errorf("apply nothing: %v, batches %v", err, batches)
	}

	// Each refusal is told of its own op, and what follows is still tried.
	s = &fakeSocket{refuse: map[int]unix.Errno{0: unix.EEXIST, 63: unix.ENOENT, 64: unix.EBUSY, 149: unix.EINVAL}}
	err = s.tc(t).Apply(3, ops)
	if _, changes := s.tried(); changes != len(ops) {
		t.Errorf("%d changes were tried", changes)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 4 {
		t.Fatalf("error %v", err)
	}
	for i, want := range []struct {
		op    int
		errno unix.Errno
	}{{0, unix.EEXIST}, {63, unix.ENOENT}, {64, unix.EBUSY}, {149, unix.EINVAL}} {
		var refused *OpError
		if err := joined.Unwrap()[i]; !errors.As(err, &refused) || refused.Op != ops[want.op] || !errors.Is(err, want.errno) {
			t.Errorf("refusal %d is %v, want %v of %s", i, err, want.errno, ops[want.op])
		}
	}

	s = &fakeSocket{}
	closed := s.tc(t)
	must.Succeed(t, closed.Close())
	var refused *OpError
	if err := closed.Apply(3, ops); !errors.Is(err, unix.EBADF) || errors.As(err, &refused) {
		t.Errorf("through a closed socket: %v", err)
	}
}

func TestRestore(t *testing.T) {
	saved, err := recorded(t).Save(3)
	must.Succeed(t, err)
	s := &fakeSocket{refuse: map[int]unix.Errno{1: unix.EINVAL}}
	err = s.tc(t).Restore(3, saved)
	// All but the class that tbf makes by itself, and each for itself: one
	// that is refused is no reason to leave the others out.
	if batches, _ := s.tried(); !slices.Equal(batches, []int{1, 1, 1, 1, 1, 1}) {
		t.Errorf("batches of %v", batches)
	}
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("error %v", err)
	}
}
