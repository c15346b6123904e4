package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// routeSocket reads lists of the network namespace in which it was opened, and changes what is in them. Unlike the
// libraries it keeps its socket and buffer, and makes no objects of what it reads: the control loop reads counters up
// to a hundred times a second, and a thousand containers have three thousand qdiscs. It is not safe for concurrent use.
type routeSocket struct {
	fd      int
	buffer  []byte
	request []byte
	// sequence distinguishes the answer to this request from leftovers of an earlier, abandoned
	// one.
	sequence uint32
	// interrupted: the list changed while the kernel answered, so it may be incomplete.
	interrupted bool
}

// Sizes of netlink headers.
const (
	sizeofHeader    = unix.SizeofNlMsghdr
	sizeofAttribute = unix.SizeofRtAttr
	// dumpBytes is the kernel's maximum size of one answer (net/netlink/af_netlink.c,
	// netlink_dump).
	dumpBytes = 64 << 10
	// shortDumpBytes is the least buffer: no message is larger (NLMSG_GOODSIZE,
	// include/linux/netlink.h), and the kernel fits the next ones to the buffer.
	shortDumpBytes = 8 << 10
)

func openRouteSocket(bufferBytes int) (*routeSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open traffic control: %w", os.NewSyscallError("socket", err))
	}
	// Ask for the kernel's error texts; older kernels have none.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	return &routeSocket{fd: fd, buffer: make([]byte, bufferBytes)}, nil
}

// close closes the socket; later requests fail.
func (s *routeSocket) close() error {
	err := unix.Close(s.fd)
	s.fd = -1
	return os.NewSyscallError("close", err)
}

// dumpDevice calls each with the objects of one kind at a device, filters with those of one parent; a list of
// qdiscs has those of all devices. They are valid during the call. Errors: those of dump.
func (s *routeSocket) dumpDevice(kind uint16, ifindex int, parent Handle, each func(object)) error {
	return s.dump(kind, tcmsg(ifindex, 0, parent), each)
}

// dump calls each with the objects of one kind that a request with this body selects. They are valid during the
// call. Errors: nl.ErrDumpInterrupted after a list that may be incomplete.
func (s *routeSocket) dump(kind uint16, body []byte, each func(object)) error {
	s.interrupted = false
	s.resetRequest()
	s.add(kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, body)
	if err := s.send(); err != nil {
		return err
	}
	for {
		b, err := s.read()
		if err != nil {
			s.discardRest()
			return err
		}
		done, err := s.parse(b, each)
		switch {
		case err != nil:
			s.discardRest()
			return err
		case done && s.interrupted:
			return nl.ErrDumpInterrupted
		case done:
			return nil
		}
	}
}

// change makes changes in order, in one system call, and returns the kernel's error for each refused one by its
// place; those after it are made all the same. The kernel answers changes in order, and tells of a refused one unasked
// (net/netlink/af_netlink.c, netlink_rcv_skb), so the answer to the last one, which is asked for, says that there are
// no more.
func (s *routeSocket) change(changes []netlink.Message) (refused map[int]error, err error) {
	first, last := s.sequence+1, len(changes)-1
	s.resetRequest()
	for i, m := range changes {
		flags := m.Header.Flags
		if i == last {
			flags |= netlink.Acknowledge
		}
		s.add(uint16(m.Header.Type), uint16(flags), m.Data)
	}
	if err := s.send(); err != nil {
		return nil, err
	}
	for {
		b, err := s.read()
		for err == nil && len(b) >= sizeofHeader {
			var a answer
			if a, b, err = cutAnswer(b); err != nil {
				break
			}
			place := a.sequence - first // large for an answer to an earlier request
			if a.kind != unix.NLMSG_ERROR || place > uint32(last) {
				continue
			}
			if err := a.refusal(); err != nil {
				if refused == nil {
					refused = map[int]error{}
				}
				refused[int(place)] = err
			}
			if place == uint32(last) {
				return refused, nil
			}
		}
		if err != nil { // answers are lost, and further ones until the socket is empty
			s.discardRest()
			return nil, err
		}
	}
}

// resetRequest empties the request, to which add adds messages, and which send sends.
func (s *routeSocket) resetRequest() { s.request = s.request[:0] }

func (s *routeSocket) add(kind, flags uint16, body []byte) {
	s.sequence++
	b := binary.NativeEndian.AppendUint32(s.request, uint32(sizeofHeader+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, s.sequence)
	b = binary.NativeEndian.AppendUint32(b, 0) // the kernel knows the socket's address
	b = append(b, body...)
	b = append(b, make([]byte, align(len(b))-len(b))...)
	s.request = b
}

func (s *routeSocket) send() error {
	_, err := unix.Write(s.fd, s.request)
	return os.NewSyscallError("write", err)
}

// read reads the next answers. They are valid until the next call.
func (s *routeSocket) read() ([]byte, error) {
	for {
		n, err := unix.Read(s.fd, s.buffer)
		switch {
		case err == nil:
			return s.buffer[:n], nil
		case !errors.Is(err, unix.EINTR):
			return nil, os.NewSyscallError("read", err)
		}
	}
}

// discardRest reads the rest of an abandoned list: until then the kernel refuses the next one with EBUSY. It
// does not wait, because the kernel queues another answer at each read while the list has more
// (net/netlink/af_netlink.c, netlink_recvmsg).
func (s *routeSocket) discardRest() {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buffer, unix.MSG_DONTWAIT)
		if n <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// object is a message about a qdisc, class or filter: a tcmsg and attributes. One about a device has an ifinfomsg
// in place of the tcmsg, with the index in the same place.
type object []byte

func (o object) ifindex() int   { return int(binary.NativeEndian.Uint32(o[4:])) }
func (o object) handle() Handle { return Handle(binary.NativeEndian.Uint32(o[8:])) }
func (o object) parent() Handle { return Handle(binary.NativeEndian.Uint32(o[12:])) }
func (o object) info() uint32   { return binary.NativeEndian.Uint32(o[16:]) }
func (o object) attrs() []byte  { return o[sizeofTcmsg:] }

// answer is one message of the kernel.
type answer struct {
	kind, flags uint16
	sequence    uint32
	body        []byte
}

// cutAnswer returns the first message in b, which has room for a header, and the rest.
func cutAnswer(b []byte) (a answer, rest []byte, err error) {
	length := int(binary.NativeEndian.Uint32(b))
	if length < sizeofHeader || length > len(b) {
		return answer{}, nil, errShort
	}
	a = answer{
		kind: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
		sequence: binary.NativeEndian.Uint32(b[8:]), body: b[sizeofHeader:length],
	}
	return a, b[min(align(length), len(b)):], nil
}

// refusal returns the kernel's error in a message of the kind NLMSG_ERROR, with its text if it has one; nil in an
// acknowledgement.
func (a answer) refusal() error {
	if len(a.body) < 4 {
		return errShort
	}
	code := unix.Errno(-int32(binary.NativeEndian.Uint32(a.body)))
	if code == 0 {
		return nil
	}
	// The request comes before the text.
	if a.flags&unix.NLM_F_ACK_TLVS != 0 && len(a.body) >= 4+sizeofHeader {
		if end := 4 + align(int(binary.NativeEndian.Uint32(a.body[4:]))); end <= len(a.body) {
			if text := attribute(a.body[end:], unix.NLMSGERR_ATTR_MSG); len(text) > 0 {
				return fmt.Errorf("%w: %s", code, unix.ByteSliceToString(text))
			}
		}
	}
	return code
}

// parse parses one answer and reports whether it was the last.
func (s *routeSocket) parse(b []byte, each func(object)) (done bool, err error) {
	for len(b) >= sizeofHeader {
		var a answer
		if a, b, err = cutAnswer(b); err != nil {
			return false, err
		}
		if a.sequence != s.sequence {
			continue
		}
		s.interrupted = s.interrupted || a.flags&unix.NLM_F_DUMP_INTR != 0
		switch {
		case a.kind == unix.NLMSG_DONE:
			return true, dumpError(a.body)
		case a.kind == unix.NLMSG_ERROR:
			err := a.refusal()
			return !errors.Is(err, errShort), err
		case len(a.body) < sizeofTcmsg:
			return false, errShort
		default:
			each(a.body)
		}
	}
	return false, nil
}

// dumpError returns the error in the end of a list that the kernel cut short (net/netlink/af_netlink.c,
// netlink_dump_done), nil if the list is complete.
func dumpError(end []byte) error {
	if len(end) < 4 {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(end)); code < 0 {
		return fmt.Errorf("the kernel cut the list short: %w", unix.Errno(-code))
	}
	return nil
}

// attributeKindMask removes the flags from an attribute's type (NLA_TYPE_MASK,
// include/uapi/linux/netlink.h).
const attributeKindMask = 0x3fff

// align rounds a length up to the next start of a message or attribute.
func align(length int) int { return (length + 3) &^ 3 }

// attribute returns the value of one attribute in b; nil if it is missing.
func attribute(b []byte, kind uint16) []byte {
	value, _ := findAttribute(b, kind)
	return value
}

// findAttribute returns the value of one attribute in b, and its type with flags; nil if it is missing.
func findAttribute(b []byte, kind uint16) (value []byte, flags uint16) {
	for flags, value := range attributes(b) {
		if flags&attributeKindMask == kind {
			return value, flags
		}
	}
	return nil, 0
}

// attributes are the types, with flags, and values of the attributes in b, up to the first broken attribute.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= sizeofAttribute {
			length := int(binary.NativeEndian.Uint16(b))
			if length < sizeofAttribute || length > len(b) || !yield(binary.NativeEndian.Uint16(b[2:]), b[sizeofAttribute:length]) {
				return
			}
			b = b[min(align(length), len(b)):]
		}
	}
}
