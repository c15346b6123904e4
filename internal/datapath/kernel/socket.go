package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Connection names a TCP connection of this network namespace.
type Connection struct{ Local, Remote netip.AddrPort }

// Sending is what the kernel still has to do for what a program wrote to a connection.
type Sending struct {
	// Held: bytes wait in the socket or at a device. Otherwise the last byte has left the host.
	Held bool
	// UnackedBytes are not acknowledged; those held are among them.
	UnackedBytes uint32
	// Retransmits counts segments sent again, ReceivedBytes what came in.
	Retransmits   uint32
	ReceivedBytes uint64
	// MinRTT is the shortest round trip of the last minutes.
	MinRTT time.Duration
}

// Sockets asks the kernel about TCP connections (sock_diag(7)), one at a time: the kernel finds
// one by its addresses at once, but a list takes a walk over all.
type Sockets struct{ conn *netlink.Conn }

// OpenSockets returns the sockets of the current network namespace.
func OpenSockets() (*Sockets, error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for TCP connections: %w", err)
	}
	return &Sockets{conn}, nil
}

// Close ends the questions.
func (s *Sockets) Close() error { return s.conn.Close() }

// Numbers of include/uapi/linux/inet_diag.h and sock_diag.h.
const (
	sockDiagByFamily = 20
	diagInfo         = 2 // attributes: struct tcp_info, and memory
	diagMemory       = 7
	memoryQueued     = 2 // of it: what is at devices
	requestBytes     = 56
	answerBytes      = 72
	addressesAt      = 8 // in the request
	unackedAt        = 60
	remoteAt         = 24 // in the answer: the other end's address
	unreadAt         = 56
	stateEstablished = 1
	stateListen      = 10
	// An acknowledgement counts with 2 bytes, a segment with what its buffer takes, 512 at least.
	segmentBytes = 512
)

// Sending returns what the kernel holds of a connection; false if it is closed, which it is once
// all is acknowledged.
func (s *Sockets) Sending(c Connection) (seen Sending, open bool, err error) {
	var family byte = unix.AF_INET
	if c.Local.Addr().Is6() {
		family = unix.AF_INET6
	}
	request := connectionRequest(family, 1<<(diagInfo-1)|1<<(diagMemory-1), ^uint32(0)) // any state
	id := request[addressesAt:]
	binary.BigEndian.PutUint16(id, c.Local.Port())
	binary.BigEndian.PutUint16(id[2:], c.Remote.Port())
	copy(id[4:20], c.Local.Addr().AsSlice())
	copy(id[20:36], c.Remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(id[40:], ^uint64(0)) // any cookie
	answers, err := s.execute(netlink.Request, request)
	if errors.Is(err, unix.ENOENT) {
		return Sending{}, false, nil
	} else if err != nil {
		return Sending{}, false, fmt.Errorf("ask for the connection from %v: %w", c.Remote, err)
	}
	for _, a := range answers {
		if len(a.Data) >= answerBytes && a.Data[1] != stateListen {
			return readSending(a.Data)
		}
	}
	return Sending{}, false, nil
}

// readSending reads struct inet_diag_msg. A connection in TIME_WAIT has no struct tcp_info.
func readSending(data []byte) (seen Sending, open bool, err error) {
	seen.UnackedBytes = binary.NativeEndian.Uint32(data[unackedAt:])
	attributes, err := netlink.NewAttributeDecoder(data[answerBytes:])
	if err != nil {
		return Sending{}, false, fmt.Errorf("read a connection's attributes: %w", err)
	}
	for attributes.Next() {
		switch value := attributes.Bytes(); attributes.Type() {
		case diagInfo:
			var info unix.TCPInfo // its layout
			if len(value) < int(unsafe.Offsetof(info.Data_segs_in)) {
				return Sending{}, false, errors.New("read a connection: it needs Linux 4.6")
			}
			number := func(at uintptr) uint32 { return binary.NativeEndian.Uint32(value[at:]) }
			open = true
			seen.Held = seen.Held || number(unsafe.Offsetof(info.Notsent_bytes)) > 0
			seen.Retransmits = number(unsafe.Offsetof(info.Total_retrans))
			seen.ReceivedBytes = binary.NativeEndian.Uint64(value[unsafe.Offsetof(info.Bytes_received):])
			seen.MinRTT = time.Duration(number(unsafe.Offsetof(info.Min_rtt))) * time.Microsecond
		case diagMemory:
			if at := 4 * memoryQueued; len(value) >= at+4 {
				seen.Held = seen.Held || binary.NativeEndian.Uint32(value[at:]) >= segmentBytes
			}
		}
	}
	return seen, open, attributes.Err()
}

// connectionRequest is a struct inet_diag_req_v2 about TCP in some states, a bit each, with extensions.
func connectionRequest(family, extensions byte, states uint32) []byte {
	request := make([]byte, requestBytes)
	request[0], request[1], request[2] = family, unix.IPPROTO_TCP, extensions
	binary.NativeEndian.PutUint32(request[4:], states)
	return request
}

func (s *Sockets) execute(flags netlink.HeaderFlags, request []byte) ([]netlink.Message, error) {
	return s.conn.Execute(netlink.Message{Header: netlink.Header{Type: sockDiagByFamily, Flags: flags}, Data: request})
}

// busyWithin is how long ago data may have moved on a connection in use. Times of the kernel have the resolution of
// its ticks, so an answer and the next request may seem to come together.
const busyWithin = 5 * time.Second

// CountConnections returns how many TCP connections that others have opened to programs of the network namespace at path
// are in use: data moved within busyWithin, came after what was sent last, or waits for the program or the other end. The kernel walks over all connections of the host
// for that. Errors: ErrNoNetNS.
func CountConnections(path string) (int, error) {
	ns, err := openNetNSFile(path)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{NetNS: int(ns)})
	if err != nil {
		return 0, fmt.Errorf("ask for TCP connections of %s: %w", path, err)
	}
	defer conn.Close()
	count, err := (&Sockets{conn}).countBusy()
	if err != nil {
		err = fmt.Errorf("list TCP connections of %s: %w", path, err)
	}
	return count, err
}

// countBusy returns how many accepted connections are in use.
func (s *Sockets) countBusy() (count int, err error) {
	listening := map[[2]byte]bool{} // by the port
	var connections [][]byte
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		answers, err := s.execute(netlink.Request|netlink.Dump, connectionRequest(family, 1<<(diagInfo-1), 1<<stateEstablished|1<<stateListen))
		if err != nil {
			return 0, err
		}
		for _, a := range answers {
			switch {
			case len(a.Data) < answerBytes:
			case a.Data[1] == stateListen:
				listening[[2]byte(a.Data[4:])] = true
			default:
				connections = append(connections, a.Data)
			}
		}
	}
	for _, c := range connections {
		if busy, err := isBusy(c); err != nil {
			return 0, err
		} else if busy && listening[[2]byte(c[4:])] && !remoteOf(c).IsLoopback() {
			count++
		}
	}
	return count, nil
}

// remoteOf returns the address of the other end in a struct inet_diag_msg.
func remoteOf(c []byte) netip.Addr {
	if c[0] == unix.AF_INET {
		return netip.AddrFrom4([4]byte(c[remoteAt:]))
	}
	return netip.AddrFrom16([16]byte(c[remoteAt:])).Unmap()
}

// isBusy reports whether a connection is in use; see [CountConnections].
func isBusy(c []byte) (bool, error) {
	busy := binary.NativeEndian.Uint32(c[unreadAt:]) > 0 || binary.NativeEndian.Uint32(c[unackedAt:]) > 0
	err := eachAttribute(c[answerBytes:], func(attribute *netlink.AttributeDecoder) error {
		var info unix.TCPInfo // its layout
		if value := attribute.Bytes(); attribute.Type() == diagInfo && len(value) >= int(unsafe.Offsetof(info.Delivery_rate)) {
			number := func(at uintptr) uint32 { return binary.NativeEndian.Uint32(value[at:]) }
			sent, received := number(unsafe.Offsetof(info.Last_data_sent)), number(unsafe.Offsetof(info.Last_data_recv)) // ms ago
			first := number(unsafe.Offsetof(info.Data_segs_in)) > 0 && number(unsafe.Offsetof(info.Data_segs_out)) == 0
			busy = busy || first || received < sent || time.Duration(min(sent, received))*time.Millisecond <= busyWithin
		}
		return nil
	})
	return busy, err
}
